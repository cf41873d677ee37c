"""How far confidences can be trusted: calibration error with explicit bins, reliability, Brier score, likelihood."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from faircontext.errors import ArgumentError, check_choice, check_minimum

__all__ = ["Reliability", "Rule", "brier_score", "expected_calibration_error", "negative_log_likelihood", "reliability"]

Rule = Literal["right-closed", "left-closed"]
"""Which end belongs to a bin: the upper, with 0 in the first bin; or the lower, with 1 in the last."""


@dataclass(frozen=True)
class Reliability:
    """Confidences by bin; what a reliability diagram shows.

    Attributes:
        edges: of the bins, from 0 to 1.
        number: of images in each.
        confidence: their mean; NaN where there is none.
        accuracy: theirs; NaN where there is none.
    """

    edges: Float[np.ndarray, " edges"]
    number: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]


def reliability(
    confidence: Float[np.ndarray, " images"],
    correct: Bool[np.ndarray, " images"],
    bins: int = 20,
    rule: Rule = "right-closed",
) -> Reliability:
    """Sort images by confidence into bins of equal width.

    Args:
        confidence: probability of the answer, from 0 to 1.
        correct: whether it is right.
        bins: how many; the edges are `i / bins`.
        rule: where an image on an edge goes.

    Raises:
        ArgumentError: the arrays do not fit each other, are empty, or a confidence is no probability.
    """
    check_minimum("bins", bins, 1)
    check_choice("rule", rule, ("right-closed", "left-closed"))
    if len(confidence) != len(correct) or not len(confidence):
        raise ArgumentError(f"confidence has {len(confidence)} entries and correct {len(correct)}; give one per image")
    # Sums of a softmax in float32 may pass 1 by rounding.
    if not (confidence.min() >= 0 and confidence.max() <= 1 + 1e-5):
        raise ArgumentError(f"confidence has values from {confidence.min()} to {confidence.max()}; it is a probability")
    edges = np.arange(bins + 1) / bins
    side: Literal["left", "right"] = "left" if rule == "right-closed" else "right"
    place = np.clip(np.searchsorted(edges, confidence, side) - 1, 0, bins - 1)
    number = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        return Reliability(
            edges,
            number,
            np.bincount(place, confidence, bins) / number,
            np.bincount(place, correct, bins) / number,
        )


def expected_calibration_error(
    confidence: Float[np.ndarray, " images"],
    correct: Bool[np.ndarray, " images"],
    bins: int = 20,
    rule: Rule = "right-closed",
) -> float:
    """Return the mean, over images, of the distance between confidence and accuracy in their bin.

    Common implementations have their bins open at an end and lose a confidence of exactly 1; here every image is in a
    bin. Arguments and errors are those of `reliability`.
    """
    found = reliability(confidence, correct, bins, rule)
    filled = found.number > 0
    gaps = np.abs(found.confidence[filled] - found.accuracy[filled])
    return float((found.number[filled] * gaps).sum() / found.number.sum())


def brier_score(
    label_probability: Float[np.ndarray, " images"], probability_norm: Float[np.ndarray, " images"]
) -> float:
    """Return the mean of `sum_c (p_c - y_c)^2 = sum_c p_c^2 - 2 p_y + 1`, from 0 to 2.

    Args:
        label_probability: `p_y`, probability of the true class.
        probability_norm: `sum_c p_c^2`.
    """
    return float(np.mean(probability_norm - 2 * label_probability + 1))


def negative_log_likelihood(label_probability: Float[np.ndarray, " images"]) -> float:
    """Return the mean of `-log p_y`, in nats; a probability that rounding made 0 counts as float32's least normal."""
    return float(-np.log(np.maximum(label_probability, np.finfo(np.float32).tiny)).mean())
