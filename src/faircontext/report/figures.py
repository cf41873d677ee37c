"""Figures of accuracies, and all figures by name, drawn from runs alone and written as PDF, as PNG and as their data.

A figure is drawn from the rows that it is written with. The same records give the same bytes: no file holds a date or
the name of a program, and all that is drawn by chance is seeded.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, LogLocator

from faircontext.errors import ArgumentError, counted, unknown_name
from faircontext.files import to_json, write_whole, writing
from faircontext.metrics.bootstrap import PooledMean, average_interval, percentile_interval
from faircontext.metrics.orders import means_by_part
from faircontext.metrics.scores import Comparison, compare_sets, reliability
from faircontext.metrics.selective import aurc, aurc_draws, risk_coverage
from faircontext.metrics.stats import Interval, wilson_interval
from faircontext.report import style
from faircontext.report.benchmarks import dataset_title, marked_title, pooled_answers, tuned_note
from faircontext.report.class_tables import cell_records, confusion_matrix
from faircontext.report.evidence_figures import draw_decomposition, draw_ecec, draw_entropy, draw_gallery, draw_scores
from faircontext.report.render import MissingError, flat, to_csv
from faircontext.report.style import BLACK, BLUE, COLUMN, GREY, PAGE, FigureResult, interval_columns
from faircontext.runs.groups import RunGroup, RunSettings, common_images, find_runs, group_runs, incomplete, shared_sets
from faircontext.runs.label_results import is_multi_label
from faircontext.runs.records import method_of, method_title
from faircontext.runs.results import Result
from faircontext.runs.sidecars import AblationResults, Cost, Sidecars, Variant, find_sidecars
from faircontext.runs.stream_results import StreamResult, StreamRuns, join_orders, split_streams

Row = dict[str, Any]
Answers = Mapping[str, Sequence[Result]]
"""A method's results on all data sets, by method."""


