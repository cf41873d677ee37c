"""Figure (b) of the paper: what shared evidence contributes where zero-shot is right, and where it is wrong (ECEC).

The paper's caption has 95% intervals, and Gaussian densities "with 400 bootstrap resamples": drawn here are the
densities of the means of 400 resamples, shaded between the ends of the interval. A density of the values themselves
would not show what the interval is of.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory
from scipy.stats import gaussian_kde

from faircontext.metrics.stats import bootstrap_means
from faircontext.report.groups import set_title
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.sources import Material, needs_analysis
from faircontext.report.plots.style import BLUE, COLUMN, GREY, VERMILION, new_figure

__all__ = ["RESAMPLES", "draw_ecec"]

RESAMPLES = 400
"""The paper's."""

_KINDS = (("right", BLUE), ("wrong", VERMILION))


def draw_ecec(material: Material) -> Drawing | str:
    """Draw, for each data set and for all together, the mean ECEC of right and of wrong zero-shot answers."""
    found = material.analysis("evidence", lambda row: float(row.diagnostics["ecec"]))
    kept = [(row, value) for row, value in found if np.isfinite(value)]
    if not kept:
        return needs_analysis("evidence")
    groups: dict[str, dict[str, list[float]]] = {}
    for row, value in kept:
        kind = "right" if row.answer == row.label else "wrong"
        for name in (row.dataset, "all sets"):
            groups.setdefault(name, {}).setdefault(kind, []).append(value)
    pooled = groups.pop("all sets")
    if len(groups) > 1:
        groups["all sets"] = pooled
    figure = new_figure(COLUMN, 1.25 + 0.42 * len(groups), "Contribution of common evidence", material.title)
    axis = figure.subplots()
    rows = [_draw_group(axis, place, name, groups[name]) for place, name in enumerate(groups)]
    axis.set_yticks(range(len(groups)), [name if name == "all sets" else set_title(name) for name in groups])
    axis.set_ylim(len(groups) - 0.5, -0.95)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")
    axis.spines["left"].set_visible(False)
    axis.set_xlabel(f"mean ECEC (density of {RESAMPLES} resampled means,\nshaded: 95% interval)")
    beside = blended_transform_factory(axis.transAxes, axis.transData)
    for place, values in enumerate(groups.values()):
        numbers = "/".join(f"{len(values.get(kind, ())):,}" for kind, _ in _KINDS)
        axis.text(1.02, place, numbers, transform=beside, va="center_baseline")
    axis.text(1.02, -0.75, "n", transform=beside, va="bottom", color=GREY)
    for kind, colour in _KINDS:
        text = f"zero-shot {kind} (n = {len(pooled.get(kind, ())):,})"
        axis.plot([], [], "o-", color=colour, linewidth=1.6, markersize=3.5, label=text)
    figure.legend(loc="outside lower left", borderaxespad=0.2)
    dropped = len(found) - len(kept)
    notes = (f"{dropped} images without a finite ECEC are left out",) if dropped else ()
    return Drawing(figure, [entry for entries in rows for entry in entries], notes)


def _draw_group(axis: Axes, place: int, name: str, values: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Draw one data set on a line of its own, and return what was drawn."""
    entries, curves = [], []
    for kind, colour in _KINDS:
        if not values.get(kind):
            continue
        outcomes = np.array(values[kind])
        means = bootstrap_means(outcomes, RESAMPLES)
        low, high = (float(end) for end in np.quantile(means, [0.025, 0.975]))
        value = float(outcomes.mean())
        entries.append(
            {"dataset": name, "zero_shot": kind, "n": len(outcomes), "mean": value, "low": low, "high": high}
        )
        axis.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
        axis.plot(value, place, "o", color=colour, markersize=3.5)
        curves.append((means, low, high, colour))
    densities = [(_density(means), low, high, colour) for means, low, high, colour in curves]
    highest = max((float(curve[1].max()) for curve, *_ in densities if curve is not None), default=1.0)
    for curve, low, high, colour in densities:
        if curve is None:
            continue
        grid, height = curve[0], place - 0.06 - 0.75 * curve[1] / highest
        axis.plot(grid, height, color=colour, linewidth=0.8)
        inside = (grid >= low) & (grid <= high)
        axis.fill_between(grid, height, place - 0.06, where=inside.tolist(), color=colour, alpha=0.25, linewidth=0)
    return entries


def _density(means: Float[np.ndarray, " resamples"]) -> Float[np.ndarray, "2 points"] | None:
    """Return the Gaussian density of resampled means, None where they do not vary."""
    spread = float(means.std())
    if spread <= 1e-9 * max(1.0, float(np.abs(means).max())):
        return None
    grid = np.linspace(means.min() - spread, means.max() + spread, 200)
    return np.stack([grid, gaussian_kde(means)(grid)])
