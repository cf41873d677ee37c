"""Whether confidences are what they say: bins of a reliability diagram, and the expected calibration error.

The error is that of Guo et al. (2017), "On Calibration of Modern Neural Networks"; C-TPT measures it with 20 bins that
are closed on the right. It is computed once over a whole data set: the mean over parts of it is another number.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from faircontext.errors import ArgumentError, check_minimum
from faircontext.metrics.checks import check_lengths, check_probabilities

__all__ = [
    "Reliability",
    "expected_calibration_error",
    "reliability",
]


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows; values are NaN where a bin is empty.

    Attributes:
        edges: of the bins, ascending from 0 to 1.
        n: predictions in each bin.
        confidence: mean confidence of them.
        accuracy: proportion of them that is correct.
    """

    edges: Float[np.ndarray, " edges"]
    n: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]

    @property
    def expected_calibration_error(self) -> float:
        """Mean over all predictions of the distance between accuracy and confidence of their bin."""
        filled = self.n > 0
        distance = np.abs(self.accuracy - self.confidence)[filled]
        return float(distance @ self.n[filled] / self.n.sum())


def reliability(
    confidence: Float[np.ndarray, " images"],
    correct: Bool[np.ndarray, " images"],
    bins: int = 20,
) -> Reliability:
    """Sort predictions by confidence into bins of equal width, closed on the right, with the edges `i / bins`.

    Args:
        confidence: probability of each prediction. Rounding may leave it slightly above 1, which counts as 1.
        correct: whether the prediction is correct.
        bins: how many bins.

    Raises:
        ArgumentError: the lengths differ, a confidence is outside [0, 1], or there is no bin.
    """
    check_lengths(confidence=confidence, correct=correct)
    check_probabilities(confidence=confidence)
    if correct.dtype != np.bool_:
        raise ArgumentError(f"correct is of type {correct.dtype}; it holds truth values, for example index == labels")
    check_minimum("bins", bins, 1)
    edges = np.arange(bins + 1) / bins
    exact = np.clip(confidence.astype(np.float64), 0, 1)
    # Values outside the inner edges fall into the first and the last bin, so that 0 and 1 always have one.
    index = np.searchsorted(edges[1:-1], exact, side="left")
    n = np.bincount(index, minlength=bins)

    def mean(values: Float[np.ndarray, " images"]) -> Float[np.ndarray, " bins"]:
        means = np.full(bins, np.nan)
        np.divide(np.bincount(index, values, minlength=bins), n, out=means, where=n > 0)
        return means

    return Reliability(edges, n, mean(exact), mean(correct.astype(np.float64)))


def expected_calibration_error(
    confidence: Float[np.ndarray, " images"],
    correct: Bool[np.ndarray, " images"],
    bins: int = 20,
) -> float:
    """Return the expected calibration error, between 0 and 1.

    Args and errors as of `reliability`.
    """
    return reliability(confidence, correct, bins).expected_calibration_error
