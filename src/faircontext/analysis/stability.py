"""How far an evidence map can be trusted: whether it settles with more masks, and is the same with another seed."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.analysis.base import Analysis
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, check_minimum
from faircontext.methods.base import register_method
from faircontext.metrics.saliency import deletion, insertion, rank_correlation, top_overlap
from faircontext.types import Diagnostic, Prediction

__all__ = ["Stability"]


@register_method("stability", "whether evidence maps settle with more masks and repeat with another seed")
@dataclass(frozen=True)
class Stability(Analysis):
    """Agreement and faithfulness of the predicted class's evidence map `E_yh`.

    Finds `masks` and `convergence` (Spearman's rank correlation over pixels of the map of the first n masks with that
    of all), `reliability` (what the map's own masks say of its agreement with one of others, `Evidence.reliability`),
    `seeds` (Spearman's correlation of the maps of two seeds), `overlap` (intersection over union of their top fifths),
    `insertion` and `deletion` (areas; the score is the posterior among the candidates), and the same of pixels in
    random order, `insertion_random` and `deletion_random`: a map is worth something where it does better.

    Attributes:
        steps: portions of insertion and deletion.
        fewer: numbers of masks at which the map is looked at, besides all.
    """

    steps: int = 16
    fewer: tuple[int, ...] = (25, 50, 100, 200)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum("steps", self.steps, 1)
        if min(self.fewer, default=1) < 1:
            raise ArgumentError(f"fewer={self.fewer} is not possible; give numbers of masks from 1 on")

    def __call__(self, episode: Episode) -> Prediction:
        """Measure one image."""
        setting = self.setting(episode)
        if len(setting.candidates) < 2:
            return self.conclude(episode, setting.candidates, {})
        text, place = setting.text, setting.place
        evidence = self.evidence(episode, text)
        used = len(evidence.masks)
        counts = sorted({count for count in self.fewer if count < used})
        whole, reliability = evidence.maps[place], float(evidence.reliability[place])
        partial = [self.evidence_of(episode, text, count).maps[place] for count in counts]
        again = self.evidence(episode.with_seed(episode.seed + 1), text).maps[place]
        noise = torch.from_numpy(episode.stream("order").permutation(whole.numel())).float().view_as(whole)

        def score(images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, " batch"]:
            features = episode.backbone.encode_image(images)
            return (self.temperature(episode) * features @ text.T).softmax(-1)[:, place]

        found: dict[str, Diagnostic] = {
            "masks": tuple(float(count) for count in (*counts, used)),
            "convergence": tuple(_finite(rank_correlation(part, whole)) for part in (*partial, whole)),
            "reliability": reliability,
            "seeds": _finite(rank_correlation(whole, again)),
            "overlap": top_overlap(whole, again),
            "insertion": insertion(score, episode.x, whole, steps=self.steps).area,
            "deletion": deletion(score, episode.x, whole, steps=self.steps).area,
            "insertion_random": insertion(score, episode.x, noise, steps=self.steps).area,
            "deletion_random": deletion(score, episode.x, noise, steps=self.steps).area,
        }
        return self.conclude(episode, setting.candidates, found)


def _finite(correlation: float) -> float:
    """Return 0 for the correlation of a constant map, which is not defined."""
    return 0.0 if math.isnan(correlation) else correlation
