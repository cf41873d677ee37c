"""Whether an image is the sum of its evidence (paper, Tab. "decomposition"; Sec. 3.2, margins).

The pair is that of the two best candidates. `z_com` and `z_uniq` are unit-norm embeddings of the image weighted by
common and unique evidence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from faircontext.analysis.base import Analysis, Setting
from faircontext.episode import Episode
from faircontext.evidence import common_evidence, unique_evidence
from faircontext.methods.base import register_method
from faircontext.types import Prediction

__all__ = ["WEIGHT", "Decomposition", "Margin", "margin", "margin_bound", "reconstruction_bound"]

WEIGHT = 0.1
"""Of each unique proxy in the sum."""


def reconstruction_bound(common: float, first: float, second: float, weight: float = WEIGHT) -> float:
    """Return the largest cosine to z that `z_com + w z_uniq_1 + w z_uniq_2` can have, given the cosines of its parts.

    Write each part as its share along z and a rest: shares add up, and the rest is smallest where the rests oppose each
    other: what the longest has over the others, or nothing (for shares below zero in all, where the longest rest is
    best, it is where they agree). The paper's cosines allow 0.8495, less than the 0.8705 that it reports; means over
    images do not change that, since the bound lies below its tangent plane at the means.

    Args:
        common: cosine of the common proxy.
        first: cosine of the first unique proxy.
        second: cosine of the second.
        weight: w.
    """
    along = common + weight * (first + second)
    # A cosine from features in float32 may exceed 1 by rounding.
    sines = [math.sqrt(max(0.0, 1 - cosine**2)) for cosine in (common, first, second)]
    rests = (sines[0], weight * sines[1], weight * sines[2])
    rest = max(0.0, 2 * max(rests) - sum(rests)) if along >= 0 else sum(rests)
    return along / math.hypot(along, rest) if along or rest else 0.0


def margin(scores: Float[Tensor, "*batch classes"], index: int) -> Float[Tensor, "*batch"]:
    """Return `m(c) = s_c - max_{j != c} s_j`, infinite where there is no other class.

    Args:
        scores: of all classes, beta included.
        index: the class c.
    """
    others = scores.clone()
    others[..., index] = -math.inf
    return scores[..., index] - others.amax(-1)


def margin_bound(margin: Float[Tensor, "*batch"], classes: int) -> Float[Tensor, "*batch"]:
    """Return `1 / (1 + (C - 1) exp(-m))`, below which the softmax probability cannot lie (paper, appendix)."""
    return torch.sigmoid(margin - math.log(classes - 1)) if classes > 1 else torch.ones_like(margin)


def _proxies(
    episode: Episode, evidence: Float[Tensor, "candidates height width"], first: int, second: int
) -> Float[Tensor, "3 dim"]:
    """Return `z_com` of a pair, and `z_uniq` of its first class and of its second.

    Args:
        episode: the image.
        evidence: `E_c` of the candidates.
        first: place of a candidate.
        second: place of another.
    """
    pairs = torch.tensor([[first, second], [second, first]])
    maps = torch.cat([common_evidence(evidence, pairs[:, :1], "minmax"), unique_evidence(evidence, pairs)])
    return episode.weighted_features(maps)


@register_method("decomposition", "cosines to the image of common and unique evidence, and of their sum (paper, table)")
@dataclass(frozen=True)
class Decomposition(Analysis):
    """Cosines to z; finds `cos_common`, `cos_unique_1`, `cos_unique_2` and `cos_composed`.

    Nothing is found where there is one candidate only.
    """

    def __call__(self, episode: Episode) -> Prediction:
        """Measure one image."""
        tau = episode.labels.text[0]
        candidates = self.phi(episode, tau, self.k).candidates
        if len(candidates) < 2:
            return self.conclude(episode, candidates, {})
        parts = _proxies(episode, self.evidence(episode, tau[candidates]).maps, 0, 1)
        composed = F.normalize(parts[0] + WEIGHT * parts[1] + WEIGHT * parts[2], dim=-1)
        cosines = torch.cat([parts, composed[None]]).double() @ episode.z.double()
        names = ("cos_common", "cos_unique_1", "cos_unique_2", "cos_composed")
        return self.conclude(episode, candidates, dict(zip(names, cosines.tolist(), strict=True)))


@register_method("margin", "margin of zero-shot's answer, its bound and its terms from the evidence (paper, Sec. 3.2)")
@dataclass(frozen=True)
class Margin(Analysis):
    """The margin of zero-shot's class and the terms that the paper splits it into, all times beta.

    Finds `margin` and `probability` of the predicted class, the `bound` below it, and, for its nearest rival among the
    candidates, `unique` (`<z_uniq_y, tau_y>`), `common` (the common bias `<z_com, tau_j - tau_y>`), `competitor`
    (`<z_uniq_j, tau_j>`) and `residual`, what is left of the margin against that rival. The terms need two candidates,
    the rest two classes.
    """

    def __call__(self, episode: Episode) -> Prediction:
        """Measure one image."""
        setting, beta = self.setting(episode), self.temperature(episode)
        scores = (beta * episode.labels.text[0].double() @ episode.z.double()).float()
        if len(scores) < 2:
            return self.conclude(episode, setting.candidates, {})
        found = margin(scores, setting.predicted)
        findings = {
            "margin": float(found),
            "probability": float(scores.softmax(-1)[setting.predicted]),
            "bound": float(margin_bound(found, len(scores))),
        }
        if len(setting.candidates) > 1:
            findings |= self._terms(episode, setting, beta)
        return self.conclude(episode, setting.candidates, findings)

    def _terms(self, episode: Episode, setting: Setting, beta: float) -> Mapping[str, float]:
        scores = beta * setting.text.double() @ episode.z.double()
        others = scores.clone()
        others[setting.place] = -math.inf
        rival = int(others.argmax())
        evidence = self.evidence(episode, setting.text).maps
        common, own, theirs = _proxies(episode, evidence, setting.place, rival).double()
        text, other = setting.text[setting.place].double(), setting.text[rival].double()
        terms = {
            "unique": beta * float(own @ text),
            "common": beta * float(common @ (other - text)),
            "competitor": beta * float(theirs @ other),
        }
        explained = terms["unique"] - terms["common"] - terms["competitor"]
        return {**terms, "residual": float(scores[setting.place] - scores[rival]) - explained}
