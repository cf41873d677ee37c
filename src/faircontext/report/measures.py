"""What a table's cells say: a metric of a result, its gain over zero-shot on the same images, means over data sets.

Each metric but the calibration error is a mean over images, so that each comparison is paired image by image.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from jaxtyping import Bool, Float

from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.stats import Interval, average_interval, paired_bootstrap, wilson_interval
from faircontext.report.results import Result

__all__ = ["METRICS", "Metric", "average", "figure", "gain", "known", "measure"]

Scores = Float[np.ndarray, " images"] | Bool[np.ndarray, " images"]


def _mean_per_class(result: Result) -> Scores:
    """Return scores with which every class weighs the same; class sizes are taken as given."""
    _, place, sizes = np.unique(result.labels, return_inverse=True, return_counts=True)
    weights: Scores = result.number / (len(sizes) * sizes[place])
    return np.where(result.correct, weights, 0.0)


def _brier(result: Result) -> Scores:
    scores: Scores = result.probability_norm - 2 * result.label_probability + 1
    return scores


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
        counts: whether it is a share of images, so that scores are true or false.
        answers_only: whether it depends on answers alone, not on probabilities.
    """

    title: str
    score: Callable[[Result], Scores] | None
    higher: bool = False
    percent: bool = False
    counts: bool = False
    answers_only: bool = False

    @property
    def resamples(self) -> int:
        """Of the bootstrap; fewer where scores have many values, since each resample then costs all images."""
        return 9999 if self.answers_only or self.counts else 999

    def show(self, value: float, sign: bool = False) -> str:
        """Return a value as it is printed: percent with two decimals, or four decimals."""
        plus = "+" if sign else ""
        return format(100 * value, f"{plus}.2f") if self.percent else format(value, f"{plus}.4f")


METRICS: Mapping[str, Metric] = {
    "top1": Metric("top-1 accuracy (%)", lambda result: result.correct, True, True, True, True),
    "top5": Metric("top-5 accuracy (%)", lambda result: result.in_top5, True, True, True),
    "mean_per_class": Metric("mean of the classes' accuracies (%)", _mean_per_class, True, True, answers_only=True),
    "ece": Metric("expected calibration error (%, 20 bins)", None, percent=True),
    "brier": Metric("Brier score", _brier),
    "nll": Metric("negative log-likelihood (nats)", _log_loss),
}


def known(result: Result, metric: Metric) -> bool:
    """Return whether a result tells a metric: something was answered, and not the answers alone are known."""
    return result.number > 0 and (metric.answers_only or not result.answers_only)


def figure(result: Result, metric: Metric) -> float:
    """Return a metric of a result without its interval; it must be `known`."""
    if metric.score is None:
        return expected_calibration_error(result.confidence, result.correct)
    return float(metric.score(result).mean())


def measure(result: Result, metric: Metric) -> Interval | None:
    """Return a metric of a result with its 95% interval: Wilson's for a share of images, else a bootstrap interval.

    The expected calibration error has none (NaN): resampled, it is larger than on the images themselves.

    Args:
        result: of one method on one data set.
        metric: one of `METRICS`.

    Returns:
        None where the result does not tell the metric; see `known`.
    """
    if metric.counts and metric.score is not None and known(result, metric):
        ends = wilson_interval(int(metric.score(result).sum()), result.number)
        return Interval(figure(result, metric), *ends)
    return average([result], metric)


def average(results: Sequence[Result], metric: Metric) -> Interval | None:
    """Return the mean of a metric over data sets, each weighing the same, with its 95% bootstrap interval.

    Args:
        results: of one method, one per data set.
        metric: one of `METRICS`.

    Returns:
        None where a result does not tell the metric, or there is none.
    """
    if not results or not all(known(result, metric) for result in results):
        return None
    if metric.score is None:
        return Interval(float(np.mean([figure(result, metric) for result in results])), nan, nan)
    return average_interval([metric.score(result) for result in results], resamples=metric.resamples)


def gain(results: Sequence[Result], metric: Metric) -> Interval | None:
    """Return the mean over data sets of a method's metric less zero-shot's, paired by image.

    Args:
        results: of one method, one per data set, each data set weighing the same.
        metric: one of `METRICS`.

    Returns:
        The gain with its 95% bootstrap interval; None for zero-shot itself, or where its value is not known.
    """
    pairs = [(result, result.zero_shot) for result in results if result.zero_shot is not None]
    if not pairs or len(pairs) < len(results) or not all(known(result, metric) for pair in pairs for result in pair):
        return None
    if metric.score is None:
        return Interval(float(np.mean([figure(own, metric) - figure(base, metric) for own, base in pairs])), nan, nan)
    scores = [(metric.score(own), metric.score(base)) for own, base in pairs]
    if len(scores) == 1:
        return paired_bootstrap(*scores[0], resamples=metric.resamples)
    differences = [own.astype(np.float64) - base for own, base in scores]
    return average_interval(differences, resamples=metric.resamples)
