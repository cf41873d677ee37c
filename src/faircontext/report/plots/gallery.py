"""A gallery of evidence: images, the evidence of their two best candidates, and what those have in common."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from faircontext.report.figures import name_within, overlay, overlay_shares, strongest
from faircontext.report.groups import set_title
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.pictures import Picture, common_map, pictures, resized, spread
from faircontext.report.plots.sources import Material, needs_analysis
from faircontext.report.plots.style import COLUMN, GREY, PAGE, new_figure

__all__ = ["draw_gallery"]

_IMAGES, _LETTERS = 6, 13


def draw_gallery(material: Material) -> Drawing | str:
    """Draw up to six images, two in a row on a page, each with four overlays."""
    chosen = spread(pictures(material), _IMAGES, lambda _: 0)
    if not chosen:
        return needs_analysis("gallery")
    columns = min(len(chosen), 2)
    lines = math.ceil(len(chosen) / columns)
    width = PAGE if columns == 2 else COLUMN
    figure = new_figure(width, 0.7 + 1.17 * lines, "Class evidence and common evidence", material.title)
    grid = figure.subplots(lines, 5 * columns, squeeze=False)
    places = [list(grid[line][5 * column : 5 * column + 5]) for line in range(lines) for column in range(columns)]
    for axis in grid.ravel():
        axis.set_axis_off()
    entries = [_draw(axes, picture) for axes, picture in zip(places, chosen, strict=False)]
    text = "Orange: hiding the image there costs the class more than elsewhere; blue: less; one scale an image."
    figure.supxlabel(text, fontsize=7, color=GREY, x=0.01, ha="left")
    return Drawing(figure, {"images": entries})


def _draw(axes: Sequence[Axes], picture: Picture) -> dict[str, Any]:
    row, image, evidence = picture.row, picture.image, picture.kept.evidence
    names = [row.name(index) for index in row.candidates[:2]]
    contrast, shared = evidence[0] - evidence[1], common_map(evidence[0], evidence[1])
    short = [name_within(name, _LETTERS - 2) for name in names]
    titles = [f"evidence of\n“{short[0]}”", f"and of\n“{short[1]}”", "of one against\nthe other", "common\nevidence"]
    axes[0].imshow(image)
    label = name_within(row.name(row.label), _LETTERS)
    axes[0].set_title(f"{name_within(set_title(row.dataset), _LETTERS)}:\n{label}", fontsize=7)
    size = image.shape[:2]
    classes = [resized(values, *size) for values in (evidence[0], evidence[1], contrast)]
    drawn = [overlay(image, values, strongest(*classes)) for values in classes]
    drawn.append(overlay_shares(image, resized(shared / shared.max(), *size)))
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
