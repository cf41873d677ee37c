"""Accuracy by position in the stream: early images meet an empty memory, late ones what it has learnt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from faircontext.metrics.orders import means_by_part
from faircontext.metrics.stats import Interval
from faircontext.report.paper import dataset_title
from faircontext.report.style import BLUE, COLUMN, GREY, PAGE, FigureResult, interval_columns, new_figure
from faircontext.report.tables import marked_title, tuned_note
from faircontext.runs.groups import RunGroup, group_runs, method_title
from faircontext.runs.sidecars import Sidecars
from faircontext.runs.stream_results import StreamResult, StreamRuns, split_streams

__all__ = ["PositionCurve", "draw_positions", "position_curve", "position_curves", "positions_figure"]

_PARTS = 10
"""Streams are cut into so many equally long parts, or as many as the shortest has images."""

_LEAST = 10
"""Images of a part, if there are as many for two parts; with fewer no band is drawn."""


@dataclass(frozen=True)
class PositionCurve:
    """A method's accuracy along its streams, beside zero-shot's on the same images.

    Attributes:
        found: the method's results.
        accuracy: of each part of the streams, over orders.
        zero_shot: the same of zero-shot, on the images that lie in the part.
        gain: the difference, paired by image.
        answers: how many there are in each part; an image counts once for each order.
        images: how many there are in all.
    """

    found: StreamResult
    accuracy: Sequence[Interval]
    zero_shot: Sequence[Interval]
    gain: Sequence[Interval]
    answers: Sequence[int]
    images: int

    @property
    def has_band(self) -> bool:
        """Whether a part holds enough images for an interval that says something."""
        return self.images // len(self.answers) >= _LEAST


def position_curve(runs: StreamRuns, method: str, datasets: Sequence[str], parts: int = _PARTS) -> PositionCurve | None:
    """Return a method's accuracy by position, all data sets together.

    Args:
        runs: of all orders.
        method: what it is called.
        datasets: their names.
        parts: how many parts a stream is cut into; fewer where the shortest stream has fewer images, or where a part
            would hold fewer than ten, whose intervals say little.

    Returns:
        None where the method lacks a data set, zero-shot is not known, or a stream has a single image.
    """
    found = runs.result(method, datasets)
    pair = None if found is None else found.paired(runs.baseline("zero_shot", datasets))
    if found is None or pair is None or found.shortest < 2:
        return None
    count = min(parts, found.shortest, max(2, pair[0].correct.shape[1] // _LEAST))
    own, base = pair[0].correct.astype(np.float64), pair[1].astype(np.float64)
    part = pair[0].parts(count)
    (accuracy, answers), (zero_shot, _), (gain, _) = (
        means_by_part(one, part, count) for one in (own, base, own - base)
    )
    return PositionCurve(pair[0], accuracy, zero_shot, gain, answers.tolist(), own.shape[1])


def position_curves(runs: StreamRuns, datasets: Sequence[str]) -> tuple[list[PositionCurve], list[str]]:
    """Return the curves of all methods with a memory, each of the data sets that allow it.

    Args:
        runs: of all orders.
        datasets: their names.

    Returns:
        The curves, and what is left out of them and why, a line each.
    """
    curves, left = list[PositionCurve](), dict[str, list[str]]()
    for method in runs.methods:
        title, lacks = method_title(method), {name: _lack(runs, method, name) for name in datasets}
        for name in (name for name, lack in lacks.items() if lack):
            left.setdefault(f"without {dataset_title(name)}, {lacks[name]}", []).append(title)
        kept = [name for name, lack in lacks.items() if not lack]
        if (curve := position_curve(runs, method, kept)) is not None:
            curves.append(curve)
            if not curve.has_band:
                left.setdefault(f"without bands, as a part has fewer than {_LEAST} images", []).append(title)
        elif kept:
            left.setdefault("not drawn, as no order is of all data sets", []).append(title)
    return curves, [f"{', '.join(titles)} {what}" for what, titles in left.items()]


def _lack(runs: StreamRuns, method: str, name: str) -> str:
    """Return, in words, what forbids a method's curve on a data set; empty where nothing does."""
    found = runs.result(method, [name])
    if found is None:
        return "which has no answers of it"
    if found.shortest < 2:
        return "where fewer than two images left a trace"
    return "where no image has zero-shot's answer" if found.paired(runs.baseline("zero_shot", [name])) is None else ""


