"""Reliability: how often answers of some confidence are right, for each method, in bins of equal width."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from faircontext.metrics.calibration import Reliability, reliability
from faircontext.metrics.stats import wilson_interval
from faircontext.report.groups import method_title
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.sources import Material
from faircontext.report.plots.style import BLUE, COLUMN, GREY, PAGE, new_figure

__all__ = ["draw_reliability"]


def draw_reliability(material: Material) -> Drawing | str:
    """Draw a panel per method, the images of all data sets together; the error (ECE) is over the same 20 bins."""
    found = {}
    for method in material.methods:
        results = [sets[method] for sets in material.results.values() if method in sets]
        known = [result for result in results if not result.answers_only and np.isfinite(result.confidence).all()]
        if known:
            confidence = np.concatenate([result.confidence for result in known])
            found[method] = reliability(confidence, np.concatenate([result.correct for result in known]))
    if not found:
        return "needs runs with confidences: faircontext evaluate --datasets NAMES --methods fcl --root DATA"
    columns = min(len(found), 2 if len(found) < 3 else 5)
    lines = math.ceil(len(found) / columns)
    width = COLUMN if columns < 3 else PAGE
    side = (width - 0.4) / max(columns, 2)
    sets = len(material.results)
    title = "Reliability" + (f" (images of {sets} sets together)" if sets > 1 else "")
    figure = new_figure(width, 0.75 + lines * (side + 0.28), title, material.title)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    rows: list[dict[str, Any]] = []
    for axis, (method, curve) in zip(axes, found.items(), strict=False):
        number, error = int(curve.number.sum()), curve.expected_calibration_error
        axis.set_title(f"{method_title(method)}\nECE {100 * error:.1f}%, n = {number:,}", fontsize=7)
        _draw_curve(axis, curve)
        rows += [{"method": method, "n": number, "ece": error, **entry} for entry in _rows(curve)]
    for axis in axes[len(found) :]:
        axis.set_axis_off()
    for place in range(len(found)):  # a panel above an empty place has no neighbour that shows its ticks
        if place + columns >= len(found):
            axes[place].tick_params(labelbottom=True)
    figure.supxlabel("confidence (mean of the bin)", fontsize=7.5)
    figure.supylabel("share of right answers (95%)", fontsize=7.5)
    return Drawing(figure, rows)


def _rows(curve: Reliability) -> list[dict[str, Any]]:
    """Return what is known of each bin that is not empty."""
    rows = []
    for place in np.flatnonzero(curve.number):
        number, accuracy = int(curve.number[place]), float(curve.accuracy[place])
        low, high = wilson_interval(round(accuracy * number), number)
        edges = {"from": float(curve.edges[place]), "to": float(curve.edges[place + 1])}
        means = {"answers": number, "confidence": float(curve.confidence[place]), "accuracy": accuracy}
        rows.append({**edges, **means, "low": low, "high": high})
    return rows


def _draw_curve(axis: Axes, curve: Reliability) -> None:
    rows = _rows(curve)
    x, y = [row["confidence"] for row in rows], [row["accuracy"] for row in rows]
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.7, linestyle="--", zorder=0)
    axis.vlines(x, [row["low"] for row in rows], [row["high"] for row in rows], color=BLUE, alpha=0.35, linewidth=0.9)
    axis.plot(x, y, "-", color=BLUE, linewidth=0.9)
    sizes = [4 + 26 * row["answers"] / max(other["answers"] for other in rows) for row in rows]
    axis.scatter(x, y, s=sizes, color=BLUE, linewidths=0, zorder=3, clip_on=False)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axis.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axis.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
