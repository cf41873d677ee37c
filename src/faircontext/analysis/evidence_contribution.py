"""How much common and unique evidence contribute (paper, Fig. "observations" b and c).

Everything is at the base context, without beta. Both scaled to [0, 1], the pair (i, j) has common evidence `x Q_ij` and
unique evidence `x S_i (1 - Q_ij)`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.analysis.base import Analysis
from faircontext.episode import Episode
from faircontext.errors import check_minimum
from faircontext.evidence import common_evidence, unique_evidence
from faircontext.losses import entropy
from faircontext.methods.base import register_method
from faircontext.types import Prediction

__all__ = ["EPSILON", "CommonEvidence", "UniqueEvidence", "ecec", "euec"]

EPSILON = 1e-6
"""Least margin in the denominator of ECEC: a class that ties with the predicted one has no margin to explain."""


def ecec(
    common: Float[Tensor, "rivals dim"],
    image: Float[Tensor, " dim"],
    text: Float[Tensor, "candidates dim"],
    rivals: Int[Tensor, "2 rivals"],
) -> float:
    """Return the share of the predicted class's margins that common evidence explains.

        ECEC = sum_{y != yh} max(0, <z_com, tau_yh - tau_y>) / sum_{y != yh} max(eps, <z, tau_yh - tau_y>)

    Args:
        common: `z_com` of the predicted class with each rival.
        image: `z`, the embedding of the image.
        text: unit-norm text features of the candidates.
        rivals: places of the predicted class (first row) and of each rival.
    """
    gaps = (text[rivals[0]] - text[rivals[1]]).double()
    shared = (common.double() * gaps).sum(-1).clamp_min(0.0).sum()
    return float(shared / (gaps @ image.double()).clamp_min(EPSILON).sum())


def euec(unique: Float[Tensor, "rivals dim"], text: Float[Tensor, " dim"]) -> float:
    """Return the mean alignment of the predicted class's text with its unique evidence against each rival.

        EUEC = 1/(K-1) sum_{y != yh} <z_uniq_{yh y}, tau_yh>

    Args:
        unique: `z_uniq` of the predicted class against each rival.
        text: `tau_yh`.
    """
    return float((unique.double() @ text.double()).mean())


@register_method("evidence", "ECEC: how much of zero-shot's margins common evidence explains (paper, figure b)")
@dataclass(frozen=True)
class CommonEvidence(Analysis):
    """ECEC of zero-shot's answer; finds `ecec`, nothing where there is one candidate only."""

    def __call__(self, episode: Episode) -> Prediction:
        """Measure one image."""
        setting = self.setting(episode)
        if len(setting.candidates) < 2:
            return self.conclude(episode, setting.candidates, {})
        maps = common_evidence(self.evidence(episode, setting.text).maps, setting.rivals, "minmax")
        value = ecec(episode.weighted_features(maps), episode.z, setting.text, setting.rivals)
        return self.conclude(episode, setting.candidates, {"ecec": value})


@register_method("entropy", "EUEC of single views beside their entropy (paper, figure c)")
@dataclass(frozen=True)
class UniqueEvidence(Analysis):
    """EUEC and entropy of single views; finds `views`, `entropy` (nats, over all classes) and `euec`.

    A view is taken as an image of its own: it has its own evidence maps and its own predicted class, and shares the
    image's candidates. A view costs as much as the evidence of an image, so only some are measured.

    Attributes:
        views: how many views are measured, at equal steps from the plain one on.
    """

    views: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum("views", self.views, 1)

    def __call__(self, episode: Episode) -> Prediction:
        """Measure some views of one image."""
        candidates = self.setting(episode).candidates
        number = len(episode.views)
        chosen = sorted({round(step) for step in torch.linspace(0, number - 1, min(self.views, number)).tolist()})
        if len(candidates) < 2:
            return self.conclude(episode, candidates, {})
        tau, beta = episode.labels.text[0], self.temperature(episode)
        entropies = entropy((beta * episode.view_features[chosen].double() @ tau.double().T).log_softmax(-1))
        values = [self._of_view(episode, candidates, view) for view in chosen]
        findings = {
            "views": tuple(float(view) for view in chosen),
            "entropy": tuple(entropies.tolist()),
            "euec": tuple(values),
        }
        return self.conclude(episode, candidates, findings)

    def _of_view(self, episode: Episode, candidates: Int[Tensor, " candidates"], view: int) -> float:
        pixels = episode.views[view].permute(1, 2, 0).numpy()
        alone = Episode(pixels, episode.labels, episode.recipe, episode.seed)
        tau, predicted = episode.labels.text[0], self.predicted(alone)
        others = candidates[candidates != predicted][: len(candidates) - 1]
        text = tau[torch.cat([others.new_tensor([predicted]), others])]
        pairs = torch.stack([torch.zeros(len(others), dtype=torch.long), torch.arange(1, len(others) + 1)])
        maps = unique_evidence(self.evidence(alone, text).maps, pairs)
        return euec(alone.weighted_features(maps), text[0])
