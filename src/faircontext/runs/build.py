"""What options come to: a loaded model, and a predictor for some classes.

Options are data; here alone models are loaded, methods created, label spaces made, and predictors put together of them.
"""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, Union, get_args, get_origin

import torch

from faircontext import backbones
from faircontext.backbones import Backbone
from faircontext.backbones.contexts import LearntContext, read_context
from faircontext.datasets.spec import Regime
from faircontext.errors import ArgumentError, LabelError, LongPromptError, check_minimum
from faircontext.labels import LabelSpace
from faircontext.methods import Method, create_method, list_methods
from faircontext.methods.base import METHODS, check_known, describe_type, is_tuned, name_variant, types_of
from faircontext.methods.stream import is_stream
from faircontext.runs.answer import Predictor
from faircontext.runs.option_parts import BackboneOptions, MethodOptions, ProcessOptions, PromptChoice
from faircontext.runs.options import RunOptions
from faircontext.runs.records import method_of, row_name, variant_of
from faircontext.system import keep_freed_memory
from faircontext.views import ViewRecipe


def load_backbone(options: BackboneOptions) -> Backbone:
    """Load the backbone; see `faircontext.create_backbone`."""
    chosen = {field.name: getattr(options, field.name) for field in fields(BackboneOptions)}
    name, engine, adapter = (chosen.pop(key) for key in ("backbone", "engine_image", "adapter"))
    return backbones.create_backbone(name, engine=engine, adapter=adapter and str(adapter), **chosen)


@dataclass(frozen=True)
class Model:
    """What all predictors of some options share.

    Attributes:
        backbone: the model.
        context: a learnt one, or None.
    """

    backbone: Backbone
    context: LearntContext | None = None

    def space(
        self, names: Sequence[str], prompts: PromptChoice, truncate: bool = False, stored: bool = True
    ) -> LabelSpace:
        """Return the label space of some classes; see `LabelSpace` for `stored`.

        Raises:
            LabelError: a class name or a template cannot be used.
        """
        settings: dict[str, Any] = {"truncate": truncate, "context": self.context, "stored": stored}
        try:
            return LabelSpace(names, self.backbone, prompts.templates, descriptions=prompts.descriptions, **settings)
        except LongPromptError as error:
            if prompts.source is None or not any(error.prompt in texts for texts in prompts.descriptions or ()):
                raise
            raise LabelError(f"{prompts.source}: {error}") from None


def load(options: RunOptions) -> Model:
    """Load the model; methods and views are checked before, since it takes seconds.

    Raises:
        FairContextError: an option has a value that cannot be used.
    """
    if options.analyses:
        import faircontext.analysis  # noqa: F401
    check_methods(options)
    _view_settings(options)
    check_minimum("seed", options.seed, 0)
    context = None if options.context is None else read_context(options.context)
    backbone = load_backbone(options)
    keep_freed_memory()  # not before: what loading has freed is given back
    return Model(backbone, context)


def build(
    options: RunOptions,
    model: Model,
    names: Sequence[str],
    regime: Regime,
    dataset: str = "",
    template: str | None = None,
    labels: LabelSpace | None = None,
) -> Predictor:
    """Return what answers images of some classes; this is the one place that puts a predictor together.

    Args:
        options: of prompts, methods, views and decision.
        model: loaded with the same options.
        names: class names.
        regime: the kind of images.
        dataset: whose settings the methods have where their authors chose some for it; empty for none in particular.
        template: the data set's own.
        labels: the label space, where it has been made; else it is made of the names and the options of prompts.

    Raises:
        FairContextError: a class name, a template, or a method on this backbone or these classes cannot be used.
    """
    methods = create_methods(options, model.backbone, dataset)
    if labels is None:
        prompts = options.choose_prompts(names, dataset or None, template)
        labels = model.space(names, prompts, options.truncate)
    left_out = dict(_left_out(methods, labels, options.labels_of_methods == ["all"]))
    able = {label: method for label, method in methods.items() if label not in left_out}
    tuned = tuple(label for label in methods if is_tuned(method_of(label), options.preset, dataset))
    return Predictor(
        labels,
        able,
        replace(recipe_of(options, model.backbone), regime=regime),
        options.decision_for(labels, [*able], options.prompts_name),
        options.stored,
        options.top_stored,
        (*left_out.values(), *_untuned(options, methods, tuned)),
        tuned,
    )


