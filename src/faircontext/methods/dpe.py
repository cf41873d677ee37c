"""DPE: text and visual prototypes that evolve over the stream, with residuals that one image learns."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.explore import entropy, scores
from faircontext.labels import LabelSpace
from faircontext.methods.base import Limits, official_settings, register_method
from faircontext.methods.cache import ClassCache, Entries, affinity, describe_memory, normalised_entropy, summarise
from faircontext.methods.predict import predict_by_logits
from faircontext.methods.stream import StateUpdate, StreamMethod, StreamState, on_cpu, text_on_cpu
from faircontext.types import Prediction

_EPS = 1e-3
"""AdamW's eps, of the repository."""
_TEMPERATURE = 0.01
"""Of the repository's alignment loss; the paper's has none."""

Formulas = Literal["paper", "repository"]


class Prototypes(NamedTuple):
    """Prototypes in float64, or gradients with respect to them.

    Attributes:
        text: of all classes.
        visual: of the classes that have one.
    """

    text: Float[Tensor, "classes dim"]
    visual: Float[Tensor, "cached dim"]

    def unit(self) -> "Prototypes":
        """Return them with unit length."""
        return Prototypes(F.normalize(self.text, dim=-1), F.normalize(self.visual, dim=-1))


def adamw_step(gradient: Float[Tensor, "*any"], lr: float) -> Float[Tensor, "*any"]:
    """Return AdamW's first step from zero; weight decay has nothing to act on."""
    return (gradient / gradient.abs().add_(_EPS)).mul_(-lr)


def through_unit(
    gradient: Float[Tensor, "rows dim"], vectors: Float[Tensor, "rows dim"], unit: Float[Tensor, "rows dim"]
) -> Float[Tensor, "rows dim"]:
    """Return the gradient with respect to vectors, given that with respect to them at unit length."""
    along = (gradient * unit).sum(-1, keepdim=True)
    through: Tensor = (gradient - along * unit) / vectors.norm(dim=-1, keepdim=True)
    return through


def logits_by_both(
    images: Float[Tensor, "images dim"],
    unit: Prototypes,
    cached: Int[Tensor, " cached"],
    scale: float,
    a: float,
    b: float,
) -> tuple[Float[Tensor, "images classes"], Float[Tensor, "images cached"]]:
    """Return scores by both kinds of prototypes, and of them the part that is by visual ones."""
    visual = affinity(images @ unit.visual.T, a, b)
    return scores(images, unit.text, scale).index_add(1, cached, visual), visual


def entropy_gradients(
    images: Float[Tensor, "images dim"],
    unit: Prototypes,
    cached: Int[Tensor, " cached"],
    scale: float,
    a: float,
    b: float,
) -> Prototypes:
    """Return the gradients of the entropy of the mean of the images' posteriors.

    Args:
        images: confident views, or their mean alone, in float64.
        unit: prototypes at unit length.
        cached: the classes that have a visual prototype.
        scale: inverse temperature.
        a: largest affinity.
        b: how fast affinities fall.
    """
    values, visual = logits_by_both(images, unit, cached, scale, a, b)
    logs = values.log_softmax(-1)
    surprise = math.log(len(images)) - logs.logsumexp(0)
    shares = logs.exp() / len(images)
    slopes = shares * (surprise - (logs.exp() * surprise).sum(-1, keepdim=True))
    return Prototypes(scale * slopes.T @ images, (b * slopes[:, cached] * visual).T @ images)


def alignment_gradients(unit: Prototypes, cached: Int[Tensor, " cached"], formulas: Formulas) -> Prototypes:
    """Return the gradients of the loss that aligns the two prototypes of each class that has both.

    In the paper it is the cross-entropy of a visual prototype's similarities to all text ones, plus that of a text
    prototype's to all visual ones; in the repository the first alone, at a temperature of 0.01.

    Args:
        unit: prototypes at unit length.
        cached: the classes that have a visual prototype.
        formulas: whose loss.

    Returns:
        Gradients with respect to the prototypes at unit length, of these classes alone.
    """
    text = unit.text[cached]
    similarities = unit.visual @ text.T
    if formulas == "paper":
        slopes = similarities.softmax(1).add_(similarities.softmax(0))
        slopes.diagonal().sub_(2.0)
        factor = 1.0 / len(cached)
    else:
        slopes = similarities.div_(_TEMPERATURE).softmax(1)
        slopes.diagonal().sub_(1.0)
        factor = 1.0 / (_TEMPERATURE * len(cached))
    return Prototypes((slopes.T @ unit.visual).mul_(factor), (slopes @ text).mul_(factor))


