"""A method with a memory: zero-shot, less the mean of the logits of the images before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from faircontext import Episode, LabelSpace, Prediction, StreamMethod, StreamState
from faircontext.methods import predict_by_logits, register_method


@register_method("running_mean", "zero-shot less the mean of the logits so far; in order")
@dataclass(frozen=True)
class RunningMean(StreamMethod):
    """Zero-shot, corrected by the mean of earlier logits (paper, section).

    Attributes:
        share: of the mean that is subtracted.
    """

    uses_views: ClassVar[bool] = False
    setting_limits: ClassVar[Mapping[str, tuple[float, float]]] = {"share": (0.0, 1.0)}

    share: float = 0.5

    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:
        """Return the memory before the first image."""
        return {"mean": torch.zeros(len(labels))}

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, Callable[[], None]]:
        """Answer an image; return the prediction, and a function that then updates the memory."""
        text, image = episode.labels.zero_shot_text.double().cpu(), episode.z.double().cpu()
        logits = episode.backbone.logit_scale * text @ image
        mean = state.tensors["mean"].double()
        learnt = (mean + (logits - mean) / (state.seen + 1)).float()

        def update() -> None:
            state.tensors["mean"].copy_(learnt)

        return predict_by_logits(logits - self.share * mean, {"memory": 1}), update
