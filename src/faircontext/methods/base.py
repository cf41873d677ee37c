"""The interface of a method, and how methods are created from names, presets and settings."""

import csv
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import partial
from importlib.resources import files
from inspect import isabstract
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from faircontext.backbones import Backbone
from faircontext.episode import Episode
from faircontext.errors import (
    ArgumentError,
    Registry,
    and_more,
    check_choice,
    check_interval,
    check_minimum,
    check_type,
    unknown_name,
)
from faircontext.labels import LabelSpace
from faircontext.types import Prediction

PRESETS = ("paper", "recommended", "official")

Limits = Mapping[str, float | tuple[float, float]]
"""By setting: the least value, or `(low, high)` if it lies above `low` and at most at `high`.

None, and a word where a setting takes numbers and words, are always taken."""


@dataclass(frozen=True)
class Method(ABC):
    """A frozen dataclass of hyper-parameters that maps an episode to a prediction.

    The defaults are the paper's. There is no state: what is learnt is a fresh tensor for each image.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    uses_views: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()
    """What a backbone must be able to do, see `Backbone.capabilities`."""
    fine_grained_augmix: ClassVar[bool] = False
    """Whether the method's repository uses AugMix on fine-grained data sets."""
    analysis: ClassVar[bool] = False
    """Whether it measures something about zero-shot's answer, in `diagnostics`, instead of giving one of its own."""
    hidden: ClassVar[bool] = False
    """Whether it is in no list and in no `all`: it is the method that it extends, with settings of studies besides."""
    recommended_as: ClassVar[str | None] = None
    """The method whose recommended settings it takes; None for its own, or else those of the class that it extends."""
    official: ClassVar[Mapping[str, object]] = {}
    """Overrides that reproduce the method's own repository."""
    official_by_dataset: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    """Further ones, by name of the data set: where a method's authors chose settings for each set."""
    setting_limits: ClassVar[Limits] = {}
    """Of its numbers, beside those of the classes that it extends."""
    later: ClassVar[frozenset[str]] = frozenset()
    """Settings that came after runs were stored: recorded where they are not the default, so that those runs go on."""

    def __post_init__(self) -> None:
        for name, hint in types_of(type(self)).items():
            if not _fits(value := getattr(self, name), hint):
                elsewhere = name_variant(type(self), name, partial(_fits, value))
                raise ArgumentError(f"{name}={value!r} is not possible; it takes {describe_type(hint)}{elsewhere}")
        for kind in reversed(type(self).__mro__):
            for name, limit in vars(kind).get("setting_limits", {}).items():
                value = getattr(self, name)
                if isinstance(limit, tuple) and not isinstance(value, str | None):
                    check_interval(name, value, *limit)
                elif value is not None and not isinstance(limit, tuple):
                    check_minimum(name, value, limit)

    @abstractmethod
    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image."""

    @classmethod
    def check(cls, backbone: Backbone) -> None:
        """Raise `ArgumentError` where the method needs more than a backbone can do."""
        missing = sorted(cls.needs - backbone.capabilities)
        if missing:
            raise ArgumentError(
                f"{cls.name} needs a backbone with {' and '.join(missing)}; {backbone.name}, in {backbone.precision}, "
                "has none"
            )

    def check_backbone(self, backbone: Backbone) -> None:
        """Raise `ArgumentError` where the method, with its settings, needs more than a backbone can do."""
        self.check(backbone)

    def check_labels(self, labels: LabelSpace) -> None:  # noqa: B027 (most methods take any)
        """Raise `LabelError` where the method cannot run on a label space, before any image is read."""

    def label_warnings(self, labels: LabelSpace) -> list[str]:  # noqa: ARG002
        """Return what a person should know about the method on a label space before a run, a line each."""
        return []

    @property
    def sees_views(self) -> bool:
        """Whether it looks at more than the plain view, with its settings."""
        return self.uses_views

    def view_set(self, episode: Episode) -> Episode:
        """Return the episode with the views that this method sees, see `ViewRecipe.augmix`."""
        recipe = episode.recipe
        second = self.fine_grained_augmix and recipe.augmix == "auto" and recipe.regime == "fine-grained"
        return episode.augmented if second else episode

    def settings(self) -> dict[str, Any]:
        """Return every hyper-parameter by name, with those that are `fixed`: a run says all of what was done.

        Those that came `later` are left out where they have their default.
        """
        return {**self._recorded(), **self.fixed()}

    def _recorded(self) -> dict[str, Any]:
        later = {name for kind in type(self).__mro__ for name in vars(kind).get("later", ())}
        default = {field.name: field.default for field in fields(self) if field.name in later}
        return {name: value for name, value in asdict(self).items() if name not in later or value != default[name]}

    @classmethod
    def fixed(cls) -> dict[str, object]:
        """Return what a hidden variant has besides the settings of this method, with the values that it stands for.

        Runs record it, and `create_method` takes it, so that runs go on where a setting has become one of the variant.
        """
        of_variants = (variant()._recorded().items() for variant in _variants(cls))
        return {name: value for items in of_variants for name, value in items if name not in types_of(cls)}


def _unpack(_: str, method: type[Method]) -> dict[str, type[Method]]:
    """Check what a third party's entry point names; `register_method` has filed it when it was imported."""
    if method not in map(METHODS.__getitem__, METHODS):
        raise TypeError("it is no class that @register_method(name, summary) decorates")
    return {}


METHODS: Registry[type[Method]] = Registry("method", "faircontext.methods", _unpack, "(?!all$)[a-z][a-z0-9_]*")
M = TypeVar("M", bound=type[Method])


