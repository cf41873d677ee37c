"""Experiments as JSON files: variants of one method that are compared, or the runs that a table of the paper needs.

Of variants, those that share views and prompts are run together, so that they share an image's features. For the paper,
a method with its settings belongs to one group, and runs are stored by backbone, prompts and group: a table that needs
a run finds it, whichever table it was made for.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from faircontext.datasets.spec import CATALOGUE
from faircontext.errors import ArgumentError, unknown_name
from faircontext.runs.records import is_analysis

__all__ = [
    "KEYS",
    "Cell",
    "Experiment",
    "PaperExperiment",
    "PaperRun",
    "cells",
    "experiment_names",
    "missing",
    "paper_experiments",
    "read_experiment",
    "read_paper_experiment",
    "shared",
]

KEYS: Mapping[str, Any] = {
    "title": "",
    "method": "fcl",
    "backbone": "lite0",
    "pretrained": None,
    "preset": "recommended",
    "prompts": "single",
    "seed": 0,
    "limit": None,
    "datasets": (),
    "settings": {},
    "variants": {},
    "reference": "",
}
"""What a file of variants may say, and what holds where it does not; `reference` is the first variant."""

_OWN = ("views", "prompts", "method")
"""What a variant may change besides the method's settings."""

_KINDS = {str: "string", int: "number", tuple: "list", dict: "object"}


@dataclass(frozen=True)
class Cell:
    """Variants that one run answers together.

    Attributes:
        prompts: name of the prompt set.
        views: overrides for `evaluate --views`.
        variants: for each label of a row its settings, as overrides for `evaluate --set`.
    """

    prompts: str
    views: tuple[str, ...]
    variants: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """Name of its folder."""
        return "-".join((self.prompts, *(word.replace(",", "-") for word in self.views)))


@dataclass(frozen=True)
class Experiment:
    """A file of variants that has been read; see `KEYS`."""

    name: str
    facts: Mapping[str, Any]

    @cached_property
    def labels(self) -> dict[str, str]:
        """What each variant is called in rows."""
        variants = self.facts["variants"]
        return {name: f"{changes.get('method', self.facts['method'])}-{name}" for name, changes in variants.items()}

    @property
    def reference(self) -> str:
        """The variant that the others are compared with."""
        return str(self.facts["reference"] or next(iter(self.facts["variants"])))


@dataclass(frozen=True)
class PaperRun:
    """Runs for a table of the paper that differ in the data set alone.

    Attributes:
        group: name of their folder; runs of one group have the same methods and settings.
        backbone: architecture; its weights are OpenAI's unless others are asked for.
        datasets: names.
        methods: what is run, variants by a suffix, with settings over the preset `paper`.
        prompts: name of the prompt set.
        limit: images of each data set, where the paper takes a sample, or where all would cost days.
    """

    group: str
    backbone: str
    datasets: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]
    prompts: str = "single"
    limit: int | None = None

    @property
    def analysis(self) -> bool:
        """Whether evidence is analysed, in place of answering."""
        return all(map(is_analysis, self.methods))

    @property
    def settings(self) -> tuple[str, ...]:
        """Overrides for `evaluate --set`."""
        return tuple(
            f"{label}.{key}={_word(value)}" for label, found in self.methods.items() for key, value in found.items()
        )

    def folder(self, pretrained: str | None) -> str:
        """Return where its runs are, below the folder of all runs."""
        model = "-".join(filter(None, (self.backbone, pretrained)))
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', model).strip('-')}/{self.prompts}/{self.group}"

    def only(self, labels: Iterable[str]) -> "PaperRun":
        """Return the same with some of the methods."""
        return replace(self, methods={label: self.methods[label] for label in labels})


@dataclass(frozen=True)
class PaperExperiment:
    """What a table or figure of the paper needs.

    Attributes:
        name: of the file.
        title: what it is.
        runs: what is run.
        costs: backbones on which time and memory are measured, see `measure`.
        counted: data sets whose classes and images are counted.
        figures: what is drawn in the end, see `faircontext figures`.
    """

    name: str
    title: str
    runs: tuple[PaperRun, ...] = ()
    costs: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    @property
    def datasets(self) -> list[str]:
        """All data sets, each once."""
        return list(dict.fromkeys([*self.counted, *(name for run in self.runs for name in run.datasets)]))


def _shipped() -> dict[str, Any]:
    """Return the experiments that come with the package, by name."""
    folder = files("faircontext") / "experiments"
    texts = {path.name.removesuffix(".json"): path for path in folder.iterdir() if path.name.endswith(".json")}
    return {name: json.loads(texts[name].read_text(encoding="utf-8")) for name in sorted(texts)}


def experiment_names() -> list[str]:
    """Return the names of the experiments with variants that come with the package."""
    return [name for name, facts in _shipped().items() if "variants" in facts]


def paper_experiments() -> dict[str, PaperExperiment]:
    """Return what the paper's tables and figures need, by name and in the paper's order."""
    shipped = {name: facts for name, facts in _shipped().items() if "order" in facts}
    return {name: _paper_experiment(name, shipped[name]) for name in sorted(shipped, key=lambda n: shipped[n]["order"])}


def read_paper_experiment(name: str) -> PaperExperiment:
    """Return what a table or figure of the paper needs.

    Raises:
        ArgumentError: there is none of this name.
    """
    found = paper_experiments()
    if name not in found:
        raise unknown_name("experiment", name, found)
    return found[name]


def _paper_experiment(name: str, facts: Mapping[str, Any]) -> PaperExperiment:
    runs = (PaperRun(**{**run, "datasets": _datasets([run["datasets"]])}) for run in facts.get("runs", ()))
    rest = {key: tuple(facts.get(key, ())) for key in ("costs", "figures")}
    return PaperExperiment(name, facts["title"], tuple(runs), counted=_datasets(facts.get("counted", ())), **rest)