def _left_out(methods: Mapping[str, Method], labels: LabelSpace, everything: bool) -> Iterator[tuple[str, str]]:
    """Yield which methods cannot run on a label space, and why; raise `LabelError` where they were named one by one."""
    for label, method in methods.items():
        try:
            method.check_labels(labels)
        except LabelError as error:
            if not everything:
                raise
            yield label, f"{label} is left out of all: {error}"


def _untuned(options: MethodOptions, methods: Mapping[str, Method], tuned: Sequence[str]) -> Iterator[str]:
    """Yield which methods have official settings for each of some data sets, and none for this one."""
    if options.preset != "official":
        return
    overrides = {row_name(label): settings for label, settings in _settings_of(options).items()}
    for label, method in methods.items():
        names = dict.fromkeys(chain.from_iterable(method.official_by_dataset.values()))
        taken = [f"{name}={getattr(method, name)}" for name in names if name not in overrides[label]]
        if taken and label not in tuned:
            yield f"{label} has no official settings for this data set; taken instead: {', '.join(taken)}"


def create_methods(options: MethodOptions, backbone: Backbone, dataset: str = "") -> dict[str, Method]:
    """Create the methods on a backbone, by what they are called in rows.

    Raises:
        ArgumentError: a setting has a value that cannot be used, or a method cannot run on the backbone.
    """
    everything = options.labels_of_methods == ["all"]
    return {
        row_name(label): create_method(
            method_of(label), preset=options.preset, backbone=backbone, dataset=dataset, **settings
        )
        for label, settings in _settings_of(options).items()
        if not everything or METHODS[method_of(label)].needs <= backbone.capabilities
    }


def create_plainly(label: str, words: Sequence[str]) -> Method:
    """Create a method with some settings over the paper's, `name=value` each, which checks them without a backbone."""
    settings: dict[str, Any] = parse_settings(method_of(label), words)
    return create_method(method_of(label), **settings)


def check_methods(options: MethodOptions) -> None:
    """Check methods and their settings without a backbone; raise `ArgumentError` where one cannot be used."""
    for label, words in _words_of(options).items():
        create_plainly(label, words)


def _labels(options: MethodOptions) -> list[str]:
    """Return what the methods are called; `all` stands for those without a memory."""
    labels = options.labels_of_methods
    if labels == ["all"]:
        return [name for name in list_methods() if not is_stream(name)]
    if cut := next((label for label in labels if label.endswith("-") and not variant_of(label)), None):
        raise ArgumentError(f"invalid method {cut!r}: must be {cut[:-1]}, or {cut}SUFFIX for a variant of it")
    if alike := next((label for label in labels if row_name(label) != label and row_name(label) in labels), None):
        raise ArgumentError(
            f"{alike} and {row_name(alike)} have the same name in rows; make one a variant: {alike}-SUFFIX"
        )
    return labels


def _settings_of(options: MethodOptions) -> dict[str, dict[str, Any]]:
    """Return the settings over the preset's, by what the methods are called."""
    return {label: parse_settings(method_of(label), words) for label, words in _words_of(options).items()}


