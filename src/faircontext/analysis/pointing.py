"""Where evidence maps point on collages, whose file names say where each class is (see `datasets.collages`)."""

import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from faircontext.analysis.base import Analysis
from faircontext.episode import Episode
from faircontext.errors import ArgumentError
from faircontext.evidence import cell_of
from faircontext.methods.base import register_method
from faircontext.metrics.saliency import localise
from faircontext.types import Prediction

__all__ = ["Pointing", "cell_regions", "cells_of"]

_NAME = re.compile(r"(?:^|/)c\d+_(\d+)x(\d+)_(\d+(?:-\d+)*)\.png$")


def cells_of(path: str) -> Int[np.ndarray, "side side"] | None:
    """Return the class index of each cell of a collage, from its file's name; None for another file.

    Args:
        path: of the file, with `/` between folders.
    """
    found = _NAME.search(path)
    if found is None:
        return None
    side, classes = int(found[1]), [int(word) for word in found[3].split("-")]
    return np.array(classes).reshape(side, side) if found[1] == found[2] and len(classes) == side**2 else None


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

    Finds `side`, and `auc`, `pointing` and `energy` (see `faircontext.metrics.saliency.Localisation`) of every
    candidate in every cell: the candidates in their order, for each the cells from the top and the left. It does not
    know which class is in which cell; the summary does, from the files' names.

    Candidates are not explored, since all classes of the collage must be among them: they are the k classes that the
    plain view favours, so all classes of a data set that has no more. The plain view must show all of the collage, as
    it does of a square image.

    Attributes:
        side: cells along a side of the collages.
        k: K, number of candidates.
    """

    side: int = 2
    k: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.side <= 16:
            raise ArgumentError(f"side={self.side} is not possible; give 2 to 16 cells along a side")

    def __call__(self, episode: Episode) -> Prediction:
        """Measure one image."""
        tau = episode.labels.text[0]
        scores = (tau.double() @ episode.z.double()).float()
        candidates = scores.sort(descending=True, stable=True).indices[: self.k]
        if len(candidates) < 2:
            return self.conclude(episode, candidates, {})
        maps = self.evidence(episode, tau[candidates]).maps
        regions = cell_regions(self.side, *maps.shape[1:])
        found = [localise(evidence, regions) for evidence in maps]
        findings = {
            name: tuple(np.concatenate([getattr(one, name) for one in found]).tolist())
            for name in ("auc", "pointing", "energy")
        }
        return self.conclude(episode, candidates, {"side": self.side, **findings})
