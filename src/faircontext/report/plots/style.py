"""How figures look: one place for sizes, type and colours, so that a page of them is of one piece.

Sizes are those of a printed column (3.3 in) and of a page of two (6.9 in), with type of 7 to 8 points, which is read
without a glass. Colours are those of Okabe and Ito, which colour-blind people can tell apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

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
    "colours_of",
    "forest",
    "new_figure",
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
    places = np.arange(len(labels))
    for place, (value, low, high) in enumerate(values.tolist()):
        colour = colours[place] if colours is not None else BLACK if place == strong else BLUE
        if np.isfinite([low, high]).all():
            axis.plot([low, high], [place, place], color=colour, linewidth=1.3, solid_capstyle="butt")
        axis.plot(value, place, "D" if place == strong else "o", color=colour, markersize=4)
    axis.set_yticks(places, labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")
    axis.spines["left"].set_visible(False)
    if strong is not None:
        axis.axhline(strong - 0.5, color=GREY, linewidth=0.5)
        axis.get_yticklabels()[strong].set_fontweight("bold")
    beside = blended_transform_factory(axis.transAxes, axis.transData)
    for place, note in enumerate(notes):
        axis.text(1.03, place, note, transform=beside, va="center_baseline", fontsize=7)
    if heading:
        axis.text(1.03, -0.75, heading, transform=beside, va="bottom", fontsize=7, color=GREY)
