"""What calibration adds: FCL less exploration alone, on the same images of each data set (paper, figure `ab_calib`)."""

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

_TITLES = {"fcl-explore": "FCL less exploration only", "zero_shot": "FCL less zero-shot"}


def draw_gain(material: Material) -> Drawing | str:
    """Draw the gain of each data set, the largest on top, and their mean; against zero-shot where that is all."""
    for reference in _TITLES:
        pairs: dict[str, tuple[Bool[np.ndarray, " images"], Bool[np.ndarray, " images"]]] = {}
        for name, found in material.results.items():
            if "fcl" in found and reference in found and _alike(found["fcl"], found[reference]):
                positions, right = common([found["fcl"], found[reference]])
                pairs |= {name: (right[0], right[1])} if len(positions) else {}
        if pairs:
            break
    else:
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
    figure = new_figure(COLUMN, 1.05 + 0.155 * len(rows), _TITLES[reference], material.title)
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
    notes = () if reference == "fcl-explore" else ("no exploration only among the runs: drawn against zero-shot",)
    return Drawing(figure, [{"reference": reference, **row} for row in rows], notes)


def _alike(own: Result, base: Result) -> bool:
    """Return whether the base is zero-shot, or FCL on the same views without calibration, whatever it is called."""
    if base.method == "zero_shot":
        return True
    settings = base.config["methods"][base.method]
    return not settings.get("calibrate", True) and own.config.get("views") == base.config.get("views")
