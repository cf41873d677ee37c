"""Names beside points, where no two of them overlap: a figure is read without going back and forth to a legend."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from faircontext.report.plots.style import GREY

__all__ = ["name_points"]

_ADVANCE, _HEIGHT, _GAP = 0.62, 1.25, 5.0
"""Mean width and height of a letter in ems, and the distance from a point in points."""

_Box = tuple[float, float, float, float]


def name_points(
    axis: Axes,
    points: Float[np.ndarray, "points 2"],
    names: Sequence[str],
    size: tuple[float, float],
    fontsize: float = 7,
) -> None:
    """Write each name beside its point, at the first of several places where nothing else is.

    Args:
        axis: where the points are drawn; its limits must be set.
        points: their data coordinates.
        names: of the points.
        size: of the panel in inches, about.
        fontsize: in points.
    """
    panel = np.array(size) * 72
    fractions = axis.transAxes.inverted().transform(axis.transData.transform(points))
    at = fractions * panel
    taken: list[_Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in at]
    for point, (x, y), name in zip(points, at, names, strict=True):
        width, height = _ADVANCE * fontsize * len(name), _HEIGHT * fontsize
        box = min(_places(x, y, width, height), key=lambda box: _cost(box, taken, (panel[0], panel[1])))
        taken.append(box)
        centre = ((box[0] + box[2]) / 2 - x, (box[1] + box[3]) / 2 - y)
        far = np.hypot(max(abs(centre[0]) - width / 2, 0), max(abs(centre[1]) - height / 2, 0)) > 2 * _GAP
        axis.annotate(
            name,
            (float(point[0]), float(point[1])),
            centre,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=fontsize,
            path_effects=[withStroke(linewidth=1.5, foreground="white")],  # lines do not cross a name
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkB": 2} if far else None,
        )


def _places(x: float, y: float, width: float, height: float) -> list[_Box]:
    """Return where a name may stand, the best first."""
    found = []
    for step in (0, 1, 2, 3, 4, 5, 6):
        for up in (step, -step) if step else (0,):
            for right in (True, False):
                left = x + _GAP if right else x - _GAP - width
                middle = y + up * 0.75 * height
                found.append((left, middle - height / 2, left + width, middle + height / 2))
        for above in (step + 1.2, -step - 1.2):
            middle = y + above * 0.75 * height
            found.append((x - width / 2, middle - height / 2, x + width / 2, middle + height / 2))
    return found


def _cost(box: _Box, taken: Sequence[_Box], panel: tuple[float, float]) -> float:
    """Return by how much a box overlaps what is there, and reaches out of the panel, in square points."""
    outside = max(-box[0], 0) + max(-box[1], 0) + max(box[2] - panel[0], 0) + max(box[3] - panel[1], 0)
    overlaps = (
        max(min(box[2], other[2]) - max(box[0], other[0]), 0) * max(min(box[3], other[3]) - max(box[1], other[1]), 0)
        for other in taken
    )
    return 20 * outside + sum(overlaps)
