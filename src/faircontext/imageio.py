"""The one way in for images: any file that Pillow reads becomes an RGB array, or is refused with the file's name."""

import warnings
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from faircontext.errors import ImageError, check_minimum

__all__ = ["EXTENSIONS", "MAX_PIXELS", "load_image"]

EXTENSIONS = frozenset(
    f".{name}" for name in "jpg jpeg jpe jfif png apng webp bmp dib gif tif tiff ppm pgm pbm tga".split()
)
"""What counts as an image when a folder is searched; a file that is named is always tried."""

MAX_PIXELS = 178_000_000
"""Largest image that is decoded, in pixels; just below the limit at which Pillow itself refuses."""


def load_image(path: Path | str, *, max_pixels: int = MAX_PIXELS, exif: bool = True) -> UInt8[np.ndarray, "h w 3"]:
    """Decode one image file to RGB.

    EXIF orientation is applied, transparency is composited on white, 16-bit and float images are scaled to 8 bits (not
    clipped), palettes and CMYK are converted, and of an animation the first frame is taken.

    Args:
        path: the file.
        max_pixels: larger images are refused; may lower the default limit, not raise it.
        exif: whether to apply the EXIF orientation (published numbers are often measured without).

    Raises:
        ImageError: the file cannot be read as an image, or is too large; the message names it and says why.
    """
    check_minimum("max_pixels", max_pixels, 1)
    limit = min(max_pixels, MAX_PIXELS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's hint at large images; the limit above decides
            with Image.open(path) as image:
                if image.width * image.height > limit:
                    raise ImageError(path, _too_large(image.width, image.height, limit))
                image.load()
                return _to_rgb(ImageOps.exif_transpose(image) if exif else image)
    except ImageError:
        raise
    except UnidentifiedImageError:
        reason = "the file is empty" if Path(path).stat().st_size == 0 else "not an image that can be read"
        raise ImageError(path, reason) from None
    except Image.DecompressionBombError:
        raise ImageError(path, f"more than the limit of {limit:,} pixels (max_pixels)") from None
    except OSError as error:
        raise ImageError(path, (error.strerror or str(error)).lower()) from None
    except Exception as error:  # decoders raise anything on broken files; a bad file never ends a run
        raise ImageError(path, f"cannot be decoded ({type(error).__name__}: {error})") from None


def _too_large(width: int, height: int, limit: int) -> str:
    return f"{width} x {height} pixels are more than the limit of {limit:,} (max_pixels)"


def _to_rgb(image: Image.Image) -> UInt8[np.ndarray, "h w 3"]:
    if image.mode.startswith("I") or image.mode == "F":
        grey = _scale_to_bytes(np.asarray(image))
        return np.repeat(grey[..., None], 3, axis=2)
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        white = Image.new("RGBA", layers.size, "white")
        image = Image.alpha_composite(white, layers)
    return np.array(image.convert("RGB"))


def _scale_to_bytes(values: np.ndarray) -> UInt8[np.ndarray, "h w"]:
    """Scale 16-bit integers by 65,535, and floats and larger integers by their own range."""
    floats = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(floats.min()), float(floats.max())
    if np.issubdtype(values.dtype, np.integer) and low >= 0 and high <= 65_535:
        low, high = 0.0, 65_535.0
    span = high - low
    return np.rint((floats - low) * (255.0 / span if span else 0.0)).astype(np.uint8)
