"""Small pictures for a page: which images get one, and the JPEG files as text."""

import base64
import io
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL.Image
from jaxtyping import UInt8

from faircontext.errors import ImageError
from faircontext.imageio import DecodedImage

__all__ = ["LONGEST", "choose", "jpeg_text", "thumbnail", "thumbnails"]

LONGEST = 112
"""The longer side of a picture, in pixels."""

_QUALITY = 70

T = TypeVar("T", bound=Hashable)


def choose(images: Sequence[T], first: Collection[T], number: int) -> list[T]:
    """Return which images get a picture: evenly spread ones, after those that come first.

    Args:
        images: all, in order.
        first: those of them that are taken before others; evenly spread ones where they are too many.
        number: how many pictures there can be.
    """
    taken = [image for image in images if image in first]
    if len(taken) >= number:
        return _spread(taken, number)
    others = _spread([image for image in images if image not in first], number - len(taken))
    chosen = {*taken, *others}
    return [image for image in images if image in chosen]


def _spread(images: Sequence[T], number: int) -> list[T]:
    if len(images) <= number:
        return list(images)
    return [images[place * len(images) // number] for place in range(number)]


def jpeg_text(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """Return pixels as a JPEG file in base64."""
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG", quality=_QUALITY, optimize=True)
    return base64.b64encode(file.getvalue()).decode("ascii")


def thumbnail(pixels: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "small_height small_width 3"]:
    """Return an image with a longer side of at most `LONGEST` pixels."""
    image = PIL.Image.fromarray(pixels)
    image.thumbnail((LONGEST, LONGEST), PIL.Image.Resampling.BICUBIC, reducing_gap=3.0)
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
