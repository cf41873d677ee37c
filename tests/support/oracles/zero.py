"""ZERO's vote counted by hand: plain Python and NumPy in float64, from the method's formulas."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from oracles.losses_of_baselines import kept_views, softmax, surest_first


class Vote(NamedTuple):
    answer: int
    votes: list[int]
    kept: list[int]


def vote(cosines: np.ndarray, scale: float, rho: float = 0.3) -> Vote:
    """Count a vote per confident view; a tie goes to the first discarded view that chooses a tied class."""
    kept = kept_views(scale * cosines, rho)
    choices = [int(cosines[view].argmax()) for view in kept]
    votes = [choices.count(c) for c in range(cosines.shape[1])]
    return Vote(decide(votes, cosines, scale, kept), votes, kept)


def decide(votes: Sequence[float], cosines: np.ndarray, scale: float, kept: list[int]) -> int:
    """The class with most votes; where several have as many, the discarded views are asked, the surest first."""
    tied = [c for c in range(len(votes)) if votes[c] == max(votes)]
    if len(tied) > 1:
        for view in surest_first(scale * cosines):
            if view not in kept and int(cosines[view].argmax()) in tied:
                return int(cosines[view].argmax())
    return max(tied, key=lambda c: (cosines[kept[0], c], -c))


def half_precision_shares(cosines: np.ndarray, scale: float, rho: float = 0.3) -> np.ndarray:
    """Average the confident views' softmax at the temperature that half precision makes of zero."""
    return np.mean([softmax(cosines[view] * 1024.0) for view in kept_views(scale * cosines, rho)], axis=0)


def half_precision_answer(cosines: np.ndarray, scale: float, rho: float = 0.3) -> int:
    """Decide by the same shares, summed exactly: those that are equal on paper are equal here."""
    kept = kept_views(scale * cosines, rho)
    sums = np.zeros(cosines.shape[1])
    for c in range(cosines.shape[1]):
        parts = []
        for view in kept:
            row = [math.exp(1024.0 * (cosine - cosines[view].max())) for cosine in cosines[view].tolist()]
            parts.append(row[c] / math.fsum(row))
        sums[c] = math.fsum(parts)
    return decide(sums.tolist(), cosines, scale, kept)
