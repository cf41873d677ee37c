"""Intervals and tests for accuracies; every accuracy that is printed carries one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped
from scipy.stats import binomtest

from faircontext.errors import ArgumentError

__all__ = [
    "Accuracy",
    "Interval",
    "average_interval",
    "chance_p_value",
    "holm",
    "mcnemar_exact",
    "paired_bootstrap",
    "wilson_interval",
]


FEW_VALUES = 100
"""Bootstrap draws counts of values where there are at most this many."""


def wilson_interval(successes: int, number: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion.

    Args:
        successes: how many of them.
        number: of trials, at least 1.
        level: confidence level.
    """
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


def chance_p_value(correct: int, number: int, classes: int) -> float:
    """Return the one-sided exact p-value of at least this many right answers, were they drawn at random.

    Args:
        correct: right answers.
        number: of images, at least 1.
        classes: C; a random answer is right with probability 1/C.
    """
    return float(binomtest(correct, number, 1 / classes, alternative="greater").pvalue)


@dataclass(frozen=True)
class Interval:
    """A figure with a confidence interval."""

    value: float
    low: float
    high: float


def paired_bootstrap(
    first: Shaped[np.ndarray, " images"],
    second: Shaped[np.ndarray, " images"],
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Return the difference of two means over the same images, with a percentile bootstrap interval.

    Images are drawn, each with both of its outcomes. Percentiles are defined where all images agree; BCa is not.

    Args:
        first: outcomes of the first method: right or wrong, or scores.
        second: the same for the second.
        level: confidence level.
        resamples: how many.
        seed: of the resampling; the result is reproducible.

    Raises:
        ArgumentError: the arrays do not fit each other, or are empty.
    """
    if len(first) != len(second):
        raise ArgumentError(f"first has {len(first)} outcomes and second {len(second)}; give both for each image")
    return average_interval([first.astype(np.float64) - second], level, resamples, seed)


def average_interval(
    scores: Sequence[Shaped[np.ndarray, " images"]], level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Interval:
    """Return the mean over data sets of a mean over images, with a percentile bootstrap interval.

    Images are drawn within each data set; the data sets themselves are taken as given.

    Args:
        scores: of the images of each data set.
        level: confidence level.
        resamples: how many.
        seed: of the resampling.

    Raises:
        ArgumentError: there is no data set, or one has no image.
    """
    if not scores or not all(len(found) for found in scores):
        raise ArgumentError("scores has a data set without images, or none at all; give at least one of each")
    rng = np.random.default_rng(seed)
    drawn = np.mean([_resampled_means(found, resamples, rng) for found in scores], axis=0)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.mean([found.mean() for found in scores])), float(low), float(high))


def _resampled_means(scores: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    number = len(scores)
    values, counts = np.unique(scores, return_counts=True)
    if len(values) <= FEW_VALUES:  # how often each value is drawn says all: the cost does not depend on the images
        means: np.ndarray = rng.multinomial(number, counts / number, resamples) @ values / number
        return means
    return np.array([scores[rng.integers(number, size=number)].mean() for _ in range(resamples)])


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted for their number by Holm's step-down procedure, in the same order.

    Raises:
        ArgumentError: one is no probability.
    """
    for value in p_values:
        if not 0 <= value <= 1:
            raise ArgumentError(f"p_values has {value!r}; it is a probability")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return tuple(adjusted)


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
