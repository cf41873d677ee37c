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
from faircontext.runs.answer import AnsweredImage
from faircontext.runs.multi_label import LabelRule
from faircontext.runs.options import RunnerOptions
from faircontext.runs.prompt_options import PromptChoice
from faircontext.runs.records import method_of
from faircontext.runs.unknown import Rejection
from faircontext.views import ViewRecipe

__all__ = ["Model", "Setup"]


@dataclass(frozen=True)
class Setup:
    """What answers images.

    Attributes:
        labels: the label space.
        methods: what answers, by what the methods are called in rows.
        recipe: how views are made.
        rejection: what withholds predictions, if anything does.
        label_rule: what gives several labels, if anything does.
        left_out: which methods of `all` cannot run on the label space, and why, a line each.
        untuned: which methods have official settings for some data sets and not for this one, a line each.
    """

    labels: LabelSpace
    methods: Mapping[str, Method]
    recipe: ViewRecipe
    rejection: Rejection | None = None
    label_rule: LabelRule | None = None
    left_out: tuple[str, ...] = ()
    untuned: tuple[str, ...] = ()

    def judged_by(self, options: RunnerOptions) -> "Setup":
        """Return this set-up with what withholds predictions, or gives several, where options ask for it."""
        if options.multi_label:
            return replace(self, label_rule=options.label_rule(self.labels))
        backbone = self.labels.backbone
        facts = {"backbone": backbone.name, "prompts": options.prompts_name, "logit_scale": backbone.logit_scale}
        facts |= {"weights": backbone.weights_hash} if options.unknown else {}
        return replace(self, rejection=options.rejection(self.methods, facts))

    def warnings(self) -> list[str]:
        """Return what a person should know about prompts and methods before a run, a line each."""
        methods = (method.label_warnings(self.labels) for method in self.methods.values())
        return list(
            dict.fromkeys([*self.labels.warnings(), *self.left_out, *self.untuned, *chain.from_iterable(methods)])
        )

    def judge(self, answers: Iterator[AnsweredImage]) -> Iterator[AnsweredImage]:
        """Return answers without the predictions that are withheld, or with several labels each."""
        if self.label_rule is not None:
            return self.label_rule.over(answers)
        return answers if self.rejection is None else self.rejection.over(answers)


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

    def on(self, names: Sequence[str], prompts: PromptChoice, regime: Regime, truncate: bool = False) -> Setup:
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

    def answering(self, labels: LabelSpace, regime: Regime) -> Setup:
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
        return Setup(
            labels, able, replace(self.recipe, regime=regime), left_out=tuple(left_out.values()), untuned=untuned
        )
