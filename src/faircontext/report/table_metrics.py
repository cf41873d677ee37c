"""What tables measure of a method's results: accuracies, calibration, risk over coverage, with 95% intervals.

Metrics that are means over images are compared image by image with zero-shot's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
from jaxtyping import Bool, Float

from faircontext.metrics.bootstrap import average_interval, nan_if_constant, percentile_interval
from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.scores import Comparison, average_difference, brier_scores, log_losses
from faircontext.metrics.selective import aurc, aurc_draws
from faircontext.metrics.stats import Interval, wilson_interval
from faircontext.runs.results import Result

__all__ = ["METRICS", "MISSING", "TOP1", "Metric"]

Scores = Float[np.ndarray, " images"] | Bool[np.ndarray, " images"]

MISSING = "-"
"""Stands for a value that is not known."""


@dataclass(frozen=True)
class Metric:
    """What is measured of a method's results, one for each data set, each of which weighs the same.

    Attributes:
        title: what it is called.
        score: what it is the mean of over images; None for a metric of all images together.
        higher: whether more is better.
        percent: whether it is shown in percent.
        counts: whether it is a share of images, so that scores are true or false.
        predictions_only: whether it depends on predictions alone, not on probabilities.
        comparison: of a result with zero-shot's, where the metric is the accuracy that is compared there.
        whole: what it is of all images together, where it is no mean.
        draws: the same for resamples of the images, drawn by a seed; None where resampling changes it.
    """

    title: str
    score: Callable[[Result], Scores] | None
    higher: bool = False
    percent: bool = False
    counts: bool = False
    predictions_only: bool = False
    comparison: Callable[[Result], Comparison | None] | None = None
    whole: Callable[[Result], float] | None = None
    draws: Callable[[Result, int], Float[np.ndarray, " resamples"]] | None = None

    @property
    def has_interval(self) -> bool:
        """Whether it comes with an interval."""
        return self.score is not None or self.draws is not None

    def known(self, result: Result) -> bool:
        """Return whether a result tells the metric: not without images, or probabilities where they are needed."""
        return result.n > 0 and (self.predictions_only or not result.predictions_only)

    def value(self, result: Result) -> float:
        """Return the metric of a result without its interval; it must be `known`."""
        if self.whole is not None:
            return self.whole(result)
        assert self.score is not None
        return float(self.score(result).mean())

    def measure(self, results: Sequence[Result]) -> Interval | None:
        """Return the mean with its 95% interval; None where a result does not tell the metric, or there is none.

        The interval is Wilson's for a share of the images of one data set, else a bootstrap interval. The expected
        calibration error has none (NaN): resampled, it is larger than on the images themselves.
        """
        if not results or not all(map(self.known, results)):
            return None
        if self.score is None:
            # With a seed of its own, resamples of a data set are independent of another set's.
            drawn = [self._drawn(result, seed) for seed, result in enumerate(results)]
            return self._interval([self.value(result) for result in results], drawn)
        scores = [self.score(result) for result in results]
        if self.counts and len(scores) == 1:
            return Interval(float(scores[0].mean()), *wilson_interval(int(scores[0].sum()), results[0].n))
        return average_interval(scores, resamples=self._resamples)

    def gain(self, results: Sequence[Result]) -> Interval | None:
        """Return the mean of the metric less zero-shot's, paired by image, with its 95% bootstrap interval.

        Where all resamples agree, a share of images has a score interval (see `average_difference`), and another metric
        none (NaN). None for zero-shot itself, or where a result, or zero-shot's on its images, does not tell the
        metric.
        """
        pairs = [(result, base) for result in results if (base := result.zero_shot) is not None]
        if not pairs or len(pairs) < len(results) or not all(self.known(result) for pair in pairs for result in pair):
            return None
        if self.score is None:
            changes = [self.value(own) - self.value(base) for own, base in pairs]
            drawn = [self._drawn(own, seed) - self._drawn(base, seed) for seed, (own, base) in enumerate(pairs)]
            return self._interval(changes, drawn)
        if self.comparison is not None and len(results) == 1 and (known := self.comparison(results[0])) is not None:
            return known.difference
        if self.counts:
            return average_difference([(self.score(own), self.score(base)) for own, base in pairs], self._resamples)
        scores = [self.score(own).astype(np.float64) - self.score(base) for own, base in pairs]
        return nan_if_constant(average_interval(scores, resamples=self._resamples))

    def _drawn(self, result: Result, seed: int) -> Float[np.ndarray, " resamples"]:
        return np.full(1, nan) if self.draws is None else self.draws(result, seed)

    @staticmethod
    def _interval(values: Sequence[float], draws: Sequence[Float[np.ndarray, " resamples"]]) -> Interval:
        """Return the mean over data sets, with the interval that resamples of each give."""
        return percentile_interval(float(np.mean(values)), np.mean(draws, axis=0))

    @property
    def _resamples(self) -> int:
        """Of the bootstrap; fewer where scores have many values, since each resample then costs all images."""
        return 9999 if self.predictions_only or self.counts else 999

    def format(self, value: float, sign: bool = False) -> str:
        """Return a value as it is printed: percent with two decimals, or four decimals."""
        plus = "+" if sign else ""
        return format(100 * value, f"{plus}.2f") if self.percent else format(value, f"{plus}.4f")

    def show(self, interval: Interval | None, sign: bool = False) -> str:
        """Return a value with its interval, where it has one, as it is printed."""
        if interval is None:
            return MISSING
        value, low, high = (self.format(end, sign) for end in (interval.value, interval.low, interval.high))
        return value if isnan(interval.low) else f"{value} [{low}, {high}]"


def _mean_per_class(result: Result) -> Scores:
    """Return scores with which every class weighs the same; class sizes are taken as given."""
    _, codes, sizes = np.unique(result.labels, return_inverse=True, return_counts=True)
    weights: Scores = result.n / (len(sizes) * sizes[codes])
    return np.where(result.correct, weights, 0.0)


def _calibration_error(result: Result) -> float:
    return expected_calibration_error(result.confidence, result.correct)


METRICS: Mapping[str, Metric] = {
    "top1": Metric(
        "top-1 accuracy (%)",
        lambda result: result.correct,
        *(True, True, True, True),
        comparison=lambda result: result.comparison,
    ),
    "top5": Metric("top-5 accuracy (%)", lambda result: result.in_top5, True, True, True),
    "mean_per_class": Metric("mean of the classes' accuracies (%)", _mean_per_class, True, True, predictions_only=True),
    "ece": Metric("expected calibration error (%, 20 bins)", None, percent=True, whole=_calibration_error),
    "aurc": Metric(
        "area under the curve of risk over coverage (%)",
        None,
        percent=True,
        whole=lambda result: aurc(result.confidence, result.correct),
        draws=lambda result, seed: aurc_draws(result.confidence, result.correct, seed=seed),
    ),
    "brier": Metric("Brier score", lambda result: brier_scores(result.label_probability, result.probability_norm)),
    "nll": Metric("negative log-likelihood (nats)", lambda result: log_losses(result.label_probability)),
}
TOP1 = METRICS["top1"]
