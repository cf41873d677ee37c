"""Runs that belong together: groups whose runs differ in method and data set alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from faircontext.errors import ArgumentError, counted
from faircontext.runs.records import METHOD_TITLES, method_of, perturbation_of
from faircontext.runs.results import Result, has_analyses, read_results
from faircontext.runs.store import Run, load_run, run_folders


class RunSettings(NamedTuple):
    """What runs of a group share; `pretrained` is empty for a backbone's own weights, `precision` names an engine.

    `shift` is what was done to the images, such as fog:3, and `stream` their order where a method has a memory; both
    are empty in other runs.
    """

    backbone: str
    pretrained: str
    precision: str
    preset: str
    prompts: str
    seed: int
    shift: str = ""
    stream: str = ""

    @classmethod
    def of(cls, run: Run) -> "RunSettings":
        """Return the settings of a run."""
        config = run.document["config"]
        backbone, weights = config["backbone"], config.get("pretrained") or ""
        precision = backbone["precision"] + (f", {backbone['engine']['name']}" if "engine" in backbone else "")
        shared = (config["preset"], config["prompts"], config["seed"], perturbation_of(config))
        stream = config.get("stream")
        order = "" if stream is None else describe_stream([stream["order"]], stream["arrangement"])
        return cls(backbone["name"], weights, precision, *shared, order)


def describe_stream(orders: Sequence[int], arrangement: str) -> str:
    """Return the orders of streams, if any, and how classes lie in them where that is not anywhere."""
    numbers = f"order{'s' * (len(orders) > 1)} {' '.join(map(str, orders))}" if orders else ""
    return ", ".join(filter(None, (numbers, "" if arrangement == "shuffled" else arrangement)))


@dataclass(frozen=True)
class RunGroup:
    """Runs that were made with the same settings.

    Attributes:
        settings: what they have in common.
        runs: all of them, those of analyses included.
        memory: whether results of methods with a memory count; without them, runs may differ in the order of images.
    """

    settings: RunSettings
    runs: tuple[Run, ...]
    memory: bool = True

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Result]]:
        """By data set and method.

        Raises:
            ArgumentError: a method was measured on a data set by two runs.
        """
        results: dict[str, dict[str, Result]] = {}
        for run in self.runs:
            # A run of analyses has none.
            if of_run := [result for result in read_results(run) if self.memory or not result.has_memory]:
                _add(results.setdefault(of_run[0].dataset, {}), of_run)
        return {name: results[name] for name in sorted(results)}

    @cached_property
    def methods(self) -> list[str]:
        """What the methods are called, in the paper's order: variants come after their method, unknown ones last."""
        order = list(METHOD_TITLES)
        labels = dict.fromkeys(label for results in self.results.values() for label in results)
        rank = {label: order.index(name) if (name := method_of(label)) in order else len(order) for label in labels}
        return sorted(labels, key=lambda label: (rank[label], label != method_of(label)))

    def row(self, method: str) -> dict[str, Result]:
        """Return a method's results that have predictions, by data set."""
        rows = ((name, results.get(method)) for name, results in self.results.items())
        return {name: result for name, result in rows if result is not None and result.n}

    @property
    def title(self) -> str:
        """The model and its settings, in short."""
        settings = self.settings
        model = ", ".join(filter(None, (settings.backbone, Path(settings.pretrained).name, settings.precision)))
        prompts = "" if settings.prompts == "single" else f", prompts {settings.prompts}"
        images = "".join(f", {words}" for words in (settings.shift, settings.stream) if words)
        return f"{model}, preset {settings.preset}{prompts}{images}"


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """Read all runs below some folders, each once.

    Raises:
        ArgumentError: there is none, or one cannot be read.
    """
    if not folders:
        raise ArgumentError("give at least one folder of runs, as faircontext evaluate --out makes it")
    paths: dict[Path, Path] = {}
    for path in (path for folder in folders for path in run_folders(folder)):
        paths.setdefault(path.resolve(), path)
    return [load_run(path) for path in paths.values()]


def group_runs(runs: Sequence[Run]) -> list[RunGroup]:
    """Sort runs into groups, by their settings."""
    groups: dict[RunSettings, list[Run]] = {}
    for run in runs:
        groups.setdefault(RunSettings.of(run), []).append(run)
    return [RunGroup(settings, tuple(groups[settings])) for settings in sorted(groups)]