def _datasets(words: Sequence[Any]) -> tuple[str, ...]:
    """Return names of data sets; `natural-shift` and `fine-grained` stand for the paper's."""
    regimes = {"natural-shift": "natural", "fine-grained": "fine-grained"}
    found: list[str] = []
    for word in words:
        found += word if isinstance(word, list) else [n for n, e in CATALOGUE.items() if e.regime == regimes[word]]
    return tuple(found)


def read_experiment(name: str) -> Experiment:
    """Read a file of variants, or one that comes with the package.

    Args:
        name: a path that ends in `.json`, or a name of `experiment_names`.

    Raises:
        ArgumentError: there is none, or it says something that is not possible.
    """
    if name.endswith(".json"):
        facts = _read(Path(name))
    elif name in experiment_names():
        facts = _shipped()[name]
    else:
        raise unknown_name("experiment", name, experiment_names())
    if not isinstance(facts, dict):
        raise ArgumentError(f"{name}: is no experiment; it holds an object with variants")
    if unknown := [key for key in facts if key not in KEYS]:
        raise unknown_name(f"entry of {name}", unknown[0], KEYS)
    experiment = Experiment(Path(name).name.removesuffix(".json"), {**KEYS, **facts})
    _check(name, experiment)
    return experiment


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path}: cannot be read: {error}") from None
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: is no JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's entries; Python would take the last of two with one name, without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice in one object")
    return found


def _check(path: str, experiment: Experiment) -> None:
    facts = experiment.facts
    for key, default in KEYS.items():
        kind = list if isinstance(default, tuple) else type(default)
        if default is not None and not _is(facts[key], (kind, type(default))):
            raise ArgumentError(f"{path}: {key} is {facts[key]!r}; it takes a JSON {_KINDS[type(default)]}")
    for key, kind in (("limit", int), ("pretrained", str)):
        if facts[key] is not None and not _is(facts[key], (kind,)):
            raise ArgumentError(f"{path}: {key} is {facts[key]!r}; it takes a JSON {_KINDS[kind]}, or null")
    if not facts["datasets"] or not all(isinstance(name, str) for name in facts["datasets"]):
        raise ArgumentError(f"{path}: datasets is {facts['datasets']!r}; give at least one name")
    if not facts["variants"]:
        raise ArgumentError(f'{path}: has no variants; give at least one, for example {{"base": {{}}}}')
    for name, changes in facts["variants"].items():
        _check_variant(path, name, changes)
    if experiment.reference not in facts["variants"]:
        raise unknown_name(f"reference of {path}", experiment.reference, facts["variants"])


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    """Return whether a value is of a type; true and false are no numbers."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def _check_variant(path: str, name: str, changes: Any) -> None:
    if not isinstance(changes, dict):
        raise ArgumentError(f"{path}: variant {name!r} is {changes!r}; it takes an object of settings")
    if not re.fullmatch(r"[\w-]+", name):  # a dot would end the label in `--set LABEL.NAME=VALUE`
        raise ArgumentError(f"{path}: variant {name!r} has a name that is no word; use letters, digits, - and _")
    for key, kind in (("views", dict), ("prompts", str), ("method", str)):
        if not isinstance(changes.get(key, kind()), kind):
            raise ArgumentError(
                f"{path}: {key} of variant {name!r} is {changes[key]!r}; it takes a JSON {_KINDS[kind]}"
            )


def cells(experiment: Experiment) -> list[Cell]:
    """Return the runs of an experiment, variants with the most masks first: the others find theirs encoded."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, tuple[str, ...]]] = {}
    variants = experiment.facts["variants"]
    for name in sorted(variants, key=lambda name: -_masks(experiment, name)):
        changes = variants[name]
        views = tuple(f"{key}={_word(value)}" for key, value in changes.get("views", {}).items())
        words = tuple(f"{key}={_word(value)}" for key, value in _settings(experiment, name).items())
        key = (changes.get("prompts", experiment.facts["prompts"]), views)
        found.setdefault(key, {})[experiment.labels[name]] = words
    return [Cell(*key, labelled) for key, labelled in found.items()]


def _masks(experiment: Experiment, name: str) -> float:
    masks = _settings(experiment, name).get("masks", 0)
    return masks if isinstance(masks, int | float) else 0  # what is no number is refused where it is read


def _settings(experiment: Experiment, name: str) -> dict[str, Any]:
    """Return the method's settings of a variant; another method takes none of the experiment's own."""
    changes, method = experiment.facts["variants"][name], experiment.facts["method"]
    common = experiment.facts["settings"] if changes.get("method", method) == method else {}
    return {**common, **{key: value for key, value in changes.items() if key not in _OWN}}


def _word(value: Any) -> str:
    """Return a JSON value as it is written on a command line."""
    if isinstance(value, list):
        return ",".join(map(_word, value))
    return value if isinstance(value, str) else json.dumps(value).replace("null", "none")


def missing(cell: Cell, earlier: Sequence[Cell]) -> Cell | None:
    """Return what of a cell is in no earlier pass, or None."""
    known = {label for pass_ in earlier for label in shared(cell, pass_)}
    rest = {label: words for label, words in cell.variants.items() if label not in known}
    return Cell(cell.prompts, cell.views, rest) if rest else None


def shared(cell: Cell, earlier: Cell) -> set[str]:
    """Return the labels that an earlier pass has with the same settings, in whatever order."""
    found = earlier.variants
    return {label for label, words in cell.variants.items() if label in found and set(found[label]) == set(words)}
