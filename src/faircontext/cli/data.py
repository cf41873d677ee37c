"""`faircontext data`: which data sets are known, and whether those on disk can be evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from faircontext.cli.options import parse_options
from faircontext.errors import ArgumentError, one_line

__all__ = ["Data", "run"]


@dataclass(frozen=True)
class Data:
    """List the data sets that are known, or check those that are on disk.

    `check` prints where a data set is expected, what was found, and what is wrong. Exit code 0: all of them can be
    evaluated; 1: not all of them; 2: a wrong argument.
    """

    what: Annotated[Literal["list", "check"], tyro.conf.Positional]
    """list or check."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Data sets to check: names of the list, or folders below --root. For list: shell patterns."""
    all: bool = field(default=False, kw_only=True)
    """Check all of the list."""
    root: Path | None = field(default=None, kw_only=True)
    """Folder that holds the data sets."""
    split: Literal["test", "val", "official"] = field(default="test", kw_only=True)
    """Which images."""
    read: bool = field(default=False, kw_only=True)
    """Decode every image, which takes a while."""
    partial: bool = field(default=False, kw_only=True)
    """Missing images are no problem."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Data, arguments, "data")
    return _list(options) if options.what == "list" else _check(options)


def _list(options: Data) -> int:
    from faircontext.datasets.catalogue import CATALOGUE, list_datasets

    names = [name for pattern in options.names or ("*",) for name in list_datasets(pattern)]
    if not names:
        raise ArgumentError(f"none of the data sets matches {' or '.join(map(repr, options.names))}")
    print(f"{'name':16} {'in the paper':16} {'classes':>7} {'test':>7}  {'folder':52} from")
    for name in dict.fromkeys(names):
        entry = CATALOGUE[name]
        folder = "/".join(filter(None, (entry.folders[0], entry.inner[0])))
        print(f"{name:16} {entry.title:16} {entry.classes:>7,} {entry.images['test']:>7,}  {folder:52} {entry.home}")
    return 0


def _check(options: Data) -> int:
    from faircontext.datasets.catalogue import list_datasets
    from faircontext.datasets.check import check_dataset, expected_tree
    from faircontext.datasets.load import locate

    if options.root is None:
        raise ArgumentError("data check needs --root, the folder that holds the data sets")
    if bool(options.names) == options.all:
        raise ArgumentError("data check takes names of data sets, or --all")
    if not options.root.is_dir():
        raise ArgumentError(f"{options.root}: no such folder; --root is the folder that holds the data sets")
    failed = 0
    names = list_datasets() if options.all else list(dict.fromkeys(options.names))
    for name in names:
        locate(name, options.root)
    for name in names:
        print(f"{name} ({options.split})")
        for line in expected_tree(name, options.root):
            print(f"  expected: {line}")
        report = check_dataset(name, options.root, options.split, options.read, options.partial)
        for line in report.found:
            print(f"  {one_line(line)}")
        for line in report.problems:
            print(f"  PROBLEM: {one_line(line)}")
        good = report.usable and not report.problems
        failed += not good
        print(
            f"  {'can be evaluated' if good else 'cannot be evaluated' if not report.usable else 'not in full'}",
            flush=True,
        )
    print(f"{len(names) - failed} of {len(names)} can be evaluated")
    return 1 if failed else 0
