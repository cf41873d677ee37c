import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom, bootstrap, norm
from test_errors import unchecked

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import average_interval, bootstrap_mean, interval_over_sets, paired_bootstrap
from faircontext.metrics.stats import Accuracy, chance_p_value, holm, mcnemar_exact, wilson_interval


def wilson_by_hand(successes: int, number: int) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.975)
    p = successes / number
    centre = (p + z**2 / (2 * number)) / (1 + z**2 / number)
    half = z / (1 + z**2 / number) * math.sqrt(p * (1 - p) / number + z**2 / (4 * number**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar_by_hand(first: int, second: int) -> float:
    number, fewer = first + second, min(first, second)
    return min(1.0, 2 * sum(math.comb(number, k) for k in range(fewer + 1)) / 2**number)


@given(st.integers(1, 60_000), st.floats(0, 1))
def test_wilson_interval_is_the_formula(number, fraction):
    successes = round(fraction * number)
    low, high = wilson_interval(successes, number)
    assert (low, high) == pytest.approx(wilson_by_hand(successes, number), abs=1e-12)
    assert 0 <= low <= successes / number <= high <= 1


def test_wilson_interval_of_a_known_case():
    # Newcombe (1998), Table I: 81 of 263, and 0 of 20.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_counts_coin_throws(first, second):
    assert mcnemar_exact(first, second) == pytest.approx(mcnemar_by_hand(first, second), rel=1e-9)
    assert mcnemar_exact(first, second) == mcnemar_exact(second, first)


def test_accuracy_prints_its_size_and_interval():
    assert str(Accuracy(3, 4)) == "75.0% (n = 4, 95% interval 30.1 to 95.4)"


def test_chance_p_value_by_hand():
    assert chance_p_value(2, 2, 4) == pytest.approx(1 / 16)
    assert chance_p_value(1, 2, 4) == pytest.approx(7 / 16)
    assert chance_p_value(0, 2, 4) == 1


@given(st.integers(1, 500), st.floats(0, 1), st.integers(1, 300))
def test_chance_p_value_is_the_tail_of_the_binomial(number, fraction, classes):
    correct = round(fraction * number)
    tail = binom.sf(correct - 1, number, 1 / classes)
    assert chance_p_value(correct, number, classes) == pytest.approx(tail, rel=1e-9)


def test_holm_by_hand():
    # In order 0.005 * 4, 0.01 * 3, 0.03 * 2, 0.04 * 1; the last may not be below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02), rel=1e-12)
    assert holm([0.6, 0.5]) == (1.0, 1.0)
    assert holm([0.2]) == (0.2,)
    assert holm([]) == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_order_and_is_between_the_raw_value_and_bonferroni(p_values):
    adjusted = holm(p_values)
    for raw, value in zip(p_values, adjusted, strict=True):
        assert raw <= value <= min(1, raw * len(p_values))
    in_order = sorted(zip(p_values, adjusted, strict=True))
    assert [value for _, value in in_order] == sorted(adjusted)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 0.999))
def test_holm_refutes_what_its_procedure_refutes(p_values, level):
    refuted = 0
    for place, raw in enumerate(sorted(p_values)):
        if raw * (len(p_values) - place) > level:
            break
        refuted += 1
    assert sum(value <= level for value in holm(p_values)) == refuted


