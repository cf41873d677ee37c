"""Ablations as experiment files: which variants of a method on which data sets, and what they gain, paired by image.

An experiment is a JSON file in and a JSON file out (`NAME.results.json`). Variants that share views and prompts are
answered in one run, so that they share an image's features; what is there already is not run again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from faircontext.errors import ArgumentError, unknown_name

__all__ = ["KEYS", "Cell", "Experiment", "cells", "experiment_names", "missing", "read_experiment", "shared"]

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
"""What an experiment file may say, and what holds where it does not; `reference` is the first variant."""

_OWN = ("views", "prompts", "method")
"""What a variant may change besides the method's settings."""


@dataclass(frozen=True)
class Cell:
    """Variants that one run answers together.

    Attributes:
        prompts: name of the prompt set.
        views: words for `evaluate --views`.
        variants: for each label of a row its settings, as words for `evaluate --set`.
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
    """An experiment file that has been read; see `KEYS`."""

    name: str
    facts: Mapping[str, Any]

    @cached_property
    def labels(self) -> dict[str, str]:
        """What each variant is called in rows."""
        variants = self.facts["variants"]
        return {name: f"{found.get('method', self.facts['method'])}-{name}" for name, found in variants.items()}

    @property
    def reference(self) -> str:
        """The variant that the others are compared with."""
        return str(self.facts["reference"] or next(iter(self.facts["variants"])))


def experiment_names() -> list[str]:
    """Return the names of the experiments that come with the package."""
    folder = files("faircontext.bench") / "experiments"
    return sorted(place.name.removesuffix(".json") for place in folder.iterdir() if place.name.endswith(".json"))


def read_experiment(name: str) -> Experiment:
    """Read an experiment file, or one that comes with the package.

    Args:
        name: a path that ends in `.json`, or a name of `experiment_names`.

    Raises:
        ArgumentError: there is none, or it says something that is not possible.
    """
    if name.endswith(".json"):
        place, text = name, _read(Path(name))
    elif name in experiment_names():
        place = name
        text = (files("faircontext.bench") / "experiments" / f"{name}.json").read_text(encoding="utf-8")
    else:
        raise unknown_name("experiment", name, experiment_names())
    try:
        facts = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{place}: is no JSON: {error}") from None
    if not isinstance(facts, dict):
        raise ArgumentError(f"{place}: is no experiment; it holds an object with variants")
    if unknown := [key for key in facts if key not in KEYS]:
        raise unknown_name(f"entry of {place}", unknown[0], KEYS)
    found = Experiment(Path(name).name.removesuffix(".json"), {**KEYS, **facts})
    _check(place, found)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: cannot be read: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's entries; Python would take the last of two with one name, without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice in one object")
    return found


def _check(place: str, experiment: Experiment) -> None:
    facts = experiment.facts
    for key, default in KEYS.items():
        kind = list if isinstance(default, tuple) else type(default)
        if default is not None and not _is(facts[key], (kind, type(default))):
            raise ArgumentError(f"{place}: {key} is {facts[key]!r}; it takes a JSON {_JSON[type(default)]}")
    for key, kind in (("limit", int), ("pretrained", str)):
        if facts[key] is not None and not _is(facts[key], (kind,)):
            raise ArgumentError(f"{place}: {key} is {facts[key]!r}; it takes a JSON {_JSON[kind]}, or null")
    if not facts["datasets"] or not all(isinstance(name, str) for name in facts["datasets"]):
        raise ArgumentError(f"{place}: datasets is {facts['datasets']!r}; give at least one name")
    if not facts["variants"]:
        raise ArgumentError(f'{place}: has no variants; give at least one, for example {{"base": {{}}}}')
    for name, found in facts["variants"].items():
        _check_variant(place, name, found)
    if experiment.reference not in facts["variants"]:
        raise unknown_name(f"reference of {place}", experiment.reference, facts["variants"])


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    """Return whether a value is of a type; true and false are no numbers."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def _check_variant(place: str, name: str, found: Any) -> None:
    if not isinstance(found, dict):
        raise ArgumentError(f"{place}: variant {name!r} is {found!r}; it takes an object of settings")
    if not re.fullmatch(r"[\w-]+", name):  # a dot would end the label in `--set LABEL.NAME=VALUE`
        raise ArgumentError(f"{place}: variant {name!r} has a name that is no word; use letters, digits, - and _")
    for key, kind in (("views", dict), ("prompts", str), ("method", str)):
        if not isinstance(found.get(key, kind()), kind):
            raise ArgumentError(f"{place}: {key} of variant {name!r} is {found[key]!r}; it takes a JSON {_JSON[kind]}")


_JSON = {str: "string", int: "number", tuple: "list", dict: "object"}


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
    number = _settings(experiment, name).get("masks", 0)
    return number if isinstance(number, int | float) else 0  # what is no number is refused where it is read


def _settings(experiment: Experiment, name: str) -> dict[str, Any]:
    """Return the method's settings of a variant; another method takes none of the experiment's own."""
    changes, method = experiment.facts["variants"][name], experiment.facts["method"]
    shared = experiment.facts["settings"] if changes.get("method", method) == method else {}
    return {**shared, **{key: value for key, value in changes.items() if key not in _OWN}}


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
