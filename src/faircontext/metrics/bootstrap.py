"""Bootstrap: images are drawn again with replacement, and what resamples give tells how far a number can be trusted.

All intervals of this package that are not in closed form come from `draw_counts`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int, Shaped

from faircontext.errors import ArgumentError, check_choice, check_minimum
from faircontext.metrics.checks import check_lengths
from faircontext.metrics.stats import Interval

CorrelationKind = Literal["pearson", "spearman"]
Weighing = Literal["image", "set"]

_FEW_VALUES = 100
"""Up to so many distinct outcomes, resamples are drawn as counts of the outcomes."""

FEWEST_SETS = 5
"""With fewer, resampled sets say nothing of sets that were not measured."""

_BLOCK = 1 << 20
"""Counts that are held at a time."""


def _generator(resamples: int, seed: int | np.random.Generator) -> np.random.Generator:
    """Return the generator of draws, or raise `ArgumentError` where either argument is out of range."""
    check_minimum("resamples", resamples, 1)
    if not isinstance(seed, np.random.Generator):
        check_minimum("seed", seed, 0)
    return np.random.default_rng(seed)


def draw_counts(
    n: int, resamples: int, seed: int | np.random.Generator, sizes: Sequence[int] = ()
) -> Iterator[Int[np.ndarray, "draws n"]]:
    """Yield how often each of `n` units occurs in resamples of size `n`, drawn with replacement.

    Args:
        n: units, such as images or clusters.
        resamples: how many resamples there are in all.
        seed: of the draws, or their generator. The same seed draws the same, so that differences are paired.
        sizes: of the data sets that the units come from, side by side; sets are then drawn, and the units of each.

    Yields:
        The counts of some resamples at a time, so that memory does not grow with `resamples`.

    Raises:
        ArgumentError: `n` or `resamples` is below 1, or the seed is negative.
    """
    check_minimum("n", n, 1)
    rng, block = _generator(resamples, seed), max(1, _BLOCK // n)
    lengths, starts = [*sizes] or [n], np.cumsum([0, *sizes])

    def draw() -> Int[np.ndarray, " n"]:
        counts = np.zeros(n, np.int64)
        for index in rng.integers(len(sizes), size=len(sizes)) if sizes else (0,):
            size, start = lengths[index], starts[index]
            counts[start : start + size] += np.bincount(rng.integers(size, size=size), minlength=size)
        return counts

    for start in range(0, resamples, block):
        yield np.stack([draw() for _ in range(min(block, resamples - start))])


def resample(
    n: int,
    resamples: int,
    seed: int | np.random.Generator,
    statistic: Callable[[Int[np.ndarray, "draws n"]], Shaped[np.ndarray, "draws ..."]],
    sizes: Sequence[int] = (),
) -> Shaped[np.ndarray, "resamples ..."]:
    """Return what a statistic of the counts of `draw_counts` is in each resample; arguments as there."""
    return np.concatenate([statistic(counts) for counts in draw_counts(n, resamples, seed, sizes)])


def percentile_interval(value: float, draws: Shaped[np.ndarray, " resamples"]) -> Interval:
    """Return a value with the interval between the 2.5% and the 97.5% quantile of what resamples give.

    Resamples that are NaN are left out; where all are, so are the ends.
    """
    if np.isnan(value) or np.isnan(draws).all():
        return Interval(value, math.nan, math.nan)
    low, high = np.nanquantile(draws, (0.025, 0.975))
    return Interval(value, float(low), float(high))


def nan_if_constant(interval: Interval) -> Interval:
    """Return an interval of a bootstrap, with NaN for its ends where all resamples agree up to rounding."""
    return interval if interval.high - interval.low > 1e-12 else Interval(interval.value, math.nan, math.nan)


def bootstrap_mean(outcomes: Shaped[np.ndarray, " images"], resamples: int = 9999, seed: int = 0) -> Interval:
    """Return the mean of outcomes with its 95% percentile bootstrap interval.

    Images are drawn again with replacement. Percentiles rather than BCa: for means of many outcomes both agree, while
    BCa leaves one image out at a time, which is slow for tens of thousands of them, and is undefined where all
    outcomes are equal. There the interval is the mean alone: a bootstrap cannot know what it has not seen.

    Args:
        outcomes: a number per image: whether it is correct, or for example its squared error.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: there is no image, an outcome is not finite, or another argument is out of range.
    """
    return average_interval([outcomes], resamples, seed)


def bootstrap_means(
    outcomes: Shaped[np.ndarray, " images"], resamples: int = 9999, seed: int = 0
) -> Float[np.ndarray, " resamples"]:
    """Return the means of resamples of which `bootstrap_mean` gives the percentiles.

    Args and errors as of `bootstrap_mean`.
    """
    return _resampled_means(outcomes, resamples, _generator(resamples, seed))[1]


def paired_bootstrap(
    first: Shaped[np.ndarray, " images"],
    second: Shaped[np.ndarray, " images"],
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Return the difference of two means, first minus second, on the same images, with its 95% bootstrap interval.

    Images are drawn with both of their outcomes, so what the two methods share does not widen the interval.

    Args:
        first: outcomes of one method.
        second: outcomes of another on the same images, in the same order.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: the lengths differ; see also `bootstrap_mean`.
    """
    check_lengths(first=first, second=second)
    return bootstrap_mean(first.astype(np.float64) - second.astype(np.float64), resamples, seed)


