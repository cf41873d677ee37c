"""Class evidence and common evidence (paper, Sec. "Common Evidence Localization"): masks, maps, and what pairs share.

A mask is a choice of cells on a coarse grid. A map that is linear in masks is therefore a sum over the cells of each
grid, upsampled once: neither memory nor time grows with masks times pixels. Upsampling is separable, so that a
smoothing kernel goes into the cells' profiles along both axes and costs nothing.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from faircontext.errors import check_choice, check_interval

Estimator = Literal["paper", "covariance", "least-squares"]
"""How a map comes from masks; see `Evidence`."""
Scaling = Literal["none", "max", "minmax"]
"""How common evidence is scaled; see `common_evidence`."""

SPLITS = 8
"""Ways in which masks are halved for the reliability of a map."""
BLOCKS = 10
"""Groups of masks the spread of whose maps gives a standard error."""
LATTICE = 28
"""Points along a side at which reliability is measured: more than two for each cell of the paper's finest grid."""
PENALTIES = tuple(10.0**step for step in torch.arange(2.0, -4.25, -0.5).tolist())
"""Ridge penalties, over the largest eigenvalue of the centred Gram matrix, of which leave-one-out chooses one; on a tie
the largest."""


@dataclass(frozen=True)
class Masks:
    """Random masks, each a set of cells of a grid laid over the image.

    Attributes:
        cells: per mask, a boolean grid of shape (g, g); True where the image is occluded.
        drawn: per mask, the size of the grid on which it was drawn; None unless `cells` were converted to another grid,
            as to the patches of a vision transformer.
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
        return tuple(sorted({*(map(len, self.cells) if self.drawn is None else self.drawn)}))

    def by_grid(self) -> Iterator[tuple[int, Int[Tensor, " chosen"], Bool[Tensor, "chosen cells"]]]:
        """Yield each grid size of `cells`, smallest first, with the rows that have it and their cells, flattened."""
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
        """Return masks `start` to `stop` at pixel resolution, on their device; binary, where RISE interpolates."""
        chosen = self.cells[start:stop]
        device = chosen[0].device
        indices = {g: (cell_of(g, height, device)[:, None], cell_of(g, width, device)) for g in {*map(len, chosen)}}
        return torch.stack([cells[indices[len(cells)]] for cells in chosen])


def cell_of(grid: int, side: int, device: torch.device | None = None) -> Int[Tensor, " side"]:
    """Return the cell that each pixel lies in along one axis: `floor(u g / H)`."""
    return torch.arange(side, device=device) * grid // side


def sample_masks(
    count: int, rng: np.random.Generator, grids: tuple[int, ...], gamma: float | tuple[float, float]
) -> Masks:
    """Draw masks, each on a grid of random size with `floor(gamma g^2 + 1/2)` cells chosen without replacement.

    At least one cell is chosen and never all. Masks are drawn one after the other, so the first n of a longer run are
    the run of n.

    Args:
        count: number of masks `N_m`.
        rng: the image's stream for masks.
        grids: grid sizes to choose from, at least 2 each.
        gamma: the fraction of cells that is occluded, or a range from which each mask draws its own.
    """
    cells = []
    for _ in range(count):
        grid = grids[rng.integers(len(grids))]
        fraction = rng.uniform(*gamma) if isinstance(gamma, tuple) else gamma
        mask = torch.zeros(grid**2, dtype=torch.bool)
        mask[torch.from_numpy(rng.permutation(grid**2)[: count_hidden(grid, fraction)])] = True
        cells.append(mask.view(grid, grid))
    return Masks(tuple(cells))


def count_hidden(grid: int, gamma: float) -> int:
    """Return how many cells of a grid are hidden: `floor(gamma g^2 + 1/2)`, at least one and never all."""
    return int(np.clip(np.floor(gamma * grid**2 + 0.5), 1, grid**2 - 1))


def importance(
    image: Float[Tensor, " dim"],
    masked: Float[Tensor, "masks dim"],
    text: Float[Tensor, "classes dim"],
    beta: float,
) -> Float[Tensor, "masks classes"]:
    """Return `dl_c(M) = log pi(c | x) - log pi(c | x_masked)`, the posterior being a softmax over the given classes.

    Args:
        image: unit-norm embedding `z` of the image.
        masked: unit-norm embeddings of its masked copies.
        text: unit-norm text features of the classes.
        beta: inverse temperature.
    """
    full = (beta * text @ image).log_softmax(-1)
    return full - (beta * masked @ text.T).log_softmax(-1)


@dataclass(frozen=True, eq=False)  # one is itself alone: tensors do not tell whether they are equal
class Evidence:
    """Class evidence maps with all that they were estimated from.

    Estimators, with `dl_n` the importance of mask `M_n` for a class and N masks:

    - `"paper"`: `E_c = (1/N) sum_n dl_n M_n`. Its expectation is that of `covariance` plus the mean of `dl` times the
      coverage, a constant. The mean of `dl` adds to its variance as well, more than the pixels differ by.
    - `"covariance"`: `(1/N) sum_n (dl_n - mean of the other dl) M_n`, the sample covariance of `dl` and `M(u)`:
      unbiased for it, with variance `Var[(dl - E dl)(M(u) - E M(u))] / N` up to terms of order `1 / N^2`.
    - `"least-squares"`: ridge regression of `dl` on how much of each cell is hidden, the cells being those of all grids
      together. The model is `dl(M) = b + sum_g sum_a w_ga h_ga(M) / g`, where `h_ga` is the hidden share of cell a of
      grid g: a field that is a pyramid of the grids' cells, each grid with as much prior variance as the others. It
      minimises the squared error plus `lambda |w|^2`, without a penalty on b. Lambda is the one of `PENALTIES`, times
      the largest eigenvalue, with the least squared error of leaving out one mask, summed over classes in units of
      their variance. The map is the effect of hiding a pixel: `sum_g g w_g` in the pixel's cells, `dl` per area hidden.
      That is larger than the covariance, by about `g^2` over the variance of a pixel's mask.

    Attributes:
        importance: `dl_c(M_n)`, see `importance`: the rise of class c's negative log-posterior when mask n occludes.
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
        if self.estimator == "paper" and self.smoothing == 0.0:  # the formula as it stands: divided last
            maps = sum_masks(self._table, self.masks, self.height, self.width) / len(self.masks)
        else:
            maps = self._estimate(torch.arange(len(self.masks)), self.height, self.width)
        return maps.to(self.importance.device)

    @cached_property
    def _table(self) -> Float[Tensor, "masks classes"]:
        """The importance on the CPU, where the masks are: small sums, which would keep an accelerator waiting."""
        return self.importance.cpu()

    def _estimate(self, rows: Int[Tensor, " rows"], height: int, width: int) -> Float[Tensor, "classes height width"]:
        """Estimate the maps from some of the masks, on the CPU."""
        table = self._table[rows]
        if self.estimator == "least-squares":
            return self._regress(rows, height, width)
        others = max(1, len(rows) - 1)  # a single mask has no others to differ from
        weights = table / len(rows) if self.estimator == "paper" else (table - table.mean(0)) / others
        return sum_masks(weights, self.masks.select(rows.tolist()), height, width, self.smoothing)

    def _regress(self, rows: Int[Tensor, " rows"], height: int, width: int) -> Float[Tensor, "classes height width"]:
        """Estimate the maps from some of the masks by least squares, with the penalty that all masks chose."""
        weights = _ridge(self._shares[rows], self._table[rows].double(), self._penalty * len(rows))
        maps = self._table.new_zeros(weights.shape[1], height, width)
        grids = self.masks.grids
        for grid, part in zip(grids, weights.split([grid**2 for grid in grids]), strict=True):
            cells = (grid * part.T).unflatten(1, (grid, grid)).to(maps)
            maps += _upsample(cells, height, width, self.smoothing)
        return maps

    @cached_property
    def _shares(self) -> Float[Tensor, "masks cells"]:
        """How much of each cell of all grids each mask hides, over the grid size, in double."""
        grids = self.masks.grids
        shares = [torch.zeros(len(self.masks), grid**2, dtype=torch.float64) for grid in grids]
        for own, rows, chosen in self.masks.by_grid():
            cells = chosen.double().unflatten(1, (own, own))
            for index, grid in enumerate(grids):
                share = overlap(own, grid)
                shares[index][rows] = (share.T @ cells @ share).flatten(1) / grid
        return torch.cat(shares, 1)

    @cached_property
    def _penalty(self) -> float:
        """The ridge penalty that leave-one-out in closed form prefers, over the number of masks."""
        design, targets = _centre(self._shares), _centre(self._table.double())
        values, vectors = torch.linalg.eigh(design @ design.T)
        values, tiny = values.clamp_min(0.0), torch.finfo(torch.float64).tiny
        turned, squares, scale = vectors.T @ targets, vectors.square(), targets.square().mean(0).clamp_min(tiny)
        penalties = [share * values[-1].clamp_min(tiny) for share in PENALTIES]

        def missed(penalty: Tensor) -> float:
            residual = penalty * (vectors @ (turned / (values + penalty)[:, None]))
            leverage = squares @ (values / (values + penalty)) + 1.0 / len(design)
            error = float(((residual / (1.0 - leverage).clamp_min(1e-9)[:, None]).square().mean(0) / scale).sum())
            return math.inf if math.isnan(error) else error

        return float(min(penalties, key=missed)) / len(design)

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
        half = len(self.masks) // 2
        if half < 2:
            return self.importance.new_zeros(self.importance.shape[1])
        rows, rng = len(self.masks), torch.Generator()
        orders = (torch.randperm(rows, generator=rng.manual_seed(split)) for split in range(SPLITS))
        halves = ([order[:half].sort().values, order[half : 2 * half].sort().values] for order in orders)
        pairs = ([self._estimate(rows, LATTICE, LATTICE) for rows in both] for both in halves)
        r = torch.stack([_correlation(*maps) for maps in pairs]).mean(0).clamp_min(0.0)
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


