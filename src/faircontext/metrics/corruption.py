"""The mean corruption error (Hendrycks & Dietterich, 2019, Sec. 4.1): errors relative to those of a reference.

    CE_c = sum_s E_sc / sum_s E*_sc,   mCE = mean_c CE_c

`E_sc` is the error on images with corruption c in severity s, and `E*_sc` that of the reference: there AlexNet, here
whatever was measured on the same images, such as zero-shot.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import draw_counts, percentile_interval
from faircontext.metrics.stats import Interval

__all__ = ["Outcomes", "corruption_errors", "mean_corruption_error"]

Outcomes = Mapping[str, Mapping[int, Bool[np.ndarray, " images"]]]
"""By corruption and severity, whether the answer of each image is correct; the same images, in the same order."""


def corruption_errors(correct: Outcomes, reference: Outcomes) -> dict[str, float]:
    """Return the corruption error of each corruption; NaN where the reference has no error.

    Args:
        correct: of a method.
        reference: of what it is compared with, on the same images.

    Raises:
        ArgumentError: the two differ in corruptions, severities or number of images, or there is none.
    """
    totals = _wrong(correct, reference)
    return {name: _ratio(own.sum(), other.sum()) for name, (own, other) in totals.items()}


def mean_corruption_error(correct: Outcomes, reference: Outcomes, resamples: int = 999, seed: int = 0) -> Interval:
    """Return the mean corruption error with its 95% bootstrap interval, over images.

    An image is drawn with all its corruptions, for both sides. NaN where the reference has no error in a corruption;
    resamples of which that is true are left out.

    Args:
        correct: of a method.
        reference: of what it is compared with, on the same images.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: see `corruption_errors`.
    """
    totals = _wrong(correct, reference)
    value = float(np.mean([_ratio(own.sum(), other.sum()) for own, other in totals.values()]))
    counts = draw_counts(len(next(iter(totals.values()))[0]), resamples, seed)
    draws = np.concatenate([_mean_ratio(rows, totals.values()) for rows in counts])
    return percentile_interval(value, draws)


def _mean_ratio(
    counts: Int[np.ndarray, "draws images"],
    totals: Iterable[tuple[Float[np.ndarray, " images"], Float[np.ndarray, " images"]]],
) -> Float[np.ndarray, " draws"]:
    """Return the mean corruption error of resamples, NaN where the reference has no error in a corruption."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.mean([(counts @ own) / (counts @ other) for own, other in totals], axis=0)
    return np.where(np.isfinite(means), means, np.nan)


def _ratio(own: float, other: float) -> float:
    return float(own / other) if other else float("nan")


def _wrong(
    correct: Outcomes, reference: Outcomes
) -> dict[str, tuple[Float[np.ndarray, " images"], Float[np.ndarray, " images"]]]:
    """Return, for each corruption, in how many severities each image's answer is wrong, of both sides."""
    shapes = [
        {(name, level, len(answers)) for name, levels in one.items() for level, answers in levels.items()}
        for one in (correct, reference)
    ]
    if shapes[0] != shapes[1] or len({n for *_, n in shapes[0]} - {0}) != 1:
        raise ArgumentError(
            "correct and reference must be of the same corruptions, severities and images, one at least"
        )
    return {name: (_count_wrong(correct[name]), _count_wrong(reference[name])) for name in correct}


def _count_wrong(levels: Mapping[int, Bool[np.ndarray, " images"]]) -> Float[np.ndarray, " images"]:
    return np.asarray(np.sum([~answers for answers in levels.values()], axis=0), np.float64)