def _words_of(options: MethodOptions) -> dict[str, list[str]]:
    """Return the same as they are written."""
    words: dict[str, list[str]] = {label: [] for label in _labels(options)}
    alone = [label for label in words if method_of(label) != "zero_shot"] or [*words]  # zero-shot has no settings
    for word in options.set:
        label, dot, _ = word.partition("=")[0].partition(".")
        if dot and label in words:
            words[label].append(word[len(label) + 1 :])
        elif len(alone) == 1:
            words[alone[0]].append(word)
        else:
            raise ArgumentError(
                f"{word!r} is of no method of this run; write METHOD.NAME=VALUE, with one of {', '.join(words)}"
            )
    return words


def recipe_of(options: MethodOptions, backbone: Backbone) -> ViewRecipe:
    """Return how views are made."""
    return replace(backbone.view_recipe(options.preset), **_view_settings(options), augmix=options.augmix)


def _view_settings(options: MethodOptions) -> dict[str, Any]:
    settings = parse_fields(ViewRecipe, "--views", options.views, "count=32")
    if name := next((name for name in ("augmix", "regime") if name in settings), None):
        raise ArgumentError(f"{name} is not set with --views: --augmix is an option, the data set has the regime")
    ViewRecipe(**settings)  # type: ignore[arg-type]  # checks the values, before a model is loaded
    return settings


def set_threads(options: ProcessOptions) -> None:
    """Give the model of this process its threads.

    Where several models answer, each has one: two threads of a model wait for each other, two models do not
    (`benchmarks/processes.py`).
    """
    threads = 1 if options.threads is None and options.several_models else options.threads
    if threads is not None:
        torch.set_num_threads(threads)


def parse_settings(name: str, settings: Iterable[str]) -> dict[str, object]:
    """Read `name=value` words, as given on a command line, by the types of the method's fields.

    Raises:
        ArgumentError: a word is not `name=value`, or the value does not have the field's type.
    """
    return parse_fields(METHODS[name], name, settings, "masks=50")


def parse_fields(kind: type[Any], name: str, assignments: Iterable[str], example: str) -> dict[str, object]:
    """Read `name=value` words by the types of a dataclass's fields.

    Args:
        kind: the dataclass.
        name: what it is called in messages.
        assignments: what was given.
        example: of a word, for messages.

    Raises:
        ArgumentError: a word is not `name=value`, there is no such field, it is given twice, or the value does not have
            its type.
    """
    parsed: dict[str, object] = {}
    for word in assignments:
        key, equals, text = word.partition("=")
        if not equals:
            raise ArgumentError(f"{word!r} is not a setting; write name=value, for example {example}")
        check_known(kind, name, [key])
        if key in parsed:
            raise ArgumentError(f"{word!r}: {name} has a value of {key} already; give it once")
        parsed[key] = _parse(kind, key, text)
    return parsed


def _parse(kind: type[Any], key: str, text: str) -> object:
    """Convert a word to the first type of a field that takes it: None, bool, numbers, tuples of them, choices.

    Raises:
        ArgumentError: none does.
    """
    hint = types_of(kind)[key]
    try:
        return _read(text, hint)
    except ValueError:
        elsewhere = name_variant(kind, key, partial(_reads, text))
        raise ArgumentError(f"{key}={text} is not possible; it takes {describe_type(hint)}{elsewhere}") from None


def _read(text: str, hint: Any) -> object:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in sorted(kinds, key=lambda kind: kind is not types.NoneType):  # every text is a word, "none" as well
        try:
            return _convert(text, kind)
        except (KeyError, ValueError):
            continue
    raise ValueError(text)


def _reads(text: str, hint: Any) -> bool:
    try:
        _read(text, hint)
    except ValueError:
        return False
    return True


def _convert(text: str, kind: Any) -> object:
    if kind is types.NoneType:
        return {"none": None, "None": None}[text]
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if get_origin(kind) is tuple:
        return tuple(_convert(part, get_args(kind)[0]) for part in text.split(",") if part or "," not in text)
    if get_origin(kind) is Literal:
        return {choice: choice for choice in get_args(kind)}[text]
    converted: object = kind(text)
    return converted
