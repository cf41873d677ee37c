"""The one way in for images: any file that Pillow reads, of any mode and depth, becomes an RGB array of 8 bits."""

import io
import logging
import os
import threading
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image, ImageCms, UnidentifiedImageError

from faircontext import imagefiles
from faircontext.errors import ImageError, check_minimum, check_type
from faircontext.imagefiles import (
    PNG,
    BinaryFile,
    RawError,
    UnreadableError,
    check_plugin,
    check_raw,
    image_page,
    read_tiff,
    what_it_is,
    without_bad_metadata,
)
from faircontext.sources import ArrayRow, Cell, Content, Member, Remote, Source, open_source

EXTENSIONS = frozenset(
    f".{name}" for name in "jpg jpeg jpe jfif png apng webp bmp dib gif tif tiff ppm pgm pbm tga avif heic heif".split()
)
"""What counts as an image when a folder is searched; a file that is named is always tried."""


def image_extensions() -> frozenset[str]:
    """Return `EXTENSIONS`, and those of camera raw where it can be read: where rawpy is installed."""
    return EXTENSIONS | imagefiles.RAW_EXTENSIONS if imagefiles.reads_raw() else EXTENSIONS


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
_EMPTY = ("wholly transparent: nothing is to be seen in it, and a white area is answered",)
_BITS, _PHOTOMETRIC, _FORMAT = 258, 262, 339  # tags of TIFF


@dataclass(frozen=True)
class DecodedImage:
    """A decoded image.

    Attributes:
        pixels: RGB.
        warnings: what was decided on the way, for example that only the first frame was taken.
    """

    pixels: UInt8[np.ndarray, "height width 3"]
    warnings: tuple[str, ...] = ()


def load_image(path: Source | str, *, max_pixels: int = MAX_PIXELS, exif: bool = True) -> UInt8[np.ndarray, "h w 3"]:
    """Decode one image file to RGB; see `read_image`, which also returns warnings."""
    return read_image(path, max_pixels=max_pixels, exif=exif).pixels


def read_image(path: Source | str, *, max_pixels: int = MAX_PIXELS, exif: bool = True) -> DecodedImage:
    """Decode one image to RGB.

    EXIF orientation is applied, an embedded colour profile is converted to sRGB, transparency is composited on white,
    palettes and CMYK are converted, and of an animation or a multi-page file the first image is taken; in a TIFF the
    first that is no reduced copy of another. Metadata that is too large or broken is left out, with a warning.

    Values of more than 8 bits are scaled to 8, not clipped. Those of 9 to 16 bits have the range of their depth. Wider
    integers from 0 to 255 have the range of 8 bits, those to 65,535 of 16; others, and floats, their own range.

    Camera raw is developed where rawpy is installed, and unreadable elsewhere: what could be read of it is a preview.

    Args:
        path: the file, or where else the image lies.
        max_pixels: larger images are unreadable; may lower the default limit, not raise it.
        exif: whether to apply the EXIF orientation (published numbers are often measured without).

    Raises:
        ImageError: the file cannot be read as an image, or is too large; the message names it and says why.
    """
    check_type("path", path, (str, os.PathLike, ArrayRow, Cell, Content, Member, Remote))
    check_type("max_pixels", max_pixels, int)
    check_minimum("max_pixels", max_pixels, 1)
    limit, head = min(max_pixels, MAX_PIXELS), b""
    try:
        source = path if isinstance(path, ArrayRow | Cell | Content | Member | Remote) else Path(path)
        with open_source(source) as file, _QUIET:
            head = file.read(1024)
            file.seek(0)
            return _read(file, head, limit, exif)
    except UnreadableError as error:
        reason = str(error)
    except UnidentifiedImageError:
        reason = what_it_is(head)
    except Image.DecompressionBombError:
        reason = f"more pixels than the limit of {limit:,} (max_pixels)"
    except MemoryError:
        reason = "not enough memory to decode it"
    except Exception as error:  # decoders raise anything on broken files; a bad file never ends a run
        reason = f"cannot be decoded: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    raise ImageError(str(path), reason)


