"""The comparison of two methods, accuracy per class, Brier score, NLL, calibration, the bound of a composed cosine.

The expected calibration error is that of Guo et al. (2017), "On Calibration of Modern Neural Networks"; C-TPT measures
it with 20 bins that are closed on the right. It is computed once over a whole data set: the mean over parts of it is
another number.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from faircontext.errors import ArgumentError, check_minimum
from faircontext.metrics.bootstrap import PooledMean, Weighing, paired_bootstrap, percentile_interval, pool, resample
from faircontext.metrics.checks import check_classes, check_lengths, check_probabilities
from faircontext.metrics.stats import Accuracy, Interval, mcnemar_exact, wilson_interval

NO_PREDICTION = -1
"""Stands for a prediction that is missing, of an unreadable file for example; it is never correct."""

LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""The smallest normal float32, about 1.2e-38: a softmax in float32 cannot tell smaller probabilities from zero."""

COMPOSED_WEIGHT = 0.1
"""Of each unique proxy in the sum of an image's evidence (paper, Tab. "decomposition")."""


@dataclass(frozen=True)
class Comparison:
    """A method and a reference on the same images; all that is said of the two follows from four counts.

    Attributes:
        both: images on which both are correct.
        gained: images on which the method alone is correct.
        lost: images on which the reference alone is correct.
        neither: images on which both are incorrect.
    """

    COUNTS: ClassVar[tuple[str, ...]] = ("both", "gained", "lost", "neither")

    both: int
    gained: int
    lost: int
    neither: int

    @classmethod
    def of(cls, method: Bool[np.ndarray, " images"], reference: Bool[np.ndarray, " images"]) -> "Comparison":
        """Compare whether predictions are correct, image by image.

        Raises:
            ArgumentError: the lengths differ, there is no image, or one of them is no array.
        """
        check_lengths(method=method, reference=reference)
        counts = ((method & reference), (method & ~reference), (~method & reference), (~method & ~reference))
        return cls(*(int(count.sum()) for count in counts))

    @classmethod
    def pooled(cls, comparisons: Iterable["Comparison"]) -> "Comparison":
        """Return comparisons on several data sets as one, each image weighing the same."""
        counts = [[getattr(one, name) for name in cls.COUNTS] for one in comparisons]
        return cls(*map(sum, zip(*counts, strict=True)))

    @property
    def n(self) -> int:
        """How many images there are."""
        return self.both + self.gained + self.lost + self.neither

    @property
    def accuracy(self) -> Accuracy:
        """Of the method."""
        return Accuracy(self.both + self.gained, self.n)

    @property
    def reference(self) -> Accuracy:
        """Accuracy of the reference."""
        return Accuracy(self.both + self.lost, self.n)

    @property
    def p_value(self) -> float:
        """Two-sided, of McNemar's exact test."""
        return mcnemar_exact(self.gained, self.lost)

    @property
    def outcomes(self) -> Float[np.ndarray, " images"]:
        """The difference on each image: 1, -1 or 0."""
        return np.repeat([1.0, -1.0, 0.0], (self.gained, self.lost, self.both + self.neither))

    @property
    def is_constant(self) -> bool:
        """Whether the difference is the same on all images."""
        return self.n in (self.both + self.neither, self.gained, self.lost)

    @cached_property
    def difference(self) -> Interval:
        """The method's accuracy minus the reference's, with its 95% paired bootstrap interval.

        Where the difference is the same on all images, and so in all resamples, the interval is the score interval of
        Tango (1998). It follows from Wilson's of the images that differ, none or all.
        """
        if self.is_constant:
            low, high = wilson_interval(self.gained + self.lost, self.n)
            if not self.gained + self.lost:
                return Interval(0.0, -high, high)
            return Interval(1.0, 2 * low - 1, 1.0) if self.gained else Interval(-1.0, -1.0, 1 - 2 * low)
        counts = (self.both, self.gained, self.lost, self.neither)
        return paired_bootstrap(
            np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)
        )


