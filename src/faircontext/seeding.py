"""Random streams that depend on (seed, image, purpose) alone, so that an image's answer does too.

No global generator is used anywhere in the core: two images, two methods or two threads never share a stream, and
the answer for an image is the same alone, in any order and in any shard.
"""

import hashlib
from typing import Literal, get_args

import numpy as np
from jaxtyping import UInt8

from faircontext.errors import check_minimum

__all__ = ["Purpose", "image_id", "stream"]

Purpose = Literal["views", "masks", "augmix", "context", "lora", "order"]
# A purpose's position is its key, so that results stay reproducible: append, never reorder.
_PURPOSES = get_args(Purpose)


def image_id(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """Return the SHA-256 of the decoded pixels and their shape, in hexadecimal.

    A path would differ between a run on a file and one on its folder; pixels do not.
    """
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()


def stream(seed: int, image: str, purpose: Purpose) -> np.random.Generator:
    """Return the generator of one purpose for one image.

    Args:
        seed: the run's seed, not negative.
        image: the image's id (hexadecimal), see `image_id`.
        purpose: what the numbers are for; each purpose has a stream of its own.
    """
    check_minimum("seed", seed, 0)
    return np.random.default_rng(np.random.SeedSequence([seed, int(image, 16), _PURPOSES.index(purpose)]))
