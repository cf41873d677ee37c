"""What methods with a memory have measured: results in several orders of the same images, put together.

An image counts where all orders, and all that is compared with them, have it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Shaped

from faircontext.errors import ArgumentError, and_more
from faircontext.runs.checks import differing
from faircontext.runs.groups import RunGroup, RunSettings, common_images, describe_stream, values_at
from faircontext.runs.results import Result

Score = Callable[[Result], Shaped[np.ndarray, " images"]]


def _is_correct(result: Result) -> Bool[np.ndarray, " images"]:
    return result.correct


@dataclass(frozen=True)
class StreamResult:
    """A method with a memory in several orders of the same images, of one data set or several.

    Attributes:
        method: what it is called.
        orders: their numbers.
        results: by data set and order; all data sets have all of the orders.
        positions: of the images that count, by data set; all orders have them.
    """

    method: str
    orders: tuple[int, ...]
    results: Mapping[str, Mapping[int, Result]]
    positions: Mapping[str, Int[np.ndarray, " images"]]

    @property
    def all(self) -> list[Result]:
        """All of them, by data set and order."""
        return [result for by_order in self.results.values() for result in by_order.values()]

    @property
    def tuned(self) -> list[str]:
        """Data sets for which its authors chose settings."""
        return [name for name, by_order in self.results.items() if any(result.tuned for result in by_order.values())]

    @cached_property
    def correct(self) -> Bool[np.ndarray, "orders images"]:
        """Whether each answer is correct, the images of all data sets side by side."""
        return np.asarray(self.scores(_is_correct), np.bool_)

    def scores(self, score: Score) -> Shaped[np.ndarray, "orders images"]:
        """Return a number for each answer.

        Args:
            score: gives it for all images of a result.
        """
        return np.concatenate(
            [
                np.stack([values_at(result, score(result), positions) for result in self.results[name].values()])
                for name, positions in self.positions.items()
            ],
            axis=1,
        )

    def parts(self, count: int) -> Int[np.ndarray, "orders images"]:
        """Return in which of some equally long parts of its stream each answer lies; -1 where it left no trace there.

        Args:
            count: how many parts.
        """

        def part_of(result: Result) -> Int[np.ndarray, " images"]:
            seen = result.seen_before
            return np.where(seen < 0, -1, count * seen // max(int(seen.max(initial=0)) + 1, 1))

        return np.asarray(self.scores(part_of), np.int64)

    @property
    def shortest(self) -> int:
        """How many images its shortest stream has learnt from."""
        return min(int(result.seen_before.max(initial=-1)) + 1 for result in self.all)

    @cached_property
    def seen_before(self) -> float:
        """From how many images the memory had learnt before an answer, on average; NaN where no image left a trace."""
        seen = np.concatenate([result.seen_before for result in self.all])
        return float(seen[seen >= 0].mean()) if (seen >= 0).any() else float("nan")

    @property
    def seconds(self) -> float:
        """Mean time of an answer that the method took itself, without encoding."""
        return float(np.concatenate([result.seconds for result in self.all]).mean())

    @property
    def shared_seconds(self) -> float:
        """Mean time of the work that it shares with other methods; NaN where a run of an earlier version has none."""
        return float(np.concatenate([result.shared_seconds for result in self.all]).mean())

    def cost(self, name: str) -> float | None:
        """Return the largest of a number that runs record of their states, None where one has not."""
        values: list[float] = [result.state[name] for result in self.all if name in result.state]
        return max(values) if len(values) == len(self.all) else None

    def paired(self, other: Mapping[str, Result]) -> tuple["StreamResult", Bool[np.ndarray, "orders images"]] | None:
        """Return this on the images that a method without a memory has too, and whether that one is correct there.

        Args:
            other: results of that method, by data set; in each order they are the same.

        Returns:
            None where a data set is missing, or has no image in common.
        """
        if not all(name in other for name in self.results):
            return None
        positions, columns = dict[str, Int[np.ndarray, " images"]](), []
        for name, by_order in self.results.items():
            positions[name], (*_, correct) = common_images([*by_order.values(), other[name]])
            columns.append(correct)
        if not all(map(len, columns)):
            return None
        return replace(self, positions=positions), np.tile(np.concatenate(columns), (len(self.orders), 1))


@dataclass(frozen=True)
class StreamRuns:
    """Runs of methods with a memory that differ in method, data set and order of the images alone.

    Attributes:
        arrangement: how classes lie in the streams.
        groups: by order, in rising order.
        episodic: runs with the same settings in any order, without the methods that have a memory.
    """

    arrangement: str
    groups: Mapping[int, RunGroup]
    episodic: RunGroup

    @property
    def settings(self) -> RunSettings:
        """What they share; `stream` names the orders, of whatever data set."""
        return self.episodic.settings._replace(stream=describe_stream([*self.groups], self.arrangement))

    @cached_property
    def methods(self) -> list[str]:
        """What methods with a memory are called, in the order of tables."""
        methods = dict.fromkeys(method for group in self.groups.values() for method in group.methods)
        return [method for method in methods if method in self._results]

    @cached_property
    def _results(self) -> Mapping[str, Mapping[str, Mapping[int, Result]]]:
        """Results with an answer of methods with a memory, by method, data set and order.

        Raises:
            ArgumentError: orders of a method on a data set differ in more than the order of the images.
        """
        by_method: dict[str, dict[str, dict[int, Result]]] = {}
        for order, group in self.groups.items():
            for name, results in group.results.items():
                for method, result in results.items():
                    if result.has_memory and result.n:
                        by_order = by_method.setdefault(method, {}).setdefault(name, {})
                        if by_order:
                            _check_orders(next(iter(by_order.values())), result)
                        by_order[order] = result
        return by_method

    @cached_property
    def datasets(self) -> list[str]:
        """Names of data sets with results of methods with a memory."""
        return sorted({name for by_dataset in self._results.values() for name in by_dataset})

    def result(self, method: str, datasets: Iterable[str]) -> StreamResult | None:
        """Return a method in the orders that it has of all of some data sets.

        Returns:
            None where a data set is missing, or there is no order or no image in common.
        """
        by_dataset = {name: self._results.get(method, {}).get(name, {}) for name in datasets}
        orders = sorted(set.intersection(*({*by_order} for by_order in by_dataset.values())) if by_dataset else ())
        if not orders:
            return None
        results = {name: {order: by_order[order] for order in orders} for name, by_order in by_dataset.items()}
        positions = {name: common_images([*by_order.values()])[0] for name, by_order in results.items()}
        if not all(map(len, positions.values())):
            return None
        return StreamResult(method, tuple(orders), results, positions)

    def baseline(self, method: str, datasets: Iterable[str]) -> dict[str, Result]:
        """Return the results with an answer of a method without a memory, by data set."""
        baseline = dict[str, Result]()
        for name in datasets:
            result = self.episodic.results.get(name, {}).get(method)
            if result is not None and result.n:
                baseline[name] = result
        return baseline

    @property
    def baselines(self) -> list[str]:
        """What methods without a memory are called, zero-shot first."""
        return [method for method in self.episodic.methods if self.baseline(method, self.datasets)]


def _check_orders(first: Result, second: Result) -> None:
    """Refuse two orders of a method on a data set that differ in more than the order of the images."""
    if differences := list(differing(_facts_of_stream(first), _facts_of_stream(second))):
        shown = and_more([f"{name} {json.dumps(a)} and {json.dumps(b)}" for name, a, b in differences], separator="; ")
        raise ArgumentError(
            f"{first.run.folder} and {second.run.folder}: both measure {first.method} on {first.dataset}, with other "
            f"settings: {shown}; orders are averaged only where nothing else differs: name one, or call a variant "
            f"{first.method}-SUFFIX"
        )


def _facts_of_stream(result: Result) -> dict[str, Any]:
    """Return what the answers of a method with a memory depend on besides the order; an interrupted run's as whole."""
    config, apart = result.config, ("limit", "dataset", "shard", "methods", "stored", "stream")
    stream, dataset = config["stream"], config["dataset"]
    return {
        "settings": result.settings,
        "limit": min(dataset["images"], config["limit"] or dataset["images"]),
        "dataset": {key: dataset[key] for key in ("split", "hash")},
        "stream": {key: stream.get(key) for key in ("horizon", "streams") if key in stream},
        **{key: value for key, value in config.items() if key not in apart},
    }


