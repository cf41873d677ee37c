"""What options come to: a backbone with methods, and, for some classes, what answers their images.

Options are data; here alone models are loaded, methods created and label spaces made from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch

from faircontext import backbones
from faircontext.backbones import Backbone
from faircontext.backbones.contexts import LearntContext, read_context
from faircontext.datasets.spec import Regime
from faircontext.errors import ArgumentError, LabelError, LongPromptError, check_minimum
from faircontext.labels import LabelSpace
from faircontext.methods import Method, create_method, list_methods
from faircontext.methods.base import METHODS, is_tuned
from faircontext.methods.stream import is_stream
from faircontext.runs.answer import Predictor
from faircontext.runs.decisions import Decision
from faircontext.runs.option_parts import BackboneOptions, MethodOptions, ProcessOptions
from faircontext.runs.options import ModelOptions, RunnerOptions, RunOptions
from faircontext.runs.prompt_options import PromptChoice
from faircontext.runs.records import method_of, row_name, split_methods, variant_of
from faircontext.runs.settings import parse_fields, parse_settings
from faircontext.system import keep_freed_memory
from faircontext.views import ViewRecipe


def backbone_of(options: BackboneOptions) -> Backbone:
    """Load the backbone; see `faircontext.create_backbone`."""
    return backbones.create_backbone(
        options.backbone,
        options.pretrained,
        device=options.device,
        precision=options.precision,
        engine=options.engine_image,
        batch_size=options.batch_size,
        resize_positions=options.resize_positions,
        weights_key=options.weights_key,
        preprocess=options.preprocess,
        adapter=None if options.adapter is None else str(options.adapter),
    )


@dataclass(frozen=True)
class Model:
    """A backbone and the methods that are to run on it, from a learnt context where there is one.

    Attributes:
        backbone: the model.
        methods: by what they are called in rows.
        recipe: how views are made.
        context: a learnt one, or None.
        preset: that the methods' settings start from.
        given: settings over the preset's, by what the methods are called.
        everything: whether the methods are all that can run, so that one that cannot is left out.
        dataset: whose settings the methods have where their authors chose some for it; empty for none in particular.
    """

    backbone: Backbone
    methods: Mapping[str, Method]
    recipe: ViewRecipe
    context: LearntContext | None = None
    preset: str = "paper"
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    everything: bool = False
    dataset: str = ""

    def tuned(self, dataset: str) -> list[str]:
        """Return which methods have settings that their authors chose for a data set."""
        return [label for label in self.methods if is_tuned(method_of(label), self.preset, dataset)]

    def for_dataset(self, dataset: str) -> "Model":
        """Return the model with its methods' settings for a data set, see `Method.official_by_dataset`."""
        chosen = {
            label: create_method(
                method_of(label),
                preset=self.preset,
                backbone=self.backbone,
                dataset=dataset,
                **self.given.get(label, {}),
            )
            for label in self.tuned(dataset)
        }
        return replace(self, methods={**self.methods, **chosen}, dataset=dataset)

    def _untuned(self) -> Iterator[str]:
        """Yield which methods have official settings for each of some data sets, and none for this one."""
        for label, method in self.methods.items():
            if self.preset == "official" and method.official_by_dataset and label not in self.tuned(self.dataset):
                names = dict.fromkeys(chain.from_iterable(method.official_by_dataset.values()))
                taken = [f"{name}={getattr(method, name)}" for name in names if name not in self.given.get(label, {})]
                if taken:
                    yield f"{label} has no official settings for this data set; taken instead: {', '.join(taken)}"

    def on(self, names: Sequence[str], prompts: PromptChoice, regime: Regime, truncate: bool = False) -> Predictor:
        """Return what answers images of some classes.

        Raises:
            LabelError: a class name, a template or a method on them cannot be used.
        """
        return self.answering(self.space(names, prompts, truncate), regime)

    def space(
        self, names: Sequence[str], prompts: PromptChoice, truncate: bool = False, stored: bool = True
    ) -> LabelSpace:
        """Return the label space of some classes; see `on`, and `LabelSpace` for `stored`."""
        how: dict[str, Any] = {"truncate": truncate, "context": self.context, "stored": stored}
        try:
            return LabelSpace(names, self.backbone, prompts.templates, descriptions=prompts.descriptions, **how)
        except LongPromptError as error:
            if prompts.source is None or not any(error.prompt in own for own in prompts.descriptions or ()):
                raise
            raise LabelError(f"{prompts.source}: {error}") from None

    def answering(self, labels: LabelSpace, regime: Regime) -> Predictor:
        """Return what answers images of a label space on this backbone; see `on`."""
        left_out = dict[str, str]()
        for label, method in self.methods.items():
            try:
                method.check_labels(labels)
            except LabelError as error:
                if not self.everything:
                    raise
                left_out[label] = f"{label} is left out of all: {error}"
        able = {label: method for label, method in self.methods.items() if label not in left_out}
        untuned = tuple(self._untuned())
        return Predictor(
            labels, able, replace(self.recipe, regime=regime), left_out=tuple(left_out.values()), untuned=untuned
        )


