"""Figure (a) of the paper: scores of the candidates, and what is unique to the true and to the answered class.

Unique evidence is the image times `S_i (1 - Q_ij)`, both maps scaled to [0, 1] (`method.md`, "Common evidence").
Images come first that zero-shot has wrong though the true class is among the candidates.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from faircontext.report.figures import name_within
from faircontext.report.groups import set_title
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.pictures import Picture, pictures, resized, spread, unique_map
from faircontext.report.plots.sources import Material, needs_analysis
from faircontext.report.plots.style import BLUE, GREY, PAGE, VERMILION, new_figure

__all__ = ["draw_scores"]

_IMAGES, _SHOWN = 3, 10
_LETTERS = 21
_WHOSE = {"true class": "label", "zero-shot's answer": "answer"}


def _rank(picture: Picture) -> int:
    row = picture.row
    if row.answer == row.label:
        return 2
    return 0 if {row.label, row.answer} <= {*row.candidates} else 1


def draw_scores(material: Material) -> Drawing | str:
    """Draw a row per image: the image, the posterior of its candidates, and one or two maps of unique evidence."""
    chosen = spread(pictures(material), _IMAGES, _rank)
    if not chosen:
        return needs_analysis("gallery")
    figure = new_figure(PAGE, 0.65 + 1.72 * len(chosen), "Scores and unique evidence", material.title)
    grid = figure.subplots(len(chosen), 4, squeeze=False, width_ratios=[1, 1.15, 1, 1])
    entries = [_draw(list(axes), picture) for axes, picture in zip(grid, chosen, strict=True)]
    grid[-1][1].set_xlabel("posterior among the candidates (%)")
    figure.supxlabel(
        "Bars: blue the true class, vermilion zero-shot's answer. Unique evidence: the image, lit where it speaks for "
        "one class alone.",
        fontsize=7,
        color=GREY,
        x=0.01,
        ha="left",
    )
    return Drawing(figure, {"images": entries})


def _pair(picture: Picture) -> list[tuple[str, int, int]]:
    """Return which unique maps are drawn: what it is, and the places of its class and of the class it is against."""
    row = picture.row
    places = {index: place for place, index in enumerate(row.candidates)}
    true, answer = places.get(row.label), places.get(row.answer)
    if true is not None and answer is not None and true != answer:
        return [("true", true, answer), ("answered", answer, true)]
    found = []
    for what, own in (("true", true), ("answered", answer)):
        if own is not None and (what == "true" or own != true):
            found.append((what, own, next(place for place in range(len(places)) if place != own)))
    return found


def _draw(axes: Sequence[Axes], picture: Picture) -> dict[str, Any]:
    row, image = picture.row, picture.image
    axes[0].imshow(image)
    where = name_within(set_title(row.dataset), _LETTERS)
    axes[0].set_title(f"{where}:\n{name_within(row.name(row.label), _LETTERS)}", fontsize=7)
    _draw_bars(axes[1], picture)
    unique: dict[str, Any] = {}
    for axis in axes[2:]:
        axis.set_axis_off()
    for axis, (what, own, other) in zip(axes[2:], _pair(picture), strict=False):
        weights = unique_map(picture.kept.evidence[own], picture.kept.evidence[other])
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
        "zero_shot": row.answer,
        "zero_shot_name": row.name(row.answer),
        "candidates": [row.candidates[place] for place in order],
        "names": [row.name(row.candidates[place]) for place in order],
        "posterior": picture.posterior[order].tolist(),
        "unique": unique,
    }


def _draw_bars(axis: Axes, picture: Picture) -> None:
    row = picture.row
    order = np.argsort(-picture.posterior, kind="stable")[:_SHOWN]
    classes = [row.candidates[place] for place in order]
    colours = [BLUE if c == row.label else VERMILION if c == row.answer else "#b8b8b8" for c in classes]
    axis.barh(range(len(order)), 100 * picture.posterior[order], color=colours, height=0.72)
    axis.set_yticks(range(len(order)), [name_within(row.name(c), 20) for c in classes], fontsize=7)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(max(len(order), 4) - 0.4, -0.6)
    outcome = "right" if row.answer == row.label else "wrong"
    axis.set_title(f"zero-shot: {outcome},\n{name_within(row.name(row.answer), _LETTERS)}", fontsize=7)


def _lit(
    image: Float[np.ndarray, "height width 3"], weights: Float[np.ndarray, "rows columns"]
) -> Float[np.ndarray, "height width 3"]:
    """Return the image times a map that is scaled to a maximum of one, so that a page shows it."""
    highest = float(weights.max())
    scaled = resized(weights / highest if highest > 0 else weights, *image.shape[:2])
    lit: np.ndarray = image * np.clip(scaled, 0, 1)[..., None]
    return lit
