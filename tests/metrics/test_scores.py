import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm
from test_errors import unchecked

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import average_interval, interval_over_sets, paired_bootstrap, pool, pool_draws
from faircontext.metrics.scores import (
    NO_PREDICTION,
    Comparison,
    compare_sets,
    mean_per_class,
    per_class_accuracy,
)
from faircontext.metrics.stats import mcnemar_exact

TOP = np.array([[2, 0, 1], [0, 1, 2], [1, 2, NO_PREDICTION], [NO_PREDICTION] * 3])
LABELS = np.array([0, 0, 0, 1])


def test_per_class_by_hand():
    index, labels = np.array([0, 1, 1, NO_PREDICTION, 3]), np.array([0, 0, 1, 1, 1])
    found = per_class_accuracy(index, labels, 4)
    assert found.correct.tolist() == [1, 1, 0, 0]
    assert found.n.tolist() == [2, 3, 0, 0]
    np.testing.assert_array_equal(found.values, [1 / 2, 1 / 3, np.nan, np.nan])
    assert mean_per_class(index, labels, 4) == pytest.approx((1 / 2 + 1 / 3) / 2)


@given(st.data(), st.integers(1, 30))
def test_classes_add_up_to_the_whole_and_weigh_the_same(data, number):
    index = data.draw(arrays(np.int64, number, elements=st.integers(NO_PREDICTION, 4)))
    labels = data.draw(arrays(np.int64, number, elements=st.integers(0, 4)))
    found = per_class_accuracy(index, labels, 5)
    assert found.n.sum() == number
    assert found.correct.sum() == (index == labels).sum()
    by_class = [(index[labels == c] == c).mean() for c in sorted(set(labels.tolist()))]
    assert mean_per_class(index, labels, 5) == pytest.approx(np.mean(by_class))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_a_comparison_is_four_counts(pairs):
    method, reference = (np.array(column) for column in zip(*pairs, strict=True))
    found = Comparison.of(method, reference)
    assert (found.accuracy.correct, found.reference.correct, found.n) == (method.sum(), reference.sum(), len(pairs))
    assert found.gained - found.lost == int(method.sum()) - int(reference.sum())
    assert found.p_value == mcnemar_exact(found.gained, found.lost)
    if not found.is_constant:
        assert found.difference == paired_bootstrap(method, reference)


