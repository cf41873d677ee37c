"""Data sets whose images and labels are listed by a table, `labels.csv`, with class names in `classnames.txt`."""

import csv
from collections.abc import Sequence
from pathlib import Path

from faircontext.datasets.folder import read_labels
from faircontext.datasets.spec import Dataset, Sample
from faircontext.datasets.splits import clean_key, present
from faircontext.errors import ArgumentError, reason_of

__all__ = ["NAMES", "TABLE", "read_table"]

TABLE, NAMES = "labels.csv", "classnames.txt"

Row = dict[str, str | None]


def read_table(name: str, folder: Path) -> Dataset:
    """Read `labels.csv`: columns `path` and `label`, perhaps `class_name`; others are left out.

    Paths are relative to the folder. Class names come from `classnames.txt`, one a line, or else from the table. A path
    that is not there goes to `Dataset.missing`.

    Args:
        name: of the data set.
        folder: that holds the table.

    Raises:
        ArgumentError: the table cannot be used; the message names the line.
        LabelError: `classnames.txt` cannot be read.
    """
    place = folder / TABLE
    rows = _read_rows(place)
    names = read_labels(folder / NAMES) if (folder / NAMES).is_file() else _names_of(place, rows)
    listed: dict[str, int] = {}
    for line, row in rows:
        key, label = _check_row(place, line, row, names)
        if key in listed:
            raise ArgumentError(f"{place}, line {line}: {key} is there twice")
        listed[key] = label
    there = dict(present(folder, listed.items()))
    samples = tuple(Sample(key, folder / key, label) for key, label in there.items())
    missing = tuple(key for key in listed if key not in there)
    return Dataset(name, folder, f"the table {place}", "all", names, samples, missing)


def _read_rows(place: Path) -> list[tuple[int, Row]]:
    try:
        with place.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or []
            rows = [(reader.line_num, row) for row in reader]
    except UnicodeDecodeError:
        raise ArgumentError(f"{place}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise ArgumentError(f"{place}: cannot be read: {reason_of(error)}") from None
    for column in ("path", "label"):
        if column not in columns:
            raise ArgumentError(f"{place}: has no column {column!r}; its first line must be path,label[,class_name]")
        if list(columns).count(column) > 1:
            raise ArgumentError(f"{place}: has the column {column!r} twice; which of them counts?")
    if not rows:
        raise ArgumentError(f"{place}: lists no image")
    return rows


def _check_row(place: Path, line: int, row: Row, names: Sequence[str]) -> tuple[str, int]:
    key, text, title = clean_key(row["path"] or ""), row["label"] or "", row.get("class_name") or ""
    if key is None:
        raise ArgumentError(f"{place}, line {line}: the path {row['path'] or ''!r} does not lie below the folder")
    label = _number(text)
    if label is None or label >= len(names):
        raise ArgumentError(f"{place}, line {line}: the label {text!r} is no class; use 0 to {len(names) - 1}")
    if title and _alike(title) != _alike(names[label]):
        raise ArgumentError(f"{place}, line {line}: class {label} is {names[label]!r}, but is called {title!r}")
    return key, label


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() and len(text) < 10 else None


def _names_of(place: Path, rows: Sequence[tuple[int, Row]]) -> tuple[str, ...]:
    """Take class names from the table itself."""
    found: dict[int, str] = {}
    for line, row in rows:
        label, title = _number(row["label"] or ""), (row.get("class_name") or "").strip()
        if not title:
            raise ArgumentError(
                f"{place}: there is no {NAMES} beside it, and line {line} has no class_name; give either"
            )
        if label is None:
            raise ArgumentError(f"{place}, line {line}: the label {row['label'] or ''!r} is no class; count from 0")
        if _alike(found.setdefault(label, title)) != _alike(title):
            raise ArgumentError(f"{place}, line {line}: class {label} is {found[label]!r}, but is called {title!r}")
    if sorted(found) != [*range(len(found))]:
        raise ArgumentError(f"{place}: labels are not 0 to {len(found) - 1} without a gap; name all classes in {NAMES}")
    return tuple(found[label] for label in range(len(found)))


def _alike(name: str) -> str:
    return name.replace("_", " ").strip().casefold()
