"""Runs that belong together: groups whose runs differ in method and data set alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from faircontext.errors import ArgumentError
from faircontext.runs.records import method_of
from faircontext.runs.results import Result, has_analyses, read_results
from faircontext.runs.store import Run, load_runs

__all__ = [
    "METHOD_TITLES",
    "RunGroup",
    "RunSettings",
    "common_images",
    "find_runs",
    "group_runs",
    "incomplete",
    "method_title",
    "shared_sets",
]

METHOD_TITLES = {
    "zero_shot": "Zero-shot",
    "tpt": "TPT",
    "ctpt": "C-TPT",
    "rlcf": "RLCF",
    "mta": "MTA",
    "zero": "ZERO",
    "ttl": "TTL",
    "tps": "TPS",
    "rtpt": "R-TPT",
    "fcl": "FCL",
}
"""Methods in the order of the paper's rows."""


def method_title(label: str) -> str:
    """Return what the paper calls a method; `fcl-50` becomes `FCL-50`."""
    name = method_of(label)
    return METHOD_TITLES[name] + label[len(name) :] if name in METHOD_TITLES else label


def _in_order_of_rows(labels: Iterable[str]) -> list[str]:
    """Return labels in the order of the paper's rows, each variant after its method, unknown ones last."""
    order = list(METHOD_TITLES)
    rank = {label: order.index(name) if (name := method_of(label)) in order else len(order) for label in labels}
    return sorted(rank, key=lambda label: (rank[label], "-" in label))