def tango(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Return where the score statistic of Tango (1998) is the normal quantile, by bisection."""

    def score(delta: float) -> float:
        a, b, c = 2 * n, -gained - lost + (2 * n - gained + lost) * delta, -lost * delta * (1 - delta)
        share = (np.sqrt(b * b - 4 * a * c) - b) / (2 * a)
        return (gained - lost - n * delta) / np.sqrt(n * (2 * share + delta * (1 - delta)))

    value, ends = (gained - lost) / n, []
    for end, z in ((-1.0, norm.ppf(0.975)), (1.0, -norm.ppf(0.975))):
        inside, outside = value, end
        for _ in range(60 if value != end else 0):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if abs(score(middle)) < abs(z) else (inside, middle)
        ends.append(inside)
    return ends[0], ends[1]


@pytest.mark.parametrize("n", [1, 3, 20, 500])
@pytest.mark.parametrize("share", [(1, 0), (0, 1), (0, 0)])
def test_a_difference_that_is_the_same_on_all_images_has_a_score_interval(share, n):
    gained, lost = share[0] * n, share[1] * n
    found = Comparison(n - gained - lost, gained, lost, 0).difference
    assert found.value == share[0] - share[1]
    assert (found.low, found.high) == pytest.approx(tango(gained, lost, n), abs=1e-9)
    assert found.low < found.high


def test_an_average_of_constant_differences_adds_their_squares():
    same, right = Comparison(10, 0, 0, 10), Comparison(0, 3, 0, 0)
    found = compare_sets([same, right], "set").images
    parts = [same.difference, right.difference]
    below = sum((one.value - one.low) ** 2 for one in parts) ** 0.5 / 2
    above = sum((one.high - one.value) ** 2 for one in parts) ** 0.5 / 2
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5 - below, 0.5 + above))
    assert compare_sets([same], "set").images == same.difference
    mixed = [same, Comparison(0, 10, 10, 0)]
    assert compare_sets(mixed, "set").images == average_interval([one.outcomes for one in mixed])


GAINS_20 = Comparison(40, 20, 0, 40)
NO_CHANGE = Comparison(40, 0, 0, 60)


@pytest.mark.parametrize("each", ["image", "set"])
def test_a_gain_of_one_set_alone_is_sure_on_these_images_and_not_on_sets_like_these(each):
    found = compare_sets([GAINS_20, *[NO_CHANGE] * 5], each)
    assert found.value == pytest.approx(20 / 600)
    assert found.images.low > 0
    assert found.sets.low <= 0 < found.sets.high
    assert found.sets.high - found.sets.low > 1.5 * (found.images.high - found.images.low)
    assert (found.n, found.datasets, found.reason) == (600, 6, "")
    assert found.p_value == (mcnemar_exact(20, 0) if each == "image" else None)
    assert found.sets == interval_over_sets([GAINS_20.outcomes, *[NO_CHANGE.outcomes] * 5], each)


@pytest.mark.parametrize("each", ["image", "set"])
@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        ([GAINS_20], ""),
        ([GAINS_20, NO_CHANGE, NO_CHANGE, NO_CHANGE], "4 data sets say little of others; it takes 5"),
        ([NO_CHANGE] * 5, "every resample of the sets has the same value"),
    ],
)
def test_few_sets_and_sets_that_do_not_differ_have_one_interval_and_the_reason(sets, reason, each):
    found = compare_sets(sets, each)
    assert found.sets is None
    assert found.reason == reason
    assert found.images.low < found.value or found.images.high > found.value


def test_means_that_are_no_comparisons_are_pooled_alike():
    effects = [np.random.default_rng(n).normal(n, 1.0, 150) for n in range(6)]
    draws = [np.random.default_rng(n).normal(n, 150**-0.5, 999) for n in range(6)]
    found, drawn = pool(effects, "set", 999), pool_draws(range(6), draws, 900)
    assert found.images == average_interval(effects, 999)
    assert found.sets == interval_over_sets(effects, "set", 999)
    assert pool(effects, images=found.images, p_value=0.5).images is found.images
    width = drawn.sets.high - drawn.sets.low
    assert width == pytest.approx(found.sets.high - found.sets.low, rel=0.1)  # of the same spread, drawn elsewhere
    assert pool([np.zeros(4)] * 5).sets is None
    assert np.isnan(pool([np.zeros(4)] * 5).images.low)


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20), min_size=1, max_size=5))
def test_comparisons_pooled_are_that_of_all_images(sets):
    def compare(pairs):
        return Comparison.of(*(np.array(column) for column in zip(*pairs, strict=True)))

    assert Comparison.pooled(map(compare, sets)) == compare([pair for pairs in sets for pair in pairs])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_per_class(TOP[:, 0] - 2, LABELS, 3), "index has the class -2; .* from 0 to 2"),
        (lambda: mean_per_class(TOP[:, 0], LABELS / 2, 3), "labels is of type float64; it holds classes by index"),
        (lambda: mean_per_class(TOP[:0, 0], LABELS[:0], 3), "index is empty; it needs an entry for at least one image"),
        (lambda: mean_per_class(TOP[:, 0], LABELS + 2, 3), "labels has the class 3; .* from 0 to 2"),
        (lambda: mean_per_class(TOP[:, 0], LABELS, 2), "index has the class 2; .* from 0 to 1"),
        (lambda: mean_per_class(TOP[:, 0], LABELS, 0), "classes=0 is not possible"),
        (lambda: mean_per_class(TOP[:2, 0], LABELS, 3), "labels has 4 entries and index has 2"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(call, message):
    with unchecked(), pytest.raises(ArgumentError, match=message):
        call()
