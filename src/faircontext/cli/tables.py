"""`faircontext tables`: the paper's tables from runs."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from faircontext.cli.options import note, parse_options
from faircontext.errors import ArgumentError

if TYPE_CHECKING:
    from faircontext.report.render import Sheet
    from faircontext.runs.groups import Group

__all__ = ["Tables", "run", "tables"]


@dataclass(frozen=True)
class Tables:
    """Print tables of runs; a table holds what differs in method and data set alone.

    Every accuracy comes with its number of images and a 95% interval, every gain is over zero-shot on the same images.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with runs, searched with all folders below."""
    style: Literal["paper", "long"] = "paper"
    """paper: methods by data sets; long: a row per data set and method, with intervals and tests."""
    format: Literal["md", "latex", "csv", "rich"] = "rich"
    """Markdown, LaTeX with booktabs, CSV (proportions, not percent), or drawn for a terminal."""
    compare: Literal["paper"] | None = None
    """paper: add what the paper reports, where it has the backbone; it never changes the exit code."""
    metric: Literal["top1", "top5", "ece", "brier", "nll", "mean_per_class"] = "top1"
    """What style paper shows."""
    out: Annotated[Path | None, tyro.conf.arg(prefix_name=False)] = None
    """File for the tables, instead of standard output."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    return tables(parse_options(Tables, arguments, "tables"))


def tables(options: Tables) -> int:
    """Print or write tables as the options ask, and return the exit code."""
    if options.metric != "top1" and (options.style == "long" or options.compare):
        what = "--style long shows all metrics" if options.style == "long" else "--compare paper is of top-1 accuracy"
        raise ArgumentError(f"--metric {options.metric} is not possible: {what}; leave --metric out")
    if options.out == Path():
        raise ArgumentError("--out is empty; name a file for the tables")
    from faircontext.files import check_outputs, write_whole
    from faircontext.report.groups import read_runs, remarks
    from faircontext.runs.groups import group_runs

    runs = read_runs(options.runs)
    groups = group_runs(runs)
    if not groups:
        shown = ", ".join(map(str, options.runs))
        raise ArgumentError(f"{shown}: holds analyses only, no answers of methods; draw them with faircontext figures")
    for remark in remarks(groups):
        note(remark)
    text = _csv(groups, options) if options.format == "csv" else _drawn(groups, options)
    if options.out is None:
        print(text, end="")
        return 0
    check_outputs([options.out], [run.folder / name for run in runs for name in ("run.json", "rows.parquet")])
    write_whole(options.out, text)
    return 0


def _csv(groups: "Sequence[Group]", options: Tables) -> str:
    from faircontext.report.csv_tables import long_records, paper_records
    from faircontext.report.render import to_csv

    compared = options.compare is not None
    records = (
        long_records(groups, compared) if options.style == "long" else paper_records(groups, options.metric, compared)
    )
    if not records:
        raise ArgumentError(f"{', '.join(map(str, options.runs))}: no image has been answered yet")
    return to_csv(records)


def _drawn(groups: "Sequence[Group]", options: Tables) -> str:
    from faircontext.report.csv_tables import comparison_table
    from faircontext.report.render import to_latex, to_markdown, to_terminal
    from faircontext.report.tables import long_table, paper_table

    sheets: list[Sheet] = []
    for group in groups:
        sheets.append(long_table(group) if options.style == "long" else paper_table(group, options.metric))
        if options.compare:
            found = comparison_table(group)
            if isinstance(found, str):
                note(found)
            else:
                sheets.append(found)
    if options.format == "rich":
        shown = options.out is None and sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if shown else None
        return "\n".join(to_terminal(sheet, width) for sheet in sheets)
    return "\n".join(map(to_markdown if options.format == "md" else to_latex, sheets))
