"""Ablations as a forest: what each variant changes against the one that it is compared with, on the same images."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from faircontext.report.plots.beside import Ablation, Variant
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.sources import Material
from faircontext.report.plots.style import BLACK, BLUE, GREY, PAGE, forest, new_figure

__all__ = ["draw_ablations"]


def draw_ablations(material: Material) -> Drawing | str:
    """Draw a panel per ablation file, with differences in points, accuracies and what was gained and lost."""
    found = [ablation for ablation in material.ablations if ablation.variants]
    if not found:
        return "needs files NAME.results.json: faircontext ablate EXPERIMENT --root DATA"
    heights = [0.75 + 0.17 * len(ablation.variants) for ablation in found]
    names = ", ".join(ablation.name for ablation in found)
    figure = new_figure(PAGE, 0.45 + sum(heights), "Ablations" if len(found) > 1 else f"Ablation: {names}", "")
    axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
    rows: list[dict[str, Any]] = []
    for axis, ablation in zip(axes, found, strict=True):
        _draw(axis, ablation, titled=len(found) > 1)
        rows += [{"ablation": ablation.name, "reference": ablation.reference, **vars(v)} for v in ablation.variants]
    notes = [
        f"{ablation.name}: {label} has no image, and is left out" for ablation in found for label in ablation.empty
    ]
    return Drawing(figure, rows, tuple(notes))


def _draw(axis: Axes, ablation: Ablation, titled: bool) -> None:
    variants = ablation.variants
    values = 100 * np.array(
        [[_number(v.difference), _number(v.difference_low), _number(v.difference_high)] for v in variants]
    )
    known = np.isfinite(values[:, 0])
    values[~known, 0] = 0.0  # the reference: no difference, and no interval
    values[~known, 1:] = np.nan
    colours = [
        BLUE if there and variant.label != ablation.reference else GREY
        for variant, there in zip(variants, known, strict=True)
    ]
    forest(
        axis,
        [variant.label for variant in variants],
        values,
        [_note(variant, ablation.reference) for variant in variants],
        "accuracy (95%), n, gained/lost, p",
        colours=colours,
    )
    axis.axvline(0, color=BLACK, linewidth=0.7)
    axis.set_xlabel(f"difference to “{ablation.reference}” (points), paired 95%")
    if titled:
        axis.set_title(ablation.name, loc="left", fontweight="bold")


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _note(variant: Variant, reference: str) -> str:
    accuracy = f"{100 * variant.accuracy:.1f}% ({100 * variant.low:.1f} to {100 * variant.high:.1f}), n = {variant.n:,}"
    if variant.label == reference:
        return f"{accuracy}, reference"
    counts = "" if variant.gained is None or variant.lost is None else f", +{variant.gained}/-{variant.lost}"
    return accuracy + counts + ("" if variant.p_value is None else f", p = {variant.p_value:.2g}")
