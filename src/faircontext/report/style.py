"""How figures look and how they are written: sizes, type, colours, a forest of intervals, names beside points, files.

Sizes are those of a printed column (3.3 in) and of a page of two (6.9 in), with type of 7 to 8 points, which is read
without a glass. Colours are those of Okabe and Ito, which colour-blind people can tell apart.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import blended_transform_factory

from faircontext.files import replacing
from faircontext.metrics.stats import Interval

__all__ = [
    "BLACK",
    "BLUE",
    "COLUMN",
    "GREEN",
    "GREY",
    "ORANGE",
    "PAGE",
    "PURPLE",
    "SKY",
    "VERMILION",
    "FigureResult",
    "colours_of",
    "draw_interval",
    "forest",
    "inline_svg",
    "interval_columns",
    "label_rows",
    "name_points",
    "name_within",
    "new_figure",
    "annotate_rows",
    "save_figure",
    "styled",
]

BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
BLUE, VERMILION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#707070"
_CYCLE = (VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)

COLUMN, PAGE = 3.3, 6.9
"""Widths of figures in inches."""

_STYLE = mpl.rc_params_from_file(Path(__file__).parent / "templates" / "figures.mplstyle", use_default_template=False)


@dataclass(frozen=True)
class FigureResult:
    """A figure that has been drawn.

    Attributes:
        figure: the drawing.
        data: the numbers that it shows: rows, which become a CSV file, or a document, which becomes a JSON file.
        warnings: what a person should know of it, a line each.
    """

    figure: Figure
    data: Sequence[Mapping[str, Any]] | Mapping[str, Any]
    warnings: tuple[str, ...] = ()


def interval_columns(name: str, interval: Interval) -> dict[str, float]:
    """Return the value that a row is about, and its ends, by the names of their columns."""
    return {name: interval.value, "low": interval.low, "high": interval.high}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save in the figures' style, whatever is set elsewhere."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float, title: str, subtitle: str) -> Figure:
    """Return an empty figure of a size in inches, with what it shows and of what on top."""
    figure = Figure(figsize=(width, height), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    top = 0.36 / height
    engine.set(rect=(0, 0, 1, 1 - top), w_pad=0.03, h_pad=0.03)  # type: ignore[call-arg]
    figure.text(0.06 / width, 1 - 0.05 / height, title, fontsize=8, fontweight="bold", va="top")
    figure.text(0.06 / width, 1 - 0.205 / height, subtitle, fontsize=7, color=GREY, va="top")
    return figure


def colours_of(methods: Sequence[str]) -> list[str]:
    """Return a colour for each method: zero-shot grey, FCL blue, the others in the order of the palette."""
    rest = cycle(_CYCLE)
    return [{"zero_shot": GREY, "fcl": BLUE}.get(method) or next(rest) for method in methods]


def draw_interval(
    axis: Axes, row: float, interval: Interval, colour: str, marker: str = "o", width: float = 1.3, size: float = 4
) -> None:
    """Draw a value and its interval, unless its ends are NaN, at a height; width of the line and size are in points."""
    if np.isfinite([interval.low, interval.high]).all():
        axis.plot([interval.low, interval.high], [row, row], color=colour, linewidth=width, solid_capstyle="butt")
    axis.plot(interval.value, row, marker, color=colour, markersize=size)


def label_rows(axis: Axes, labels: Sequence[str], ends: tuple[float, float]) -> None:
    """Name the rows 0, 1, 2, ... of a panel at its left, with vertical grid lines and no axis, between two heights."""
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(*ends)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")
    axis.spines["left"].set_visible(False)


def annotate_rows(axis: Axes, annotations: Sequence[str], heading: str) -> None:
    """Write an annotation at the right of each row of a panel, below a heading."""
    transform = blended_transform_factory(axis.transAxes, axis.transData)
    for row, annotation in enumerate(annotations):
        axis.text(1.03, row, annotation, transform=transform, va="center_baseline", fontsize=7)
    axis.text(1.03, -0.75, heading, transform=transform, va="bottom", fontsize=7, color=GREY)


def forest(
    axis: Axes,
    labels: Sequence[str],
    values: Sequence[Interval],
    annotations: Sequence[str],
    heading: str,
    strong: int | None = None,
    colours: Sequence[str] | None = None,
) -> None:
    """Draw differences of accuracies in points, a row each, the first on top, annotated at the right of the panel.

    Args:
        axis: where they are drawn.
        labels: of the rows.
        values: the differences with their intervals, as proportions.
        annotations: what stands at the right of each row.
        heading: of the notes.
        strong: a row that sums up the others, below a line.
        colours: of the rows; blue where they are not given.
    """
    for row, value in enumerate(values):
        colour = colours[row] if colours is not None else BLACK if row == strong else BLUE
        points = Interval(100 * value.value, 100 * value.low, 100 * value.high)
        draw_interval(axis, row, points, colour, "D" if row == strong else "o")
    label_rows(axis, labels, (len(labels) - 0.4, -0.6))
    if strong is not None:
        axis.axhline(strong - 0.5, color=GREY, linewidth=0.5)
        axis.get_yticklabels()[strong].set_fontweight("bold")
    annotate_rows(axis, annotations, heading)
    axis.axvline(0, color=BLACK, linewidth=0.7)


def name_within(name: str, letters: int) -> str:
    """Return a name on one line of so many letters, its end left out where it is longer."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


