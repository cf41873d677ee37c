"""Figures: evidence over an image, and scores before and after adaptation.

Drawn with matplotlib's object interface, which has no global state, in colours that colour-blind people can tell apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["EvidenceRow", "draw_overlay", "draw_scores", "evidence_figure", "name_within", "overlay"]

BEFORE, AFTER = "#9aa0a6", "#0072b2"
_MAP = "viridis"
_LONGEST_NAME = 22
_CAPTION = (
    "Evidence of a class: yellow where hiding the image lowers the class's probability most, dark where least (each "
    "map on its own scale).\n"
    "Common evidence: where both classes look. Calibration teaches the prompt to treat both alike there."
)


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
        maps: title and map of each overlay.
    """

    title: str
    image: Float[np.ndarray, "height width 3"]
    names: Sequence[str]
    before: Float[np.ndarray, " candidates"]
    after: Float[np.ndarray, " candidates"]
    votes: Sequence[tuple[int, int]]
    maps: Sequence[tuple[str, Float[np.ndarray, "height width"]]]


def evidence_figure(title: str, rows: Sequence[EvidenceRow]) -> Figure:
    """Draw one row per image: the image, scores before and after, and its evidence maps."""
    overlays = max(len(row.maps) for row in rows)
    figure = Figure(figsize=(4.6 + 2.6 * (1 + overlays), 2.9 * len(rows) + 0.9), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    figure.supxlabel(_CAPTION, fontsize=9, x=0.01, ha="left", color="#444444")
    grid = figure.subplots(len(rows), 2 + overlays, squeeze=False, width_ratios=[1, 1.5] + [1] * overlays)
    for row, axes in zip(rows, grid, strict=True):
        _draw_image(axes[0], row.image)
        axes[0].set_title(row.title, fontsize=10)
        draw_scores(axes[1], row)
        for (name, evidence), axis in zip(row.maps, axes[2:], strict=False):
            draw_overlay(axis, row.image, evidence)
            axis.set_title(name, fontsize=10)
        for axis in axes[2 + len(row.maps) :]:
            axis.set_axis_off()
    grid[0][1].set_title("mean posterior of the kept views", fontsize=10)
    grid[0][1].legend(loc="lower right", fontsize=8, frameon=False)
    return figure


def draw_scores(axis: Axes, row: EvidenceRow, most: int = 5) -> None:
    """Draw the candidates' posteriors before and after as bars, best on top, with their votes at the end."""
    shown = min(most, len(row.names))
    places = np.arange(shown)
    axis.barh(places - 0.2, row.before[:shown], 0.38, color=BEFORE, label="before (base context)")
    axis.barh(places + 0.2, row.after[:shown], 0.38, color=AFTER, label="after (learnt context)")
    for place in range(shown):
        before, after = row.votes[place]
        longest = float(max(row.before[place], row.after[place]))
        if before or after:
            text = f"{after} votes" if before == after else f"{before} → {after} votes"
            axis.text(longest + 0.015, place, text, va="center", fontsize=8)
    axis.set_yticks(places, [name_within(name, _LONGEST_NAME) for name in row.names[:shown]], fontsize=9)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.35 * float(max(row.before[:shown].max(), row.after[:shown].max())))
    axis.set_ylim(max(shown, 3) - 0.4, -0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=8)


def draw_overlay(
    axis: Axes, image: Float[np.ndarray, "height width 3"], evidence: Float[np.ndarray, "height width"]
) -> None:
    """Draw an evidence map over the image, see `overlay`."""
    _draw_image(axis, overlay(image, evidence))


def overlay(
    image: Float[np.ndarray, "height width 3"], evidence: Float[np.ndarray, "height width"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Return an evidence map over the image in grey: bright where evidence is high, relative to the map's own range."""
    low, high = float(evidence.min()), float(evidence.max())
    relative = (evidence - low) / (high - low) if high > low else np.zeros_like(evidence)
    opacity = (0.15 + 0.5 * relative)[..., None]
    colours = colormaps[_MAP](relative)[..., :3]
    blended = (1.0 - opacity) * image.mean(-1, keepdims=True) + opacity * colours
    pixels: np.ndarray = np.rint(255.0 * blended).astype(np.uint8)
    return pixels


def _draw_image(axis: Axes, image: Shaped[np.ndarray, "height width 3"]) -> None:
    axis.imshow(image)
    axis.set_axis_off()


def name_within(name: str, letters: int) -> str:
    """Return a name on one line of so many letters, its end left out where it is longer."""
    return name if len(name) <= letters else name[: letters - 1] + "…"
