"""Figures of accuracies: paired gains by data set, ablations, and reliability diagrams."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faircontext.metrics.calibration import Reliability
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Interval, average_interval, wilson_interval
from faircontext.report.paper import dataset_title
from faircontext.report.style import BLACK, BLUE, COLUMN, GREY, PAGE, FigureResult, forest, name_within, new_figure
from faircontext.report.tables import pooled_bins
from faircontext.runs.groups import AblationResults, RunGroup, Sidecars, Variant, common_images, method_title
from faircontext.runs.records import method_of
from faircontext.runs.results import Result

__all__ = ["draw_ablations", "draw_gain", "draw_reliability", "gain_row", "gains_figure", "reliability_figure"]

_LONGEST_NAME = 28


def draw_gain(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw what calibration adds: FCL minus exploration alone on each data set, and their mean (figure `ab_calib`).

    Where exploration alone is not among the runs, FCL is drawn against zero-shot.
    """
    reference, pairs = next(((name, pairs) for name in _REFERENCES if (pairs := _pairs(group, name))), ("", {}))
    if not pairs:
        return "needs runs of fcl and fcl-explore: faircontext reproduce calibration-gain --root DATA"
    gains = {name: Comparison.of(*pair) for name, pair in pairs.items()}
    rows = [gain_row(name, found.difference, found) for name, found in gains.items()]
    rows.sort(key=lambda row: (-row["gain"], row["dataset"]))
    if len(rows) > 1:
        mean = average_interval([own.astype(np.float64) - base for own, base in pairs.values()])
        together = Comparison(*(sum(getattr(one, name) for one in gains.values()) for name in Comparison.COUNTS))
        rows.append(gain_row(f"mean of {len(rows)} sets", mean, together))
    figure = gains_figure(f"FCL less {reference}", group.title, rows, len(rows) > 1)
    notes = () if reference == "exploration only" else ("no exploration only among the runs: drawn against zero-shot",)
    return FigureResult(figure, [{"reference": reference, **row} for row in rows], notes)


def gain_row(name: str, gain: Interval, counts: Comparison) -> dict[str, Any]:
    """Return a row of `gains_figure`."""
    ends = {"gain": gain.value, "low": gain.low, "high": gain.high}
    return {"dataset": name, **ends, "n": counts.n, "gained": counts.gained, "lost": counts.lost}


def gains_figure(title: str, subtitle: str, rows: Sequence[Mapping[str, Any]], summed: bool) -> Figure:
    """Draw paired gains in points, a row each.

    Args:
        title: what is compared.
        subtitle: of what.
        rows: `dataset`, `gain` with its interval `low` to `high`, `n`, `gained` and `lost` images.
        summed: whether the last row sums up the others.
    """
    figure = new_figure(COLUMN, 1.05 + 0.155 * len(rows), title, subtitle)
    axis = figure.subplots()
    forest(
        axis,
        [name_within(dataset_title(row["dataset"]), _LONGEST_NAME) for row in rows],
        100 * np.array([[row["gain"], row["low"], row["high"]] for row in rows]),
        [f"{row['n']:,}  +{row['gained']}/-{row['lost']}" for row in rows],
        "n, gained/lost",
        len(rows) - 1 if summed else None,
    )
    axis.axvline(0, color=BLACK, linewidth=0.7)
    axis.set_xlabel("gain in top-1 accuracy (points), paired 95%")
    return figure


