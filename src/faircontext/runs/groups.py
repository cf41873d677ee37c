"""Runs that belong together: groups whose runs differ in method and data set alone, and the files beside runs.

Those are costs of methods (`costs.json`) and results of ablations (`NAME.results.json`).
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from faircontext.errors import ArgumentError, reason_of
from faircontext.runs.records import METHOD_TITLES, method_of, method_title, shift_of
from faircontext.runs.results import Result, has_analyses, read_results
from faircontext.runs.store import Run, load_run, run_folders

__all__ = [
    "AblationResults",
    "Cost",
    "RunGroup",
    "RunSettings",
    "Sidecars",
    "Variant",
    "common_images",
    "find_runs",
    "find_sidecars",
    "group_runs",
    "incomplete",
    "method_title",
    "shared_sets",
]

T = TypeVar("T")


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
        shared = (config["preset"], config["prompts"], config["seed"], shift_of(config))
        return cls(backbone["name"], weights, precision, *shared, _describe_stream(config.get("stream")))


def _describe_stream(stream: Mapping[str, Any] | None) -> str:
    if stream is None:
        return ""
    arrangement = "" if stream["arrangement"] == "shuffled" else f", {stream['arrangement']}"
    return f"order {stream['order']}{arrangement}"


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
            ArgumentError: a method was measured on a data set by two runs.
        """
        results: dict[str, dict[str, Result]] = {}
        for run in self.runs:
            if own := read_results(run):  # a run of analyses has none
                _add(results.setdefault(own[0].dataset, {}), own)
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
    lines: dict[Path, str] = {}
    for result in (result for results in group.results.values() for result in results.values()):
        run, shard = result.run, result.config["shard"]
        part = "" if shard is None else f"shard {shard[0]} of {shard[1]} (counted from 0); "
        if shard is not None or not run.complete:
            lines[run.folder] = f"{part}{result.seen:,} of {result.expected:,} images so far"
    for run in (run for run in group.runs if has_analyses(run) and not run.complete):
        lines[run.folder] = f"{len(run.rows['path'].unique()):,} images analysed so far"
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


@dataclass(frozen=True)
class Cost:
    """Seconds and memory of one prediction, as `costs.json` has them; what is not known is None."""

    method: str
    backbone: str
    seconds_mean: float
    seconds_standard_error: float | None = None
    peak_memory_mb: float | None = None


@dataclass(frozen=True)
class Variant:
    """A row of an ablation; accuracies and differences are proportions, None where there are none."""

    label: str
    n: int
    accuracy: float
    low: float
    high: float
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    gained: int | None = None
    lost: int | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class AblationResults:
    """Variants of a method beside the one that they are compared with, as `NAME.results.json` has them.

    Attributes:
        name: of the experiment.
        reference: label of that one.
        variants: those that have images.
        empty: labels of the others.
    """

    name: str
    reference: str
    variants: tuple[Variant, ...]
    empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sidecars:
    """What lies beside runs."""

    costs: tuple[Cost, ...] = ()
    ablations: tuple[AblationResults, ...] = ()


def find_sidecars(paths: Sequence[Path]) -> tuple[list[Path], Sidecars]:
    """Read the files beside runs, and return them with the folders that may hold runs.

    Args:
        paths: folders, searched with all below, or such files.

    Raises:
        ArgumentError: there is no path, a file is none of these, or one cannot be read.
    """
    if not paths:
        raise ArgumentError("give at least one folder of runs, as faircontext evaluate --out makes it")
    files, folders = list[Path](), list[Path]()
    for path in paths:
        if path.is_file() and not _is_sidecar(path):
            raise ArgumentError(f"{path}: is no costs.json or NAME.results.json; name the folder that holds runs")
        inside = [Path(above) / name for above, _, names in os.walk(path) for name in sorted(names)]
        inside = [path] if path.is_file() else inside
        sidecars = [inner for inner in inside if _is_sidecar(inner)]
        files += sidecars
        if not sidecars or any(inner.name == "run.json" for inner in inside):
            folders.append(path)
    costs = tuple(cost for file in files if file.name == "costs.json" for cost in _read_costs(file))
    ablations = tuple(_read_ablation(file) for file in dict.fromkeys(files) if file.name != "costs.json")
    return folders, Sidecars(costs, ablations)


def _is_sidecar(path: Path) -> bool:
    return path.name == "costs.json" or path.name.endswith(".results.json")


def _read_costs(file: Path) -> list[Cost]:
    return [_read(file, Cost, entry, ("seconds_mean",)) for entry in _document(file, "costs")["costs"]]


def _read_ablation(file: Path) -> AblationResults:
    document, needed = _document(file, "variants"), ("accuracy", "low", "high")
    empty = [entry for entry in document["variants"] if isinstance(entry, Mapping) and entry.get("n") == 0]
    variants = tuple(_read(file, Variant, entry, needed) for entry in document["variants"] if entry not in empty)
    try:
        labels = tuple(str(entry.get("label")) for entry in empty)
        return AblationResults(str(document["name"]), str(document["reference"]), variants, labels)
    except KeyError as error:
        raise ArgumentError(f"{file}: lacks {error}; it holds name, reference and variants") from None


def _document(file: Path, key: str) -> Mapping[str, Any]:
    """Return what a file holds, a list of entries among it."""
    try:
        document: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(document[key], list):
            raise TypeError(key)
    except OSError as error:
        raise ArgumentError(f"{file}: cannot be read: {reason_of(error)}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArgumentError(f"{file}: holds no list {key!r}; make it again, or delete it") from None
    return document


def _read(file: Path, kind: type[T], entry: Mapping[str, Any], finite: Sequence[str]) -> T:
    """Return an entry of a file; what is not among the fields is left out."""
    try:
        if not isinstance(entry, Mapping):
            raise TypeError(f"it is {entry!r} and no object")
        types = kind.__annotations__
        known = {name: entry[name] for name in types if entry.get(name) is not None}
        if absent := next((name for name in finite if name not in known), None):
            raise ValueError(f"{absent} is missing")
        if odd := next((name for name in finite if not math.isfinite(known[name])), None):
            raise ValueError(f"{odd} is {known[odd]}")
        for name, value in known.items():
            if types[name] is not str and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise TypeError(f"{name} is {value!r} and no number")
        return kind(**known)
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"{file}: an entry cannot be read ({error}); it needs {', '.join(finite)}") from None
