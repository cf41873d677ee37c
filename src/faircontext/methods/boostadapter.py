"""BoostAdapter: TDA whose cache of confident images is lent the image's own confident views."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from faircontext.episode import Episode
from faircontext.explore import entropy, scores, select_confident
from faircontext.methods.base import Limits, official_settings, register_method
from faircontext.methods.cache import ClassCache, PendingUpdate, keep_lowest, keep_newest
from faircontext.methods.stream import on_cpu, text_on_cpu
from faircontext.methods.tda import TDA

_OFFICIAL = official_settings("boostadapter")
"""Beside TDA's. The repository has none for ImageNet, where it has no views either: the default stays."""


@register_method("boostadapter", "TDA, its cache lent the image's own confident views; in order")
@dataclass(frozen=True)
class BoostAdapter(TDA):
    """BoostAdapter (Zhang et al., NeurIPS 2024).

    Its state is TDA's, but the negative cache keeps the last uncertain images instead of those of lowest entropy.

    Attributes:
        delta: how many more entries each class has room for, while confident views are pending to the positive cache.
    """

    uses_views: ClassVar[bool] = True
    official_by_dataset: ClassVar[Mapping[str, Mapping[str, object]]] = {
        name: {**values, **_OFFICIAL.get(name, {})} for name, values in TDA.official_by_dataset.items()
    }
    setting_limits: ClassVar[Limits] = {"delta": 0}

    delta: int = 3

    @property
    def negative(self) -> ClassCache:
        """The layout of the negative cache, first in, first out."""
        return ClassCache("negative", self.negative_capacity, keep_newest)

    def pending(self, episode: Episode, memory: Mapping[str, Tensor], inserted: PendingUpdate) -> PendingUpdate:
        """Add the confident views, the surest first, to the entries of the classes that they are taken for."""
        views, text = on_cpu(episode.view_features), text_on_cpu(episode.labels)
        logits = scores(views.double(), text, episode.backbone.logit_scale)
        entropies, labels = entropy(logits.log_softmax(-1)).float(), logits.float().argmax(-1)
        pending = dict(inserted)
        for view in select_confident(entropies, self.rho).tolist():
            label = int(labels[view])
            rows = pending[label] if label in pending else self.positive.rows(memory, label)
            entry = {"h": entropies[view : view + 1], "x": views[view : view + 1]}
            pending[label] = keep_lowest(rows, entry, self.capacity + self.delta) or rows
        return pending