def _pairs(group: RunGroup, reference: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, by data set, whether FCL and its reference are correct on the images that both answered."""
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, found in group.results.items():
        answered = {method: result for method, result in found.items() if result.n}
        if (pair := _REFERENCES[reference](answered)) is not None:
            positions, correct = common_images(pair)
            pairs |= {name: (correct[0], correct[1])} if len(positions) else {}
    return pairs


def _with_exploration(found: Mapping[str, Result]) -> tuple[Result, Result] | None:
    """Return FCL and exploration alone, which differ in `calibrate` and nothing else, whatever they are called."""
    for base in (result for result in found.values() if result.settings.get("calibrate") is False):
        wanted = {**base.settings, "calibrate": True}
        for own in found.values():
            alike = {"calibrate": True, **own.settings} == wanted
            if method_of(own.method) == "fcl" and alike and own.config.get("views") == base.config.get("views"):
                return own, base
    return None


def _with_zero_shot(found: Mapping[str, Result]) -> tuple[Result, Result] | None:
    return (found["fcl"], found["zero_shot"]) if {"fcl", "zero_shot"} <= found.keys() else None


_REFERENCES = {"exploration only": _with_exploration, "zero-shot": _with_zero_shot}
"""What FCL is compared with, the first that there is."""


def draw_ablations(_: RunGroup | None, sidecars: Sidecars) -> FigureResult | str:
    """Draw what each variant changes against its reference: a panel per ablation file, a row per variant."""
    found = [ablation for ablation in sidecars.ablations if ablation.variants]
    if not found:
        return "needs files NAME.results.json: faircontext ablate EXPERIMENT --root DATA"
    heights = [0.75 + 0.17 * len(ablation.variants) for ablation in found]
    names = ", ".join(ablation.name for ablation in found)
    figure = new_figure(PAGE, 0.45 + sum(heights), "Ablations" if len(found) > 1 else f"Ablation: {names}", "")
    axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
    rows: list[dict[str, Any]] = []
    for axis, ablation in zip(axes, found, strict=True):
        _draw_ablation(axis, ablation, titled=len(found) > 1)
        rows += [{"ablation": ablation.name, "reference": ablation.reference, **vars(v)} for v in ablation.variants]
    notes = [
        f"{ablation.name}: {label} has no image, and is left out" for ablation in found for label in ablation.empty
    ]
    return FigureResult(figure, rows, tuple(notes))


def _draw_ablation(axis: Axes, ablation: AblationResults, titled: bool) -> None:
    variants = ablation.variants
    ends = [(v.difference, v.difference_low, v.difference_high) for v in variants]
    values = 100 * np.array([[np.nan if end is None else end for end in row] for row in ends])
    known = np.isfinite(values[:, 0])
    values[~known, 0] = 0.0  # the reference: no difference, and no interval
    values[~known, 1:] = np.nan
    colours = [
        BLUE if there and variant.label != ablation.reference else GREY
        for variant, there in zip(variants, known, strict=True)
    ]
    notes = [_variant_note(variant, ablation.reference) for variant in variants]
    labels = [variant.label for variant in variants]
    forest(axis, labels, values, notes, "accuracy (95%), n, gained/lost, p", colours=colours)
    axis.axvline(0, color=BLACK, linewidth=0.7)
    axis.set_xlabel(f"difference to “{ablation.reference}” (points), paired 95%")
    if titled:
        axis.set_title(ablation.name, loc="left", fontweight="bold")


def _variant_note(variant: Variant, reference: str) -> str:
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
    sets = len(group.results)
    title = "Reliability" + (f" (images of {sets} sets together)" if sets > 1 else "")
    rows = [
        {"method": method, "n": int(bins.n.sum()), "ece": bins.expected_calibration_error, **row}
        for method, bins in curves.items()
        for row in _bin_rows(bins)
    ]
    return FigureResult(reliability_figure(title, group.title, curves), rows)


def reliability_figure(title: str, subtitle: str, curves: Mapping[str, Reliability]) -> Figure:
    """Draw a panel per method: how often predictions of some confidence are correct, in bins of equal width."""
    columns = min(len(curves), 2 if len(curves) < 3 else 5)
    lines = math.ceil(len(curves) / columns)
    width = COLUMN if columns < 3 else PAGE
    side = (width - 0.4) / max(columns, 2)
    figure = new_figure(width, 0.75 + lines * (side + 0.28), title, subtitle)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, (method, bins) in zip(axes, curves.items(), strict=False):
        error = 100 * bins.expected_calibration_error
        axis.set_title(f"{method_title(method)}\nECE {error:.1f}%, n = {bins.n.sum():,}", fontsize=7)
        _draw_bins(axis, bins)
    for axis in axes[len(curves) :]:
        axis.set_axis_off()
    for index in range(len(curves)):  # a panel above an empty one has no neighbour that shows its ticks
        if index + columns >= len(curves):
            axes[index].tick_params(labelbottom=True)
    figure.supxlabel("confidence (mean of the bin)", fontsize=7.5)
    figure.supylabel("share of correct predictions (95%)", fontsize=7.5)
    return figure


def _bin_rows(bins: Reliability) -> list[dict[str, Any]]:
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
    x, y = [row["confidence"] for row in rows], [row["accuracy"] for row in rows]
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.7, linestyle="--", zorder=0)
    axis.vlines(x, [row["low"] for row in rows], [row["high"] for row in rows], color=BLUE, alpha=0.35, linewidth=0.9)
    axis.plot(x, y, "-", color=BLUE, linewidth=0.9)
    sizes = [4 + 26 * row["answers"] / max(other["answers"] for other in rows) for row in rows]
    axis.scatter(x, y, s=sizes, color=BLUE, linewidths=0, zorder=3, clip_on=False)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axis.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axis.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
