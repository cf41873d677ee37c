"""Pictures of evidence and of images: maps over an image, thumbnails, and what runs of the analysis `gallery` store."""

import base64
import io
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL.Image
from jaxtyping import Bool, Float, UInt8
from matplotlib import colormaps

from faircontext.errors import ArgumentError, ImageError
from faircontext.imageio import DecodedImage
from faircontext.runs.records import method_of
from faircontext.runs.store import Run
from faircontext.types import read_diagnostics, read_maps

__all__ = [
    "StoredKey",
    "choose",
    "common_map",
    "draw_stored",
    "find_stored",
    "jpeg_text",
    "overlay",
    "overlay_weights",
    "resized",
    "stored_key",
    "strongest",
    "thumbnail",
    "thumbnails",
    "unique_map",
]

T = TypeVar("T", bound=Hashable)
Map = Float[np.ndarray, "height width"]

_MORE, _LESS = np.array([213, 94, 0]) / 255, np.array([0, 114, 178]) / 255
_WEIGHTS = "cividis"
_OPAQUE = 0.75

_LONGEST = 112
"""The longer side of a thumbnail, in pixels."""


def strongest(*maps: Float[np.ndarray, "height width"]) -> float:
    """Return how far maps get from their means, in nats: the limit of a colour scale that they share."""
    return max(float(np.abs(evidence - evidence.mean()).max()) for evidence in maps)


def overlay(
    image: Float[np.ndarray, "height width 3"],
    evidence: Float[np.ndarray, "height width"],
    limit: float | None = None,
    error: Float[np.ndarray, "height width"] | None = None,
) -> UInt8[np.ndarray, "height width 3"]:
    """Return an evidence map over the image in grey: orange above the map's mean, blue below it.

    Args:
        image: values in [0, 1].
        evidence: of a class, or of one class against another, in nats.
        limit: the distance from the mean that is drawn at full strength; None for the map's own, see `strongest`.
        error: standard error of the map; what is less than two of them from the mean is drawn pale, without an outline.
    """
    limit = strongest(evidence) if limit is None else limit
    distance = evidence - evidence.mean()
    relative = np.clip(distance / limit, -1.0, 1.0) if limit > 0 else np.zeros_like(evidence)
    opacity, strong = _OPAQUE * np.abs(relative), relative >= 0.5
    if error is not None:
        certain = np.clip(np.abs(distance) / np.maximum(2.0 * error, 1e-12), 0.0, 1.0)
        opacity, strong = opacity * certain**2, strong & (certain == 1.0)
    colours = np.where(relative[..., None] > 0, _MORE, _LESS)
    blended = _blend(image, colours, opacity)
    blended[_outline(strong)] = 0.0
    return _to_bytes(blended)


