"""TDA: confident images of each class, and uncertain ones, are remembered and correct zero-shot's scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import check_interval, check_minimum
from faircontext.labels import LabelSpace
from faircontext.methods.base import register_method
from faircontext.methods.cache import ClassCache, Entries, Overlay, affinity, relative_entropy, summarise
from faircontext.methods.official import official_settings
from faircontext.methods.stream import Commit, StreamMethod, StreamState, on_cpu, predict_by_sums, text_on_cpu
from faircontext.methods.vote_labels import LabelRule, check_summary, summarise_vote
from faircontext.types import Diagnostic, Prediction

__all__ = ["TDA"]


@register_method("tda", "remembers confident and uncertain images of each class; nothing is trained; in order")
@dataclass(frozen=True)
class TDA(StreamMethod):
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
        label: how an image is filed in the caches, and what is stored of it: `"zero-shot"`, the largest logit and the
            feature that is answered (TDA); `"fcl-vote"`, the winner of FCL's exploration and the mean of the views
            that voted for it, see `summarise_vote`.
    """

    uses_views: ClassVar[bool] = False
    official_by_dataset: ClassVar[Mapping[str, Mapping[str, object]]] = official_settings("tda")

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
    label: LabelRule = "zero-shot"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "beta", "negative_alpha", "negative_beta"):
            check_minimum(name, getattr(self, name), 0)
        check_interval("capacity", self.capacity, 0, 1000)
        check_interval("negative_capacity", self.negative_capacity, -1, 1000)
        check_interval("uncertain", self.uncertain, -1.0, 1.0)
        check_interval("mask", self.mask, -1.0, 1.0)
        check_interval("rho", self.rho, 0.0, 1.0)

    @property
    def sees_views(self) -> bool:
        """Whether it is set to look at more than the plain view."""
        return self.uses_views or self.views == "confident" or self.label == "fcl-vote"

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

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, Commit]:
        """Insert the image into the caches, then answer from both."""
        text, memory = text_on_cpu(episode.labels), state.tensors
        views = on_cpu(episode.view_features if self.views == "confident" else episode.z[None])
        seen = summarise(views, text, episode.backbone.logit_scale, self.rho)
        kept = summarise_vote(episode, text) if self.label == "fcl-vote" else seen
        check_summary(kept)
        entropy = relative_entropy(float(kept.entropy), len(text))
        inserted = self.positive.insert(memory, kept.label, h=kept.entropy, x=kept.feature)
        added: Overlay = {}
        if self.uncertain[0] < entropy < self.uncertain[1]:
            lowered = _lowered(kept.probabilities, self.mask, memory["negative_mask"].shape[-1])
            added = self.negative.insert(memory, kept.label, h=kept.entropy, x=kept.feature, mask=lowered)
        lent = self.lend(episode, memory, inserted)
        positive, negative = self.positive.read(memory, lent), self.negative.read(memory, added)
        classes, x = len(text), seen.feature
        logits = seen.logits + self._raise(positive, x, classes) - self._lower(negative, x, classes)
        diagnostics: dict[str, Diagnostic] = {
            "memory": len(positive) + len(negative),
            "entropy": entropy,
            "pseudo_label": kept.label,
        }

        def commit() -> None:
            self.positive.store(memory, inserted)
            self.negative.store(memory, added)

        return predict_by_sums(logits, diagnostics), commit

    def lend(self, episode: Episode, memory: Mapping[str, Tensor], inserted: Overlay) -> Overlay:  # noqa: ARG002
        """Return what the positive cache is while the image is answered: here with the image in it, and no more."""
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
