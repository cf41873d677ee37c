"""What figures of pictures share: rows of the analysis `gallery`, and maps made of the evidence that they keep."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import PIL.Image
from jaxtyping import Float

from faircontext.analysis.maps import KeptMaps, read_maps
from faircontext.report.plots.sources import AnalysisRow, Material

__all__ = ["Picture", "common_map", "minmax", "name_within", "pictures", "resized", "spread", "unique_map"]

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


def minmax(values: _Map) -> _Map:
    """Return a map scaled to [0, 1]; a constant map becomes ones, as for unique evidence."""
    low, high = float(values.min()), float(values.max())
    scaled: np.ndarray = (values - low) / (high - low) if high > low else np.ones_like(values)
    return scaled


def _softmax(evidence: _Map) -> _Map:
    weights = np.exp(evidence.astype(np.float64) - float(evidence.max()))
    total: np.ndarray = weights / weights.sum()
    return total


def common_map(first: _Map, second: _Map) -> _Map:
    """Return the common evidence Q of two classes: the softmax over pixels of the sum of their evidence."""
    return _softmax(first.astype(np.float64) + second)


def unique_map(own: _Map, other: _Map) -> _Map:
    """Return the weights `S_i (1 - Q_ij)` of a class's unique evidence against another, both maps in [0, 1]."""
    weights: np.ndarray = minmax(_softmax(own)) * (1 - minmax(common_map(own, other)))
    return weights


def resized(
    values: Float[np.ndarray, "rows columns"], height: int, width: int
) -> Float[np.ndarray, "{height} {width}"]:
    """Return a kept map at the size of its image."""
    image = PIL.Image.fromarray(values.astype(np.float32))
    return np.asarray(image.resize((width, height), PIL.Image.Resampling.BILINEAR), np.float64)


def name_within(name: str, letters: int) -> str:
    """Return a name on one line of so many letters, its end left out where it is longer."""
    return name if len(name) <= letters else name[: letters - 1] + "…"
