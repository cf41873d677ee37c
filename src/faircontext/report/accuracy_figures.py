"""Figures of accuracies: paired gains by data set, ablations, reliability, and accuracy against masks and cost."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, LogLocator

from faircontext.metrics.bootstrap import average_interval
from faircontext.metrics.calibration import Reliability
from faircontext.metrics.scores import Comparison, average_difference
from faircontext.metrics.stats import Interval, wilson_interval
from faircontext.report import style
from faircontext.report.paper import dataset_title
from faircontext.report.style import BLACK, BLUE, COLUMN, GREY, PAGE, FigureResult, forest, interval_columns, new_figure
from faircontext.report.table_metrics import TOP1
from faircontext.report.tables import pooled_bins
from faircontext.runs.groups import RunGroup, common_images, shared_sets
from faircontext.runs.records import method_of, method_title
from faircontext.runs.results import Result
from faircontext.runs.sidecars import AblationResults, Cost, Sidecars, Variant

__all__ = [
    "draw_ablations",
    "draw_gain",
    "draw_masks",
    "draw_pareto",
    "draw_reliability",
    "gain_row",
    "gains_figure",
    "pareto_front",
    "reliability_figure",
]

Row = dict[str, Any]


def draw_gain(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw what calibration adds: FCL minus exploration alone on each data set, and their mean (figure `ab_calib`).

    Where exploration alone is not among the runs, FCL is drawn against zero-shot.
    """
    row, pairs = group.row("fcl"), _exploration_pairs(group)
    gains = {name: Comparison.of(*pair) for name, pair in pairs.items()}
    reference = "exploration only" if gains else "zero-shot"
    gains = gains or {name: result.comparison for name, result in row.items() if result.comparison is not None}
    if not gains:
        return "needs runs of fcl and fcl-explore: faircontext reproduce calibration-gain --root DATA"
    rows = [gain_row(name, gain.difference, gain) for name, gain in gains.items()]
    rows.sort(key=lambda row: (-row["gain"], row["dataset"]))
    mean = average_difference([*pairs.values()]) if pairs else TOP1.gain(list(row.values()))
    if len(rows) > 1 and mean is not None:
        rows.append(gain_row(f"mean of {len(rows)} sets", mean, Comparison.pooled(gains.values())))
    figure = gains_figure(f"FCL less {reference}", group.title, rows, len(rows) > 1)
    warnings = () if reference != "zero-shot" else ("no exploration only among the runs: drawn against zero-shot",)
    return FigureResult(figure, [{"reference": reference, **row} for row in rows], warnings)


def gain_row(name: str, gain: Interval, counts: Comparison) -> Row:
    """Return a row of `gains_figure`."""
    images = {"n": counts.n, "gained": counts.gained, "lost": counts.lost}
    return {"dataset": name} | interval_columns("gain", gain) | images


def gains_figure(title: str, subtitle: str, rows: Sequence[Row], summed: bool) -> Figure:
    """Draw paired gains in points, a row each as `gain_row` makes it; the last one may sum up the others."""
    figure = new_figure(COLUMN, 1.05 + 0.155 * len(rows), title, subtitle)
    axis = figure.subplots()
    forest(
        axis,
        [style.name_within(dataset_title(row["dataset"]), 28) for row in rows],
        [Interval(row["gain"], row["low"], row["high"]) for row in rows],
        [f"{row['n']:,}  +{row['gained']}/-{row['lost']}" for row in rows],
        "n, gained/lost",
        len(rows) - 1 if summed else None,
    )
    axis.set_xlabel("gain in top-1 accuracy (points), paired 95%")
    return figure


