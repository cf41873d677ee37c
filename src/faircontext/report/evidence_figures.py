"""Figures of the paper's quantities of evidence: ECEC, EUEC against entropy, and the decomposition of an image."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory

from faircontext.metrics.scores import COMPOSED_WEIGHT, reconstruction_bound
from faircontext.metrics.stats import Interval, bootstrap_mean, bootstrap_means, clustered_correlation
from faircontext.report.paper import dataset_title, read_reported
from faircontext.report.style import BLACK, BLUE, COLUMN, GREY, VERMILION, FigureResult, new_figure
from faircontext.runs.groups import RunGroup, Sidecars
from faircontext.runs.records import AnalysisRow
from faircontext.runs.results import read_analysis

__all__ = ["RESAMPLES", "draw_decomposition", "draw_ecec", "draw_entropy", "needs_analysis"]

RESAMPLES = 400
"""The paper's."""

_KINDS = (("right", BLUE), ("wrong", VERMILION))

_BINS = 8


def needs_analysis(name: str) -> str:
    """Return why a figure of an analysis cannot be drawn, and the command that makes what it needs."""
    return f"needs runs of the analysis {name}: faircontext analyze {name} --datasets NAMES --root DATA --out RUNS"


def draw_ecec(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw, for each data set and all together, the mean ECEC of correct and of incorrect zero-shot predictions.

    The paper's caption has 95% intervals, and Gaussian densities "with 400 bootstrap resamples": drawn here are the
    densities of the means of 400 resamples, shaded between the ends of the interval.
    """
    found = read_analysis(group.runs, "evidence", lambda row: float(row.diagnostics["ecec"]))
    kept = [(row, value) for row, value in found if np.isfinite(value)]
    if not kept:
        return needs_analysis("evidence")
    values_of: dict[str, dict[str, list[float]]] = {}
    for row, value in kept:
        kind = "right" if row.correct else "wrong"
        for name in (row.dataset, "all sets"):
            values_of.setdefault(name, {}).setdefault(kind, []).append(value)
    pooled = values_of.pop("all sets")
    if len(values_of) > 1:
        values_of["all sets"] = pooled
    figure = new_figure(COLUMN, 1.25 + 0.42 * len(values_of), "Contribution of common evidence", group.title)
    axis = figure.subplots()
    rows = [_draw_group(axis, y, name, values_of[name]) for y, name in enumerate(values_of)]
    axis.set_yticks(range(len(values_of)), [name if name == "all sets" else dataset_title(name) for name in values_of])
    axis.set_ylim(len(values_of) - 0.5, -0.95)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")
    axis.spines["left"].set_visible(False)
    axis.set_xlabel(f"mean ECEC (density of {RESAMPLES} resampled means,\nshaded: 95% interval)")
    beside = blended_transform_factory(axis.transAxes, axis.transData)
    for y, values in enumerate(values_of.values()):
        numbers = "/".join(f"{len(values.get(kind, ())):,}" for kind, _ in _KINDS)
        axis.text(1.02, y, numbers, transform=beside, va="center_baseline")
    axis.text(1.02, -0.75, "n", transform=beside, va="bottom", color=GREY)
    for kind, colour in _KINDS:
        text = f"zero-shot {kind} (n = {len(pooled.get(kind, ())):,})"
        axis.plot([], [], "o-", color=colour, linewidth=1.6, markersize=3.5, label=text)
    figure.legend(loc="outside lower left", borderaxespad=0.2)
    dropped = len(found) - len(kept)
    notes = (f"{dropped} images without a finite ECEC are left out",) if dropped else ()
    return FigureResult(figure, [entry for entries in rows for entry in entries], notes)


def _draw_group(axis: Axes, y: int, name: str, values: dict[str, list[float]]) -> list[dict[str, Any]]:
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
        axis.plot([low, high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
        axis.plot(value, y, "o", color=colour, markersize=3.5)
        curves.append((means, low, high, colour))
    densities = [(_density(means), low, high, colour) for means, low, high, colour in curves]
    highest = max((float(curve[1].max()) for curve, *_ in densities if curve is not None), default=1.0)
    for curve, low, high, colour in densities:
        if curve is None:
            continue
        grid, height = curve[0], y - 0.06 - 0.75 * curve[1] / highest
        axis.plot(grid, height, color=colour, linewidth=0.8)
        inside = (grid >= low) & (grid <= high)
        axis.fill_between(grid, height, y - 0.06, where=inside.tolist(), color=colour, alpha=0.25, linewidth=0)
    return entries


def _density(means: Float[np.ndarray, " resamples"]) -> Float[np.ndarray, "2 points"] | None:
    """Return the Gaussian density of resampled means, None where they do not vary."""
    spread = float(means.std())
    if spread <= 1e-9 * max(1.0, float(np.abs(means).max())):
        return None
    grid = np.linspace(means.min() - spread, means.max() + spread, 200)
    from scipy.stats import gaussian_kde  # takes a second to import

    return np.stack([grid, gaussian_kde(means)(grid)])


def _views(row: AnalysisRow) -> Float[np.ndarray, "views 3"]:
    columns = [row.diagnostics[name] for name in ("views", "entropy", "euec")]
    return np.array(list(zip(*columns, strict=True)), np.float64).reshape(-1, 3)


def draw_entropy(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw a point per view, the means of equally many views from low to high entropy, and the correlations."""
    found = read_analysis(group.runs, "entropy", _views)
    points = [np.column_stack([np.full(len(views), image), views]) for image, (_, views) in enumerate(found)]
    table = np.concatenate(points) if points else np.zeros((0, 4))
    kept = table[np.isfinite(table).all(1)]
    if not len(kept):
        return needs_analysis("entropy")
    images, entropy, euec = kept[:, 0].astype(np.int64), kept[:, 2], kept[:, 3]
    pearson = clustered_correlation(entropy, euec, images, "pearson", resamples=RESAMPLES)
    spearman = clustered_correlation(entropy, euec, images, "spearman", resamples=RESAMPLES)
    figure = new_figure(COLUMN, 2.75, "Unique evidence against entropy", group.title)
    axis = figure.subplots()
    right = np.array([row.correct for row, _ in found])[images]
    for chosen, colour, text in ((right, BLUE, "zero-shot right"), (~right, VERMILION, "zero-shot wrong")):
        axis.plot(entropy[chosen], euec[chosen], "o", color=colour, alpha=0.35, markersize=2.2, markeredgewidth=0)
        views = f"{text} ({int(chosen.sum()):,} views of {len(np.unique(images[chosen])):,} images)"
        axis.plot([], [], "o", color=colour, markersize=3, label=views)
    if len(kept) >= 2 * _BINS:
        parts = np.array_split(np.argsort(entropy, kind="stable"), _BINS)
        means = np.array([[entropy[part].mean(), euec[part].mean()] for part in parts])
        axis.plot(*means.T, "-", color=BLACK, linewidth=1, label="mean of each eighth of the views")
    axis.set_xlabel("entropy of the view (nats)")
    axis.set_ylabel("EUEC (cosine)")
    lines = [f"Pearson {_show(pearson)}", f"Spearman {_show(spearman)}"]
    axis.set_title("\n".join(lines), fontsize=7, loc="left", linespacing=1.3)
    axis.grid()
    figure.legend(loc="outside lower left", handletextpad=0.3, borderaxespad=0.2)
    dropped = len(table) - len(kept)
    notes = (f"{dropped} views without finite values are left out",) if dropped else ()
    rows = [
        {
            "dataset": found[image][0].dataset,
            "path": found[image][0].path,
            "view": int(view),
            "entropy": float(bits),
            "euec": float(value),
            "zero_shot_right": bool(found[image][0].correct),
        }
        for image, (view, bits, value) in zip(images.tolist(), kept[:, 1:], strict=True)
    ]
    return FigureResult(figure, rows, (*notes, *lines))


def _show(found: Interval | None) -> str:
    if found is None:
        return "correlation is not defined: a quantity does not vary"
    if not np.isfinite(found.low):
        return f"r = {found.value:+.2f} (one image: no interval)"
    return f"r = {found.value:+.2f} (95%: {found.low:+.2f} to {found.high:+.2f})"


_PARTS = {
    "cos_common": "common",
    "cos_unique_1": "unique, best candidate",
    "cos_unique_2": "unique, second best",
    "cos_composed": f"common + {COMPOSED_WEIGHT:g} of each unique",
}


def _cosines(row: AnalysisRow) -> Float[np.ndarray, " parts"]:
    return np.array([float(row.diagnostics[name]) for name in _PARTS])


def draw_decomposition(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw the mean of each cosine with its interval, the paper's beside, and the bound of the composed one."""
    found = read_analysis(group.runs, "decomposition", _cosines)
    kept = np.array([values for _, values in found if np.isfinite(values).all()])
    if not len(kept):
        return needs_analysis("decomposition")
    paper = [float(row["cosine_to_z"]) for row in read_reported("decomposition")]
    measured = [bootstrap_mean(column, resamples=999) for column in kept.T]
    bounds = {"paper": reconstruction_bound(*paper[:3])}
    means = [float(np.clip(found.value, -1, 1)) for found in measured]
    bounds["measured"] = reconstruction_bound(*means[:3])
    figure = new_figure(COLUMN, 2.25, f"Cosine to the whole image (n = {len(kept):,} images)", group.title)
    axis = figure.subplots()
    for row, (interval, reported) in enumerate(zip(measured, paper, strict=True)):
        axis.plot([interval.low, interval.high], [row - 0.13] * 2, color=BLUE, linewidth=1.4, solid_capstyle="butt")
        axis.plot(interval.value, row - 0.13, "o", color=BLUE, markersize=4, label="" if row else "measured, 95%")
        axis.plot(
            reported,
            row + 0.13,
            "D",
            color=VERMILION,
            markersize=4,
            markerfacecolor="white",
            label="" if row else "paper",
        )
    last = len(measured) - 1
    axis.plot([bounds["paper"]] * 2, [last - 0.02, last + 0.4], color=VERMILION, label=_label(bounds["paper"], "paper"))
    axis.plot([bounds["measured"]] * 2, [last - 0.4, last + 0.02], color=BLUE, label=_label(bounds["measured"]))
    axis.set_yticks(
        range(len(_PARTS)),
        ["common", "unique, best", "unique, second", f"common + {COMPOSED_WEIGHT:g}\nof each unique"],
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
    return FigureResult(figure, rows, (f"{dropped} images without finite cosines are left out",) if dropped else ())


def _label(bound: float, whose: str = "measured") -> str:
    return f"bound {bound:.4f} ({whose}'s parts)" if whose == "paper" else f"bound {bound:.4f} (measured parts)"
