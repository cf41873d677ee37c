"""Figures: evidence over an image, and scores before and after adaptation.

Drawn with matplotlib's object interface, which has no global state, in colours that colour-blind people can tell apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "EvidenceRow",
    "Panel",
    "draw_scores",
    "evidence_figure",
    "name_within",
    "overlay",
    "overlay_shares",
    "strongest",
]

BEFORE, AFTER = "#9aa0a6", "#0072b2"
_MORE, _LESS = np.array([213, 94, 0]) / 255, np.array([0, 114, 178]) / 255
_SHARES = "cividis"
_LONGEST_NAME = 22
_OPAQUE = 0.75
_CAPTION = (
    "Evidence of a class: orange where hiding the image costs the class more than elsewhere, blue where less, on one\n"
    "scale a row; outlined at half of the strongest, pale below two standard errors. Repeats: expected correlation\n"
    "with the map of other masks. Common evidence, where both classes are made alike: its weight, from 0 (dark) to 1."
)


@dataclass(frozen=True)
class Panel:
    """A map over an image.

    Attributes:
        title: what it is of.
        pixels: see `overlay` and `overlay_shares`.
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
        draw_scores(axes[1], row)
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


def strongest(*maps: Float[np.ndarray, "height width"]) -> float:
    """Return how far maps get from their means, in nats: the limit of a colour scale that they share."""
    return max(float(np.abs(evidence - evidence.mean()).max()) for evidence in maps)


def overlay(
    image: Float[np.ndarray, "height width 3"],
    evidence: Float[np.ndarray, "height width"],
    limit: float | None = None,
    error: Float[np.ndarray, "height width"] | None = None,
) -> UInt8[np.ndarray, "height width 3"]:
    """Return an evidence map over the image in grey: orange above the map's mean, blue below it.

    Args:
        image: values in [0, 1].
        evidence: of a class, or of one class against another, in nats.
        limit: the distance from the mean that is drawn at full strength; None for the map's own, see `strongest`.
        error: standard error of the map; what is less than two of them from the mean is drawn pale, without an outline.
    """
    limit = strongest(evidence) if limit is None else limit
    distance = evidence - evidence.mean()
    relative = np.clip(distance / limit, -1.0, 1.0) if limit > 0 else np.zeros_like(evidence)
    opacity, strong = _OPAQUE * np.abs(relative), relative >= 0.5
    if error is not None:
        certain = np.clip(np.abs(distance) / np.maximum(2.0 * error, 1e-12), 0.0, 1.0)
        opacity, strong = opacity * certain**2, strong & (certain == 1.0)
    colours = np.where(relative[..., None] > 0, _MORE, _LESS)
    blended = _blend(image, colours, opacity)
    blended[_outline(strong)] = 0.0
    return _to_bytes(blended)


def overlay_shares(
    image: Float[np.ndarray, "height width 3"], shares: Float[np.ndarray, "height width"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Return weights from 0 to 1 over the image in grey, always on that scale: an even map looks even."""
    colours: np.ndarray = colormaps[_SHARES](shares)[..., :3]
    return _to_bytes(_blend(image, colours, np.full(shares.shape, 0.5)))


def _blend(
    image: Float[np.ndarray, "height width 3"],
    colours: Float[np.ndarray, "height width 3"],
    opacity: Float[np.ndarray, "height width"],
) -> Float[np.ndarray, "height width 3"]:
    grey = 0.25 + 0.75 * image.mean(-1, keepdims=True)  # lifted, so that colours show on dark parts as well
    blended: np.ndarray = (1.0 - opacity[..., None]) * grey + opacity[..., None] * colours
    return blended


def _outline(inside: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """Return the pixels of a region that have a neighbour outside it; the edge of the image is no neighbour."""
    padded = np.pad(inside, 1, mode="edge")
    around = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    outline: np.ndarray = inside & ~around
    return outline


def _to_bytes(pixels: Float[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "height width 3"]:
    rounded: np.ndarray = np.rint(255.0 * pixels).astype(np.uint8)
    return rounded


def _draw_image(axis: Axes, image: Shaped[np.ndarray, "height width 3"]) -> None:
    axis.imshow(image)
    axis.set_axis_off()


def name_within(name: str, letters: int) -> str:
    """Return a name on one line of so many letters, its end left out where it is longer."""
    return name if len(name) <= letters else name[: letters - 1] + "…"