class _Quiet:
    """Silences warnings and log lines, hints of decoders at odd files, in any number of threads.

    Filters of warnings are the process's own. Log lines go where the process wants them, and else nowhere.
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


def _read(file: BinaryFile, head: bytes, limit: int, exif: bool) -> DecodedImage:
    """Decode a file; an unreadable PNG once more without the metadata that is at fault, if any is."""
    try:
        return _decode(file, head, limit, exif)
    except RawError:
        if not imagefiles.reads_raw():
            raise
        developed = ("camera raw was developed with the camera's white balance",)
        return DecodedImage(_develop(file, limit, exif), developed)
    except (UnreadableError, Image.DecompressionBombError, MemoryError):
        raise
    except Exception:
        copy, left_out = without_bad_metadata(file) if head.startswith(PNG) else (file, ())
        if not left_out:
            raise
    image = _decode(copy, head, limit, exif)
    return replace(image, warnings=(*image.warnings, f"too large or broken, and left out: {', '.join(left_out)}"))


def _decode(file: BinaryFile, head: bytes, limit: int, exif: bool) -> DecodedImage:
    check_raw(head)
    if head[4:8] == b"ftyp":
        check_plugin(head)
    tiff = read_tiff(file, head)
    page = image_page(tiff) if tiff else 0
    file.seek(0)
    Image.init()
    try:
        opened = Image.open(file, formats=[name for name in _FORMATS if name in Image.OPEN])
    except (UnidentifiedImageError, KeyError):
        if tiff is None:
            raise
        raise UnreadableError(tiff.description()) from None
    with opened as image:
        if page:
            image.seek(page)
        if image.width * image.height > limit:
            raise UnreadableError(
                f"{image.width} x {image.height} pixels are more than the limit of {limit:,} (max_pixels)"
            )
        is_animated = image.format != "MPO" and getattr(image, "is_animated", False)
        coding = _coding_of(image, head)
        # Pillow's decoder of TIFF turns the image itself, and then has no orientation any more.
        turned = _orientation(image) if image.format == "TIFF" else 1
        image.load()
        turn = _TRANSPOSE.get(_orientation(image) if exif else _UNDONE_BY.get(turned, turned))
        decoded = _to_rgb(image if turn is None else image.transpose(turn), coding)
    first = "the first of several frames was taken"
    taken = f"page {page + 1} was taken, as those before are reduced copies" if page else first
    return replace(decoded, warnings=((taken,) if is_animated else ()) + decoded.warnings)


def _develop(file: BinaryFile, limit: int, exif: bool) -> UInt8[np.ndarray, "height width 3"]:
    """Develop camera raw with the camera's white balance, as sRGB of 8 bits.

    Args:
        file: of camera raw.
        limit: larger images are unreadable, in pixels.
        exif: whether the image is turned as the camera says.

    Raises:
        UnreadableError: LibRaw cannot read it, or it is too large.
    """
    import rawpy

    file.seek(0)
    try:
        with rawpy.imread(file) as raw:
            width, height = raw.sizes.raw_width, raw.sizes.raw_height
            if width * height > limit:
                raise UnreadableError(f"{width} x {height} pixels are more than the limit of {limit:,} (max_pixels)")
            pixels = raw.postprocess(use_camera_wb=True, output_bps=8, user_flip=None if exif else 0)
    except rawpy.LibRawError as error:
        text = error.args[0] if error.args else error
        reason = text.decode() if isinstance(text, bytes) else str(text)
        raise UnreadableError(f"camera raw that LibRaw cannot read: {reason}") from None
    return np.ascontiguousarray(pixels)


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, or 1 where there is none that can be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a broken EXIF block is no reason to refuse an image that decodes
        return 1


# From what a decoder gives to RGB of 8 bits


@dataclass(frozen=True)
class _Coding:
    """What a file says of its values beyond Pillow's mode.

    Attributes:
        white: the largest value that its depth allows, or None where no depth is known up to 16 bits.
        unsigned: whether 32-bit integers have no sign, which Pillow's mode has.
        signed: whether bytes have a sign, which Pillow's mode has not.
        inverted: whether 0 is white, where Pillow leaves that as it is.
        packing: how the file packs its values, as Pillow calls it, where that is a word.
        opaque: whether what Pillow takes for transparency is not said to be any.
    """

    white: int | None = None
    unsigned: bool = False
    signed: bool = False
    inverted: bool = False
    packing: str = ""
    opaque: bool = False


def _coding_of(image: Image.Image, head: bytes) -> _Coding:
    """Read what a file says of its values, before its pixels are decoded, which forgets some of it."""
    wide = image.mode.startswith("I") or image.mode == "F"
    tile = getattr(image, "tile", None)
    packing = tile[0][3] if tile and isinstance(tile[0][3], str) else ""
    white = 65_535 if image.mode.startswith("I;16") or (image.format == "PPM" and image.mode == "I") else None
    tags = getattr(image, "tag_v2", None)
    if tags is None:
        return _Coding(white, packing=packing, opaque=image.format == "TGA" and not head[17] & 0b1111)
    bits, kind = tags.get(_BITS, (1,))[0], tags.get(_FORMAT, (1,))[0]
    if not wide:
        return _Coding(signed=image.mode == "L" and kind == 2, packing=packing)
    white = 2**bits - 1 if kind == 1 and bits <= 16 else None
    return _Coding(white, kind == 1 and bits == 32, inverted=tags.get(_PHOTOMETRIC) == 0, packing=packing)


def _to_rgb(image: Image.Image, coding: _Coding) -> DecodedImage:
    """Return the pixels of a decoded image as RGB, transparency on white, by its colour profile."""
    transparency = image.info.get("transparency")  # of a PNG: in the file's depth, not that of the decoded pixels
    if isinstance(transparency, int):
        transparency *= {"L;2": 85, "L;4": 17}.get(coding.packing, 1)
    elif isinstance(transparency, tuple) and coding.packing == "RGB;16B":
        transparency = tuple(channel >> 8 for channel in transparency)  # colours that decode alike are one
    if image.mode.startswith("I") or image.mode == "F" or coding.signed:
        values = np.asarray(image)
        if coding.signed:
            values = values.view(np.int8)
        grey, clear = _grey(values, coding), values == (transparency if isinstance(transparency, int) else None)
        grey[clear] = 255
        return DecodedImage(np.repeat(grey[..., None], 3, axis=2), _EMPTY if np.all(clear) else ())
    profile = image.info.get("icc_profile")
    if transparency is not None:
        image.info["transparency"] = transparency
    if image.has_transparency_data and not coding.opaque:
        layers = image.convert("RGBA")
        colours, alpha = _to_srgb(layers.convert("RGB"), profile), layers.getchannel("A")
        pixels = np.array(Image.composite(colours, Image.new("RGB", layers.size, "white"), alpha))
        return DecodedImage(pixels, _EMPTY if alpha.getextrema() == (0, 0) else ())
    if coding.opaque or image.mode in ("1", "P", "HSV", "YCbCr"):
        image = image.convert("RGB")
    return DecodedImage(np.array(_to_srgb(image, profile)))


def _grey(values: Shaped[np.ndarray, "h w"], coding: _Coding) -> UInt8[np.ndarray, "h w"]:
    """Scale integers and floats that are no bytes without a sign to 8 bits.

    Up to 16 bits the depth says what black and white are. Wider integers often hold narrower ones: those from 0 to 255
    are taken for 8 bits, those to 65,535 for 16. All others, and floats, have no convention: black and white are the
    least and the largest.
    """
    if coding.unsigned and values.dtype == np.int32:
        values = np.ascontiguousarray(values).view(np.uint32)
    floats = values.astype(np.float64)
    if coding.white is not None:
        low, high = 0.0, float(coding.white)
    elif np.issubdtype(values.dtype, np.integer) and values.min() >= 0 and values.max() <= 65_535:
        low, high = 0.0, 255.0 if values.max() <= 255 else 65_535.0
    else:
        finite = floats[np.isfinite(floats)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    floats = np.nan_to_num(floats, nan=low, posinf=high, neginf=low)
    grey = np.rint((floats - low) * (255.0 / (high - low) if high > low else 0.0)).astype(np.uint8)
    return 255 - grey if coding.inverted else grey


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
