"""AugMix on the crops of an image (Hendrycks et al. 2020, with the operations and severity of TPT's repository)."""

import math
from collections.abc import Callable

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from jaxtyping import UInt8
from torch import Tensor

__all__ = ["augmix"]

_CHAINS, _DEPTHS = 3, (1, 2, 3)

Operation = Callable[[PIL.Image.Image, float, float], PIL.Image.Image]


def _shift(picture: PIL.Image.Image, *coefficients: float) -> PIL.Image.Image:
    return picture.transform(picture.size, PIL.Image.Transform.AFFINE, coefficients, PIL.Image.Resampling.BILINEAR)


def _pixels(picture: PIL.Image.Image, level: float) -> int:
    return int(picture.size[0] / 3 * level / 10)


# Each takes a level in [0.1, 1) and a sign; magnitudes are those of severity 1.
_OPERATIONS: tuple[Operation, ...] = (
    lambda picture, *_: PIL.ImageOps.autocontrast(picture),
    lambda picture, *_: PIL.ImageOps.equalize(picture),
    lambda picture, level, _: PIL.ImageOps.posterize(picture, 4 - int(4 * level / 10)),
    lambda picture, level, sign: picture.rotate(sign * int(30 * level / 10), PIL.Image.Resampling.BILINEAR),
    lambda picture, level, _: PIL.ImageOps.solarize(picture, 256 - int(25.6 * level)),
    lambda picture, level, sign: _shift(picture, 1, sign * 0.3 * level / 10, 0, 0, 1, 0),
    lambda picture, level, sign: _shift(picture, 1, 0, 0, sign * 0.3 * level / 10, 1, 0),
    lambda picture, level, sign: _shift(picture, 1, 0, sign * _pixels(picture, level), 0, 1, 0),
    lambda picture, level, sign: _shift(picture, 1, 0, 0, 0, 1, sign * _pixels(picture, level)),
)


def augmix(crops: UInt8[Tensor, "crops 3 size size"], rng: np.random.Generator) -> UInt8[Tensor, "crops 3 size size"]:
    """Mix each crop with three chains of one to three random operations.

    Args:
        crops: views after crop and flip.
        rng: the image's stream for AugMix.

    Returns:
        `m x + (1 - m) sum_j w_j chain_j(x)`, rounded to 8 bits, with `m` uniform and `w` from Dirichlet(1, 1, 1).
    """
    mixed = torch.empty_like(crops)
    for crop, out in zip(crops, mixed, strict=True):
        weights, share = rng.dirichlet(np.ones(_CHAINS)), rng.beta(1.0, 1.0)
        picture = PIL.Image.fromarray(crop.permute(1, 2, 0).numpy())
        total = share * np.asarray(picture, dtype=np.float64)
        for weight in weights:
            total += (1.0 - share) * weight * np.asarray(_chain(picture, rng), dtype=np.float64)
        out.copy_(torch.from_numpy(np.rint(total.clip(0.0, 255.0)).astype(np.uint8)).permute(2, 0, 1))
    return mixed


def _chain(picture: PIL.Image.Image, rng: np.random.Generator) -> PIL.Image.Image:
    for _ in range(_DEPTHS[math.floor(rng.random() * len(_DEPTHS))]):
        operation = _OPERATIONS[math.floor(rng.random() * len(_OPERATIONS))]
        picture = operation(picture, rng.uniform(0.1, 1.0), 1.0 if rng.random() < 0.5 else -1.0)
    return picture
