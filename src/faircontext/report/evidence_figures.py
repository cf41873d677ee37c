"""Figures of evidence: ECEC, EUEC against entropy, the decomposition of an image, scores with unique evidence, maps."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faircontext.errors import counted
from faircontext.metrics.bootstrap import bootstrap_mean, bootstrap_means, clustered_correlation
from faircontext.metrics.scores import COMPOSED_WEIGHT, reconstruction_bound
from faircontext.metrics.stats import Interval
from faircontext.report import style
from faircontext.report.benchmarks import dataset_title, read_reported
from faircontext.report.images import StoredImage, choose_stored, common_map, draw_evidence, resized, unique_map
from faircontext.report.render import MissingError
from faircontext.report.style import BLACK, BLUE, COLUMN, GREY, PAGE, VERMILION, FigureResult, interval_columns
from faircontext.runs.analyses import read_analysis
from faircontext.runs.groups import RunGroup
from faircontext.runs.records import AnalysisRow
from faircontext.runs.sidecars import Sidecars

RESAMPLES = 400
"""The paper's."""

_OUTCOMES = {"right": BLUE, "wrong": VERMILION}


def _needs(analysis: str) -> MissingError:
    command = f"faircontext analyze {analysis} --datasets NAMES --root DATA --out RUNS"
    return MissingError(f"needs runs of the analysis {analysis}: {command}")


def _finite(
    group: RunGroup, analysis: str, take: Callable[[AnalysisRow], Iterable[Sequence[float]]], noun: str, what: str
) -> tuple[list[AnalysisRow], Float[np.ndarray, "points values"], tuple[str, ...]]:
    """Return the points of an analysis whose values are finite.

    Args:
        group: of runs.
        analysis: its name.
        take: returns the points of a row.
        noun: what a point is.
        what: it lacks where it is left out.

    Returns:
        The row of each point, its values, and how many points are left out.
    """
    points = [
        (row, point) for row, table in read_analysis(group.runs, analysis, lambda r: [*take(r)]) for point in table
    ]
    finite = [(row, point) for row, point in points if np.isfinite(point).all()]
    if not finite:
        raise _needs(analysis)
    left = len(points) - len(finite)
    note = f"{counted(left, noun)} without {what} {'is' if left == 1 else 'are'} left out"
    return [row for row, _ in finite], np.array([point for _, point in finite], np.float64), (note,) * (left > 0)


