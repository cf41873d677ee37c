"""Correlation of points that come in clusters, such as the views of one image, which are not independent.

Intervals draw whole clusters again with replacement (a cluster bootstrap): drawing single points would count the views
of one image as so many images, and give intervals that are far too narrow.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from faircontext.errors import ArgumentError, check_choice, check_minimum
from faircontext.metrics.checks import check_lengths, check_level
from faircontext.metrics.stats import Interval

__all__ = ["Kind", "clustered_correlation"]

Kind = Literal["pearson", "spearman"]


def clustered_correlation(
    first: Float[np.ndarray, " points"],
    second: Float[np.ndarray, " points"],
    clusters: Int[np.ndarray, " points"],
    kind: Kind = "pearson",
    level: float = 0.95,
    resamples: int = 999,
    seed: int = 0,
) -> Interval | None:
    """Return the correlation of two quantities over points, with its cluster bootstrap interval.

    Args:
        first: one quantity.
        second: the other, in the same order.
        clusters: which cluster each point belongs to.
        kind: `pearson`, or `spearman`, the same of mid-ranks, which are taken anew in each resample.
        level: confidence level.
        resamples: how often all clusters are drawn. Those in which a quantity does not vary have no correlation and
            are left out.
        seed: of the draws.

    Returns:
        None where a quantity does not vary. With one cluster there is no interval: its ends are NaN.

    Raises:
        ArgumentError: the lengths differ, there is no point, a value is not finite, or another argument is out of
            range.
    """
    check_lengths(first=first, second=second)
    check_lengths(first=first, clusters=clusters)
    check_choice("kind", kind, ("pearson", "spearman"))
    check_level(level)
    check_minimum("resamples", resamples, 1)
    check_minimum("seed", seed, 0)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ArgumentError("first or second is not all finite; leave out the points that have no value")
    values = [column.astype(np.float64) for column in (first, second)]
    groups = [np.unique(column, return_inverse=True)[1] for column in values]

    def correlation(weights: Float[np.ndarray, " points"]) -> float:
        columns = values if kind == "pearson" else [_ranks(places, weights) for places in groups]
        return _weighted(columns[0], columns[1], weights)

    value = correlation(np.ones(len(first)))
    if np.isnan(value):
        return None
    _, member, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    if len(sizes) == 1:
        return Interval(value, float("nan"), float("nan"))
    draws = np.random.default_rng(seed).multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=resamples)
    drawn = np.array([correlation(counts[member].astype(np.float64)) for counts in draws])
    if np.isnan(drawn).all():
        return Interval(value, float("nan"), float("nan"))
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))


def _ranks(places: Int[np.ndarray, " points"], weights: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """Return mid-ranks, up to a constant, of points that occur `weights` times; `places` sorts their values."""
    totals = np.bincount(places, weights)
    ranks: Float[np.ndarray, " points"] = (np.cumsum(totals) - totals / 2)[places]
    return ranks


def _weighted(
    first: Float[np.ndarray, " points"], second: Float[np.ndarray, " points"], weights: Float[np.ndarray, " points"]
) -> float:
    """Return Pearson's correlation of points that occur `weights` times, NaN where one side does not vary."""
    present = weights > 0
    if np.ptp(first[present]) == 0 or np.ptp(second[present]) == 0:
        return float("nan")
    x = first - np.average(first, weights=weights)
    y = second - np.average(second, weights=weights)
    return float((weights * x * y).sum() / np.sqrt((weights * x * x).sum() * (weights * y * y).sum()))
