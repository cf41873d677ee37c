"""Differences over several orders: known by hand, and what several orders are not."""

import math

import numpy as np
import pytest
from test_errors import unchecked

from faircontext.errors import ArgumentError
from faircontext.metrics import difference_over_orders, paired_bootstrap


def outcomes(orders: int, images: int, seed: int, share: float = 0.6) -> np.ndarray:
    return np.random.default_rng(seed).random((orders, images)) < share


def test_both_variances_are_added() -> None:
    first, second = outcomes(3, 400, 0), outcomes(3, 400, 1, 0.55)
    found = difference_over_orders(first, second, resamples=200_000)
    means = [[sum(row) / 400 for row in side.tolist()] for side in (first, second)]
    changes = [a - b for a, b in zip(*means, strict=True)]
    value = sum(changes) / 3
    of_orders = sum((change - value) ** 2 for change in changes) / 2
    images = (first.astype(float) - second).mean(0)
    of_images = sum((one - value) ** 2 for one in images.tolist()) / 400 / 400  # a mean's variance, in closed form
    assert found.value == pytest.approx(value, abs=1e-12)
    assert found.sd == pytest.approx(math.sqrt(of_orders), abs=1e-12)
    error = math.sqrt(of_images + of_orders / 3)
    assert (found.high - found.low) / 2 == pytest.approx(1.95996 * error, rel=5e-3)
    assert found.p_value == pytest.approx(math.erfc(value / error / math.sqrt(2)), rel=0.05)


def test_orders_that_do_not_matter_are_no_more_images() -> None:
    first, second = (np.repeat(outcomes(1, 300, seed), 3, 0) for seed in (2, 3))
    found, one = difference_over_orders(first, second), paired_bootstrap(first[0], second[0])
    assert found.sd == 0.0
    assert found.value == pytest.approx(one.value)
    assert found.high - found.low == pytest.approx(one.high - one.low, rel=0.06)


def test_equal_methods_do_not_differ() -> None:
    same = outcomes(2, 50, 4)
    found = difference_over_orders(same, same)
    assert (found.value, found.sd, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 0.0, 1.0)
    always = difference_over_orders(np.ones((2, 5), bool), np.zeros((2, 5), bool))
    assert (always.value, always.p_value) == (1.0, 0.0)


def test_what_cannot_be_compared_is_refused() -> None:
    with unchecked(), pytest.raises(ArgumentError, match=r"first has the shape \(2, 5\) and second \(2, 4\)"):
        difference_over_orders(outcomes(2, 5, 0), outcomes(2, 4, 0))
    with pytest.raises(ArgumentError, match="first has 1 orders; give at least 2"):
        difference_over_orders(outcomes(1, 5, 0), outcomes(1, 5, 0))
