"""Intervals and tests for accuracies; every accuracy that is printed carries one.

`scipy.stats` is imported where a test is computed: tables without tests need not wait half a second for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int, Shaped

from faircontext.errors import ArgumentError, check_choice, check_minimum
from faircontext.metrics.checks import check_arrays, check_lengths

__all__ = [
    "Accuracy",
    "CorrelationKind",
    "Interval",
    "average_interval",
    "bootstrap_mean",
    "bootstrap_means",
    "chance_p_value",
    "clustered_correlation",
    "holm",
    "mcnemar_exact",
    "paired_bootstrap",
    "wilson_interval",
]

CorrelationKind = Literal["pearson", "spearman"]

FEW_VALUES = 100
"""Up to so many distinct outcomes, resamples are drawn as counts."""

ENDS = (0.025, 0.975)
"""Quantiles of resamples that are the ends of an interval."""


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the 95% Wilson score interval of a proportion.

    Args:
        successes: at most `n`.
        n: trials, at least 1.

    Raises:
        ArgumentError: there is no trial, or there are more successes than trials.
    """
    _check_counts("successes", successes, n)
    proportion, scale = successes / n, 2 * (n + _Z**2)
    centre = (2 * n * proportion + _Z**2) / scale
    half = _Z / scale * math.sqrt(4 * n * proportion * (1 - proportion) + _Z**2)
    return 0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half


_Z = 1.959963984540054
"""Normal quantile of 97.5%."""


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return the two-sided exact p-value of McNemar's test for two methods on the same images.

    Under the null hypothesis each image on which exactly one of them is correct is a fair coin.

    Args:
        only_first: images on which only the first method is correct.
        only_second: images on which only the second is correct.
    """
    from scipy.stats import binomtest

    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


def chance_p_value(correct: int, n: int, classes: int) -> float:
    """Return the one-sided exact p-value of at least this many correct predictions, were they drawn at random.

    Args:
        correct: correct predictions.
        n: images, at least 1.
        classes: C; a random prediction is correct with probability 1/C.

    Raises:
        ArgumentError: there is no image or no class, or more predictions are correct than there are.
    """
    _check_counts("correct", correct, n)
    check_minimum("classes", classes, 1)
    from scipy.stats import binomtest

    return float(binomtest(correct, n, 1 / classes, alternative="greater").pvalue)


def _check_counts(argument: str, count: int, n: int) -> None:
    check_minimum("n", n, 1)
    if not 0 <= count <= n:
        raise ArgumentError(f"{argument}={count} is not possible; it must lie between 0 and n={n}")


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values of several tests, adjusted so that all together err with the probability of one (Holm, 1979).

    A hypothesis is refuted at level a where its adjusted p-value is at most a. Nothing is assumed about how the tests
    depend on each other.

    Args:
        p_values: of the tests, in any order, which the result keeps.

    Raises:
        ArgumentError: a p-value is outside [0, 1].
    """
    for value in p_values:
        if not 0 <= value <= 1:
            raise ArgumentError(f"p_values has {value!r}; it is a probability")
    values = np.array(p_values, np.float64)
    order = values.argsort(kind="stable")
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(steps, 1)
    return tuple(adjusted.tolist())


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    value: float
    low: float
    high: float


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
    check_arrays(outcomes=outcomes)
    return average_interval([outcomes], resamples, seed)


def bootstrap_means(
    outcomes: Shaped[np.ndarray, " images"], resamples: int = 9999, seed: int = 0
) -> Float[np.ndarray, " resamples"]:
    """Return the means of resamples of which `bootstrap_mean` gives the percentiles.

    Args and errors as of `bootstrap_mean`.
    """
    check_minimum("resamples", resamples, 1)
    check_minimum("seed", seed, 0)
    check_arrays(outcomes=outcomes)
    if not len(outcomes) or not np.isfinite(outcomes).all():
        raise ArgumentError("outcomes has none, or one that is not finite; give a finite number for each image")
    return _resampled_means(outcomes.astype(np.float64), resamples, np.random.default_rng(seed))[1]


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
    check_arrays(first=first, second=second)
    if len(first) != len(second):
        raise ArgumentError(f"first has {len(first)} outcomes and second {len(second)}; give both for each image")
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
        ArgumentError: there is no data set, one is empty, or another argument is out of range.
    """
    check_minimum("resamples", resamples, 1)
    check_minimum("seed", seed, 0)
    for index, outcomes in enumerate(scores):
        check_arrays(**{f"scores[{index}]": outcomes})
    if not scores or not all(len(outcomes) for outcomes in scores):
        raise ArgumentError("scores has a data set without images, or none at all; give at least one of each")
    rng = np.random.default_rng(seed)
    values, drawn = [], []
    for outcomes in scores:
        if not np.isfinite(outcomes).all():
            raise ArgumentError("scores are not all finite; leave out the images that have none")
        value, means = _resampled_means(outcomes.astype(np.float64), resamples, rng)
        values.append(value)
        drawn.append(means)
    return percentile_interval(float(np.mean(values)), np.mean(drawn, axis=0))


def percentile_interval(value: float, draws: Shaped[np.ndarray, " resamples"]) -> Interval:
    """Return a value with the 95% interval between percentiles of what resamples give."""
    low, high = np.quantile(draws, ENDS)
    return Interval(value, float(low), float(high))


def known_ends(interval: Interval) -> Interval:
    """Return an interval of a bootstrap, with NaN for its ends where all resamples agree up to rounding."""
    return interval if interval.high - interval.low > 1e-12 else Interval(interval.value, math.nan, math.nan)


def _resampled_means(
    outcomes: Float[np.ndarray, " images"], resamples: int, rng: np.random.Generator
) -> tuple[float, Float[np.ndarray, " resamples"]]:
    """Return the mean, and the means of resamples.

    Where few outcomes are distinct, as of whether predictions are correct, a resample is a multinomial draw of how
    often each occurs: the same distribution, without the memory and time of drawing every image.
    """
    n = len(outcomes)
    distinct, counts = np.unique(outcomes, return_counts=True)
    if len(distinct) > FEW_VALUES:
        means = [outcomes[rng.integers(n, size=n)].mean() for _ in range(resamples)]
        return float(outcomes.mean()), np.array(means)
    drawn = rng.multinomial(n, counts / n, size=resamples)
    # Both in one way, so that equal outcomes give equal ends to the last bit.
    return float((counts * distinct).sum() / n), (drawn * distinct).sum(1) / n


@dataclass(frozen=True)
class Accuracy:
    """Top-1 accuracy on `n` images, of which `correct` have a correct prediction."""

    correct: int
    n: int

    @property
    def value(self) -> float:
        """The proportion."""
        return self.correct / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% Wilson interval."""
        return wilson_interval(self.correct, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f}% (n = {self.n}, 95% interval {100 * low:.1f} to {100 * high:.1f})"


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
    check_lengths(first=first, second=second)
    check_lengths(first=first, clusters=clusters)
    check_choice("kind", kind, ("pearson", "spearman"))
    check_minimum("resamples", resamples, 1)
    check_minimum("seed", seed, 0)
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
    _, member, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    if len(sizes) == 1:
        return Interval(value, float("nan"), float("nan"))
    draws = np.random.default_rng(seed).multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=resamples)
    drawn = np.array([correlation(counts[member].astype(np.float64)) for counts in draws])
    if np.isnan(drawn).all():
        return Interval(value, float("nan"), float("nan"))
    low, high = np.nanquantile(drawn, ENDS)
    return Interval(value, float(low), float(high))


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