@register_method(
    "dpe", "text and visual prototypes that evolve over the stream, aligned for each image by one step; in order"
)
@dataclass(frozen=True)
class DPE(StreamMethod):
    """Dual Prototype Evolving (Zhang et al., NeurIPS 2024).

    The state is `prototypes`, of text, `updates`, how many images they are a mean over, and a cache of the surest
    images of each class, whose mean is the class's visual prototype.

    Attributes:
        a: largest affinity to a visual prototype.
        b: how fast affinities fall.
        lr: learning rate of the residuals.
        lam: weight of the alignment.
        capacity: images in the cache of each class.
        threshold: entropy, in nats over log2 C, below which an image moves the text prototypes.
        rho: fraction of the views, those of lowest entropy, that count.
        views: what an image is to the cache and the loss: its `"confident"` views, or the `"plain"` one alone.
        answer: what is answered: the `"plain"` view, or the mean of the `"confident"` ones.
        formulas: of the `"paper"`, which averages posteriors, aligns both ways and keeps text prototypes at unit
            length, or of the `"repository"`, which averages scores, aligns one way at a temperature of 0.01 and does
            not.
    """

    official: ClassVar[Mapping[str, object]] = {"formulas": "repository"}
    official_by_dataset: ClassVar[Mapping[str, Mapping[str, object]]] = official_settings("dpe")
    setting_limits: ClassVar[Limits] = {
        **dict.fromkeys(("a", "b", "lr", "lam", "threshold"), 0),
        "capacity": (0, 1000),
        "rho": (0.0, 1.0),
    }

    a: float = 6.0
    b: float = 5.0
    lr: float = 5e-4
    lam: float = 0.5
    capacity: int = 3
    threshold: float = 0.1
    rho: float = 0.1
    views: Literal["plain", "confident"] = "confident"
    answer: Literal["plain", "confident"] = "plain"
    formulas: Formulas = "paper"

    @property
    def cache(self) -> ClassCache:
        """The layout of the cache: features `x`."""
        return ClassCache("visual", self.capacity)

    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:  # noqa: ARG002
        """Return text prototypes that are the text features, and an empty cache."""
        text = text_on_cpu(labels).float()
        return {
            "prototypes": text,
            "updates": torch.tensor(0),
            **self.cache.empty(len(text), x=torch.zeros_like(text[0])),
        }

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        """Cache the image, adapt the prototypes to it, answer with them, and keep those of text where it is sure."""
        memory, views, scale = state.tensors, on_cpu(episode.view_features), episode.backbone.logit_scale
        before = memory["prototypes"].double()
        seen = views if self.views == "confident" else views[:1]
        image = summarise(seen, F.normalize(before, dim=-1), scale, self.rho)
        inserted = self.cache.insert(memory, image.label, h=image.entropy, x=image.feature)
        entries = self.cache.read(memory, inserted)
        cached, visual = self._visual_prototypes(entries, before)
        images = seen[image.selected].double() if self.formulas == "paper" else image.feature[None]
        adapted = self._adapt(Prototypes(before, visual), cached, images, scale)
        x = views[0].double()
        if self.answer == "confident":
            x = summarise(views, adapted.text, scale, self.rho).feature
        logits = logits_by_both(x[None], adapted, cached, scale, self.a, self.b)[0][0]
        surprise = normalised_entropy(float(entropy(logits.log_softmax(-1))), len(logits))
        moved = self._move(memory, adapted.text) if surprise < self.threshold else None

        def update() -> None:
            self.cache.store(memory, inserted)
            if moved is not None:
                memory["prototypes"].copy_(moved)
                memory["updates"].add_(1)

        return predict_by_logits(logits, describe_memory(len(entries), surprise, image.label)), update

    def _visual_prototypes(
        self, entries: Entries, text: Float[Tensor, "classes dim"]
    ) -> tuple[Int[Tensor, " cached"], Float[Tensor, "cached dim"]]:
        """Return the classes that have entries, and the mean of these."""
        counts = torch.bincount(entries.labels, minlength=len(text))
        cached = counts.nonzero()[:, 0]
        sums = torch.zeros_like(text).index_add_(0, entries.labels, entries["x"].double())
        return cached, sums[cached] / counts[cached, None]

    def _move(self, memory: Mapping[str, Tensor], text: Float[Tensor, "classes dim"]) -> Float[Tensor, "classes dim"]:
        """Return the text prototypes of the stream with those of a further image in their mean."""
        count = int(memory["updates"]) + 1
        mean = (memory["prototypes"].double() * count + text) / (count + 1)
        return (F.normalize(mean, dim=-1) if self.formulas == "paper" else mean).float()

    def _adapt(
        self,
        start: Prototypes,
        cached: Int[Tensor, " cached"],
        images: Float[Tensor, "images dim"],
        scale: float,
    ) -> Prototypes:
        """Return prototypes at unit length after one step of their residuals on `H + lam L_align`.

        Residuals are added to the prototypes as they are, and the sums are brought to unit length.
        """
        unit = start.unit()
        slopes = entropy_gradients(images, unit, cached, scale, self.a, self.b)
        if self.lam:
            aligned = alignment_gradients(unit, cached, self.formulas)
            slopes.text.index_add_(0, cached, aligned.text, alpha=self.lam)
            slopes.visual.add_(aligned.visual, alpha=self.lam)
        gradients = map(through_unit, slopes, start, unit)
        residuals = (adamw_step(gradient, self.lr) for gradient in gradients)
        return Prototypes(*(vectors + step for vectors, step in zip(start, residuals, strict=True))).unit()
