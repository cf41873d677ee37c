import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from faircontext.metrics.stats import Accuracy, mcnemar_exact, wilson_interval


def wilson_by_hand(successes: int, number: int, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = successes / number
    centre = (p + z**2 / (2 * number)) / (1 + z**2 / number)
    half = z / (1 + z**2 / number) * math.sqrt(p * (1 - p) / number + z**2 / (4 * number**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar_by_hand(first: int, second: int) -> float:
    number, fewer = first + second, min(first, second)
    return min(1.0, 2 * sum(math.comb(number, k) for k in range(fewer + 1)) / 2**number)


@given(st.integers(1, 60_000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_interval_is_the_formula(number, fraction, level):
    successes = round(fraction * number)
    low, high = wilson_interval(successes, number, level)
    assert (low, high) == pytest.approx(wilson_by_hand(successes, number, level), abs=1e-12)
    assert 0 <= low <= successes / number <= high <= 1


def test_wilson_interval_of_a_known_case():
    # Newcombe (1998), Table I: 81 of 263, and 0 of 20.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_counts_coin_throws(first, second):
    assert mcnemar_exact(first, second) == pytest.approx(mcnemar_by_hand(first, second), rel=1e-9)
    assert mcnemar_exact(first, second) == mcnemar_exact(second, first)


@pytest.mark.parametrize(
    ("first", "second", "p"), [(0, 0, 1.0), (1, 0, 1.0), (0, 5, 0.0625), (3, 3, 1.0), (1, 9, 22 / 1024)]
)
def test_mcnemar_by_hand(first, second, p):
    assert mcnemar_exact(first, second) == pytest.approx(p, rel=1e-12)


def test_mcnemar_agrees_with_scipys_binomial_test():
    assert mcnemar_exact(40, 61) == pytest.approx(binomtest(40, 101).pvalue, rel=1e-12)


def test_accuracy_prints_its_size_and_interval():
    assert str(Accuracy(3, 4)) == "75.0% (n = 4, 95% interval 30.1 to 95.4)"


def test_accuracy_is_the_proportion_with_its_wilson_interval():
    accuracy = Accuracy(81, 263)
    assert accuracy.value == 81 / 263
    assert accuracy.interval == pytest.approx(wilson_by_hand(81, 263, 0.95), abs=1e-12)
