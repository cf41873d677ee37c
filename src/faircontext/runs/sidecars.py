"""The files beside runs: costs of methods (`costs.json`) and results of ablations (`NAME.results.json`)."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from faircontext.errors import ArgumentError, reason_of

T = TypeVar("T")


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
    difference_sets_low: float | None = None
    difference_sets_high: float | None = None
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
