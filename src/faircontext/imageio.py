"""The one way in for images: any file that Pillow reads becomes an RGB array, or is refused with the file's name."""

import io
import os
import stat
import threading
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageCms, UnidentifiedImageError, features

from faircontext.errors import ImageError, check_minimum, check_type, reason_of

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
    16-bit and float images are scaled to 8 bits (not clipped), palettes and CMYK are converted, and of an animation or
    a multi-page file the first image is taken.

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
            return _decode(file, head, limit, exif)
    except _RefusedError as refused:
        reason = str(refused)
    except UnidentifiedImageError:
        reason = _what_it_is(head)
    except Image.DecompressionBombError:
        reason = f"more pixels than the limit of {limit:,} (max_pixels)"
    except MemoryError:
        reason = "not enough memory to decode it"
    except Exception as error:  # decoders raise anything on broken files; a bad file never ends a run
        reason = f"cannot be decoded: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    raise ImageError(path, reason)


class _Quiet:
    """Silences warnings, hints of decoders at odd files, in any number of threads: filters are the process's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._readers == 0:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                self._caught.__exit__(None, None, None)


_QUIET = _Quiet()


class _RefusedError(Exception):
    """Why an image is refused; the caller adds the path."""


def _open_regular(path: Path) -> BinaryIO:
    """Open a file, or refuse what is not a regular file that can be read."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise _RefusedError("a folder, not an image")
        if not stat.S_ISREG(mode):
            raise _RefusedError("not a regular file")
        return path.open("rb")
    except FileNotFoundError:
        raise _RefusedError("a link to nothing" if path.is_symlink() else "no such file") from None
    except (OSError, ValueError) as error:
        raise _RefusedError(f"cannot be read: {reason_of(error)}") from None


def _what_it_is(head: bytes) -> str:
    """Say what a file is that no decoder takes."""
    if not head:
        return "the file is empty"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    kinds = {b"<!doctype html": "a web page", b"<html": "a web page", b"%pdf": "a PDF", b"<svg": "an SVG drawing"}
    kinds |= {b"<?xml": "an XML file", b"pk\x03\x04": "a ZIP archive", b"\x1f\x8b": "a gzip archive"}
    for magic, kind in kinds.items():
        if start.startswith(magic):
            return f"not an image but {kind}"
    if b"\0" not in head and head.isascii():
        return "not an image but text"
    return "not an image of a kind that can be read"


def _decode(file: BinaryIO, head: bytes, limit: int, exif: bool) -> DecodedImage:
    if head[4:8] == b"ftyp":
        _check_plugin(head[8:12])
    Image.init()
    with Image.open(file, formats=[name for name in _FORMATS if name in Image.OPEN]) as image:
        if image.width * image.height > limit:
            raise _RefusedError(
                f"{image.width} x {image.height} pixels are more than the limit of {limit:,} (max_pixels)"
            )
        several = image.format != "MPO" and getattr(image, "is_animated", False)
        image.load()
        turn = _TRANSPOSE.get(_orientation(image)) if exif else None
        pixels = _to_rgb(image if turn is None else image.transpose(turn))
    return DecodedImage(pixels, ("the first of several frames was taken",) if several else ())


def _check_plugin(brand: bytes) -> None:
    """Make HEIC readable where its plug-in is installed, else refuse naming it."""
    if brand in (b"avif", b"avis"):
        if not features.check("avif") and find_spec("pillow_avif") is None:
            raise _RefusedError("AVIF images need a plug-in: pip install pillow-avif-plugin")
        if not features.check("avif"):
            import_module("pillow_avif")
    elif find_spec("pillow_heif") is None:
        raise _RefusedError("HEIC images need a plug-in: pip install pillow-heif")
    else:
        import_module("pillow_heif").register_heif_opener()


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, or 1 where there is none that can be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a broken EXIF block is no reason to refuse a picture that decodes
        return 1


def _to_rgb(image: Image.Image) -> UInt8[np.ndarray, "h w 3"]:
    if image.mode.startswith("I") or image.mode == "F":
        grey = _scale_to_bytes(np.asarray(image))
        return np.repeat(grey[..., None], 3, axis=2)
    profile = image.info.get("icc_profile")
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        colours = _to_srgb(layers.convert("RGB"), profile)
        white = Image.new("RGB", layers.size, "white")
        return np.array(Image.composite(colours, white, layers.getchannel("A")))
    if image.mode in ("1", "P", "HSV", "YCbCr"):
        image = image.convert("RGB")
    return np.array(_to_srgb(image, profile))


def _to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Convert to RGB by the embedded colour profile, or by the mode's plain meaning where it has none that fits."""
    if image.mode == "LAB":
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    if profile:
        try:
            transform = _transform(profile, image.mode)
            if transform is None:
                return image
            converted = ImageCms.applyTransform(image, transform)
            assert converted is not None  # it is only None in place
            return converted
        except (ImageCms.PyCMSError, OSError):  # a broken profile, or one for another kind of image
            pass
    return image.convert("RGB")


@lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from a profile to sRGB, or None where it would only move colours by rounding.

    Most profiles are sRGB's own. Building and applying a transform takes longer than decoding, and many files have the
    same profile.
    """
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    if mode == "RGB":
        levels = np.arange(0, 256, 15, dtype=np.uint8)
        colours = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(len(levels), -1, 3)
        moved = np.asarray(ImageCms.applyTransform(Image.fromarray(colours), transform))
        if np.abs(moved.astype(int) - colours).max() <= 1:
            return None
    return transform


def _scale_to_bytes(values: np.ndarray) -> UInt8[np.ndarray, "h w"]:
    """Scale integers that fit 16 bits by 65,535, and floats and larger integers by their own range."""
    low, high = 0.0, 65_535.0
    floats = values.astype(np.float64)
    if not (np.issubdtype(values.dtype, np.integer) and values.min() >= 0 and values.max() <= high):
        finite = floats[np.isfinite(floats)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    floats = np.nan_to_num(floats, nan=low, posinf=high, neginf=low)
    return np.rint((floats - low) * (255.0 / (high - low) if high > low else 0.0)).astype(np.uint8)
