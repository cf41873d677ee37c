"""From what a decoder gives, of any mode and depth, to RGB of eight bits."""

import io
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image, ImageCms

__all__ = ["Coding", "coding_of", "to_rgb"]

_BITS, _PHOTOMETRIC, _FORMAT = 258, 262, 339  # tags of TIFF


@dataclass(frozen=True)
class Coding:
    """What a file says of its numbers beyond Pillow's mode.

    Attributes:
        white: the largest number that its depth allows, or None where no depth is known up to 16 bits.
        unsigned: whether 32-bit integers have no sign, which Pillow's mode has.
        signed: whether bytes have a sign, which Pillow's mode has not.
        inverted: whether 0 is white, where Pillow leaves that as it is.
        packing: how the file packs its numbers, as Pillow calls it, where that is a word.
    """

    white: int | None = None
    unsigned: bool = False
    signed: bool = False
    inverted: bool = False
    packing: str = ""


def coding_of(image: Image.Image) -> Coding:
    """Read what a file says of its numbers, before its pixels are decoded, which forgets some of it."""
    wide = image.mode.startswith("I") or image.mode == "F"
    tile = getattr(image, "tile", None)
    packing = tile[0][3] if tile and isinstance(tile[0][3], str) else ""
    white = 65_535 if image.mode.startswith("I;16") or (image.format == "PPM" and image.mode == "I") else None
    tags = getattr(image, "tag_v2", None)
    if tags is None:
        return Coding(white, packing=packing)
    bits, kind = tags.get(_BITS, (1,))[0], tags.get(_FORMAT, (1,))[0]
    if not wide:
        return Coding(signed=image.mode == "L" and kind == 2, packing=packing)
    white = 2**bits - 1 if kind == 1 and bits <= 16 else None
    return Coding(white, kind == 1 and bits == 32, inverted=tags.get(_PHOTOMETRIC) == 0, packing=packing)


def _transparency(value: object, packing: str) -> object:
    """Bring a PNG's transparent number or colour, which has the file's depth, to that of the decoded pixels."""
    if isinstance(value, int):
        return value * {"L;2": 85, "L;4": 17}.get(packing, 1)
    if isinstance(value, tuple) and packing == "RGB;16B":
        return tuple(number >> 8 for number in value)  # colours that decode to the same one cannot be told apart
    return value


def to_rgb(image: Image.Image, coding: Coding) -> UInt8[np.ndarray, "h w 3"]:
    """Return the pixels of a decoded image as RGB, transparency on white, by its colour profile."""
    transparency = _transparency(image.info.get("transparency"), coding.packing)
    if image.mode.startswith("I") or image.mode == "F" or coding.signed:
        values = np.asarray(image)
        if coding.signed:
            values = values.view(np.int8)
        grey = _grey(values, coding)
        if isinstance(transparency, int):
            grey[values == transparency] = 255
        return np.repeat(grey[..., None], 3, axis=2)
    profile = image.info.get("icc_profile")
    if transparency is not None:
        image.info["transparency"] = transparency
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        colours = _to_srgb(layers.convert("RGB"), profile)
        white = Image.new("RGB", layers.size, "white")
        return np.array(Image.composite(colours, white, layers.getchannel("A")))
    if image.mode in ("1", "P", "HSV", "YCbCr"):
        image = image.convert("RGB")
    return np.array(_to_srgb(image, profile))


def _grey(values: Shaped[np.ndarray, "h w"], coding: Coding) -> UInt8[np.ndarray, "h w"]:
    """Scale integers and floats that are no bytes without a sign to 8 bits."""
    if coding.unsigned and values.dtype == np.int32:
        values = np.ascontiguousarray(values).view(np.uint32)
    floats = values.astype(np.float64)
    low, high = _range(values, floats, coding.white)
    floats = np.nan_to_num(floats, nan=low, posinf=high, neginf=low)
    grey = np.rint((floats - low) * (255.0 / (high - low) if high > low else 0.0)).astype(np.uint8)
    return 255 - grey if coding.inverted else grey


def _range(
    values: Shaped[np.ndarray, "h w"], floats: Shaped[np.ndarray, "h w"], white: int | None
) -> tuple[float, float]:
    """Return the numbers that stand for black and white.

    Up to 16 bits the depth says it. Wider integers often hold narrower ones: those from 0 to 255 are taken for 8 bits,
    those to 65,535 for 16. All others, and floats, have no convention: black and white are the least and the largest.
    """
    if white is not None:
        return 0.0, float(white)
    if np.issubdtype(values.dtype, np.integer) and values.min() >= 0:
        for top in (255, 65_535):
            if values.max() <= top:
                return 0.0, float(top)
    finite = floats[np.isfinite(floats)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


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