def _add(by_method: dict[str, Result], results: Sequence[Result]) -> None:
    """Take the results of one more run on a data set.

    Zero-shot, which is part of every run, may be there already; so may a method without a memory, of another order.
    """
    alone = [result.method for result in results] == ["zero_shot"]
    for result in results:
        other = by_method.get(result.method)
        if other is None:
            by_method[result.method] = result
        elif not _in_other_order(other, result) and (
            result.method != "zero_shot" or (alone and other.config["methods"].keys() == {"zero_shot"})
        ):
            raise _doubled(other, result)
        elif result.n > other.n:
            by_method[result.method] = result


def _in_other_order(first: Result, second: Result) -> bool:
    """Return whether two runs differ in the order of the images alone, which a method without a memory does not see."""
    orders = [result.config.get("stream", {}).get("order") for result in (first, second)]
    arrangements = [result.config.get("stream", {}).get("arrangement") for result in (first, second)]
    apart = orders[0] != orders[1] or arrangements[0] != arrangements[1]
    return apart and first.hash == second.hash and not (first.has_memory or second.has_memory)


def _doubled(first: Result, second: Result) -> ArgumentError:
    both = f"{first.run.folder} and {second.run.folder}"
    if first.config["shard"] is not None and second.config["shard"] is not None:
        return ArgumentError(f"{both}: are shards of {first.dataset}; join them with faircontext merge, or name one")
    difference = "the same settings" if first.hash == second.hash else "other settings"
    return ArgumentError(
        f"{both}: both measure {first.method} on {first.dataset}, with {difference}; name one, or call a variant "
        f"{first.method}-SUFFIX"
    )


def incomplete(group: RunGroup) -> list[str]:
    """Return a line for each run that is not whole: not complete, or a shard."""
    lines: dict[Path, str] = {}
    for result in (result for results in group.results.values() for result in results.values()):
        run, shard = result.run, result.config["shard"]
        part = "" if shard is None else f"shard {shard[0]} of {shard[1]} (counted from 0); "
        if shard is not None or not run.complete:
            lines[run.folder] = f"{part}{result.seen:,} of {counted(result.expected, 'image')} so far"
    for run in (run for run in group.runs if has_analyses(run) and not run.complete):
        lines[run.folder] = f"{counted(len(run.rows['path'].unique()), 'image')} analysed so far"
    return [f"{folder}: {line}" for folder, line in lines.items()]


def common_images(
    results: Sequence[Result],
) -> tuple[Int[np.ndarray, " images"], list[Bool[np.ndarray, " images"]]]:
    """Return the positions of images that all results of one data set have, and on which of them each is correct.

    Results of other versions of the data set than the first's have no image in common with it.
    """
    hashes = {result.config["dataset"].get("hash") for result in results}
    if len(hashes) > 1:
        return np.zeros(0, np.int64), [np.zeros(0, np.bool_) for _ in results]
    positions = shared_positions(results)
    return positions, [values_at(result, result.correct, positions) for result in results]


def shared_positions(results: Sequence[Result]) -> Int[np.ndarray, " images"]:
    """Return the positions of the images that all results have."""
    positions = results[0].positions
    for result in results[1:]:
        positions = np.intersect1d(positions, result.positions)
    return positions


def values_at(
    result: Result, values: Shaped[np.ndarray, " images"], positions: Int[np.ndarray, " common"]
) -> Shaped[np.ndarray, " common"]:
    """Return the values of a result's images at some positions in the data set."""
    order = np.argsort(result.positions, kind="stable")
    return values[order[np.searchsorted(result.positions, positions, sorter=order)]]


def shared_sets(group: RunGroup) -> tuple[list[str], dict[str, list[Bool[np.ndarray, " images"]]]]:
    """Return methods that have images in common, and on which of those each is correct, by data set.

    Where the methods have no image in common, those with the fewest data sets are left out until the others have.
    """
    rows = {method: row for method in group.methods if (row := group.row(method))}
    methods = list(rows)
    while methods:
        sets = [name for name in group.results if all(name in rows[method] for method in methods)]
        shared = {name: common_images([rows[method][name] for method in methods]) for name in sets}
        if filled := {name: correct for name, (positions, correct) in shared.items() if len(positions)}:
            return methods, filled
        counts = {method: len(rows[method]) for method in methods}
        methods.remove(min(reversed(methods), key=counts.__getitem__))
    return [], {}
