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
    "forest",
    "inline_svg",
    "name_points",
    "name_within",
    "new_figure",
    "save_figure",
    "styled",
]

BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
BLUE, VERMILION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#707070"
_CYCLE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)

COLUMN, PAGE = 3.3, 6.9
"""Widths of figures in inches."""

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same type on every machine
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "figure.facecolor": "white",
    "pdf.fonttype": 42,  # TrueType, embedded: text can be searched, and publishers take it
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.hashsalt": "faircontext",
    "svg.fonttype": "path",
}


@dataclass(frozen=True)
class FigureResult:
    """A figure that has been drawn.

    Attributes:
        figure: the drawing.
        data: the numbers that it shows: rows, which become a CSV file, or a document, which becomes a JSON file.
        notes: what a person should know of it, a line each.
    """

    figure: Figure
    data: Sequence[Mapping[str, Any]] | Mapping[str, Any]
    notes: tuple[str, ...] = ()


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


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name: zero-shot grey, FCL blue, the others in the order of the palette."""
    found, rest = {}, cycle(colour for colour in _CYCLE if colour != BLUE)
    for name in names:
        found[name] = GREY if name == "zero_shot" else BLUE if name == "fcl" else next(rest)
    return found


def forest(
    axis: Axes,
    labels: Sequence[str],
    values: Float[np.ndarray, "rows 3"],
    notes: Sequence[str] = (),
    heading: str = "",
    strong: int | None = None,
    colours: Sequence[str] | None = None,
) -> None:
    """Draw a row per label, the first on top: a value with its interval, and a note at the right of the panel.

    Args:
        axis: where it is drawn.
        labels: of the rows.
        values: value, low and high end of each; ends that are NaN are not drawn.
        notes: what stands at the right of each row.
        heading: of the notes.
        strong: a row that sums up the others, below a line.
        colours: of the rows; blue where they are not given.
    """
    rows = np.arange(len(labels))
    for row, (value, low, high) in enumerate(values.tolist()):
        colour = colours[row] if colours is not None else BLACK if row == strong else BLUE
        if np.isfinite([low, high]).all():
            axis.plot([low, high], [row, row], color=colour, linewidth=1.3, solid_capstyle="butt")
        axis.plot(value, row, "D" if row == strong else "o", color=colour, markersize=4)
    axis.set_yticks(rows, labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")
    axis.spines["left"].set_visible(False)
    if strong is not None:
        axis.axhline(strong - 0.5, color=GREY, linewidth=0.5)
        axis.get_yticklabels()[strong].set_fontweight("bold")
    beside = blended_transform_factory(axis.transAxes, axis.transData)
    for row, note in enumerate(notes):
        axis.text(1.03, row, note, transform=beside, va="center_baseline", fontsize=7)
    if heading:
        axis.text(1.03, -0.75, heading, transform=beside, va="bottom", fontsize=7, color=GREY)


def name_within(name: str, letters: int) -> str:
    """Return a name on one line of so many letters, its end left out where it is longer."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


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
        box = min(_boxes_beside(x, y, width, height), key=lambda box: _cost(box, taken, (panel[0], panel[1])))
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


def _boxes_beside(x: float, y: float, width: float, height: float) -> list[_Box]:
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
