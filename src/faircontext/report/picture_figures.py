"""Figures of pictures: scores and unique evidence, a gallery of evidence, and what FCL saw before and after."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faircontext.report.evidence_figures import needs_analysis
from faircontext.report.paper import dataset_title
from faircontext.report.pictures import common_map, overlay, overlay_weights, resized, strongest, unique_map
from faircontext.report.style import BLUE, COLUMN, GREY, PAGE, VERMILION, FigureResult, name_within, new_figure
from faircontext.runs.groups import RunGroup, Sidecars
from faircontext.runs.records import AnalysisRow
from faircontext.runs.results import read_analysis

__all__ = ["EvidenceRow", "Panel", "draw_candidates", "draw_gallery", "draw_scores", "evidence_figure"]

_CAPTION = (
    "Evidence of a class: orange where hiding the image costs the class more than elsewhere, blue where less, on one\n"
    "scale a row; outlined at half of the strongest, pale below two standard errors. Repeats: expected correlation\n"
    "with the map of other masks. Common evidence, where both classes are made alike: its weight, from 0 (dark) to 1."
)


@dataclass(frozen=True)
class _Picture:
    """An image of the analysis `gallery`: its row, what is stored of it, and the posterior of its candidates."""

    row: AnalysisRow
    stored: StoredMaps
    posterior: Float[np.ndarray, " candidates"]

    @property
    def image(self) -> Float[np.ndarray, "height width 3"]:
        """The image, values in [0, 1]."""
        values: np.ndarray = self.stored.image.astype(np.float64) / 255
        return values


def _pictures(group: RunGroup) -> list[_Picture]:
    """Return the images of the analysis `gallery` whose evidence is finite and of at least two candidates."""
    pictures = [picture for _, picture in read_analysis(group.runs, "gallery", _read)]
    return [p for p in pictures if len(p.posterior) > 1 and np.isfinite(p.stored.evidence).all()]


def _read(row: AnalysisRow) -> _Picture:
    stored, posterior = read_maps(row.diagnostics), np.array(row.diagnostics["posterior"], np.float64)
    if not len(stored.evidence) == len(posterior) == len(row.candidates):
        raise ValueError(f"{len(row.candidates)} candidates, {len(stored.evidence)} maps, {len(posterior)} posteriors")
    return _Picture(row, stored, np.nan_to_num(posterior))


def _spread(pictures: Sequence[_Picture], count: int, rank: Callable[[_Picture], int]) -> list[_Picture]:
    """Return some pictures of lowest rank, taken from the data sets in turn, so that one set does not fill a figure."""
    turns: dict[tuple[int, str], int] = {}
    keyed = []
    for index, picture in enumerate(pictures):
        key = (rank(picture), picture.row.dataset)
        turns[key] = turns.get(key, 0) + 1
        keyed.append(((key[0], turns[key], index), picture))
    return [picture for _, picture in sorted(keyed, key=lambda item: item[0])[:count]]


_SHOWN, _LETTERS = 10, 21
_WHOSE = {"true class": "label", "zero-shot's answer": "index"}


def _score_rank(picture: _Picture) -> int:
    row = picture.row
    if row.correct:
        return 2
    return 0 if {row.label, row.index} <= {*row.candidates} else 1


def draw_scores(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw a row per image: the image, the posterior of its candidates, and one or two maps of unique evidence."""
    chosen = _spread(_pictures(group), 3, _score_rank)
    if not chosen:
        return needs_analysis("gallery")
    figure = new_figure(PAGE, 0.65 + 1.72 * len(chosen), "Scores and unique evidence", group.title)
    grid = figure.subplots(len(chosen), 4, squeeze=False, width_ratios=[1, 1.15, 1, 1])
    entries = [_draw_scores_row(list(axes), picture) for axes, picture in zip(grid, chosen, strict=True)]
    grid[-1][1].set_xlabel("posterior among the candidates (%)")
    figure.supxlabel(
        "Bars: blue the true class, vermilion zero-shot's answer. Unique evidence: the image, lit where it speaks for "
        "one class alone.",
        fontsize=7,
        color=GREY,
        x=0.01,
        ha="left",
    )
    return FigureResult(figure, {"images": entries})


def _pair(picture: _Picture) -> list[tuple[str, int, int]]:
    """Return which unique maps are drawn: what it is, and the places of its class and of the class it is against."""
    row = picture.row
    places = {index: place for place, index in enumerate(row.candidates)}
    true, answer = places.get(row.label), places.get(row.index)
    if true is not None and answer is not None and true != answer:
        return [("true", true, answer), ("answered", answer, true)]
    found = []
    for what, own in (("true", true), ("answered", answer)):
        if own is not None and (what == "true" or own != true):
            found.append((what, own, next(place for place in range(len(places)) if place != own)))
    return found


