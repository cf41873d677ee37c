"""Cosines of the parts of an image's evidence to the whole image (the paper's decomposition table).

The paper's last value cannot follow from its others, whose bound is drawn beside it.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from faircontext.analysis.decomposition import WEIGHT, reconstruction_bound
from faircontext.metrics.stats import bootstrap_mean
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.sources import AnalysisRow, Material, needs_analysis
from faircontext.report.plots.style import BLUE, COLUMN, VERMILION, new_figure
from faircontext.report.reported import read_reported

__all__ = ["draw_decomposition"]

_PARTS = {
    "cos_common": "common",
    "cos_unique_1": "unique, best candidate",
    "cos_unique_2": "unique, second best",
    "cos_composed": f"common + {WEIGHT:g} of each unique",
}


def _cosines(row: AnalysisRow) -> Float[np.ndarray, " parts"]:
    return np.array([float(row.diagnostics[name]) for name in _PARTS])


def draw_decomposition(material: Material) -> Drawing | str:
    """Draw the mean of each cosine with its interval, the paper's beside, and the bound of the composed one."""
    found = material.analysis("decomposition", _cosines)
    kept = np.array([values for _, values in found if np.isfinite(values).all()])
    if not len(kept):
        return needs_analysis("decomposition")
    paper = [float(row["cosine_to_z"]) for row in read_reported("decomposition")]
    measured = [bootstrap_mean(column, resamples=999) for column in kept.T]
    bounds = {"paper": reconstruction_bound(*paper[:3])}
    means = [float(np.clip(found.value, -1, 1)) for found in measured]
    bounds["measured"] = reconstruction_bound(*means[:3])
    figure = new_figure(COLUMN, 2.25, f"Cosine to the whole image (n = {len(kept):,} images)", material.title)
    axis = figure.subplots()
    for place, (interval, reported) in enumerate(zip(measured, paper, strict=True)):
        axis.plot([interval.low, interval.high], [place - 0.13] * 2, color=BLUE, linewidth=1.4, solid_capstyle="butt")
        axis.plot(interval.value, place - 0.13, "o", color=BLUE, markersize=4, label="" if place else "measured, 95%")
        axis.plot(
            reported,
            place + 0.13,
            "D",
            color=VERMILION,
            markersize=4,
            markerfacecolor="white",
            label="" if place else "paper",
        )
    last = len(measured) - 1
    axis.plot([bounds["paper"]] * 2, [last - 0.02, last + 0.4], color=VERMILION, label=_label(bounds["paper"], "paper"))
    axis.plot([bounds["measured"]] * 2, [last - 0.4, last + 0.02], color=BLUE, label=_label(bounds["measured"]))
    axis.set_yticks(
        range(len(_PARTS)), ["common", "unique, best", "unique, second", f"common + {WEIGHT:g}\nof each unique"]
    )
    axis.set_ylim(last + 0.6, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")
    axis.set_xlabel("cosine to z (mean over images)")
    figure.legend(loc="outside lower left", ncols=2, columnspacing=1.0, handlelength=1.2, borderaxespad=0.2)
    rows: list[dict[str, Any]] = []
    for name, interval, reported in zip(_PARTS, measured, paper, strict=True):
        composed = name == "cos_composed"
        limits = {f"bound_of_{key}": bound if composed else None for key, bound in bounds.items()}
        ends = {"mean": interval.value, "low": interval.low, "high": interval.high}
        rows.append({"part": _PARTS[name], "n": len(kept), **ends, "paper": reported, **limits})
    dropped = len(found) - len(kept)
    return Drawing(figure, rows, (f"{dropped} images without finite cosines are left out",) if dropped else ())


def _label(bound: float, whose: str = "measured") -> str:
    return f"bound {bound:.4f} ({whose}'s parts)" if whose == "paper" else f"bound {bound:.4f} (measured parts)"
