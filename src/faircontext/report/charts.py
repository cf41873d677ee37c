"""Charts of a page, as SVG that stands in it: gains by data set, and reliability.

Lines and letters take the colour of the text around them, so that one drawing serves light and dark pages.
"""

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faircontext.metrics.calibration import Reliability
from faircontext.metrics.stats import Interval, wilson_interval
from faircontext.report.figures import name_within

__all__ = ["Curve", "Gain", "gains_chart", "inline_svg", "reliability_chart"]

_INK = "#010203"
"""Stands for the colour of the text until the drawing is in its page."""
# Okabe and Ito's blue, vermilion and grey: apart for colour-blind people, and legible on white and on black.
_OWN, _WORSE, _BASE = "#2b8cc4", "#d55e00", "#8a9199"
_LONGEST_NAME = 28


@dataclass(frozen=True)
class Gain:
    """A row of `gains_chart`.

    Attributes:
        title: the data set.
        number: of images.
        interval: the gain as a proportion.
    """

    title: str
    number: int
    interval: Interval


@dataclass(frozen=True)
class Curve:
    """A curve of `reliability_chart`."""

    title: str
    bins: Reliability


def gains_chart(rows: Sequence[Gain], total: Gain) -> Figure:
    """Draw gains in percentage points with their intervals, largest on top, and the total beneath."""
    ordered = [*sorted(rows, key=lambda row: -row.interval.value), total]
    figure = Figure(figsize=(5.2, 0.25 * len(ordered) + 0.95), layout="constrained")
    axis = _axes(figure)
    places = [*range(len(rows)), len(rows) + 0.4]
    for place, row in zip(places, ordered, strict=True):
        low, value, high = (100 * end for end in (row.interval.low, row.interval.value, row.interval.high))
        colour = _OWN if low > 0 else _WORSE if high < 0 else _BASE
        axis.plot([low, high], [place, place], color=colour, linewidth=2)
        axis.plot([value], [place], "D" if row is total else "o", color=colour, markersize=6)
    axis.axvline(0, color=_INK, linewidth=0.8)
    axis.axhline(len(rows) - 0.3, color=_INK, linewidth=0.4)
    axis.set_yticks(places, [f"{_shorten(row.title)} ({row.number:,})" for row in ordered])
    axis.set_ylim(places[-1] + 0.6, -0.6)
    axis.set_xlabel("top-1 accuracy less zero-shot's\n(percentage points, 95% interval)")
    return figure


def reliability_chart(curves: Sequence[Curve]) -> Figure:
    """Draw accuracy against confidence with Wilson's intervals, and beneath how many answers each bin has."""
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 1])
    for axis in (upper, lower):
        _plain(axis)
    upper.plot([0, 1], [0, 1], color=_INK, linewidth=0.8, linestyle=":")
    styles = [(_OWN, "o")] if len(curves) == 1 else [(_BASE, "s"), (_OWN, "o")]
    for curve, (colour, marker) in zip(curves, styles, strict=True):
        bins, filled = curve.bins, curve.bins.number > 0
        ends = np.array([wilson_interval(round(a * n), n) for a, n in _pairs(bins)]).T
        accuracy = bins.accuracy[filled]
        label = f"{_shorten(curve.title)}: ECE {100 * bins.expected_calibration_error:.1f}%, n = {bins.number.sum():,}"
        upper.errorbar(
            bins.confidence[filled],
            accuracy,
            np.maximum(np.abs(ends - accuracy), 0),
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.3,
            elinewidth=0.6,
            label=label,
        )
        lower.stairs(bins.number, bins.edges, color=colour, linewidth=1.5)
    upper.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="accuracy")
    lower.set(xlabel="confidence of the answer (20 bins)", ylabel="answers")
    figure.legend(loc="outside upper left", frameon=False, labelcolor=_INK, fontsize=9)
    return figure


def _pairs(bins: Reliability) -> list[tuple[float, int]]:
    """Return accuracy and number of the bins that hold something."""
    return [(float(a), int(n)) for a, n in zip(bins.accuracy, bins.number, strict=True) if not isnan(a)]


def _axes(figure: Figure) -> Axes:
    axis = figure.subplots()
    _plain(axis)
    return axis


def _plain(axis: Axes) -> None:
    """Give an axis the colour of the text, and no frame."""
    axis.set_facecolor("none")
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_INK)
    axis.tick_params(colors=_INK, labelsize=9)
    for label in (axis.xaxis.label, axis.yaxis.label):
        label.set(color=_INK, fontsize=9)


def inline_svg(figure: Figure, prefix: str, description: str) -> str:
    """Return a figure as an `svg` element for a page.

    Args:
        figure: one of this module's.
        prefix: a word that sets its ids apart from those of the page's other drawings.
        description: what is to be seen, for those who hear the page.
    """
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that matplotlib's font lacks: the page's font draws them
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{prefix}-", text)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text).replace(_INK, "currentColor")
    label = description.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _shorten(name: str) -> str:
    """Return a name as it is drawn; a dollar is a dollar, not the begin of a formula."""
    return name_within(name, _LONGEST_NAME).replace("$", r"\$")