def compare_sets(comparisons: Sequence[Comparison], each: Weighing = "image") -> PooledMean:
    """Return a method's accuracy minus a reference's on one data set or several, with both of its 95% intervals.

    Over these images, the interval is that of `Comparison.difference` of all images where an image weighs the same, and
    that of `average_interval` where a set does; there, if the difference is constant in every data set, so that all
    resamples agree, the distances of `Comparison.difference` from its ends are squared and added, as for a sum of
    independent estimates (Zou and Donner, 2008). Over sets like these, it is that of `interval_over_sets`.

    Args:
        comparisons: on each data set.
        each: what weighs the same, an `"image"`, with the p-value of McNemar's exact test, or a `"set"`.

    Raises:
        ArgumentError: there is no data set; see also `interval_over_sets`.
    """
    outcomes = [one.outcomes for one in comparisons]
    if each == "image" and outcomes:
        pooled = Comparison.pooled(comparisons)
        return pool(outcomes, each, images=pooled.difference, p_value=pooled.p_value)
    constant = bool(outcomes) and all(one.is_constant for one in comparisons)
    return pool(outcomes, each, images=_sum_of_constants(comparisons) if constant else None)


def _sum_of_constants(comparisons: Sequence[Comparison]) -> Interval:
    """Return the mean of differences that are each the same on all images, with the interval of independent parts."""
    parts, n = [one.difference for one in comparisons], len(comparisons)
    value = sum(one.value for one in parts) / n
    below = math.hypot(*(one.value - one.low for one in parts)) / n
    above = math.hypot(*(one.high - one.value for one in parts)) / n
    return Interval(value, value - below, value + above)


@dataclass(frozen=True)
class ClassAccuracies:
    """Correct predictions and images of each class.

    Attributes:
        correct: correct predictions.
        n: images that are of the class, 0 where there are none.
    """

    correct: Int[np.ndarray, " classes"]
    n: Int[np.ndarray, " classes"]

    @property
    def values(self) -> Float[np.ndarray, " classes"]:
        """Accuracy of each class, NaN where it has no image."""
        values = np.full(len(self.n), np.nan)
        np.divide(self.correct, self.n, out=values, where=self.n > 0)
        return values

    @property
    def mean(self) -> float:
        """Mean accuracy over the classes that have images."""
        return float(np.nanmean(self.values))


def per_class_accuracy(
    index: Int[np.ndarray, " images"], labels: Int[np.ndarray, " images"], classes: int
) -> ClassAccuracies:
    """Count images and correct predictions of each class.

    Args:
        index: predictions, as classes by index, or `NO_PREDICTION`.
        labels: true classes by index.
        classes: C, how many classes there are.

    Raises:
        ArgumentError: the lengths differ, or a class is out of range.
    """
    check_minimum("classes", classes, 1)
    check_lengths(index=index, labels=labels)
    check_classes("labels", labels, classes)
    check_classes("index", index, classes, least=NO_PREDICTION)
    return ClassAccuracies(
        np.bincount(labels[index == labels], minlength=classes), np.bincount(labels, minlength=classes)
    )


def mean_per_class(index: Int[np.ndarray, " images"], labels: Int[np.ndarray, " images"], classes: int) -> float:
    """Return the mean accuracy over the classes that have images: each class counts the same, however many it has.

    Args and errors as of `per_class_accuracy`.
    """
    return per_class_accuracy(index, labels, classes).mean


def brier_scores(
    label_probability: Float[np.ndarray, " images"], probability_norm: Float[np.ndarray, " images"]
) -> Float[np.ndarray, " images"]:
    """Return each image's squared distance between probabilities and the truth over all classes, between 0 and 2.

    `sum_c (p_c - [c = y])^2 = sum_c p_c^2 - 2 p_y + 1`, the form of Brier (1950) for several classes.

    Args:
        label_probability: `p_y`, the probability of the true class.
        probability_norm: `sum_c p_c^2`.

    Raises:
        ArgumentError: the lengths differ, or a value is outside [0, 1].
    """
    check_lengths(label_probability=label_probability, probability_norm=probability_norm)
    check_probabilities(label_probability=label_probability, probability_norm=probability_norm)
    scores: Float[np.ndarray, " images"] = (
        probability_norm.astype(np.float64) - 2 * label_probability.astype(np.float64) + 1
    )
    return scores


def brier_score(
    label_probability: Float[np.ndarray, " images"], probability_norm: Float[np.ndarray, " images"]
) -> float:
    """Return the mean of `brier_scores`."""
    return float(np.mean(brier_scores(label_probability, probability_norm)))