def _exploration_pairs(group: RunGroup) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, by data set, whether FCL and exploration alone are correct on the images that both have."""
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, results in group.results.items():
        pair = _with_exploration({method: result for method, result in results.items() if result.n})
        if len(pair) == 2 and len((correct := common_images(pair)[1])[0]):
            pairs[name] = (correct[0], correct[1])
    return pairs


def _with_exploration(results: Mapping[str, Result]) -> list[Result]:
    """Return FCL and exploration alone, which differ in `calibrate` and nothing else, whatever they are called."""
    for base in (result for result in results.values() if result.settings.get("calibrate") is False):
        wanted = {**base.settings, "calibrate": True}
        for own in results.values():
            alike = {"calibrate": True, **own.settings} == wanted
            if method_of(own.method) == "fcl" and alike and own.config.get("views") == base.config.get("views"):
                return [own, base]
    return []


def draw_ablations(_: RunGroup, sidecars: Sidecars) -> FigureResult | str:
    """Draw what each variant changes against its reference: a panel per ablation file, a row per variant."""
    ablations = [ablation for ablation in sidecars.ablations if ablation.variants]
    if not ablations:
        return "needs files NAME.results.json: faircontext ablate EXPERIMENT --root DATA"
    heights = [0.75 + 0.17 * len(ablation.variants) for ablation in ablations]
    title = "Ablations" if len(ablations) > 1 else f"Ablation: {ablations[0].name}"
    figure = new_figure(PAGE, 0.45 + sum(heights), title, "")
    axes = figure.subplots(len(ablations), 1, squeeze=False, height_ratios=heights)[:, 0]
    rows: list[Row] = []
    for axis, ablation in zip(axes, ablations, strict=True):
        _draw_ablation(axis, ablation)
        if len(ablations) > 1:
            axis.set_title(ablation.name, loc="left", fontweight="bold")
        rows += [{"ablation": ablation.name, "reference": ablation.reference, **vars(v)} for v in ablation.variants]
    empty = [(ablation.name, label) for ablation in ablations for label in ablation.empty]
    warnings = tuple(f"{name}: {label} has no image, and is left out" for name, label in empty)
    return FigureResult(figure, rows, warnings)


def _draw_ablation(axis: Axes, ablation: AblationResults) -> None:
    values, colours = [], []
    for variant in ablation.variants:
        ends = (variant.difference, variant.difference_low, variant.difference_high)
        difference = Interval(*(math.nan if end is None else end for end in ends))
        known = math.isfinite(difference.value)  # the reference has no difference, and no interval
        values.append(difference if known else Interval(0.0, math.nan, math.nan))
        colours.append(BLUE if known and variant.label != ablation.reference else GREY)
    annotations = [_annotation(variant, ablation.reference) for variant in ablation.variants]
    labels, heading = [variant.label for variant in ablation.variants], "accuracy (95%), n, gained/lost, p"
    forest(axis, labels, values, annotations, heading, colours=colours)
    axis.set_xlabel(f"difference to “{ablation.reference}” (points), paired 95%")


def _annotation(variant: Variant, reference: str) -> str:
    accuracy = f"{100 * variant.accuracy:.1f}% ({100 * variant.low:.1f} to {100 * variant.high:.1f}), n = {variant.n:,}"
    if variant.label == reference:
        return f"{accuracy}, reference"
    counts = "" if variant.gained is None or variant.lost is None else f", +{variant.gained}/-{variant.lost}"
    return accuracy + counts + ("" if variant.p_value is None else f", p = {variant.p_value:.2g}")


def draw_reliability(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw a reliability diagram per method, the images of all data sets together; ECE is over the same 20 bins."""
    curves = {method: bins for method in group.methods if (bins := pooled_bins([*group.row(method).values()]))}
    if not curves:
        return "needs runs with confidences: faircontext evaluate --datasets NAMES --methods fcl --root DATA"
    title = "Reliability" + (f" (images of {len(group.results)} sets together)" if len(group.results) > 1 else "")
    rows = [
        {"method": method, "n": int(bins.n.sum()), "ece": bins.expected_calibration_error, **row}
        for method, bins in curves.items()
        for row in _bin_rows(bins)
    ]
    return FigureResult(reliability_figure(title, group.title, curves), rows)


def reliability_figure(title: str, subtitle: str, curves: Mapping[str, Reliability]) -> Figure:
    """Draw a panel per method: how often predictions of some confidence are correct, in bins of equal width."""
    width, columns = (COLUMN, len(curves)) if len(curves) < 3 else (PAGE, min(len(curves), 5))
    lines, side = math.ceil(len(curves) / columns), (width - 0.4) / max(columns, 2)
    figure = new_figure(width, 0.75 + lines * (side + 0.28), title, subtitle)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, (method, bins) in zip(axes, curves.items(), strict=False):
        error = f"ECE {100 * bins.expected_calibration_error:.1f}%"
        axis.set_title(f"{method_title(method)}\n{error}, n = {bins.n.sum():,}", fontsize=7)
        _draw_bins(axis, bins)
    for axis in axes[len(curves) :]:
        axis.set_axis_off()
    for axis in axes[max(len(curves) - columns, 0) : len(curves)]:  # one above an empty panel shows its own ticks
        axis.tick_params(labelbottom=True)
    figure.supxlabel("confidence (mean of the bin)", fontsize=7.5)
    figure.supylabel("share of correct predictions (95%)", fontsize=7.5)
    return figure


def _bin_rows(bins: Reliability) -> list[Row]:
    """Return what is known of each bin that is not empty."""
    rows = []
    for index in np.flatnonzero(bins.n):
        n, accuracy = int(bins.n[index]), float(bins.accuracy[index])
        low, high = wilson_interval(round(accuracy * n), n)
        edges = {"from": float(bins.edges[index]), "to": float(bins.edges[index + 1])}
        means = {"answers": n, "confidence": float(bins.confidence[index]), "accuracy": accuracy}
        rows.append({**edges, **means, "low": low, "high": high})
    return rows


