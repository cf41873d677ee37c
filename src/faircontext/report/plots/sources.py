"""What figures are drawn from: runs sorted by their settings, and the files of costs and of ablations beside them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc

from faircontext.bench.store import Run
from faircontext.errors import ArgumentError
from faircontext.report.groups import TITLES, group_runs, read_runs, remarks
from faircontext.report.plots.beside import Ablation, Cost, is_beside, read_ablation, read_costs
from faircontext.report.results import Result, has_analyses
from faircontext.types import read_diagnostics

__all__ = ["AnalysisRow", "Material", "needs_analysis", "read_materials"]

T = TypeVar("T")


def needs_analysis(name: str) -> str:
    """Return why a figure of an analysis cannot be drawn, and the command that makes what it needs."""
    return f"needs runs of the analysis {name}: faircontext analyze {name} --datasets NAMES --root DATA --out RUNS"


@dataclass(frozen=True)
class AnalysisRow:
    """An image of an analysis.

    Attributes:
        dataset: name of its data set.
        path: of the image.
        label: the true class.
        answer: zero-shot's.
        candidates: classes, best first.
        names: of all classes.
        diagnostics: quantities of the analysis.
    """

    dataset: str
    path: str
    label: int
    answer: int
    candidates: tuple[int, ...]
    names: Sequence[str]
    diagnostics: Mapping[str, Any]

    def name(self, index: int) -> str:
        """Return a class's name, or its number where the run does not name it."""
        return self.names[index] if 0 <= index < len(self.names) else f"class {index}"


@dataclass(frozen=True)
class Material:
    """What was measured with one model in one way.

    Attributes:
        title: the settings, in words.
        parts: the settings, which tell materials apart.
        runs: all of them.
        costs: of this backbone.
        ablations: all that were found.
    """

    title: str
    parts: tuple[str, ...]
    runs: tuple[Run, ...] = ()
    costs: tuple[Cost, ...] = ()
    ablations: tuple[Ablation, ...] = ()

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Result]]:
        """Results that have answers, by data set and method; analyses are none."""
        return {
            name: {method: result for method, result in found.items() if result.number}
            for group in group_runs(self.runs)
            for name, found in group.results.items()
        }

    @cached_property
    def methods(self) -> list[str]:
        """Methods that have results, in the order of the paper's rows, each variant after its method."""
        order = [*TITLES]
        rank = {name: order.index(name.partition("-")[0]) for name in self._found if name.partition("-")[0] in order}
        return sorted(self._found, key=lambda name: (rank.get(name, len(order)), "-" in name))

    @property
    def _found(self) -> list[str]:
        return list(dict.fromkeys(method for found in self.results.values() for method in found))

    @property
    def remarks(self) -> list[str]:
        """A line for each run that is not whole."""
        parts = [run for run in self.runs if has_analyses(run) and not run.complete]
        analysed = [f"{run.folder}: {len({*run.rows['path'].to_pylist()}):,} images analysed so far" for run in parts]
        return [*remarks(group_runs(self.runs)), *analysed]

    def analysis(self, name: str, take: Callable[[AnalysisRow], T]) -> list[tuple[AnalysisRow, T]]:
        """Return the rows of an analysis, each image once, with what is taken from each.

        Args:
            name: see `list_analyses`.
            take: reads a row's diagnostics.

        Raises:
            ArgumentError: a row lacks what is taken, or two runs of a data set have other settings.
        """
        found: dict[tuple[str, str], tuple[AnalysisRow, T]] = {}
        first: dict[str, Run] = {}
        for run in (run for run in self.runs if name in run.document["config"]["methods"]):
            dataset = str(run.document["config"]["dataset"]["name"])
            other = first.setdefault(dataset, run)
            if _hash(other, name) != _hash(run, name):
                raise ArgumentError(
                    f"{other.folder} and {run.folder}: both are {name} on {dataset}, with other settings; name one, or "
                    f"call a variant {name}-SUFFIX"
                )
            for row in _analysis_rows(run, name):
                try:
                    found.setdefault((row.dataset, row.path), (row, take(row)))
                except (KeyError, TypeError, ValueError, IndexError) as error:
                    raise ArgumentError(
                        f"{run.folder}: the row {name} of {row.path} cannot be read ({error!r}); make the run again"
                    ) from None
        return list(found.values())


def _hash(run: Run, name: str) -> str | None:
    found: str | None = run.document.get("hashes", {}).get(name)
    return found


def _analysis_rows(run: Run, name: str) -> Iterator[AnalysisRow]:
    rows = run.rows.filter(pc.and_(pc.equal(run.rows["method"], name), pc.equal(run.rows["error"], "")))
    names = tuple(run.document["config"].get("names", ()))
    for row in rows.filter(pc.not_equal(rows["diagnostics"], "{}")).to_pylist():  # a set of one class has nothing
        yield AnalysisRow(
            row["dataset"],
            row["path"],
            -1 if row["label_index"] is None else row["label_index"],
            -1 if row["index"] is None else row["index"],
            tuple(row["candidates"]),
            names,
            read_diagnostics(row["diagnostics"]),
        )


def read_materials(places: Sequence[Path]) -> list[Material]:
    """Read all runs below some folders, and their files `costs.json` and `*.results.json`.

    Args:
        places: folders, searched with all below, or such files.

    Returns:
        A material for each way in which runs were made; one without runs where there are only files.

    Raises:
        ArgumentError: nothing is there, or something cannot be read, or a file is none of these.
    """
    if not places:
        raise ArgumentError("give at least one folder of runs, as faircontext evaluate --out makes it")
    files, folders = list[Path](), list[Path]()
    for place in places:
        if place.is_file() and not is_beside(place):
            raise ArgumentError(f"{place}: is no costs.json or NAME.results.json; name the folder that holds runs")
        inside = [Path(above) / name for above, _, names in os.walk(place) for name in sorted(names)]
        beside = [place] if place.is_file() else [path for path in inside if is_beside(path)]
        files += beside
        if not beside or any(path.name == "run.json" for path in inside):
            folders.append(place)
    runs = read_runs(folders) if folders else []
    costs = [cost for file in files if file.name == "costs.json" for cost in read_costs(file)]
    ablations = tuple(read_ablation(file) for file in dict.fromkeys(files) if file.name != "costs.json")
    sorted_runs: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        sorted_runs.setdefault(_parts(run), []).append(run)
    return [
        Material(_title(parts), parts, tuple(found), tuple(c for c in costs if c.backbone == parts[0]), ablations)
        for parts, found in sorted(sorted_runs.items())
    ] or [Material("", (), (), tuple(costs), ablations)]


def _parts(run: Run) -> tuple[str, ...]:
    try:
        config = run.document["config"]
        backbone = config["backbone"]
        weights = config.get("pretrained", backbone.get("pretrained"))
        parts = (backbone["name"], weights or "", backbone["precision"], config["preset"], config["prompts"])
        return (*map(str, parts), f"seed{config['seed']}")
    except (KeyError, TypeError) as error:
        raise ArgumentError(f"{run.folder / 'run.json'}: is no description of a run ({error!r})") from None


def _title(parts: tuple[str, ...]) -> str:
    backbone, weights, precision, preset, prompts, _ = parts
    model = ", ".join(filter(None, (backbone, Path(weights).name, precision)))
    return f"{model}, preset {preset}" + ("" if prompts == "single" else f", prompts {prompts}")
