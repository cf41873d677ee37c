"""Intervals and tests for accuracies; every accuracy that is printed carries one."""

from dataclasses import dataclass

from scipy.stats import binomtest

__all__ = ["Accuracy", "chance_p_value", "mcnemar_exact", "wilson_interval"]


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
