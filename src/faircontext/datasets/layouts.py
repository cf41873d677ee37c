"""Files that list labelled images: CoOp's split files, official lists, and `labels.csv` with `classnames.txt`.

Also the classes of ImageNet and its variants: their names are those of CLIP's authors. Two of the 1,000 names occur
twice (missile, sunglasses), so classes are known by index. The variants A and R have 200 classes each: a label is the
rank of its wnid among their sorted wnids.
"""

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from faircontext.datasets.folder import clean_key, roots_of
from faircontext.datasets.image_tables import SEPARATOR, SEVERAL
from faircontext.errors import ArgumentError, counted, reason_of
from faircontext.names import ClassIndex, compose, count_from_one, normalise, read_labels

TABLE, NAMES = "labels.csv", "classnames.txt"

Rows = tuple[tuple[str, int], ...]
"""(path, label) of each image."""

TableRows = tuple[tuple[str, int | tuple[int, ...]], ...]
"""The same, of which an image may have several labels."""


class Split(NamedTuple):
    """What a split file says: class names by label, and the images of `train`, `val` and `test`."""

    names: tuple[str, ...]
    parts: Mapping[str, Rows]


def read_split(path: Path) -> Split:
    """Read `split_zhou_*.json`: three lists of [path, label, class name].

    Paths are relative to the folder of images; one slash before them, as in SUN397's own lists, is left out.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: cannot be read as JSON ({type(error).__name__}: {error})") from None
    names: dict[int, str] = {}
    parts = {}
    for part in ("train", "val", "test"):
        entries = document.get(part) if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise ArgumentError(f"{path}: has no list {part!r}; it is no split file of CoOp's form")
        rows = (_read_entry(f"{path}: {part}[{index}]", entry, names) for index, entry in enumerate(entries))
        parts[part] = _check_once(path, part, rows)
    if not names:
        raise ArgumentError(f"{path}: lists no image")
    return Split(_check_gapless(path, names), parts)


def _read_entry(where: str, entry: Any, names: dict[int, str]) -> tuple[str, int]:
    path_text, label, name = entry if isinstance(entry, list) and len(entry) == 3 else (None, None, None)
    if isinstance(label, float) and label.is_integer():  # as tools that know no integers write them
        label = int(label)
    if not isinstance(path_text, str) or type(label) is not int or not isinstance(name, str) or not name.strip():
        raise ArgumentError(f"{where} is not [path, label, class name] with an integer for the label: {entry!r:.200}")
    key = clean_key(path_text.removeprefix("/"))
    if key is None:
        raise ArgumentError(f"{where}: the path {path_text!r} leaves the folder of images")
    _add_name(names, label, compose(name).strip(), where)
    return key, label


def _add_name(names: dict[int, str], label: int, name: str, where: str) -> None:
    """Note what a class is called, and raise `ArgumentError` where it was called otherwise before."""
    if normalise(names.setdefault(label, name)) != normalise(name):
        raise ArgumentError(f"{where}: class {label} is {names[label]!r}, but is called {name!r}")


def _check_gapless(path: Path, names: Mapping[int, str], hint: str = "") -> tuple[str, ...]:
    """Return class names by label, which must be 0, 1, ... without a gap."""
    if sorted(names) != [*range(len(names))]:
        raise ArgumentError(
            f"{path}: labels are not 0 to {len(names) - 1} without a gap: {len(names)} of them, from {min(names)} to "
            f"{max(names)}{hint if 0 in names else '; count from 0'}"
        )
    return tuple(names[label] for label in range(len(names)))


def _check_once(path: Path, part: str, rows: Iterable[tuple[str, int]]) -> Rows:
    rows, seen = tuple(rows), dict[str, int]()
    for index, (key, _) in enumerate(rows):
        if seen.setdefault(key, index) != index:
            raise ArgumentError(f"{path}: {part}[{index}]: {key} is there twice, first as {part}[{seen[key]}]")
    return rows


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError:
        raise ArgumentError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise ArgumentError(f"{path}: {reason_of(error)}; it is part of the archive") from None


def read_aircraft(folder: Path, part: str) -> tuple[tuple[str, ...], Rows]:
    """Read FGVC-Aircraft's `variants.txt` and `images_variant_*.txt`; a line is a number and a name with blanks."""
    names = tuple(_lines(folder / "variants.txt"))
    labels = {name: label for label, name in enumerate(names)}
    path = folder / f"images_variant_{part}.txt"
    rows = []
    for number, line in enumerate(_lines(path), 1):
        image, _, variant = line.partition(" ")
        key = clean_key(f"{image}.jpg")
        if variant not in labels:
            raise ArgumentError(f"{path}, line {number}: {variant!r} is not in variants.txt")
        if key is None:
            raise ArgumentError(f"{path}, line {number}: the path {image!r} leaves the folder")
        rows.append((key, labels[variant]))
    return names, _check_once(path, "line", rows)


