"""Intervals and tests for accuracies; every accuracy that is printed carries one.

`scipy.stats` is imported where a test is computed: tables without tests need not wait half a second for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from faircontext.errors import ArgumentError, check_minimum

Z95 = 1.959963984540054
"""Normal quantile of 97.5%: 95% of a normal distribution lie within so many standard deviations of its mean."""


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the 95% Wilson score interval of a proportion.

    Args:
        successes: at most `n`.
        n: trials, at least 1.

    Raises:
        ArgumentError: there is no trial, or there are more successes than trials.
    """
    _check_counts("successes", successes, n)
    proportion, scale = successes / n, 2 * (n + Z95**2)
    centre = (2 * n * proportion + Z95**2) / scale
    half = Z95 / scale * math.sqrt(4 * n * proportion * (1 - proportion) + Z95**2)
    return 0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half


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

    @property
    def estimate(self) -> Interval:
        """The proportion with its interval."""
        return Interval(self.value, *self.interval)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f}% (n = {self.n}, 95% interval {100 * low:.1f} to {100 * high:.1f})"