def overlay_weights(
    image: Float[np.ndarray, "height width 3"], weights: Float[np.ndarray, "height width"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Return weights from 0 to 1 over the image in grey, always on that scale: an even map looks even."""
    colours: np.ndarray = colormaps[_WEIGHTS](weights)[..., :3]
    return _to_bytes(_blend(image, colours, np.full(weights.shape, 0.5)))


def _blend(
    image: Float[np.ndarray, "height width 3"],
    colours: Float[np.ndarray, "height width 3"],
    opacity: Float[np.ndarray, "height width"],
) -> Float[np.ndarray, "height width 3"]:
    grey = 0.25 + 0.75 * image.mean(-1, keepdims=True)  # lifted, so that colours show on dark parts as well
    blended: np.ndarray = (1.0 - opacity[..., None]) * grey + opacity[..., None] * colours
    return blended


def _outline(inside: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """Return the pixels of a region that have a neighbour outside it; the edge of the image is no neighbour."""
    padded = np.pad(inside, 1, mode="edge")
    around = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    outline: np.ndarray = inside & ~around
    return outline


def _to_bytes(pixels: Float[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "height width 3"]:
    rounded: np.ndarray = np.rint(255.0 * pixels).astype(np.uint8)
    return rounded


def common_map(first: Map, second: Map) -> Map:
    """Return the common evidence of two stored maps, `softmax(E_i + E_j)`; see `evidence.common_evidence`."""
    total = first.astype(np.float64) + second
    weights: Map = np.exp(total - total.max())
    shares: Map = weights / weights.sum()
    return shares


def unique_map(own: Map, other: Map) -> Map:
    """Return `S_i (1 - Q_ij)` of two stored maps, both scaled to [0, 1]; see `evidence.unique_evidence`."""
    own = own.astype(np.float64)
    return _stretched(np.exp(own - own.max())) * (1.0 - _stretched(common_map(own, other)))


def _stretched(values: Map) -> Map:
    """Return a map from 0 to 1; a constant one becomes ones."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones_like(values)


def resized(
    values: Float[np.ndarray, "rows columns"], height: int, width: int
) -> Float[np.ndarray, "{height} {width}"]:
    """Return a stored map at the size of its image."""
    image = PIL.Image.fromarray(values.astype(np.float32))
    return np.asarray(image.resize((width, height), PIL.Image.Resampling.BILINEAR), np.float64)


def choose(images: Sequence[T], first: Collection[T], count: int) -> list[T]:
    """Return which images get a picture: evenly spread ones, after those that come first.

    Args:
        images: all, in order.
        first: those of them that are taken before others; evenly spread ones where they are too many.
        count: how many pictures there can be.
    """
    taken = [image for image in images if image in first]
    if len(taken) >= count:
        return _spread(taken, count)
    others = _spread([image for image in images if image not in first], count - len(taken))
    chosen = {*taken, *others}
    return [image for image in images if image in chosen]


def _spread(images: Sequence[T], count: int) -> list[T]:
    if len(images) <= count:
        return list(images)
    return [images[index * len(images) // count] for index in range(count)]


def jpeg_text(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """Return pixels as a JPEG file in base64."""
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG", quality=70, optimize=True)
    return base64.b64encode(file.getvalue()).decode("ascii")


def thumbnail(pixels: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "small_height small_width 3"]:
    """Return an image with a longer side of at most 112 pixels."""
    image = PIL.Image.fromarray(pixels)
    image.thumbnail((_LONGEST, _LONGEST), PIL.Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image)


def thumbnails(files: Iterable[tuple[Path | None, Callable[[Path], DecodedImage]]]) -> list[str | None]:
    """Return small pictures of files, None for each that is gone or that cannot be read any more.

    Args:
        files: each with what reads it; None where it is not known where the file is.
    """

    def small(file: tuple[Path | None, Callable[[Path], DecodedImage]]) -> str | None:
        path, read = file
        try:
            return None if path is None else jpeg_text(thumbnail(read(path).pixels))
        except ImageError:
            return None

    with ThreadPoolExecutor() as pool:  # decoders let other threads run
        return list(pool.map(small, files))


StoredKey = tuple[str, str | None, str, str]
"""Backbone and weights, hash of the data set, and path: what stored evidence belongs to."""


def stored_key(run: Run, path: str) -> StoredKey:
    """Return what stored evidence of an image of a run is known by."""
    config = run.document["config"]
    pretrained = config.get("pretrained", config["backbone"].get("pretrained"))
    return str(config["backbone"]["name"]), pretrained, str(config["dataset"]["hash"]), path


def find_stored(runs: Iterable[Run]) -> dict[StoredKey, tuple[Run, dict[str, Any]]]:
    """Return the rows of the analysis `gallery`, each with its run, by the image that they are about."""
    stored: dict[StoredKey, tuple[Run, dict[str, Any]]] = {}
    for run in runs:
        for row in run.rows.select(["path", "method", "error", "candidates", "diagnostics"]).to_pylist():
            answered = not row["error"] and row["diagnostics"] != "{}"  # nothing is stored where zero-shot stood in
            if answered and method_of(row["method"]) == "gallery":
                stored.setdefault(stored_key(run, row["path"]), (run, row))
    return stored


def draw_stored(run: Run, row: dict[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of an image's two best candidates, and pictures of their evidence and common evidence, as text.

    Raises:
        ArgumentError: the row does not hold what the analysis `gallery` stores.
    """
    try:
        stored, best = read_maps(read_diagnostics(row["diagnostics"])), row["candidates"][:2]
        names = tuple(run.document["config"]["names"][index] for index in best)
        small = thumbnail(stored.image)
        size, image = small.shape[:2], small / 255.0
        maps = [resized(stored.evidence[index], *size) for index in range(len(best))]
        drawn = [overlay(image, values, strongest(*maps)) for values in maps]
        if len(best) == 2:
            shared = resized(common_map(*stored.evidence[:2]), *size)
            drawn.append(overlay_weights(image, shared / shared.max()))
        return names, [jpeg_text(pixels) for pixels in drawn]
    except (KeyError, ValueError, IndexError, TypeError, OSError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"{run.folder}: the gallery row of {row['path']} cannot be drawn ({what})") from None