def official_list(name: str, folder: Path) -> Path:
    """Return where the official list of test images of `dtd`, `food101` or `oxford_flowers` lies in a folder."""
    if name == "food101" and not (folder / "meta/test.txt").is_file() and (folder / "meta/test.json").is_file():
        return folder / "meta/test.json"
    return folder / {"dtd": "labels/test1.txt", "food101": "meta/test.txt", "oxford_flowers": "setid.mat"}[name]


def read_official(name: str, folder: Path, split: Split) -> Rows:
    """Return (path, label) of the official test images of `dtd`, `food101` or `oxford_flowers`.

    Labels are those of the split file: a class's folder is the one in which the split file has its images.
    """
    listing = official_list(name, folder)
    if name == "oxford_flowers":
        return _read_flowers(folder, split)
    labels = {key.partition("/")[0]: label for part in split.parts.values() for key, label in part}
    rows = []
    for number, line in enumerate(_food_keys(listing) if listing.suffix == ".json" else _lines(listing), 1):
        key = clean_key(line if line.endswith(".jpg") else f"{line}.jpg")
        if key is None or key.partition("/")[0] not in labels:
            raise ArgumentError(f"{listing}, line {number}: {line!r} is of no class of the split file")
        rows.append((key, labels[key.partition("/")[0]]))
    return _check_once(listing, "line", rows)


def _food_keys(listing: Path) -> list[str]:
    try:
        return [str(key) for keys in json.loads(listing.read_text(encoding="utf-8")).values() for key in keys]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ArgumentError(f"{listing}: is no mapping from classes to images ({type(error).__name__})") from None


def _read_flowers(folder: Path, split: Split) -> Rows:
    from scipy.io import loadmat

    try:
        chosen = sorted(loadmat(folder / "setid.mat")["tstid"].ravel().tolist())
        labels = loadmat(folder / "imagelabels.mat")["labels"].ravel().tolist()
        rows = tuple((f"image_{number:05}.jpg", int(labels[number - 1]) - 1) for number in chosen)
    except Exception as error:  # what scipy raises on files that are none of MATLAB's is not documented
        raise ArgumentError(f"{folder}: needs setid.mat and imagelabels.mat of the data set ({error})") from None
    known = {key: label for part in split.parts.values() for key, label in part}
    for key, label in rows:
        if known.get(key, label) != label or not 0 <= label < len(split.names):
            raise ArgumentError(f"{folder / 'imagelabels.mat'}: {key} is of class {label}, but not in the split file")
    return rows


@cache
def imagenet_wnids(variant: str = "") -> tuple[str, ...]:
    """Return the wnids by label, of all 1,000 classes or of a variant: `a` or `r`."""
    name = f"imagenet_{variant}_synsets.txt" if variant else "imagenet_synsets.txt"
    return tuple((files("timm.data") / "_info" / name).read_text(encoding="utf-8").split())


