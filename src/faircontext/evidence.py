"""Class evidence maps and common evidence (paper, Sec. "Common Evidence Localization").

A mask is a choice of cells on a coarse grid. All masks of one grid size share their cells, so a class evidence map is a
small sum over cells that is spread to pixels once: memory and time do not grow with masks times pixels.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.errors import check_choice, check_interval
from faircontext.masks import Masks, cell_of_pixel

__all__ = [
    "EvidenceScaling",
    "Proxy",
    "candidate_pairs",
    "common_evidence",
    "control_picture",
    "distinct_maps",
    "effective_area",
    "evidence_maps",
    "importance",
    "sharpen",
    "unique_evidence",
]

EvidenceScaling = Literal["none", "max", "minmax"]
Proxy = Literal["evidence", "image", "mean", "grey", "black"]

_SOLVED_SIDE = 56
"""Pixels along a side at which the temperature of common evidence is first solved for."""


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
    for grid, rows, chosen in masks.by_grid():
        per_cell = importance[rows.to(importance.device)].T @ chosen.to(importance)
        maps += per_cell[:, cell_of_pixel(grid, height, width, importance.device)]
    return maps / len(masks)


def candidate_pairs(ranking: Int[Tensor, " candidates"], leaders: int | None = None) -> Int[Tensor, "2 pairs"]:
    """Return the pairs of candidates `i < j`, in order: all K (K - 1) / 2, or those that a leader is in.

    With L leaders, (K - L) (K - L - 1) / 2 pairs fewer.

    Args:
        ranking: positions of the candidates, best first.
        leaders: how many of the first are leaders; None for all pairs.
    """
    count = len(ranking)
    pairs = torch.triu_indices(count, count, 1, device=ranking.device)
    if leaders is None:
        return pairs
    leads = torch.zeros(count, dtype=torch.bool, device=ranking.device)
    leads[ranking[:leaders]] = True
    return pairs[:, leads[pairs].any(0)]


def distinct_maps(maps: Float[Tensor, "maps height width"]) -> tuple[list[int], list[int]]:
    """Return which maps are no copies of an earlier one, and for each map the place of its like among those.

    Candidates of one name have equal features and so equal evidence: their pairs with a third are the same picture.
    """
    firsts: list[int] = []
    likes: list[int] = []
    sums = maps.flatten(1).sum(1, dtype=torch.float64).tolist()
    for row, total in enumerate(sums):
        equal = (at for at, first in enumerate(firsts) if sums[first] == total and torch.equal(maps[first], maps[row]))
        likes.append(next(equal, len(firsts)))
        if likes[-1] == len(firsts):
            firsts.append(row)
    return firsts, likes


def common_evidence(
    maps: Float[Tensor, "classes height width"],
    pairs: Int[Tensor, "2 pairs"],
    scaling: EvidenceScaling = "max",
    area: float | None = None,
) -> Float[Tensor, "pairs height width"]:
    """Return `Q_ij = S_i S_j / sum(S_i S_j)` with `S_c` the pixel-wise softmax of `E_c`, scaled.

    Products of softmaxes renormalised are the softmax of the sum, so `Q_ij = softmax(E_i + E_j)` over pixels. The paper
    gives this softmax no temperature, and the range of evidence is so small that `Q` is nearly even over the image.
    With `area` each pair gets the inverse temperature at which its effective area is that, see `sharpen`.

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
    return _scaled_softmax(total if area is None else sharpen(total, area), scaling)


def effective_area(weights: Float[Tensor, "maps height width"]) -> Float[Tensor, " maps"]:
    """Return `exp(H) / (height width)`, H being the entropy of each map over pixels once it sums to one.

    It is 1 for an even map, and m / n for one that is even on m of n pixels and zero elsewhere.

    Args:
        weights: not negative, with a positive sum.
    """
    flat = weights.flatten(1).double()
    shares = flat / flat.sum(1, keepdim=True)
    return ((-torch.xlogy(shares, shares).sum(1)).exp() / flat.shape[1]).to(weights.dtype)


def sharpen(maps: Float[Tensor, "maps height width"], area: float) -> Float[Tensor, "maps height width"]:
    """Return maps times the number at which the effective area of their softmax over pixels is a given one.

    The entropy of `softmax(t E)` falls as t grows, from that of an even map at `t = 0` to that of the maxima alone, so
    there is one such t; it is found by Newton's steps in `log t`, to a thousandth of the area. An area of 1 gives zeros
    (the image), and one that is smaller than that of the maxima gives 0 there and minus infinity elsewhere (the peak),
    as does any area below 1 for maps that are the same everywhere.

    Args:
        maps: `E`, in nats.
        area: above 0, at most 1.
    """
    check_interval("area", area, 0.0, 1.0)
    below = maps - maps.amax((1, 2), keepdim=True)
    if area == 1.0:
        return torch.zeros_like(below)
    peak = (below == 0).flatten(1).sum(1) >= area * below[0].numel()
    log_t = below.new_full((len(below),), torch.inf)
    log_t[~peak] = _solve_area(below[~peak], area)
    return torch.where(below == 0, 0.0, below * log_t.exp()[:, None, None])


def _solve_area(below: Float[Tensor, "maps height width"], area: float) -> Float[Tensor, " maps"]:
    """Return the logarithm of t at which `softmax(t below)` has an effective area; maxima are 0."""
    stride = max(1, min(below.shape[1:]) // _SOLVED_SIDE)
    coarse = below[:, stride // 2 :: stride, stride // 2 :: stride].flatten(1)
    log_t = _newton(coarse, area, (-1.0 / coarse.mean(1).clamp_max(-1e-12)).log())
    return log_t if stride == 1 else _newton(below.flatten(1), area, log_t)


def _newton(below: Float[Tensor, "maps pixels"], area: float, log_t: Float[Tensor, " maps"]) -> Float[Tensor, " maps"]:
    """Solve for `log t` from a guess; each map until it is right to a thousandth, or sixty steps."""
    target = math.log(area * below.shape[1])
    log_t = log_t.clamp(-59.0, 59.0)
    low, high = torch.full_like(log_t, -60.0), torch.full_like(log_t, 60.0)
    rows = torch.arange(len(log_t), device=log_t.device)
    for _ in range(60):
        t = log_t[rows].exp()
        relative = (t[:, None] * below).exp_()
        total = relative.sum(1)
        mean = _dot(relative, below) / total
        excess = total.log() - t * mean - target  # of the entropy, in nats
        unsolved = excess.abs() >= 1e-3
        if not bool(unsolved.any()):
            break
        variance = _dot(relative.mul_(below), below) / total - mean.square()
        if not bool(unsolved.all()):
            rows, below, t, excess, variance = (one[unsolved] for one in (rows, below, t, excess, variance))
        here = log_t[rows]
        low[rows] = torch.where(excess > 0, here, low[rows])
        high[rows] = torch.where(excess > 0, high[rows], here)
        # A step of Newton's is at most a factor of e: where the entropy is level it would leap out of reach.
        step = here + (excess / (t.square() * variance).clamp_min(1e-12)).clamp(-1.0, 1.0)
        safe = (step > low[rows]) & (step < high[rows])
        log_t[rows] = torch.where(safe, step, (low[rows] + high[rows]) / 2)
    return log_t


def _dot(first: Float[Tensor, "rows n"], second: Float[Tensor, "rows n"]) -> Float[Tensor, " rows"]:
    return torch.bmm(first[:, None], second[:, :, None])[:, 0, 0]


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