class RunSettings(NamedTuple):
    """What the runs of a group have in common; `pretrained` is empty for the backbone's own weights."""

    backbone: str
    pretrained: str
    precision: str
    preset: str
    prompts: str
    seed: int

    @classmethod
    def of(cls, run: Run) -> "RunSettings":
        """Return the settings of a run.

        Raises:
            ArgumentError: its `run.json` lacks some.
        """
        try:
            config = run.document["config"]
            backbone = config["backbone"]
            # `pretrained` stands beside the backbone, or among its facts.
            weights = config.get("pretrained", backbone.get("pretrained")) or ""
            words = (backbone["name"], weights, backbone["precision"], config["preset"], config["prompts"])
            backbone_name, pretrained, precision, preset, prompts = map(str, words)
            return cls(backbone_name, pretrained, precision, preset, prompts, int(config["seed"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _no_description(run, error) from None


@dataclass(frozen=True)
class RunGroup:
    """Runs that were made with the same settings.

    Attributes:
        settings: what they have in common.
        runs: all of them, those of analyses included.
    """

    settings: RunSettings
    runs: tuple[Run, ...]

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Result]]:
        """By data set and method.

        Raises:
            ArgumentError: a method was measured on a data set by two runs, or a `run.json` lacks something.
        """
        return _results(self.runs)

    @cached_property
    def methods(self) -> list[str]:
        """What the methods are called, in the order of rows."""
        return _in_order_of_rows(label for found in self.results.values() for label in found)

    def row(self, method: str) -> dict[str, Result]:
        """Return a method's results that have predictions, by data set."""
        return {name: found[method] for name, found in self.results.items() if method in found and found[method].n}

    @property
    def title(self) -> str:
        """The model and its settings, in short."""
        settings = self.settings
        model = ", ".join(filter(None, (settings.backbone, Path(settings.pretrained).name, settings.precision)))
        prompts = "" if settings.prompts == "single" else f", prompts {settings.prompts}"
        return f"{model}, preset {settings.preset}{prompts}"


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """Read all runs below some folders, each once.

    Raises:
        ArgumentError: there is none, or one cannot be read.
    """
    if not folders:
        raise ArgumentError("give at least one folder of runs, as faircontext evaluate --out makes it")
    runs: dict[Path, Run] = {}
    for folder in folders:
        try:
            found = load_runs(folder)
        except (KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(f"{folder}: holds a run.json that lacks {error}; delete it or name its run") from None
        for run in found:
            runs.setdefault(run.folder.resolve(), run)
    return list(runs.values())


def group_runs(runs: Sequence[Run]) -> list[RunGroup]:
    """Sort runs into groups, by their settings.

    Raises:
        ArgumentError: a `run.json` lacks a setting.
    """
    groups: dict[RunSettings, list[Run]] = {}
    for run in runs:
        groups.setdefault(RunSettings.of(run), []).append(run)
    return [RunGroup(settings, tuple(groups[settings])) for settings in sorted(groups)]


def _results(runs: Sequence[Run]) -> dict[str, dict[str, Result]]:
    results: dict[str, dict[str, Result]] = {}
    for run in runs:
        try:
            found = read_results(run)
            _ = [(result.dataset, result.planned, result.hash) for result in found]
        except (KeyError, TypeError, ValueError) as error:
            raise _no_description(run, error) from None
        if found:  # a run of analyses has none
            _add(results.setdefault(found[0].dataset, {}), found)
    return {name: results[name] for name in sorted(results)}


def _no_description(run: Run, error: Exception) -> ArgumentError:
    return ArgumentError(f"{run.folder / 'run.json'}: is no description of a run ({error!r})")


def _add(held: dict[str, Result], results: Sequence[Result]) -> None:
    """Take the results of one more run on a data set; zero-shot, which is part of every run, may be there already."""
    alone = [result.method for result in results] == ["zero_shot"]
    for result in results:
        other = held.get(result.method)
        if other is None:
            held[result.method] = result
        elif result.method != "zero_shot" or (alone and other.config["methods"].keys() == {"zero_shot"}):
            raise _doubled(other, result)
        elif result.n > other.n:
            held[result.method] = result


def _doubled(first: Result, second: Result) -> ArgumentError:
    both = f"{first.run.folder} and {second.run.folder}"
    if first.config["shard"] is not None and second.config["shard"] is not None:
        return ArgumentError(f"{both}: are shards of {first.dataset}; join them with faircontext merge, or name one")
    how = "the same settings" if first.hash == second.hash else "other settings"
    return ArgumentError(
        f"{both}: both measure {first.method} on {first.dataset}, with {how}; name one, or call a variant "
        f"{first.method}-SUFFIX"
    )


def incomplete(group: RunGroup) -> list[str]:
    """Return a line for each run that is not whole: not complete, or a shard."""
    found: dict[Path, str] = {}
    for result in (result for results in group.results.values() for result in results.values()):
        run, shard = result.run, result.config["shard"]
        part = "" if shard is None else f"shard {shard[0]} of {shard[1]} (counted from 0); "
        if shard is not None or not run.complete:
            found[run.folder] = f"{part}{result.n + result.unreadable:,} of {result.planned:,} images so far"
    for run in (run for run in group.runs if has_analyses(run) and not run.complete):
        found[run.folder] = f"{len({*run.rows['path'].to_pylist()}):,} images analysed so far"
    return [f"{folder}: {line}" for folder, line in found.items()]


def common_images(
    results: Sequence[Result],
) -> tuple[Int[np.ndarray, " images"], list[Bool[np.ndarray, " images"]]]:
    """Return the positions of images that all results of one data set have, and on which of them each is correct.

    Results of other versions of the data set than the first's have no image in common with it.
    """
    hashes = {result.config["dataset"].get("hash") for result in results}
    if len(hashes) > 1:
        return np.zeros(0, np.int64), [np.zeros(0, np.bool_) for _ in results]
    positions = results[0].positions
    for result in results[1:]:
        positions = np.intersect1d(positions, result.positions)
    correct = []
    for result in results:
        order = np.argsort(result.positions, kind="stable")
        correct.append(result.correct[order[np.searchsorted(result.positions, positions, sorter=order)]])
    return positions, correct


def shared_sets(group: RunGroup) -> tuple[list[str], dict[str, list[Bool[np.ndarray, " images"]]]]:
    """Return methods that have images in common, and on which of those each is correct, by data set.

    Where the methods have no image in common, those with the fewest data sets are left out until the others have.
    """
    results = {name: {m: r for m, r in found.items() if r.n} for name, found in group.results.items()}
    methods = [name for name in group.methods if any(name in found for found in results.values())]
    while methods:
        sets = {name: found for name, found in results.items() if all(method in found for method in methods)}
        shared = {name: common_images([found[method] for method in methods]) for name, found in sets.items()}
        if filled := {name: correct for name, (positions, correct) in shared.items() if len(positions)}:
            return methods, filled
        counts = {method: sum(method in found for found in results.values()) for method in methods}
        methods.remove(min(reversed(methods), key=counts.__getitem__))
    return [], {}
