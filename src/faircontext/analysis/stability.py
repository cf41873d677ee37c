"""How far evidence maps can be trusted, and what is stored of them: stability, pointing on collages, the gallery."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.analysis.base import Analysis, Setting
from faircontext.episode import Episode
from faircontext.errors import ArgumentError
from faircontext.evidence import cell_of
from faircontext.methods.base import Limits, register_method
from faircontext.methods.fcl import FCL
from faircontext.metrics.saliency import deletion, insertion, localise, rank_correlation, top_overlap
from faircontext.types import MAP_SIDE, Diagnostic, store_maps


@register_method("gallery", "picture, evidence maps and posteriors of an image, for figures and pages (figure a)")
@dataclass(frozen=True)
class Gallery(Analysis):
    """What `store_maps` stores, and the candidates' posteriors.

    Stores `image` and `maps`, `posterior` of the plain view among the candidates at beta, `before` and `after` (mean
    over the selected views, before and after calibration), and the class indices `explored` and `answer` of exploration
    and of FCL. Calibration is FCL's with its default settings besides those given here.

    Attributes:
        lr: learning rate of the calibration.
    """

    least: ClassVar[int] = 1
    with_predicted: ClassVar[bool] = False

    lr: float = 0.002

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Run FCL on one image and store what is shown."""
        adaptation = FCL(**asdict(self)).adapt(episode)
        positions = torch.searchsorted(adaptation.candidates, setting.candidates)
        explained = adaptation.evidence  # None of a single candidate
        evidence = self.evidence(episode, setting.text).maps if explained is None else explained.maps[positions]
        posterior = (self.temperature(episode) * setting.text.double() @ episode.z.double()).softmax(-1)
        small = F.interpolate(evidence[None].float().cpu(), size=(MAP_SIDE, MAP_SIDE), mode="area")[0]
        return {
            **store_maps(episode.plain.permute(1, 2, 0).cpu().numpy(), small.numpy()),
            "posterior": tuple(posterior.tolist()),
            "before": tuple(adaptation.before.posterior[positions].tolist()),
            "after": tuple(adaptation.after.posterior[positions].tolist()),
            "explored": int(adaptation.candidates[adaptation.before.ranking[0]]),
            "answer": adaptation.prediction.index,
        }


def cell_regions(side: int, height: int, width: int) -> Int[np.ndarray, "height width"]:
    """Return the cell of a collage, from the top and the left, that each pixel lies in.

    Args:
        side: cells along a side.
        height: in pixels.
        width: in pixels.
    """
    regions: Int[np.ndarray, "height width"] = (cell_of(side, height)[:, None] * side + cell_of(side, width)).numpy()
    return regions


@register_method("pointing", "on collages, whether the evidence map of a class is high in the cell that shows it")
@dataclass(frozen=True)
class Pointing(Analysis):
    """AUC, pointing game and energy of the candidates' evidence maps in each cell of a collage.

    Measures `side`, and `auc`, `pointing` and `energy` (see `faircontext.metrics.saliency.Localisation`) of every
    candidate in every cell: the candidates in their order, for each the cells from the top and the left. It does not
    know which class is in which cell; the summary does, from the files' names.

    Candidates are not explored, since all classes of the collage must be among them: they are the k classes that the
    plain view favours, so all classes of a data set that has no more. The plain view must show all of the collage, as
    it does of a square image.

    Attributes:
        side: cells along a side of the collages.
        k: K, number of candidates.
    """

    setting_limits: ClassVar[Limits] = {"side": (1, 16)}

    side: int = 2
    k: int = 20

    def choose(self, episode: Episode) -> Int[Tensor, " candidates"]:
        """Return the K classes that the plain view favours."""
        scores = (episode.labels.text[0].double() @ episode.z.double()).float()
        return scores.sort(descending=True, stable=True).indices[: self.k]

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Measure one image."""
        maps = self.evidence(episode, setting.text).maps
        regions = cell_regions(self.side, *maps.shape[1:])
        measured = [localise(evidence, regions) for evidence in maps]
        return {"side": self.side} | {
            name: tuple(np.concatenate([getattr(one, name) for one in measured]).tolist())
            for name in ("auc", "pointing", "energy")
        }


@register_method("stability", "whether evidence maps settle with more masks and repeat with another seed")
@dataclass(frozen=True)
class Stability(Analysis):
    """Agreement and faithfulness of the predicted class's evidence map `E_yh`.

    Measures `masks` and `convergence` (Spearman's rank correlation over pixels of the map of the first n masks with
    that of all), `reliability` (what the map's own masks say of its agreement with one of others, see
    `Evidence.reliability`), `seeds` (Spearman's correlation of the maps of two seeds), `overlap` (intersection over
    union of their top fifths), `insertion` and `deletion` (areas; the score is the posterior among the candidates), and
    the same of pixels in random order, `insertion_random` and `deletion_random`: a map is worth something where it does
    better.

    Attributes:
        steps: portions of insertion and deletion.
        fewer: numbers of masks at which the map is looked at, besides all.
    """

    setting_limits: ClassVar[Limits] = {"steps": 1}

    steps: int = 16
    fewer: tuple[int, ...] = (25, 50, 100, 200)

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.fewer, default=1) < 1:
            raise ArgumentError(f"fewer={self.fewer} is not possible; give numbers of masks from 1 on")

    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Measure one image."""
        text, position = setting.text, setting.position
        evidence = self.evidence(episode, text)
        used = len(evidence.masks)
        counts = sorted({count for count in self.fewer if count < used})
        whole, reliability = evidence.maps[position], float(evidence.reliability[position])
        partial = [self.evidence(episode, text, count).maps[position] for count in counts]
        again = self.evidence(episode.with_seed(episode.seed + 1), text).maps[position]
        noise = torch.from_numpy(episode.stream("order").permutation(whole.numel())).float().view_as(whole)

        def score(images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, " batch"]:
            features = episode.backbone.encode_image(images)
            return (self.temperature(episode) * features @ text.T).softmax(-1)[:, position]

        return {
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


def _finite(correlation: float) -> float:
    """Return 0 for the correlation of a constant map, which is not defined."""
    return 0.0 if math.isnan(correlation) else correlation
