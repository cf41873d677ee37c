"""How figures look and how they are written: sizes, type, colours, lines and rows of intervals, names of points, files.

Sizes are those of a printed column (3.3 in) and of a page of two (6.9 in), with type of 7 to 8 points, which is read
without a glass. Colours are those of Okabe and Ito, which colour-blind people can tell apart.
"""

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import blended_transform_factory

from faircontext.files import replacing
from faircontext.metrics.bootstrap import PooledMean
from faircontext.metrics.stats import Interval
from faircontext.report.render import flat

BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
BLUE, VERMILION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#707070"
_CYCLE = (VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)

COLUMN, PAGE, DPI = 3.3, 6.9, 300
"""Widths of figures in inches, and dots of an inch."""

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


def interval_columns(name: str, value: Interval | PooledMean) -> dict[str, Any]:
    """Return the value that a row is about, and its ends, by the names of their columns."""
    return {key.removeprefix(f"{name}_"): part for key, part in flat({name: value}).items()}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save in the figures' style, whatever is set elsewhere."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float, title: str, subtitle: str) -> Figure:
    """Return an empty figure of a size in inches, with what it shows and of what on top; a long line is shortened."""
    figure = Figure(figsize=(width, height), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    top = 0.36 / height
    engine.set(rect=(0, 0, 1, 1 - top), w_pad=0.03, h_pad=0.03)  # type: ignore[call-arg]
    lines = (
        figure.text(0.06 / width, 1 - 0.05 / height, title, fontsize=8, fontweight="bold", va="top"),
        figure.text(0.06 / width, 1 - 0.205 / height, subtitle, fontsize=7, color=GREY, va="top"),
    )
    for line in lines:
        whole = kept = line.get_text()
        while line.get_window_extent().x1 > figure.bbox.width and len(kept) > 2:
            kept = kept[:-1]  # a path is known by its end, what precedes it by its start
            line.set_text(f"{whole[: -(-len(kept) // 2)]}…{whole[-(len(kept) // 2) :]}")
    return figure


def colours_of(methods: Sequence[str]) -> list[str]:
    """Return a colour for each method: zero-shot grey, FCL blue, the others in the order of the palette."""
    rest = cycle(_CYCLE)
    return [{"zero_shot": GREY, "fcl": BLUE}.get(method) or next(rest) for method in methods]


BOTH = "thick: over these images; thin: over sets like these"
"""What the two intervals of a difference over several data sets are, where a figure has both."""

_THICK, _THIN = 3.0, 0.8


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


class Dot(NamedTuple):
    """A row of a panel: a difference of accuracies as a proportion, with what stands left and right of it."""

    label: str
    gain: PooledMean
    annotation: str
    colour: str = BLUE


def draw_dots(axis: Axes, dots: Sequence[Dot], heading: str, summed: bool = False) -> None:
    """Draw differences of accuracies in points, a row each, the first on top, annotated at the right of the panel.

    Args:
        axis: where they are drawn.
        dots: the rows.
        heading: of the annotations.
        summed: whether the last row sums up the others; it stands below a line.
    """
    last = len(dots) - 1 if summed else None
    width = _THICK if any(dot.gain.sets for dot in dots) else 1.3
    for row, (_, gain, _, colour) in enumerate(dots):
        shown, sign = (BLACK, "D") if row == last else (colour, "o")
        for interval, size in ((gain.sets, _THIN), (gain.images, width)):
            if interval is not None:
                points = Interval(*(100 * end for end in vars(interval).values()))
                draw_interval(axis, row, points, shown, sign, size)
    label_rows(axis, [dot.label for dot in dots], (len(dots) - 0.4, -0.6))
    if last is not None:
        axis.axhline(last - 0.5, color=GREY, linewidth=0.5)
        axis.get_yticklabels()[last].set_fontweight("bold")
    annotate_rows(axis, [dot.annotation for dot in dots], heading)
    axis.axvline(0, color=BLACK, linewidth=0.7)


def draw_line(
    axis: Axes,
    x: Sequence[float] | np.ndarray,
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    colour: str,
    intervals: Literal["band", "bars", "none"],
    over_sets: Sequence[str] = (),
    **line: Any,
) -> None:
    """Draw proportions in percent over `x`.

    Args:
        axis: where they are drawn.
        x: where each stands.
        rows: what a figure's data hold of them.
        names: of the columns with the value and with the ends of its interval.
        colour: of all.
        intervals: how they are drawn.
        over_sets: names of the columns with the ends of the interval over sets like these, if there is one.
        **line: how the values are drawn, see `Axes.plot`.
    """
    value, low, high, *ends = (_percent([row[name] for row in rows]) for name in (*names, *over_sets))
    both = any(np.isfinite(end).any() for end in ends)
    if intervals == "band":
        axis.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        for end in ends:
            axis.plot(x, end, color=colour, linewidth=_THIN, linestyle=":", marker=".", markersize=1.5)
    elif intervals == "bars":
        axis.vlines(x, low, high, color=colour, alpha=0.45, linewidth=_THICK if both else 1)
        if both:
            axis.vlines(x, ends[0], ends[1], color=colour, linewidth=_THIN)
    axis.plot(x, value, color=colour, linewidth=1.1, **line)


def _percent(values: Sequence[float | str]) -> Float[np.ndarray, " values"]:
    """Return proportions in percent; a text stands for one that is not known."""
    return 100 * np.array([math.nan if isinstance(value, str) else value for value in values], np.float64)


def grid_of(axes: np.ndarray, count: int, columns: int) -> None:
    """Hide the panels of a grid after the first `count`; one above such a panel shows its own ticks."""
    for axis in axes[count:]:
        axis.set_axis_off()
    for axis in axes[max(count - columns, 0) : count]:
        axis.tick_params(labelbottom=True)


def name_within(name: str, letters: int) -> str:
    """Return a name on one line of so many letters, its end left out where it is longer."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


_PANEL = np.array([72 * (COLUMN - 0.65), 72 * 2.0])
"""Size of the panel in which points are named, about, in points."""


def name_points(axis: Axes, points: Float[np.ndarray, "points 2"], names: Sequence[str], size: float = 7) -> None:
    """Write each name beside its point, at the first of several positions where nothing else is.

    The panel is of a column's width, and its limits must be set.
    """
    at = axis.transAxes.inverted().transform(axis.transData.transform(points)) * _PANEL
    taken = [(place - 3, place + 3) for place in at]

    def overlap(low: np.ndarray, high: np.ndarray) -> float:
        """Return by how much a box overlaps what is there, and reaches out of the panel, in square points."""
        outside = np.maximum(-low, 0).sum() + np.maximum(high - _PANEL, 0).sum()
        shared = (np.prod(np.maximum(np.minimum(high, top) - np.maximum(low, bottom), 0)) for bottom, top in taken)
        return float(20 * outside + sum(shared))

    for point, place, name in zip(points, at, names, strict=True):
        half = np.array([0.31 * len(name), 0.625]) * size
        steps = sorted(product((1, -1, 0), range(-7, 8)), key=lambda step: abs(step[1]) + 1.2 * (step[0] == 0))
        moves = [(side * (5 + half[0]), 1.5 * up * half[1]) for side, up in steps if side or abs(up) > 1]
        boxes = [(place + move - half, place + move + half) for move in moves]
        best = min(range(len(boxes)), key=lambda index: overlap(*boxes[index]))
        taken.append(boxes[best])
        axis.annotate(
            name,
            (float(point[0]), float(point[1])),
            moves[best],
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=size,
            path_effects=[withStroke(linewidth=1.5, foreground="white")],  # lines do not cross a name
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4} if abs(moves[best][1]) > 10 else None,
        )


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PDF, PNG or SVG, by the path's ending, in one step and without a date.

    Raises:
        ArgumentError: the file cannot be written.
    """
    kind = path.suffix[1:]
    absent = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}[kind]
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=DPI, metadata=dict.fromkeys(absent))
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
