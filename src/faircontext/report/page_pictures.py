"""Pictures of a page: small copies of images, read where the runs say that they lie, and evidence beside them."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import PIL.Image

from faircontext.datasets.places import Place
from faircontext.errors import ImageError, lines_and_more
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image
from faircontext.report.pictures import draw_stored, find_stored, jpeg_text, shrunk, stored_key
from faircontext.runs.store import Run
from faircontext.sources import Source

__all__ = ["ImageKey", "Pictures", "RunImages", "add_pictures", "choose", "image_place"]

T = TypeVar("T", bound=Hashable)
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
    shift = run.document["config"].get("shift", {})
    part = f"{shift['name']}:{shift['severity']}" if shift.get("stored") else ""  # images that lie corrupted on disk
    return Place(str(there) if folder and there.is_dir() else folder, part, run.document.get("image_column"))


@dataclass(frozen=True)
class RunImages:
    """A run's images as a page shows them: all, those that a method fixed or broke, and the script's data."""

    run: Run
    keys: Sequence[ImageKey]
    changed: Collection[ImageKey]
    data: dict[str, Any]


@dataclass(frozen=True)
class Pictures:
    """Pictures of a page: JPEG files in base64, names and pictures of two candidates' evidence, and warnings."""

    thumbnails: list[str]
    evidence: list[dict[str, Any]]
    warnings: list[str]


def add_pictures(panels: Sequence[RunImages], analyses: Sequence[Run], most: int) -> Pictures:
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
    pictures, reasons = _read_pictures({key: readers[key] for key in chosen})
    indices = dict.fromkeys(chosen, -2) | {key: index for index, key in enumerate(pictures)}
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
    return Pictures(
        [*pictures.values()], [*drawn.values()], _missing(reasons, len(readers) - len(chosen), len(readers))
    )


def _missing(reasons: dict[ImageKey, str], left_out: int, n: int) -> list[str]:
    """Return which images have no picture and why, a line for each reason."""
    counts, example = Counter(reasons.values()), {reason: key[1] for key, reason in reversed(reasons.items())}

    def line(item: tuple[str, int]) -> str:
        reason, count = item
        return f"{count:,} of {n:,} images {_have(count)} no picture: {reason} ({example[reason]})"

    lines = lines_and_more(counts.most_common(), 3, line, "and {} other reasons why images have no picture")
    small = f"{left_out:,} of {n:,} images {_have(left_out)} no picture, so that the page stays small"
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


def _read_pictures(readers: dict[ImageKey, Reader]) -> tuple[dict[ImageKey, str], dict[ImageKey, str]]:
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
    pictures = {key: read[key][0] for key in readers if key in read and read[key][0]}
    return pictures, {key: failed[key] for key in readers if key in failed}


def _find(keys: Iterable[ImageKey]) -> tuple[dict[ImageKey, Source], dict[ImageKey, str]]:
    """Return where images lie, and of the others why they are not found."""
    by_place: dict[Place, list[str]] = {}
    for place, name in keys:
        by_place.setdefault(place, []).append(name)
    sources, reasons = dict[ImageKey, Source](), dict[ImageKey, str]()
    for place, names in by_place.items():
        found, missing = place.find(names)
        sources |= {(place, name): source for name, source in found.items()}
        reasons |= {(place, name): reason for name, reason in missing.items()}
    return sources, reasons
