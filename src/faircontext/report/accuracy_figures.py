"""Figures of accuracies: gains, ablations, reliability, risk over coverage, masks, costs, and along a stream."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, LogLocator

from faircontext.metrics.bootstrap import average_interval, percentile_interval
from faircontext.metrics.calibration import Reliability
from faircontext.metrics.orders import means_by_part
from faircontext.metrics.scores import Comparison, average_difference
from faircontext.metrics.selective import RiskCoverage, aurc, aurc_draws, risk_coverage
from faircontext.metrics.stats import Interval, wilson_interval
from faircontext.report import style
from faircontext.report.accuracy_tables import pooled_bins
from faircontext.report.benchmarks import TOP1, dataset_title, marked_title, tuned_note
from faircontext.report.render import MissingError, flat
from faircontext.report.style import (
    BLACK,
    BLUE,
    COLUMN,
    GREY,
    PAGE,
    FigureResult,
    colours_of,
    forest,
    interval_columns,
    new_figure,
)
from faircontext.runs.groups import RunGroup, common_images, group_runs, method_title, shared_sets
from faircontext.runs.records import method_of
from faircontext.runs.results import Result
from faircontext.runs.sidecars import AblationResults, Cost, Sidecars, Variant
from faircontext.runs.stream_results import StreamResult, StreamRuns, split_streams

__all__ = [
    "PositionCurve",
    "Selective",
    "draw_ablations",
    "draw_gain",
    "draw_masks",
    "draw_pareto",
    "draw_positions",
    "draw_reliability",
    "draw_risk_coverage",
    "gain_row",
    "gains_figure",
    "pareto_front",
    "pooled_selective",
    "position_curve",
    "position_curves",
    "positions_figure",
    "reliability_figure",
    "risk_coverage_figure",
]

Row = dict[str, Any]
T = TypeVar("T")


def draw_gain(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw what calibration adds: FCL minus exploration alone on each data set, and their mean (figure `ab_calib`).

    Where exploration alone is not among the runs, FCL is drawn against zero-shot.
    """
    row, pairs = group.row("fcl"), _exploration_pairs(group)
    gains = {name: Comparison.of(*pair) for name, pair in pairs.items()}
    reference = "exploration only" if gains else "zero-shot"
    gains = gains or {name: result.comparison for name, result in row.items() if result.comparison is not None}
    if not gains:
        raise MissingError("needs runs of fcl and fcl-explore: faircontext reproduce calibration-gain --root DATA")
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


def draw_ablations(_: RunGroup, sidecars: Sidecars) -> FigureResult:
    """Draw what each variant changes against its reference: a panel per ablation file, a row per variant."""
    ablations = [ablation for ablation in sidecars.ablations if ablation.variants]
    if not ablations:
        raise MissingError("needs files NAME.results.json: faircontext ablate EXPERIMENT --root DATA")
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


