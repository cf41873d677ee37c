"""How much common and unique evidence contribute: ECEC, EUEC, ambiguity, decomposition and margins.

Everything is at the base context. Unless a text says otherwise maps are scaled to [0, 1], so that the pair (i, j) has
common evidence `x Q_ij` and unique evidence `x S_i (1 - Q_ij)`, whose unit-norm embeddings are `z_com` and `z_uniq`.
(Paper, figure "observations" b and c, table "decomposition", Sec. 3.2.)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.analysis.base import Analysis, Setting
from faircontext.calibrate import js_to_uniform
from faircontext.episode import Episode
from faircontext.evidence import Scaling, common_evidence, unique_evidence
from faircontext.explore import entropy, scores
from faircontext.methods.base import Limits, register_method
from faircontext.metrics.scores import COMPOSED_WEIGHT
from faircontext.types import Diagnostic

EPSILON = 1e-6
"""Least margin in the denominator of ECEC: a class that ties with the predicted one has no margin to explain."""


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
    there is a bias. Measures `js_image` on the image, `js_common` on the pair's common evidence as FCL has it, and
    `js_unique` on the evidence of the better candidate that the other does not share; and `common_minus_image` and
    `common_minus_unique`, whose means are paired by image.

    Attributes:
        area: see FCL; None for the paper's softmax.
        evidence_scaling: see FCL.
    """

    with_predicted: ClassVar[bool] = False
    setting_limits: ClassVar[Limits] = {"area": (0.0, 1.0)}

    area: float | None = None
    evidence_scaling: Scaling = "max"

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Measure one image."""
        ranked = setting.candidates
        # In class order, as FCL has them: the pictures are the same to the bit, so that stored features are reused.
        candidates = ranked.sort().values
        text, beta = episode.labels.text[0][candidates], self.temperature(episode)
        pairs = torch.triu_indices(len(candidates), len(candidates), 1, device=candidates.device)
        maps = self.evidence(episode, text).maps
        common = episode.weighted_features(common_evidence(maps, pairs, self.evidence_scaling, self.area))
        positions = torch.searchsorted(candidates, ranked)
        best_first = positions[torch.triu_indices(len(ranked), len(ranked), 1, device=ranked.device)]
        unique = episode.weighted_features(unique_evidence(maps, best_first))
        whole = episode.z.expand(pairs.shape[1], -1)
        values = {
            "js_image": float(pair_decisions(whole, text, pairs, beta).mean()),
            "js_common": float(pair_decisions(common, text, pairs, beta).mean()),
            "js_unique": float(pair_decisions(unique, text, best_first, beta).mean()),
        }
        values["common_minus_image"] = values["js_common"] - values["js_image"]
        values["common_minus_unique"] = values["js_common"] - values["js_unique"]
        return values


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
        first: position of a candidate.
        second: position of another.
    """
    pairs = torch.tensor([[first, second], [second, first]])
    maps = torch.cat([common_evidence(evidence, pairs[:, :1], "minmax"), unique_evidence(evidence, pairs)])
    return episode.weighted_features(maps)


