"""Masks of the evidence stage (paper, Sec. "Common Evidence Localization"): drawn, laid over an image, and applied.

A mask is a choice of cells on a coarse grid.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from faircontext.errors import ArgumentError, check_choice

__all__ = [
    "Filling",
    "Masks",
    "Occluder",
    "cell_of",
    "cell_of_pixel",
    "occlude",
    "one_fraction",
    "overlap",
    "sample_masks",
]

Filling = Literal["black", "mean", "blur"]
"""What takes the place of pixels."""
Occluder = Literal["black", "mean", "blur", "drop"]
"""What becomes of what a mask hides: a `Filling` in its place, or its patches are left out."""


@dataclass(frozen=True)
class Masks:
    """Random masks, each a set of cells of a grid laid over the image.

    Attributes:
        cells: per mask, a boolean grid of shape (g, g); True where the image is occluded.
        drawn: per mask, the size of the grid on which it was drawn, where `cells` are of another; see `on_patches`.
    """

    cells: tuple[Bool[Tensor, "_ _"], ...]
    drawn: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.cells)

    def first(self, count: int) -> "Masks":
        """Return the first masks: those of a run with fewer."""
        return self.select(range(min(count, len(self))))

    def select(self, rows: Sequence[int]) -> "Masks":
        """Return some of the masks."""
        drawn = None if self.drawn is None else tuple(self.drawn[row] for row in rows)
        return Masks(tuple(self.cells[row] for row in rows), drawn)

    @property
    def grids(self) -> tuple[int, ...]:
        """Sizes of the grids on which masks were drawn, smallest first."""
        return tuple(sorted({len(cells) for cells in self.cells} if self.drawn is None else set(self.drawn)))

    def on_patches(self, side: int, fraction: float | tuple[float, float]) -> "Masks":
        """Return what masks hide of a picture that is made of patches: equally many patches, those most covered.

        Args:
            side: patches along a side.
            fraction: gamma; `floor(gamma side^2 + 1/2)` patches are hidden, at least one and never all. Of patches
                that are covered alike, those that come first.

        Raises:
            ArgumentError: the fraction is a range.
        """
        count = _chosen(side, one_fraction(fraction))
        patches = [torch.empty(0)] * len(self)
        for grid, rows, chosen in self.by_grid():
            share = overlap(grid, side)
            covered = share.T @ chosen.double().unflatten(1, (grid, grid)) @ share
            order = (covered.flatten(1) * 1e6).round().sort(descending=True, stable=True).indices
            hidden = torch.zeros(len(rows), side**2, dtype=torch.bool).scatter_(1, order[:, :count], True)
            for row, cells in zip(rows.tolist(), hidden.unflatten(1, (side, side)), strict=True):
                patches[row] = cells
        return Masks(tuple(patches), tuple(len(cells) for cells in self.cells))

    def by_grid(self) -> Iterator[tuple[int, Int[Tensor, " chosen"], Bool[Tensor, "chosen cells"]]]:
        """Yield each grid size that occurs, smallest first, with the rows that have it and their cells, flattened."""
        sizes = torch.tensor([len(cells) for cells in self.cells])
        for grid in sizes.unique().tolist():
            rows = (sizes == grid).nonzero().flatten()
            yield grid, rows, torch.stack([self.cells[row].flatten() for row in rows.tolist()])

    def to(self, device: torch.device) -> "Masks":
        """Return the masks on a device, brought there by one copy."""
        if not self.cells or self.cells[0].device == device:
            return self
        flat = torch.cat([cells.flatten() for cells in self.cells]).to(device)
        parts = flat.split([cells.numel() for cells in self.cells])
        return Masks(tuple(part.view(cells.shape) for part, cells in zip(parts, self.cells, strict=True)), self.drawn)

    def pixels(self, start: int, stop: int, height: int, width: int) -> Bool[Tensor, "masks height width"]:
        """Return masks `start` to `stop` at pixel resolution, on their device: binary, not interpolated as RISE's."""
        chosen = self.cells[start:stop]
        index = {grid: cell_of_pixel(grid, height, width, chosen[0].device) for grid in {*map(len, chosen)}}
        return torch.stack([cells.flatten()[index[len(cells)]] for cells in chosen])


def cell_of_pixel(
    grid: int, height: int, width: int, device: torch.device | None = None
) -> Int[Tensor, "height width"]:
    """Return the flat index of the cell `(floor(u g / H), floor(v g / W))` that pixel (u, v) lies in."""
    return cell_of(grid, height, device)[:, None] * grid + cell_of(grid, width, device)


def cell_of(grid: int, side: int, device: torch.device | None = None) -> Int[Tensor, " side"]:
    """Return the cell that each pixel lies in along one axis: `floor(u g / H)`."""
    return torch.arange(side, device=device) * grid // side


@lru_cache(maxsize=64)
def overlap(own: int, other: int) -> Float[Tensor, "own other"]:
    """Return which share of each cell of another grid lies in each cell of a grid, along one axis."""
    left, right = torch.arange(own, dtype=torch.float64) / own, torch.arange(1, own + 1, dtype=torch.float64) / own
    low, high = (torch.arange(start, other + start, dtype=torch.float64) / other for start in (0, 1))
    return other * (torch.minimum(right[:, None], high) - torch.maximum(left[:, None], low)).clamp_min(0.0)


def one_fraction(fraction: float | tuple[float, float]) -> float:
    """Return the fraction that all masks hide, which patches that are left out need.

    Raises:
        ArgumentError: it is a range.
    """
    if isinstance(fraction, tuple):
        raise ArgumentError(
            f'gamma={fraction} is not possible with occluder="drop", where all masks hide equally many patches; give '
            "one number"
        )
    return fraction


def _chosen(grid: int, fraction: float) -> int:
    """Return how many cells of a grid are hidden: `floor(gamma g^2 + 1/2)`, at least one and never all."""
    return int(np.clip(np.floor(fraction * grid**2 + 0.5), 1, grid**2 - 1))


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
        mask = torch.zeros(grid**2, dtype=torch.bool)
        mask[torch.from_numpy(rng.permutation(grid**2)[: _chosen(grid, gamma)])] = True
        cells.append(mask.view(grid, grid))
    return Masks(tuple(cells))


def occlude(
    image: Float[Tensor, "3 height width"], masks: Bool[Tensor, "masks height width"], occluder: Filling = "black"
) -> Float[Tensor, "masks 3 height width"]:
    """Replace the masked pixels, before normalisation: black (paper), the image's mean colour, or a blurred copy."""
    check_choice("occluder", occluder, get_args(Filling))
    if occluder == "black":
        return image * ~masks[:, None]
    if occluder == "mean":
        filling = image.mean((1, 2), keepdim=True)
    else:
        import torchvision.transforms.v2.functional as tvf  # takes a second

        size = max(1, min(image.shape[1:]) // 8) | 1
        filling = tvf.gaussian_blur(image, [size, size], [size / 3.0, size / 3.0])
    return torch.where(masks[:, None], filling, image)