def imagenet_names(variant: str = "") -> tuple[str, ...]:
    """Return the class names by label; see `imagenet_wnids`."""
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES  # takes seconds to import

    names = dict(zip(imagenet_wnids(), IMAGENET_CLASSNAMES, strict=True))
    return tuple(names[wnid] for wnid in imagenet_wnids(variant))


def is_there(path: Path) -> bool:
    """Return whether a file of a data set is there."""
    if os.path.lexists(path) and not path.is_file():
        raise ArgumentError(f"{path}: is no file, or a link to nothing; put the file there, or take it away")
    return path.is_file()


class _Row(NamedTuple):
    """A line of the table: its cells as they are written, the last two without the blanks around them."""

    where: str
    path: str
    label: str
    class_name: str

    @property
    def integer(self) -> int | None:
        """The label where it is an integer, perhaps as spreadsheets write those of a column with gaps."""
        match = re.fullmatch(r"(\d{1,9})(\.0*)?", self.label)
        return None if match is None else int(match[1])


def read_table(folder: Path, several: bool = False) -> tuple[tuple[str, ...], TableRows, list[str]]:
    """Read `labels.csv`: columns `path` and `label`, perhaps `class_name`; others are left out.

    Paths are relative to the folder; how they may be written otherwise see `find_listed`. A label is the index of a
    class, or its name. Class names come from `classnames.txt`, one a line, or else from the table.

    Args:
        folder: of the data set.
        several: whether an image may have several labels, with `;` between in its cell; an empty cell has none. They
            stand in the column `labels`, or else in those of the label and its name.
    """
    path = folder / TABLE
    rows = _read_rows(path, several)
    parts = {row.where: _labels_in(row) if several else (row,) for row in rows}
    single = [part for own in parts.values() for part in own]
    if is_there(folder / NAMES):
        names = read_labels(folder / NAMES)
        warnings = _check_start(path, single, names)
        warnings = [] if several else warnings  # few images have few of the labels
    elif not single:
        raise ArgumentError(
            f"{path}: gives no image a label, and there is no {NAMES} beside it; name the classes there"
        )
    else:
        names, warnings = _names_of(path, single)
    index, roots = ClassIndex(names), roots_of(folder)
    labels: dict[str, int | tuple[int, ...]] = {}
    for row in rows:
        key = clean_key(row.path, roots)
        if key is None:
            raise ArgumentError(f"{row.where}: the path {row.path!r} does not lie below the folder")
        if key in labels:
            hint = f"; write all its labels in one cell, with {SEPARATOR} between" if several else ""
            raise ArgumentError(f"{row.where}: {key} is there twice{hint}")
        indices = [_label_of(part, names, index) for part in parts[row.where]]
        labels[key] = tuple(sorted({*indices})) if several else indices[0]
    if none := sum(label == () for label in labels.values()):
        warnings.append(f"{none:,} image{'s have' if none != 1 else ' has'} none of the classes: an empty cell")
    return names, tuple(labels.items()), warnings


def _labels_in(row: _Row) -> list[_Row]:
    """Return a line for each label of a line's cell."""
    labels, titles = ([word.strip() for word in text.split(SEPARATOR)] for text in (row.label, row.class_name))
    if row.class_name and len(titles) != len(labels):
        raise ArgumentError(f"{row.where}: has {len(labels)} labels and {len(titles)} class names; name each, or none")
    titles = titles if row.class_name else [""] * len(labels)
    return [row._replace(label=label, class_name=title) for label, title in zip(labels, titles, strict=True) if label]


