"""Camera raw to RGB by LibRaw, where rawpy is installed."""

import numpy as np
from jaxtyping import UInt8

from faircontext.imagefiles import BinaryFile, UnreadableError

__all__ = ["develop"]


def develop(file: BinaryFile, limit: int, exif: bool) -> UInt8[np.ndarray, "height width 3"]:
    """Develop camera raw with the camera's white balance, as sRGB of 8 bits.

    Args:
        file: of camera raw.
        limit: larger images are unreadable, in pixels.
        exif: whether the picture is turned as the camera says.

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