def average_interval(scores: Sequence[Shaped[np.ndarray, " _"]], resamples: int = 9999, seed: int = 0) -> Interval:
    """Return the average over data sets of their means, with a 95% bootstrap interval: the column "Avg." of a table.

    Images are drawn again within each data set (a stratified bootstrap): the sets are those that were chosen, and
    only their images are a sample.

    Args:
        scores: outcomes per image, one array per data set.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: there is no data set, one is empty or has an outcome that is not finite, or another argument is
            out of range.
    """
    values, drawn = _resampled_sets(scores, resamples, _generator(resamples, seed))
    return percentile_interval(float(np.mean(values)), np.mean(drawn, axis=0))


def _resampled_sets(
    scores: Sequence[Shaped[np.ndarray, " _"]], resamples: int, rng: np.random.Generator
) -> tuple[list[float], list[Float[np.ndarray, " resamples"]]]:
    """Return the mean of each data set, and its means in resamples of its images."""
    if not scores:
        raise ArgumentError("scores has no data set; give at least one")
    drawn = [_resampled_means(outcomes, resamples, rng) for outcomes in scores]
    return [value for value, _ in drawn], [means for _, means in drawn]


def interval_over_sets(
    scores: Sequence[Shaped[np.ndarray, " _"]],
    each: Weighing = "image",
    resamples: int = 9999,
    seed: int = 0,
) -> Interval | None:
    """Return the mean of outcomes of several data sets, with a 95% bootstrap interval over *sets like these*.

    Sets are drawn again with replacement, and then the images of each, anew where a set is drawn twice. It answers what
    is to be expected on another set of the kind, while `average_interval`, and `bootstrap_mean` of pooled outcomes,
    answer what other images of these very sets would give. With k sets of n images each, whose means have the variance
    `s^2` and whose outcomes vary by `v` within a set, the variance of a resample is `(s^2 + v / n) / k`. The means of
    sets that do not differ vary by `v / n` themselves, so that the interval is then wider than that over images by up
    to a factor of 1.4; with few sets, whose spread a bootstrap underestimates, that errs on the safe side.

    Args:
        scores: outcomes per image, or differences of two methods, one array per data set.
        each: what weighs the same, an `"image"` (pooled outcomes) or a `"set"` (the column "Avg.").
        resamples: how often all sets are drawn.
        seed: of the draws.

    Returns:
        None with fewer than `FEWEST_SETS` data sets.

    Raises:
        ArgumentError: see `average_interval`; or `each` is something else.
    """
    check_choice("each", each, get_args(Weighing))
    rng = _generator(resamples, seed)
    values, draws = _resampled_sets(scores, resamples, rng)
    return _over_sets(values, draws, [len(outcomes) if each == "image" else 1 for outcomes in scores], rng)


