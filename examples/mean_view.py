"""A method: zero-shot on the plain view, mixed with the mean of the views."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch.nn.functional import normalize

from faircontext import Episode, Method, Prediction
from faircontext.methods import predict_by_scores, register_method


@register_method("mean_view", "zero-shot on the plain view, mixed with the mean of the views")
@dataclass(frozen=True)
class MeanView(Method):
    """Zero-shot on a mixture of two image embeddings (paper, section).

    Attributes:
        share: weight of the mean of the views; the rest is the plain view's.
    """

    setting_limits: ClassVar[Mapping[str, tuple[float, float]]] = {"share": (0.0, 1.0)}

    share: float = 0.5

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image."""
        mixed = (1 - self.share) * episode.z + self.share * episode.view_features.mean(0)
        return predict_by_scores(episode, normalize(mixed, dim=-1), episode.labels.zero_shot_text)
