"""Answering only what one is sure of: risk and coverage, their curve and its area, thresholds, and AUROC.

A prediction is given where its score is at least a threshold. Coverage is the share of images that are answered, risk
the share of wrong ones among them (El-Yaniv and Wiener, 2010). The area under the curve of risk over coverage is that
of Geifman, Uziel and El-Yaniv (2019): the mean of the risk among the i most certain images, i from 1 to n.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from faircontext.errors import ArgumentError, check_interval
from faircontext.metrics.bootstrap import percentile_interval, resample
from faircontext.metrics.checks import check_lengths
from faircontext.metrics.stats import Accuracy, Interval

Scores = Float[np.ndarray, " images"]


@dataclass(frozen=True)
class RiskCoverage:
    """The points that thresholds reach, from the highest threshold to the lowest; equal scores share one.

    Attributes:
        threshold: least score that is answered.
        answered: how many images are.
        wrong: how many of these are wrong.
        n: of all images.
    """

    threshold: Float[np.ndarray, " points"]
    answered: np.ndarray
    wrong: np.ndarray
    n: int

    @property
    def coverage(self) -> Float[np.ndarray, " points"]:
        """Share of images that are answered."""
        return np.asarray(self.answered / self.n)

    @property
    def risk(self) -> Float[np.ndarray, " points"]:
        """Share of the answered images that are wrong."""
        return np.asarray(self.wrong / self.answered)

    def at(self, index: int) -> "OperatingPoint":
        """Return a point of the curve."""
        answered, wrong = int(self.answered[index]), int(self.wrong[index])
        return OperatingPoint(float(self.threshold[index]), Accuracy(answered, self.n), Accuracy(wrong, answered))


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold, with the shares of images that it answers and gets wrong; each has its 95% Wilson interval."""

    threshold: float
    coverage: Accuracy
    risk: Accuracy


def threshold_curve(score: Scores, *weights: Shaped[np.ndarray, "*draws images"]) -> tuple[np.ndarray, ...]:
    """Return the distinct scores, falling, and the sums of weights over the images that reach each of them.

    Args:
        score: of each image.
        weights: of the images; several rows are summed one by one.

    Returns:
        The scores, of shape (points,), then for each array of weights its sums, of shape (*draws, points).
    """
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    return ranked[last].astype(np.float64), *(np.cumsum(each[..., order], axis=-1)[..., last] for each in weights)


def risk_coverage(score: Scores, correct: Bool[np.ndarray, " images"]) -> RiskCoverage:
    """Return risk over coverage.

    Args:
        score: of each prediction; more is more certain.
        correct: whether it is correct.

    Raises:
        ArgumentError: the lengths differ, there is no image, or a score is NaN.
    """
    check_lengths(score=score, correct=correct)
    if np.isnan(score).any():
        raise ArgumentError("score has NaN; give every prediction a score")
    threshold, answered, wrong = threshold_curve(score, np.ones(len(score), np.int64), ~correct)
    return RiskCoverage(threshold, answered, wrong, len(score))


def aurc(score: Scores, correct: Bool[np.ndarray, " images"]) -> float:
    """Return the area under the curve of risk over coverage, between 0 and 1; less is better.

    Where scores tie, it is the mean over all orders of the tied images.

    Args and errors as of `risk_coverage`.
    """
    curve = risk_coverage(score, correct)
    sizes = np.diff(curve.answered, prepend=0)
    rates = np.diff(curve.wrong, prepend=0) / sizes
    # Among the first i images of a block are, on average, those before it and its rate of wrong ones.
    before = np.repeat(curve.wrong - rates * sizes, sizes)
    start = np.repeat(curve.answered - sizes, sizes)
    i = np.arange(1, curve.n + 1)
    return float(np.mean((before + np.repeat(rates, sizes) * (i - start)) / i))


def aurc_draws(
    score: Scores, correct: Bool[np.ndarray, " images"], resamples: int = 999, seed: int = 0
) -> Float[np.ndarray, " resamples"]:
    """Return the area for resamples of the images, from whose quantiles intervals are made.

    Two methods on the same images get the same resamples: differences are paired.

    Args:
        score: as of `risk_coverage`.
        correct: as there.
        resamples: how many.
        seed: of the draws.
    """
    index = np.arange(len(score))

    def areas(counts: Int[np.ndarray, "draws images"]) -> Float[np.ndarray, " draws"]:
        rows = (np.repeat(index, row) for row in counts)
        return np.array([aurc(score[row], correct[row]) for row in rows])

    return resample(len(score), resamples, seed, areas)


