"""What a figure is made into: the drawing, and the numbers that it shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

__all__ = ["Drawing"]


@dataclass(frozen=True)
class Drawing:
    """A figure that has been drawn.

    Attributes:
        figure: the drawing.
        data: the numbers that it shows: rows, which become a CSV file, or a document, which becomes a JSON file.
        notes: what a person should know of it, a line each.
    """

    figure: Figure
    data: Sequence[Mapping[str, Any]] | Mapping[str, Any]
    notes: tuple[str, ...] = ()
