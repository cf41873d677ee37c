"""What calibration adds: FCL less exploration alone, on the same images of each data set (paper, figure `ab_calib`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from faircontext.metrics.stats import average_interval, discordant, paired_bootstrap
from faircontext.report.groups import set_title
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.samples import common
from faircontext.report.plots.sources import Material
from faircontext.report.plots.style import BLACK, COLUMN, forest, new_figure
from faircontext.report.results import Result

__all__ = ["draw_gain"]


def draw_gain(material: Material) -> Drawing | str:
    """Draw the gain of each data set, the largest on top, and their mean; against zero-shot where that is all."""
    reference, pairs = next(((name, pairs) for name in _CHOICES if (pairs := _pairs(material, name))), ("", {}))
    if not pairs:
        return "needs runs of fcl and fcl-explore: faircontext reproduce calibration-gain --root DATA"
    rows: list[dict[str, Any]] = []
    for name, (own, base) in pairs.items():
        change = paired_bootstrap(own, base)
        gained, lost = discordant(own, base)
        counts = {"n": len(own), "gained": gained, "lost": lost}
        rows.append({"dataset": name, "gain": change.value, "low": change.low, "high": change.high, **counts})
    rows.sort(key=lambda row: (-row["gain"], row["dataset"]))
    if len(rows) > 1:
        mean = average_interval([own.astype(np.float64) - base for own, base in pairs.values()])
        counts = {key: sum(row[key] for row in rows) for key in ("n", "gained", "lost")}
        name = f"mean of {len(rows)} sets"
        rows.append({"dataset": name, "gain": mean.value, "low": mean.low, "high": mean.high, **counts})
    figure = new_figure(COLUMN, 1.05 + 0.155 * len(rows), f"FCL less {reference}", material.title)
    axis = figure.subplots()
    forest(
        axis,
        [set_title(row["dataset"]) for row in rows],
        100 * np.array([[row["gain"], row["low"], row["high"]] for row in rows]),
        [f"{row['n']:,}  +{row['gained']}/-{row['lost']}" for row in rows],
        "n, gained/lost",
        len(rows) - 1 if len(rows) > 1 else None,
    )
    axis.axvline(0, color=BLACK, linewidth=0.7)
    axis.set_xlabel("gain in top-1 accuracy (points), paired 95%")
    notes = () if reference == "exploration only" else ("no exploration only among the runs: drawn against zero-shot",)
    return Drawing(figure, [{"reference": reference, **row} for row in rows], notes)


_Pairs = dict[str, tuple[Bool[np.ndarray, " images"], Bool[np.ndarray, " images"]]]


def _pairs(material: Material, reference: str) -> _Pairs:
    """Return, by data set, whether FCL and what it is compared with are right on the images that both answered."""
    pairs: _Pairs = {}
    for name, found in material.results.items():
        if (pair := _CHOICES[reference](found)) is not None:
            positions, right = common([*pair])
            pairs |= {name: (right[0], right[1])} if len(positions) else {}
    return pairs


def _with_exploration(found: Mapping[str, Result]) -> tuple[Result, Result] | None:
    """Return FCL and exploration alone, which differ in `calibrate` and nothing else, whatever they are called."""
    explored = [result for result in found.values() if _settings(result).get("calibrate") is False]
    for base in explored:
        wanted = {**_settings(base), "calibrate": True}
        for own in found.values():
            alike = {"calibrate": True, **_settings(own)} == wanted
            if own.method.partition("-")[0] == "fcl" and alike and own.config.get("views") == base.config.get("views"):
                return own, base
    return None


def _settings(result: Result) -> Mapping[str, Any]:
    found: Mapping[str, Any] = result.config["methods"][result.method]
    return found


def _with_zero_shot(found: Mapping[str, Result]) -> tuple[Result, Result] | None:
    return (found["fcl"], found["zero_shot"]) if {"fcl", "zero_shot"} <= found.keys() else None


_CHOICES = {"exploration only": _with_exploration, "zero-shot": _with_zero_shot}
"""What FCL is compared with, the first that there is."""
