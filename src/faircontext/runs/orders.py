"""Which images a run answers, in which order, and what its folder is called."""

from typing import Literal

import numpy as np
from jaxtyping import Int

from faircontext.errors import ArgumentError

Arrangement = Literal["shuffled", "sorted", "correlated"]
"""How images of one class lie in a stream: anywhere, one class after another, or in clusters."""

_ORDERS = 4_611_686_018_427_387_847
"""First word of the seeds of orders; it is not the run's seed, as an order must not change the images' own numbers."""

_CONCENTRATION = 0.1
"""Of the Dirichlet distribution of a class over the parts of a correlated stream, as in NOTE (Gong et al., 2022)."""


def run_name(
    dataset: str,
    shard: tuple[int, int] | None = None,
    perturbation: object = None,
    order: int | None = None,
    arrangement: Arrangement = "shuffled",
) -> str:
    """Return the name of the folder of a run on a data set, perturbed or not, or on a part of it.

    Args:
        dataset: its name.
        shard: `(i, n)` for the i-th of n parts.
        perturbation: what was done to the images, as it is written; None or empty for images as they are.
        order: of a run with methods that have a memory, else None.
        arrangement: of such a run.
    """
    parts = [dataset]
    if perturbation:
        parts.append(str(perturbation).replace(":", "-"))
    if order is not None:
        parts += [f"order-{order}"] if arrangement == "shuffled" else [arrangement, f"order-{order}"]
    if shard is not None:
        parts.append(f"shard-{shard[0]}-of-{shard[1]}")
    return "-".join(parts)


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


def arrange(
    positions: Int[np.ndarray, " images"],
    order: int,
    arrangement: Arrangement = "shuffled",
    labels: Int[np.ndarray, " images"] | None = None,
) -> Int[np.ndarray, " images"]:
    """Return the same images in another order; order 0, shuffled, is the one that they have.

    Args:
        positions: of the images in their data set, in the run's own order.
        order: number of the order, from 0; each is a permutation of its own.
        arrangement: how classes lie in it.
        labels: of the images, which only `"shuffled"` does without.
    """
    n = len(positions)
    rng = np.random.default_rng([_ORDERS, order, n])
    permutation = np.arange(n) if order == 0 else rng.permutation(n)
    if arrangement == "shuffled":
        return positions[permutation]
    assert labels is not None
    present, first, classes = np.unique(labels[permutation], return_index=True, return_inverse=True)
    if arrangement == "sorted":  # classes by their first image in the order
        return positions[permutation[np.argsort(first[classes], kind="stable")]]
    return positions[permutation[np.argsort(_parts(classes, len(present), rng), kind="stable")]]


def _parts(classes: Int[np.ndarray, " images"], count: int, rng: np.random.Generator) -> Int[np.ndarray, " images"]:
    """Return in which of as many parts as there are classes each image lies: few parts hold most of a class."""
    parts = np.zeros(len(classes), np.int64)
    for label in range(count):
        of_class = np.flatnonzero(classes == label)
        ends = np.cumsum(rng.dirichlet(np.full(count, _CONCENTRATION)))
        parts[of_class] = np.minimum(np.searchsorted(ends, (np.arange(len(of_class)) + 0.5) / len(of_class)), count - 1)
    return parts


def parse_shard(text: str) -> tuple[int, int]:
    """Read `i/n`.

    Raises:
        ArgumentError: it is not the i-th of n parts, counted from 0.
    """
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise ArgumentError(f"--shard {text} is not possible; write i/n with i from 0 to n - 1, for example 0/4")
    return int(part), int(parts)