def _over_sets(
    values: Sequence[float],
    draws: Sequence[Float[np.ndarray, " resamples"]],
    weights: Sequence[int],
    rng: np.random.Generator,
) -> Interval | None:
    """Return the weighted mean of a value per data set with its interval over sets like these, None with few sets.

    A set that is drawn has the value of one of the resamples (`draws`) of its images, another one each time.
    """
    if len(values) < FEWEST_SETS:
        return None
    resampled, weighing = np.stack([*draws], 1), np.array(weights, np.float64)
    sets, rows = (rng.integers(count, size=resampled.shape) for count in (len(values), len(resampled)))
    means = (weighing[sets] * resampled[rows, sets]).sum(1) / weighing[sets].sum(1)
    return percentile_interval(float(np.average(values, weights=weighing)), means)


@dataclass(frozen=True)
class PooledMean:
    """A mean over images of one data set or several, such as what a method gains, with the answers to two questions.

    Attributes:
        images: the mean with its 95% interval over *these images*: what other images of these very sets would give.
        sets: with its 95% interval over *sets like these*: what is to be expected on another set of the kind; None
            where `reason` says why.
        n: images.
        datasets: data sets.
        p_value: that the mean is 0, None without a test.
    """

    images: Interval
    sets: Interval | None
    n: int
    datasets: int
    p_value: float | None = None

    @classmethod
    def of(
        cls, images: Interval, sets: Interval | None, n: int, datasets: int, p_value: float | None = None
    ) -> "PooledMean":
        """Return one without an interval over sets where there are few, or where all resamples agree up to rounding."""
        known = sets is not None and datasets >= FEWEST_SETS and not np.isnan(nan_if_constant(sets).low)
        return cls(images, sets if known else None, n, datasets, p_value)

    @property
    def value(self) -> float:
        """The mean."""
        return self.images.value

    @property
    def reason(self) -> str:
        """Why there is an interval over images alone; empty where there are both, or one data set."""
        if self.sets is not None or self.datasets < 2 or np.isnan(self.images.low):
            return ""
        few = f"{self.datasets} data sets say little of others; it takes {FEWEST_SETS}"
        return few if self.datasets < FEWEST_SETS else "every resample of the sets has the same value"


def pool(
    outcomes: Sequence[Shaped[np.ndarray, " _"]],
    each: Weighing = "image",
    resamples: int = 9999,
    *,
    images: Interval | None = None,
    p_value: float | None = None,
) -> PooledMean:
    """Return the mean of outcomes of one data set or several with both of its intervals.

    Args:
        outcomes: per image, such as the differences of two methods, one array per data set.
        each: what weighs the same, an `"image"` or a `"set"`.
        resamples: how often all images, and all sets, are drawn.
        images: the mean with its interval over these images, where it is known otherwise; by default bootstrapped.
        p_value: that the mean is 0, where it has been tested.

    Raises:
        ArgumentError: see `average_interval` and `interval_over_sets`.
    """
    over_sets = interval_over_sets(outcomes, each, resamples) if len(outcomes) >= FEWEST_SETS else None
    if images is None:
        joined = outcomes if each == "set" or not outcomes else [np.concatenate(outcomes)]
        images = nan_if_constant(average_interval(joined, resamples))
    return PooledMean.of(images, over_sets, sum(map(len, outcomes)), len(outcomes), p_value)


def pool_draws(
    values: Sequence[float], draws: Sequence[Float[np.ndarray, " resamples"]], n: int, seed: int = 0
) -> PooledMean:
    """Return the mean over data sets of what is no mean over images, such as an area under a curve, as `pool` does.

    Args:
        values: of the data sets.
        draws: the same in resamples of the images of each, drawn independently of other sets; NaN without any.
        n: images of all data sets.
        seed: of the draws of sets.
    """
    over_sets = _over_sets(values, draws, [1] * len(values), np.random.default_rng(seed))
    images = percentile_interval(float(np.mean(values)), np.mean(draws, axis=0))
    return PooledMean.of(images, over_sets, n, len(values))


