"""Whether probabilities are what they say: expected calibration error, Brier score, negative log-likelihood.

The error is that of Guo et al. (2017), "On Calibration of Modern Neural Networks"; C-TPT measures it with 20 bins that
are closed on the right. It is computed once over a whole data set: the mean over parts of it is another number.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from faircontext.errors import ArgumentError, check_choice, check_minimum
from faircontext.metrics.checks import check_lengths, check_probabilities

__all__ = [
    "LEAST_PROBABILITY",
    "Reliability",
    "Rule",
    "brier_score",
    "expected_calibration_error",
    "negative_log_likelihood",
    "reliability",
]

Rule = Literal["right-closed", "left-closed"]
"""Which end belongs to a bin: `(a, b]` with 0 in the first bin, or `[a, b)` with 1 in the last."""

LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""The smallest normal float32, about 1.2e-38: a softmax in float32 cannot tell smaller probabilities from zero."""


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows; values are NaN where a bin is empty.

    Attributes:
        edges: of the bins, ascending from 0 to 1.
        number: answers in each bin.
        confidence: mean confidence of them.
        accuracy: proportion of them that is right.
    """

    edges: Float[np.ndarray, " edges"]
    number: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]

    @property
    def expected_calibration_error(self) -> float:
        """Mean over all answers of the distance between accuracy and confidence of their bin."""
        filled = self.number > 0
        distance = np.abs(self.accuracy - self.confidence)[filled]
        return float(distance @ self.number[filled] / self.number.sum())


def reliability(
    confidence: Float[np.ndarray, " images"],
    correct: Bool[np.ndarray, " images"],
    bins: int = 20,
    rule: Rule = "right-closed",
) -> Reliability:
    """Sort answers by confidence into bins of equal width, with the edges `i / bins`.

    Args:
        confidence: probability of each answer. Rounding may leave it slightly above 1, which counts as 1.
        correct: whether the answer is right.
        bins: how many bins.
        rule: which end belongs to a bin.

    Raises:
        ArgumentError: the lengths differ, a confidence is outside [0, 1], or there is no bin.
    """
    check_lengths(confidence=confidence, correct=correct)
    check_probabilities(confidence=confidence)
    if correct.dtype != np.bool_:
        raise ArgumentError(f"correct is of type {correct.dtype}; it holds truth values, for example index == labels")
    check_minimum("bins", bins, 1)
    check_choice("rule", rule, ("right-closed", "left-closed"))
    edges = np.arange(bins + 1) / bins
    exact = np.clip(confidence.astype(np.float64), 0, 1)
    # Values outside the inner edges fall into the first and the last bin, so that 0 and 1 always have one.
    place = np.searchsorted(edges[1:-1], exact, side="left" if rule == "right-closed" else "right")
    number = np.bincount(place, minlength=bins)

    def mean(values: Float[np.ndarray, " images"]) -> Float[np.ndarray, " bins"]:
        means = np.full(bins, np.nan)
        np.divide(np.bincount(place, values, minlength=bins), number, out=means, where=number > 0)
        return means

    return Reliability(edges, number, mean(exact), mean(correct.astype(np.float64)))


def expected_calibration_error(
    confidence: Float[np.ndarray, " images"],
    correct: Bool[np.ndarray, " images"],
    bins: int = 20,
    rule: Rule = "right-closed",
) -> float:
    """Return the expected calibration error, between 0 and 1.

    Args and errors as of `reliability`.
    """
    return reliability(confidence, correct, bins, rule).expected_calibration_error


def brier_score(
    label_probability: Float[np.ndarray, " images"], probability_norm: Float[np.ndarray, " images"]
) -> float:
    """Return the mean squared distance between probabilities and the truth over all classes, between 0 and 2.

    `sum_c (p_c - [c = y])^2 = sum_c p_c^2 - 2 p_y + 1`, the form of Brier (1950) for several classes.

    Args:
        label_probability: `p_y`, the probability of the true class.
        probability_norm: `sum_c p_c^2`.

    Raises:
        ArgumentError: the lengths differ, or a value is outside [0, 1].
    """
    check_lengths(label_probability=label_probability, probability_norm=probability_norm)
    check_probabilities(label_probability=label_probability, probability_norm=probability_norm)
    return float(np.mean(probability_norm.astype(np.float64) - 2 * label_probability.astype(np.float64) + 1))


def negative_log_likelihood(label_probability: Float[np.ndarray, " images"]) -> float:
    """Return the mean of `-log p_y` in nats; probabilities below `LEAST_PROBABILITY` count as that, 87.3 nats.

    Args:
        label_probability: `p_y`, the probability of the true class.

    Raises:
        ArgumentError: there is none, or one is outside [0, 1].
    """
    check_lengths(label_probability=label_probability)
    check_probabilities(label_probability=label_probability)
    return float(-np.log(np.clip(label_probability.astype(np.float64), LEAST_PROBABILITY, 1)).mean())