def _draw_bins(axis: Axes, bins: Reliability) -> None:
    rows = _bin_rows(bins)
    x, y, low, high, n = ([row[key] for row in rows] for key in ("confidence", "accuracy", "low", "high", "answers"))
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.7, linestyle="--", zorder=0)
    axis.vlines(x, low, high, color=BLUE, alpha=0.35, linewidth=0.9)
    axis.plot(x, y, "-", color=BLUE, linewidth=0.9)
    sizes = [4 + 26 * count / max(n) for count in n]
    axis.scatter(x, y, s=sizes, color=BLUE, linewidths=0, zorder=3, clip_on=False)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for side in (axis.xaxis, axis.yaxis):
        side.set_ticks([0, 0.5, 1], labels=["0", ".5", "1"])


_SHARED = (
    "seconds are those of runs of an earlier version, where the first method that uses features pays for all that "
    "share them, so that the front favours the others; run them again, or measure costs.json"
)


def draw_pareto(group: RunGroup, sidecars: Sidecars) -> FigureResult | str:
    """Draw a point per method, all on the same images; costs come from `costs.json`, else from the runs' rows."""
    methods, correct = shared_sets(group)
    left_out = [name for name in group.methods if group.row(name) and name not in methods]
    warnings = [f"{name} is left out: it shares no image with the others" for name in left_out]
    costs = {cost.method: cost for cost in reversed(sidecars.costs) if cost.backbone == group.settings.backbone}
    if not (measured := bool(costs)):
        costs = {name: Cost(name, "", _mean_seconds(group, name)) for name in methods}
        warnings += [_SHARED] if any(np.isnan(s).any() for s in _shared_seconds(group, methods)) else []
    # A log axis has no room for nothing: a clock that did not tick tells no cost.
    drawn = [name for name in methods if name in costs and costs[name].seconds_mean > 0]
    warnings += [f"{method} is left out: its cost is not known" for method in methods if method not in drawn]
    if len(drawn) < 2 <= len(methods):
        return f"needs the costs of two methods, and knows {len(drawn)}: give each of them an entry in costs.json"
    if len(drawn) < 2:
        return "needs runs of at least two methods: faircontext evaluate --datasets NAMES --methods all --root DATA"
    images = {"n": sum(len(arrays[0]) for arrays in correct.values()), "datasets": len(correct)}
    rows = []
    for name, cost in ((name, costs[name]) for name in drawn):
        accuracy = average_interval([arrays[methods.index(name)] for arrays in correct.values()])
        seconds = {"seconds": cost.seconds_mean, "seconds_standard_error": cost.seconds_standard_error}
        row = {"method": name} | images | interval_columns("accuracy", accuracy) | seconds
        rows.append(row | {"peak_memory_mb": cost.peak_memory_mb})
    return FigureResult(_pareto_figure(group.title, rows, measured), rows, tuple(warnings))


def _mean_seconds(group: RunGroup, method: str) -> float:
    """Return the mean seconds of a method's predictions with what they share, images of all runs weighing the same."""
    results = [result for result in group.row(method).values() if not result.predictions_only]
    seconds = [result.seconds + np.nan_to_num(result.shared_seconds) for result in results]
    return float(np.mean(np.concatenate(seconds))) if seconds else 0.0


def _shared_seconds(group: RunGroup, methods: Sequence[str]) -> Iterator[np.ndarray]:
    results = (result for name in methods for result in group.row(name).values() if not result.predictions_only)
    return (result.shared_seconds for result in results)


def pareto_front(costs: list[float], accuracies: list[float]) -> list[int]:
    """Return the indices of what nothing beats, being as cheap and as accurate and better in one, by cost."""
    front: list[int] = []
    for index in sorted(range(len(costs)), key=lambda index: (costs[index], -accuracies[index])):
        if not front or accuracies[index] > accuracies[front[-1]]:
            front.append(index)
    return front


def _pareto_figure(subtitle: str, rows: Sequence[Row], measured: bool) -> Figure:
    memory = sum(bool(row["peak_memory_mb"]) for row in rows) > 1
    title = "Accuracy, time and memory" if memory else "Accuracy and cost"
    figure = new_figure(PAGE if memory else COLUMN, 3.0, title, subtitle)
    axes = figure.subplots(1, 1 + memory, squeeze=False)[0]
    labels = {"seconds": "seconds per image (log scale)", "peak_memory_mb": "peak memory (MB)"}
    for axis, (key, label) in zip(axes, labels.items(), strict=False):
        axis.set_xlabel(label if measured else f"{label}\nof the runs, shared work included")
        _draw_costs(axis, [row for row in rows if row[key]], key)
    axes[0].set_ylabel(f"top-1 accuracy (%), 95%\n{_images_of(rows[0])}")
    return figure