def draw_gain(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw what calibration adds: FCL minus exploration alone on each data set, and their mean (figure `ab_calib`).

    Where exploration alone is not among the runs, FCL is drawn against zero-shot.
    """
    explored = dict(_over_exploration(group))
    row = {name: result.comparison for name, result in group.row("fcl").items()}
    gains = explored or {name: compared for name, compared in row.items() if compared is not None}
    if not gains:
        raise MissingError("needs runs of fcl and fcl-explore: faircontext reproduce calibration-gain --root DATA")
    total = (f"mean of {len(gains)} sets", compare_sets([*gains.values()], "set"))
    if explored:
        return gains_figure("FCL", "exploration only", group.title, gains, total)
    drawn = gains_figure("FCL", "zero-shot", group.title, gains, total)
    return replace(drawn, warnings=("no exploration only among the runs: drawn against zero-shot",))


def gains_figure(
    title: str,
    reference: str,
    subtitle: str,
    gains: Mapping[str, Comparison],
    total: tuple[str, PooledMean],
) -> FigureResult:
    """Draw paired gains over a reference in points by data set, the largest first, and below them what sums them up.

    Args:
        title: what the method is called.
        reference: what it is compared with.
        subtitle: of the figure.
        gains: by data set.
        total: what it is called, and the gain with both of its intervals; of one data set none is drawn.
    """
    named = [(name, compare_sets([one]), one) for name, one in gains.items()]
    named.sort(key=lambda entry: (-entry[1].value, entry[0]))
    if summed := len(named) > 1:
        named.append((*total, Comparison.pooled(gains.values())))
    rows = [
        {"reference": reference, "dataset": name}
        | interval_columns("gain", gain)
        | {"n": one.n, "gained": one.gained, "lost": one.lost}
        for name, gain, one in named
    ]
    dots = [
        style.Dot(style.name_within(dataset_title(name), 28), gain, f"{one.n:,}  +{one.gained}/-{one.lost}")
        for name, gain, one in named
    ]
    both = summed and total[1].sets is not None
    figure = style.new_figure(COLUMN, 1.05 + 0.12 * both + 0.155 * len(dots), f"{title} less {reference}", subtitle)
    axis = figure.subplots()
    style.draw_dots(axis, dots, "n, gained/lost", summed)
    axis.set_xlabel("\n".join(["gain in top-1 accuracy (points), paired 95%", *[style.BOTH] * both]))
    return FigureResult(figure, rows)


def _over_exploration(group: RunGroup) -> Iterator[tuple[str, Comparison]]:
    """Yield, by data set, the comparison of FCL with exploration alone on the images that both have."""
    for name, results in group.results.items():
        pair = _with_exploration([result for result in results.values() if result.n])
        if pair and len((correct := common_images(pair)[1])[0]):
            yield name, Comparison.of(*correct)


def _with_exploration(results: Sequence[Result]) -> list[Result]:
    """Return FCL and exploration alone, which differ in `calibrate` and nothing else, whatever they are called."""
    for base in (result for result in results if result.settings.get("calibrate") is False):
        wanted = {**base.settings, "calibrate": True}
        for method in (result for result in results if method_of(result.method) == "fcl"):
            same_views = method.config.get("views") == base.config.get("views")
            if same_views and {"calibrate": True, **method.settings} == wanted:
                return [method, base]
    return []


def draw_ablations(_: RunGroup, sidecars: Sidecars) -> FigureResult:
    """Draw what each variant changes against its reference: a panel per ablation file, a row per variant."""
    ablations = [ablation for ablation in sidecars.ablations if ablation.variants]
    if not ablations:
        raise MissingError("needs files NAME.results.json: faircontext ablate EXPERIMENT --root DATA")
    dots_of = [[_dot(ablation, variant) for variant in ablation.variants] for ablation in ablations]
    both = any(dot.gain.sets for dots in dots_of for dot in dots)
    heights = [0.75 + 0.12 * both + 0.17 * len(dots) for dots in dots_of]
    title = "Ablations" if len(ablations) > 1 else f"Ablation: {ablations[0].name}"
    figure = style.new_figure(PAGE, 0.45 + sum(heights), title, "")
    axes = figure.subplots(len(ablations), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, ablation, dots in zip(axes, ablations, dots_of, strict=True):
        style.draw_dots(axis, dots, "accuracy (95%), n, gained/lost, p")
        label = f"difference to “{ablation.reference}” (points), paired 95%"
        axis.set_xlabel("\n".join([label, *[style.BOTH] * any(dot.gain.sets for dot in dots)]))
        if len(ablations) > 1:
            axis.set_title(ablation.name, loc="left", fontweight="bold")
    rows = [{"ablation": one.name, "reference": one.reference, **vars(v)} for one in ablations for v in one.variants]
    empty = (f"{one.name}: {label} has no image, and is left out" for one in ablations for label in one.empty)
    return FigureResult(figure, rows, tuple(empty))


def _dot(ablation: AblationResults, variant: Variant) -> style.Dot:
    accuracy, low, high = 100 * variant.accuracy, 100 * variant.low, 100 * variant.high
    text = f"{accuracy:.1f}% ({low:.1f} to {high:.1f}), n = {variant.n:,}"
    if variant.label == ablation.reference or variant.difference is None:  # the reference has no interval
        reference = ", reference" * (variant.label == ablation.reference)
        nothing = PooledMean(Interval(0.0, math.nan, math.nan), None, variant.n, 0)
        return style.Dot(variant.label, nothing, text + reference, GREY)
    text += "" if variant.gained is None or variant.lost is None else f", +{variant.gained}/-{variant.lost}"
    text += "" if variant.p_value is None else f", p = {variant.p_value:.2g}"
    images, sets = (
        Interval(variant.difference, *(math.nan if end is None else end for end in ends))
        for ends in (
            (variant.difference_low, variant.difference_high),
            (variant.difference_sets_low, variant.difference_sets_high),
        )
    )
    gain = PooledMean(images, None if math.isnan(sets.low) else sets, variant.n, 0, variant.p_value)
    return style.Dot(variant.label, gain, text)


def _pooled_rows(results: Answers, rows_of: Callable[[np.ndarray, np.ndarray], Iterable[Row]]) -> dict[str, list[Row]]:
    """Return rows of each method's confidences on all data sets, of those methods that have any."""
    pooled = {method: pooled_answers(several) for method, several in results.items()}
    rows = {name: [{"method": name} | row for row in rows_of(*one)] for name, one in pooled.items() if one is not None}
    if not rows:
        command = "faircontext evaluate --datasets NAMES --methods fcl --root DATA"
        raise MissingError(f"needs runs with confidences: {command}")
    return rows


def _together(group: RunGroup, what: str) -> tuple[str, str, Answers]:
    """Return the title and the subtitle of a figure of a group, and the results that it is of."""
    several = f" ({what}{len(group.results)} sets together)" if len(group.results) > 1 else ""
    return several, group.title, {method: [*group.row(method).values()] for method in group.methods}


def reliability_figure(several: str, subtitle: str, results: Answers) -> FigureResult:
    """Draw a panel per method: how often predictions of some confidence are correct, in 20 bins, as of the ECE."""
    curves = _pooled_rows(results, _bin_rows)
    width, columns = (COLUMN, len(curves)) if len(curves) < 3 else (PAGE, min(len(curves), 5))
    lines, side = math.ceil(len(curves) / columns), (width - 0.4) / max(columns, 2)
    figure = style.new_figure(width, 0.75 + lines * (side + 0.28), f"Reliability{several}", subtitle)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, (method, rows) in zip(axes, curves.items(), strict=False):
        first = rows[0]
        axis.set_title(f"{method_title(method)}\nECE {100 * first['ece']:.1f}%, n = {first['n']:,}", fontsize=7)
        x, answers = ([row[name] for row in rows] for name in ("confidence", "answers"))
        axis.plot([0, 100], [0, 100], color=GREY, linewidth=0.7, linestyle="--", zorder=0)
        x = [100 * value for value in x]
        style.draw_line(axis, x, rows, ("accuracy", "low", "high"), BLUE, "bars")
        sizes = [4 + 26 * count / max(answers) for count in answers]
        axis.scatter(x, [100 * row["accuracy"] for row in rows], sizes, BLUE, linewidths=0, zorder=3, clip_on=False)
        axis.set(xlim=(0, 100), ylim=(0, 100), xticks=[25, 50, 75], yticks=[0, 50, 100], aspect="equal")
    style.grid_of(axes, len(curves), columns)
    figure.supxlabel("confidence (%), mean of the bin", fontsize=7.5)
    figure.supylabel("correct (%), 95%", fontsize=7.5)
    return FigureResult(figure, [row for rows in curves.values() for row in rows])


def _bin_rows(confidence: np.ndarray, correct: np.ndarray) -> Iterator[Row]:
    """Yield what is known of each bin that is not empty."""
    bins = reliability(confidence, correct)
    overall = {"n": len(correct), "ece": bins.expected_calibration_error}
    for index in np.flatnonzero(bins.n):
        n, accuracy = int(bins.n[index]), float(bins.accuracy[index])
        low, high = wilson_interval(round(accuracy * n), n)
        edges = {"from": float(bins.edges[index]), "to": float(bins.edges[index + 1]), "answers": n}
        means = {"confidence": float(bins.confidence[index]), "accuracy": accuracy}
        yield {**overall, **edges, **means, "low": low, "high": high}


def risk_coverage_figure(several: str, subtitle: str, results: Answers) -> FigureResult:
    """Draw risk over coverage, with pointwise Wilson intervals; the legend has the areas with theirs."""
    curves = _pooled_rows(results, _risk_rows)
    figure = style.new_figure(COLUMN, 2.6 + 0.13 * len(curves), f"Risk and coverage{several}", subtitle)
    axis = figure.subplots()
    for (method, rows), colour in zip(curves.items(), style.colours_of([*curves]), strict=True):
        value, low, high = (100 * rows[0][name] for name in ("aurc", "aurc_low", "aurc_high"))
        label = f"{method_title(method)}: AURC {value:.1f} ({low:.1f} to {high:.1f}), n = {rows[0]['n']:,}"
        coverage = [100 * row["coverage"] for row in rows]
        single = len(rows) == 1  # no line would show it
        dot: dict[str, Any] = {"marker": "o", "markersize": 3, "clip_on": False} if single else {}
        ends = ("risk", "low", "high")
        style.draw_line(axis, coverage, rows, ends, colour, "bars" if single else "band", label=label, **dot)
    axis.set(xlim=(0, 100), ylim=(0, None))
    axis.set_xlabel("coverage: images answered (%), surest first")
    axis.set_ylabel("risk: of these, wrong (%), 95%")
    axis.grid(axis="y")
    figure.legend(loc="outside lower left", fontsize=6.5, frameon=False)
    return FigureResult(figure, [row for rows in curves.values() for row in rows])


def _risk_rows(score: np.ndarray, correct: np.ndarray) -> Iterator[Row]:
    """Yield the points at, or next after, each percent of the images."""
    curve, area = risk_coverage(score, correct), percentile_interval(aurc(score, correct), aurc_draws(score, correct))
    for index in np.unique(np.searchsorted(curve.answered, np.ceil(np.arange(1, 101) / 100 * curve.n))):
        point = curve.at(int(index))
        shares = {"coverage": point.coverage.value, "answered": point.risk.n, "threshold": point.threshold}
        yield {"n": curve.n, **shares} | interval_columns("risk", point.risk.estimate) | flat({"aurc": area})


_NAMED = 26
"""Classes and answers whose names a matrix has room for."""


def draw_confusion(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw which share of the images of a class has which answer, by data set; of FCL, or else of the last method."""
    results = [*group.row("fcl" if "fcl" in group.methods else ["", *group.methods][-1]).values()]
    if not results:
        raise MissingError("needs runs with labels: faircontext evaluate --datasets NAMES --methods fcl --root DATA")
    columns = min(len(results), 3)
    lines, width = math.ceil(len(results) / columns), COLUMN if columns == 1 else PAGE
    title = f"Confusion matrix of {method_title(results[0].method)}"
    figure = style.new_figure(width, 0.7 + lines * (width / columns + 0.2), title, group.title)
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis, result in zip(axes, results, strict=False):
        counts, names = confusion_matrix(result)
        axis.imshow(counts / np.maximum(counts.sum(1, keepdims=True), 1), "Blues", aspect="auto", vmin=0, vmax=1)
        axis.set_title(f"{dataset_title(result.dataset)}, n = {result.n:,}", fontsize=7)
        shown = [style.name_within(name, 20) for name in names if len(names) <= _NAMED]
        axis.set_xticks(range(len(shown)), shown, rotation=90, fontsize=5)
        axis.set_yticks(range(len(shown[: len(counts)])), shown[: len(counts)], fontsize=5)
    style.grid_of(axes, len(results), columns)
    figure.supxlabel("answer", fontsize=7.5)
    figure.supylabel("class (colour: share of its images)", fontsize=7.5)
    rows = ({"dataset": one.dataset, "method": one.method, **row} for one in results for row in cell_records(one))
    return FigureResult(figure, [*rows])


_EARLIER = (
    "seconds are those of runs of an earlier version, where the first method that uses features pays for all that "
    "share them, so that the front favours the others; run them again, or measure costs.json"
)


def draw_pareto(group: RunGroup, sidecars: Sidecars) -> FigureResult:
    """Draw a point per method, all on the same images; costs come from `costs.json`, else from the runs' rows."""
    methods, correct = shared_sets(group)
    left_out = [name for name in group.methods if group.row(name) and name not in methods]
    notes = [f"{name} is left out: it shares no image with the others" for name in left_out]
    costs = {cost.method: cost for cost in reversed(sidecars.costs) if cost.backbone == group.settings.backbone}
    if not (measured := bool(costs)):
        seconds = {name: _seconds(group, name) for name in methods}
        costs = {name: Cost(name, "", float(np.nan_to_num(one).sum(0).mean())) for name, one in seconds.items()}
        notes += [_EARLIER] if any(np.isnan(one).any() for one in seconds.values()) else []
    # A log axis has no room for nothing: a clock that did not tick tells no cost.
    drawn = [name for name in methods if name in costs and costs[name].seconds_mean > 0]
    notes += [f"{method} is left out: its cost is not known" for method in methods if method not in drawn]
    if len(drawn) < 2:
        what = "runs of at least two methods: faircontext evaluate --datasets NAMES --methods all --root DATA"
        known = f"the costs of two methods, and knows {len(drawn)}: give each of them an entry in costs.json"
        raise MissingError(f"needs {what if len(methods) < 2 else known}")
    images = {"n": sum(len(arrays[0]) for arrays in correct.values()), "datasets": len(correct)}
    rows = []
    for name, cost in ((name, costs[name]) for name in drawn):
        accuracy = average_interval([arrays[methods.index(name)] for arrays in correct.values()])
        row = {"method": name} | images | interval_columns("accuracy", accuracy) | {"seconds": cost.seconds_mean}
        rows.append(row | {key: getattr(cost, key) for key in ("seconds_standard_error", "peak_memory_mb")})
    return FigureResult(_pareto_figure(group.title, rows, measured), rows, tuple(notes))


def _seconds(group: RunGroup, method: str) -> np.ndarray:
    """Return the seconds of a method's predictions, its own and those of what they share, images of all runs alike."""
    results = [result for result in group.row(method).values() if not result.predictions_only]
    return np.concatenate([np.zeros((2, 0)), *(np.stack([r.seconds, r.shared_seconds]) for r in results)], axis=1)


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
    figure = style.new_figure(PAGE if memory else COLUMN, 3.0, title, subtitle)
    axes = figure.subplots(1, 1 + memory, squeeze=False)[0]
    labels = {"seconds": "seconds per image (log scale)", "peak_memory_mb": "peak memory (MB)"}
    for axis, (key, label) in zip(axes, labels.items(), strict=False):
        axis.set_xlabel(label if measured else f"{label}\nof the runs, shared work included")
        _draw_costs(axis, [row for row in rows if row[key]], key)
    axes[0].set_ylabel(f"top-1 accuracy (%), 95%\n{_images_of(rows[0])}")
    return figure


def _draw_costs(axis: Axes, rows: Sequence[Row], key: str) -> None:
    costs, accuracies = [row[key] for row in rows], [100 * row["accuracy"] for row in rows]
    for row, cost, colour in zip(rows, costs, style.colours_of([row["method"] for row in rows]), strict=True):
        style.draw_line(axis, [cost], [row], ("accuracy", "low", "high"), colour, "bars", marker="o", markersize=4)
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


def draw_masks(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw accuracies, and their differences to that of most masks, over the data sets that have all numbers."""
    by_masks = [_by_masks(results) for results in group.results.values()]
    # Data sets with other numbers of masks cannot be averaged with them: those with most numbers, then most sets, stay.
    shapes = Counter(tuple(sorted(results)) for results in by_masks if len(results) > 1)
    masks = max(shapes, key=lambda shape: (len(shape), shapes[shape], shape), default=())
    sets = (results for results in by_masks if masks and tuple(sorted(results)) == masks)
    shared = (common_images([results[count] for count in masks])[1] for results in sets)
    if not (correct := [arrays for arrays in shared if len(arrays[0])]):
        raise MissingError(
            "needs runs of fcl with at least two numbers of masks on the same images: "
            "faircontext reproduce ablation-num-masks --root DATA"
        )
    images = {"n": sum(len(arrays[0]) for arrays in correct), "datasets": len(correct)}
    rows = []
    for index, count in enumerate(masks):
        accuracy = average_interval([arrays[index] for arrays in correct])
        change = compare_sets([Comparison.of(arrays[index], arrays[-1]) for arrays in correct], "set")
        if count == masks[-1]:  # what others are compared with
            change = PooledMean(Interval(0.0, math.nan, math.nan), None, change.n, change.datasets)
        columns = interval_columns("accuracy", accuracy) | flat({"difference": change})
        rows.append({"masks": count} | images | columns)
    return FigureResult(_masks_figure(group.title, rows), rows)


def _by_masks(results: Mapping[str, Result]) -> dict[int, Result]:
    """Return FCL's results of one data set that differ in the number of masks alone, by that number."""
    alike: dict[str, dict[int, Result]] = {}
    for label, result in results.items():
        settings = dict(result.settings) | {"": result.config.get("views")}
        masks = settings.pop("masks", None)
        if result.n and method_of(label) == "fcl" and settings.get("calibrate", True) and isinstance(masks, int):
            alike.setdefault(repr(sorted(settings.items())), {}).setdefault(masks, result)
    return max(alike.values(), key=len, default={})


def _masks_figure(subtitle: str, rows: Sequence[Row]) -> Figure:
    figure = style.new_figure(PAGE, 2.5, f"FCL by number of masks ({_images_of(rows[0])})", subtitle)
    masks = [row["masks"] for row in rows]
    panels = {
        ("accuracy", "low", "high"): "top-1 accuracy (%), 95%",
        ("difference", "difference_low", "difference_high"): f"difference to {masks[-1]} masks\n(points), paired 95%",
    }
    for axis, (names, label) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        over_sets = ("difference_sets_low", "difference_sets_high") if names[0] == "difference" else ()
        style.draw_line(axis, masks, rows, names, BLUE, "bars", over_sets, marker="o", markersize=4)
        axis.set_xscale("log", base=2)
        axis.set_xticks(masks, [str(count) for count in masks])
        axis.minorticks_off()
        axis.margins(x=0.12)
        axis.set_xlabel("masks per image, $N_m$ (log scale)", parse_math=True)
        axis.set_ylabel(label)
        axis.grid(axis="y")
    axis.axhline(0, color=BLACK, linewidth=0.7)  # the last panel is of differences
    if any(row["difference_sets_low"] != "" for row in rows):
        axis.set_title(style.BOTH, fontsize=6.5, color=GREY)
    return figure


_PARTS = 10
"""Streams are cut into so many equally long parts, or as many as the shortest has images."""

_LEAST = 10
"""Images of a part, if there are as many for two parts; with fewer no band is drawn."""


def draw_positions(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw accuracy by position in the stream: a panel for each method with a memory, of all data sets and orders."""
    return positions_figure(group.title, [(one, one.datasets) for one in split_streams(group_runs(group.runs))[1]])


def positions_figure(subtitle: str, streams: Sequence[tuple[StreamRuns, Sequence[str]]]) -> FigureResult:
    """Draw each method in each part of the stream: its accuracy and zero-shot's on the same images; the gain below.

    Args:
        subtitle: of the figure.
        streams: runs of all orders, and the names of the data sets that are put together.
    """
    curves, left = list[tuple[StreamResult, list[Row]]](), dict[str, list[str]]()
    for (runs, datasets), method in ((one, method) for one in streams for method in one[0].methods):
        lacks = {name: _lack(runs, method, name) for name in datasets}
        reasons = [f"without {dataset_title(name)}, {lack}" for name, lack in lacks.items() if lack]
        if kept := [name for name, lack in lacks.items() if not lack]:
            result = runs.result(method, kept)
            pair = None if result is None else result.paired(runs.baseline("zero_shot", kept))
            if pair is None:
                reasons.append("not drawn, as no order is of all data sets")
            else:
                curves.append((pair[0], _part_rows(*pair)))
                small = not _has_band(curves[-1][1])
                reasons += [f"without bands, as a part has fewer than {_LEAST} images"] if small else []
        for reason in reasons:
            left.setdefault(reason, []).append(method_title(method))
    notes = [f"{', '.join(titles)} {what}" for what, titles in left.items()]
    if not curves:
        raise MissingError(
            "needs runs of a method with a memory, on streams of at least 2 images: "
            "faircontext evaluate --datasets NAMES --methods tda --orders 0 1 2 --root DATA"
            + (f" (here {'; '.join(notes)})" if notes else "")
        )
    tuned = tuned_note(
        (method_title(result.method), dataset_title(name)) for result, _ in curves for name in result.tuned
    )
    rows = [row for _, rows in curves for row in rows]
    return FigureResult(_positions(subtitle, curves), rows, (*tuned, *notes))


def _lack(runs: StreamRuns, method: str, name: str) -> str:
    """Return, in words, what forbids a method's curve on a data set; empty where nothing does."""
    result = runs.result(method, [name])
    if result is None:
        return "which has no answers of it"
    if result.shortest < 2:
        return "where fewer than two images left a trace"
    return "where no image has zero-shot's answer" if result.paired(runs.baseline("zero_shot", [name])) is None else ""


def _part_rows(result: StreamResult, zero_shot: np.ndarray) -> list[Row]:
    """Return accuracies in the parts of a stream, over orders and paired with zero-shot's on the same images.

    Parts are fewer where the shortest stream has fewer images, or where a part would hold fewer than ten.
    """
    method, base = result.correct.astype(np.float64), zero_shot.astype(np.float64)
    images = method.shape[1]
    count = min(_PARTS, result.shortest, max(2, images // _LEAST))
    part = result.parts(count)
    (accuracy, answers), (other, _), (gain, _) = (
        means_by_part(one, part, count) for one in (method, base, method - base)
    )
    sizes = [len(positions) for positions in result.positions.values()]
    over_sets = means_by_part(method - base, part, count, sizes=sizes)[0]
    pooled = [PooledMean.of(*both, images, len(sizes)) for both in zip(gain, over_sets, strict=True)]
    shared = {"method": result.method, "orders": " ".join(map(str, result.orders)), "n": images}
    return [
        shared
        | {"from": index / count, "to": (index + 1) / count, "answers": int(answers[index])}
        | interval_columns("accuracy", accuracy[index])
        | flat({"zero_shot": other[index], "gain": pooled[index]})
        for index in range(count)
    ]


def _has_band(rows: Sequence[Row]) -> bool:
    """Return whether a part holds enough images for an interval that says something."""
    return int(rows[0]["n"]) // len(rows) >= _LEAST


def _positions(subtitle: str, curves: Sequence[tuple[StreamResult, list[Row]]]) -> Figure:
    columns = min(len(curves), 3 if len(curves) in (3, 5, 6, 9) else 4)
    narrow = columns < 3
    sizes = [_size_of(rows, "\n" if narrow else ", ") for _, rows in curves]
    same = len({*sizes}) == 1 and not narrow  # on top there is no room beside the settings of the runs
    lines, width = math.ceil(len(curves) / columns), COLUMN if narrow else PAGE
    below = f"{subtitle}{f'; {sizes[0]}' if same else ''}"
    figure = style.new_figure(width, 0.95 + 2.25 * lines, "Accuracy by position in the stream", below)
    heights = [1.9, 1.0] * lines
    axes = figure.subplots(2 * lines, columns, squeeze=False, sharex=True, sharey="row", height_ratios=heights)
    upper, lower = (axes[start::2].ravel() for start in (0, 1))
    for index, (result, rows) in enumerate(curves):
        title = marked_title(result.all, result.method)
        upper[index].set_title(title if same else f"{title}\n{sizes[index]}", fontsize=7)
        band = "band" if _has_band(rows) else "none"
        _draw_parts(upper[index], rows, ("zero_shot", "zero_shot_low", "zero_shot_high"), GREY, "none")
        _draw_parts(upper[index], rows, ("accuracy", "low", "high"), BLUE, band)
        _draw_parts(lower[index], rows, ("gain", "gain_low", "gain_high"), BLUE, band, _GAIN_OVER_SETS)
        lower[index].axhline(0, color=GREY, linewidth=0.7)
    for panels in (upper, lower):
        style.grid_of(panels, len(curves), columns if panels is lower else 0)
        ends = np.array([axis.get_ylim() for axis in panels[: len(curves)]])
        for axis in panels[: len(curves)]:
            axis.set_ylim(ends.min(), ends.max())
    for axis in lower[max(len(curves) - columns, 0) : len(curves)]:
        axis.set_xlabel("seen before (%)")
    for row in range(0, lines * columns, columns):
        upper[row].set_ylabel("top-1 (%)")
        lower[row].set_ylabel("gain (points)")
    handles = [Line2D([], [], color=colour, linewidth=1.1, marker="o", markersize=2) for colour in (BLUE, GREY)]
    both = any(row[_GAIN_OVER_SETS[0]] != "" for _, rows in curves for row in rows)
    bands = "bands: 95% intervals" + both * "; dotted: over sets like these"
    what = ("method, mean of orders, and its gain, paired;", bands)
    names = [("\n" if narrow else " ").join(what), "zero-shot on the same images"]
    figure.legend(handles, names, loc="outside lower left", ncols=1 if narrow else 2, fontsize=6.5)
    return figure


def _size_of(rows: Sequence[Row], separator: str) -> str:
    n, orders = rows[0]["n"], len(rows[0]["orders"].split())
    return f"n = {n:,} in {counted(orders, 'order')}{separator}{n // len(rows)} a part"


_GAIN_OVER_SETS = ("gain_sets_low", "gain_sets_high")


def _draw_parts(
    axis: Axes, rows: Sequence[Row], names: Sequence[str], colour: str, band: Any, over_sets: Sequence[str] = ()
) -> None:
    """Draw proportions along a stream, at the middle of each part."""
    x = [50 * (row["from"] + row["to"]) for row in rows]
    style.draw_line(axis, x, rows, names, colour, band, over_sets, marker="o", markersize=2)
    axis.set(xlim=(0, 100), xticks=[0, 50, 100])
    axis.grid(axis="y")


Draw = Callable[[RunGroup, Sidecars], FigureResult]
"""Draws a figure; what is missing, and how it is made, is a `MissingError`."""

FIGURES: Mapping[str, Draw] = {
    "scores": draw_scores,
    "ecec": draw_ecec,
    "entropy": draw_entropy,
    "calibration-gain": draw_gain,
    "masks": draw_masks,
    "pareto": draw_pareto,
    "reliability": lambda group, _: reliability_figure(*_together(group, "images of ")),
    "confusion": draw_confusion,
    "risk-coverage": lambda group, _: risk_coverage_figure(*_together(group, "")),
    "stream": draw_positions,
    "gallery": draw_gallery,
    "decomposition": draw_decomposition,
    "ablations": draw_ablations,
}
"""In the order in which they are drawn: the paper's first."""

_SHARED = frozenset({"ablations"})
"""Figures that do not depend on the settings of runs, so that they are drawn once for all."""

_OVER_ORDERS = frozenset({"stream"})
"""Figures of all orders of a stream together; others are of one order each."""


def load_groups(paths: Sequence[Path]) -> tuple[list[RunGroup], Sidecars]:
    """Read runs and the files beside them, see `find_sidecars`; where there are files only, one group has no run.

    Raises:
        ArgumentError: there is nothing, or something cannot be read.
    """
    folders, sidecars = find_sidecars(paths)
    nothing = RunGroup(RunSettings("", "", "", "", "", 0), ())
    runs = find_runs(folders) if folders else []
    if several := [run for run in runs if is_multi_label(run)]:
        raise ArgumentError(
            f"{several[0].folder}: its images may have several labels, and figures are of one label an image; see "
            "faircontext tables --style long for the average precision of each class"
        )
    return (group_runs(runs) if folders else [nothing]), sidecars


def draw_from(
    paths: Sequence[Path],
    only: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> int:
    """Draw the figures that runs allow, and return 1 where what was asked for by name, or all, could not be drawn.

    Args:
        paths: folders of runs and of the files beside them, see `find_sidecars`.
        only: names of figures, all where there is none.
        folder: where files go; it is made.
        say: takes a line for each figure.
        warn: takes warnings.

    Raises:
        ArgumentError: there is no figure of a name, nothing to draw from, or a file cannot be read or written.
    """
    for name in only:
        if name not in FIGURES:
            raise unknown_name("figure", name, FIGURES)
    names = [name for name in FIGURES if not only or name in only]
    groups, sidecars = load_groups(paths)
    if not _SHARED.issuperset(names):  # what needs no runs is drawn beside any
        for line in dict.fromkeys(line for group in groups for line in incomplete(group)):
            warn(line)
    written = draw_figures(groups, sidecars, names, folder)
    for figure in written:
        if figure.files:
            first, *rest = figure.files
            say(f"{first} (and {', '.join(path.suffix for path in rest)})")
        for line in figure.warnings:
            warn(f"{figure.name}: {'' if figure.files else 'not drawn: '}{line}")
    absent = [figure for figure in written if not figure.files]
    return int(len(absent) == len(written) or bool(only and absent))


@dataclass(frozen=True)
class Written:
    """What became of a figure: its name, the files that were written, and warnings, or why it could not be drawn."""

    name: str
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


def draw_figures(groups: Sequence[RunGroup], sidecars: Sidecars, names: Sequence[str], folder: Path) -> list[Written]:
    """Draw figures of all groups of runs and write them.

    A figure that several groups allow is written once for each, with the settings that tell them apart in its name.

    Args:
        groups: what was measured; one without runs where there are sidecars only.
        sidecars: what lies beside the runs.
        names: of the figures.
        folder: where files go; it is made.

    Raises:
        ArgumentError: a file cannot be written, or a row cannot be read.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        # One at a time: what is drawn, and as what, does not depend on what else is.
        with style.styled():
            chosen = groups[:1] if name in _SHARED else join_orders(groups) if name in _OVER_ORDERS else groups
            drawn, reasons = list[tuple[RunGroup, FigureResult]](), dict[str, None]()
            for group in chosen:
                try:
                    drawn.append((group, FIGURES[name](group, sidecars)))
                except MissingError as missing:
                    reasons[str(missing)] = None
            stems = _stems(name, [group for group, _ in drawn])
            for stem, (_, result) in zip(stems, drawn, strict=True):
                with _missing_letters() as letters:
                    files = _write(folder / stem, result)
                written.append(Written(stem, files, (*result.warnings, *letters)))
        if not drawn:
            written.append(Written(name, (), tuple(reasons)))
    return written


def _stems(name: str, groups: Sequence[RunGroup]) -> list[str]:
    """Return names of files, which hold the settings in which the groups differ."""
    rows = [(*map(str, s[:5]), f"seed{s.seed}", s.shift, s.stream) for s in (group.settings for group in groups)]
    differs = [len({*column}) > 1 for column in zip(*rows, strict=True)]
    stems = []
    for row in rows:
        parts = [part for part, other in zip(row, differs, strict=True) if other and part]
        stems.append(re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join([name, *parts])).strip("-"))
    return [stem if stems.count(stem) == 1 else f"{stem}-{index}" for index, stem in enumerate(stems)]


@contextmanager
def _missing_letters() -> Iterator[list[str]]:
    """Yield a list that has a line in the end where the font lacks letters, in place of a warning for each."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.filterwarnings("always", "Glyph ")
        yield lines
    letters = set()
    for warning in heard:
        if match := re.match(r"Glyph (\d+) ", str(warning.message)):
            letters.add(chr(int(match[1])))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if letters:
        lines.append(f"letters that the font lacks are drawn as boxes: {''.join(sorted(letters))}")


def _write(stem: Path, result: FigureResult) -> tuple[Path, ...]:
    if isinstance(result.data, Mapping):
        suffix, text = ".json", to_json(result.data, indent=None) + "\n"
    else:
        suffix, text = ".csv", to_csv(result.data)
    pdf, png, data = (stem.with_name(stem.name + ending) for ending in (".pdf", ".png", suffix))
    style.save_figure(result.figure, pdf)
    style.save_figure(result.figure, png)
    write_whole(data, text)
    return pdf, png, data