def outcomes(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Right or wrong, for two methods that mostly agree."""
    rng = np.random.default_rng(seed)
    first = rng.random(number) < 0.7
    return first, first ^ (rng.random(number) < 0.2)


@pytest.mark.parametrize("few", [100, 0])
def test_paired_bootstrap_is_scipys(few, monkeypatch):
    monkeypatch.setattr("faircontext.metrics.bootstrap._FEW_VALUES", few)  # both ways of drawing
    first, second = outcomes(300, 0)
    found = paired_bootstrap(first, second)

    def difference(a, b, axis):
        return a.mean(axis) - b.mean(axis)

    theirs = bootstrap(
        (first, second), difference, paired=True, method="percentile", random_state=1
    ).confidence_interval
    assert found.value == pytest.approx(first.mean() - second.mean(), abs=1e-12)
    # The ends are quantiles of 9,999 draws of standard deviation s: their own error is about 2 s / 100 at 99%.
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.005)


def test_bootstrap_of_many_outcomes_is_the_normal_interval():
    values = np.random.default_rng(5).normal(3, 2, 2000)
    half = norm.ppf(0.975) * values.std() / math.sqrt(2000)
    found = bootstrap_mean(values, resamples=2000)
    assert found.value == pytest.approx(values.mean(), rel=1e-12)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.015)


def test_bootstrap_covers_the_truth_about_as_often_as_it_says():
    covered = 0
    for seed in range(300):
        first, second = outcomes(200, seed)
        found = paired_bootstrap(first, second, resamples=500)
        # The truth: 0.7 turns to 0.7 * 0.8 + 0.3 * 0.2.
        covered += found.low <= 0.7 - 0.62 <= found.high
    assert 0.9 < covered / 300 < 0.985


@pytest.mark.parametrize("value", [0.0, 0.1, -1.0])
def test_equal_differences_are_their_own_interval(value):
    second = np.full(7, 0.3)
    found = paired_bootstrap(second + value, second)
    assert found.low == found.value == found.high == pytest.approx(value)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=50))
def test_the_interval_turns_with_the_pair_and_holds_the_value(pairs):
    first, second = (np.array(column) for column in zip(*pairs, strict=True))
    one, other = paired_bootstrap(first, second, resamples=500), paired_bootstrap(second, first, resamples=500)
    assert one.value == pytest.approx(-other.value, abs=1e-12)
    assert -1 <= one.low <= one.value <= one.high <= 1


def test_average_weighs_data_sets_alike_and_draws_within_each():
    large, small = outcomes(2000, 1)[0], outcomes(50, 2)[0]
    found = average_interval([large, small])
    assert found.value == pytest.approx((large.mean() + small.mean()) / 2, rel=1e-12)
    # Variances of independent means add; the variance of an average of two is a quarter of the sum.
    deviation = math.sqrt(large.var() / 2000 + small.var() / 50) / 2
    assert (found.high - found.low) / 2 == pytest.approx(norm.ppf(0.975) * deviation, rel=0.08)
    assert average_interval([large]) == bootstrap_mean(large)


def differing_sets(effects, n=100):
    """Differences of a method and a reference, of which a share, by set, is 1 and the rest 0."""
    return [np.repeat([1.0, 0.0], (round(effect * n), n - round(effect * n))) for effect in effects]


@pytest.mark.parametrize("each", ["image", "set"])
@pytest.mark.parametrize("effects", [(0.0, 0.0, 0.1, 0.2, 0.7), (0.2, 0.2, 0.2, 0.2, 0.2), (0.1, 0.2, 0.3) * 4])
def test_an_interval_over_sets_has_the_spread_of_sets_and_of_images(effects, each):
    sets = differing_sets(effects)
    found, images = interval_over_sets(sets, each), average_interval(sets)
    assert found.value == pytest.approx(np.mean(effects)) == pytest.approx(images.value)
    within = np.mean([effect * (1 - effect) / 100 for effect in effects])
    deviation = math.sqrt((np.var(effects) + within) / len(effects))
    assert (found.high - found.low) / 2 == pytest.approx(norm.ppf(0.975) * deviation, rel=0.1)
    ratio = (found.high - found.low) / (images.high - images.low)
    if len({*effects}) == 1:
        assert ratio == pytest.approx(1.0, abs=0.05)
    else:
        assert ratio > 1.5


def test_over_sets_an_image_or_a_set_weighs_the_same():
    sets = [np.ones(300), *(np.zeros(100) for _ in range(4))]
    by_image, by_set = interval_over_sets(sets), interval_over_sets(sets, "set")
    assert by_image.value == pytest.approx(300 / 700)
    assert by_set.value == pytest.approx(1 / 5)
    # The one set is not drawn with (4/5)^5 = 0.33, and alone with (1/5)^5: 0 is an end, 1 is none.
    assert by_image.low == by_set.low == 0.0
    assert by_image.high < 1.0


def test_four_sets_say_nothing_of_others():
    assert interval_over_sets(differing_sets((0.1, 0.2, 0.3, 0.4))) is None


def test_a_set_that_is_drawn_twice_has_its_images_drawn_twice():
    halves = differing_sets((0.5,) * 6, n=2)  # a set's resample is 0, 1/2 or 1; of one drawn six times not the same
    found = interval_over_sets(halves, resamples=4000)
    assert found.high - found.low == pytest.approx(2 * norm.ppf(0.975) * math.sqrt(0.25 / 12), rel=0.15)


ONES = np.ones(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paired_bootstrap(ONES, np.ones(2)), "second has 2 entries and first has 3; both are per"),
        (lambda: bootstrap_mean(ONES[:0]), "outcomes is empty; it needs an entry"),
        (lambda: bootstrap_mean(ONES * np.nan), "outcomes are not all finite"),
        (lambda: bootstrap_mean(ONES, resamples=0), "resamples=0 is not possible"),
        (lambda: bootstrap_mean(ONES, seed=-1), "seed=-1 is not possible"),
        (lambda: average_interval([]), "scores has no data set; give at least one"),
        (lambda: average_interval([ONES, ONES[:0]]), "outcomes is empty"),
        (lambda: interval_over_sets([ONES, ONES[:0]]), "outcomes is empty"),
        (lambda: interval_over_sets([ONES], "class"), "each='class' is not possible; use one of 'image', 'set'"),
        (lambda: holm([0.5, 1.5]), r"p_values has 1\.5; it is a probability"),
        (lambda: holm([math.nan]), "p_values has nan; it is a probability"),
        (lambda: wilson_interval(0, 0), "n=0 is not possible"),
        (lambda: wilson_interval(3, 2), "successes=3 is not possible; it must lie between 0 and n=2"),
        (lambda: chance_p_value(-1, 2, 2), "correct=-1 is not possible"),
        (lambda: chance_p_value(1, 2, 0), "classes=0 is not possible"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(call, message):
    with unchecked(), pytest.raises(ArgumentError, match=message):
        call()
