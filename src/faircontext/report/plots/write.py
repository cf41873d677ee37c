"""Figures as files: PDF for print, PNG at 300 dpi for the screen, and the numbers that are drawn beside them.

The same records give the same bytes: no file holds a date or the name of a program, and all that is drawn by chance is
seeded.
"""

import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from faircontext.bench.records import to_json, write_whole, writing
from faircontext.report.machine import to_csv
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.registry import Plot
from faircontext.report.plots.sources import Material
from faircontext.report.plots.style import styled

__all__ = ["Drawn", "draw_all", "save_figure"]


@dataclass(frozen=True)
class Drawn:
    """What became of a figure.

    Attributes:
        name: of the figure.
        files: that were written, none where it could not be drawn.
        notes: what a person should know of it; why it could not be drawn.
    """

    name: str
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def draw_all(materials: Sequence[Material], plots: Mapping[str, Plot], folder: Path) -> list[Drawn]:
    """Draw figures of all materials and write them.

    A figure that several materials allow is written once for each, with the settings that tell them apart in its name.

    Args:
        materials: what was measured, as `read_materials` gives it.
        plots: what is drawn, by name.
        folder: where files go; it is made.

    Raises:
        ArgumentError: a file cannot be written, or a row cannot be read.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for name, plot in plots.items():
        # One at a time: what is drawn, and as what, does not depend on what else is.
        with styled():
            found = [(material, plot.draw(material)) for material in (materials[:1] if plot.shared else materials)]
            drawings = [(material, drawing) for material, drawing in found if isinstance(drawing, Drawing)]
            stems = _stems(name, [material for material, _ in drawings])
            for stem, (_, drawing) in zip(stems, drawings, strict=True):
                with _boxes() as notes:
                    files = _write(folder / stem, drawing)
                outcomes.append(Drawn(stem, files, (*drawing.notes, *notes)))
        if not drawings:
            outcomes.append(Drawn(name, (), tuple(dict.fromkeys(text for _, text in found if isinstance(text, str)))))
    return outcomes


def _stems(name: str, materials: Sequence[Material]) -> list[str]:
    """Return names of files, which hold the settings in which the materials differ."""
    differs = [len({*column}) > 1 for column in zip(*(material.parts for material in materials), strict=True)]
    stems = []
    for material in materials:
        parts = [part for part, other in zip(material.parts, differs, strict=True) if other and part]
        stems.append(re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join([name, *parts])).strip("-"))
    return [stem if stems.count(stem) == 1 else f"{stem}-{place}" for place, stem in enumerate(stems)]


@contextmanager
def _boxes() -> Iterator[list[str]]:
    """Yield a list that has a line in the end where the font lacks letters, in place of a warning for each."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.filterwarnings("always", "Glyph ")
        yield notes
    letters = set()
    for warning in heard:
        if match := re.match(r"Glyph (\d+) ", str(warning.message)):
            letters.add(chr(int(match[1])))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if letters:
        notes.append(f"letters that the font lacks are drawn as boxes: {''.join(sorted(letters))}")


def _write(stem: Path, drawing: Drawing) -> tuple[Path, ...]:
    data = drawing.data
    suffix = ".json" if isinstance(data, Mapping) else ".csv"
    paths = tuple(stem.with_name(stem.name + ending) for ending in (".pdf", ".png", suffix))
    for path in paths[:2]:
        save_figure(drawing.figure, path)
    write_whole(
        paths[2],
        to_json(data, indent=None) + "\n" if isinstance(data, Mapping) else to_csv(data),
    )
    return paths


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PDF, PNG or SVG, by the path's ending, in one step and without a date.

    Raises:
        ArgumentError: the file cannot be written.
    """
    kind = path.suffix[1:]
    absent = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}[kind]
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=300, metadata=dict.fromkeys(absent))
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            partial.write_bytes(stream.getvalue())
            partial.replace(os.path.realpath(path))
        finally:
            partial.unlink(missing_ok=True)
