"""What figures of pictures share: rows of the analysis `gallery`, and maps made of the evidence that they keep."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import PIL.Image
import torch
from jaxtyping import Float

from faircontext.analysis.maps import KeptMaps, read_maps
from faircontext.evidence import common_evidence, unique_evidence
from faircontext.report.plots.sources import AnalysisRow, Material

__all__ = ["Picture", "common_map", "pictures", "resized", "spread", "unique_map"]

_Map = Float[np.ndarray, "height width"]


@dataclass(frozen=True)
class Picture:
    """An image of the analysis `gallery`.

    Attributes:
        row: where it comes from.
        kept: the image and the evidence of its candidates.
        posterior: of the candidates.
    """

    row: AnalysisRow
    kept: KeptMaps
    posterior: Float[np.ndarray, " candidates"]

    @property
    def image(self) -> Float[np.ndarray, "height width 3"]:
        """The image, values in [0, 1]."""
        values: np.ndarray = self.kept.image.astype(np.float64) / 255
        return values


def pictures(material: Material) -> list[Picture]:
    """Return the images of the analysis `gallery` whose evidence is finite and of at least two candidates."""
    found = material.analysis("gallery", _picture)
    return [picture for _, picture in found if len(picture.posterior) > 1 and np.isfinite(picture.kept.evidence).all()]


def _picture(row: AnalysisRow) -> Picture:
    kept, posterior = read_maps(row.diagnostics), np.array(row.diagnostics["posterior"], np.float64)
    if not len(kept.evidence) == len(posterior) == len(row.candidates):
        raise ValueError(f"{len(row.candidates)} candidates, {len(kept.evidence)} maps, {len(posterior)} posteriors")
    return Picture(row, kept, np.nan_to_num(posterior))


def spread(found: Sequence[Picture], number: int, rank: Callable[[Picture], int]) -> list[Picture]:
    """Return some pictures of lowest rank, taken from the data sets in turn, so that one set does not fill a figure."""
    turns: dict[tuple[int, str], int] = {}
    keyed = []
    for place, picture in enumerate(found):
        key = (rank(picture), picture.row.dataset)
        turns[key] = turns.get(key, 0) + 1
        keyed.append(((key[0], turns[key], place), picture))
    return [picture for _, picture in sorted(keyed, key=lambda item: item[0])[:number]]


def common_map(first: _Map, second: _Map) -> _Map:
    """Return the common evidence Q of two classes, which sums to one; see `evidence.common_evidence`."""
    found: np.ndarray = common_evidence(_stacked(first, second), torch.tensor([[0], [1]]), "none")[0].numpy()
    return found


def unique_map(own: _Map, other: _Map) -> _Map:
    """Return the weights of a class's unique evidence against another; see `evidence.unique_evidence`."""
    found: np.ndarray = unique_evidence(_stacked(own, other), torch.tensor([[0], [1]]))[0].numpy()
    return found


def _stacked(first: _Map, second: _Map) -> Float[torch.Tensor, "2 height width"]:
    return torch.from_numpy(np.stack([first, second]).astype(np.float64))


def resized(
    values: Float[np.ndarray, "rows columns"], height: int, width: int
) -> Float[np.ndarray, "{height} {width}"]:
    """Return a kept map at the size of its image."""
    image = PIL.Image.fromarray(values.astype(np.float32))
    return np.asarray(image.resize((width, height), PIL.Image.Resampling.BILINEAR), np.float64)
