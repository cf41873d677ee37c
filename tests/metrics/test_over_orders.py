"""Several answers for an image, over orders and under corruptions: known by hand, and what they are not."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from test_errors import unchecked

from faircontext.errors import ArgumentError
from faircontext.metrics import (
    accuracy_over_orders,
    bootstrap_mean,
    corruption_errors,
    difference_over_orders,
    mean_corruption_error,
    means_by_part,
)


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


def test_equal_methods_do_not_differ() -> None:
    same = outcomes(2, 50, 4)
    found = difference_over_orders(same, same)
    assert (found.value, found.sd, found.p_value) == (0.0, 0.0, 1.0)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    always = difference_over_orders(np.ones((2, 5), bool), np.zeros((2, 5), bool))
    assert (always.value, always.p_value) == (1.0, 2 / 2**5)  # five coins that all fall alike
    assert math.isnan(always.low)


def test_what_cannot_be_compared_is_refused() -> None:
    with unchecked(), pytest.raises(ArgumentError, match=r"first has the shape \(2, 5\) and second \(2, 4\)"):
        difference_over_orders(outcomes(2, 5, 0), outcomes(2, 4, 0))
    with pytest.raises(ArgumentError, match="first has 1 orders; give at least 2"):
        difference_over_orders(outcomes(1, 5, 0), outcomes(1, 5, 0))


def test_the_interval_of_a_mean_over_orders_is_of_the_images() -> None:
    correct = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], bool)  # 3, 2 and 4 of 5
    found = accuracy_over_orders(correct)
    assert (found.n, found.orders, found.least, found.most) == (5, 3, 0.4, 0.8)
    assert found.sd == pytest.approx(0.2)
    expected = binomtest(3, 5).proportion_ci(0.95, method="wilson")
    assert vars(found.mean) == pytest.approx({"value": 0.6, "low": expected.low, "high": expected.high})
    alone = accuracy_over_orders(correct[:1])
    assert alone.mean == found.mean
    assert math.isnan(alone.sd)
    assert (alone.least, alone.most) == (0.6, 0.6)
    for shape in ((0, 5), (2, 0)):
        with pytest.raises(ArgumentError, match=r"(orders|images)=0 is not possible"):
            accuracy_over_orders(np.zeros(shape, bool))


def test_means_along_a_stream_are_of_the_answers_that_lie_there() -> None:
    values = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    part = np.array([[0, 0, 2, -1], [2, 0, 0, -1]])
    means, answers = means_by_part(values, part, 4)
    assert answers.tolist() == [4, 0, 2, 0]
    assert [one.value for one in means] == pytest.approx(
        [(1 + 2 + 6 + 7) / 4, math.nan, (3 + 5) / 2, math.nan], nan_ok=True
    )
    assert means[0].low <= means[0].value <= means[0].high
    assert all(math.isnan(end) for end in vars(means[1]).values())


def test_several_answers_for_an_image_in_a_part_are_not_several_images() -> None:
    correct = outcomes(1, 300, 5)
    one, three = (means_by_part(np.repeat(correct, n, 0), np.zeros((n, 300), int), 1)[0][0] for n in (1, 3))
    expected = bootstrap_mean(correct[0])
    assert three == one
    assert one.value == pytest.approx(expected.value)
    assert one.high - one.low == pytest.approx(expected.high - expected.low, rel=0.1)


def test_resamples_that_are_drawn_in_pieces_are_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    correct, part = outcomes(2, 50, 6), np.random.default_rng(7).integers(0, 3, (2, 50))
    whole = means_by_part(correct, part, 3)[0]
    monkeypatch.setattr("faircontext.metrics.bootstrap._BLOCK", 50 * 7)  # 999 is no multiple of 7
    assert means_by_part(correct, part, 3)[0] == whole  # the same draws, one after another


@pytest.mark.parametrize(("shape", "largest"), [((2, 4), 0), ((2, 5), 3), ((0, 0), 0)])
def test_parts_that_do_not_fit_are_refused(shape: tuple[int, int], largest: int) -> None:
    values = np.zeros((2, 5)) if shape != (0, 0) else np.zeros(shape)
    with unchecked(), pytest.raises(ArgumentError, match=r"invalid part of shape .* lie between -1 and 2"):
        means_by_part(values, np.full(shape, largest), 3)


def answers(*wrong: int, n: int = 10) -> np.ndarray:
    return ~np.isin(np.arange(n), wrong)


def test_it_is_the_mean_of_ratios_of_summed_errors() -> None:
    """fog: 2 + 4 errors to 4 + 8; snow: 3 to 2. So CE is 0.5 and 1.5, and mCE 1."""
    own = {"fog": {1: answers(0, 1), 5: answers(0, 1, 2, 3)}, "snow": {3: answers(4, 5, 6)}}
    other = {"fog": {1: answers(0, 1, 2, 3), 5: answers(*range(8))}, "snow": {3: answers(8, 9)}}
    assert corruption_errors(own, other) == {"fog": 0.5, "snow": 1.5}
    assert mean_corruption_error(own, other).value == 1.0


def test_a_reference_has_100_percent_and_no_width() -> None:
    own = {"fog": {1: answers(0, 3), 2: answers(1)}, "snow": {1: answers(5, 6), 2: answers(7)}}
    interval = mean_corruption_error(own, own)
    assert (interval.value, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_the_interval_is_of_images_drawn_with_all_their_corruptions() -> None:
    rng = np.random.default_rng(1)
    own, other = ({name: {s: rng.random(60) < p for s in (1, 2)} for name in ("fog", "snow")} for p in (0.6, 0.4))
    interval = mean_corruption_error(own, other, resamples=4000)
    drawn = []
    for _ in range(4000):
        chosen = rng.integers(60, size=60)
        ratios = [
            sum((~own[name][s][chosen]).sum() for s in (1, 2)) / sum((~other[name][s][chosen]).sum() for s in (1, 2))
            for name in own
        ]
        drawn.append(np.mean(ratios))
    low, high = np.quantile(drawn, (0.025, 0.975))
    assert interval.low < interval.value < interval.high
    assert (interval.low, interval.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.03))


def test_without_an_error_of_the_reference_there_is_none() -> None:
    own, other = {"fog": {1: answers(1)}}, {"fog": {1: answers()}}
    assert np.isnan(corruption_errors(own, other)["fog"])
    assert np.isnan([*vars(mean_corruption_error(own, other)).values()]).all()


@pytest.mark.parametrize("other", [{}, {"fog": {2: answers(1)}}, {"snow": {1: answers(1)}}])
def test_other_corruptions_severities_or_images_are_refused(other: dict) -> None:
    with pytest.raises(ArgumentError, match="must be of the same corruptions, severities and images"):
        corruption_errors({"fog": {1: answers(1)}}, other)