def draw_positions(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw accuracy by position in the stream: a panel for each method with a memory, of all data sets and orders."""
    curves, left = list[PositionCurve](), list[str]()
    for runs in split_streams(group_runs(group.runs))[1]:
        some, lines = position_curves(runs, runs.datasets)
        curves += some
        left += lines
    if not curves:
        return (
            "needs runs of a method with a memory, on streams of at least 2 images: "
            "faircontext evaluate --datasets NAMES --methods tda --orders 0 1 2 --root DATA"
            + (f" (here {'; '.join(left)})" if left else "")
        )
    figure = positions_figure(group.title, curves)
    rows = [row for curve in curves for row in _rows(curve)]
    tuned = ((method_title(c.found.method), dataset_title(name)) for c in curves for name in c.found.tuned)
    return FigureResult(figure, rows, (*tuned_note(tuned), *left))


def _rows(curve: PositionCurve) -> list[dict[str, Any]]:
    """Return what is drawn, a row for each part; `from` and `to` are shares of the stream."""
    count = len(curve.answers)
    facts: Mapping[str, Any] = {
        "method": curve.found.method,
        "orders": " ".join(map(str, curve.found.orders)),
        "n": curve.images,
    }
    return [
        {
            **facts,
            "from": index / count,
            "to": (index + 1) / count,
            "answers": answers,
            **interval_columns("accuracy", curve.accuracy[index]),
            **interval_columns("zero_shot", curve.zero_shot[index], "zero_shot_"),
            **interval_columns("gain", curve.gain[index], "gain_"),
        }
        for index, answers in enumerate(curve.answers)
    ]


def positions_figure(subtitle: str, curves: Sequence[PositionCurve]) -> Figure:
    """Draw each method in each part of the stream: its accuracy and zero-shot's on the same images; the gain below."""
    sizes = [_size_of(curve) for curve in curves]
    columns = min(len(curves), 3 if len(curves) in (3, 5, 6, 9) else 4)
    narrow = columns < 3
    same = len({*sizes}) == 1 and not narrow  # on top there is no room beside the settings of the runs
    lines, width = ceil(len(curves) / columns), COLUMN if narrow else PAGE
    below = f"{subtitle}{f'; {sizes[0]}' if same else ''}"
    figure = new_figure(width, 0.95 + 2.15 * lines, "Accuracy by position in the stream", below)
    heights = [1.9, 1.0] * lines
    axes = figure.subplots(2 * lines, columns, squeeze=False, sharex=True, sharey="row", height_ratios=heights)
    upper, lower = (axes[start::2].ravel() for start in (0, 1))
    for index, curve in enumerate(curves):
        title = marked_title(curve.found.all, curve.found.method)
        upper[index].set_title(title if same else f"{title}\n{sizes[index]}", fontsize=7)
        _draw_curve(upper[index], curve.zero_shot, GREY, band=False)
        _draw_curve(upper[index], curve.accuracy, BLUE, curve.has_band)
        _draw_curve(lower[index], curve.gain, BLUE, curve.has_band)
        lower[index].axhline(0, color=GREY, linewidth=0.7)
    for axis in (*upper[len(curves) :], *lower[len(curves) :]):
        axis.set_axis_off()
    for axis in lower[max(len(curves) - columns, 0) : len(curves)]:  # one above an empty panel shows its own ticks
        axis.tick_params(labelbottom=True)
        axis.set_xlabel("seen before (%)")
    for panels in (upper[: len(curves)], lower[: len(curves)]):
        ends = np.array([axis.get_ylim() for axis in panels])
        for axis in panels:
            axis.set_ylim(ends.min(), ends.max())
    for row in range(lines):
        upper[row * columns].set_ylabel("top-1 (%)")
        lower[row * columns].set_ylabel("gain (points)")
    lines_of = [Line2D([], [], color=colour, linewidth=1.1, marker="o", markersize=2) for colour in (BLUE, GREY)]
    what = ("method, mean of orders, and its gain, paired;", "bands: 95% intervals")
    names = [("\n" if narrow else " ").join(what), "zero-shot on the same images"]
    figure.legend(lines_of, names, loc="outside lower left", ncols=1 if narrow else 2, fontsize=6.5, frameon=False)
    return figure


def _size_of(curve: PositionCurve) -> str:
    orders = len(curve.found.orders)
    return f"n = {curve.images:,} in {orders} order{'s' * (orders > 1)}, {curve.images // len(curve.answers)} a part"


def _draw_curve(axis: Axes, values: Sequence[Interval], colour: str, band: bool) -> None:
    """Draw proportions along a stream, at the middle of each part, in percent."""
    centres = 100 * (np.arange(len(values)) + 0.5) / len(values)
    middle, low, high = ([100 * getattr(value, end) for value in values] for end in ("value", "low", "high"))
    if band:
        axis.fill_between(centres, low, high, color=colour, alpha=0.18, linewidth=0)
    axis.plot(centres, middle, color=colour, linewidth=1.1, marker="o", markersize=2)
    axis.set(xlim=(0, 100))
    axis.set_xticks([0, 50, 100])
    axis.grid(axis="y")
