"""TPT, C-TPT and R-TPT: prompts that make the confident views agree, or each of them sure."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.diagnostics import Diagnostic
from faircontext.episode import Episode
from faircontext.errors import check_interval, check_minimum
from faircontext.explore import scores
from faircontext.methods.base import register_method
from faircontext.methods.predict import predict_by_logits
from faircontext.methods.tuning import Loss, PromptTuning, Tuned, marginal_entropy, mean_entropy
from faircontext.types import Prediction

__all__ = ["CTPT", "RTPT", "TPT", "reliability_weights", "text_dispersion"]


@register_method("tpt", "test-time prompt tuning: minimise the entropy of the confident views' mean posterior")
@dataclass(frozen=True)
class TPT(PromptTuning):
    """Test-time prompt tuning (Shu et al., NeurIPS 2022): `L = H(mean_i p_i)` over the confident views.

    The preset `official` differs from the defaults in nothing that is a setting. The repository runs in half precision
    with a loss scale that is carried from image to image; here tuning is in float32 and nothing is carried.
    """

    def _make_loss(self, episode: Episode, selected: Int[Tensor, " selected"]) -> Loss:  # noqa: ARG002
        return lambda log_posteriors, _: marginal_entropy(log_posteriors)


def text_dispersion(text: Float[Tensor, "classes dim"]) -> Float[Tensor, ""]:
    """Return the mean distance of unit-norm text features to their mean, which is not normalised again."""
    distances: Tensor = (text - text.mean(0)).norm(dim=-1)
    return distances.mean()


@register_method("ctpt", "TPT that keeps text features dispersed, for better calibrated probabilities")
@dataclass(frozen=True)
class CTPT(PromptTuning):
    """Calibrated TPT (Yoon et al., ICLR 2024): `L = H(mean_i p_i) - lambda mean_c ||t_c - mean t||`.

    Attributes:
        dispersion: lambda. The repository has 50 on ImageNet and fine-grained data, and 20 on ImageNet-A, R, V2 and
            Sketch; the preset `official` has 50, the same as the default.
    """

    dispersion: float = 50.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum("dispersion", self.dispersion, 0)

    def _make_loss(self, episode: Episode, selected: Int[Tensor, " selected"]) -> Loss:  # noqa: ARG002
        if self.dispersion == 0.0:  # left out, not multiplied by zero: the loss is then TPT's to the bit
            return lambda log_posteriors, _: marginal_entropy(log_posteriors)
        return lambda log_posteriors, text: marginal_entropy(log_posteriors) - self.dispersion * text_dispersion(text)


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

    neighbours: int = 20
    temperature: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum("neighbours", self.neighbours, 1)
        check_interval("temperature", self.temperature, 1e-6, 1e6)

    def _make_loss(self, episode: Episode, selected: Int[Tensor, " selected"]) -> Loss:  # noqa: ARG002
        return lambda log_posteriors, _: mean_entropy(log_posteriors)

    def _answer(self, episode: Episode, tuned: Tuned, diagnostics: Mapping[str, Diagnostic]) -> Prediction:
        """Answer by the weighted mean over all views of their logits."""
        views = episode.view_features
        weights = reliability_weights(views, self.neighbours, self.temperature)
        logits = episode.backbone.logit_scale * scores(weights.double() @ views.double(), tuned.text).float()
        return predict_by_logits(logits, {**diagnostics, "weights": tuple(weights.tolist())})
