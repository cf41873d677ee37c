"""Temperature scaling (Guo et al., 2017): all logits are divided by one number, so that probabilities are calibrated.

Logits are log-probabilities here, as a softmax does not change by what all of them have in common. The order of classes
stays, and so does the answer.
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Int

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import resample
from faircontext.metrics.checks import check_classes, check_lengths
from faircontext.metrics.scores import LEAST_PROBABILITY, reliability
from faircontext.metrics.stats import Interval

LEAST, MOST = 0.01, 100.0
"""Temperatures that are possible."""


def temper(
    probabilities: Float[np.ndarray, "*images classes"], temperature: float
) -> Float[np.ndarray, "*images classes"]:
    """Return `softmax(log p / T)`; probabilities below `LEAST_PROBABILITY` count as that."""
    logits = _logits(probabilities) / temperature
    exact = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(exact / exact.sum(-1, keepdims=True))


def _logits(probabilities: Float[np.ndarray, "*images classes"]) -> Float[np.ndarray, "*images classes"]:
    return np.log(np.maximum(probabilities.astype(np.float64), LEAST_PROBABILITY))


def fit_temperature(probabilities: Float[np.ndarray, "images classes"], labels: Int[np.ndarray, " images"]) -> float:
    """Return the temperature with the least negative log-likelihood of the true classes.

    In `b = 1 / T` the loss is convex; its slope is the mean of `sum_c p_c(b) z_c - z_y`, which is zero there.

    Args:
        probabilities: of each class.
        labels: true classes.

    Raises:
        ArgumentError: the lengths differ, there is no image, a class is out of range, or the least lies at no
            temperature from `LEAST` to `MOST`, as where all labels are the most probable classes.
    """
    from scipy.optimize import brentq

    check_lengths(probabilities=probabilities, labels=labels)
    check_classes("labels", labels, probabilities.shape[1])
    logits = _logits(probabilities)
    own = float(logits[np.arange(len(labels)), labels].mean())

    def slope(log_temperature: float) -> float:
        weighed = temper(probabilities, math.exp(log_temperature)) * logits
        return float(weighed.sum(1).mean()) - own

    ends = math.log(LEAST), math.log(MOST)
    if slope(ends[0]) <= 0 or slope(ends[1]) >= 0:
        why = "all labels are the most probable classes" if slope(ends[0]) <= 0 else "labels are no better than chance"
        raise ArgumentError(f"no temperature fits {len(labels)} images best: {why}; take more images")
    return math.exp(brentq(slope, *ends, xtol=1e-10))


def calibration_error_interval(
    confidence: Float[np.ndarray, " images"],
    correct: Bool[np.ndarray, " images"],
    bins: int = 20,
    resamples: int = 999,
    seed: int = 0,
) -> Interval:
    """Return the expected calibration error with a 95% bootstrap interval.

    The error is larger on resamples than on the images themselves. What resamples have in excess, in the mean, is taken
    from all of them: the interval tells how far the error varies, not that it is too large on few images.

    Args:
        confidence: as of `reliability`.
        correct: as there.
        bins: as there.
        resamples: how often all images are drawn.
        seed: of the draws.
    """
    curve = reliability(confidence, correct, bins)
    value, gaps = curve.expected_calibration_error, np.zeros((len(correct), bins))
    places = np.searchsorted(curve.edges[1:-1], np.clip(confidence.astype(np.float64), 0, 1), side="left")
    gaps[np.arange(len(correct)), places] = correct - np.clip(confidence, 0, 1)
    draws = resample(len(correct), resamples, seed, lambda counts: np.abs(counts @ gaps).sum(1) / len(correct))
    low, high = np.quantile(draws, (0.025, 0.975)) - draws.mean() + value
    return Interval(value, max(0.0, float(low)), float(high))
