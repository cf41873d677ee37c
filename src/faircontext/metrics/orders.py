"""Accuracies of methods with a memory over several orders of the same images, and their differences."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped

from faircontext.errors import ArgumentError
from faircontext.metrics.checks import check_arrays
from faircontext.metrics.stats import bootstrap_means

__all__ = ["OrdersDifference", "difference_over_orders"]

_NORMAL = 1.959963984540054
"""Of the standard normal distribution, 95% lie within it."""


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
    orders their variance is itself uncertain, which is not in the interval.

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
    p_value = math.erfc(abs(value) / (error * math.sqrt(2.0))) if error else float(value == 0.0)
    half = _NORMAL * error
    return OrdersDifference(value, math.sqrt(of_orders), value - half, value + half, p_value)
