"""`faircontext report`: a page about runs, with every image."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from faircontext.cli.options import note, parse_options
from faircontext.errors import ArgumentError, check_minimum

__all__ = ["Report", "report", "run"]


@dataclass(frozen=True)
class Report:
    """Write one HTML page about runs: settings, tables, charts, and each image that a method fixed or broke.

    The page holds all that it shows: it needs no network, and can be sent or kept as one file.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with runs, searched with all folders below; runs of the analysis gallery add pictures of evidence."""
    out: Annotated[Path, tyro.conf.arg(prefix_name=False)] = Path("report.html")
    """File for the page."""
    thumbnails: Annotated[int, tyro.conf.arg(prefix_name=False)] = 1000
    """How many images get pictures: first those that a method fixed or broke, then evenly spread ones."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    return report(parse_options(Report, arguments, "report"))


def report(options: Report) -> int:
    """Write the page, print where it is, and return the exit code."""
    check_minimum("thumbnails", options.thumbnails, 0)
    if options.out == Path():
        raise ArgumentError("--out is empty; name a file for the page")
    from faircontext.files import check_outputs, write_whole
    from faircontext.report.groups import read_runs
    from faircontext.report.page import build_page

    runs = read_runs(options.runs)
    check_outputs([options.out], [run.folder / name for run in runs for name in ("run.json", "rows.parquet")])
    page = build_page(runs, options.thumbnails)
    write_whole(options.out, page.html)
    for line in page.notes:
        note(line)
    size = len(page.html.encode()) / 1e6
    print(f"{options.out}: {page.images:,} images, {page.pictures:,} of them with pictures; {size:.1f} MB")
    return 0