def draw_ecec(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw, for each data set and all together, the mean ECEC of correct and of incorrect zero-shot predictions.

    The paper's caption has 95% intervals, and Gaussian densities "with 400 bootstrap resamples": drawn here are the
    densities of the means of 400 resamples, shaded between the ends of the interval.
    """
    point_rows, values, notes = _finite(
        group, "evidence", lambda row: [[float(row.diagnostics["ecec"])]], "image", _ECEC
    )
    right, names = np.array([row.correct for row in point_rows]), np.array([row.dataset for row in point_rows])
    sets = {name: names == name for name in dict.fromkeys(row.dataset for row in point_rows)}
    sets |= {"all sets": names == names} if len(sets) > 1 else {}
    parts = {
        name: {"right": values[chosen & right, 0], "wrong": values[chosen & ~right, 0]} for name, chosen in sets.items()
    }
    figure = style.new_figure(COLUMN, 1.25 + 0.42 * len(parts), "Contribution of common evidence", group.title)
    axis = figure.subplots()
    rows = [entry for y, (name, part) in enumerate(parts.items()) for entry in _draw_ecec_row(axis, y, name, part)]
    style.label_rows(axis, [*map(dataset_title, parts)], (len(parts) - 0.5, -0.95))
    axis.set_xlabel(f"mean ECEC (density of {RESAMPLES} resampled means,\nshaded: 95% interval)")
    style.annotate_rows(
        axis, ["/".join(f"{len(chosen):,}" for chosen in part.values()) for part in parts.values()], "n"
    )
    for kind, colour in _OUTCOMES.items():
        n = len([*parts.values()][-1][kind])
        axis.plot([], [], "o-", color=colour, linewidth=1.6, markersize=3.5, label=f"zero-shot {kind} (n = {n:,})")
    figure.legend(loc="outside lower left", borderaxespad=0.2)
    return FigureResult(figure, rows, notes)


_ECEC = "a finite ECEC"


def _draw_ecec_row(axis: Axes, y: int, name: str, parts: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Draw one data set on a line of its own, and return what was drawn."""
    rows, curves = [], []
    for kind, values in parts.items():
        if len(values):
            means = bootstrap_means(values, RESAMPLES)
            mean = Interval(float(values.mean()), *map(float, np.quantile(means, [0.025, 0.975])))
            rows.append({"dataset": name, "zero_shot": kind, "n": len(values)} | interval_columns("mean", mean))
            style.draw_interval(axis, y + 0.12 * len(rows) - 0.12, mean, _OUTCOMES[kind], width=1.6, size=3.5)
            curves += [(*curve, mean, _OUTCOMES[kind]) for curve in _density(means)]
    highest = max((float(density.max()) for _, density, *_ in curves), default=1.0)
    for grid, density, mean, colour in curves:
        height = y - 0.06 - 0.75 * density / highest
        axis.plot(grid, height, color=colour, linewidth=0.8)
        inside = (grid >= mean.low) & (grid <= mean.high)
        axis.fill_between(grid, height, y - 0.06, where=inside.tolist(), color=colour, alpha=0.25, linewidth=0)
    return rows


def _density(means: Float[np.ndarray, " resamples"]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the Gaussian density of resampled means on a grid, nothing where they do not vary."""
    sd = float(means.std())
    if sd <= 1e-9 * max(1.0, float(np.abs(means).max())):
        return []
    grid = np.linspace(means.min() - sd, means.max() + sd, 200)
    from scipy.stats import gaussian_kde  # takes a second to import

    return [(grid, gaussian_kde(means)(grid))]


def _views(row: AnalysisRow) -> Iterable[Sequence[float]]:
    return zip(*(map(float, row.diagnostics[name]) for name in ("views", "entropy", "euec")), strict=True)


def draw_entropy(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw a point per view, the means of equally many views from low to high entropy, and the correlations."""
    point_rows, points, notes = _finite(group, "entropy", _views, "view", "finite values")
    entropy, euec = points[:, 1], points[:, 2]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(map(id, point_rows)))}
    images = np.array([numbers[id(row)] for row in point_rows])
    correlations = [
        f"{kind.capitalize()} {_describe(clustered_correlation(entropy, euec, images, kind, resamples=RESAMPLES))}"
        for kind in ("pearson", "spearman")
    ]
    figure = style.new_figure(COLUMN, 2.75, "Unique evidence against entropy", group.title)
    axis = figure.subplots()
    correct = np.array([row.correct for row in point_rows])
    for (kind, colour), chosen in zip(_OUTCOMES.items(), (correct, ~correct), strict=True):
        axis.plot(entropy[chosen], euec[chosen], "o", color=colour, alpha=0.35, markersize=2.2, markeredgewidth=0)
        views, shown = counted(int(chosen.sum()), "view"), counted(len(np.unique(images[chosen])), "image")
        label = f"zero-shot {kind} ({views} of {shown})"
        axis.plot([], [], "o", color=colour, markersize=3, label=label)
    if len(points) >= 16:
        parts = np.array_split(np.argsort(entropy, kind="stable"), 8)
        means = np.array([[entropy[part].mean(), euec[part].mean()] for part in parts])
        axis.plot(*means.T, "-", color=BLACK, linewidth=1, label="mean of each eighth of the views")
    axis.set_xlabel("entropy of the view (nats)")
    axis.set_ylabel("EUEC (cosine)")
    axis.set_title("\n".join(correlations), fontsize=7, loc="left", linespacing=1.3)
    axis.grid()
    figure.legend(loc="outside lower left", handletextpad=0.3, borderaxespad=0.2)
    rows = [
        {"dataset": row.dataset, "path": row.path, "view": int(view), "entropy": at, "euec": value}
        | {"zero_shot_right": row.correct}
        for row, (view, at, value) in zip(point_rows, points.tolist(), strict=True)
    ]
    return FigureResult(figure, rows, (*notes, *correlations))


def _describe(correlation: Interval | None) -> str:
    if correlation is None:
        return "correlation is not defined: a quantity does not vary"
    known = f"95%: {correlation.low:+.2f} to {correlation.high:+.2f}"
    return f"r = {correlation.value:+.2f} ({known if np.isfinite(correlation.low) else 'one image: no interval'})"


_COMPOSED = f"common + {COMPOSED_WEIGHT:g}"
_PARTS = {
    "cos_common": ("common", "common"),
    "cos_unique_1": ("unique, best candidate", "unique, best"),
    "cos_unique_2": ("unique, second best", "unique, second"),
    "cos_composed": (f"{_COMPOSED} of each unique", f"{_COMPOSED}\nof each unique"),
}
"""What each cosine is of, in the figure's data and at its axis."""