def _resampled_means(
    outcomes: Shaped[np.ndarray, " images"], resamples: int, rng: np.random.Generator
) -> tuple[float, Float[np.ndarray, " resamples"]]:
    """Return the mean, and the means of resamples.

    Where few outcomes are distinct, as of whether predictions are correct, a resample is a multinomial draw of how
    often each occurs: the same distribution, without the memory and time of drawing every image.
    """
    check_lengths(outcomes=outcomes)
    if not np.isfinite(outcomes).all():
        raise ArgumentError("outcomes are not all finite; leave out the images that have none")
    outcomes, n = outcomes.astype(np.float64), len(outcomes)
    distinct, counts = np.unique(outcomes, return_counts=True)
    if len(distinct) > _FEW_VALUES:
        return float(outcomes.mean()), resample(n, resamples, rng, lambda drawn: drawn @ outcomes) / n
    drawn = rng.multinomial(n, counts / n, size=resamples)
    # Both in one way, so that equal outcomes give equal ends to the last bit.
    return float((counts * distinct).sum() / n), (drawn * distinct).sum(1) / n


def clustered_correlation(
    first: Float[np.ndarray, " points"],
    second: Float[np.ndarray, " points"],
    clusters: Int[np.ndarray, " points"],
    kind: CorrelationKind = "pearson",
    resamples: int = 999,
    seed: int = 0,
) -> Interval | None:
    """Return the correlation of two quantities over points, with its 95% cluster bootstrap interval.

    Whole clusters, such as the views of one image, are drawn again: drawing single points would count views as so many
    images, and give intervals that are far too narrow.

    Args:
        first: one quantity.
        second: the other, in the same order.
        clusters: which cluster each point belongs to.
        kind: `pearson`, or `spearman`, the same of mid-ranks, which are taken anew in each resample.
        resamples: how often all clusters are drawn. Those in which a quantity does not vary have no correlation and
            are left out.
        seed: of the draws.

    Returns:
        None where a quantity does not vary. With one cluster there is no interval: its ends are NaN.

    Raises:
        ArgumentError: the lengths differ, there is no point, a value is not finite, or another argument is out of
            range.
    """
    check_lengths(first=first, second=second, clusters=clusters)
    check_choice("kind", kind, get_args(CorrelationKind))
    rng = _generator(resamples, seed)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ArgumentError("first or second is not all finite; leave out the points that have no value")
    values = [column.astype(np.float64) for column in (first, second)]
    codes_of = [np.unique(column, return_inverse=True)[1] for column in values]

    def correlation(weights: Float[np.ndarray, " points"]) -> float:
        columns = values if kind == "pearson" else [_ranks(codes, weights) for codes in codes_of]
        return _weighted(columns[0], columns[1], weights)

    value = correlation(np.ones(len(first)))
    if np.isnan(value):
        return None
    _, member = np.unique(clusters, return_inverse=True)
    if not member.any():
        return Interval(value, math.nan, math.nan)
    draws = resample(
        int(member.max()) + 1,
        resamples,
        rng,
        lambda counts: np.array([correlation(row[member].astype(np.float64)) for row in counts]),
    )
    return percentile_interval(value, draws)


def _ranks(codes: Int[np.ndarray, " points"], weights: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """Return mid-ranks, up to a constant, of points that occur `weights` times; `codes` sorts their values."""
    totals = np.bincount(codes, weights)
    ranks: Float[np.ndarray, " points"] = (np.cumsum(totals) - totals / 2)[codes]
    return ranks


def _weighted(
    first: Float[np.ndarray, " points"], second: Float[np.ndarray, " points"], weights: Float[np.ndarray, " points"]
) -> float:
    """Return Pearson's correlation of points that occur `weights` times, NaN where one side does not vary."""
    present = weights > 0
    if np.ptp(first[present]) == 0 or np.ptp(second[present]) == 0:
        return float("nan")
    x = first - np.average(first, weights=weights)
    y = second - np.average(second, weights=weights)
    return float((weights * x * y).sum() / np.sqrt((weights * x * x).sum() * (weights * y * y).sum()))
