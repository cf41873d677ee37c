"""TPT: a prompt that makes the confident views agree."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.methods.base import register_method
from faircontext.methods.tuning import Loss, PromptTuning, marginal_entropy

__all__ = ["TPT"]


@register_method("tpt", "test-time prompt tuning: minimise the entropy of the confident views' mean posterior")
@dataclass(frozen=True)
class TPT(PromptTuning):
    """Test-time prompt tuning (Shu et al., NeurIPS 2022): `L = H(mean_i p_i)` over the confident views.

    The preset `official` differs from the defaults in nothing that is a setting. The repository runs in half precision
    with a loss scale that is kept from image to image; here tuning is in float32 and nothing is kept.
    """

    def _make_loss(self, episode: Episode, kept: Int[Tensor, " kept"]) -> Loss:  # noqa: ARG002
        return lambda log_posteriors, _: marginal_entropy(log_posteriors)
