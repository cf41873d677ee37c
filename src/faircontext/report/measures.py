"""What a table's cells say: a metric of a result, its gain over zero-shot on the same images, means over data sets.

Each metric but the calibration error is a mean over images, so that one bootstrap serves all of them and each
comparison is paired image by image.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
from jaxtyping import Float

from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.stats import Interval, average_interval, paired_bootstrap, wilson_interval
from faircontext.report.results import Result

__all__ = ["METRICS", "Metric", "average", "gain", "measure"]

Scores = Float[np.ndarray, " images"]


def _mean_per_class(result: Result) -> Scores:
    """Return scores with which every class weighs the same; class sizes are taken as given."""
    _, place, sizes = np.unique(result.labels, return_inverse=True, return_counts=True)
    weights: Scores = result.number / (len(sizes) * sizes[place])
    return np.where(result.correct, weights, 0.0)


def _log_loss(result: Result) -> Scores:
    losses: Scores = -np.log(np.maximum(result.label_probability, np.finfo(np.float32).tiny))
    return losses


@dataclass(frozen=True)
class Metric:
    """What is measured.

    Attributes:
        title: in words.
        score: what the metric is the mean of over images; None for the expected calibration error.
        higher: whether more is better.
        percent: whether it is shown in percent.
        counts: whether it is a share of images, which has a Wilson interval.
    """

    title: str
    score: Callable[[Result], Scores] | None
    higher: bool
    percent: bool
    counts: bool = False

    def show(self, value: float, sign: bool = False) -> str:
        """Return a value as it is printed: percent with two decimals, or four decimals."""
        plus = "+" if sign else ""
        return format(100 * value, f"{plus}.2f") if self.percent else format(value, f"{plus}.4f")


METRICS: Mapping[str, Metric] = {
    "top1": Metric("top-1 accuracy (%)", lambda result: result.correct.astype(np.float64), True, True, counts=True),
    "top5": Metric("top-5 accuracy (%)", lambda result: result.top5, True, True, counts=True),
    "mean_per_class": Metric("mean of the classes' accuracies (%)", _mean_per_class, True, True),
    "ece": Metric("expected calibration error (%, 20 bins)", None, False, True),
    "brier": Metric(
        "Brier score", lambda result: result.probability_norm - 2 * result.label_probability + 1, False, False
    ),
    "nll": Metric("negative log-likelihood (nats)", _log_loss, False, False),
}


def measure(result: Result, metric: Metric) -> Interval | None:
    """Return a metric of a result with its 95% interval (Wilson's for a share of images, else bootstrap).

    The expected calibration error has none (NaN): resampled, it is larger than on the images themselves.

    Args:
        result: of one method on one data set.
        metric: one of `METRICS`.

    Returns:
        None where nothing was answered, or only zero-shot's answers are known and they do not tell the metric.
    """
    if not result.number:
        return None
    if metric.score is None:
        return None if isnan(result.confidence[0]) else Interval(_ece(result), nan, nan)
    scores = metric.score(result)
    if isnan(scores[0]):
        return None
    if metric.counts:
        return Interval(float(scores.mean()), *wilson_interval(int(scores.sum()), result.number))
    return average_interval([scores])


def _ece(result: Result) -> float:
    return expected_calibration_error(result.confidence, result.correct)


def average(results: Sequence[Result], metric: Metric) -> Interval | None:
    """Return the mean of a metric over data sets, each weighing the same, with its interval; see `measure`."""
    values = [measure(result, metric) for result in results]
    if not values or None in values:
        return None
    if metric.score is None:
        return Interval(sum(value.value for value in values if value) / len(values), nan, nan)
    return average_interval([metric.score(result) for result in results])


def gain(results: Sequence[Result], metric: Metric) -> Interval | None:
    """Return the mean over data sets of a method's metric less zero-shot's, paired by image, with its interval.

    Args:
        results: of one method, one per data set, each data set weighing the same.
        metric: one of `METRICS`.

    Returns:
        None for zero-shot itself, or where its value is not known; see `measure`.
    """
    pairs = [(result, result.zero_shot) for result in results if result.zero_shot is not None]
    if not pairs or len(pairs) < len(results):
        return None
    if any(measure(result, metric) is None for pair in pairs for result in pair):
        return None
    if metric.score is None:
        return Interval(float(np.mean([_ece(own) - _ece(base) for own, base in pairs])), nan, nan)
    scores = [(metric.score(own), metric.score(base)) for own, base in pairs]
    if len(scores) == 1:
        return paired_bootstrap(*scores[0])
    return average_interval([own - base for own, base in scores])