def threshold_for_coverage(score: Scores, correct: Bool[np.ndarray, " images"], coverage: float) -> OperatingPoint:
    """Return the highest threshold that answers at least a share of the images.

    Args:
        score: as of `risk_coverage`.
        correct: as there.
        coverage: the share, above 0 and at most 1.
    """
    check_interval("coverage", coverage, 0.0, 1.0)
    curve = risk_coverage(score, correct)
    return curve.at(int(np.argmax(curve.answered >= coverage * curve.n - 1e-9)))


def threshold_for_risk(score: Scores, correct: Bool[np.ndarray, " images"], risk: float) -> OperatingPoint:
    """Return the threshold that answers most images with at most a share of wrong ones among the answered.

    It holds for these images: on others the risk may be larger, as its interval tells.

    Args:
        score: as of `risk_coverage`.
        correct: as there.
        risk: the share, from 0 to 1.

    Raises:
        ArgumentError: no threshold has so little risk.
    """
    if not 0 <= risk <= 1:
        raise ArgumentError(f"invalid risk {risk}: must be between 0 and 1")
    curve = risk_coverage(score, correct)
    points = np.flatnonzero(curve.wrong <= risk * curve.answered + 1e-9)
    if not len(points):
        least = curve.at(int(np.argmin(curve.risk)))
        raise ArgumentError(
            f"risk {risk:g} is not possible: the least is {least.risk.value:.3f}, at coverage "
            f"{least.coverage.value:.3f}; ask for more risk"
        )
    return curve.at(int(points[-1]))


def auroc(known: Scores, unknown: Float[np.ndarray, " others"], resamples: int = 9999, seed: int = 0) -> Interval:
    """Return the probability that a known image scores above an unknown one, ties counting half, with its interval.

    The interval is a 95% bootstrap interval that draws known and unknown images again, each among themselves.

    Args:
        known: scores of images of the classes.
        unknown: scores of images of none of them.
        resamples: of the bootstrap.
        seed: of the draws.

    Raises:
        ArgumentError: there are no images of either kind, or a score is NaN.
    """
    return percentile_interval(float(_wins(known, unknown).mean()), auroc_draws(known, unknown, resamples, seed))


def auroc_difference(
    first: tuple[Scores, Float[np.ndarray, " others"]],
    second: tuple[Scores, Float[np.ndarray, " others"]],
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Return the AUROC of one score less that of another on the same images, with its paired 95% bootstrap interval.

    Args:
        first: scores of known and of unknown images.
        second: other scores of the same images.
        resamples: of the bootstrap.
        seed: of the draws.
    """
    value = float(_wins(*first).mean() - _wins(*second).mean())
    return percentile_interval(value, auroc_draws(*first, resamples, seed) - auroc_draws(*second, resamples, seed))


def _wins(known: Scores, unknown: Float[np.ndarray, " others"]) -> Float[np.ndarray, "known unknown"]:
    if not len(known) or not len(unknown) or np.isnan(known).any() or np.isnan(unknown).any():
        raise ArgumentError(f"AUROC of {len(known)} known and {len(unknown)} unknown images is not possible; give both")
    above = known[:, None] > unknown[None]
    return np.asarray(above + 0.5 * (known[:, None] == unknown[None]))


def auroc_draws(
    known: Scores, unknown: Float[np.ndarray, " others"], resamples: int = 9999, seed: int = 0
) -> Float[np.ndarray, " resamples"]:
    """Return the AUROC for resamples of known and unknown images, each among themselves.

    Scores of the same images get the same resamples: differences are paired. Args as of `auroc`.
    """
    wins, rng = _wins(known, unknown), np.random.default_rng(seed)
    rows, columns = (resample(n, resamples, rng, lambda counts: counts) / n for n in wins.shape)
    return np.asarray(((rows @ wins) * columns).sum(1))
