"""What the oracles of methods with a memory share: scores class by class, and the summary of an image.

Plain Python and NumPy in float64. Two rules of the house are part of the formulas: what is compared is rounded to
float32 before, so that classes with equal features tie, and what is remembered is float32.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from oracles.exploration import explore
from oracles.losses_of_baselines import entropy, kept_views, softmax

Array = np.ndarray


def logits(feature: Array, text: Array, scale: float) -> Array:
    """Scores class by class: classes with equal features have equal ones."""
    return np.array([scale * float(np.dot(np.float64(row), np.float64(feature))) for row in text])


def first_of_largest(values: Sequence[float]) -> int:
    return int(np.argmax(np.float32(values)))


class Summary(NamedTuple):
    """What the methods with a cache take from an image.

    Attributes:
        feature: the mean of the selected views' features, not of unit length.
        scores: the mean of their scores.
        label: the pseudo-label.
        posterior: the mean of their softmaxes.
        entropy: of that mean, in nats.
    """

    feature: Array
    scores: Array
    label: int
    posterior: Array
    entropy: float


def summarise(views: Array, text: Array, scale: float, rho: float | None) -> Summary:
    """Summarise the confident views; without a fraction, the plain view alone."""
    rows = [logits(view, text, scale) for view in views]
    chosen = [0] if rho is None else kept_views(np.array(rows), rho)
    feature = sum(np.float64(views[k]) for k in chosen) / len(chosen)
    scores = sum(rows[k] for k in chosen) / len(chosen)
    posterior = sum(softmax(rows[k]) for k in chosen) / len(chosen)
    return Summary(feature, scores, first_of_largest(scores), posterior, entropy(posterior))


def summarise_vote(views: Array, text: Array, scale: float) -> Summary:
    """Summarise what FCL's exploration keeps: the class with most votes, the views for it, the posterior of all."""
    table = [np.float32(logits(view, text, 0.2 * scale)).tolist() for view in views]
    vote = explore(table, 1)
    rows = [logits(view, text, scale) for view in views]
    voters = [view for view, choice in zip(vote.kept, vote.choices, strict=True) if choice == vote.ranking[0]]
    feature = sum(np.float64(views[k]) for k in voters) / len(voters)
    posterior = sum(softmax(rows[k]) for k in vote.kept) / len(vote.kept)
    scores = sum(rows[k] for k in voters) / len(voters)
    return Summary(feature, scores, vote.ranking[0], posterior, entropy(posterior))


def affinity(cosine: float, a: float, b: float) -> float:
    """Tip-Adapter's `A(x; a, b)`."""
    return a * math.exp(-b * (1 - cosine))
