"""Zero-shot classification of the plain view, the reference of every comparison."""

from dataclasses import dataclass
from typing import ClassVar

from faircontext.episode import Episode
from faircontext.methods.answers import predict_by_scores
from faircontext.methods.base import Method, register_method
from faircontext.types import Prediction

__all__ = ["ZeroShot"]


@register_method("zero_shot", "softmax over all classes on the plain view; no adaptation")
@dataclass(frozen=True)
class ZeroShot(Method):
    """`argmax_c <z, tau_c>` with probabilities at the backbone's own scale (paper, Sec. "Preliminaries")."""

    uses_views: ClassVar[bool] = False

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image from its plain view."""
        labels = episode.labels
        text = labels.constant("zero_shot", lambda: labels.zero_shot_text.double())  # scores are summed in double
        return predict_by_scores(episode, episode.z, text)
