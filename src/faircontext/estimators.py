"""Class evidence maps from masks and what each of them cost a class, and how far such maps can be trusted.

A mask is a choice of cells of a grid, so a map that is linear in the masks is a sum over cells of each grid, spread to
pixels once. Spreading is separable: a smoothing kernel goes into the cells' profiles along both axes, so that it costs
nothing, and neither memory nor time grows with masks times pixels.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.errors import check_choice
from faircontext.evidence import evidence_maps
from faircontext.masks import Masks, cell_of, overlap

__all__ = ["Estimator", "Evidence", "least_squares_maps", "spread"]

Estimator = Literal["paper", "centred", "least-squares"]
"""How a map comes from masks; see `Evidence`."""

SPLITS = 8
"""Ways in which masks are halved for the reliability of a map."""

BLOCKS = 10
"""Groups of masks whose maps' spread gives a standard error."""

LATTICE = 28
"""Points along a side at which reliability is measured: far finer than the cells of masks and what smooths them."""

PENALTIES = tuple(10.0**step for step in torch.arange(-4.0, 2.25, 0.5).tolist())
"""Ridge penalties that leave-one-out chooses from, as shares of the largest eigenvalue."""


@dataclass(frozen=True)
class Evidence:
    """Class evidence maps with all that they were estimated from.

    Estimators, with `dl_n` the importance of mask `M_n` for a class and N masks:

    - `"paper"`: `(1/N) sum_n dl_n M_n`. Its expectation is that of `centred` plus the mean of `dl` times the coverage,
      a constant; its variance carries that mean as well, which is larger than what pixels differ by.
    - `"centred"`: `(1/N) sum_n (dl_n - mean of the other dl) M_n`, the sample covariance of `dl` and `M(u)`: unbiased
      for it, with variance `Var[(dl - E dl)(M(u) - E M(u))] / N` up to terms of order `1 / N^2`.
    - `"least-squares"`: ridge regression of `dl` on how much of each cell is hidden, the cells being those of all grids
      together; the penalty is chosen by leave-one-out in closed form. See `least_squares_maps`.

    Attributes:
        importance: `dl_c(M_n)`, see `faircontext.evidence.importance`.
        masks: in the order of its rows.
        height: of the maps, in pixels.
        width: of the maps, in pixels.
        estimator: see above.
        smoothing: standard deviation of the Gaussian kernel that maps are smoothed by, as a fraction of the side; 0 for
            none. At the edges the kernel is cut and normalised.
    """

    importance: Float[Tensor, "masks classes"]
    masks: Masks
    height: int
    width: int
    estimator: Estimator = "paper"
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, get_args(Estimator))

    @cached_property
    def maps(self) -> Float[Tensor, "classes height width"]:
        """The maps `E_c`, in nats."""
        if self.estimator == "paper" and self.smoothing == 0.0:
            maps = evidence_maps(self._table, self.masks, self.height, self.width)
        else:
            maps = self._estimate(torch.arange(len(self.masks)), self.height, self.width)
        return maps.to(self.importance.device)

    @cached_property
    def _table(self) -> Float[Tensor, "masks classes"]:
        """The importance on the CPU, where the masks are: small sums, which would keep an accelerator waiting."""
        return self.importance.cpu()

    @cached_property
    def _regression(self) -> "_Regression":
        return _Regression.of(self._table, self.masks)

    def _estimate(self, rows: Tensor, height: int, width: int) -> Float[Tensor, "classes height width"]:
        """Estimate the maps from some of the masks, on the CPU."""
        if self.estimator == "least-squares":
            return self._regression.maps(rows, height, width, self.smoothing)
        chosen, masks = self._table[rows], self.masks.select(rows.tolist())
        return spread(_linear_weights(chosen, self.estimator), masks, height, width, self.smoothing)

    def contrast(self, first: int, second: int) -> "Evidence":
        """Return the evidence of one class against another, `E_i - E_j`, as that of a single class.

        Args:
            first: position of class i.
            second: position of class j.
        """
        difference = self.importance[:, [first]] - self.importance[:, [second]]
        return Evidence(difference, self.masks, self.height, self.width, self.estimator, self.smoothing)

    @cached_property
    def reliability(self) -> Float[Tensor, " classes"]:
        """How well each map would agree with that of as many other masks: the expected correlation, from 0 to 1.

        The masks are halved in `SPLITS` ways, always the same; the correlation r of the halves' maps over a lattice,
        averaged over the ways, is that of half as many masks, and Spearman and Brown's `2 r / (1 + r)` that of all. A
        mean below zero counts as 0, as does a map that is the same everywhere. With fewer than 4 masks it is 0. Least
        squares keeps the penalty that all masks chose, in proportion to their number; so does `error`.
        """
        count = len(self.masks)
        if count < 4:
            return self.importance.new_zeros(self.importance.shape[1])
        correlations = []
        for split in range(SPLITS):
            order = torch.randperm(count, generator=torch.Generator().manual_seed(split))
            first, second = (
                self._estimate(half.sort().values, LATTICE, LATTICE).flatten(1).double()
                for half in (order[: count // 2], order[count // 2 : 2 * (count // 2)])
            )
            correlations.append(_correlation(first, second))
        r = torch.stack(correlations).mean(0).clamp_min(0.0)
        return (2.0 * r / (1.0 + r)).to(self.importance)

    def error(self, side: int = LATTICE) -> Float[Tensor, "classes side side"]:
        """Return the standard error of the maps on a lattice, in nats, from the spread of the maps of `BLOCKS` groups.

        It is infinite with fewer than two masks a group.

        Args:
            side: points along each side.
        """
        count = len(self.masks)
        if count < 2 * BLOCKS:
            return self.importance.new_full((self.importance.shape[1], side, side), math.inf)
        groups = [self._estimate(torch.arange(start, count, BLOCKS), side, side) for start in range(BLOCKS)]
        return (torch.stack(groups).std(0) / math.sqrt(BLOCKS)).to(self.importance)


def _correlation(first: Float[Tensor, "rows n"], second: Float[Tensor, "rows n"]) -> Float[Tensor, " rows"]:
    """Return Pearson's correlation of rows; 0 where one is constant."""
    first, second = first - first.mean(1, keepdim=True), second - second.mean(1, keepdim=True)
    norms = first.norm(dim=1) * second.norm(dim=1)
    return torch.where(norms > 0, (first * second).sum(1) / norms.clamp_min(torch.finfo(norms.dtype).tiny), 0.0)


def _linear_weights(importance: Float[Tensor, "masks classes"], estimator: Estimator) -> Float[Tensor, "masks classes"]:
    """Return what each mask counts in the maps of the linear estimators."""
    count = len(importance)
    if estimator == "paper":
        return importance / count
    return (importance - importance.mean(0)) / max(1, count - 1)  # a single mask has no others to differ from


def spread(
    weights: Float[Tensor, "masks classes"], masks: Masks, height: int, width: int, smoothing: float = 0.0
) -> Float[Tensor, "classes height width"]:
    """Return the weighted sum of masks, smoothed: `sum_n w_n (k * M_n)`.

    Args:
        weights: of each mask, by class.
        masks: in the order of the rows.
        height: of the result, in pixels.
        width: of the result, in pixels.
        smoothing: see `Evidence`.
    """
    result = weights.new_zeros(weights.shape[1], height, width)
    for grid, rows, chosen in masks.by_grid():
        per_cell = weights[rows.to(weights.device)].T @ chosen.to(weights)
        result += _spread_cells(per_cell.unflatten(1, (grid, grid)), height, width, smoothing)
    return result


def _spread_cells(
    values: Float[Tensor, "classes grid grid"], height: int, width: int, smoothing: float
) -> Float[Tensor, "classes height width"]:
    """Return the field that has a value in each cell, smoothed."""
    rows, columns = (_profile(len(values[0]), side, smoothing).to(values) for side in (height, width))
    return rows @ values @ columns.T


@lru_cache(maxsize=64)
def _profile(grid: int, side: int, smoothing: float) -> Float[Tensor, "side grid"]:
    """Return how much of each cell a pixel's kernel sees, along one axis; rows sum to one."""
    inside = (cell_of(grid, side)[:, None] == torch.arange(grid)).double()
    if smoothing == 0.0:
        return inside
    centre = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    kernel = torch.exp(-0.5 * ((centre[:, None] - centre) / smoothing).square())
    return kernel / kernel.sum(1, keepdim=True) @ inside


def least_squares_maps(
    importance: Float[Tensor, "masks classes"], masks: Masks, height: int, width: int, smoothing: float = 0.0
) -> Float[Tensor, "classes height width"]:
    """Return maps by ridge regression of importance on the hidden share of cells, of all grids together.

    The model is `dl(M) = b + sum_g sum_a w_ga h_ga(M) / g`, where `h_ga` is the hidden share of cell a of grid g: a
    field that is a pyramid of the grids' cells, each grid with as much prior variance as the others. Minimises the
    squared error plus `lambda |w|^2`, without a penalty on b. Lambda is the one of `PENALTIES` with the least squared
    error of leaving out one mask, summed over classes in units of their variance. The map is the effect of hiding a
    pixel: `sum_g g w_g` in the pixel's cells, `dl` per area hidden, so that it is on the scale of the other estimators
    times the variance of a pixel's mask.

    Args:
        importance: `dl_c(M_n)`.
        masks: in the order of the rows.
        height: of the maps, in pixels.
        width: of the maps, in pixels.
        smoothing: see `Evidence`.
    """
    return _Regression.of(importance, masks).maps(torch.arange(len(masks)), height, width, smoothing)


@dataclass(frozen=True)
class _Regression:
    """The regression of `least_squares_maps`, with the penalty that all masks chose.

    Attributes:
        importance: `dl_c(M_n)`.
        grids: their sizes, smallest first.
        shares: how much of each cell of all grids each mask hides, over the grid size.
    """

    importance: Float[Tensor, "masks classes"]
    grids: tuple[int, ...]
    shares: Float[Tensor, "masks cells"]

    @classmethod
    def of(cls, importance: Float[Tensor, "masks classes"], masks: Masks) -> "_Regression":
        """Prepare the regression of importance on masks."""
        return cls(importance, masks.grids, _hidden_shares(masks, masks.grids).to(importance.device))

    @cached_property
    def penalty(self) -> float:
        """Lambda over the number of masks."""
        return _choose_penalty(_centre(self.shares), _centre(self.importance.double())) / len(self.shares)

    def maps(self, rows: Tensor, height: int, width: int, smoothing: float) -> Float[Tensor, "classes height width"]:
        """Return the maps that some of the masks give; see `least_squares_maps`."""
        rows = rows.to(self.shares.device)
        design, targets = _centre(self.shares[rows]), _centre(self.importance[rows].double())
        weights = _ridge(design, targets, self.penalty * len(rows))
        maps = self.importance.new_zeros(targets.shape[1], height, width)
        for grid, part in zip(self.grids, weights.split([grid**2 for grid in self.grids]), strict=True):
            cells = (grid * part.T).unflatten(1, (grid, grid)).to(self.importance)
            maps += _spread_cells(cells, height, width, smoothing)
        return maps


def _centre(values: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    return values - values.mean(0)


def _hidden_shares(masks: Masks, grids: tuple[int, ...]) -> Float[Tensor, "masks cells"]:
    """Return how much of each cell of all grids a mask hides, over the grid size, in double."""
    shares = [torch.zeros(len(masks), grid**2, dtype=torch.float64) for grid in grids]
    for own, rows, chosen in masks.by_grid():
        cells = chosen.double().unflatten(1, (own, own))
        for index, grid in enumerate(grids):
            share = overlap(own, grid)
            shares[index][rows] = (share.T @ cells @ share).flatten(1) / grid
    return torch.cat(shares, 1)


def _choose_penalty(design: Float[Tensor, "masks cells"], targets: Float[Tensor, "masks classes"]) -> float:
    """Return the ridge penalty that leave-one-out in closed form prefers, for centred columns."""
    count = len(design)
    values, vectors = torch.linalg.eigh(design @ design.T)
    values = values.clamp_min(0.0)
    turned, squares = vectors.T @ targets, vectors.square()
    scale = targets.square().mean(0).clamp_min(torch.finfo(torch.float64).tiny)
    largest = values[-1].clamp_min(torch.finfo(torch.float64).tiny)
    best, chosen = math.inf, float(PENALTIES[-1] * largest)
    for share in reversed(PENALTIES):  # of equals the largest
        penalty = share * largest
        residual = penalty * (vectors @ (turned / (values + penalty)[:, None]))
        leverage = squares @ (values / (values + penalty)) + 1.0 / count
        missed = float(((residual / (1.0 - leverage).clamp_min(1e-9)[:, None]).square().mean(0) / scale).sum())
        if missed < best:
            best, chosen = missed, float(penalty)
    return chosen


def _ridge(
    design: Float[Tensor, "masks cells"], targets: Float[Tensor, "masks classes"], penalty: float
) -> Float[Tensor, "cells classes"]:
    """Return ridge weights of centred columns."""
    gram = design @ design.T
    if not gram.any():  # all masks are alike: they tell nothing of any cell
        return targets.new_zeros(design.shape[1], targets.shape[1])
    gram.diagonal().add_(penalty)
    return design.T @ torch.cholesky_solve(targets, torch.linalg.cholesky(gram))
