"""Several labels for an image: average precision of each class and its mean, decisions at a threshold, thresholds.

Average precision of a class is the sum over thresholds, from the highest down, of the gain in recall times the
precision, `sum_k (R_k - R_(k-1)) P_k`; images of equal score share a threshold, and nothing is interpolated. It depends
on the order of the scores alone, so log-odds do as well as probabilities. Intervals draw images again, with all of
their labels, and do not depend on the order in which the images come. Where every resample has the same value, as of
one image, there is no interval: its ends would only repeat the value.

Average precision of few positive images is too large on average, and that of a resample, where positive images come
twice, more so: quantiles of resamples lie too high. Its intervals are therefore normal ones about the value less the
bias that resamples show (Efron and Tibshirani, 1993, chapter 10).
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from faircontext.errors import ArgumentError, check_interval, counted
from faircontext.metrics.bootstrap import nan_if_constant, percentile_interval, resample
from faircontext.metrics.checks import check_lengths
from faircontext.metrics.selective import threshold_curve
from faircontext.metrics.stats import Z95, Accuracy, Interval

Scores = Float[np.ndarray, "images classes"]
Labels = Bool[np.ndarray, "images classes"]

NO_INTERVAL = "no interval: every resample of the images has this value"
"""What stands in place of an interval whose ends would be the value itself."""


@dataclass(frozen=True)
class MeanAveragePrecision:
    """Average precision of classes, and its mean over those that have a positive image.

    Attributes:
        mean: with its 95% bootstrap interval over images, whose ends are NaN where all resamples have one value.
        per_class: the same for each class, None where it has no positive image.
        positives: images that have the label, per class.
        n: images.
    """

    mean: Interval
    per_class: tuple[Interval | None, ...]
    positives: Int[np.ndarray, " classes"]
    n: int

    @property
    def classes(self) -> int:
        """How many classes have a positive image; the mean is over these."""
        return int((self.positives > 0).sum())

    def __str__(self) -> str:
        low, high = 100 * self.mean.low, 100 * self.mean.high
        some = counted(self.classes, "class") if self.classes == len(self.positives) else self._some_classes
        interval = NO_INTERVAL if np.isnan(low) else f"95% interval {low:.1f} to {high:.1f}"
        return f"mAP {100 * self.mean.value:.1f}% (n = {self.n}, {some}, {interval})"

    @property
    def _some_classes(self) -> str:
        return f"{self.classes} of {counted(len(self.positives), 'class')}, as the others have no image"


@dataclass(frozen=True)
class LabelDecisions:
    """How good the labels are that were given, over all images and classes together (micro averages).

    Attributes:
        precision: share of the given labels that are correct, NaN where none was given; intervals are bootstrap ones,
            with ends of NaN where all resamples have one value.
        recall: share of the true labels that were given, NaN where there is none.
        f1: harmonic mean of the two, NaN where neither is given nor true.
        exact: images whose labels are all given, and no other.
    """

    precision: Interval
    recall: Interval
    f1: Interval
    exact: Accuracy


@dataclass(frozen=True)
class LabelThreshold:
    """A score from which on labels are given, with the micro averages that it reaches."""

    threshold: float
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def average_precision(scores: Float[np.ndarray, " images"], targets: Bool[np.ndarray, " images"]) -> float:
    """Return the average precision of one class.

    Args:
        scores: of each image; more is more certain.
        targets: whether it has the label.

    Raises:
        ArgumentError: the lengths differ, a score is NaN, or no image has the label.
    """
    _check(scores, targets)
    if not targets.any():
        raise ArgumentError("targets has no positive image; average precision needs one")
    return float(_precisions(scores, targets, np.ones((1, len(scores)), np.int64))[0])


def mean_average_precision(
    scores: Scores, targets: Labels, resamples: int = 999, seed: int = 0
) -> MeanAveragePrecision:
    """Return the average precision of each class, and its mean over the classes that have a positive image.

    A resample in which a class has no positive image leaves that class out.

    Args:
        scores: of each image and class; only their order within a class counts.
        targets: whether the image has the label.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: the shapes differ, a score is NaN, or no class has a positive image.
    """
    _check(scores, targets)
    positives = targets.sum(0)
    if not positives.any():
        raise ArgumentError("no image has a label; average precision needs one that has")
    n, known = len(scores), np.flatnonzero(positives)

    def precisions(counts: Int[np.ndarray, "draws images"]) -> Float[np.ndarray, "draws known"]:
        return np.stack([_precisions(scores[:, c], targets[:, c], counts) for c in known], axis=1)

    values, ranks = precisions(np.ones((1, n), np.int64))[0], _ranks(scores, targets)
    drawn = resample(n, resamples, seed, lambda counts: precisions(counts[:, ranks]))
    per_class: list[Interval | None] = [None] * scores.shape[1]
    for column, c in enumerate(known):
        per_class[c] = _corrected_interval(float(values[column]), drawn[:, column])
    present = ~np.isnan(drawn)
    total = np.where(present, drawn, 0.0).sum(1)
    some = present.any(1)
    mean = _corrected_interval(float(values.mean()), total[some] / present[some].sum(1))
    return MeanAveragePrecision(mean, tuple(per_class), positives, n)


def _precisions(
    scores: Float[np.ndarray, " images"], targets: Bool[np.ndarray, " images"], counts: Int[np.ndarray, "draws images"]
) -> Float[np.ndarray, " draws"]:
    """Return the average precision where images occur `counts` times, NaN where none that occurs has the label."""
    _, seen, hits = threshold_curve(scores, counts, counts * targets)
    gains = np.diff(hits, axis=1, prepend=0)
    summed = (gains * (hits / np.maximum(seen, 1))).sum(1)
    return np.asarray(np.where(hits[:, -1] > 0, summed / np.maximum(hits[:, -1], 1), np.nan))


def _ranks(values: Shaped[np.ndarray, "images classes"], targets: Labels) -> Int[np.ndarray, " images"]:
    """Return the rank of each image in an order that its own numbers alone decide; images that are alike may swap."""
    digests = (
        blake2b((row + 0.0).tobytes() + labels.tobytes(), digest_size=8).digest()  # + 0.0: there are two zeros
        for row, labels in zip(values, targets, strict=True)
    )
    keys = np.fromiter((int.from_bytes(digest, "little") for digest in digests), np.uint64, len(values))
    return np.argsort(np.argsort(keys, kind="stable"), kind="stable")


def _corrected_interval(value: float, draws: Float[np.ndarray, " draws"]) -> Interval:
    """Return a value in [0, 1] with its bias-corrected normal interval, which holds the value in any case."""
    known = draws[~np.isnan(draws)]
    if not len(known) or np.ptp(known) < 1e-12:
        return Interval(value, np.nan, np.nan)
    centre, half = 2 * value - float(known.mean()), Z95 * float(known.std())
    return Interval(value, max(0.0, min(value, centre - half)), min(1.0, max(value, centre + half)))


def label_decisions(predicted: Labels, targets: Labels, resamples: int = 999, seed: int = 0) -> LabelDecisions:
    """Return how good the labels are that were given.

    Args:
        predicted: whether the label was given, per image and class.
        targets: whether the image has it.
        resamples: of the bootstrap over images.
        seed: of the draws.

    Raises:
        ArgumentError: the shapes differ, or there is no image.
    """
    check_lengths(predicted=predicted, targets=targets)
    _check_shapes("predicted", predicted, targets)
    pairs = (predicted & targets, predicted, targets)
    counts = np.stack([both.sum(1) for both in pairs], axis=1)
    correct, assigned, true = counts.T
    exact = Accuracy(int(((correct == assigned) & (correct == true)).sum()), len(counts))
    ranks = _ranks(predicted, targets)
    drawn = resample(len(counts), resamples, seed, lambda rows: rows[:, ranks] @ counts)
    values, draws = _averages(counts.sum(0, keepdims=True)), _averages(drawn)
    precision, recall, f1 = (nan_if_constant(percentile_interval(float(values[i, 0]), draws[i])) for i in range(3))
    return LabelDecisions(precision, recall, f1, exact)


def _averages(counts: Int[np.ndarray, "draws 3"]) -> Float[np.ndarray, "3 draws"]:
    """Return precision, recall and F1 of numbers of correct, given and true labels, NaN where one is of nothing."""
    correct, assigned, true = counts.T
    shares = [(correct, assigned), (correct, true), (2 * correct, assigned + true)]
    return np.stack([np.where(total > 0, part / np.maximum(total, 1), np.nan) for part, total in shares])


def score_of(logits: Float[np.ndarray, "*images classes"]) -> Float[np.ndarray, "*images classes"]:
    """Return the scores, between 0 and 1 and in double precision, of log-odds."""
    exact = logits.astype(np.float64)
    small = np.exp(-np.abs(exact))  # so that nothing overflows
    return np.asarray(np.where(exact >= 0, 1.0, small) / (1.0 + small))


def threshold_for_f1(scores: Scores, targets: Labels) -> LabelThreshold:
    """Return the threshold with the largest micro-averaged F1, the highest of several.

    Args:
        scores: of each image and class.
        targets: whether the image has the label.

    Raises:
        ArgumentError: the shapes differ, a score is NaN, or no image has a label.
    """
    thresholds, hits, assigned, true = _curve(scores, targets)
    best = int(np.argmax(2 * hits / (assigned + true)))
    return LabelThreshold(float(thresholds[best]), float(hits[best] / assigned[best]), float(hits[best] / true))


def threshold_for_precision(scores: Scores, targets: Labels, precision: float) -> LabelThreshold:
    """Return the threshold that gives most labels with at least a share of correct ones among them.

    It holds for these images: on others the precision may be less.

    Args:
        scores: of each image and class.
        targets: whether the image has the label.
        precision: the share, above 0 and at most 1.

    Raises:
        ArgumentError: as of `threshold_for_f1`, or no threshold is so precise.
    """
    check_interval("precision", precision, 0.0, 1.0)
    thresholds, hits, assigned, true = _curve(scores, targets)
    points = np.flatnonzero(hits >= precision * assigned - 1e-9)
    if not len(points):
        most = float((hits / assigned).max())
        raise ArgumentError(f"precision {precision:g} is not possible: the most is {most:.3f}; ask for less")
    last = int(points[-1])
    return LabelThreshold(float(thresholds[last]), float(hits[last] / assigned[last]), float(hits[last] / true))


def _curve(scores: Scores, targets: Labels) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the thresholds from the highest down, the correct and all labels given at each, and the true ones."""
    _check(scores, targets)
    if not (true := int(targets.sum())):
        raise ArgumentError("no image has a label; choose a threshold on images that have some")
    thresholds, hits, assigned = threshold_curve(scores.ravel(), targets.ravel(), np.ones(targets.size, np.int64))
    return thresholds, hits, assigned, true


def _check(scores: Float[np.ndarray, "..."], targets: Bool[np.ndarray, "..."]) -> None:
    check_lengths(scores=scores, targets=targets)
    _check_shapes("scores", scores, targets)
    if np.isnan(scores).any():
        raise ArgumentError("scores has NaN; give every image and class a score")


def _check_shapes(name: str, values: np.ndarray, targets: np.ndarray) -> None:
    if values.shape != targets.shape:
        raise ArgumentError(f"{name} is of shape {values.shape} and targets of {targets.shape}; both are alike")
    for title, array in ((name, values), ("targets", targets)):
        if title != "scores" and array.dtype != np.bool_:
            raise ArgumentError(f"{title} is of type {array.dtype}; it holds truth values: {title} > 0")
