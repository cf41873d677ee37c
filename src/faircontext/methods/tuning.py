"""What the text-tuning baselines share: selection of confident views, and a context learnt from a loss of the text."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.calibrate import Descent, minimise
from faircontext.episode import Episode
from faircontext.errors import LabelError
from faircontext.explore import entropy, select_confident
from faircontext.labels import LabelSpace, merge_templates
from faircontext.methods.base import Limits, Method
from faircontext.methods.predict import fall_back, predict_by_scores
from faircontext.types import Diagnostic, Prediction

Loss = Callable[[Tensor, Tensor], Tensor]
"""From log-posteriors (selected, classes) and text features (classes, dim), both in float64, to a number."""


def view_log_posteriors(
    views: Float[Tensor, "views dim"], text: Float[Tensor, "classes dim"], scale: float
) -> Float[Tensor, "views classes"]:
    """Return log-softmax over all classes of `scale <f_i, t_c>`, for every view, in float64.

    Where views are nearly certain, the logarithm of the top class's posterior is near 0, and so is the loss. Rounding a
    posterior to float32 leaves an error of 6e-8 in it, which is much of a loss of 1e-5 and of its gradient, and which
    AdamW turns into steps of full length.
    """
    return (scale * views.double() @ text.double().T).log_softmax(-1)


def view_entropies(
    views: Float[Tensor, "views dim"], text: Float[Tensor, "classes dim"], scale: float
) -> Float[Tensor, " views"]:
    """Return the entropy over all classes of every view, rounded once to the views' type: equal views tie exactly."""
    return entropy(view_log_posteriors(views, text, scale)).to(views.dtype)


def select_views(episode: Episode, text: Float[Tensor, "classes dim"], rho: float) -> Int[Tensor, " selected"]:
    """Return the `max(1, floor(rho N))` views of lowest entropy over all classes, lowest first (`TPT`, Sec. 3.2)."""
    return select_confident(view_entropies(episode.view_features, text, episode.backbone.logit_scale), rho)


def marginal_entropy(log_posteriors: Float[Tensor, "views classes"]) -> Float[Tensor, ""]:
    """Return the entropy in nats of the mean of distributions that are given by their logarithms."""
    log_mean = log_posteriors.logsumexp(0) - math.log(len(log_posteriors))
    return entropy(log_mean.clamp_min(torch.finfo(log_mean.dtype).min))


def mean_entropy(log_posteriors: Float[Tensor, "views classes"]) -> Float[Tensor, ""]:
    """Return the mean of the entropies in nats of distributions that are given by their logarithms."""
    return entropy(log_posteriors).mean()


@dataclass(frozen=True)
class Tuned:
    """Tuned text features, or why there are none.

    Attributes:
        text: text features of all classes at the learnt context.
        losses: before each step.
        failure: None, or what was not finite; then `text` are those before.
    """

    text: Float[Tensor, "classes dim"]
    losses: tuple[float, ...]
    failure: str | None = None


def tune_context(
    labels: LabelSpace, loss: Callable[[Tensor], Tensor], *, lr: float, weight_decay: float, steps: int
) -> Tuned:
    """Minimise a loss of the text features over the prompts' context, which all classes share.

    With several templates, each has a context of its own and the features are the unit mean over templates, as in
    zero-shot. Gradients go through groups of classes one after another, so that memory does not grow with the classes.

    Args:
        labels: prompts, and their features at the initial context; one template at least has words to learn.
        loss: of text features (classes, dim).
        lr: learning rate of AdamW.
        weight_decay: of AdamW.
        steps: number of steps.
    """
    learns = [at for at in range(len(labels.prompts)) if labels.missing_context(at, "a method") is None]
    contexts = [labels.start(at, "cl")[0].clone().requires_grad_() for at in learns]
    fixed = [text for at, text in enumerate(labels.text) if at not in learns]
    known: Sequence[Tensor] | None = [labels.text[at] for at in learns]  # at the initial contexts

    def encode(known: Sequence[Tensor | None]) -> list[Tensor]:
        rows = zip(learns, contexts, known, strict=True)
        return [labels.backbone.encode_text(labels.prompts[at], context, known=text) for at, context, text in rows]

    def features() -> Sequence[Tensor]:
        if known is not None:
            return known
        with torch.no_grad():
            return encode([None] * len(learns))

    def value() -> Tensor:
        nonlocal known
        texts, known = features(), None
        return loss(merge_templates(torch.stack([*encode(texts), *fixed])))

    descent = minimise(contexts, value, lr=lr, weight_decay=weight_decay, steps=steps)
    if descent.failure is not None:
        return Tuned(labels.zero_shot_text, descent.losses, descent.failure)
    tuned = merge_templates(torch.stack([*features(), *fixed]))
    if not tuned.isfinite().all():
        return Tuned(labels.zero_shot_text, descent.losses, "the learnt context was not finite")
    return Tuned(tuned, descent.losses)


