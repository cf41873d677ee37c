"""What answers images: a backbone with methods, and, for some classes, their label space."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from faircontext.backbones import Backbone
from faircontext.backbones.contexts import LearntContext
from faircontext.datasets.spec import Regime
from faircontext.errors import LabelError, LongPromptError
from faircontext.labels import LabelSpace
from faircontext.methods import Method, create_method
from faircontext.methods.base import is_tuned
from faircontext.runs.answer import Predictor
from faircontext.runs.decisions import Decision
from faircontext.runs.options import RunnerOptions
from faircontext.runs.prompt_options import PromptChoice
from faircontext.runs.records import method_of
from faircontext.views import ViewRecipe

__all__ = ["Model", "decision_of"]


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


def decision_of(options: RunnerOptions, predictor: Predictor) -> Decision:
    """Return the decision that options ask for, on what answers."""
    labels, backbone = predictor.labels, predictor.labels.backbone
    if options.multi_label:
        return options.label_rule(labels)
    facts = {"backbone": backbone.name, "prompts": options.prompts_name, "logit_scale": backbone.logit_scale}
    facts |= {"weights": backbone.weights_hash} if options.unknown else {}
    return options.abstention(predictor.methods, facts)