def log_losses(label_probability: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
    """Return `-log p_y` in nats; probabilities below `LEAST_PROBABILITY` count as that, 87.3 nats.

    Args:
        label_probability: `p_y`, the probability of the true class.

    Raises:
        ArgumentError: there is none, or one is outside [0, 1].
    """
    check_lengths(label_probability=label_probability)
    check_probabilities(label_probability=label_probability)
    losses: Float[np.ndarray, " images"] = -np.log(np.clip(label_probability.astype(np.float64), LEAST_PROBABILITY, 1))
    return losses


def negative_log_likelihood(label_probability: Float[np.ndarray, " images"]) -> float:
    """Return the mean of `log_losses`."""
    return float(log_losses(label_probability).mean())


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


def calibration_error_interval(
    confidence: Float[np.ndarray, " images"], correct: Bool[np.ndarray, " images"], resamples: int = 999
) -> Interval:
    """Return the expected calibration error with a 95% bootstrap interval.

    The error is larger on resamples than on the images themselves. What resamples have in excess, in the mean, is taken
    from all of them: the interval tells how far the error varies, not that it is too large on few images.

    Args:
        confidence: as of `reliability`.
        correct: as there.
        resamples: how often all images are drawn.
    """
    value, index = expected_calibration_error(confidence, correct), np.arange(len(correct))

    def errors(counts: Int[np.ndarray, "draws images"]) -> Float[np.ndarray, " draws"]:
        rows = (np.repeat(index, row) for row in counts)
        return np.array([expected_calibration_error(confidence[row], correct[row]) for row in rows])

    draws = resample(len(correct), resamples, 0, errors)
    return percentile_interval(value, np.maximum(draws - draws.mean() + value, 0))


TEMPERATURES = (0.01, 100.0)
"""The lowest and the highest that are possible."""


def temper(
    probabilities: Float[np.ndarray, "*images classes"], temperature: float
) -> Float[np.ndarray, "*images classes"]:
    """Return `softmax(log p / T)` (Guo et al., 2017): logits divided by T. The order of classes stays.

    Probabilities below `LEAST_PROBABILITY` count as that.
    """
    from scipy.special import softmax

    return np.asarray(softmax(_log_probabilities(probabilities) / temperature, axis=-1))


def _log_probabilities(probabilities: Float[np.ndarray, "*images classes"]) -> Float[np.ndarray, "*images classes"]:
    return np.log(np.maximum(probabilities.astype(np.float64), LEAST_PROBABILITY))


def fit_temperature(probabilities: Float[np.ndarray, "images classes"], labels: Int[np.ndarray, " images"]) -> float:
    """Return the temperature with the least negative log-likelihood of the true classes; in 1 / T that is convex.

    Args:
        probabilities: of each class.
        labels: true classes.

    Raises:
        ArgumentError: the lengths differ, there is no image, a class is out of range, or no temperature is best, as
            where all labels are the most probable classes.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    check_lengths(probabilities=probabilities, labels=labels)
    check_classes("labels", labels, probabilities.shape[1])
    logits, rows, ends = _log_probabilities(probabilities), np.arange(len(labels)), np.log(TEMPERATURES)

    def loss(log_temperature: float) -> float:
        return -float(log_softmax(logits / math.exp(log_temperature), axis=1)[rows, labels].mean())

    best = float(minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-8}).x)
    if min(map(loss, ends)) <= loss(best):
        what = "all are right, or right no more often than by chance; take more images"
        raise ArgumentError(f"no temperature from 0.01 to 100 is best for {len(labels)} images: {what}")
    return math.exp(best)


def reconstruction_bound(common: float, first: float, second: float, weight: float = COMPOSED_WEIGHT) -> float:
    """Return the largest cosine to z that `z_com + w z_uniq_1 + w z_uniq_2` can have, given the cosines of its parts.

    Write each part as its share along z and a rest: shares add up, and the rest is smallest where the rests oppose each
    other: what the longest has over the others, or nothing (for shares below zero in all, where the longest rest is
    best, it is where they agree). The paper's cosines allow 0.8495, less than the 0.8705 that it reports; means over
    images do not change that, since the bound lies below its tangent plane at the means.

    Args:
        common: cosine of the common proxy.
        first: cosine of the first unique proxy.
        second: cosine of the second.
        weight: w.
    """
    along = common + weight * (first + second)
    # A cosine from features in float32 may exceed 1 by rounding.
    sines = [math.sqrt(max(0.0, 1 - cosine**2)) for cosine in (common, first, second)]
    rests = (sines[0], weight * sines[1], weight * sines[2])
    rest = max(0.0, 2 * max(rests) - sum(rests)) if along >= 0 else sum(rests)
    return along / math.hypot(along, rest) if along or rest else 0.0
