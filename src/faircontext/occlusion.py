"""What becomes of what a mask hides: its pixels turn black (the paper), or other things that studies compare."""

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from faircontext.errors import ArgumentError, check_choice
from faircontext.evidence import Masks, count_hidden, overlap

Filling = Literal["black", "mean", "blur"]
"""What takes the place of pixels."""
Occluder = Literal["black", "mean", "blur", "drop"]
"""What becomes of what a mask hides: a `Filling` in its place, or a vision transformer leaves its patches out."""


def occlude(
    image: Float[Tensor, "3 height width"], masks: Bool[Tensor, "masks height width"], filling: Filling = "black"
) -> Float[Tensor, "masks 3 height width"]:
    """Replace the masked pixels, before normalisation: black (paper), the image's mean colour, or a blurred copy."""
    check_choice("occluder", filling, get_args(Filling))
    if filling == "black":
        return image * ~masks[:, None]
    if filling == "mean":
        instead = image.mean((1, 2), keepdim=True)
    else:
        import torchvision.transforms.v2.functional as tvf  # takes a second

        size = max(1, min(image.shape[1:]) // 8) | 1
        instead = tvf.gaussian_blur(image, [size, size], [size / 3.0, size / 3.0])
    return torch.where(masks[:, None], instead, image)


def on_patches(masks: Masks, side: int, gamma: float | tuple[float, float]) -> Masks:
    """Return what masks hide of an image that is made of patches: equally many patches, those most covered.

    Args:
        masks: drawn on grids of cells.
        side: patches along a side.
        gamma: `floor(gamma side^2 + 1/2)` patches are hidden, at least one and never all. Of patches that are covered
            alike, those that come first.

    Raises:
        ArgumentError: gamma is a range.
    """
    count = count_hidden(side, one_gamma(gamma))
    patches = [torch.empty(0)] * len(masks)
    for grid, rows, chosen in masks.by_grid():
        share = overlap(grid, side)
        covered = share.T @ chosen.double().unflatten(1, (grid, grid)) @ share
        order = (covered.flatten(1) * 1e6).round().sort(descending=True, stable=True).indices
        hidden = torch.zeros(len(rows), side**2, dtype=torch.bool).scatter_(1, order[:, :count], True)
        for row, cells in zip(rows.tolist(), hidden.unflatten(1, (side, side)), strict=True):
            patches[row] = cells
    return Masks(tuple(patches), tuple(len(cells) for cells in masks.cells))


def one_gamma(gamma: float | tuple[float, float]) -> float:
    """Return the fraction that all masks hide, which patches that are left out need.

    Raises:
        ArgumentError: it is a range.
    """
    if isinstance(gamma, tuple):
        raise ArgumentError(
            f'gamma={gamma} is not possible with occluder="drop", where all masks hide equally many patches; give '
            "one number"
        )
    return gamma
