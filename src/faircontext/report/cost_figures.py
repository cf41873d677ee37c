"""Figures of cost: accuracy against seconds and memory, and against the number of masks."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from faircontext.metrics.stats import average_interval
from faircontext.report.style import BLACK, BLUE, COLUMN, GREY, PAGE, FigureResult, colours_of, name_points, new_figure
from faircontext.runs.groups import Cost, RunGroup, Sidecars, common_images, method_title, shared_sets
from faircontext.runs.records import method_of
from faircontext.runs.results import Result

__all__ = ["draw_masks", "draw_pareto", "pareto_front"]

_SHARED = (
    "seconds are those of the runs, where the first method that uses features pays for all that share them, so that "
    "the front favours the others; costs.json has comparable ones"
)


def draw_pareto(group: RunGroup, sidecars: Sidecars) -> FigureResult | str:
    """Draw a point per method, all on the same images; costs come from `costs.json`, else from the runs' rows."""
    methods, correct = shared_sets(group)
    left_out = [name for name in group.methods if group.row(name) and name not in methods]
    notes = [f"{name} is left out: it shares no image with the others" for name in left_out]
    costs = {cost.method: cost for cost in reversed(sidecars.costs) if cost.backbone == group.settings.backbone}
    if not costs:
        costs = {name: Cost(name, "", _seconds(group, name)) for name in methods}
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
        accuracy = average_interval([arrays[methods.index(name)] for arrays in correct.values()])
        cost = costs[name]
        rows.append(
            {
                "method": name,
                "n": sum(len(arrays[0]) for arrays in correct.values()),
                "datasets": len(correct),
                "accuracy": accuracy.value,
                "low": accuracy.low,
                "high": accuracy.high,
                "seconds": cost.seconds_mean,
                "seconds_standard_error": cost.seconds_standard_error,
                "peak_memory_mb": cost.peak_memory_mb,
            }
        )
    return FigureResult(_pareto_figure(group, rows, _SHARED in notes), rows, tuple(notes))


def _seconds(group: RunGroup, method: str) -> float:
    """Return the mean seconds of a method's predictions, images of all runs weighing the same."""
    seconds = [result.seconds for result in group.row(method).values() if not result.predictions_only]
    return float(np.mean(np.concatenate(seconds))) if seconds else 0.0


def pareto_front(costs: list[float], accuracies: list[float]) -> list[int]:
    """Return the indices of what nothing beats, being as cheap and as accurate and better in one, by cost."""
    found: list[int] = []
    for index in sorted(range(len(costs)), key=lambda index: (costs[index], -accuracies[index])):
        if not found or accuracies[index] > accuracies[found[-1]]:
            found.append(index)
    return found


def _pareto_figure(group: RunGroup, rows: list[dict[str, Any]], shared: bool) -> Figure:
    keys = [("seconds", "seconds per image (log scale)")]
    if sum(bool(row["peak_memory_mb"]) for row in rows) > 1:
        keys.append(("peak_memory_mb", "peak memory (MB)"))
    over = f"mean of {rows[0]['datasets']} sets, " if rows[0]["datasets"] > 1 else ""
    width = PAGE if len(keys) > 1 else COLUMN
    figure = new_figure(
        width, 3.0, "Accuracy and cost" if width == COLUMN else "Accuracy, time and memory", group.title
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
    best = pareto_front(costs, accuracies)
    axis.plot(
        [costs[index] for index in best],
        [accuracies[index] for index in best],
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


_NEEDED = (
    "needs runs of fcl with at least two numbers of masks on the same images: "
    "faircontext reproduce ablation-num-masks --root DATA"
)


def draw_masks(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw accuracies, and their differences to that of most masks, over the data sets that have all numbers."""
    found = {name: _by_masks(results) for name, results in group.results.items()}
    # Data sets with other numbers of masks cannot be averaged with them: those with most numbers, then most sets, stay.
    shapes = Counter(tuple(sorted(results)) for results in found.values() if len(results) > 1)
    if not shapes:
        return _NEEDED
    numbers = max(shapes, key=lambda shape: (len(shape), shapes[shape], shape))
    sets = {name: results for name, results in found.items() if tuple(sorted(results)) == numbers}
    correct: dict[str, list[Bool[np.ndarray, " images"]]] = {}
    for name, results in sets.items():
        positions, arrays = common_images([results[number] for number in numbers])
        correct |= {name: arrays} if len(positions) else {}
    if not correct:
        return _NEEDED
    rows: list[dict[str, Any]] = []
    images = sum(len(arrays[0]) for arrays in correct.values())
    for index, number in enumerate(numbers):
        accuracy = average_interval([arrays[index] for arrays in correct.values()])
        change = average_interval([arrays[index].astype(np.float64) - arrays[-1] for arrays in correct.values()])
        ends = {"accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high}
        differences = {"difference": change.value, "difference_low": change.low, "difference_high": change.high}
        rows.append({"masks": number, "n": images, "datasets": len(correct), **ends, **differences})
    return FigureResult(_masks_figure(group, rows, len(correct), images), rows)


def _by_masks(results: Mapping[str, Result]) -> dict[int, Result]:
    """Return FCL's results of one data set that differ in the number of masks alone, by that number."""
    families: dict[str, dict[int, Result]] = {}
    for label, result in results.items():
        settings = dict(result.settings) | {"": result.config.get("views")}
        if result.n and method_of(label) == "fcl" and "masks" in settings and settings.get("calibrate", True):
            number = int(settings.pop("masks"))
            families.setdefault(repr(sorted(settings.items())), {}).setdefault(number, result)
    return max(families.values(), key=len, default={})


def _masks_figure(group: RunGroup, rows: list[dict[str, Any]], sets: int, images: int) -> Figure:
    over = f"mean of {sets} sets, " if sets > 1 else ""
    figure = new_figure(PAGE, 2.5, f"FCL by number of masks ({over}n = {images:,})", group.title)
    numbers = [row["masks"] for row in rows]
    panels = (
        ("accuracy", "low", "high", "top-1 accuracy (%), 95%"),
        ("difference", "difference_low", "difference_high", f"difference to {numbers[-1]} masks\n(points), paired 95%"),
    )
    for axis, (value, low, high, label) in zip(figure.subplots(1, 2), panels, strict=True):
        values = 100 * np.array([row[value] for row in rows])
        ends = 100 * np.array([[row[low], row[high]] for row in rows])
        axis.vlines(numbers, ends[:, 0], ends[:, 1], color=BLUE, linewidth=1.3)
        axis.plot(numbers, values, "o-", color=BLUE, markersize=4)
        axis.set_xscale("log", base=2)
        axis.set_xticks(numbers, [str(number) for number in numbers])
        axis.minorticks_off()
        axis.margins(x=0.12)
        axis.set_xlabel("masks per image, $N_m$ (log scale)", parse_math=True)
        axis.set_ylabel(label)
        axis.grid(axis="y")
        if value == "difference":
            axis.axhline(0, color=BLACK, linewidth=0.7)
    return figure
