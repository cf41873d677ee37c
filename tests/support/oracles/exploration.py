"""`Phi_K` counted by hand: plain Python on lists, written from the method's formulas."""

import math
from typing import NamedTuple


class Count(NamedTuple):
    ranking: list[int]
    candidates: list[int]
    votes: list[int]
    posterior: list[float]
    kept: list[int]
    choices: list[int]
    entropies: list[float]


def log_softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    total = math.log(math.fsum(math.exp(score - top) for score in scores))
    return [score - top - total for score in scores]


def entropy(log_probabilities: list[float]) -> float:
    return -math.fsum(math.exp(value) * value for value in log_probabilities)


def explore(scores: list[list[float]], k: int, rho: float = 0.3, aggregation: str = "vote") -> Count:
    """Vote on a table of scores, one row per view and one column per class of the candidate set."""
    classes = range(len(scores[0]))
    rows = [log_softmax(row) for row in scores]
    entropies = [entropy(row) for row in rows]
    number = max(1, int(rho * len(rows) + 1e-9))
    kept = sorted(range(len(rows)), key=lambda view: (entropies[view], view))[:number]
    choices = [scores[view].index(max(scores[view])) for view in kept]
    votes = [choices.count(c) for c in classes]
    posterior = [math.fsum(math.exp(rows[view][c]) for view in kept) / number for c in classes]
    counted = votes if aggregation == "vote" else posterior
    ranking = sorted(classes, key=lambda c: (-counted[c], -posterior[c], c))
    return Count(ranking, ranking[: min(k, len(ranking))], votes, posterior, kept, choices, entropies)
