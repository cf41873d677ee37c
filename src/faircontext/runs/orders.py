"""Which images a run answers, and in which order."""

import numpy as np
from jaxtyping import Int

from faircontext.errors import ArgumentError

__all__ = ["choose", "parse_shard"]


def choose(
    n: int, seed: int, limit: int | None = None, shard: tuple[int, int] | None = None
) -> Int[np.ndarray, " images"]:
    """Return which of some images a run answers, in its order: a permutation by the seed, its head, every n-th of it.

    A run with a smaller limit answers a part of what one with a larger limit answers. The order is mixed because data
    sets are sorted by class: what has been answered at any time is a sample of the whole.

    Args:
        n: how many images there are.
        seed: of the run.
        limit: how many of them.
        shard: `(i, n)` for the i-th of n parts.
    """
    order = np.random.default_rng([seed, n]).permutation(n)[:limit]
    return order if shard is None else order[shard[0] :: shard[1]]


def parse_shard(text: str) -> tuple[int, int]:
    """Read `i/n`.

    Raises:
        ArgumentError: it is not the i-th of n parts, counted from 0.
    """
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise ArgumentError(f"--shard {text} is not possible; write i/n with i from 0 to n - 1, for example 0/4")
    return int(part), int(parts)
