"""Evidence that analysis runs have kept, as pictures for a page: no model is needed to draw them.

For the two best candidates i and j of an image, as explored: the class evidence `E_i` and `E_j`, and their common
evidence `softmax(E_i + E_j)` over pixels (section "Calibration" of the paper), as the figure `gallery` draws them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from faircontext.analysis.maps import KeptMaps, read_maps
from faircontext.bench.store import Run
from faircontext.errors import ArgumentError
from faircontext.report.figures import overlay, overlay_shares, strongest
from faircontext.report.plots.pictures import common_map, resized
from faircontext.report.thumbnails import jpeg_text, thumbnail
from faircontext.types import read_diagnostics

__all__ = [
    "Evidence",
    "KeptKey",
    "draw_evidence",
    "find_evidence",
    "kept_key",
]

KeptKey = tuple[str, str | None, str, str]
"""Backbone and weights, hash of the data set, and path: what evidence belongs to."""


@dataclass(frozen=True)
class Evidence:
    """What is kept of an image.

    Attributes:
        names: of the candidates, best first; the two best.
        picture: the plain view.
        maps: evidence of these candidates and, where there are two, their common evidence.
    """

    names: tuple[str, ...]
    picture: UInt8[np.ndarray, "height width 3"]
    maps: tuple[Float[np.ndarray, "size size"], ...]


def kept_key(run: Run, path: str) -> KeptKey:
    """Return what evidence of an image of a run is known by."""
    config = run.document["config"]
    pretrained = config.get("pretrained", config["backbone"].get("pretrained"))
    return str(config["backbone"]["name"]), pretrained, str(config["dataset"]["hash"]), path


def find_evidence(runs: Iterable[Run]) -> dict[KeptKey, tuple[Run, dict[str, Any]]]:
    """Return the rows of the analysis `gallery`, each with its run, by the image that they are about."""
    found: dict[KeptKey, tuple[Run, dict[str, Any]]] = {}
    for run in runs:
        for row in run.rows.select(["path", "method", "error", "candidates", "diagnostics"]).to_pylist():
            answered = not row["error"] and row["diagnostics"] != "{}"  # nothing is kept where zero-shot stood in
            if answered and row["method"].partition("-")[0] == "gallery":
                found.setdefault(kept_key(run, row["path"]), (run, row))
    return found


def draw_evidence(run: Run, row: dict[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of the two best candidates, and pictures of what is kept of an image, as text.

    Raises:
        ArgumentError: the row does not hold what the analysis `gallery` keeps.
    """
    try:
        evidence = _read(run.document["config"]["names"], row)
        small = thumbnail(evidence.picture)
        maps, image = [resized(found, *small.shape[:2]) for found in evidence.maps], small / 255.0
        drawn = [overlay(image, found, strongest(*maps[:2])) for found in maps[:2]]
        drawn += [overlay_shares(image, shared / shared.max()) for shared in maps[2:]]
        pictures = [jpeg_text(pixels) for pixels in drawn]
    except (KeyError, ValueError, IndexError, TypeError, OSError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"{run.folder}: the gallery row of {row['path']} cannot be drawn ({what})") from None
    return evidence.names, pictures


def _read(names: Sequence[str], row: dict[str, Any]) -> Evidence:
    kept: KeptMaps = read_maps(read_diagnostics(row["diagnostics"]))
    best = row["candidates"][:2]
    maps = [kept.evidence[place] for place in range(len(best))]
    if len(maps) == 2:
        maps.append(common_map(*maps))
    return Evidence(tuple(names[index] for index in best), kept.image, tuple(maps))
