"""`faircontext figures`: every figure that runs allow, from their records alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from faircontext.cli.options import note, parse_options
from faircontext.errors import ArgumentError

__all__ = ["Figures", "figures", "run"]


@dataclass(frozen=True)
class Figures:
    """Draw every figure that runs allow, each as PDF, as PNG and as the numbers that it shows.

    Neither a model nor a data set is needed. What cannot be drawn is named, with the command that makes its runs.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with runs, and with costs.json and NAME.results.json, searched with all folders below."""
    out: Path = field(default=Path("figures"), kw_only=True)
    """Folder for the figures; made where it does not exist."""
    only: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of figures; all where it is not given. --only list prints them."""


def run(arguments: Sequence[str]) -> int:
    """Run the command: 0 where every figure that was asked for by name is drawn, or any where none was; else 1."""
    return figures(parse_options(Figures, arguments, "figures"))


def figures(options: Figures) -> int:
    """Draw figures as the options ask, and return the exit code."""
    if options.out == Path():
        raise ArgumentError("--out is empty; name a folder for the figures")
    from faircontext.report.pictures import choose
    from faircontext.report.plots.registry import PLOTS

    if options.only == ("list",):
        print("\n".join(PLOTS))
        return 0
    plots = choose(options.only)
    from faircontext.report.plots.sources import read_materials
    from faircontext.report.plots.write import draw_all

    materials = read_materials(options.runs)
    if not all(plot.shared for plot in plots.values()):  # what needs no runs is drawn beside any
        for remark in dict.fromkeys(remark for material in materials for remark in material.remarks):
            note(remark)
    outcomes = draw_all(materials, plots, options.out)
    for outcome in outcomes:
        if outcome.files:
            first, *rest = outcome.files
            print(f"{first} (and {', '.join(path.suffix for path in rest)})")
        for line in outcome.notes:
            note(f"{outcome.name}: {'' if outcome.files else 'not drawn: '}{line}")
    missing = [outcome for outcome in outcomes if not outcome.files]
    return 1 if len(missing) == len(outcomes) or (options.only and missing) else 0