def _read_rows(path: Path, several: bool = False) -> list[_Row]:
    """Return the lines that are not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines, start = list[tuple[int, list[str]]](), 1
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    lines.append((start, cells))
                start = reader.line_num + 1
    except UnicodeDecodeError:
        raise ArgumentError(f"{path}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}") from None
    head = lines.pop(0)[1] if lines else []
    columns = [title.strip() for title in head]
    if several and SEVERAL in columns:  # then those of a single label are for others
        columns = [{SEVERAL: "label", "label": "", "class_name": ""}.get(column, column) for column in columns]
    for column in ("path", "label"):
        if column not in columns:
            several_there = column == "label" and SEVERAL in columns
            hint = f"; its column {SEVERAL} is read with --multi-label" if several_there else ""
            raise ArgumentError(
                f"{path}: has no column {column!r}; its first line must be path,label[,class_name], and is "
                f"{','.join(head)!r:.200}{hint}"
            )
        if columns.count(column) > 1:
            raise ArgumentError(f"{path}: has the column {column!r} twice; which of them counts?")
    if not lines:
        raise ArgumentError(f"{path}: lists no image")
    rows = []
    for line, cells in lines:
        where = f"{path}, line {line}"
        named = dict(zip(columns, cells, strict=False))  # a line may be short, or longer than the first
        if len(cells) < len(columns) and any("\n" in cell or "\r" in cell for cell in cells):
            raise ArgumentError(f"{where}: a quotation mark in it is not closed")
        label, title = named.get("label", "").strip(), named.get("class_name", "").strip()
        rows.append(_Row(where, named.get("path", ""), label, compose(title)))
    return rows


def _label_of(row: _Row, names: Sequence[str], index: ClassIndex) -> int:
    """Return the class of a line: its label is an index, or names one of the classes."""
    named = () if row.label.isdecimal() else index.find_all(row.label)  # first, as a name may be 1.0
    label = named[0] if named else row.integer
    if label is None or label >= len(names):
        hint = "; several labels in a cell are read with --multi-label" if SEPARATOR in row.label else ""
        raise ArgumentError(
            f"{row.where}: the label {row.label[:60]!r} is no class; use 0 to {len(names) - 1}, or a class name{hint}"
        )
    if row.class_name and label not in index.find_all(row.class_name):
        raise ArgumentError(f"{row.where}: class {label} is {names[label]!r}, but is called {row.class_name!r}")
    return label


def _check_start(path: Path, rows: Sequence[_Row], names: Sequence[str]) -> list[str]:
    """Look for labels that count from 1: an error where that is certain, a warning where it may be so."""
    labels = [row.integer for row in rows if row.integer is not None]
    odd = count_from_one(labels, names) if len(labels) == len(rows) else ""
    if odd and max(labels) == len(names):
        raise ArgumentError(f"{path}: labels count from 1: {odd}")
    checked = all(row.class_name for row in rows)
    return [f"labels may count from 1: {odd}"] if odd and not checked else []


def _names_of(path: Path, rows: Sequence[_Row]) -> tuple[tuple[str, ...], list[str]]:
    """Take class names from the table itself, from labels where these are words; return them and warnings."""
    labels = {normalise(row.label): compose(row.label) for row in reversed(rows)}
    titled = all(normalise(row.class_name) in ("", normalise(row.label)) for row in rows)
    if titled and "" not in labels and all(row.integer is None for row in rows):
        names = tuple(sorted(labels.values()))
        joined = next((name for name in names if SEPARATOR in name), None)
        hint = f"; {joined!r} is one of them: several labels in a cell are read with --multi-label" if joined else ""
        return names, [f"labels are class names: {counted(len(names), 'class')}, in sorted order{hint}"]
    by_label: dict[int, str] = {}
    for row in rows:
        if not row.class_name:
            line = row.where.removeprefix(f"{path}, ")
            raise ArgumentError(f"{path}: there is no {NAMES} beside it, and {line} has no class_name; give either")
        if row.integer is None:
            raise ArgumentError(f"{row.where}: the label {row.label[:60]!r} is no class; count from 0")
        _add_name(by_label, row.integer, row.class_name, row.where)
    return _check_gapless(path, by_label, f"; name all classes in {NAMES}"), []
