"""TTL: low-rank updates of the last attention blocks of the image encoder."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.base import ADAPTABLE_BLOCKS, require
from faircontext.backbones.engines import ROW_MULTIPLE
from faircontext.episode import Episode
from faircontext.explore import entropy
from faircontext.labels import LabelSpace
from faircontext.methods.base import Limits, register_method
from faircontext.methods.tuning import Tuning, view_log_posteriors
from faircontext.types import Prediction
from faircontext.views import stream


def low_rank_update(
    a: Float[Tensor, "blocks 2 rank width"], b: Float[Tensor, "blocks 2 width rank"], scale: float
) -> Float[Tensor, "blocks rows width"]:
    """Return `scale B A` for the queries and values of a joint projection of queries, keys and values."""
    queries, values = (scale * b @ a).unbind(1)
    return torch.cat([queries, torch.zeros_like(queries), values], dim=1)


def weighted_entropy(entropies: Float[Tensor, " views"], threshold: float) -> Float[Tensor, " views"]:
    """Return each view's term `exp(E_0 - H_i) H_i`, with a constant weight."""
    return (threshold - entropies.detach()).exp() * entropies


@register_method("ttl", "test-time low-rank adaptation of the image tower's last attention blocks")
@dataclass(frozen=True)
class TTL(Tuning):
    """Test-time low-rank adaptation (Imam et al., WACV 2025): `L = mean_i exp(E_0 - H_i) H_i` over all views.

    Queries and values of the last blocks get `W + (alpha / rank) B A`. `A` is drawn from the seed alone, `B` starts at
    zero; so the model starts as it is. The preset `official` differs in nothing: the repository adapts blocks 9 to 11
    of CLIP ViT-B/16, its last three. With more than 1,000 classes the repository leaves out views whose entropy is
    above ln 1000, which nothing here does.

    Attributes:
        blocks: how many blocks, from the last one down.
        rank: of the updates.
        alpha: their scale, times the rank.
        threshold: E_0, in nats.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ADAPTABLE_BLOCKS})
    setting_limits: ClassVar[Limits] = {"blocks": 1, "rank": 1, "alpha": (0.0, 1e6), "threshold": (-1e3, 1e3)}

    blocks: int = 3
    rank: int = 16
    alpha: float = 32.0
    threshold: float = 0.4

    def check_labels(self, labels: LabelSpace) -> None:
        """Cut the encoder, so that a wrong number of blocks is found before any image is read."""
        require(labels.backbone, ADAPTABLE_BLOCKS).split_encoder(self.blocks)

    @torch.inference_mode(False)  # tuning differentiates, also where the caller has switched that off
    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image from the plain view through the adapted blocks."""
        backbone = episode.backbone
        self.check(backbone)
        encoder = require(backbone, ADAPTABLE_BLOCKS).split_encoder(self.blocks)
        views = episode.views.to(backbone.device)
        tokens = torch.cat([encoder.below(rows / 255.0) for rows in views.split(backbone.batch_size)])
        a, b = self._initial(encoder.blocks, encoder.width, episode.seed, backbone.device)
        gradients: list[Tensor] = []

        def loss() -> Tensor:
            value, gradients[:] = self._differentiate(episode, tokens, a, b)
            return value

        descent = self.minimise([a, b], loss, gradients=lambda: gradients)
        return self.answer_by_image(
            episode, descent, lambda: encoder.above(tokens[:1], low_rank_update(a, b, self.alpha / self.rank))[0]
        )

    def _initial(self, blocks: int, width: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return `A`, normal with Xavier's deviation and the same for all images, and `B`, zero."""
        deviation = math.sqrt(2.0 / (width + self.rank))
        noise = stream(seed, "0", "lora").normal(0.0, deviation, (blocks, 2, self.rank, width))
        a = torch.from_numpy(noise).float().to(device).requires_grad_()
        return a, torch.zeros(blocks, 2, width, self.rank, device=device, requires_grad=True)

    def _differentiate(self, episode: Episode, tokens: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the loss and its gradients by `A` and `B`, summed over some views at a time."""
        encoder, text = (
            require(episode.backbone, ADAPTABLE_BLOCKS).split_encoder(self.blocks),
            episode.labels.zero_shot_text,
        )
        gradients, total = [torch.zeros_like(a), torch.zeros_like(b)], a.new_zeros((), dtype=torch.float64)
        for rows in tokens.split(ROW_MULTIPLE):
            features = encoder.above(rows, low_rank_update(a, b, self.alpha / self.rank))
            entropies = entropy(view_log_posteriors(features, text, episode.backbone.logit_scale))
            part = weighted_entropy(entropies, self.threshold).sum() / len(tokens)
            gradients = [sum_ + own for sum_, own in zip(gradients, torch.autograd.grad(part, (a, b)), strict=True)]
            total += part.detach()
        return total, gradients
