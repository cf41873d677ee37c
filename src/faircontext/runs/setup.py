"""What answers images: a backbone with methods, and, for some classes, their label space."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from faircontext.backbones import Backbone
from faircontext.backbones.contexts import LearntContext
from faircontext.datasets.spec import Regime
from faircontext.labels import LabelSpace
from faircontext.methods import Method
from faircontext.runs.answer import AnsweredImage
from faircontext.runs.multi_label import LabelRule
from faircontext.runs.options import RunnerOptions
from faircontext.runs.prompt_options import PromptChoice
from faircontext.runs.unknown import Rejection
from faircontext.views import ViewRecipe

__all__ = ["Model", "Setup"]


@dataclass(frozen=True)
class Setup:
    """What answers images; methods are known by what they are called in rows."""

    labels: LabelSpace
    methods: Mapping[str, Method]
    recipe: ViewRecipe
    rejection: Rejection | None = None
    label_rule: LabelRule | None = None

    def judged_by(self, options: RunnerOptions) -> "Setup":
        """Return this set-up with what withholds predictions, or gives several, where options ask for it."""
        if options.multi_label:
            return replace(self, label_rule=options.label_rule(self.labels))
        backbone = self.labels.backbone
        facts = {"backbone": backbone.name, "prompts": options.prompts_name, "logit_scale": backbone.logit_scale}
        facts |= {"weights": backbone.weights_hash} if options.unknown else {}
        return replace(self, rejection=options.rejection(self.methods, facts))

    def judge(self, answers: Iterator[AnsweredImage]) -> Iterator[AnsweredImage]:
        """Return answers without the predictions that are withheld, or with several labels each."""
        if self.label_rule is not None:
            return self.label_rule.over(answers)
        return answers if self.rejection is None else self.rejection.over(answers)


@dataclass(frozen=True)
class Model:
    """A backbone and the methods that are to run on it, from a learnt context where there is one."""

    backbone: Backbone
    methods: Mapping[str, Method]
    recipe: ViewRecipe
    context: LearntContext | None = None

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
        return LabelSpace(
            names,
            self.backbone,
            prompts.templates,
            descriptions=prompts.descriptions,
            truncate=truncate,
            context=self.context,
            stored=stored,
        )

    def answering(self, labels: LabelSpace, regime: Regime) -> Setup:
        """Return what answers images of a label space on this backbone; see `on`."""
        for method in self.methods.values():
            method.check_labels(labels)
        return Setup(labels, self.methods, replace(self.recipe, regime=regime))
