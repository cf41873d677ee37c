"""How good an evidence map is: whether the model depends on what it marks, where it points, how far two maps agree.

Insertion and deletion are those of RISE (Petsiuk et al., 2018), the pointing game is that of Zhang et al. (2016). They
know the model as a function from images to the score of one class, so they fit any map of any model. Localisation asks
where a map is high among regions whose truth is known, such as the cells of a collage.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from faircontext.errors import ArgumentError, check_choice, check_interval, check_minimum, check_type
from faircontext.metrics.checks import check_arrays
from faircontext.occlusion import Filling, occlude

Map: TypeAlias = Float[Tensor, "height width"] | Float[np.ndarray, "height width"]
"""Importance of each pixel, larger where it matters more; only the order counts."""

Score: TypeAlias = Callable[[Float[Tensor, "batch 3 height width"]], Float[Tensor, " batch"]]
"""What gives the score of one class, for example its posterior, for images with values in [0, 1]."""

Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right and bottom edge in pixels; the pixel at (right, bottom) is the first outside."""

TOLERANCE = 15
"""Of the pointing game, in pixels of an image of 224 by 224."""


@dataclass(frozen=True)
class Curve:
    """The score of a class while pixels are put into an image, or taken from it.

    Attributes:
        fractions: of the pixels that have been put in or taken, from 0 to 1.
        scores: at each of them.
    """

    fractions: Float[np.ndarray, " points"]
    scores: Float[np.ndarray, " points"]

    @property
    def area(self) -> float:
        """The area under the curve by the trapezoid rule: of insertion the more the better, of deletion the less."""
        return float(np.trapezoid(self.scores, self.fractions))


def insertion(
    score: Score,
    image: Float[Tensor, "3 height width"],
    saliency: Map,
    *,
    steps: int = 56,
    baseline: Filling = "blur",
    batch_size: int = 16,
) -> Curve:
    """Return the scores while pixels are put into the baseline, the most important first.

    Args:
        score: of the class that the map is of.
        image: the image as the model sees it, with values in [0, 1].
        saliency: the map; of equally important pixels those above come first, then those on the left.
        steps: equal portions, up to one pixel, that the pixels come in; there is a point more than portions.
        baseline: what is there before: the image blurred (RISE), black, or its mean colour, as in `occlude`.
        batch_size: images that are scored at once.

    Raises:
        ArgumentError: shapes do not fit, a value is not finite, or another argument is out of range.
    """
    return _curve(score, image, saliency, steps, baseline, batch_size, inserted=True)


def deletion(
    score: Score,
    image: Float[Tensor, "3 height width"],
    saliency: Map,
    *,
    steps: int = 56,
    baseline: Filling = "black",
    batch_size: int = 16,
) -> Curve:
    """Return the scores while pixels are replaced by the baseline, the most important first.

    Args:
        score: see `insertion`.
        image: see `insertion`.
        saliency: see `insertion`.
        steps: see `insertion`.
        baseline: what pixels are replaced by: black, as masks do in FCL, the image's mean colour, or the image blurred.
        batch_size: see `insertion`.

    Raises:
        ArgumentError: see `insertion`.
    """
    return _curve(score, image, saliency, steps, baseline, batch_size, inserted=False)


def _curve(
    score: Score,
    image: Float[Tensor, "3 height width"],
    saliency: Map,
    steps: int,
    baseline: Filling,
    batch_size: int,
    inserted: bool,
) -> Curve:
    values = _checked("saliency", saliency)
    if image.ndim != 3 or image.shape[0] != 3 or not image.isfinite().all():
        raise ArgumentError(f"image of shape {tuple(image.shape)} is not possible; give finite values, 3 by H by W")
    if tuple(image.shape[1:]) != values.shape:
        raise ArgumentError(
            f"saliency is {_size(values.shape)} and image {_size(image.shape[1:])}; a map has a value for each pixel"
        )
    check_choice("baseline", baseline, get_args(Filling))
    check_minimum("batch_size", batch_size, 1)
    if not 1 <= steps <= values.size:
        raise ArgumentError(f"steps={steps!r} is not possible; it must lie between 1 and the {values.size} pixels")
    rank = torch.from_numpy(_order(values).argsort(kind="stable").reshape(values.shape)).to(image.device)
    counts = torch.arange(steps + 1) * values.size // steps
    scores = []
    # No inference mode: what a model keeps of its first call must stay fit for gradients.
    with torch.no_grad():
        for chunk in counts.to(image.device).split(batch_size):
            taken = rank < chunk[:, None, None]
            scores.append(_scores(score, occlude(image, ~taken if inserted else taken, baseline)))
    return Curve(counts.double().numpy() / values.size, np.concatenate(scores))


def _scores(score: Score, images: Float[Tensor, "batch 3 height width"]) -> Float[np.ndarray, " batch"]:
    values = score(images)
    if tuple(values.shape) != (len(images),):
        raise ArgumentError(
            f"score gives a tensor of shape {tuple(values.shape)} for {len(images)} images; it must be a number for "
            "each"
        )
    scores: np.ndarray = values.detach().cpu().double().numpy()
    if not np.isfinite(scores).all():
        raise ArgumentError("score gives a value that is not finite; the area under it is not known")
    return scores