def describe_steps(losses: Sequence[float]) -> dict[str, Diagnostic]:
    """Return how many steps were taken, and the loss before each."""
    return {"steps": len(losses), **{f"loss_{step}": value for step, value in enumerate(losses)}}


@dataclass(frozen=True)
class Tuning(Method):
    """What methods that take steps of AdamW share.

    Attributes:
        lr: learning rate of AdamW.
        weight_decay: of AdamW.
        steps: number of steps.
    """

    setting_limits: ClassVar[Limits] = {"lr": 0, "weight_decay": 0, "steps": 0}

    lr: float = 0.005
    weight_decay: float = 0.01
    steps: int = 1

    def minimise(self, parameters: Sequence[Tensor], loss: Callable[[], Tensor], **kwargs: Any) -> Descent:
        """Take the method's steps; see `faircontext.calibrate.minimise`."""
        return minimise(parameters, loss, lr=self.lr, weight_decay=self.weight_decay, steps=self.steps, **kwargs)

    def answer_by_image(
        self, episode: Episode, descent: Descent, encode: Callable[[], Float[Tensor, " dim"]], **diagnostics: Diagnostic
    ) -> Prediction:
        """Answer by the tuned features of the plain view, or by zero-shot where a number was not finite.

        Args:
            episode: the image.
            descent: how the tuning went.
            encode: gives the features.
            **diagnostics: further ones.
        """
        text, reason = episode.labels.zero_shot_text, descent.failure
        if reason is None:
            with torch.no_grad():
                z = encode()
            if z.isfinite().all():
                diagnostics |= {**describe_steps(descent.losses), "image_shift": float((z - episode.z).norm())}
                return predict_by_scores(episode, z, text, diagnostics)
        return fall_back(episode, text, f"{reason or 'the tuned features were not finite'}: answered by zero-shot")


@dataclass(frozen=True)
class TuningOnConfident(Tuning):
    """What methods share whose loss is of the confident views.

    Attributes:
        rho: fraction of the views, those of lowest entropy, that the loss is of.
    """

    fine_grained_augmix: ClassVar[bool] = True
    setting_limits: ClassVar[Limits] = {"rho": (0.0, 1.0)}

    rho: float = 0.1


@dataclass(frozen=True)
class PromptTuning(TuningOnConfident):
    """What prompt-tuning methods share: a context that is learnt, and an answer from the plain view."""

    def check_labels(self, labels: LabelSpace) -> None:
        """Raise `LabelError` where no template has words before the class name to learn."""
        reasons = [labels.missing_context(template, self.name) for template in range(len(labels.prompts))]
        if reasons[0] is not None and None not in reasons:
            fix = "; use other prompts, or a method that does without, as zero_shot does"
            raise LabelError(reasons[0] + (fix if labels.context is None else ""))  # of a context it says the fix

    @abstractmethod
    def _make_loss(self, episode: Episode, selected: Int[Tensor, " selected"]) -> Loss:
        """Return the loss as a function of the selected views' log-posteriors and the text features."""

    def _answer(self, episode: Episode, tuned: Tuned, diagnostics: Mapping[str, Diagnostic]) -> Prediction:
        """Answer from the plain view with the tuned prompt; the other views are not used."""
        return predict_by_scores(episode, episode.z, tuned.text, diagnostics)

    @torch.inference_mode(False)  # tuning differentiates, also where the caller has switched that off
    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image."""
        episode.labels.remember(("check", self), lambda: self.check_labels(episode.labels))
        episode = self.view_set(episode)
        labels, scale = episode.labels, episode.backbone.logit_scale
        selected = select_views(episode, labels.zero_shot_text, self.rho)
        views, measure = episode.view_features[selected], self._make_loss(episode, selected)

        def loss(text: Tensor) -> Tensor:
            return measure(view_log_posteriors(views, text, scale), text.double())

        tuned = tune_context(labels, loss, lr=self.lr, weight_decay=self.weight_decay, steps=self.steps)
        diagnostics: dict[str, Diagnostic] = {
            "views": tuple(map(float, selected.tolist())),
            **describe_steps(tuned.losses),
            "loss_after": float(loss(tuned.text)),
            "text_shift": float((tuned.text - labels.zero_shot_text).norm(dim=-1).mean()),
        }
        if tuned.failure is not None:
            return fall_back(episode, labels.zero_shot_text, f"{tuned.failure}: answered by zero-shot")
        return self._answer(episode, tuned, diagnostics)
