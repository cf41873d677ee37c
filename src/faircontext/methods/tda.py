"""TDA: confident images of each class, and uncertain ones, are remembered and correct zero-shot's scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.labels import LabelSpace
from faircontext.methods.base import Limits, official_settings, register_method
from faircontext.methods.cache import (
    CacheMethod,
    ClassCache,
    Entries,
    PendingUpdate,
    affinity,
    describe_memory,
    normalised_entropy,
    summarise,
)
from faircontext.methods.predict import predict_by_logits
from faircontext.methods.stream import StateUpdate, StreamState, on_cpu, text_on_cpu
from faircontext.types import Prediction


@register_method("tda", "remembers confident and uncertain images of each class; nothing is trained; in order")
@dataclass(frozen=True)
class TDA(CacheMethod):
    """TDA, a training-free dynamic adapter (Karmanov et al., CVPR 2024).

    Attributes:
        alpha: weight of the positive cache.
        beta: sharpness of its affinity.
        capacity: images of a class that it holds.
        negative_alpha: weight of the negative cache.
        negative_beta: sharpness of its affinity.
        negative_capacity: images of a class that it holds.
        uncertain: between which entropies, divided by `log2 C`, an image enters the negative cache.
        mask: between which probabilities of a stored uncertain image a class is lowered.
        views: `"plain"`: the plain view alone; `"confident"`: the mean of the confident views.
        rho: fraction of the views, those of lowest entropy, that are confident.
    """

    uses_views: ClassVar[bool] = False
    official_by_dataset: ClassVar[Mapping[str, Mapping[str, object]]] = official_settings("tda")
    setting_limits: ClassVar[Limits] = {
        **dict.fromkeys(("alpha", "beta", "negative_alpha", "negative_beta"), 0),
        **dict.fromkeys(("uncertain", "mask"), (-1.0, 1.0)),
        "capacity": (0, 1000),
        "negative_capacity": (-1, 1000),
        "rho": (0.0, 1.0),
    }

    alpha: float = 2.0
    beta: float = 5.0
    capacity: int = 3
    negative_alpha: float = 0.117
    negative_beta: float = 1.0
    negative_capacity: int = 2
    uncertain: tuple[float, ...] = (0.2, 0.5)
    mask: tuple[float, ...] = (0.03, 1.0)
    views: Literal["plain", "confident"] = "plain"
    rho: float = 0.1

    @property
    def sees_views(self) -> bool:
        """Whether it is set to look at more than the plain view."""
        return self.uses_views or self.views == "confident"

    @property
    def positive(self) -> ClassCache:
        """The layout of the positive cache: features `x`."""
        return ClassCache("positive", self.capacity)

    @property
    def negative(self) -> ClassCache:
        """The layout of the negative cache: features `x`, and the classes that an image lowers as `mask`."""
        return ClassCache("negative", self.negative_capacity)

    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:  # noqa: ARG002
        """Return two empty caches."""
        classes, dim = labels.zero_shot_text.shape
        feature, mask = torch.zeros(dim), torch.zeros(_width(classes, self.mask[0]), dtype=torch.long)
        return self.positive.empty(classes, x=feature) | self.negative.empty(classes, x=feature, mask=mask)

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        """Insert the image into the caches, then answer from both."""
        text, memory = text_on_cpu(episode.labels), state.tensors
        views = on_cpu(episode.view_features if self.views == "confident" else episode.z[None])
        seen = summarise(views, text, episode.backbone.logit_scale, self.rho)
        kept = self.remembered(episode, text, seen)
        entropy = normalised_entropy(float(kept.entropy), len(text))
        inserted = self.positive.insert(memory, kept.label, h=kept.entropy, x=kept.feature)
        added: PendingUpdate = {}
        if self.uncertain[0] < entropy < self.uncertain[1]:
            lowered = _lowered(kept.probabilities, self.mask, memory["negative_mask"].shape[-1])
            added = self.negative.insert(memory, kept.label, h=kept.entropy, x=kept.feature, mask=lowered)
        pending = self.pending(episode, memory, inserted)
        positive, negative = self.positive.read(memory, pending), self.negative.read(memory, added)
        classes, x = len(text), seen.feature
        logits = seen.logits + self._raise(positive, x, classes) - self._lower(negative, x, classes)
        diagnostics = describe_memory(len(positive) + len(negative), entropy, kept.label)

        def update() -> None:
            self.positive.store(memory, inserted)
            self.negative.store(memory, added)

        return predict_by_logits(logits, diagnostics), update

    def pending(self, episode: Episode, memory: Mapping[str, Tensor], inserted: PendingUpdate) -> PendingUpdate:  # noqa: ARG002
        """Return how the positive cache is read for this image: here with the image in it, and no more."""
        return inserted

    def _raise(self, entries: Entries, feature: Float[Tensor, " dim"], classes: int) -> Float[Tensor, " classes"]:
        """Return `sum_c e_c sum_j A(x . x_j)`, over the images of the positive cache."""
        weights = affinity(entries.similarities(feature), self.alpha, self.beta)
        return feature.new_zeros(classes).index_add(0, entries.labels, weights)

    def _lower(self, entries: Entries, feature: Float[Tensor, " dim"], classes: int) -> Float[Tensor, " classes"]:
        """Return `sum_j A(x . x_j) m_j`, over the images of the negative cache."""
        weights = affinity(entries.similarities(feature), self.negative_alpha, self.negative_beta)
        lowered = entries["mask"]
        each = weights.repeat_interleave(lowered.shape[-1])
        return feature.new_zeros(classes + 1).index_add(0, lowered.flatten(), each)[:classes]


def _width(classes: int, low: float) -> int:
    """Return how many classes can have a probability above `low`."""
    return classes if low <= 0 else min(classes, math.floor(1 / low) + 1)


def _lowered(
    probabilities: Float[Tensor, " classes"], between: tuple[float, ...], width: int
) -> Int[Tensor, " lowered"]:
    """Return the classes whose probability lies between two, filled up to a width with the number of classes."""
    low, high = between
    classes = ((probabilities > low) & (probabilities < high)).nonzero()[:, 0]
    return torch.cat([classes, classes.new_full((width,), len(probabilities))])[:width]
