"""TPT and C-TPT: prompts that make the confident views agree."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.methods.base import Limits, register_method
from faircontext.methods.tuning import Loss, PromptTuning, marginal_entropy


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

    setting_limits: ClassVar[Limits] = {"dispersion": 0}

    dispersion: float = 50.0

    def _make_loss(self, episode: Episode, selected: Int[Tensor, " selected"]) -> Loss:  # noqa: ARG002
        if self.dispersion == 0.0:  # left out, not multiplied by zero: the loss is then TPT's to the bit
            return lambda log_posteriors, _: marginal_entropy(log_posteriors)
        return lambda log_posteriors, text: marginal_entropy(log_posteriors) - self.dispersion * text_dispersion(text)
