"""Several answers for each image: over orders of a stream and along it, and under corruptions.

Outcomes over orders come as an array of orders by images, an image in the same column everywhere. Several answers for
an image are not more images: intervals are of the images, and the spread of the orders stands beside them.

The mean corruption error (Hendrycks & Dietterich, 2019, Sec. 4.1) has errors relative to those of a reference:

    CE_c = sum_s E_sc / sum_s E*_sc,   mCE = mean_c CE_c

`E_sc` is the error on images with corruption c in severity s, and `E*_sc` that of the reference: there AlexNet, here
whatever was measured on the same images, such as zero-shot.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from faircontext.errors import ArgumentError, check_minimum
from faircontext.metrics.bootstrap import bootstrap_means, percentile_interval, resample
from faircontext.metrics.checks import check_arrays
from faircontext.metrics.stats import Z95, Interval, mcnemar_exact, wilson_interval

Outcomes = Mapping[str, Mapping[int, Bool[np.ndarray, " images"]]]
"""By corruption and severity, whether the answer of each image is correct; the same images, in the same order."""


@dataclass(frozen=True)
class OrdersAccuracy:
    """Accuracy over several orders of the same images.

    Attributes:
        n: images.
        orders: how many orders.
        mean: over orders, with Wilson's 95% interval of the images: that of the rounded mean number of correct ones.
        sd: of the orders, with `orders - 1`; NaN where there is one.
        least: of the orders.
        most: of the orders.
    """

    n: int
    orders: int
    mean: Interval
    sd: float
    least: float
    most: float


def accuracy_over_orders(correct: Bool[np.ndarray, "orders images"]) -> OrdersAccuracy:
    """Return the mean accuracy over orders of the same images, its interval, and the spread of the orders.

    Args:
        correct: whether each answer is correct.

    Raises:
        ArgumentError: there is no order or no image.
    """
    check_arrays(correct=correct)
    orders, n = correct.shape
    check_minimum("orders", orders, 1)
    check_minimum("images", n, 1)
    means, mean = correct.mean(1), float(correct.mean())
    interval = Interval(mean, *wilson_interval(round(mean * n), n))
    sd = float(means.std(ddof=1)) if orders > 1 else math.nan
    return OrdersAccuracy(n, orders, interval, sd, float(means.min()), float(means.max()))


@dataclass(frozen=True)
class OrdersDifference:
    """A difference in means over several orders of the same images.

    Attributes:
        value: mean over orders.
        sd: of the orders, with `n - 1`; 0 where neither side depends on the order.
        low: lower end of its 95% interval.
        high: upper end.
        p_value: that it is 0, two-sided.
    """

    value: float
    sd: float
    low: float
    high: float
    p_value: float


def difference_over_orders(
    first: Shaped[np.ndarray, "orders images"],
    second: Shaped[np.ndarray, "orders images"],
    resamples: int = 9999,
    seed: int = 0,
) -> OrdersDifference:
    """Return the difference of two methods' means, first minus second, averaged over orders of the same images.

    The outcomes of an image are averaged over orders, as several orders of some images are not more images. Images
    are then drawn again with replacement, which gives a variance of the images; that of the orders, divided by their
    number, is added to it. The interval and the p-value are those of a normal distribution with the sum. With few
    orders their variance is itself uncertain, which is not in the interval. Where the mean difference is the same for
    all images, and for all orders, there is no interval (NaN), and the p-value is that of the sign test.

    Args:
        first: outcomes of one method, such as whether its answers are correct; images in the same columns everywhere.
        second: outcomes of another; a method without a memory has the same in each order.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: the shapes differ, there is a single order, or no image; see also `bootstrap_means`.
    """
    check_arrays(first=first, second=second)
    if first.shape != second.shape:
        raise ArgumentError(
            f"first has the shape {first.shape} and second {second.shape}; give both in the same orders of the same "
            "images"
        )
    orders = len(first)
    if orders < 2:
        raise ArgumentError(f"first has {orders} orders; give at least 2, or use paired_bootstrap")
    differences = first.astype(np.float64) - second.astype(np.float64)
    of_images = float(bootstrap_means(differences.mean(0), resamples, seed).var())
    of_orders = float(differences.mean(1).var(ddof=1))
    value, error = float(differences.mean()), math.sqrt(of_images + of_orders / orders)
    if error < 1e-12:
        n = first.shape[1]
        return OrdersDifference(value, 0.0, math.nan, math.nan, mcnemar_exact(n, 0) if abs(value) > 1e-12 else 1.0)
    p_value, half = math.erfc(abs(value) / (error * math.sqrt(2.0))), Z95 * error
    return OrdersDifference(value, math.sqrt(of_orders), value - half, value + half, p_value)


def means_by_part(
    outcomes: Shaped[np.ndarray, "orders images"],
    part: Int[np.ndarray, "orders images"],
    parts: int,
    resamples: int = 999,
    seed: int = 0,
    sizes: Sequence[int] = (),
) -> tuple[list[Interval], Int[np.ndarray, " parts"]]:
    """Return the mean outcome in each part of a stream, over orders, with its 95% percentile bootstrap interval.

    An image lies in another part in each order. Images are drawn with replacement, each with all its orders, so that
    several answers for one image in one part do not count as several images.

    Args:
        outcomes: such as whether an answer is correct, or the difference of two methods.
        part: in which part the image lies, counted from 0; -1 where it is in none.
        parts: how many there are.
        resamples: how often all images are drawn.
        seed: of the draws.
        sizes: images of each data set, in their order; where they are given, the interval is over sets like these.

    Returns:
        The means, NaN for a part without an answer, and how many answers each is of.

    Raises:
        ArgumentError: the shapes differ, there is no image, or a part is out of range.
    """
    check_arrays(outcomes=outcomes, part=part)
    check_minimum("parts", parts, 1)
    if outcomes.shape != part.shape or not outcomes.size or part.min() < -1 or part.max() >= parts:
        raise ArgumentError(
            f"invalid part of shape {part.shape}: it must have the shape of outcomes, {outcomes.shape}, not be empty, "
            f"and lie between -1 and {parts - 1}"
        )
    inside = [part == index for index in range(parts)]
    counts = np.stack([mask.sum(0) for mask in inside], 1).astype(np.float64)
    sums = np.stack([np.where(mask, outcomes, 0).sum(0) for mask in inside], 1).astype(np.float64)
    values = _ratios(sums.sum(0), counts.sum(0)).tolist()
    drawn = resample(len(sums), resamples, seed, lambda rows: _ratios(rows @ sums, rows @ counts), sizes)
    intervals = [percentile_interval(value, draws) for value, draws in zip(values, drawn.T, strict=True)]
    return intervals, counts.sum(0).astype(np.int64)


def _ratios(sums: Float[np.ndarray, "*draws parts"], counts: Float[np.ndarray, "*draws parts"]) -> np.ndarray:
    """Return ratios, NaN where the denominator is 0, as that of a part without an image."""
    return np.asarray(np.divide(sums, counts, out=np.full_like(counts, math.nan), where=counts > 0))


def corruption_errors(correct: Outcomes, reference: Outcomes) -> dict[str, float]:
    """Return the corruption error of each corruption; NaN where the reference has no error.

    Args:
        correct: of a method.
        reference: of what it is compared with, on the same images.

    Raises:
        ArgumentError: the two differ in corruptions, severities or number of images, or there is none.
    """
    errors, other = _wrong(correct, reference)
    return dict(zip(correct, _ratios(errors.sum(0), other.sum(0)).tolist(), strict=True))


def mean_corruption_error(correct: Outcomes, reference: Outcomes, resamples: int = 999, seed: int = 0) -> Interval:
    """Return the mean corruption error with its 95% bootstrap interval, over images.

    An image is drawn with all its corruptions, for both sides. NaN where the reference has no error in a corruption;
    resamples of which that is true are left out.

    Args:
        correct: of a method.
        reference: of what it is compared with, on the same images.
        resamples: how often all images are drawn.
        seed: of the draws.

    Raises:
        ArgumentError: see `corruption_errors`.
    """
    errors, other = _wrong(correct, reference)
    draws = resample(len(errors), resamples, seed, lambda rows: _ratios(rows @ errors, rows @ other).mean(1))
    return percentile_interval(float(_ratios(errors.sum(0), other.sum(0)).mean()), draws)


def _wrong(*sides: Outcomes) -> Iterator[Float[np.ndarray, "images corruptions"]]:
    """Yield, of both sides, in how many severities of each corruption each image's answer is wrong."""
    shapes = [
        {(name, level, len(answers)) for name, levels in one.items() for level, answers in levels.items()}
        for one in sides
    ]
    if shapes[0] != shapes[1] or len({n for *_, n in shapes[0]} - {0}) != 1:
        raise ArgumentError(
            "correct and reference must be of the same corruptions, severities and images, one at least"
        )
    for side in sides:
        wrong = [np.sum([~answers for answers in side[name].values()], axis=0) for name in sides[0]]
        yield np.stack(wrong, 1).astype(np.float64)