def _draw_scores_row(axes: Sequence[Axes], picture: _Picture) -> dict[str, Any]:
    row, image = picture.row, picture.image
    axes[0].imshow(image)
    where = name_within(dataset_title(row.dataset), _LETTERS)
    axes[0].set_title(f"{where}:\n{name_within(row.name(row.label), _LETTERS)}", fontsize=7)
    _draw_bars(axes[1], picture)
    unique: dict[str, Any] = {}
    for axis in axes[2:]:
        axis.set_axis_off()
    for axis, (what, own, other) in zip(axes[2:], _pair(picture), strict=False):
        weights = unique_map(picture.stored.evidence[own], picture.stored.evidence[other])
        axis.imshow(_lit(image, weights))
        title = "the true class" if what == "true" else "zero-shot's"
        axis.set_title(f"unique to {title}:\n{name_within(row.name(row.candidates[own]), _LETTERS)}", fontsize=7)
        unique[what] = {
            "class": row.candidates[own],
            "against": row.candidates[other],
            "weights": np.round(weights, 4).tolist(),
        }
    absent = [what for what, index in _WHOSE.items() if getattr(row, index) not in row.candidates]
    if absent:
        text = "\nand ".join(absent) + "\nnot among the candidates"
        axes[3].text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes[3].transAxes)
    axes[0].set_axis_off()
    order = np.argsort(-picture.posterior, kind="stable")[:_SHOWN]
    return {
        "dataset": row.dataset,
        "path": row.path,
        "label": row.label,
        "label_name": row.name(row.label),
        "zero_shot": row.index,
        "zero_shot_name": row.name(row.index),
        "candidates": [row.candidates[index] for index in order],
        "names": [row.name(row.candidates[index]) for index in order],
        "posterior": picture.posterior[order].tolist(),
        "unique": unique,
    }


def _draw_bars(axis: Axes, picture: _Picture) -> None:
    row = picture.row
    order = np.argsort(-picture.posterior, kind="stable")[:_SHOWN]
    classes = [row.candidates[index] for index in order]
    colours = [BLUE if c == row.label else VERMILION if c == row.index else "#b8b8b8" for c in classes]
    axis.barh(range(len(order)), 100 * picture.posterior[order], color=colours, height=0.72)
    axis.set_yticks(range(len(order)), [name_within(row.name(c), 20) for c in classes], fontsize=7)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(max(len(order), 4) - 0.4, -0.6)
    outcome = "right" if row.correct else "wrong"
    axis.set_title(f"zero-shot: {outcome},\n{name_within(row.name(row.index), _LETTERS)}", fontsize=7)


def _lit(
    image: Float[np.ndarray, "height width 3"], weights: Float[np.ndarray, "rows columns"]
) -> Float[np.ndarray, "height width 3"]:
    """Return the image times a map that is scaled to a maximum of one, so that a page shows it."""
    highest = float(weights.max())
    scaled = resized(weights / highest if highest > 0 else weights, *image.shape[:2])
    lit: np.ndarray = image * np.clip(scaled, 0, 1)[..., None]
    return lit


