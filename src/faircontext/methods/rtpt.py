"""R-TPT: prompts that make each confident view sure, and an average over all views by their reliability."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.explore import scores
from faircontext.methods.base import Limits, register_method
from faircontext.methods.predict import predict_by_logits
from faircontext.methods.tuning import Loss, PromptTuning, Tuned, mean_entropy
from faircontext.types import Diagnostic, Prediction


def reliability_weights(
    views: Float[Tensor, "views dim"], neighbours: int, temperature: float
) -> Float[Tensor, " views"]:
    """Return R-TPT's weights: softmax over views of the mean cosine to the nearest others, self left out.

    Args:
        views: unit-norm features of the views.
        neighbours: how many others, or all where there are fewer.
        temperature: of the softmax.
    """
    count = min(neighbours, len(views) - 1)
    if count == 0:
        return views.new_ones(len(views)) / len(views)
    similarity = views @ views.T
    similarity.fill_diagonal_(-torch.inf)
    return (similarity.topk(count, dim=-1).values.mean(-1) / temperature).softmax(-1)


@register_method("rtpt", "robust TPT: minimise each confident view's entropy, answer by a weighted mean of all views")
@dataclass(frozen=True)
class RTPT(PromptTuning):
    """Robust TPT (Sheng et al., CVPR 2025): `L = mean_i H(p_i)`; logits are averaged over all views by reliability.

    The repository leaves out a view's similarity to itself where it is at least 1, which rounding decides; here, and in
    the preset `official`, the diagonal is left out.

    Attributes:
        neighbours: how many of the most similar other views a view's reliability is of.
        temperature: of the softmax over reliabilities.
    """

    setting_limits: ClassVar[Limits] = {"neighbours": 1, "temperature": (1e-6, 1e6)}

    neighbours: int = 20
    temperature: float = 0.01

    def _make_loss(self, episode: Episode, selected: Int[Tensor, " selected"]) -> Loss:  # noqa: ARG002
        return lambda log_posteriors, _: mean_entropy(log_posteriors)

    def _answer(self, episode: Episode, tuned: Tuned, diagnostics: Mapping[str, Diagnostic]) -> Prediction:
        """Answer by the weighted mean over all views of their logits."""
        views = episode.view_features
        weights = reliability_weights(views, self.neighbours, self.temperature)
        logits = episode.backbone.logit_scale * scores(weights.double() @ views.double(), tuned.text).float()
        return predict_by_logits(logits, {**diagnostics, "weights": tuple(weights.tolist())})
