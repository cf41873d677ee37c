"""DMN-ZS: a memory of many features of each class, read anew for each image."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.explore import rank_classes, scores
from faircontext.labels import LabelSpace
from faircontext.methods.base import Limits, official_settings, register_method
from faircontext.methods.cache import CacheMethod, ClassCache, describe_memory, summarise
from faircontext.methods.predict import predict_by_probabilities
from faircontext.methods.stream import StateUpdate, StreamState, on_cpu, text_on_cpu
from faircontext.types import Prediction

_TOGETHER = 8
"""So many classes are read at once: what they hold, in float64, stays in the processor's cache."""


def read_out(
    features: Float[Tensor, "classes slots dim"],
    counts: Int[Tensor, " classes"],
    query: Float[Tensor, " dim"],
    text: Float[Tensor, "classes dim"],
    beta: float,
) -> Float[Tensor, " classes"]:
    """Return the cosines of an image with what the memory gives for each class, in float64.

    For a class it gives the mean of its features and of its text feature, weighted by `exp(-beta (1 - x))` of their
    cosine `x` with the image.

    Args:
        features: of the memory.
        counts: how many slots of each class are used, the first ones.
        query: feature of the image.
        text: text features of the classes, in float64.
        beta: inverse temperature of the weights.
    """
    query = query.double()
    means = (-beta * (1.0 - text @ query)).exp()[:, None] * text
    for start in range(0, len(text), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        if slots := int(counts[some].max()):
            rows = features[some, :slots].double()
            weights = (-beta * (1.0 - rows @ query)).exp()
            weights *= torch.arange(slots) < counts[some, None]
            means[some] += (weights[:, None] @ rows)[:, 0]
    cosines: Tensor = means @ query / means.norm(dim=1)
    return cosines


@register_method("dmn", "zero-shot, mixed with a read-out of a memory of up to 50 features of each class; in order")
@dataclass(frozen=True)
class DMN(CacheMethod):
    """The dynamic memory of Dual Memory Networks, without labelled images (Zhang et al., CVPR 2024, "DMN-ZS").

    The state is the memory: per class up to `slots` features of images that were taken for it, those whose views were
    surest.

    Attributes:
        beta: inverse temperature of the weights of what is remembered.
        slots: features of each class.
        rho: fraction of the views, those of lowest entropy, that give an image its pseudo-label.
        mix: weight of the memory's posterior, over zero-shot's. The repository searches it on the labels of the test
            set; the preset `official` has what it found.
    """

    fine_grained_augmix: ClassVar[bool] = True
    official_by_dataset: ClassVar[Mapping[str, Mapping[str, object]]] = official_settings("dmn")
    setting_limits: ClassVar[Limits] = {"beta": 0, "slots": (0, 1000), "rho": (0.0, 1.0), "mix": 0}

    beta: float = 5.5
    slots: int = 50
    rho: float = 0.1
    mix: float = 1.0

    @property
    def memory(self) -> ClassCache:
        """The layout of the memory: features `x`."""
        return ClassCache("memory", self.slots)

    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:  # noqa: ARG002
        """Return an empty memory."""
        classes, dim = labels.zero_shot_text.shape
        return self.memory.empty(classes, x=torch.zeros(dim))

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        """Remember the plain view under the pseudo-label of the views, then answer from text and memory."""
        views, text, scale = on_cpu(episode.view_features), text_on_cpu(episode.labels), episode.backbone.logit_scale
        memory, z = state.tensors, views[0]
        seen = summarise(views, text, scale, self.rho)
        label = int(rank_classes(seen.probabilities.float())[0])  # of the mean posterior, not of the mean logit
        kept = self.remembered(episode, text, replace(seen, label=label, feature=z))
        inserted = self.memory.insert(memory, kept.label, h=kept.entropy, x=kept.feature)
        cosines = read_out(memory["memory_x"], memory["memory_count"], z, text, self.beta)
        for changed, rows in inserted.items():  # of this class it is the memory with the image in it
            one = slice(changed, changed + 1)
            cosines[one] = read_out(rows["x"][None], torch.tensor([len(rows["x"])]), z, text[one], self.beta)
        of_text = scores(z.double(), text, scale).softmax(-1)
        mixed = (of_text + self.mix * (scale * cosines).softmax(-1)) / (1.0 + self.mix)
        diagnostics = describe_memory(len(self.memory.read(memory, inserted)), float(kept.entropy), kept.label)
        return predict_by_probabilities(mixed, diagnostics), lambda: self.memory.store(memory, inserted)
