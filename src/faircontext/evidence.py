"""Class evidence maps and common evidence (paper, Sec. "Common Evidence Localization").

A mask is a choice of cells on a coarse grid. All masks of one grid size share their cells, so a class evidence map is a
small sum over cells that is spread to pixels once: memory and time do not grow with masks times pixels.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torchvision.transforms.v2.functional as tvf
from jaxtyping import Bool, Float, Int
from torch import Tensor

from faircontext.errors import check_choice

__all__ = [
    "EvidenceScaling",
    "Masks",
    "Occluder",
    "Proxy",
    "common_evidence",
    "control_picture",
    "evidence_maps",
    "occlude",
    "sample_masks",
    "unique_evidence",
]

Occluder = Literal["black", "mean", "blur"]
EvidenceScaling = Literal["none", "max", "minmax"]
Proxy = Literal["evidence", "image", "mean", "grey", "black"]


@dataclass(frozen=True)
class Masks:
    """Random masks, each a set of cells of a grid laid over the image.

    Attributes:
        cells: per mask, a boolean grid of shape (g, g); True where the image is occluded.
    """

    cells: tuple[Bool[Tensor, "_ _"], ...]

    def __len__(self) -> int:
        return len(self.cells)

    def first(self, count: int) -> "Masks":
        """Return the first masks: those of a run with fewer."""
        return Masks(self.cells[:count])

    def pixels(self, start: int, stop: int, height: int, width: int) -> Bool[Tensor, "masks height width"]:
        """Return masks `start` to `stop` at pixel resolution: binary, no interpolation (unlike RISE)."""
        return torch.stack(
            [cells.flatten()[_cell_of_pixel(len(cells), height, width)] for cells in self.cells[start:stop]]
        )


def _cell_of_pixel(grid: int, height: int, width: int) -> Int[Tensor, "height width"]:
    """Return the flat index of the cell `(floor(u g / H), floor(v g / W))` that pixel (u, v) lies in."""
    rows = torch.arange(height) * grid // height
    columns = torch.arange(width) * grid // width
    return rows[:, None] * grid + columns


def sample_masks(
    count: int, rng: np.random.Generator, grids: tuple[int, ...], fraction: float | tuple[float, float]
) -> Masks:
    """Draw masks, each on a grid of random size with `floor(gamma g^2 + 1/2)` cells chosen without replacement.

    Masks are drawn one after the other, so the first n of a longer run are the run of n.

    Args:
        count: number of masks `N_m`.
        rng: the image's stream for masks.
        grids: grid sizes to choose from, at least 2 each.
        fraction: gamma, the fraction of cells that is occluded, or a range from which each mask draws its own.
    """
    cells = []
    for _ in range(count):
        grid = grids[rng.integers(len(grids))]
        gamma = rng.uniform(*fraction) if isinstance(fraction, tuple) else fraction
        chosen = int(np.clip(np.floor(gamma * grid**2 + 0.5), 1, grid**2 - 1))
        mask = torch.zeros(grid**2, dtype=torch.bool)
        mask[torch.from_numpy(rng.permutation(grid**2)[:chosen])] = True
        cells.append(mask.view(grid, grid))
    return Masks(tuple(cells))


def occlude(
    image: Float[Tensor, "3 height width"], masks: Bool[Tensor, "masks height width"], occluder: Occluder = "black"
) -> Float[Tensor, "masks 3 height width"]:
    """Replace the masked pixels, before normalisation: black (paper), the image's mean colour, or a blurred copy."""
    check_choice("occluder", occluder, ("black", "mean", "blur"))
    if occluder == "black":
        return image * ~masks[:, None]
    if occluder == "mean":
        filling = image.mean((1, 2), keepdim=True)
    else:
        size = max(1, min(image.shape[1:]) // 8) | 1
        filling = tvf.gaussian_blur(image, [size, size], [size / 3.0, size / 3.0])
    return torch.where(masks[:, None], filling, image)


def evidence_maps(
    importance: Float[Tensor, "masks classes"], masks: Masks, height: int, width: int
) -> Float[Tensor, "classes height width"]:
    """Return `E_c = (1 / N_m) sum_n dl_c(M_n) M_n`, the class evidence maps.

    Args:
        importance: `dl_c(M_n)`, the rise of the negative log-posterior of class c when mask n occludes the image.
        masks: the masks, in the order of the rows of `importance`.
        height: of the maps, in pixels.
        width: of the maps, in pixels.
    """
    maps = importance.new_zeros(importance.shape[1], height, width)
    sizes = torch.tensor([len(cells) for cells in masks.cells])
    for grid in sizes.unique().tolist():
        rows = (sizes == grid).nonzero().flatten()
        chosen = torch.stack([masks.cells[row].flatten() for row in rows.tolist()]).to(importance)
        per_cell = importance[rows.to(importance.device)].T @ chosen
        maps += per_cell[:, _cell_of_pixel(grid, height, width).to(importance.device)]
    return maps / len(masks)


def common_evidence(
    maps: Float[Tensor, "classes height width"], pairs: Int[Tensor, "2 pairs"], scaling: EvidenceScaling = "max"
) -> Float[Tensor, "pairs height width"]:
    """Return `Q_ij = S_i S_j / sum(S_i S_j)` with `S_c` the pixel-wise softmax of `E_c`, scaled.

    Products of softmaxes renormalised are the softmax of the sum, so `Q_ij = softmax(E_i + E_j)` over pixels.

    Args:
        maps: class evidence maps.
        pairs: class positions `i`, `j` of each pair.
        scaling: `"none"` (the formula as printed: values of about 1 / (H W), so that the weighted image is black),
            `"max"` (divided by the maximum) or `"minmax"` (stretched to [0, 1]; a constant map becomes ones).
    """
    return _scaled_softmax(maps[pairs[0]] + maps[pairs[1]], scaling)


def unique_evidence(
    maps: Float[Tensor, "classes height width"], pairs: Int[Tensor, "2 pairs"]
) -> Float[Tensor, "pairs height width"]:
    """Return `S_i (1 - Q_ij)`, the evidence of class i that class j does not share; both maps stretched to [0, 1].

    With the scaling `"max"` the product would vanish where evidence is: `Q` is 1 at its own maximum.

    Args:
        maps: class evidence maps.
        pairs: class positions `i`, `j` of each pair; the order matters.
    """
    own = _scaled_softmax(maps[pairs[0]], "minmax")
    return own * (1.0 - common_evidence(maps, pairs, "minmax"))


def _scaled_softmax(
    maps: Float[Tensor, "maps height width"], scaling: EvidenceScaling
) -> Float[Tensor, "maps height width"]:
    """Return the softmax of maps over pixels, scaled; see `common_evidence`."""
    check_choice("evidence_scaling", scaling, ("none", "max", "minmax"))
    if scaling == "none":
        return maps.flatten(1).softmax(-1).view_as(maps)
    relative = (maps - maps.amax((1, 2), keepdim=True)).exp()
    if scaling == "max":
        return relative
    low = relative.amin((1, 2), keepdim=True)
    return torch.where(low < 1.0, (relative - low) / (1.0 - low).clamp_min(torch.finfo(low.dtype).tiny), 1.0)


def control_picture(image: Float[Tensor, "3 height width"], proxy: Proxy) -> Float[Tensor, "3 height width"]:
    """Return a picture that takes the place of common evidence, to tell what localisation contributes.

    Args:
        image: values in [0, 1].
        proxy: `"image"` (all of it), `"mean"` (its mean colour everywhere), `"grey"` (one half) or `"black"`.
    """
    check_choice("proxy", proxy, ("image", "mean", "grey", "black"))
    if proxy == "image":
        return image
    if proxy == "mean":
        return image.mean((1, 2), keepdim=True).expand_as(image)
    return torch.full_like(image, 0.5 if proxy == "grey" else 0.0)
