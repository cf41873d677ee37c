"""Tables that list images: `metadata.csv` and `metadata.jsonl` as of Hugging Face, `labels.csv`, others of the kind."""

import csv
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from faircontext.datasets.folder import clean_key
from faircontext.datasets.listing import short_digest
from faircontext.errors import ArgumentError, and_more, counted, reason_of
from faircontext.names import ClassIndex, as_integer, compose

__all__ = [
    "LABELS",
    "METADATA",
    "SEPARATOR",
    "SEVERAL",
    "ClassOf",
    "Listed",
    "TableLabels",
    "Written",
    "label_words",
    "listed_images",
    "tables_in",
]

METADATA = ("metadata.csv", "metadata.jsonl")
LABELS = ("labels.csv", *METADATA)
"""Tables that say of which class the images beside them are."""

_PATHS = ("path", "file_name", "filepath", "file_path", "filename", "image")
_NAMES = ("label", "class_name", "class", "cls")
SEVERAL = "labels"
"""The column that holds all labels of an image; where there is none, that of the label does."""

SEPARATOR = ";"
"""Between the labels of a cell."""

Written = str | int | tuple[str | int, ...] | None
"""A label as it is written, or all of an image that may have several; None where there is none."""


def tables_in(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the table that says of which class the images of a folder are, and a line where there are others."""
    tables = [folder / name for name in LABELS if (folder / name).is_file()]
    others = and_more([table.name for table in tables[1:]])
    return next(iter(tables), None), [f"{tables[0]}: is taken, and {others} beside it is not read"] if others else []


class Listed(NamedTuple):
    """An image that a table lists.

    Attributes:
        path: as it is written.
        label: the same, None where the table has no such column, or an empty cell.
    """

    path: str
    label: Written


def label_words(value: object, where: str) -> tuple[str | int, ...] | None:
    """Return the labels of a cell, with `;` between, or of a list; an empty one has none, and null is not known.

    Args:
        value: of the cell.
        where: it stands, for the message.

    Raises:
        ArgumentError: it is something else.
    """
    if value is None:
        return None
    words: list[Any] = (
        value.split(SEPARATOR) if isinstance(value, str) else value if isinstance(value, list) else [value]
    )
    if odd := [word for word in words if not isinstance(word, str | int) or isinstance(word, bool)]:
        raise ArgumentError(
            f"{where}: the label {str(odd[0])[:60]!r} is neither a name nor an index; give a list of these, or one "
            f"text with {SEPARATOR} between"
        )
    stripped = (word.strip() if isinstance(word, str) else word for word in words)
    return tuple(word for word in stripped if word != "")


def listed_images(
    table: Path, image_column: str | None = None, label_column: str | None = None, several: bool = False
) -> Iterator[Listed]:
    """Yield the images that a table lists, which ends in `.csv` or `.jsonl`.

    Args:
        table: the file.
        image_column: of paths; None for the first of the usual names.
        label_column: of names or indices of classes; None for the first of the usual names, if there is one.
        several: whether an image may have several labels, see `label_words`. If not, and a table has no other labels,
            an image's are a tuple, which is no class, see `ClassOf`.

    Raises:
        ArgumentError: it cannot be read, or has no such column; the message names the line.
    """
    rows = _json_rows(table) if table.suffix.lower() == ".jsonl" else _csv_rows(table)
    columns: tuple[str, str | None] | None = None
    for where, row in rows:
        if several and label_column is None and SEVERAL in row:
            label_column = SEVERAL
        columns = columns or _columns(table, [*row], image_column, label_column)
        unread = columns[1] is None and row.get(SEVERAL) not in (None, "", [])
        path, label = row.get(columns[0]), None if columns[1] is None else row.get(columns[1])
        if not isinstance(path, str) or not path.strip():
            raise ArgumentError(f"{where}: has no path in its column {columns[0]}")
        if several:
            yield Listed(path, label_words(label, where))
            continue
        label = label.strip() if isinstance(label, str) else label
        single = label if isinstance(label, str | int) and label != "" else None
        yield Listed(path, (str(row[SEVERAL]),) if unread else single)
    if columns is None:
        raise ArgumentError(f"{table}: has no rows; write one for each image")


def _columns(table: Path, names: list[str], image: str | None, label: str | None) -> tuple[str, str | None]:
    path_column = image or next((name for name in _PATHS if name in names), None)
    label_column = label or next((name for name in _NAMES if name in names), None)
    if path_column is None or path_column not in names:
        asked = path_column or " or ".join(_PATHS[:2])
        raise ArgumentError(
            f"{table}: has no column {asked}, but {and_more(names)}; name the one of paths with --image-column"
        )
    if label is not None and label not in names:
        raise ArgumentError(f"{table}: has no column {label}, but {and_more(names)}; name one with --label-column")
    return path_column, label_column


def _csv_rows(table: Path) -> Iterator[tuple[str, dict[str, object]]]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            head = [title.strip() for title in next(reader, [])]
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield f"{table}, line {reader.line_num}", dict(zip(head, cells, strict=False))
    except UnicodeDecodeError:
        raise ArgumentError(f"{table}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise ArgumentError(f"{table}: cannot be read: {reason_of(error)}") from None


def _json_rows(table: Path) -> Iterator[tuple[str, dict[str, object]]]:
    try:
        with table.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ArgumentError(f"{table}, line {number}: is no JSON object")
                    yield f"{table}, line {number}", row
    except UnicodeDecodeError:
        raise ArgumentError(f"{table}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{table}, line {number}: is no JSON object") from None
    except OSError as error:
        raise ArgumentError(f"{table}: cannot be read: {reason_of(error)}") from None


class ClassOf:
    """Which class a label is, by name or by index, and how many labels are none.

    Args:
        names: class names.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._n, self._index = len(names), ClassIndex(names)
        self._strange: dict[str, int] = {}
        self._several, self._unread = False, 0

    def all_of(self, label: Written) -> tuple[int, ...] | None:
        """Return the indices of the classes of an image that may have several; labels that are no class are none."""
        self._several = True
        if label is None or not isinstance(label, tuple):
            return None
        return tuple(sorted({index for word in label if (index := self(word)) is not None}))

    def __call__(self, label: Written) -> int | None:
        """Return the index of a label's class, or None where it is of none; words are names before they are indices."""
        if label is None or isinstance(label, tuple):
            self._unread += label is not None
            return None
        named = self._index.find(compose(label)) if isinstance(label, str) and not label.isdecimal() else None
        index = label if isinstance(label, int) else named if named is not None else as_integer(label)
        if index is None or not 0 <= index < self._n:
            if len(self._strange) < 1000 or str(label) in self._strange:
                self._strange[str(label)] = self._strange.get(str(label), 0) + 1
            return None
        return index

    def warnings(self) -> list[str]:
        """Return the labels that are no class, and how many are for several labels an image, a line each."""
        lines = []
        if self._unread:
            own = f"{counted(self._unread, 'image')} {'has' if self._unread == 1 else 'have'}"
            lines.append(f"{own} labels in a column {SEVERAL}, which is not read: add --multi-label")
        if not self._strange:
            return lines
        n = sum(self._strange.values())
        words = and_more([repr(word) for word in self._strange])
        if self._several:
            return [*lines, f"labels that are no class are left out, {n:,} in all: {words}"]
        count = f"{counted(n, 'image')} {'counts' if n == 1 else 'count'}"
        hint = f"; several labels, with {SEPARATOR} between, are read with --multi-label"
        joined = any(SEPARATOR in word for word in self._strange)
        return [*lines, f"labels that are no class, whose {count} in no accuracy: {words}{hint if joined else ''}"]


class TableLabels:
    """The labels that a table in a folder gives to images below it; twelve bytes of memory for each.

    Args:
        table: the file.
        class_of: see `ClassOf`.
        image_column: see `listed_images`.
        label_column: see there.
        several: see there.
    """

    def __init__(
        self,
        table: Path,
        class_of: ClassOf,
        image_column: str | None,
        label_column: str | None,
        several: bool = False,
    ) -> None:
        self._table, digests, labels = table, array("Q"), array("i")
        self._sets: list[tuple[int, ...]] | None = None
        numbers: dict[tuple[int, ...], int] = {}
        seen = set[int]()
        for path, label in listed_images(table, image_column, label_column, several):
            key = clean_key(path.strip().replace("\\", "/"), [table.parent])
            index: int | None
            if several:
                classes = class_of.all_of(label)
                index = None if classes is None else numbers.setdefault(classes, len(numbers))
            else:
                index = class_of(label)
            if key is not None and index is not None:
                digests.append(short_digest(compose(key)))
                labels.append(index)
                if several and digests[-1] in seen:
                    raise ArgumentError(
                        f"{table}: {key} is there twice; write all its labels in one cell, with {SEPARATOR} between"
                    )
                seen.update([digests[-1]] if several else [])
        if several:
            self._sets = [*numbers]
        order = np.argsort(np.asarray(digests))
        self._digests, self._labels = np.asarray(digests)[order], np.asarray(labels)[order]
        self._used = 0

    def find(self, key: str) -> int | tuple[int, ...] | None:
        """Return the class or the classes of an image, known by its path below the folder."""
        digest = np.uint64(short_digest(compose(key)))
        position = int(np.searchsorted(self._digests, digest))
        if position == len(self._digests) or self._digests[position] != digest:
            return None
        self._used += 1
        found = int(self._labels[position])
        return found if self._sets is None else self._sets[found]

    def warnings(self) -> list[str]:
        """Return what the table says, as a line."""
        missing = len(self._digests) - self._used
        line = f"{self._table}: gives the class of {counted(self._used, 'image')}"
        return [line + (f"; {missing:,} more that it lists are not there" if missing > 0 else "")]
