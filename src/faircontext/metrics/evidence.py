"""How near the sum of an image's evidence can be to the image (paper, Tab. "decomposition")."""

import math

__all__ = ["COMPOSED_WEIGHT", "reconstruction_bound"]

COMPOSED_WEIGHT = 0.1
"""Of each unique proxy in the sum."""


def reconstruction_bound(common: float, first: float, second: float, weight: float = COMPOSED_WEIGHT) -> float:
    """Return the largest cosine to z that `z_com + w z_uniq_1 + w z_uniq_2` can have, given the cosines of its parts.

    Write each part as its share along z and a rest: shares add up, and the rest is smallest where the rests oppose each
    other: what the longest has over the others, or nothing (for shares below zero in all, where the longest rest is
    best, it is where they agree). The paper's cosines allow 0.8495, less than the 0.8705 that it reports; means over
    images do not change that, since the bound lies below its tangent plane at the means.

    Args:
        common: cosine of the common proxy.
        first: cosine of the first unique proxy.
        second: cosine of the second.
        weight: w.
    """
    along = common + weight * (first + second)
    # A cosine from features in float32 may exceed 1 by rounding.
    sines = [math.sqrt(max(0.0, 1 - cosine**2)) for cosine in (common, first, second)]
    rests = (sines[0], weight * sines[1], weight * sines[2])
    rest = max(0.0, 2 * max(rests) - sum(rests)) if along >= 0 else sum(rests)
    return along / math.hypot(along, rest) if along or rest else 0.0
