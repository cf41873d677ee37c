"""Draw the diagrams of the documentation: docs/images/concept.svg and docs/images/pipeline.svg.

Usage: python scripts/draw_diagrams.py [--out docs/images]

They show the idea of Fair Context Learning, and the way of one image through it, on a light card of their own, so that
they are read on light and on dark pages alike.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from faircontext.report.style import BLUE, GREY, ORANGE, SKY, VERMILION, save_figure, styled

_CARD, _INK, _EDGE = "#fbfaf6", "#1a1a1a", "#c9c5b8"
_COMMON = "#b5b0a3"


def write_diagrams(folder: Path) -> list[Path]:
    """Write all diagrams as SVG files and return their paths.

    Raises:
        ArgumentError: a file cannot be written.
    """
    paths = []
    for name, draw in DIAGRAMS.items():
        with styled():
            path = folder / f"{name}.svg"
            save_figure(draw(), path)
        paths.append(path)
    return paths


def concept_diagram() -> Figure:
    """Draw what calibration changes: scores of two classes before and after, and the evidence that they rest on."""
    figure, axis = _card(8.0, 3.1)
    _draw_picture(axis)
    before = [("giraffe (true)", 1.05, 0.75, BLUE), ("house", 1.75, 0.35, VERMILION)]
    after = [("giraffe (true)", 1.3, 0.75, BLUE), ("house", 1.3, 0.35, VERMILION)]
    _draw_scores(axis, 2.75, "Base prompt", before, "shared evidence favours “house”:\nthe answer is wrong")
    _draw_scores(axis, 5.5, "Fair prompt", after, "shared evidence counts alike:\nwhat is unique decides")
    _arrow(axis, (5.0, 1.65), (5.35, 1.65))
    key = ((_COMMON, "on shared evidence"), (BLUE, "unique to giraffe"), (VERMILION, "unique to house"))
    for place, (colour, text) in enumerate(key):
        x = 2.75 + 1.75 * place
        axis.add_patch(Rectangle((x, 0.13), 0.14, 0.14, facecolor=colour))
        axis.text(x + 0.2, 0.2, text, va="center", fontsize=8, color=_INK)
    return figure


def pipeline_diagram() -> Figure:
    """Draw the stages of one image, with the paper's numbers."""
    figure, axis = _card(8.0, 3.75)
    top = (
        ("Image", "x, one at a time", SKY),
        ("Views", "64 crops and flips;\nthe 30% most\nconfident are selected", SKY),
        ("Exploration", "selected views vote\nfor 10 candidate\nclasses", SKY),
        ("Class evidence", "400 masks: where\nhiding the image\ncosts a class", ORANGE),
    )
    bottom = (
        ("Answer", "class, votes and\nprobabilities", SKY),
        ("Final vote", "the selected views vote\nagain, among the\ncandidates", SKY),
        ("Calibration", "two steps tune the\nprompt: equal scores\non what is shared", ORANGE),
        ("Common evidence", "45 pairs of classes:\nthe image where\nboth look", ORANGE),
    )
    lefts = [0.2 + 1.95 * place for place in range(4)]
    for left, stage in zip(lefts, top, strict=True):
        _box(axis, left, 2.05, *stage)
    for left, stage in zip(lefts, bottom, strict=True):
        _box(axis, left, 0.45, *stage)
    for place in range(3):
        _arrow(axis, (lefts[place] + 1.67, 2.62), (lefts[place + 1] - 0.02, 2.62))
        _arrow(axis, (lefts[place + 1] - 0.02, 1.02), (lefts[place] + 1.67, 1.02))
    _arrow(axis, (lefts[3] + 0.82, 2.03), (lefts[3] + 0.82, 1.62))
    _arrow(axis, (lefts[1] + 0.82, 2.03), (lefts[1] + 0.82, 1.62), dashed=True)
    axis.text(lefts[1] + 0.92, 1.83, "the same views", fontsize=8, color=GREY, va="center")
    axis.text(0.2, 3.45, "One image through FCL", fontsize=10, fontweight="bold", color=_INK, va="center")
    note = "Orange: what makes the context fair. Nothing is kept for the next image."
    axis.text(0.2, 0.2, note, fontsize=8, color=GREY, va="center")
    return figure


