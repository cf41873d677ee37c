"""Accuracy against what an answer costs, in seconds and in memory, with the methods that none beats in both."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter

from faircontext.metrics.stats import average_interval
from faircontext.report.groups import method_title
from faircontext.report.plots.beside import Cost
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.labels import name_points
from faircontext.report.plots.samples import shared_sets
from faircontext.report.plots.sources import Material
from faircontext.report.plots.style import COLUMN, GREY, PAGE, colours_of, new_figure

__all__ = ["draw_pareto", "front"]

_SHARED = (
    "seconds are those of the runs, where the first method that uses features pays for all that share them, so that "
    "the front favours the others; costs.json has comparable ones"
)


def draw_pareto(material: Material) -> Drawing | str:
    """Draw a point per method, all on the same images; costs come from `costs.json`, else from the runs' rows."""
    methods, right = shared_sets(material.results, material.methods)
    left_out = [name for name in material.methods if name not in methods]
    notes = [f"{name} is left out: it shares no image with the others" for name in left_out]
    costs = {cost.method: cost for cost in reversed(material.costs)}
    if not costs:
        costs = {name: Cost(name, "", _seconds(material, name)) for name in methods}
        notes.append(_SHARED)
    # A log axis has no place for nothing: a clock that did not tick tells no cost.
    drawn = [name for name in methods if name in costs and costs[name].seconds_mean > 0]
    notes += [f"{method} is left out: its cost is not known" for method in methods if method not in drawn]
    if len(drawn) < 2 <= len(methods):
        return f"needs the costs of two methods, and knows {len(drawn)}: give each of them an entry in costs.json"
    if len(drawn) < 2:
        return "needs runs of at least two methods: faircontext evaluate --datasets NAMES --methods all --root DATA"
    rows = []
    for name in drawn:
        accuracy = average_interval([arrays[methods.index(name)] for arrays in right.values()])
        cost = costs[name]
        rows.append(
            {
                "method": name,
                "n": sum(len(arrays[0]) for arrays in right.values()),
                "datasets": len(right),
                "accuracy": accuracy.value,
                "low": accuracy.low,
                "high": accuracy.high,
                "seconds": cost.seconds_mean,
                "seconds_standard_error": cost.seconds_standard_error,
                "peak_memory_mb": cost.peak_memory_mb,
            }
        )
    return Drawing(_figure(material, rows, _SHARED in notes), rows, tuple(notes))


def _seconds(material: Material, method: str) -> float:
    """Return the mean seconds of a method's answers, images of all runs weighing the same."""
    found = [
        seconds
        for results in material.results.values()
        if method in results
        for name, error, seconds in zip(
            *(results[method].run.rows[key].to_pylist() for key in ("method", "error", "seconds")), strict=True
        )
        if name == method and not error
    ]
    return float(np.mean(found)) if found else 0.0


def front(costs: list[float], accuracies: list[float]) -> list[int]:
    """Return the places of what nothing beats, being as cheap and as accurate and better in one, by cost."""
    found: list[int] = []
    for place in sorted(range(len(costs)), key=lambda place: (costs[place], -accuracies[place])):
        if not found or accuracies[place] > accuracies[found[-1]]:
            found.append(place)
    return found


def _figure(material: Material, rows: list[dict[str, Any]], shared: bool) -> Any:
    keys = [("seconds", "seconds per image (log scale)")]
    if sum(bool(row["peak_memory_mb"]) for row in rows) > 1:
        keys.append(("peak_memory_mb", "peak memory (MB)"))
    over = f"mean of {rows[0]['datasets']} sets, " if rows[0]["datasets"] > 1 else ""
    width = PAGE if len(keys) > 1 else COLUMN
    figure = new_figure(
        width, 3.0, "Accuracy and cost" if width == COLUMN else "Accuracy, time and memory", material.title
    )
    first = None
    for axis, (key, label) in zip(figure.subplots(1, len(keys), squeeze=False)[0], keys, strict=True):
        note = "\nshared features count for their first user only" if shared else ""
        axis.set_xlabel(label + note)
        _draw_panel(axis, [row for row in rows if row[key]], key)
        first = first or axis
    assert first is not None
    first.set_ylabel(f"top-1 accuracy (%), 95%\n{over}n = {rows[0]['n']:,}")
    return figure


def _draw_panel(axis: Axes, rows: list[dict[str, Any]], key: str) -> None:
    colours = colours_of([row["method"] for row in rows])
    costs, accuracies = [row[key] for row in rows], [100 * row["accuracy"] for row in rows]
    for row, cost, accuracy in zip(rows, costs, accuracies, strict=True):
        colour = colours[row["method"]]
        axis.plot([cost, cost], [100 * row["low"], 100 * row["high"]], color=colour, linewidth=0.8, alpha=0.45)
        axis.plot(cost, accuracy, "o", color=colour, markersize=4)
    best = front(costs, accuracies)
    axis.plot(
        [costs[place] for place in best],
        [accuracies[place] for place in best],
        drawstyle="steps-post",
        color=GREY,
        linewidth=0.8,
        linestyle="--",
        zorder=0,
    )
    low, high = min(costs), max(costs)
    if key == "seconds":
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        margin = max(high / low, 2.0) ** 0.25
        axis.set_xlim(low / margin, high * margin)
    else:
        axis.set_xlim(0.0, 1.25 * high)
    axis.grid(axis="y")
    axis.set_ylim(*axis.get_ylim())
    names = [method_title(row["method"]) for row in rows]
    points = np.array([costs, accuracies]).T
    name_points(axis, points, names, (COLUMN - 0.65, 2.0))
    axis.text(0.99, 0.01, "dashed: Pareto front", transform=axis.transAxes, ha="right", va="bottom", color=GREY)
