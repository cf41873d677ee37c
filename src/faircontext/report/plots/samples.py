"""Images on which results are compared: those that all have, so that methods differ in nothing else."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from faircontext.report.results import Result

__all__ = ["common", "shared_sets"]


def common(results: Sequence[Result]) -> tuple[Int[np.ndarray, " images"], list[Bool[np.ndarray, " images"]]]:
    """Return the positions of images that all results of one data set have, and which of them each has right.

    Results of other versions of the data set than the first's have no image in common with it.
    """
    hashes = {result.config["dataset"].get("hash") for result in results}
    if len(hashes) > 1:
        return np.zeros(0, np.int64), [np.zeros(0, np.bool_) for _ in results]
    positions = results[0].positions
    for result in results[1:]:
        positions = np.intersect1d(positions, result.positions)
    right = []
    for result in results:
        order = np.argsort(result.positions, kind="stable")
        places = order[np.searchsorted(result.positions, positions, sorter=order)]
        right.append(result.correct[places])
    return positions, right


def shared_sets(
    results: Mapping[str, Mapping[str, Result]], methods: Sequence[str]
) -> tuple[list[str], dict[str, list[Bool[np.ndarray, " images"]]]]:
    """Return methods that have images in common, and which of those each has right, by data set.

    Where the methods have no image in common, those with the fewest data sets are left out until the others have.

    Args:
        results: by data set and method.
        methods: names.

    Returns:
        The methods, and by data set an array for each of them.
    """
    kept = [name for name in methods if any(name in found for found in results.values())]
    while kept:
        sets = {name: found for name, found in results.items() if all(method in found for method in kept)}
        right = {name: common([found[method] for method in kept]) for name, found in sets.items()}
        filled = {name: arrays for name, (positions, arrays) in right.items() if len(positions)}
        if filled:
            return kept, filled
        number = {method: sum(method in found for found in results.values()) for method in kept}
        kept.remove(min(reversed(kept), key=number.__getitem__))
    return [], {}
