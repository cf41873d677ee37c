"""Accuracy against the number of masks N_m, and what fewer masks than the most cost (paper, `ablation_num_masks`)."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from faircontext.metrics.stats import average_interval
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.samples import common
from faircontext.report.plots.sources import Material
from faircontext.report.plots.style import BLACK, BLUE, PAGE, new_figure
from faircontext.report.results import Result

__all__ = ["draw_masks"]

_NEEDED = (
    "needs runs of fcl with at least two numbers of masks on the same images: "
    "faircontext reproduce ablation-num-masks --root DATA"
)


def draw_masks(material: Material) -> Drawing | str:
    """Draw accuracies, and their differences to that of most masks, over the data sets that have all numbers."""
    found = {name: _by_masks(results) for name, results in material.results.items()}
    # Data sets with other numbers of masks cannot be averaged with them: those with most numbers, then most sets, stay.
    shapes = Counter(tuple(sorted(results)) for results in found.values() if len(results) > 1)
    if not shapes:
        return _NEEDED
    numbers = max(shapes, key=lambda shape: (len(shape), shapes[shape], shape))
    sets = {name: results for name, results in found.items() if tuple(sorted(results)) == numbers}
    right: dict[str, list[Bool[np.ndarray, " images"]]] = {}
    for name, results in sets.items():
        positions, arrays = common([results[number] for number in numbers])
        right |= {name: arrays} if len(positions) else {}
    if not right:
        return _NEEDED
    rows: list[dict[str, Any]] = []
    images = sum(len(arrays[0]) for arrays in right.values())
    for place, number in enumerate(numbers):
        accuracy = average_interval([arrays[place] for arrays in right.values()])
        change = average_interval([arrays[place].astype(np.float64) - arrays[-1] for arrays in right.values()])
        ends = {"accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high}
        differences = {"difference": change.value, "difference_low": change.low, "difference_high": change.high}
        rows.append({"masks": number, "n": images, "datasets": len(right), **ends, **differences})
    return Drawing(_figure(material, rows, len(right), images), rows)


def _by_masks(results: Mapping[str, Result]) -> dict[int, Result]:
    """Return FCL's results of one data set that differ in the number of masks alone, by that number."""
    families: dict[str, dict[int, Result]] = {}
    for label, result in results.items():
        settings = dict(result.config["methods"][label]) | {"": result.config.get("views")}
        if label.partition("-")[0] == "fcl" and "masks" in settings and settings.get("calibrate", True):
            number = int(settings.pop("masks"))
            families.setdefault(repr(sorted(settings.items())), {}).setdefault(number, result)
    return max(families.values(), key=len, default={})


def _figure(material: Material, rows: list[dict[str, Any]], sets: int, images: int) -> Any:
    over = f"mean of {sets} sets, " if sets > 1 else ""
    figure = new_figure(PAGE, 2.5, f"FCL by number of masks ({over}n = {images:,})", material.title)
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