def sum_masks(
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
        per_cell = weights[rows].T @ chosen.to(weights)
        result += _upsample(per_cell.unflatten(1, (grid, grid)), height, width, smoothing)
    return result


def _upsample(
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


@lru_cache(maxsize=64)
def overlap(own: int, other: int) -> Float[Tensor, "own other"]:
    """Return which share of each cell of another grid lies in each cell of a grid, along one axis."""
    left, right = torch.arange(own, dtype=torch.float64) / own, torch.arange(1, own + 1, dtype=torch.float64) / own
    low, high = (torch.arange(start, other + start, dtype=torch.float64) / other for start in (0, 1))
    return other * (torch.minimum(right[:, None], high) - torch.maximum(left[:, None], low)).clamp_min(0.0)


def _centre(values: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    return values - values.mean(0)


def _ridge(
    shares: Float[Tensor, "masks cells"], targets: Float[Tensor, "masks classes"], penalty: float
) -> Float[Tensor, "cells classes"]:
    """Return the weights of a ridge regression with an intercept."""
    design = _centre(shares)
    gram = design @ design.T
    if not gram.any():  # all masks are alike: they tell nothing of any cell
        return targets.new_zeros(design.shape[1], targets.shape[1])
    gram.diagonal().add_(penalty)
    return design.T @ torch.cholesky_solve(_centre(targets), torch.linalg.cholesky(gram))


def _correlation(first: Float[Tensor, "rows h w"], second: Float[Tensor, "rows h w"]) -> Float[Tensor, " rows"]:
    """Return Pearson's correlation of maps; 0 where one is constant."""
    first, second = (values.flatten(1).double() for values in (first, second))
    first, second = first - first.mean(1, keepdim=True), second - second.mean(1, keepdim=True)
    norms = first.norm(dim=1) * second.norm(dim=1)
    return torch.where(norms > 0, (first * second).sum(1) / norms.clamp_min(torch.finfo(norms.dtype).tiny), 0.0)


def common_evidence(
    maps: Float[Tensor, "classes height width"],
    pairs: Int[Tensor, "2 pairs"],
    scaling: Scaling = "max",
    area: float | None = None,
) -> Float[Tensor, "pairs height width"]:
    """Return `Q_ij = S_i S_j / sum(S_i S_j)` with `S_c` the pixel-wise softmax of `E_c`, scaled.

    Products of softmaxes renormalised are the softmax of the sum, so `Q_ij = softmax(E_i + E_j)` over pixels. The paper
    gives this softmax no temperature, and the range of its evidence is so small that `Q` is nearly even over the image.
    With `area` each pair gets the inverse temperature at which its effective area is that, see `match_area`.

    Args:
        maps: class evidence maps.
        pairs: class positions `i`, `j` of each pair.
        scaling: `"none"` (the formula as printed: values of about 1 / (H W), so that the weighted image is black),
            `"max"` (divided by the maximum) or `"minmax"` (stretched to [0, 1]; a constant map becomes ones).
        area: effective area, as a fraction of the image above 0 and at most 1; None for no temperature.

    Raises:
        ArgumentError: the scaling is unknown, or the area out of range.
    """
    total = maps[pairs[0]] + maps[pairs[1]]
    return scaled_softmax(total if area is None else match_area(total, area), scaling)


def unique_evidence(
    maps: Float[Tensor, "classes height width"], pairs: Int[Tensor, "2 pairs"]
) -> Float[Tensor, "pairs height width"]:
    """Return `S_i (1 - Q_ij)`, the evidence of class i that class j does not share; both maps stretched to [0, 1].

    With the scaling `"max"` the product would vanish everywhere: the paper's `Q` is nearly even, near 1 at each pixel.
    The softmax has no temperature here.

    Args:
        maps: class evidence maps.
        pairs: class positions `i`, `j` of each pair; the order matters.
    """
    own = scaled_softmax(maps[pairs[0]], "minmax")
    return own * (1.0 - common_evidence(maps, pairs, "minmax"))


def scaled_softmax(maps: Float[Tensor, "maps height width"], scaling: Scaling) -> Float[Tensor, "maps height width"]:
    """Return the softmax of maps over pixels, scaled; see `common_evidence`."""
    check_choice("evidence_scaling", scaling, get_args(Scaling))
    if scaling == "none":
        return maps.flatten(1).softmax(-1).view_as(maps)
    relative = (maps - maps.amax((1, 2), keepdim=True)).exp()
    if scaling == "max":
        return relative
    low = relative.amin((1, 2), keepdim=True)
    return torch.where(low < 1.0, (relative - low) / (1.0 - low).clamp_min(torch.finfo(low.dtype).tiny), 1.0)


def effective_area(weights: Float[Tensor, "maps height width"]) -> Float[Tensor, " maps"]:
    """Return `exp(H) / (height width)`, H being the entropy of each map over pixels once it sums to one.

    It is 1 for an even map, and m / n for one that is even on m of n pixels and zero elsewhere.

    Args:
        weights: not negative, with a positive sum.
    """
    flat = weights.flatten(1).double()
    shares = flat / flat.sum(1, keepdim=True)
    return ((-torch.xlogy(shares, shares).sum(1)).exp() / flat.shape[1]).to(weights.dtype)


def match_area(maps: Float[Tensor, "maps height width"], area: float) -> Float[Tensor, "maps height width"]:
    """Return maps, less their maxima, times the number at which their softmax over pixels has a given effective area.

    The entropy of `softmax(t E)` falls as t grows, from that of an even map at `t = 0` to that of the maxima alone, so
    one such t is found by bisection of `log t`. It depends on how often each value occurs, so values are counted: below
    the maximum, in bins of 1/256 of an octave over 16 octaves. That is right to a thousandth of the area. An area of 1
    gives zeros (the image), and one that is smaller than that of the maxima keeps the maxima alone (the peak). A map
    that is the same everywhere, where all pixels are maxima, is kept whole.

    Args:
        maps: `E`, in nats.
        area: above 0, at most 1.
    """
    check_interval("area", area, 0.0, 1.0)
    below = maps - maps.amax((1, 2), keepdim=True)
    depth, deepest = -below.flatten(1), -below.amin((1, 2)).double()[:, None]
    octaves = (depth / depth.amax(1, keepdim=True)).nan_to_num().clamp(2.0**-16, 1.0).log2()
    bins = (-256.0 * octaves).round().long()
    counts = bins.new_zeros(len(maps), 16 * 256 + 1).scatter_add_(1, bins, torch.ones_like(bins)).double()
    depths = deepest * torch.exp2(torch.arange(counts.shape[1], device=maps.device) / -256.0)
    depths[:, -1] = 0.0  # the maxima
    low, high = deepest.new_full((len(maps),), -60.0), deepest.new_full((len(maps),), 60.0)
    for _ in range(25):
        middle = (low + high) / 2
        exponents = -middle.exp()[:, None] * depths
        weights = counts * exponents.exp()
        total = weights.sum(1)
        even = total.log() - (weights * exponents).sum(1) / total > math.log(area * depth.shape[1])
        low, high = torch.where(even, middle, low), torch.where(even, high, middle)
    return below * low.exp().to(maps)[:, None, None]
