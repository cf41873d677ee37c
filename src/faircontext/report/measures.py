"""Metrics of a result with intervals: top-1, top-5, ECE, Brier, NLL, means over data sets, paired gains over zero-shot.

Each metric but the calibration error is a mean over images, so that each comparison is paired image by image.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
from jaxtyping import Bool, Float

from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.scores import brier_scores, log_losses
from faircontext.metrics.stats import Interval, average_interval, paired_bootstrap, wilson_interval
from faircontext.report.paper import OOD, SETS, TableGroup, dataset_title
from faircontext.runs.results import Result

__all__ = [
    "METRICS",
    "MISSING",
    "Column",
    "Metric",
    "average",
    "columns_of",
    "gain",
    "known",
    "measure",
    "show",
    "value_of",
]

Scores = Float[np.ndarray, " images"] | Bool[np.ndarray, " images"]


def _mean_per_class(result: Result) -> Scores:
    """Return scores with which every class weighs the same; class sizes are taken as given."""
    _, codes, sizes = np.unique(result.labels, return_inverse=True, return_counts=True)
    weights: Scores = result.n / (len(sizes) * sizes[codes])
    return np.where(result.correct, weights, 0.0)


@dataclass(frozen=True)
class Metric:
    """What is measured.

    Attributes:
        title: in words.
        score: what the metric is the mean of over images; None for the expected calibration error.
        higher: whether more is better.
        percent: whether it is shown in percent.
        counts: whether it is a share of images, so that scores are true or false.
        predictions_only: whether it depends on predictions alone, not on probabilities.
    """

    title: str
    score: Callable[[Result], Scores] | None
    higher: bool = False
    percent: bool = False
    counts: bool = False
    predictions_only: bool = False

    @property
    def resamples(self) -> int:
        """Of the bootstrap; fewer where scores have many values, since each resample then costs all images."""
        return 9999 if self.predictions_only or self.counts else 999

    def show(self, value: float, sign: bool = False) -> str:
        """Return a value as it is printed: percent with two decimals, or four decimals."""
        plus = "+" if sign else ""
        return format(100 * value, f"{plus}.2f") if self.percent else format(value, f"{plus}.4f")


METRICS: Mapping[str, Metric] = {
    "top1": Metric("top-1 accuracy (%)", lambda result: result.correct, True, True, True, True),
    "top5": Metric("top-5 accuracy (%)", lambda result: result.in_top5, True, True, True),
    "mean_per_class": Metric("mean of the classes' accuracies (%)", _mean_per_class, True, True, predictions_only=True),
    "ece": Metric("expected calibration error (%, 20 bins)", None, percent=True),
    "brier": Metric("Brier score", lambda result: brier_scores(result.label_probability, result.probability_norm)),
    "nll": Metric("negative log-likelihood (nats)", lambda result: log_losses(result.label_probability)),
}


def known(result: Result, metric: Metric) -> bool:
    """Return whether a result tells a metric: something was predicted, and not the predictions alone are known."""
    return result.n > 0 and (metric.predictions_only or not result.predictions_only)


def value_of(result: Result, metric: Metric) -> float:
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
        ends = wilson_interval(int(metric.score(result).sum()), result.n)
        return Interval(value_of(result, metric), *ends)
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
        return Interval(float(np.mean([value_of(result, metric) for result in results])), nan, nan)
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
        return Interval(
            float(np.mean([value_of(own, metric) - value_of(base, metric) for own, base in pairs])), nan, nan
        )
    scores = [(metric.score(own), metric.score(base)) for own, base in pairs]
    if len(scores) == 1:
        return paired_bootstrap(*scores[0], resamples=metric.resamples)
    differences = [own.astype(np.float64) - base for own, base in scores]
    return average_interval(differences, resamples=metric.resamples)


MISSING = "-"
"""Stands for a value that is not known."""


def show(interval: Interval | None, metric: Metric, sign: bool = False) -> str:
    """Return a value with its interval, where it has one, as it is printed."""
    if interval is None:
        return MISSING
    value = metric.show(interval.value, sign)
    if isnan(interval.low):
        return value
    return f"{value} [{metric.show(interval.low, sign)}, {metric.show(interval.high, sign)}]"


@dataclass(frozen=True)
class Column:
    """What a column of the paper's tables shows: a mean over data sets, or its gain over zero-shot."""

    heading: str
    sets: tuple[str, ...]
    gained: bool = False

    def results(self, group: TableGroup, method: str) -> list[Result]:
        """Return a method's results on the column's data sets, nothing where one is missing."""
        row = group.row(method)
        return [row[name] for name in self.sets] if all(name in row for name in self.sets) else []

    def values(self, group: TableGroup, metric: Metric) -> list[Interval | None]:
        """Return the column's values, by method."""
        found = [self.results(group, method) for method in group.methods]
        if self.gained:
            return [gain(results, metric) for results in found]
        return [measure(results[0], metric) if len(results) == 1 else average(results, metric) for results in found]

    def comparable(self, group: TableGroup) -> bool:
        """Return whether all methods that have results in this column have them on the same images."""
        found = [results for method in group.methods if (results := self.results(group, method))]
        return all(one.same_images(two) for other in found[1:] for one, two in zip(found[0], other, strict=True))


def columns_of(group: TableGroup) -> list[Column]:
    """Return the columns of a group's table: its data sets, their mean, the paper's OOD Avg., and gains."""
    singles = [Column(dataset_title(name), (name,)) for name in group.results]
    if len(singles) == 1:
        return [*singles, Column("Δ", singles[0].sets, gained=True)]
    whole = len(SETS.get(group.benchmark, ()))
    heading = f"Avg. ({len(singles)} of {whole})" if len(singles) < whole else "Avg."
    averages = [Column(heading, tuple(group.results))]
    if all(name in group.results for name in OOD):
        averages.append(Column("OOD Avg.", OOD))
    pairs = [(column, Column(f"Δ {column.heading}", column.sets, gained=True)) for column in averages]
    return [*singles, *(column for pair in pairs for column in pair)]
