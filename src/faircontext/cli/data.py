"""`faircontext data`: which data sets are known, whether those on disk can be evaluated, collages of their photos."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from faircontext.cli.options import parse_options
from faircontext.errors import ArgumentError, check_minimum, one_line

__all__ = ["Data", "run"]


@dataclass(frozen=True)
class Data:
    """List the data sets that are known, check those that are on disk, or make collages of one's photos.

    `check` prints where a data set is expected, what was found, and what is wrong. Exit code 0: all of them can be
    evaluated; 1: not all of them; 2: a wrong argument. `collage` writes a data set of collages, whose cells each show
    another class: what evidence maps can be measured on, by faircontext analyze pointing.
    """

    what: Annotated[Literal["list", "check", "collage"], tyro.conf.Positional]
    """list, check or collage."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Data sets to check, or the one to make collages of: names of the list, or folders below --root. For list: shell
    patterns."""
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
    out: Path | None = field(default=None, kw_only=True)
    """For collage: folder to write the data set to, new or empty."""
    side: int = field(default=2, kw_only=True)
    """For collage: cells along a side."""
    limit: int = field(default=100, kw_only=True)
    """For collage: how many."""
    seed: int = field(default=0, kw_only=True)
    """For collage: of the draws."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Data, arguments, "data")
    return {"list": _list, "check": _check, "collage": _collage}[options.what](options)


def _list(options: Data) -> int:
    from faircontext.datasets.spec import CATALOGUE, list_datasets

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
    from faircontext.datasets.load import check_dataset, expected_tree, locate
    from faircontext.datasets.spec import list_datasets

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


def _collage(options: Data) -> int:
    from faircontext.datasets.collages import Collages, write_collages
    from faircontext.datasets.load import load_dataset

    if options.root is None or options.out is None:
        raise ArgumentError("data collage needs --root, the folder that holds the data set, and --out, a new folder")
    if len(options.names) != 1:
        raise ArgumentError("data collage takes the name of one data set")
    check_minimum("limit", options.limit, 1)
    dataset = load_dataset(options.names[0], options.root, options.split)
    collages = Collages(dataset, options.side, options.seed)
    write_collages(collages, options.out, options.limit)
    if collages.unreadable:
        left_out, more = collages.unreadable[:5], len(collages.unreadable) - 5
        shown = ", ".join(left_out) + (f" and {more:,} more" if more > 0 else "")
        print(one_line(f"photos that cannot be read are left out: {shown}"))
    print(f"{options.limit} collages of {options.side} x {options.side} photos of {dataset.name} are in {options.out}")
    return 0
