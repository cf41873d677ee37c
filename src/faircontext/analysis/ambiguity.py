"""Whether classes are hard to tell apart on what they share: the premise of the method (paper, Sec. 3.2)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.analysis.base import Analysis
from faircontext.episode import Episode
from faircontext.errors import check_interval
from faircontext.evidence import EvidenceScaling, common_evidence, unique_evidence
from faircontext.losses import js_to_uniform
from faircontext.methods.base import register_method
from faircontext.types import Prediction

__all__ = ["Ambiguity", "pair_decisions"]


def pair_decisions(
    image: Float[Tensor, "pairs dim"],
    text: Float[Tensor, "candidates dim"],
    pairs: Int[Tensor, "2 pairs"],
    beta: float,
) -> Float[Tensor, " pairs"]:
    """Return how far each pair's decision is from even: `JS((p, 1 - p) || (1/2, 1/2))` in nats, as in `L_cal`.

    Args:
        image: unit-norm embedding that each pair is decided on.
        text: unit-norm text features of the candidates.
        pairs: candidate positions `i`, `j` of each pair; `p = sigmoid(beta <image, tau_i - tau_j>)`.
        beta: inverse temperature.
    """
    return js_to_uniform(beta * (image.double() * (text[pairs[0]] - text[pairs[1]]).double()).sum(-1))


@register_method("ambiguity", "how far pairs are from even on common evidence, unique evidence and the image")
@dataclass(frozen=True)
class Ambiguity(Analysis):
    """How far the candidates' pairwise decisions are from even, in nats, on average over the pairs.

    The method takes for granted that common evidence does not tell the classes of a pair apart, so that a preference
    there is a bias. Finds `js_image` on the whole image, `js_common` on the pair's common evidence as FCL has it, and
    `js_unique` on the evidence of the better candidate that the other does not share; and `common_minus_image` and
    `common_minus_unique`, whose means are paired by image. Nothing is found where there is one candidate only.

    Attributes:
        area: see FCL; None for the paper's softmax.
        evidence_scaling: see FCL.
    """

    area: float | None = None
    evidence_scaling: EvidenceScaling = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area is not None:
            check_interval("area", self.area, 0.0, 1.0)

    def __call__(self, episode: Episode) -> Prediction:
        """Measure one image."""
        found = self.phi(episode, episode.labels.text[0], self.k).candidates
        # In class order, as FCL has them: the pictures are the same to the bit, so that kept features are found.
        candidates = found.sort().values
        if len(candidates) < 2:
            return self.conclude(episode, found, {})
        text, beta = episode.labels.text[0][candidates], self.temperature(episode)
        pairs = torch.triu_indices(len(candidates), len(candidates), 1, device=candidates.device)
        maps = self.evidence(episode, text).maps
        common = episode.weighted_features(common_evidence(maps, pairs, self.evidence_scaling, self.area))
        places = torch.searchsorted(candidates, found)
        best_first = places[torch.triu_indices(len(found), len(found), 1, device=found.device)]
        unique = episode.weighted_features(unique_evidence(maps, best_first))
        whole = episode.z.expand(pairs.shape[1], -1)
        values = {
            "js_image": float(pair_decisions(whole, text, pairs, beta).mean()),
            "js_common": float(pair_decisions(common, text, pairs, beta).mean()),
            "js_unique": float(pair_decisions(unique, text, best_first, beta).mean()),
        }
        values["common_minus_image"] = values["js_common"] - values["js_image"]
        values["common_minus_unique"] = values["js_common"] - values["js_unique"]
        return self.conclude(episode, found, values)