def draw_decomposition(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw the mean of each cosine with its interval, the paper's beside, and the bound of the composed one."""

    def cosines(row: AnalysisRow) -> Iterable[Sequence[float]]:
        return [[float(row.diagnostics[name]) for name in _PARTS]]

    point_rows, points, notes = _finite(group, "decomposition", cosines, "image", "finite cosines")
    reported = [float(row["cosine_to_z"]) for row in read_reported("decomposition")]
    measured = [bootstrap_mean(column, resamples=999) for column in points.T]
    means = [float(np.clip(interval.value, -1, 1)) for interval in measured]
    bounds = {"paper": reconstruction_bound(*reported[:3]), "measured": reconstruction_bound(*means[:3])}
    figure = style.new_figure(
        COLUMN, 2.25, f"Cosine to the whole image ({counted(len(point_rows), 'image')})", group.title
    )
    axis = figure.subplots()
    axis.plot([], [], "o", color=BLUE, markersize=4, label="measured, 95%")
    axis.plot(reported, np.arange(4) + 0.13, "D", color=VERMILION, markersize=4, markerfacecolor="white", label="paper")
    for row, interval in enumerate(measured):
        style.draw_interval(axis, row - 0.13, interval, BLUE, width=1.4)
    last = len(measured) - 1
    for whose, parts, colour, up in (("paper", "paper's", VERMILION, 1), ("measured", "measured", BLUE, -1)):
        label = f"bound {bounds[whose]:.4f} ({parts} parts)"
        axis.plot([bounds[whose]] * 2, [last - 0.02 * up, last + 0.4 * up], color=colour, label=label)
    style.label_rows(axis, [short for _, short in _PARTS.values()], (last + 0.6, -0.5))
    axis.set_xlabel("cosine to z (mean over images)")
    figure.legend(loc="outside lower left", ncols=2, columnspacing=1.0, handlelength=1.2, borderaxespad=0.2)
    limits = {f"bound_of_{whose}": bound for whose, bound in bounds.items()}
    data = [
        {"part": title, "n": len(points)}
        | interval_columns("mean", interval)
        | {"paper": value, **(limits if name == "cos_composed" else dict.fromkeys(limits))}
        for (name, (title, _)), interval, value in zip(_PARTS.items(), measured, reported, strict=True)
    ]
    return FigureResult(figure, data, notes)


def _columns(row: AnalysisRow) -> dict[str, Any]:
    """Return the image and its true class, as the data of a figure has them."""
    return {"dataset": row.dataset, "path": row.path, "label": row.label, "label_name": row.name(row.label)}


_SHOWN, _FEW, _LETTERS = 10, 5, 21


@dataclass(frozen=True)
class Panel:
    """An image or a map over it, see `overlay`, with a title above and a caption below."""

    title: str
    pixels: Shaped[np.ndarray, "height width 3"]
    caption: str = ""


@dataclass(frozen=True)
class EvidenceRow:
    """One row of an evidence figure: what FCL saw in one image and what it made of it.

    Attributes:
        title: what the image is.
        image: values in [0, 1].
        names: candidate names, best first.
        before: posterior of the candidates at the base context.
        after: posterior of the candidates at the learnt context.
        votes: votes of the selected views before and after, per candidate.
        panels: the maps.
    """

    title: str
    image: Float[np.ndarray, "height width 3"]
    names: Sequence[str]
    before: Float[np.ndarray, " candidates"]
    after: Float[np.ndarray, " candidates"]
    votes: Sequence[tuple[int, int]]
    panels: Sequence[Panel]


_CAPTION = (
    "Evidence of a class: orange where hiding the image costs the class more than elsewhere, blue where less, on one\n"
    "scale a row; outlined at half of the strongest, pale below two standard errors. Repeats: expected correlation\n"
    "with the map of other masks. Common evidence, where both classes are made alike: its weight, from 0 (dark) to 1."
)


def evidence_figure(title: str, rows: Sequence[EvidenceRow]) -> Figure:
    """Draw one row per image: the image, scores before and after, and its maps."""
    overlays = max(len(row.panels) for row in rows)
    with style.styled():
        figure = style.new_figure(1.6 * PAGE, 0.85 + 1.8 * len(rows), title, "")  # for a screen: six panels in a row
        grid = figure.subplots(len(rows), 2 + overlays, squeeze=False, width_ratios=[1, 1.15] + [1] * overlays)
        for row, axes in zip(rows, grid, strict=True):
            _show_panels([axes[0], *axes[2:]], [Panel(row.title, row.image), *row.panels])
            _draw_candidates(axes[1], row)
        grid[0][1].set_title("mean posterior of the selected views", fontsize=7)
        figure.legend(*grid[0][1].get_legend_handles_labels(), loc="upper right", ncols=2)  # beside the title
        _explain(figure, _CAPTION)
        figure.draw_without_rendering()  # ticks are made by the first drawing, and keep the style of then
    return figure


def _explain(figure: Figure, text: str) -> None:
    figure.supxlabel(text, fontsize=7, color=GREY, x=0.01, ha="left")


def _show_panels(axes: Sequence[Axes], panels: Sequence[Panel]) -> None:
    """Show each picture on an axis of its own, and nothing on those that are left."""
    for axis in axes:
        axis.set_axis_off()
    for axis, panel in zip(axes, panels, strict=False):
        axis.imshow(panel.pixels)
        axis.set_title(panel.title, fontsize=7)
        if panel.caption:
            place = axis.transAxes
            axis.text(0.5, -0.03, panel.caption, fontsize=6, color=GREY, ha="center", va="top", transform=place)


def _draw_candidates(axis: Axes, row: EvidenceRow) -> None:
    """Draw the candidates' posteriors before and after as bars, best on top, with their votes at the end."""
    before, after = row.before[:_FEW], row.after[:_FEW]
    rows = np.arange(len(before))
    axis.barh(rows - 0.2, before, 0.38, color="#b8b8b8", label="before (base context)")
    axis.barh(rows + 0.2, after, 0.38, color=BLUE, label="after (learnt context)")
    for index, (old, new) in enumerate(row.votes[:_FEW]):
        if old or new:
            text = counted(new, "vote") if old == new else f"{old} → {counted(new, 'vote')}"
            axis.text(float(max(before[index], after[index])) + 0.015, index, text, va="center", fontsize=6)
    axis.set_xlim(0, 1.35 * float(max(before.max(), after.max())))
    _name_bars(axis, row.names[:_FEW], 3)


def _name_bars(axis: Axes, names: Sequence[str], least: int) -> None:
    """Name horizontal bars, best on top, with room for at least so many."""
    axis.set_yticks(range(len(names)), [style.name_within(name, 20) for name in names], fontsize=7)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(max(len(names), least) - 0.4, -0.6)


def _score_rank(row: AnalysisRow) -> int:
    if row.correct:
        return 2
    return 0 if {row.label, row.index} <= {*row.candidates} else 1


def draw_scores(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw a row per image: the image, the posterior of its candidates, and one or two maps of unique evidence."""
    chosen = choose_stored(group.runs, 3, _score_rank)
    if not chosen:
        raise _needs("gallery")
    figure = style.new_figure(PAGE, 0.65 + 1.72 * len(chosen), "Scores and unique evidence", group.title)
    grid = figure.subplots(len(chosen), 4, squeeze=False, width_ratios=[1, 1.15, 1, 1])
    images = [_draw_scores_row([*axes], entry) for axes, entry in zip(grid, chosen, strict=True)]
    grid[-1][1].set_xlabel("posterior among the candidates (%)")
    bars = "Bars: blue the true class, vermilion zero-shot's answer."
    unique = "Unique evidence: the image, lit where it speaks for one class alone."
    _explain(figure, f"{bars} {unique}")
    return FigureResult(figure, {"images": images})


def _unique_pairs(row: AnalysisRow) -> list[tuple[str, int, int]]:
    """Return which unique maps are drawn: what it is, and the indices of its class and of the class it is against."""
    index = {candidate: index for index, candidate in enumerate(row.candidates)}
    true, predicted = index.get(row.label), index.get(row.index)
    if true is not None and predicted is not None and true != predicted:
        return [("true", true, predicted), ("answered", predicted, true)]
    what, target = ("true", true) if true is not None else ("answered", predicted)
    return [] if target is None else [(what, target, 0 if target else 1)]


def _draw_scores_row(axes: Sequence[Axes], entry: StoredImage) -> dict[str, Any]:
    row, image = entry.row, entry.image
    order = np.argsort(-entry.posterior, kind="stable")[:_SHOWN]
    dataset = style.name_within(dataset_title(row.dataset), _LETTERS)
    panels = [Panel(f"{dataset}:\n{style.name_within(row.name(row.label), _LETTERS)}", image)]
    _draw_posterior(axes[1], entry, order)
    unique: dict[str, Any] = {}
    for what, target, other in _unique_pairs(row):
        weights = unique_map(entry.stored.evidence[target], entry.stored.evidence[other])
        highest = float(weights.max())
        lit = resized(weights / highest if highest > 0 else weights, *image.shape[:2])
        name = style.name_within(row.name(row.candidates[target]), _LETTERS)
        whose = "the true class" if what == "true" else "zero-shot's"
        panels.append(Panel(f"unique to {whose}:\n{name}", image * (0.2 + 0.8 * np.clip(lit, 0, 1))[..., None]))
        classes = {"class": row.candidates[target], "against": row.candidates[other]}
        unique[what] = classes | {"weights": np.round(weights, 4).tolist()}
    _show_panels([axes[0], *axes[2:]], panels)
    wanted = {"true class": row.label, "zero-shot's answer": row.index}
    if absent := [what for what, index in wanted.items() if index not in row.candidates]:
        text = "\nand ".join(absent) + "\nnot among the candidates"
        axes[3].text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes[3].transAxes)
    return _columns(row) | {
        "zero_shot": row.index,
        "zero_shot_name": row.name(row.index),
        "candidates": [row.candidates[index] for index in order],
        "names": [row.name(row.candidates[index]) for index in order],
        "posterior": entry.posterior[order].tolist(),
        "unique": unique,
    }


def _draw_posterior(axis: Axes, entry: StoredImage, order: Sequence[int] | np.ndarray) -> None:
    row = entry.row
    classes = [row.candidates[index] for index in order]
    colours = [BLUE if c == row.label else VERMILION if c == row.index else "#b8b8b8" for c in classes]
    axis.barh(range(len(order)), 100 * entry.posterior[order], color=colours, height=0.72)
    _name_bars(axis, [row.name(c) for c in classes], 4)
    outcome = "right" if row.correct else "wrong"
    axis.set_title(f"zero-shot: {outcome},\n{style.name_within(row.name(row.index), _LETTERS)}", fontsize=7)


def draw_gallery(group: RunGroup, _: Sidecars) -> FigureResult:
    """Draw up to six images, two in a row on a page, each with four overlays."""
    chosen = choose_stored(group.runs, 6, lambda _: 0)
    if not chosen:
        raise _needs("gallery")
    columns = min(len(chosen), 2)
    lines = math.ceil(len(chosen) / columns)
    width = PAGE if columns == 2 else COLUMN
    figure = style.new_figure(width, 0.7 + 1.02 * lines, "Class evidence and common evidence", group.title)
    widths = ([1, 1, 1, 1, 1, 0.15] * columns)[:-1]  # images beside each other stand apart
    grid = figure.subplots(lines, len(widths), squeeze=False, width_ratios=widths)
    _show_panels([*grid.ravel()], ())
    panels = [row[first : first + 5] for row in grid for first in range(0, len(widths), 6)]
    images = [_draw_gallery_row([*axes], entry) for axes, entry in zip(panels, chosen, strict=False)]
    legend = "Orange: hiding the image there costs the class more than elsewhere, blue: less, on one scale an image;"
    common = "outlined at half of the strongest. Common evidence: weights from 0 (dark) to the highest (yellow)."
    _explain(figure, f"{legend}\n{common}")
    return FigureResult(figure, {"images": images})


def _draw_gallery_row(axes: Sequence[Axes], entry: StoredImage) -> dict[str, Any]:
    row, image, evidence = entry.row, entry.image, entry.stored.evidence[:2]
    names = [row.name(index) for index in row.candidates[:2]]
    shares = common_map(*evidence)
    shares /= shares.max()
    short = [style.name_within(name, 11) for name in names]
    dataset, label = (style.name_within(name, 13) for name in (dataset_title(row.dataset), row.name(row.label)))
    titles = [
        f"{dataset}:\n{label}",
        f"evidence of\n“{short[0]}”",
        f"and of\n“{short[1]}”",
        "of one against\nthe other",
        "common\nevidence",
    ]
    overlays = draw_evidence(image, evidence, contrast=True)
    _show_panels(axes, [*map(Panel, titles, [image, *overlays])])
    return _columns(row) | {
        "candidates": list(row.candidates[:2]),
        "names": names,
        "evidence": np.round(evidence.astype(np.float64), 5).tolist(),
        "common": shares.round(4).tolist(),
    }
