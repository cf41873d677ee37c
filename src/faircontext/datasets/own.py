"""Data sets of one's own: a folder of class folders, or a table `labels.csv` beside `classnames.txt`."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from faircontext.datasets.folder import is_folder, list_entries, read_labels
from faircontext.datasets.spec import Dataset, Sample
from faircontext.errors import ArgumentError
from faircontext.imageio import EXTENSIONS

__all__ = ["load_own", "samples_below"]

TABLE, NAMES = "labels.csv", "classnames.txt"
INNER = ("", "images", "test", "val")
"""Where class folders may lie in a data set's folder."""


def load_own(folder: Path) -> Dataset:
    """Read a folder as a data set.

    Raises:
        ArgumentError: the folder is none, or is not laid out as a data set; the message says where and how.
    """
    name = folder.resolve().name
    if not folder.is_dir():
        raise ArgumentError(f"{folder}: no such folder; see faircontext data list for the data sets that are known")
    if (folder / TABLE).is_file():
        return _read_table(name, folder)
    for inner in INNER:
        place = folder / inner
        folders = [entry for entry in list_entries(place) if is_folder(entry)] if place.is_dir() else []
        classes = [entry for entry in folders if any(_images(entry))]
        if classes and not (inner == "" and {entry.name for entry in classes} <= {*INNER}):
            return _read_folders(name, folder, place, folders)
    raise ArgumentError(f"{folder}: neither {TABLE} nor folders of images named after classes; see docs, Data sets")


def _images(folder: Path) -> Iterator[Path]:
    for entry in list_entries(folder):
        if is_folder(entry):
            yield from _images(entry)
        elif entry.suffix.lower() in EXTENSIONS:
            yield entry


def samples_below(place: Path, folders: Sequence[tuple[Path, int]]) -> tuple[Sample, ...]:
    """Return the images in some class folders, with the label of each folder; keys are relative to `place`."""
    return tuple(
        Sample(path.relative_to(place).as_posix(), path, label) for folder, label in folders for path in _images(folder)
    )


def _read_folders(name: str, folder: Path, place: Path, folders: Sequence[Path]) -> Dataset:
    names = tuple(entry.name for entry in folders)
    remarks = []
    if (folder / NAMES).is_file():
        given = read_labels(folder / NAMES)
        if len(given) == len(names):
            names = given
            order = ", ".join(f"{entry.name} = {title}" for entry, title in list(zip(folders, given, strict=True))[:5])
            remarks.append(f"class names are from {NAMES}, in the order of the folders: {order} ...")
        else:
            raise ArgumentError(
                f"{folder / NAMES}: {len(given)} names for {len(names)} class folders; give one for each, in order"
            )
    elif all(entry.isdecimal() for entry in names):
        remarks.append(f"class folders are integers, and so are the class names; give names in {NAMES}")
    samples = samples_below(place, [(entry, label) for label, entry in enumerate(folders)])
    return Dataset(name, folder, f"class folders in {place}", "all", names, samples, remarks=tuple(remarks))


def _read_table(name: str, folder: Path) -> Dataset:
    place = folder / TABLE
    try:
        with place.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or []
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ArgumentError(f"{place}: cannot be read: {reason.lower()}") from None
    for column in ("path", "label"):
        if column not in columns:
            raise ArgumentError(f"{place}: has no column {column!r}; its first line must be path,label[,class_name]")
    names = read_labels(folder / NAMES) if (folder / NAMES).is_file() else _names_of(place, rows)
    samples, missing, seen = [], [], set()
    for line, row in rows:
        key, label = _check_row(place, line, row, names)
        if key in seen:
            raise ArgumentError(f"{place}, line {line}: {key} is there twice")
        seen.add(key)
        if (folder / key).is_file():
            samples.append(Sample(key, folder / key, label))
        else:
            missing.append(key)
    return Dataset(name, folder, f"the table {place}", "all", names, tuple(samples), tuple(missing))


def _check_row(place: Path, line: int, row: dict[str, str | None], names: Sequence[str]) -> tuple[str, int]:
    key, text, title = row["path"] or "", row["label"] or "", row.get("class_name") or ""
    if not key or PurePosixPath(key).is_absolute() or ".." in PurePosixPath(key).parts:
        raise ArgumentError(f"{place}, line {line}: the path {key!r} does not lie below the folder")
    if not text.strip().isdecimal() or int(text) >= len(names):
        raise ArgumentError(f"{place}, line {line}: the label {text!r} is no class; use 0 to {len(names) - 1}")
    if title and _alike(title) != _alike(names[int(text)]):
        raise ArgumentError(f"{place}, line {line}: class {int(text)} is {names[int(text)]!r}, but is called {title!r}")
    return key, int(text)


def _names_of(place: Path, rows: Sequence[tuple[int, dict[str, str | None]]]) -> tuple[str, ...]:
    """Take class names from the table itself."""
    found: dict[int, str] = {}
    for line, row in rows:
        text, title = row["label"] or "", row.get("class_name") or ""
        if not title:
            raise ArgumentError(
                f"{place}: there is no {NAMES} beside it, and line {line} has no class_name; give either"
            )
        if text.strip().isdecimal() and _alike(found.setdefault(int(text), title)) != _alike(title):
            raise ArgumentError(f"{place}, line {line}: class {text} is {found[int(text)]!r}, but is called {title!r}")
    if sorted(found) != [*range(len(found))]:
        raise ArgumentError(f"{place}: labels are not 0 to {len(found) - 1} without a gap; name all classes in {NAMES}")
    return tuple(found[label] for label in range(len(found)))


def _alike(name: str) -> str:
    return name.replace("_", " ").strip().casefold()