def _draw_costs(axis: Axes, rows: Sequence[Row], key: str) -> None:
    colours = style.colours_of([row["method"] for row in rows])
    costs, accuracies = [row[key] for row in rows], [100 * row["accuracy"] for row in rows]
    for row, cost, accuracy, colour in zip(rows, costs, accuracies, colours, strict=True):
        axis.plot([cost, cost], [100 * row["low"], 100 * row["high"]], color=colour, linewidth=0.8, alpha=0.45)
        axis.plot(cost, accuracy, "o", color=colour, markersize=4)
    front = np.array([(costs[index], accuracies[index]) for index in pareto_front(costs, accuracies)]).T
    axis.plot(*front, drawstyle="steps-post", color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    low, high = min(costs), max(costs)
    if key == "seconds":
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(numticks=6))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        margin = max(high / low, 2.0) ** 0.25
        axis.set_xlim(low / margin, high * margin)
    else:
        axis.set_xlim(0.0, 1.25 * high)
    axis.grid(axis="y")
    axis.set_ylim(*axis.get_ylim())
    style.name_points(axis, np.array([costs, accuracies]).T, [method_title(row["method"]) for row in rows])
    axis.text(0.99, 0.01, "dashed: Pareto front", transform=axis.transAxes, ha="right", va="bottom", color=GREY)


def _images_of(row: Row) -> str:
    return (f"mean of {row['datasets']} sets, " if row["datasets"] > 1 else "") + f"n = {row['n']:,}"


def draw_masks(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw accuracies, and their differences to that of most masks, over the data sets that have all numbers."""
    by_masks = {name: _by_masks(results) for name, results in group.results.items()}
    # Data sets with other numbers of masks cannot be averaged with them: those with most numbers, then most sets, stay.
    shapes = Counter(tuple(sorted(results)) for results in by_masks.values() if len(results) > 1)
    masks = max(shapes, key=lambda shape: (len(shape), shapes[shape], shape), default=())
    sets = (results for results in by_masks.values() if masks and tuple(sorted(results)) == masks)
    shared = (common_images([results[count] for count in masks])[1] for results in sets)
    if not (correct := [arrays for arrays in shared if len(arrays[0])]):
        return (
            "needs runs of fcl with at least two numbers of masks on the same images: "
            "faircontext reproduce ablation-num-masks --root DATA"
        )
    images = {"n": sum(len(arrays[0]) for arrays in correct), "datasets": len(correct)}
    rows = []
    for index, count in enumerate(masks):
        accuracy = average_interval([arrays[index] for arrays in correct])
        change = average_interval([arrays[index].astype(np.float64) - arrays[-1] for arrays in correct])
        columns = interval_columns("accuracy", accuracy) | interval_columns("difference", change, "difference_")
        rows.append({"masks": count} | images | columns)
    return FigureResult(_masks_figure(group.title, rows), rows)


def _by_masks(results: Mapping[str, Result]) -> dict[int, Result]:
    """Return FCL's results of one data set that differ in the number of masks alone, by that number."""
    alike: dict[str, dict[int, Result]] = {}
    for label, result in results.items():
        settings = dict(result.settings) | {"": result.config.get("views")}
        if result.n and method_of(label) == "fcl" and settings.get("calibrate", True):
            masks = settings.pop("masks", None)
            if not isinstance(masks, int):
                continue
            alike.setdefault(repr(sorted(settings.items())), {}).setdefault(masks, result)
    return max(alike.values(), key=len, default={})


def _masks_figure(subtitle: str, rows: Sequence[Row]) -> Figure:
    figure = new_figure(PAGE, 2.5, f"FCL by number of masks ({_images_of(rows[0])})", subtitle)
    masks = [row["masks"] for row in rows]
    panels = (
        ("accuracy", "", "top-1 accuracy (%), 95%"),
        ("difference", "difference_", f"difference to {masks[-1]} masks\n(points), paired 95%"),
    )
    for axis, (value, prefix, label) in zip(figure.subplots(1, 2), panels, strict=True):
        columns = (value, f"{prefix}low", f"{prefix}high")
        values, low, high = (100 * np.array([row[name] for row in rows]) for name in columns)
        axis.vlines(masks, low, high, color=BLUE, linewidth=1.3)
        axis.plot(masks, values, "o-", color=BLUE, markersize=4)
        axis.set_xscale("log", base=2)
        axis.set_xticks(masks, [str(count) for count in masks])
        axis.minorticks_off()
        axis.margins(x=0.12)
        axis.set_xlabel("masks per image, $N_m$ (log scale)", parse_math=True)
        axis.set_ylabel(label)
        axis.grid(axis="y")
    axis.axhline(0, color=BLACK, linewidth=0.7)  # the last panel is of differences
    return figure
