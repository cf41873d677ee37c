"""Tables that list images: `labels.csv`, `metadata.csv` and `metadata.jsonl` as of Hugging Face, others of the kind."""

import csv
import json
from array import array
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from faircontext.datasets.folder import Listing, folders_in, holds_images
from faircontext.datasets.label_encoder import (
    LABEL_COLUMNS,
    NO_CLASS,
    SEPARATOR,
    SEVERAL,
    UNREAD,
    LabelEncoder,
    column_of_labels,
)
from faircontext.datasets.listing import short_digest
from faircontext.datasets.spec import Truth
from faircontext.errors import ArgumentError, and_more, counted, reason_of

__all__ = [
    "LABELS",
    "TABLE",
    "Listed",
    "Register",
    "TableLabels",
    "listed_images",
    "listed_twice",
    "tables_below",
    "tables_in",
]

TABLE = "labels.csv"
LABELS = (TABLE, "metadata.csv", "metadata.jsonl")
"""Tables that say of which class the images beside them are."""

_PATHS = ("path", "file_name", "filepath", "file_path", "filename", "image")
_TITLE = "class_name"


def tables_in(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the table that says of which class the images of a folder are, and a line where there are others."""
    tables = [folder / name for name in LABELS if (folder / name).is_file()]
    others = and_more([table.name for table in tables[1:]])
    return next(iter(tables), None), [f"{tables[0]}: is taken, and {others} beside it is not read"] if others else []


def tables_below(folder: Path) -> list[Path]:
    """Return the `metadata.csv` or `metadata.jsonl` one folder below, as of Hugging Face's splits.

    There are none where a table lies in the folder itself, or where images lie in other folders too.
    """
    if tables_in(folder)[0] is not None:
        return []
    found = {entry: tables_in(entry)[0] for entry in folders_in(folder)}
    tables = [table for table in found.values() if table is not None and table.name != TABLE]
    others = (entry for entry, table in found.items() if table is None or table.name == TABLE)
    return [] if not tables or any(map(holds_images, others)) else tables


class Listed(NamedTuple):
    """An image that a table lists.

    Attributes:
        line: where its row begins, from 1.
        path: as it is written.
        label: as it is written, None where the table has no such column, `UNREAD` where that is for several labels.
        title: what its class is called, empty where the table does not say that beside the label.
    """

    line: int
    path: str
    label: object
    title: str


_Row = tuple[int, list[tuple[str, object]]]
"""The line where a row begins, and its cells with the names of their columns."""


def listed_images(
    table: Path,
    image_column: str | None = None,
    label_column: str | None = None,
    several: bool = False,
    labelled: bool = False,
) -> Iterator[Listed]:
    """Return the images that a table lists, which ends in `.csv` or `.jsonl`; its columns are looked at at once.

    Args:
        table: the file.
        image_column: of paths; None for the first of the usual names.
        label_column: of names or indices of classes; None for the first of the usual names, if there is one. Beside
            `label`, `class_name` is a title then.
        several: whether an image may have several labels: then a column `labels` goes before.
        labelled: whether there must be a column of labels.

    Raises:
        ArgumentError: it cannot be read, or has no such column; the message names the line.
    """
    rows = _json_rows(table) if table.suffix.lower() == ".jsonl" else _csv_rows(table)
    if (first := next(rows, None)) is None:
        raise ArgumentError(f"{table}: has no rows; write one for each image")
    names = [name for name, _ in first[1]]
    path = _path_column(table, names, image_column)
    if label_column is not None and label_column not in names:
        raise ArgumentError(
            f"{table}: has no column {label_column}, but {and_more(names)}; name one with --label-column"
        )
    in_all_rows = table.suffix.lower() != ".jsonl"
    if labelled and in_all_rows and column_of_labels(names, label_column, several) is None:
        hint = f"its column {SEVERAL} is read with --multi-label" if SEVERAL in names else "call the one of labels so"
        raise ArgumentError(f"{table}: has no column label or {_TITLE}, but {and_more(names)}; {hint}")
    return _listed(table, chain([first], rows), path, label_column, several)


def _path_column(table: Path, names: list[str], asked: str | None) -> str:
    path = asked or next((name for name in _PATHS if name in names), None)
    if path is None or path not in names:
        fix = "name the one of paths with --image-column"
        fix = "put commas between columns" if any(mark in name for name in names for mark in ";\t") else fix
        raise ArgumentError(f"{table}: has no column {path or ' or '.join(_PATHS[:2])}, but {and_more(names)}; {fix}")
    if twice := next((name for name in (path, *LABEL_COLUMNS, SEVERAL) if names.count(name) > 1), None):
        raise ArgumentError(f"{table}: has the column {twice!r} twice; which of them counts?")
    return path


def _listed(table: Path, rows: Iterator[_Row], path: str, asked: str | None, several: bool) -> Iterator[Listed]:
    for line, pairs in rows:
        row = dict(pairs)
        column = column_of_labels(row, asked, several)  # rows in JSON may leave out what is empty
        title = row.get(_TITLE) if column == "label" and asked is None else None
        label = None if column is None else row.get(column)
        if column is None and row.get(SEVERAL) not in (None, "", []):
            label = UNREAD
        if not isinstance(name := row.get(path), str) or not name.strip():
            raise ArgumentError(f"{table}, line {line}: has no path in its column {path}")
        yield Listed(line, name, label, title.strip() if isinstance(title, str) else "")


_END = "\0end of the table"
"""A line after the last one: where a quotation mark is not closed, it becomes part of that cell."""


def _csv_rows(table: Path) -> Iterator[_Row]:
    head, start = list[str](), 1
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(chain(file, [_END]))
            for cells in reader:
                line, start = start, reader.line_num + 1
                if cells == [_END]:
                    break
                if not any(cell.strip() for cell in cells):
                    continue
                short = len(cells) < len(head) and any("\n" in cell or "\r" in cell for cell in cells)
                if short or cells[-1].endswith(_END):
                    raise ArgumentError(f"{table}, line {line}: a quotation mark in it is not closed")
                if not head:
                    head = [title.strip() for title in cells]
                    continue
                yield line, [*zip(head, chain(cells, repeat("")))]  # noqa: B905 (a line may be short, or longer)
    except UnicodeDecodeError:
        raise ArgumentError(f"{table}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise ArgumentError(f"{table}: cannot be read: {reason_of(error)}") from None


def _json_rows(table: Path) -> Iterator[_Row]:
    try:
        with table.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ArgumentError(f"{table}, line {number}: is no JSON object")
                    yield number, [*row.items()]
    except UnicodeDecodeError:
        raise ArgumentError(f"{table}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{table}, line {number}: is no JSON object") from None
    except OSError as error:
        raise ArgumentError(f"{table}: cannot be read: {reason_of(error)}") from None


def listed_twice(where: str, what: str, first: int, several: bool) -> ArgumentError:
    """Return the error for an image that a table lists twice, with a label.

    Args:
        where: the second row stands.
        what: is listed.
        first: the line of the first row.
        several: whether an image may have several labels.
    """
    fix = f"write all its labels in one cell, with {SEPARATOR} between" if several else "list it once"
    return ArgumentError(f"{where}: {what} is there twice, first in line {first}; {fix}")


class Register:
    """The images that a table lists, by 64-bit digests of their names: sixteen bytes of memory for each."""

    def __init__(self) -> None:
        self._digests, self._lines, self._numbers = array("Q"), array("L"), array("i")
        self._truths: dict[Truth, int] = {}
        self._order: tuple[np.ndarray, np.ndarray] = np.empty(0, np.uint64), np.empty(0, np.intp)
        self._known = list[Truth]()

    def add(self, name: str, line: int, truth: Truth) -> None:
        """Take an image with its label."""
        self._digests.append(short_digest(name))
        self._lines.append(line)
        self._numbers.append(self._truths.setdefault(truth, len(self._truths)))

    def finish(self, table: Path, several: bool) -> None:
        """Refuse a table that lists an image twice with a label."""
        digests = np.asarray(self._digests, np.uint64)
        order = np.argsort(digests, kind="stable")
        self._order, self._known = (digests[order], order), [*self._truths]
        unlabelled = np.asarray(self._numbers)[order] == self._truths.get(None, -1)
        equal = (digests[order][1:] == digests[order][:-1]) & ~(unlabelled[1:] & unlabelled[:-1])
        if equal.any():
            second = int(order[1:][equal].min())
            first = int(order[np.flatnonzero(digests[order] == digests[second])[0]])
            raise listed_twice(f"{table}, line {self._lines[second]}", "its image", self._lines[first], several)

    def find(self, name: str) -> Truth:
        """Return the label of an image, after `finish`."""
        digests, order = self._order
        digest = np.uint64(short_digest(name))
        position = int(np.searchsorted(digests, digest))
        if position == len(digests) or digests[position] != digest:
            return None
        return self._known[self._numbers[int(order[position])]]


class TableLabels:
    """The labels that a table in a folder gives to images below it.

    Args:
        table: the file.
        rows: of it, see `listed_images`.
        encoder: takes the labels.
        several: whether an image may have several labels.
    """

    def __init__(self, table: Path, rows: Iterator[Listed], encoder: LabelEncoder, several: bool = False) -> None:
        self._table, self._register, self._used, self._missing = table, Register(), 0, 0
        listing = Listing(table.parent, str(table))
        for row in rows:
            truth = encoder.add(row.label, f"{table}, line {row.line}", row.title)
            if (file := listing.file_of(row.path)) is not None:
                self._register.add(file, row.line, truth)
            elif truth is not None:
                self._missing += 1
        self._register.finish(table, several)

    def find(self, key: str) -> Truth:
        """Return what the encoder gave for an image, known by its path below the folder."""
        truth = self._register.find(key)
        self._used += truth not in (None, NO_CLASS)
        return truth

    def warnings(self) -> list[str]:
        """Return what the table says, as a line."""
        line = f"{self._table}: gives the class of {counted(self._used, 'image')}"
        return [line + (f"; {self._missing:,} more that it lists are not there" if self._missing else "")]
