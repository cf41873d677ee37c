"""Pictures: maps over an image, what the analysis `gallery` has stored, and small copies of images for pages."""

import base64
import io
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL.Image
from jaxtyping import Bool, Float, UInt8
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from scipy.special import softmax

from faircontext.datasets.containers import Place
from faircontext.errors import ArgumentError, ImageError, counted, lines_and_more
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image
from faircontext.report.style import BLUE, VERMILION
from faircontext.runs.analyses import analysis_rows, read_analysis
from faircontext.runs.records import AnalysisRow, method_of
from faircontext.runs.store import Run
from faircontext.sources import Source
from faircontext.types import StoredMaps, read_maps

T = TypeVar("T", bound=Hashable)
Map = Float[np.ndarray, "height width"]

_OPAQUE = 0.75
_LONGEST = 112
"""The longer side of a thumbnail, in pixels."""


def strongest(*maps: Map) -> float:
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
    colours = np.where(relative[..., None] > 0, to_rgb(VERMILION), to_rgb(BLUE))
    return _blend(image, colours, opacity, _outline(strong))


def overlay_weights(
    image: Float[np.ndarray, "height width 3"], weights: Float[np.ndarray, "height width"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Return weights from 0 to 1 over the image in grey, always on that scale: an even map looks even."""
    return _blend(image, colormaps["cividis"](weights)[..., :3], np.full(weights.shape, 0.5))


def _blend(
    image: Float[np.ndarray, "height width 3"],
    colours: Float[np.ndarray, "height width 3"],
    opacity: Float[np.ndarray, "height width"],
    black: Bool[np.ndarray, "height width"] | None = None,
) -> UInt8[np.ndarray, "height width 3"]:
    grey = 0.25 + 0.75 * image.mean(-1, keepdims=True)  # lifted, so that colours show on dark parts as well
    blended = (1.0 - opacity[..., None]) * grey + opacity[..., None] * colours
    if black is not None:
        blended[black] = 0.0
    rounded: np.ndarray = np.rint(255.0 * blended).astype(np.uint8)
    return rounded


def _outline(inside: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """Return the pixels of a region that have a neighbour outside it; the edge of the image is no neighbour."""
    padded = np.pad(inside, 1, mode="edge")
    around = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    outline: np.ndarray = inside & ~around
    return outline


def common_map(first: Map, second: Map) -> Map:
    """Return what `common_evidence` makes of two stored maps, unscaled; reading runs must not load PyTorch."""
    return np.asarray(softmax(first.astype(np.float64) + second))


def unique_map(target: Map, other: Map) -> Map:
    """Return what `unique_evidence` makes of two stored maps."""
    weights, common = (
        (values - values.min()) / span if (span := np.ptp(values)) > 0 else np.ones_like(values)
        for values in (softmax(target.astype(np.float64)), common_map(target, other))
    )
    return np.asarray(weights * (1.0 - common))


def resized(
    values: Float[np.ndarray, "rows columns"], height: int, width: int
) -> Float[np.ndarray, "{height} {width}"]:
    """Return a stored map at the size of its image."""
    image = PIL.Image.fromarray(values.astype(np.float32))
    return np.asarray(image.resize((width, height), PIL.Image.Resampling.BILINEAR), np.float64)


def draw_evidence(
    image: Float[np.ndarray, "height width 3"],
    evidence: Float[np.ndarray, "candidates rows columns"],
    contrast: bool = False,
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Return stored maps over their image, all on one scale.

    Args:
        image: values in [0, 1].
        evidence: maps of the two best candidates, or of the only one.
        contrast: whether the first against the second is drawn as well.

    Returns:
        An overlay for each map, for the contrast, and for what two candidates have in common.
    """
    shown = [*evidence, evidence[0] - evidence[1]] if contrast else evidence
    maps = [resized(values, *image.shape[:2]) for values in shown]
    overlays = [overlay(image, values, strongest(*maps)) for values in maps]
    if len(evidence) == 2:
        common = resized(common_map(*evidence), *image.shape[:2])
        overlays.append(overlay_weights(image, common / common.max()))
    return overlays


@dataclass(frozen=True)
class StoredImage:
    """An image of the analysis `gallery`: its row, what is stored of it, and the posterior of its candidates."""

    row: AnalysisRow
    stored: StoredMaps
    posterior: Float[np.ndarray, " candidates"]

    @property
    def image(self) -> Float[np.ndarray, "height width 3"]:
        """The image, values in [0, 1]."""
        values: np.ndarray = self.stored.image.astype(np.float64) / 255
        return values


def _read_stored(row: AnalysisRow) -> StoredImage:
    stored, posterior = read_maps(row.diagnostics), np.array(row.diagnostics["posterior"], np.float64)
    if not len(stored.evidence) == len(posterior) == len(row.candidates):
        raise ValueError(f"{len(row.candidates)} candidates, {len(stored.evidence)} maps, {len(posterior)} posteriors")
    return StoredImage(row, stored, np.nan_to_num(posterior))


def choose_stored(runs: tuple[Run, ...], count: int, rank: Callable[[AnalysisRow], int]) -> list[StoredImage]:
    """Return images of the analysis `gallery` of lowest rank, of the data sets in turn, so that none fills a figure.

    Only images whose evidence is finite and of at least two candidates are taken.
    """
    turns: Counter[tuple[int, str]] = Counter()
    keyed = []
    for index, (row, image) in enumerate(read_analysis(runs, "gallery", _read_stored)):
        if len(image.posterior) > 1 and np.isfinite(image.stored.evidence).all():
            key = (rank(row), row.dataset)
            turns[key] += 1
            keyed.append(((key[0], turns[key], index), image))
    return [image for _, image in sorted(keyed, key=lambda item: item[0])[:count]]


StoredKey = tuple[str, str | None, str, str]
"""Backbone and weights, hash of the data set, and path: what stored evidence belongs to."""


def stored_key(run: Run, path: str) -> StoredKey:
    """Return what stored evidence of an image of a run is known by."""
    config = run.document["config"]
    pretrained = config.get("pretrained", config["backbone"].get("pretrained"))
    return str(config["backbone"]["name"]), pretrained, str(config["dataset"]["hash"]), path


def find_stored(runs: Iterable[Run]) -> dict[StoredKey, tuple[Run, AnalysisRow]]:
    """Return the rows of the analysis `gallery`, each with its run, by the image that they are about."""
    stored: dict[StoredKey, tuple[Run, AnalysisRow]] = {}
    for run in runs:
        for label in (label for label in run.document["config"]["methods"] if method_of(label) == "gallery"):
            for row in analysis_rows(run, label):
                if row.diagnostics:  # nothing is stored where zero-shot stood in
                    stored.setdefault(stored_key(run, row.path), (run, row))
    return stored


def draw_stored(run: Run, row: AnalysisRow) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of an image's two best candidates, and pictures of their evidence and common evidence, as text.

    Raises:
        ArgumentError: the row does not hold what the analysis `gallery` stores.
    """
    try:
        stored, best = read_maps(row.diagnostics), row.candidates[:2]
        names = tuple(row.names[index] for index in best)
        small = shrunk(PIL.Image.fromarray(stored.image))
        drawn = draw_evidence(small / 255.0, stored.evidence[:2])
        return names, [jpeg_text(pixels) for pixels in drawn]
    except (KeyError, ValueError, IndexError, TypeError, OSError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"{run.folder}: the gallery row of {row.path} cannot be drawn ({what})") from None


def shrunk(image: PIL.Image.Image) -> UInt8[np.ndarray, "height width 3"]:
    """Shrink an image to a longer side of at most 112 pixels."""
    image.thumbnail((_LONGEST, _LONGEST), PIL.Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image)


def jpeg_text(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """Return pixels as a JPEG file in base64."""
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG", quality=70, optimize=True)
    return base64.b64encode(file.getvalue()).decode("ascii")


Reader = Callable[[Source], DecodedImage]

ImageKey = tuple[Place, str]
"""Where a run's images lie, and what one is called there."""


def image_place(run: Run) -> Place:
    """Return where the images of a run lie.

    A folder that was given relative to the directory where the run was made is looked for there, then, as runs may be
    moved together with their images, relative to the present one.
    """
    folder = str(run.document.get("folder", ""))
    there = Path(run.document.get("working_directory", ""), folder)
    perturbation = run.document["config"].get("shift", {})
    part = (
        f"{perturbation['name']}:{perturbation['severity']}" if perturbation.get("stored") else ""
    )  # images that lie corrupted on disk
    return Place(str(there) if folder and there.is_dir() else folder, part, run.document.get("image_column"))


@dataclass(frozen=True)
class RunImages:
    """A run's images as a page shows them: all, those that a method fixed or broke, and the script's data."""

    run: Run
    keys: Sequence[ImageKey]
    changed: Collection[ImageKey]
    data: dict[str, Any]


@dataclass(frozen=True)
class PageImages:
    """Pictures of a page: JPEG files in base64, names and pictures of two candidates' evidence, and warnings."""

    thumbnails: list[str]
    evidence: list[dict[str, Any]]
    warnings: list[str]


def add_thumbnails(panels: Sequence[RunImages], analyses: Sequence[Run], most: int) -> PageImages:
    """Read and draw the pictures of panels, each once, and note in the panels' data which image has which.

    Args:
        panels: the images; those come first that changed, or whose evidence is stored.
        analyses: runs that may have stored evidence.
        most: how many images get pictures.
    """
    stored = find_stored(analyses)
    readers: dict[ImageKey, Reader] = {}
    first: set[ImageKey] = set()
    for panel in panels:
        config = panel.run.document["config"]
        limits = {"exif": config.get("exif", True), "max_pixels": config.get("max_pixels", MAX_PIXELS)}
        readers |= dict.fromkeys(panel.keys, partial(read_image, **limits))
        first |= {*panel.changed, *(key for key in panel.keys if stored_key(panel.run, key[1]) in stored)}
    chosen = choose([*readers], first, most)
    thumbnails, reasons = _read_thumbnails({key: readers[key] for key in chosen})
    indices = dict.fromkeys(chosen, -2) | {key: index for index, key in enumerate(thumbnails)}
    drawn: dict[Any, dict[str, Any]] = {}
    for panel in panels:
        evidence = panel.data["evidence"] = {}
        for position, key in enumerate(panel.keys):
            if (stored_as := stored_key(panel.run, key[1])) in stored and key in indices:
                if stored_as not in drawn:
                    names, texts = draw_stored(*stored[stored_as])
                    drawn[stored_as] = {"names": names, "pictures": texts}
                evidence[position] = [*drawn].index(stored_as)
        panel.data["pictures"] = [indices.get(key, -1) for key in panel.keys]
    return PageImages(
        [*thumbnails.values()], [*drawn.values()], _missing(reasons, len(readers) - len(chosen), len(readers))
    )


def _missing(reasons: dict[ImageKey, str], left_out: int, n: int) -> list[str]:
    """Return which images have no picture and why, a line for each reason."""
    counts, example = Counter(reasons.values()), {reason: key[1] for key, reason in reversed(reasons.items())}

    def line(item: tuple[str, int]) -> str:
        reason, count = item
        return f"{count:,} of {counted(n, 'image')} {_have(count)} no picture: {reason} ({example[reason]})"

    lines = lines_and_more(counts.most_common(), 3, line, "and {} other reasons why images have no picture")
    small = f"{left_out:,} of {counted(n, 'image')} {_have(left_out)} no picture, so that the page stays small"
    return [*lines, *([small] if left_out else [])]


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def choose(images: Sequence[T], first: Collection[T], count: int) -> list[T]:
    """Return so many of the images: evenly spread ones, after evenly spread ones of those that come first."""
    taken = _spread([image for image in images if image in first], count)
    chosen = {*taken, *_spread([image for image in images if image not in first], count - len(taken))}
    return [image for image in images if image in chosen]


def _spread(images: Sequence[T], count: int) -> Sequence[T]:
    """Return so many of the images, evenly spread."""
    return [images[index * len(images) // count] for index in range(count)] if len(images) > count else images


def _read_thumbnails(readers: dict[ImageKey, Reader]) -> tuple[dict[ImageKey, str], dict[ImageKey, str]]:
    """Return small pictures of images as text, and of the others why they cannot be read."""
    sources, reasons = _find(readers)

    def read_small(key: ImageKey) -> tuple[str, str]:
        """Return the picture, and why there is none."""
        try:
            return jpeg_text(shrunk(PIL.Image.fromarray(readers[key](sources[key]).pixels))), ""
        except ImageError as error:
            return "", error.reason

    with ThreadPoolExecutor() as pool:  # decoders let other threads run
        read = dict(zip(sources, pool.map(read_small, sources), strict=True))
    failed = reasons | {key: reason for key, (_, reason) in read.items() if reason}
    thumbnails = {key: read[key][0] for key in readers if key in read and read[key][0]}
    return thumbnails, {key: failed[key] for key in readers if key in failed}


def _find(keys: Iterable[ImageKey]) -> tuple[dict[ImageKey, Source], dict[ImageKey, str]]:
    """Return where images lie, and of the others why they are not found."""
    by_place: dict[Place, list[str]] = {}
    for place, name in keys:
        by_place.setdefault(place, []).append(name)
    sources, reasons = dict[ImageKey, Source](), dict[ImageKey, str]()
    for place, names in by_place.items():
        located, missing = place.find(names)
        sources |= {(place, name): source for name, source in located.items()}
        reasons |= {(place, name): reason for name, reason in missing.items()}
    return sources, reasons
