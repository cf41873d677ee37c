"""Intervals and tests for accuracies; every accuracy that is printed carries one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.stats import binomtest

from faircontext.errors import ArgumentError, check_minimum
from faircontext.metrics.checks import check_arrays, check_level

__all__ = [
    "Accuracy",
    "Interval",
    "average_interval",
    "bootstrap_mean",
    "bootstrap_means",
    "chance_p_value",
    "discordant",
    "holm",
    "mcnemar_exact",
    "paired_bootstrap",
    "wilson_interval",
]

FEW_VALUES = 100
"""Up to so many distinct outcomes, resamples are drawn as counts."""


def wilson_interval(successes: int, number: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion.

    Args:
        successes: how many of them.
        number: of trials, at least 1.
        level: confidence level.

    Raises:
        ArgumentError: there is no trial, there are more successes than trials, or the level is not in (0, 1).
    """
    _check_counts("successes", successes, number)
    check_level(level)
    interval = binomtest(successes, number).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return the two-sided exact p-value of McNemar's test for two methods on the same images.

    Under the null hypothesis each image that exactly one of them has right is a fair coin.

    Args:
        only_first: images that only the first method has right.
        only_second: images that only the second has right.
    """
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


def discordant(first: Bool[np.ndarray, " images"], second: Bool[np.ndarray, " images"]) -> tuple[int, int]:
    """Return how many images the first method alone has right, and how many the second alone: see `mcnemar_exact`.

    Raises:
        ArgumentError: one of them is no array.
    """
    check_arrays(first=first, second=second)
    return int((first & ~second).sum()), int((second & ~first).sum())


def chance_p_value(correct: int, number: int, classes: int) -> float:
    """Return the one-sided exact p-value of at least this many right answers, were they drawn at random.

    Args:
        correct: right answers.
        number: of images, at least 1.
        classes: C; a random answer is right with probability 1/C.

    Raises:
        ArgumentError: there is no image or no class, or more answers are right than there are.
    """
    _check_counts("correct", correct, number)
    check_minimum("classes", classes, 1)
    return float(binomtest(correct, number, 1 / classes, alternative="greater").pvalue)


def _check_counts(argument: str, count: int, number: int) -> None:
    check_minimum("number", number, 1)
    if not 0 <= count <= number:
        raise ArgumentError(f"{argument}={count} is not possible; it must lie between 0 and number={number}")


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


def bootstrap_mean(
    outcomes: Shaped[np.ndarray, " images"], level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Interval:
    """Return the mean of outcomes with its percentile bootstrap interval.

    Images are drawn again with replacement. Percentiles rather than BCa: for means of many outcomes both agree, while
    BCa leaves one image out at a time, which is slow for tens of thousands of them, and is undefined where all
    outcomes are equal. There the interval is the mean alone: a bootstrap cannot know what it has not seen.

    Args:
        outcomes: a number per image: whether it is right, or for example its squared error.
        level: confidence level.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: there is no image, an outcome is not finite, or another argument is out of range.
    """
    check_arrays(outcomes=outcomes)
    return average_interval([outcomes], level, resamples, seed)


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
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Return the difference of two means, first minus second, on the same images, with its bootstrap interval.

    Images are drawn with both of their outcomes, so what the two methods share does not widen the interval.

    Args:
        first: outcomes of one method.
        second: outcomes of another on the same images, in the same order.
        level: confidence level.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: the lengths differ; see also `bootstrap_mean`.
    """
    check_arrays(first=first, second=second)
    if len(first) != len(second):
        raise ArgumentError(f"first has {len(first)} outcomes and second {len(second)}; give both for each image")
    return bootstrap_mean(first.astype(np.float64) - second.astype(np.float64), level, resamples, seed)


def average_interval(
    scores: Sequence[Shaped[np.ndarray, " _"]], level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Interval:
    """Return the average over data sets of their means, with a bootstrap interval: the column "Avg." of a table.

    Images are drawn again within each data set (a stratified bootstrap): the sets are those that were chosen, and
    only their images are a sample.

    Args:
        scores: outcomes per image, one array per data set.
        level: confidence level.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: there is no data set, one is empty, or another argument is out of range.
    """
    check_level(level)
    check_minimum("resamples", resamples, 1)
    check_minimum("seed", seed, 0)
    for place, outcomes in enumerate(scores):
        check_arrays(**{f"scores[{place}]": outcomes})
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
    low, high = np.quantile(np.mean(drawn, axis=0), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.mean(values)), float(low), float(high))


def _resampled_means(
    outcomes: Float[np.ndarray, " images"], resamples: int, rng: np.random.Generator
) -> tuple[float, Float[np.ndarray, " resamples"]]:
    """Return the mean, and the means of resamples.

    Where few outcomes are distinct, as with right and wrong, a resample is a multinomial draw of how often each occurs:
    the same distribution, without the memory and time of drawing every image.
    """
    number = len(outcomes)
    distinct, counts = np.unique(outcomes, return_counts=True)
    if len(distinct) > FEW_VALUES:
        means = [outcomes[rng.integers(number, size=number)].mean() for _ in range(resamples)]
        return float(outcomes.mean()), np.array(means)
    drawn = rng.multinomial(number, counts / number, size=resamples)
    # Both in one way, so that equal outcomes give equal ends to the last bit.
    return float((counts * distinct).sum() / number), (drawn * distinct).sum(1) / number


@dataclass(frozen=True)
class Accuracy:
    """Top-1 accuracy on `number` images, `correct` of them right."""

    correct: int
    number: int

    @property
    def value(self) -> float:
        """The proportion."""
        return self.correct / self.number

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% Wilson interval."""
        return wilson_interval(self.correct, self.number)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f}% (n = {self.number}, 95% interval {100 * low:.1f} to {100 * high:.1f})"