DIAGRAMS: Mapping[str, Callable[[], Figure]] = {"concept": concept_diagram, "pipeline": pipeline_diagram}
"""By the name of their files."""


def _card(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure whose data units are inches, with a card as its ground."""
    figure = Figure(figsize=(width, height))
    figure.patch.set_alpha(0)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.set_axis_off()
    shape = "round,pad=0,rounding_size=0.12"
    card = FancyBboxPatch((0.02, 0.02), width - 0.04, height - 0.04, shape, facecolor=_CARD, edgecolor=_EDGE)
    axis.add_patch(card)
    return figure, axis


def _box(axis: Axes, left: float, bottom: float, title: str, text: str, colour: str) -> None:
    shape = "round,pad=0,rounding_size=0.07"
    axis.add_patch(FancyBboxPatch((left, bottom), 1.65, 1.14, shape, facecolor="white", edgecolor=_EDGE))
    axis.add_patch(Rectangle((left + 0.1, bottom + 0.8), 0.05, 0.2, facecolor=colour))
    axis.text(left + 0.22, bottom + 0.9, title, fontsize=9, fontweight="bold", va="center", color=_INK)
    axis.text(left + 0.1, bottom + 0.7, text, fontsize=8, va="top", color=_INK, linespacing=1.25)


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], dashed: bool = False) -> None:
    style = "--" if dashed else "-"
    axis.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=GREY, linewidth=1.1, linestyle=style)
    )


def _draw_picture(axis: Axes) -> None:
    """Draw a picture in which a part speaks for each of two classes, and a part for both."""
    axis.text(0.3, 2.8, "One image", fontsize=10, fontweight="bold", va="center", color=_INK)
    axis.add_patch(Rectangle((0.3, 0.85), 1.9, 1.7, facecolor="white", edgecolor=_EDGE))
    regions = (((0.85, 1.95), BLUE), ((1.3, 1.6), _COMMON), ((1.75, 1.25), VERMILION))
    for (x, y), colour in regions:
        axis.add_patch(Circle((x, y), 0.38, facecolor=colour, alpha=0.85, edgecolor="white", linewidth=1.2))
    for (x, y), text in zip(((0.85, 1.95), (1.3, 1.6), (1.75, 1.25)), ("unique", "shared", "unique"), strict=True):
        axis.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if text == "unique" else _INK)
    axis.text(0.3, 0.6, "evidence of two\ncandidate classes", fontsize=8, va="center", color=_INK, linespacing=1.25)


def _draw_scores(
    axis: Axes, left: float, title: str, scores: Sequence[tuple[str, float, float, str]], verdict: str
) -> None:
    """Draw, for each class, its score as a bar in two parts: on shared evidence, and on what is unique to it."""
    axis.text(left, 2.8, title, fontsize=10, fontweight="bold", va="center", color=_INK)
    best = max(scores, key=lambda score: score[1] + score[2])
    for place, (name, common, unique, colour) in enumerate(scores):
        y = 2.05 - 0.75 * place
        mark = "  ← answer" if name == best[0] else ""
        weight = "bold" if mark else "normal"
        axis.text(left, y + 0.3, name + mark, fontsize=8.5, va="center", color=_INK, fontweight=weight)
        axis.add_patch(Rectangle((left, y - 0.05), common, 0.22, facecolor=_COMMON))
        axis.add_patch(Rectangle((left + common, y - 0.05), unique, 0.22, facecolor=colour))
    axis.text(left, 0.75, verdict, fontsize=8, va="center", color=_INK, linespacing=1.25)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    for path in write_diagrams(parser.parse_args().out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