def draw_gallery(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw up to six images, two in a row on a page, each with four overlays."""
    chosen = _spread(_pictures(group), 6, lambda _: 0)
    if not chosen:
        return needs_analysis("gallery")
    columns = min(len(chosen), 2)
    lines = math.ceil(len(chosen) / columns)
    width = PAGE if columns == 2 else COLUMN
    figure = new_figure(width, 0.7 + 1.17 * lines, "Class evidence and common evidence", group.title)
    grid = figure.subplots(lines, 5 * columns, squeeze=False)
    places = [list(grid[line][5 * column : 5 * column + 5]) for line in range(lines) for column in range(columns)]
    for axis in grid.ravel():
        axis.set_axis_off()
    entries = [_draw_gallery_row(axes, picture) for axes, picture in zip(places, chosen, strict=False)]
    text = "Orange: hiding the image there costs the class more than elsewhere; blue: less; one scale an image."
    figure.supxlabel(text, fontsize=7, color=GREY, x=0.01, ha="left")
    return FigureResult(figure, {"images": entries})


def _draw_gallery_row(axes: Sequence[Axes], picture: _Picture) -> dict[str, Any]:
    row, image, evidence = picture.row, picture.image, picture.stored.evidence
    names = [row.name(index) for index in row.candidates[:2]]
    contrast, shared = evidence[0] - evidence[1], common_map(evidence[0], evidence[1])
    short = [name_within(name, 11) for name in names]
    titles = [f"evidence of\n“{short[0]}”", f"and of\n“{short[1]}”", "of one against\nthe other", "common\nevidence"]
    axes[0].imshow(image)
    label = name_within(row.name(row.label), 13)
    axes[0].set_title(f"{name_within(dataset_title(row.dataset), 13)}:\n{label}", fontsize=7)
    size = image.shape[:2]
    classes = [resized(values, *size) for values in (evidence[0], evidence[1], contrast)]
    drawn = [overlay(image, values, strongest(*classes)) for values in classes]
    drawn.append(overlay_weights(image, resized(shared / shared.max(), *size)))
    for axis, pixels, title in zip(axes[1:], drawn, titles, strict=True):
        axis.imshow(pixels)
        axis.set_title(title, fontsize=7)
    return {
        "dataset": row.dataset,
        "path": row.path,
        "label": row.label,
        "label_name": row.name(row.label),
        "candidates": list(row.candidates[:2]),
        "names": names,
        "evidence": np.round(evidence[:2].astype(np.float64), 5).tolist(),
        "common": (shared / shared.max()).round(4).tolist(),
    }


@dataclass(frozen=True)
class Panel:
    """A map over an image.

    Attributes:
        title: what it is of.
        pixels: see `overlay` and `overlay_weights`.
        note: a line below it.
    """

    title: str
    pixels: UInt8[np.ndarray, "height width 3"]
    note: str = ""


@dataclass(frozen=True)
class EvidenceRow:
    """One row of an evidence figure: what FCL saw in one image and what it made of it.

    Attributes:
        title: what the image is.
        image: values in [0, 1].
        names: candidate names, best first.
        before: posterior of the candidates at the base context.
        after: posterior of the candidates at the learnt context.
        votes: votes of the kept views before and after, per candidate.
        panels: the maps.
    """

    title: str
    image: Float[np.ndarray, "height width 3"]
    names: Sequence[str]
    before: Float[np.ndarray, " candidates"]
    after: Float[np.ndarray, " candidates"]
    votes: Sequence[tuple[int, int]]
    panels: Sequence[Panel]


def evidence_figure(title: str, rows: Sequence[EvidenceRow]) -> Figure:
    """Draw one row per image: the image, scores before and after, and its maps."""
    overlays = max(len(row.panels) for row in rows)
    figure = Figure(figsize=(4.6 + 2.6 * (1 + overlays), 2.9 * len(rows) + 0.9), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    figure.supxlabel(_CAPTION, fontsize=9, x=0.01, ha="left", color="#444444")
    grid = figure.subplots(len(rows), 2 + overlays, squeeze=False, width_ratios=[1, 1.5] + [1] * overlays)
    for row, axes in zip(rows, grid, strict=True):
        _draw_image(axes[0], row.image)
        axes[0].set_title(row.title, fontsize=10)
        draw_candidates(axes[1], row)
        for panel, axis in zip(row.panels, axes[2:], strict=False):
            _draw_image(axis, panel.pixels)
            axis.set_title(panel.title, fontsize=10)
            note = {"fontsize": 8, "color": "#444444", "ha": "center", "va": "top"}
            axis.text(0.5, -0.03, panel.note, transform=axis.transAxes, **note)
        for axis in axes[2 + len(row.panels) :]:
            axis.set_axis_off()
    grid[0][1].set_title("mean posterior of the kept views", fontsize=10)
    grid[0][1].legend(loc="lower right", fontsize=8, frameon=False)
    return figure


def draw_candidates(axis: Axes, row: EvidenceRow, most: int = 5) -> None:
    """Draw the candidates' posteriors before and after as bars, best on top, with their votes at the end."""
    shown = min(most, len(row.names))
    places = np.arange(shown)
    axis.barh(places - 0.2, row.before[:shown], 0.38, color="#9aa0a6", label="before (base context)")
    axis.barh(places + 0.2, row.after[:shown], 0.38, color=BLUE, label="after (learnt context)")
    for index in range(shown):
        before, after = row.votes[index]
        longest = float(max(row.before[index], row.after[index]))
        if before or after:
            text = f"{after} votes" if before == after else f"{before} → {after} votes"
            axis.text(longest + 0.015, index, text, va="center", fontsize=8)
    axis.set_yticks(places, [name_within(name, 22) for name in row.names[:shown]], fontsize=9)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.35 * float(max(row.before[:shown].max(), row.after[:shown].max())))
    axis.set_ylim(max(shown, 3) - 0.4, -0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=8)


def _draw_image(axis: Axes, image: Shaped[np.ndarray, "height width 3"]) -> None:
    axis.imshow(image)
    axis.set_axis_off()