def load(options: RunOptions, methods: Sequence[str]) -> Model:
    """Load the backbone and create the methods; what can be wrong otherwise is checked before.

    Args:
        options: of model, methods and images.
        methods: names; a method runs several times, with other settings, under names with a suffix such as
            `fcl-50`. `all` stands for those without a memory that the backbone can run.

    Raises:
        FairContextError: an option has a value that cannot be used.
    """
    if isinstance(options, RunnerOptions) and options.analyses:
        import faircontext.analysis  # noqa: F401
    _check_methods(options, methods)
    _view_settings(options)
    check_minimum("seed", options.seed, 0)
    context = None if options.context is None else read_context(options.context)
    backbone = backbone_of(options)
    keep_freed_memory()  # not before: what loading has freed is given back
    return methods_on(options, backbone, methods, context)


def methods_on(
    options: MethodOptions, backbone: Backbone, methods: Sequence[str], context: LearntContext | None = None
) -> Model:
    """Create the methods on a backbone that is loaded, from a context that is read; see `load`."""
    everything, checked = [*methods] == ["all"], _check_methods(options, methods)
    created = {
        row_name(label): create_method(method_of(label), preset=options.preset, backbone=backbone, **settings)
        for label, settings in checked.items()
        if not everything or METHODS[method_of(label)].needs <= backbone.capabilities
    }
    recipe = replace(backbone.view_recipe(options.preset), **_view_settings(options), augmix=options.augmix)
    given = {row_name(label): settings for label, settings in checked.items()}
    return Model(backbone, created, recipe, context, options.preset, given, everything)


def _check_methods(options: MethodOptions, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Check methods and their settings without a backbone; return the settings by what the methods are called."""
    if cut := next((label for label in methods if label.endswith("-") and not variant_of(label)), None):
        raise ArgumentError(f"invalid method {cut!r}: must be {cut[:-1]}, or {cut}SUFFIX for a variant of it")
    labels = [name for name in list_methods() if not is_stream(name)] if [*methods] == ["all"] else methods
    if alike := next((label for label in labels if row_name(label) != label and row_name(label) in labels), None):
        raise ArgumentError(
            f"{alike} and {row_name(alike)} have the same name in rows; make one a variant: {alike}-SUFFIX"
        )
    asked = {label: method_of(label) for label in labels}
    settings = _settings(options, asked)
    for label, name in asked.items():
        create_method(name, **settings[label])
    return settings


def _view_settings(options: MethodOptions) -> dict[str, Any]:
    settings = parse_fields(ViewRecipe, "--views", options.views, "count=32")
    if name := next((name for name in ("augmix", "regime") if name in settings), None):
        raise ArgumentError(f"{name} is not set with --views: --augmix is an option, the data set has the regime")
    ViewRecipe(**settings)  # type: ignore[arg-type]  # checks the values, before a model is loaded
    return settings


def _settings(options: MethodOptions, asked: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the settings that are given, by what the methods are called."""
    overrides: dict[str, list[str]] = {label: [] for label in asked}
    alone = [label for label, name in asked.items() if name != "zero_shot"] or [*asked]  # zero-shot has no settings
    for word in options.set:
        label, dot, _ = word.partition("=")[0].partition(".")
        if dot and label in overrides:
            overrides[label].append(word[len(label) + 1 :])
        elif len(alone) == 1:
            overrides[alone[0]].append(word)
        else:
            raise ArgumentError(
                f"{word!r} is of no method of this run; write METHOD.NAME=VALUE, with one of {', '.join(asked)}"
            )
    return {label: parse_settings(name, tuple(overrides[label])) for label, name in asked.items()}


def predictor_of(options: ModelOptions, names: Sequence[str], methods: str) -> Predictor:
    """Load the backbone and create the methods on some classes; the rest is checked before.

    Args:
        options: of model, prompts, methods and images.
        names: class names.
        methods: a name, several with commas between, or `all` for those that the backbone can run.

    Raises:
        FairContextError: an option has a value that cannot be used.
    """
    choice = options.choose_prompts(names)
    return load(options, split_methods(methods)).on(names, choice, options.regime, options.truncate)


def set_threads(options: ProcessOptions) -> None:
    """Give the model of this process its threads.

    Where several models answer, each has one: two threads of a model wait for each other, two models do not
    (`benchmarks/processes.py`).
    """
    threads = 1 if options.threads is None and options.several_models else options.threads
    if threads is not None:
        torch.set_num_threads(threads)


def decision_of(options: RunnerOptions, predictor: Predictor) -> Decision:
    """Return the decision that options ask for, on what answers."""
    labels, backbone = predictor.labels, predictor.labels.backbone
    if options.multi_label:
        return options.label_rule(labels)
    facts = {"backbone": backbone.name, "prompts": options.prompts_name, "logit_scale": backbone.logit_scale}
    facts |= {"weights": backbone.weights_hash} if options.unknown else {}
    return options.abstention(predictor.methods, facts)