def draw_reliability(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw a reliability diagram per method, the images of all data sets together; ECE is over the same 20 bins."""
    curves = _pooled(group, pooled_bins)
    title = "Reliability" + (f" (images of {len(group.results)} sets together)" if len(group.results) > 1 else "")
    rows = [
        {"method": method, "n": int(bins.n.sum()), "ece": bins.expected_calibration_error, **row}
        for method, bins in curves.items()
        for row in _bin_rows(bins)
    ]
    return FigureResult(reliability_figure(title, group.title, curves), rows)


def _pooled(group: RunGroup, pool: Callable[[list[Result]], T | None]) -> dict[str, T]:
    """Return what is pooled of each method's results on all data sets, of those methods that have confidences."""
    pooled = {method: pool([*group.row(method).values()]) for method in group.methods}
    if not (curves := {method: one for method, one in pooled.items() if one is not None}):
        command = "faircontext evaluate --datasets NAMES --methods fcl --root DATA"
        raise MissingError(f"needs runs with confidences: {command}")
    return curves


def _trim(axes: np.ndarray, count: int, columns: int) -> None:
    """Hide the panels of a grid after the first `count`; one above such a panel shows its own ticks."""
    for axis in axes[count:]:
        axis.set_axis_off()
    for axis in axes[max(count - columns, 0) : count]:
        axis.tick_params(labelbottom=True)


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
    _trim(axes, len(curves), columns)
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


def draw_pareto(group: RunGroup, sidecars: Sidecars) -> FigureResult:
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
        what = "give each of them an entry in costs.json"
        raise MissingError(f"needs the costs of two methods, and knows {len(drawn)}: {what}")
    if len(drawn) < 2:
        command = "faircontext evaluate --datasets NAMES --methods all --root DATA"
        raise MissingError(f"needs runs of at least two methods: {command}")
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


def draw_masks(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw accuracies, and their differences to that of most masks, over the data sets that have all numbers."""
    by_masks = {name: _by_masks(results) for name, results in group.results.items()}
    # Data sets with other numbers of masks cannot be averaged with them: those with most numbers, then most sets, stay.
    shapes = Counter(tuple(sorted(results)) for results in by_masks.values() if len(results) > 1)
    masks = max(shapes, key=lambda shape: (len(shape), shapes[shape], shape), default=())
    sets = (results for results in by_masks.values() if masks and tuple(sorted(results)) == masks)
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
        change = average_interval([arrays[index].astype(np.float64) - arrays[-1] for arrays in correct])
        columns = interval_columns("accuracy", accuracy) | flat({"difference": change})
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


@dataclass(frozen=True)
class Selective:
    """A method's predictions by their confidence: the curve, and the area under it with its 95% bootstrap interval."""

    curve: RiskCoverage
    area: Interval


def pooled_selective(results: Sequence[Result]) -> Selective | None:
    """Return risk over coverage of all predictions; None where there are none, or not their probabilities."""
    known = [r for r in results if r.n and not r.predictions_only and np.isfinite(r.confidence).all()]
    if not known:
        return None
    score, correct = (np.concatenate([getattr(r, name) for r in known]) for name in ("confidence", "correct"))
    area = percentile_interval(aurc(score, correct), aurc_draws(score, correct))
    return Selective(risk_coverage(score, correct), area)


def draw_risk_coverage(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw a curve per method, the images of all data sets together, by the probability of the prediction."""
    curves = _pooled(group, pooled_selective)
    title = "Risk and coverage" + (f" ({len(group.results)} sets together)" if len(group.results) > 1 else "")
    rows = [row for method, one in curves.items() for row in _risk_rows(method, one)]
    return FigureResult(risk_coverage_figure(title, group.title, curves), rows)


def _shown(curve: RiskCoverage) -> Int[np.ndarray, " points"]:
    """Return the points at, or next after, each percent of the images."""
    wanted = np.ceil(np.arange(1, 101) / 100 * curve.n)
    return np.unique(np.searchsorted(curve.answered, wanted))


def _risk_rows(method: str, one: Selective) -> list[dict[str, Any]]:
    rows = []
    for index in _shown(one.curve):
        point = one.curve.at(int(index))
        shares = {"coverage": point.coverage.value, "answered": point.risk.n, "threshold": point.threshold}
        risk = interval_columns("risk", point.risk.estimate) | flat({"aurc": one.area})
        rows.append({"method": method, "n": one.curve.n, **shares, **risk})
    return rows


def risk_coverage_figure(title: str, subtitle: str, curves: Mapping[str, Selective]) -> Figure:
    """Draw risk over coverage, with pointwise Wilson intervals; the legend has the areas with theirs."""
    figure = new_figure(COLUMN, 2.6 + 0.13 * len(curves), title, subtitle)
    axis = figure.subplots()
    for (method, one), colour in zip(curves.items(), colours_of([*curves]), strict=True):
        points = [one.curve.at(int(index)) for index in _shown(one.curve)]
        coverage, risk = ([100 * getattr(p, name).value for p in points] for name in ("coverage", "risk"))
        low, high = ([100 * p.risk.interval[end] for p in points] for end in (0, 1))
        area = [100 * end for end in (one.area.value, one.area.low, one.area.high)]
        label = f"{method_title(method)}: AURC {area[0]:.1f} ({area[1]:.1f} to {area[2]:.1f}), n = {one.curve.n:,}"
        axis.fill_between(coverage, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(coverage, risk, color=colour, linewidth=1.1, label=label)
    axis.set(xlim=(0, 100), ylim=(0, None))
    axis.set_xlabel("coverage: images answered (%), surest first")
    axis.set_ylabel("risk: of these, wrong (%), 95%")
    axis.grid(axis="y")
    figure.legend(loc="outside lower left", fontsize=6.5, frameon=False)
    return figure


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


def draw_positions(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw accuracy by position in the stream: a panel for each method with a memory, of all data sets and orders."""
    curves, left = list[PositionCurve](), list[str]()
    for runs in split_streams(group_runs(group.runs))[1]:
        some, lines = position_curves(runs, runs.datasets)
        curves += some
        left += lines
    if not curves:
        raise MissingError(
            "needs runs of a method with a memory, on streams of at least 2 images: "
            "faircontext evaluate --datasets NAMES --methods tda --orders 0 1 2 --root DATA"
            + (f" (here {'; '.join(left)})" if left else "")
        )
    figure = positions_figure(group.title, curves)
    rows = [row for curve in curves for row in _part_rows(curve)]
    tuned = ((method_title(c.found.method), dataset_title(name)) for c in curves for name in c.found.tuned)
    return FigureResult(figure, rows, (*tuned_note(tuned), *left))


def _part_rows(curve: PositionCurve) -> list[dict[str, Any]]:
    """Return what is drawn, a row for each part; `from` and `to` are shares of the stream."""
    count, orders = len(curve.answers), " ".join(map(str, curve.found.orders))
    facts = {"method": curve.found.method, "orders": orders, "n": curve.images}
    rows = []
    for index, answers in enumerate(curve.answers):
        part = {"from": index / count, "to": (index + 1) / count, "answers": answers}
        paired = {"zero_shot": curve.zero_shot[index], "gain": curve.gain[index]}
        rows.append(facts | part | interval_columns("accuracy", curve.accuracy[index]) | flat(paired))
    return rows


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
    for axis in upper[len(curves) :]:
        axis.set_axis_off()
    _trim(lower, len(curves), columns)
    for axis in lower[max(len(curves) - columns, 0) : len(curves)]:
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