@register_method("decomposition", "cosines to the image of common and unique evidence, and of their sum (paper, table)")
@dataclass(frozen=True)
class Decomposition(Analysis):
    """Cosines to z of the best two candidates: `cos_common`, `cos_unique_1`, `cos_unique_2` and `cos_composed`."""

    with_predicted: ClassVar[bool] = False

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Measure one image."""
        parts = _proxies(episode, self.evidence(episode, setting.text).maps, 0, 1)
        composed = F.normalize(parts[0] + COMPOSED_WEIGHT * parts[1] + COMPOSED_WEIGHT * parts[2], dim=-1)
        cosines = torch.cat([parts, composed[None]]).double() @ episode.z.double()
        names = ("cos_common", "cos_unique_1", "cos_unique_2", "cos_composed")
        return dict(zip(names, cosines.tolist(), strict=True))


@register_method("margin", "margin of zero-shot's answer, its bound and its terms from the evidence (paper, Sec. 3.2)")
@dataclass(frozen=True)
class Margin(Analysis):
    """The margin of zero-shot's class and the terms that the paper splits it into, all times beta.

    Measures `margin` and `probability` of the predicted class, the `bound` below it, and, for its nearest rival among
    the candidates, `unique` (`<z_uniq_y, tau_y>`), `common` (the common bias `<z_com, tau_j - tau_y>`), `competitor`
    (`<z_uniq_j, tau_j>`) and `residual`, what is left of the margin against that rival. The terms need two candidates,
    the rest two classes.
    """

    least: ClassVar[int] = 1

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Measure one image."""
        beta = self.temperature(episode)
        values = scores(episode.z, episode.labels.text[0], beta)
        if len(values) < 2:
            return {}
        value = margin(values, setting.predicted)
        measured = {
            "margin": float(value),
            "probability": float(values.softmax(-1)[setting.predicted]),
            "bound": float(margin_bound(value, len(values))),
        }
        return {**measured, **self._terms(episode, setting, beta)} if len(setting.candidates) > 1 else measured

    def _terms(self, episode: Episode, setting: Setting, beta: float) -> Mapping[str, float]:
        scores = beta * setting.text.double() @ episode.z.double()
        others = scores.clone()
        others[setting.position] = -math.inf
        rival = int(others.argmax())
        evidence = self.evidence(episode, setting.text).maps
        common, ours, theirs = _proxies(episode, evidence, setting.position, rival).double()
        text, other = setting.text[setting.position].double(), setting.text[rival].double()
        terms = {
            "unique": beta * float(ours @ text),
            "common": beta * float(common @ (other - text)),
            "competitor": beta * float(theirs @ other),
        }
        explained = terms["unique"] - terms["common"] - terms["competitor"]
        return {**terms, "residual": float(scores[setting.position] - scores[rival]) - explained}


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
        rivals: positions of the predicted class (first row) and of each rival.
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
    """ECEC of zero-shot's answer: `ecec`."""

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Measure one image."""
        maps = common_evidence(self.evidence(episode, setting.text).maps, setting.rivals, "minmax")
        return {"ecec": ecec(episode.weighted_features(maps), episode.z, setting.text, setting.rivals)}


@register_method("entropy", "EUEC of single views beside their entropy (paper, figure c)")
@dataclass(frozen=True)
class UniqueEvidence(Analysis):
    """EUEC and entropy of single views: `views`, `entropy` (nats, over all classes) and `euec`.

    A view is taken as an image of its own: it has its own evidence maps and its own predicted class, and shares the
    image's candidates. A view costs as much as the evidence of an image, so only some are measured.

    Attributes:
        views: how many views are measured, at equal steps from the plain one on.
    """

    setting_limits: ClassVar[Limits] = {"views": 1}

    views: int = 8

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Measure some views of one image."""
        n = len(episode.views)
        chosen = sorted({round(step) for step in torch.linspace(0, n - 1, min(self.views, n)).tolist()})
        tau, beta = episode.labels.text[0], self.temperature(episode)
        entropies = entropy((beta * episode.view_features[chosen].double() @ tau.double().T).log_softmax(-1))
        values = [self._of_view(episode, setting.candidates, view) for view in chosen]
        return {"views": tuple(map(float, chosen)), "entropy": tuple(entropies.tolist()), "euec": tuple(values)}

    def _of_view(self, episode: Episode, candidates: Int[Tensor, " candidates"], view: int) -> float:
        pixels = episode.views[view].permute(1, 2, 0).numpy()
        alone = Episode(pixels, episode.labels, episode.recipe, episode.seed)
        tau, predicted = episode.labels.text[0], self.predicted(alone)
        others = candidates[candidates != predicted][: len(candidates) - 1]
        text = tau[torch.cat([others.new_tensor([predicted]), others])]
        pairs = torch.stack([torch.zeros(len(others), dtype=torch.long), torch.arange(1, len(others) + 1)])
        maps = unique_evidence(self.evidence(alone, text).maps, pairs)
        return euec(alone.weighted_features(maps), text[0])
