"""ZERO's vote counted by hand: plain Python and NumPy in float64, from the method's formulas."""

from typing import NamedTuple

import numpy as np

from oracles.losses_of_baselines import entropies_of, kept_views, softmax


class Vote(NamedTuple):
    answer: int
    votes: list[int]
    kept: list[int]


def vote(cosines: np.ndarray, scale: float, rho: float = 0.3) -> Vote:
    """Count a vote per confident view; a tie goes to the first discarded view that chooses a tied class."""
    classes = cosines.shape[1]
    kept = kept_views(scale * cosines, rho)
    choices = [int(row.argmax()) for row in cosines]
    votes = [sum(choices[view] == c for view in kept) for c in range(classes)]
    tied = [c for c in range(classes) if votes[c] == max(votes)]
    if len(tied) > 1:
        entropies = entropies_of(scale * cosines)
        discarded = sorted(set(range(len(cosines))) - set(kept), key=lambda view: (entropies[view], view))
        for view in discarded:
            if choices[view] in tied:
                return Vote(choices[view], votes, kept)
    return Vote(max(tied, key=lambda c: (cosines[kept[0], c], -c)), votes, kept)


def half_precision_shares(cosines: np.ndarray, scale: float, rho: float = 0.3) -> np.ndarray:
    """Average the confident views' softmax at the temperature that half precision makes of zero."""
    return np.mean([softmax(cosines[view] * 1024.0) for view in kept_views(scale * cosines, rho)], axis=0)