def register_method(name: str, summary: str) -> Callable[[M], M]:
    """Return a decorator that gives a method its name and a line about it, and files it.

    An entry point of the group `faircontext.methods` that names the class makes a third party's method known.

    Raises:
        TypeError: it is no dataclass that derives from `Method`, it has no `__call__`, or a field has no default.
        ValueError: the name is taken, or could not be used on a command line.
    """

    def file(method: M) -> M:
        if not (isinstance(method, type) and issubclass(method, Method)) or isabstract(method):
            raise TypeError(f"method {name!r}: {method!r} must derive from Method and define __call__")
        if missing := [f.name for f in fields(method) if f.default is MISSING and f.default_factory is MISSING]:
            raise TypeError(f"method {name!r}: every field needs a default; {and_more(missing)} has none")
        method.name, method.summary = name, summary
        METHODS.register(name)(method)
        return method

    return file


def create_method(
    name: str, *, preset: str = "paper", backbone: Backbone | None = None, dataset: str | None = None, **settings: Any
) -> Method:
    """Create a method by name.

    Args:
        name: see `list_methods`.
        preset: `"paper"` (the defaults), `"recommended"` (what was found best for a backbone; the same as `"paper"`
            where nothing was) or `"official"` (the settings of a baseline's own repository).
        backbone: needed for `"recommended"`; a method that cannot run on it is refused.
        dataset: name of a data set for which `"official"` may have settings of its own; see `is_tuned`.
        settings: hyper-parameters, over the preset's.

    Raises:
        ArgumentError: there is no such method, preset or setting, or a value is not possible; the message names it.
    """
    check_type("name", name, str)
    method = METHODS[name]
    check_choice("preset", preset, PRESETS)
    overrides: dict[str, object] = {}
    if backbone is not None:
        check_type("backbone", backbone, Backbone, "create one with create_backbone")
    if preset == "recommended":
        if backbone is None:
            raise ArgumentError('preset="recommended" depends on the backbone; pass backbone=')
        overrides.update(_recommended(method, backbone))
    elif preset == "official":
        overrides.update(method.official)
        overrides.update(method.official_by_dataset.get(dataset or "", {}))
    fixed = method.fixed()
    settings = {key: value for key, value in settings.items() if key not in fixed or value != fixed[key]}
    check_known(method, name, settings)
    with METHODS.blamed(name):
        created = replace(method(), **{**overrides, **settings})
        if backbone is not None:
            created.check_backbone(backbone)
    return created


def _recommended(method: type[Method], backbone: Backbone) -> dict[str, object]:
    """Return a backbone's settings for a method: of its name, or of the nearest class it extends that has some."""
    names = [str(vars(kind).get("name")) for kind in method.__mro__]
    if method.recommended_as is not None:
        names = [method.recommended_as]
    found = next((backbone.recommended[name] for name in names if name in backbone.recommended), {})
    return {key: value for key, value in found.items() if key in types_of(method)}


def is_tuned(name: str, preset: str, dataset: str) -> bool:
    """Return whether a preset has settings that a method's authors chose for this very data set."""
    return preset == "official" and dataset in METHODS[name].official_by_dataset


def official_settings(method: str) -> Mapping[str, Mapping[str, object]]:
    """Return what a method's authors chose for each data set in their repository, by data set: rows of `official.csv`.

    A setting that has no value there keeps its default.
    """
    with files("faircontext.methods").joinpath("official.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.pop("method") == method]
    return {row.pop("dataset"): {name: _value(text) for name, text in row.items() if text} for row in rows}


def _value(text: str) -> object:
    """Return a whole number, a number or a word."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def list_methods(pattern: str = "*") -> list[str]:
    """Return the names of the methods that match a shell pattern."""
    return [name for name in METHODS.names(pattern) if not (METHODS[name].analysis or METHODS[name].hidden)]


def types_of(kind: type[Any]) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def check_known(kind: type[Any], name: str, settings: Iterable[str]) -> None:
    """Raise `ArgumentError` for the first setting that is no field of a dataclass, which messages call by `name`."""
    known = types_of(kind)
    for setting in settings:
        if setting not in known and (variant := name_variant(kind, setting)):
            raise ArgumentError(f"{setting!r} is not a setting of {name}{variant}")
        if not known:
            raise ArgumentError(f"unknown setting of {name} {setting!r}; it has none")
        if setting not in known:
            raise unknown_name(f"setting of {name}", setting, known)


def _variants(kind: type[Any]) -> list[type[Method]]:
    """Return the hidden variants of a method and of those that it extends, other than itself."""
    methods = (base for base in kind.__mro__ if "name" in vars(base) and issubclass(base, Method))
    extended = (variant for base in methods for variant in base.__subclasses__() if variant.hidden)
    return [variant for variant in extended if not issubclass(kind, variant)]


def name_variant(kind: type[Any], setting: str, takes: Callable[[Any], bool] = lambda _: True) -> str:
    """Return, for a message, which hidden variant of a method has a setting that takes a value, if any does."""
    hints = {variant.name: types_of(variant) for variant in _variants(kind)}
    name = next((name for name, known in hints.items() if setting in known and takes(known[setting])), None)
    return f"; the method {name} takes it" if name else ""


def _fits(value: object, hint: Any) -> bool:
    """Tell whether a value has a hyper-parameter's type; whole numbers are numbers, and truth values are not."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, kind) for kind in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def describe_type(hint: Any) -> str:
    """Return, for a message, which values a setting of a type takes."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe_type(kind) for kind in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return {int: "whole numbers", float: "numbers"}[get_args(hint)[0]] + " with commas between"
    return {int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "none"}.get(hint, "a word")
