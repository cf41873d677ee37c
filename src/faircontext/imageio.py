"""The one way in for images: any file that Pillow reads becomes an RGB array, or is refused with the file's name."""

import logging
import os
import stat
import threading
import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError, features

from faircontext.errors import ImageError, check_minimum, check_type, reason_of
from faircontext.imagefiles import (
    PNG,
    BinaryFile,
    RefusedError,
    brands_of,
    check_raw,
    picture_page,
    read_tiff,
    what_it_is,
    without_bad_metadata,
)
from faircontext.pixels import coding_of, to_rgb

__all__ = ["EXTENSIONS", "MAX_PIXELS", "DecodedImage", "load_image", "read_image"]

EXTENSIONS = frozenset(
    f".{name}" for name in "jpg jpeg jpe jfif png apng webp bmp dib gif tif tiff ppm pgm pbm tga avif heic heif".split()
)
"""What counts as an image when a folder is searched; a file that is named is always tried."""

MAX_PIXELS = 178_000_000
"""Largest image that is decoded, in pixels; just below the limit at which Pillow itself refuses."""

# Formats that are decoded in-process from the file alone: others run programs (EPS) or follow paths.
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "TGA", "AVIF", "HEIF", "ICO")
_ORIENTATION = 0x0112
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UNDONE_BY = {6: 8, 8: 6}
_FIRST = "the first of several frames was taken"


@dataclass(frozen=True)
class DecodedImage:
    """A decoded image.

    Attributes:
        pixels: RGB.
        notes: what was decided on the way, for example that only the first frame was taken.
    """

    pixels: UInt8[np.ndarray, "height width 3"]
    notes: tuple[str, ...] = ()


def load_image(path: Path | str, *, max_pixels: int = MAX_PIXELS, exif: bool = True) -> UInt8[np.ndarray, "h w 3"]:
    """Decode one image file to RGB; see `read_image`, which also returns notes."""
    return read_image(path, max_pixels=max_pixels, exif=exif).pixels


def read_image(path: Path | str, *, max_pixels: int = MAX_PIXELS, exif: bool = True) -> DecodedImage:
    """Decode one image file to RGB.

    EXIF orientation is applied, an embedded colour profile is converted to sRGB, transparency is composited on white,
    palettes and CMYK are converted, and of an animation or a multi-page file the first image is taken; in a TIFF the
    first that is no reduced copy of another. Metadata that is too large or broken is left out, with a note.

    Numbers of more than 8 bits are scaled to 8, not clipped. Those of 9 to 16 bits have the range of their depth. Wider
    integers from 0 to 255 have the range of 8 bits, those to 65,535 of 16; others, and floats, their own range.

    Camera raw is refused: what could be read of it is a preview.

    Args:
        path: the file.
        max_pixels: larger images are refused; may lower the default limit, not raise it.
        exif: whether to apply the EXIF orientation (published numbers are often measured without).

    Raises:
        ImageError: the file cannot be read as an image, or is too large; the message names it and says why.
    """
    check_type("path", path, (str, os.PathLike))
    check_type("max_pixels", max_pixels, int)
    check_minimum("max_pixels", max_pixels, 1)
    limit, head = min(max_pixels, MAX_PIXELS), b""
    try:
        with _open_regular(Path(path)) as file, _QUIET:
            head = file.read(1024)
            file.seek(0)
            return _read(file, head, limit, exif)
    except RefusedError as refused:
        reason = str(refused)
    except UnidentifiedImageError:
        reason = what_it_is(head)
    except Image.DecompressionBombError:
        reason = f"more pixels than the limit of {limit:,} (max_pixels)"
    except MemoryError:
        reason = "not enough memory to decode it"
    except Exception as error:  # decoders raise anything on broken files; a bad file never ends a run
        reason = f"cannot be decoded: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    raise ImageError(path, reason)


class _Quiet:
    """Silences warnings and log lines, hints of decoders at odd files, in any number of threads.

    Filters of warnings are the process's own. Log lines go where the process wants them, but not to standard error for
    want of a place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._nowhere = logging.NullHandler()

    def __enter__(self) -> None:
        with self._lock:
            if self._readers == 0:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")
                logging.getLogger("PIL").addHandler(self._nowhere)
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                self._caught.__exit__(None, None, None)
                logging.getLogger("PIL").removeHandler(self._nowhere)


_QUIET = _Quiet()


def _open_regular(path: Path) -> BinaryFile:
    """Open a file, or refuse what is not a regular file that can be read."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise RefusedError("a folder, not an image")
        if not stat.S_ISREG(mode):
            raise RefusedError("not a regular file")
        return path.open("rb")
    except FileNotFoundError:
        raise RefusedError("a link to nothing" if path.is_symlink() else "no such file") from None
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot be read: {reason_of(error)}") from None


def _read(file: BinaryFile, head: bytes, limit: int, exif: bool) -> DecodedImage:
    """Decode a file; a PNG that is refused, once more without the metadata that is at fault, if any is."""
    try:
        return _decode(file, head, limit, exif)
    except (RefusedError, Image.DecompressionBombError, MemoryError):
        raise
    except Exception:
        copy, left_out = without_bad_metadata(file) if head.startswith(PNG) else (file, ())
        if not left_out:
            raise
    found = _decode(copy, head, limit, exif)
    return replace(found, notes=(*found.notes, f"too large or broken, and left out: {', '.join(left_out)}"))


def _decode(file: BinaryFile, head: bytes, limit: int, exif: bool) -> DecodedImage:
    check_raw(head)
    if head[4:8] == b"ftyp":
        _check_plugin(brands_of(head))
    tiff = read_tiff(file, head)
    page = picture_page(tiff) if tiff else 0
    file.seek(0)
    Image.init()
    try:
        opened = Image.open(file, formats=[name for name in _FORMATS if name in Image.OPEN])
    except (UnidentifiedImageError, KeyError):
        if tiff is None:
            raise
        raise RefusedError(tiff.description()) from None
    with opened as image:
        if page:
            image.seek(page)
        if image.width * image.height > limit:
            raise RefusedError(
                f"{image.width} x {image.height} pixels are more than the limit of {limit:,} (max_pixels)"
            )
        several = image.format != "MPO" and getattr(image, "is_animated", False)
        coding = coding_of(image)
        # Pillow's decoder of TIFF turns the picture itself, and then has no orientation any more.
        turned = _orientation(image) if image.format == "TIFF" else 1
        image.load()
        turn = _TRANSPOSE.get(_orientation(image) if exif else _UNDONE_BY.get(turned, turned))
        pixels = to_rgb(image if turn is None else image.transpose(turn), coding)
    taken = f"page {page + 1} was taken, as those before are reduced copies" if page else _FIRST
    return DecodedImage(pixels, (taken,) if several else ())


def _check_plugin(kind: str) -> None:
    """Make AVIF and HEIC readable where their plug-ins are installed, else refuse naming them."""
    if kind == "AVIF":
        if not features.check("avif") and find_spec("pillow_avif") is None:
            raise RefusedError("AVIF images need a plug-in: pip install pillow-avif-plugin")
        if not features.check("avif"):
            import_module("pillow_avif")
    elif find_spec("pillow_heif") is None:
        raise RefusedError("HEIC images need a plug-in: pip install pillow-heif")
    else:
        import_module("pillow_heif").register_heif_opener()


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, or 1 where there is none that can be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a broken EXIF block is no reason to refuse a picture that decodes
        return 1
