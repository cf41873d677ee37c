"""MTA's solver from its formulas: plain NumPy in float64, view by view."""

import math
from typing import NamedTuple

import numpy as np

from oracles.losses_of_baselines import softmax


class Mode(NamedTuple):
    """A mode, and how much each view belongs to it."""

    mode: np.ndarray
    weights: np.ndarray


def bandwidths(views: np.ndarray, fraction: float) -> list[float]:
    """Half the mean squared distance of each view to its nearest others, and never nothing."""
    number = len(views)
    count = max(1, math.floor(fraction * (number - 1) + 1e-9))
    squares = []
    for p in range(number):
        others = sorted(float(((views[p] - views[q]) ** 2).sum()) for q in range(number) if q != p)
        squares.append(max(0.5 * sum(others[:count]) / count, 1e-12))
    return squares


def kernel(views: np.ndarray, mode: np.ndarray, squares: list[float]) -> np.ndarray:
    return np.array(
        [math.exp(-float(((f - mode) ** 2).sum()) / (2.0 * h2)) for f, h2 in zip(views, squares, strict=True)]
    )


def find_mode(
    views: np.ndarray,
    posteriors: np.ndarray,
    neighbours: float = 0.3,
    lambda_y: float = 0.2,
    lambda_q: float = 4.0,
    iterations: int = 5,
) -> Mode:
    """Alternate between inlierness and mode, from the plain view and equal weights."""
    number = len(views)
    affinity = np.array([[float(posteriors[p] @ posteriors[q]) for q in range(number)] for p in range(number)])
    squares = bandwidths(views, neighbours)
    weights, mode = np.full(number, 1.0 / number), views[0]
    for _ in range(iterations):
        near = kernel(views, mode, squares)
        for _ in range(iterations):
            before, weights = weights, softmax((near + lambda_q * affinity @ weights) / lambda_y)
            if math.dist(before, weights) < 1e-6:
                break
        for _ in range(iterations):
            near = kernel(views, mode, squares)
            mean = sum(near[p] * weights[p] * views[p] for p in range(number)) / (near * weights).sum()
            before, mode = mode, mean / math.sqrt(float(mean @ mean))
            if math.dist(before, mode) < 1e-6:
                break
    return Mode(mode, weights)