def pointing_game(saliency: Map, region: Bool[np.ndarray, "height width"] | Box, tolerance: float = TOLERANCE) -> bool:
    """Return whether a map is largest on an object, or at most a tolerance from it.

    Args:
        saliency: the map. Of several maxima the first counts, from the top and the left.
        region: where the object is: a mask, or a box `(left, top, right, bottom)`.
        tolerance: in pixels, between centres; 0 for on the object itself.

    Raises:
        ArgumentError: the region is empty or not within the map, a value is not finite, or the tolerance is negative.
    """
    values = _checked("saliency", saliency)
    check_minimum("tolerance", tolerance, 0)
    mask = _mask(region, values.shape) if isinstance(region, tuple) else region
    check_arrays(region=mask)
    if mask.shape != values.shape:
        raise ArgumentError(f"region is {_size(mask.shape)} and saliency {_size(values.shape)}; give both for one size")
    if not mask.any():
        raise ArgumentError("region is empty; leave out images without the object")
    maximum = np.unravel_index(values.argmax(), values.shape)
    return bool(((np.argwhere(mask) - maximum) ** 2).sum(1).min() <= tolerance**2)


@dataclass(frozen=True)
class Localisation:
    """How a map's values lie with respect to the regions that an image is divided into.

    Attributes:
        auc: of each region: the probability that a pixel in it has a larger value than one outside, ties counting half
            (area under the ROC curve). It is 1/2 for a map that does not know the region.
        pointing: share of the map's maxima that lie in the region: 1 or 0 where there is one maximum.
        energy: share of the map's positive part that lies in the region; 0 in all where there is none.
    """

    auc: Float[np.ndarray, " regions"]
    pointing: Float[np.ndarray, " regions"]
    energy: Float[np.ndarray, " regions"]


def localise(saliency: Map, regions: Int[np.ndarray, "height width"]) -> Localisation:
    """Return where a map is high: for each region its AUC, whether the maximum lies in it, and its energy.

    Args:
        saliency: the map.
        regions: the region of each pixel, counted from 0; there are at least two, and none is empty.

    Raises:
        ArgumentError: the sizes differ, a value is not finite, or the regions are not so.
    """
    values = _checked("saliency", saliency)
    if regions.shape != values.shape:
        raise ArgumentError(f"regions is {_size(regions.shape)} and saliency {_size(values.shape)}; give both for one")
    if regions.min() < 0 or len(sizes := np.bincount(regions.ravel())) < 2 or not sizes.all():
        raise ArgumentError("regions must be two or more, counted from 0, each with a pixel")

    def total(weights: Float[np.ndarray, "height width"]) -> Float[np.ndarray, " regions"]:
        return np.bincount(regions.ravel(), weights.ravel(), len(sizes))

    ranks = total(rankdata(values).reshape(values.shape))
    highest, positive = total((values == values.max()).astype(np.float64)), total(values.clip(0.0))
    return Localisation(
        auc=(ranks - sizes * (sizes + 1) / 2) / (sizes * (values.size - sizes)),
        pointing=highest / highest.sum(),
        energy=positive / positive.sum() if positive.any() else positive,
    )


def _mask(box: Box, shape: tuple[int, ...]) -> Bool[np.ndarray, "height width"]:
    left, top, right, bottom = box
    height, width = shape
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ArgumentError(
            f"region={box!r} is not possible; write (left, top, right, bottom) within {_size(shape)}, in pixels"
        )
    mask = np.zeros(shape, np.bool_)
    mask[top:bottom, left:right] = True
    return mask


def rank_correlation(first: Map, second: Map) -> float:
    """Return Spearman's rank correlation of two maps over pixels; equal values share the mean of their ranks.

    It is NaN where a map is constant: there is no order to agree with.

    Args:
        first: a map.
        second: another of the same size.

    Raises:
        ArgumentError: the sizes differ, or a value is not finite.
    """
    one, other = _checked_pair(first, second)
    if one.min() == one.max() or other.min() == other.max():
        return float("nan")
    return float(spearmanr(one.ravel(), other.ravel()).statistic)


def top_overlap(first: Map, second: Map, fraction: float = 0.2) -> float:
    """Return the intersection over union of the most important pixels of two maps.

    Two maps drawn at random share `fraction / (2 - fraction)`, which is 0.11 for a fifth of the pixels.

    Args:
        first: a map; of equally important pixels those above come first, then those on the left.
        second: another of the same size.
        fraction: of the pixels, in (0, 1]; at least one pixel is taken.

    Raises:
        ArgumentError: the sizes differ, a value is not finite, or the fraction is out of range.
    """
    one, other = _checked_pair(first, second)
    check_interval("fraction", fraction, 0, 1)
    count = max(1, int(fraction * one.size + 0.5))
    shared = len(np.intersect1d(_order(one)[:count], _order(other)[:count], assume_unique=True))
    return shared / (2 * count - shared)


def _order(values: Float[np.ndarray, "height width"]) -> Int[np.ndarray, " pixels"]:
    """Return pixels by falling importance; equal ones stay in their order."""
    return (-values).ravel().argsort(kind="stable")


def _checked_pair(
    first: Map, second: Map
) -> tuple[Float[np.ndarray, "height width"], Float[np.ndarray, "height width"]]:
    one, other = _checked("first", first), _checked("second", second)
    if one.shape != other.shape:
        raise ArgumentError(f"first is {_size(one.shape)} and second {_size(other.shape)}; give maps of one size")
    return one, other


def _checked(argument: str, saliency: Map) -> Float[np.ndarray, "height width"]:
    """Return a map as an array, or raise `ArgumentError` naming it."""
    array = saliency.detach().cpu().double().numpy() if isinstance(saliency, Tensor) else saliency
    check_type(argument, array, np.ndarray, "a map is a NumPy array or a tensor")
    values = array.astype(np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ArgumentError(f"{argument} has shape {values.shape}; a map has a value for each pixel, (height, width)")
    if not np.isfinite(values).all():
        raise ArgumentError(f"{argument} has a value that is not finite; such pixels have no order")
    return values


def _size(shape: tuple[int, ...]) -> str:
    return " by ".join(map(str, shape))