_POINTS_PANEL = (72 * (COLUMN - 0.65), 72 * 2.0)
"""Size of the panel in which points are named, about, in points."""

_FONT_SIZE = 7
_LETTER_WIDTH, _LETTER_HEIGHT, _GAP = 0.62, 1.25, 5.0
"""Mean width and height of a letter in ems, and the distance from a point in points."""

_Box = tuple[float, float, float, float]


def name_points(axis: Axes, points: Float[np.ndarray, "points 2"], names: Sequence[str]) -> None:
    """Write each name beside its point, at the first of several positions where nothing else is.

    The panel is of a column's width, and its limits must be set.
    """
    fractions = axis.transAxes.inverted().transform(axis.transData.transform(points))
    at = fractions * np.array(_POINTS_PANEL)
    taken: list[_Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in at]
    for point, (x, y), name in zip(points, at, names, strict=True):
        width, height = _LETTER_WIDTH * _FONT_SIZE * len(name), _LETTER_HEIGHT * _FONT_SIZE
        box = min(_boxes_beside(x, y, width, height), key=lambda box: _overlap(box, taken))
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
            fontsize=_FONT_SIZE,
            path_effects=[withStroke(linewidth=1.5, foreground="white")],  # lines do not cross a name
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkB": 2} if far else None,
        )


def _boxes_beside(x: float, y: float, width: float, height: float) -> Iterator[_Box]:
    """Yield where a name may stand, the best first: at the right, at the left, above and below, then farther off."""
    for step in range(7):
        centres = [(side * (_GAP + width / 2), up) for up in ((step, -step) if step else (0,)) for side in (1, -1)]
        for dx, up in [*centres, (0.0, step + 1.2), (0.0, -step - 1.2)]:
            left, low = x + dx - width / 2, y + up * 0.75 * height - height / 2
            yield left, low, left + width, low + height


def _overlap(box: _Box, taken: Sequence[_Box]) -> float:
    """Return by how much a box overlaps what is there, and reaches out of the panel, in square points."""
    outside = sum(max(-box[side], 0) + max(box[side + 2] - _POINTS_PANEL[side], 0) for side in (0, 1))
    return 20 * outside + sum(
        max(min(box[2], other[2]) - max(box[0], other[0]), 0) * max(min(box[3], other[3]) - max(box[1], other[1]), 0)
        for other in taken
    )


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PDF, PNG or SVG, by the path's ending, in one step and without a date.

    Raises:
        ArgumentError: the file cannot be written.
    """
    kind = path.suffix[1:]
    absent = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}[kind]
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=300, metadata=dict.fromkeys(absent))
    with replacing(path) as partial:
        partial.write_bytes(stream.getvalue())


def inline_svg(figure: Figure, prefix: str, description: str) -> str:
    """Return a figure as an `svg` element for a page, in which black takes the colour of the page's text.

    Args:
        figure: as `new_figure` begins one.
        prefix: a word that sets its ids apart from those of the page's other figures.
        description: what is to be seen, for those who hear the page.
    """
    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that matplotlib's font lacks: the page's font draws them
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{prefix}-", text)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text).replace(BLACK, "currentColor")
    label = description.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}" fill="currentColor"', 1)