def join_orders(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Return a group for each arrangement of streams, with the runs of all orders; runs without a stream stay.

    A joined group has no results of its own, as each order has its own: `split_streams` sets them apart.
    """
    joined: dict[RunSettings, list[RunGroup]] = {}
    for group in groups:
        stream = group.runs[0].document["config"].get("stream") if group.runs else None
        arrangement = "" if stream is None else describe_stream((), stream["arrangement"])
        joined.setdefault(group.settings._replace(stream=arrangement), []).append(group)
    return [RunGroup(settings, tuple(run for group in same for run in group.runs)) for settings, same in joined.items()]


def split_streams(groups: Sequence[RunGroup]) -> tuple[list[RunGroup], list[StreamRuns]]:
    """Set methods with a memory apart from the others.

    Returns:
        Groups without such methods, where runs that differ in the order of images are one group, since nothing else
        depends on it; and the runs of such methods, of all orders together.
    """
    families: dict[RunSettings, list[RunGroup]] = {}
    for group in groups:
        families.setdefault(group.settings._replace(stream=""), []).append(group)
    episodic, streams = list[RunGroup](), list[StreamRuns]()
    for settings, alike in families.items():
        if not any(group.settings.stream for group in alike):
            episodic += alike
            continue
        episodic.append(RunGroup(settings, tuple(run for group in alike for run in group.runs), memory=False))
        arranged: dict[str, dict[int, RunGroup]] = {}
        for group in (group for group in alike if group.settings.stream):
            stream: Mapping[str, Any] = group.runs[0].document["config"]["stream"]
            arranged.setdefault(stream["arrangement"], {})[stream["order"]] = group
        for arrangement, of_order in arranged.items():
            streams.append(StreamRuns(arrangement, dict(sorted(of_order.items())), episodic[-1]))
    return episodic, streams
