"""TDA by lists and loops, in float64, from the formulas: entries are appended, sorted and cut."""

import math
from dataclasses import dataclass, field

import numpy as np

from oracles.streams import summarise_vote

__all__ = ["Memory", "answer"]


@dataclass
class Memory:
    """Per class a list of (entropy, feature) and of (entropy, feature, probabilities)."""

    positive: dict[int, list[tuple]] = field(default_factory=dict)
    negative: dict[int, list[tuple]] = field(default_factory=dict)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def entropy_of(p: np.ndarray) -> float:
    return -sum(float(x) * math.log(x) for x in p if x > 0)


def answer(
    memory: Memory,
    views: np.ndarray,
    text: np.ndarray,
    scale: float,
    *,
    alpha: float = 2.0,
    beta: float = 5.0,
    rho: float = 0.1,
    sizes: tuple[int, int] = (3, 2),
    voted: bool = False,
) -> tuple[int, np.ndarray] | None:
    """Answer an image, in place in the memory; None where a number that is used is not finite."""
    views, text = views.astype(np.float64), text.astype(np.float64)
    logits = [scale * np.array([float(view @ row) for row in text]) for view in views]
    entropies = [np.float32(entropy_of(softmax(one))) if np.isfinite(one).all() else np.inf for one in logits]
    chosen = sorted(range(len(views)), key=lambda index: (entropies[index], index))[: max(1, int(rho * len(views)))]
    x, mean = np.mean([views[k] for k in chosen], 0), np.mean([logits[k] for k in chosen], 0)
    if not (np.isfinite(mean).all() and np.isfinite(views[0]).all()):
        return None
    p = np.mean([softmax(logits[k]) for k in chosen], 0)
    label, h, kept = int(np.argmax(mean.astype(np.float32))), np.float32(entropy_of(p)), x
    if voted:
        kept, _, label, p, value = summarise_vote(views, text, scale)
        kept, h = np.float64(np.float32(kept)), np.float32(value)

    def insert(cache: dict[int, list[tuple]], entry: tuple, size: int) -> None:
        cache[label] = sorted([*cache.get(label, []), entry], key=lambda one: one[0])[:size]

    insert(memory.positive, (h, kept), sizes[0])
    if 0.2 < float(h) / math.log2(len(text)) < 0.5:
        insert(memory.negative, (h, kept, p), sizes[1])
    final = mean.copy()
    for c, entries in memory.positive.items():
        for _, other in entries:
            final[c] += alpha * math.exp(-beta * (1 - float(x @ other)))
    for entries in memory.negative.values():
        for _, other, q in entries:
            weight = 0.117 * math.exp(-1.0 * (1 - float(x @ other)))
            for c in range(len(text)):
                if 0.03 < q[c] < 1.0:
                    final[c] -= weight
    return int(np.argmax(final.astype(np.float32))), softmax(final)
