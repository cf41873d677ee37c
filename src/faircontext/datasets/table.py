"""Data sets listed by a table, `labels.csv`, with names in `classnames.txt`; and files that a list names.

A listed path may be written in another way than on disk, see `find_listed`.
"""

import csv
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from faircontext.datasets.spec import Dataset, Sample
from faircontext.errors import ArgumentError, reason_of
from faircontext.imageio import EXTENSIONS
from faircontext.names import ClassIndex, compose, count_from_one, normalise, read_labels

__all__ = ["NAMES", "TABLE", "check_gapless", "clean_key", "find_listed", "is_there", "read_table", "roots_of"]

TABLE, NAMES = "labels.csv", "classnames.txt"

INTEGER = re.compile(r"(\d{1,9})(\.0*)?")
"""A label, perhaps as spreadsheets write the integers of a column with gaps."""


@dataclass(frozen=True)
class _Row:
    """A line of the table: its cells as they are written, the last two without the blanks around them."""

    line: int
    path: str
    label: str
    class_name: str

    @property
    def number(self) -> int | None:
        """The label where it is an integer."""
        found = INTEGER.fullmatch(self.label)
        return None if found is None else int(found[1])


def is_there(place: Path) -> bool:
    """Return whether a file of a data set is there.

    Raises:
        ArgumentError: what has its name is no file, or a link to nothing, and would be passed over in silence.
    """
    if os.path.lexists(place) and not place.is_file():
        raise ArgumentError(f"{place}: is no file, or a link to nothing; put the file there, or take it away")
    return place.is_file()


def read_table(name: str, folder: Path) -> Dataset:
    """Read `labels.csv`: columns `path` and `label`, perhaps `class_name`; others are left out.

    Paths are relative to the folder; how they may be written otherwise see `find_listed`. A label is the index of a
    class, or its name. Class names come from `classnames.txt`, one a line, or else from the table. A path that is not
    there goes to `Dataset.missing`.

    Args:
        name: of the data set.
        folder: that holds the table.

    Raises:
        ArgumentError: the table cannot be used; the message names the line.
        LabelError: `classnames.txt` cannot be read.
    """
    place = folder / TABLE
    rows = _read_rows(place)
    if is_there(folder / NAMES):
        names = read_labels(folder / NAMES)
        remarks = _check_start(place, rows, names)
    else:
        names, remarks = _names_of(place, rows)
    index, roots = ClassIndex(names), roots_of(folder)
    listed: dict[str, int] = {}
    for row in rows:
        key = clean_key(row.path, roots)
        if key is None:
            raise ArgumentError(f"{place}, line {row.line}: the path {row.path!r} does not lie below the folder")
        if key in listed:
            raise ArgumentError(f"{place}, line {row.line}: {key} is there twice")
        listed[key] = _label_of(place, row, names, index)
    there = find_listed(folder, listed, str(place))
    samples = tuple(Sample(there[key], folder / there[key], label) for key, label in listed.items() if key in there)
    missing = tuple(key for key in listed if key not in there)
    return Dataset(name, folder, f"the table {place}", "all", names, samples, missing, remarks=tuple(remarks))


def _read_rows(place: Path) -> list[_Row]:
    """Return the lines that are not blank."""
    try:
        with place.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines, start = list[tuple[int, list[str]]](), 1
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    lines.append((start, cells))
                start = reader.line_num + 1
    except UnicodeDecodeError:
        raise ArgumentError(f"{place}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise ArgumentError(f"{place}: cannot be read: {reason_of(error)}") from None
    head = lines.pop(0)[1] if lines else []
    columns = [title.strip() for title in head]
    for column in ("path", "label"):
        if column not in columns:
            raise ArgumentError(
                f"{place}: has no column {column!r}; its first line must be path,label[,class_name], and is "
                f"{','.join(head)!r:.200}"
            )
        if columns.count(column) > 1:
            raise ArgumentError(f"{place}: has the column {column!r} twice; which of them counts?")
    if not lines:
        raise ArgumentError(f"{place}: lists no image")
    found = []
    for line, cells in lines:
        named = dict(zip(columns, cells, strict=False))  # a line may be short, or longer than the first
        if len(cells) < len(columns) and any("\n" in cell or "\r" in cell for cell in cells):
            raise ArgumentError(f"{place}, line {line}: a quotation mark in it is not closed")
        label, title = named.get("label", "").strip(), named.get("class_name", "").strip()
        found.append(_Row(line, named.get("path", ""), label, compose(title)))
    return found


def _label_of(place: Path, row: _Row, names: Sequence[str], index: ClassIndex) -> int:
    """Return the class of a line: its label is an index, or names one of the classes."""
    named = () if row.label.isdecimal() else index.find_all(row.label)  # first, as a name may be 1.0
    label = named[0] if named else row.number
    if label is None or label >= len(names):
        raise ArgumentError(
            f"{place}, line {row.line}: the label {row.label[:60]!r} is no class; use 0 to {len(names) - 1}, or a "
            "class name"
        )
    if row.class_name and label not in index.find_all(row.class_name):
        raise ArgumentError(
            f"{place}, line {row.line}: class {label} is {names[label]!r}, but is called {row.class_name!r}"
        )
    return label


def _check_start(place: Path, rows: Sequence[_Row], names: Sequence[str]) -> list[str]:
    """Look for labels that count from 1: refuse them where that is certain, and return a remark where it may be so."""
    labels = {row.number for row in rows if row.number is not None}
    odd = count_from_one(labels, names) if all(row.number is not None for row in rows) else ""
    if odd and max(labels) == len(names):
        raise ArgumentError(f"{place}: labels count from 1: {odd}")
    checked = all(row.class_name for row in rows)
    return [f"labels may count from 1: {odd}"] if odd and not checked else []


def _names_of(place: Path, rows: Sequence[_Row]) -> tuple[tuple[str, ...], list[str]]:
    """Take class names from the table itself, from labels where these are words; return them and remarks."""
    words = {normalise(row.label): compose(row.label) for row in reversed(rows)}
    titled = all(normalise(row.class_name) in ("", normalise(row.label)) for row in rows)
    if titled and "" not in words and all(row.number is None for row in rows):
        names = tuple(sorted(words.values()))
        return names, [f"labels are class names: {len(names)} classes, in sorted order"]
    found: dict[int, str] = {}
    for row in rows:
        where, label = f"{place}, line {row.line}", row.number
        if not row.class_name:
            raise ArgumentError(
                f"{place}: there is no {NAMES} beside it, and line {row.line} has no class_name; give either"
            )
        if label is None:
            raise ArgumentError(f"{where}: the label {row.label[:60]!r} is no class; count from 0")
        if normalise(found.setdefault(label, row.class_name)) != normalise(row.class_name):
            raise ArgumentError(f"{where}: class {label} is {found[label]!r}, but is called {row.class_name!r}")
    check_gapless(place, found, f"; name all classes in {NAMES}")
    return tuple(found[label] for label in range(len(found))), []


def check_gapless(path: Path, names: Mapping[int, str], hint: str = "") -> None:
    """Raise `ArgumentError` unless the labels of some class names are 0, 1, ... without a gap."""
    if sorted(names) != [*range(len(names))]:
        raise ArgumentError(
            f"{path}: labels are not 0 to {len(names) - 1} without a gap: {len(names)} of them, from {min(names)} to "
            f"{max(names)}{hint if 0 in names else '; count from 0'}"
        )


def clean_key(path: str, roots: Iterable[Path] = ()) -> str | None:
    """Return a relative path in its shortest form, or None where it does not lie below a folder.

    `..` is taken back as it is written, as if no folder were a link.

    Args:
        path: as listed.
        roots: absolute names of the folder; an absolute path inside it is made relative.
    """
    root = next((root for root in roots if Path(path).is_relative_to(root)), None)
    if root is not None:
        path = Path(path).relative_to(root).as_posix()
    if ".." in re.split(r"[/\\]", path):
        path = os.path.normpath(path.replace("\\", "/"))
    parts = PurePosixPath(path)
    leaves = parts.is_absolute() or parts.parts[:1] == ("..",)
    return None if leaves or not path.strip() or not parts.parts or "\0" in path else str(parts)


def roots_of(folder: Path) -> tuple[Path, ...]:
    """Return the absolute names of a folder: with its links as they are, and with links followed."""
    return Path(os.path.abspath(folder)), Path(os.path.realpath(folder))  # noqa: PTH100 (keeps links, unlike resolve)


def find_listed(place: Path, listed: Iterable[str], where: str) -> dict[str, str]:
    """Return, for each listed path whose file is there, the path of that file below the folder.

    The path as it is written counts first. Where there is no such file, blanks around it are left out, backslashes are
    taken for slashes, an absolute path inside the folder is made relative, a name may be in another Unicode
    composition, and the extension may be missing where one image has that name.

    Args:
        place: the folder of images.
        listed: paths, see `clean_key`.
        where: what lists them, for messages.

    Raises:
        ArgumentError: a path stands for several files, or two for one.
    """
    listing, found, taken = _Listing(place, where), dict[str, str](), dict[str, str]()
    for key in listed:
        # Unlike Path's, this answers for names that cannot exist, and in a third of the time.
        there = os.path.isfile(os.path.join(place, key))  # noqa: PTH113, PTH118
        real = key if there else listing.find(key)
        if real is None:
            continue
        if taken.setdefault(real, key) != key:
            raise ArgumentError(f"{where}: {taken[real]!r} and {key!r} are one file, {real}; list it once")
        found[key] = real
    return found


class _Listing:
    """What lies below a folder, read where a path is not there as it is written; each folder is looked at once."""

    def __init__(self, place: Path, where: str) -> None:
        self._place, self._where, self._roots = place, where, roots_of(place)
        self._entries: dict[str, Mapping[str, list[str]]] = {}
        self._folders: dict[str, str | None] = {"": ""}

    def find(self, key: str) -> str | None:
        """Return the path of the file that a path stands for, or None."""
        plain = key.strip().replace("\\", "/")
        forms: list[str | None] = [key]
        if plain != key:
            forms.append(clean_key(plain, self._roots))
        if any(f"/{plain}".startswith(root.as_posix()) for root in self._roots):  # its slash has been left out
            forms.append(clean_key(f"/{plain}", self._roots))
        walked = (self._walk(form) for form in dict.fromkeys(forms) if form is not None)
        return next((real for real in walked if real is not None), None)

    def _walk(self, key: str) -> str | None:
        above, _, name = key.rpartition("/")
        folder = self._enter(above)
        if folder is None:
            return None
        entries = self._read(folder)
        # Unlike Path's, these answer for files that may not be looked at.
        files = [path for path in entries.get(compose(name), ()) if os.path.isfile(self._place / path)]  # noqa: PTH113
        if not files and Path(name).suffix.lower() not in EXTENSIONS:
            files = entries.get(f"{compose(name)}/", [])
        return self._only(key, files)

    def _enter(self, key: str) -> str | None:
        """Return the path of the folder that a path stands for, or None."""
        if key not in self._folders:
            above, _, name = key.rpartition("/")
            folder = self._enter(above)
            if folder is not None:
                there = f"{folder}/{name}".removeprefix("/")
                paths = self._read(folder).get(compose(name), ())
                folders = [path for path in paths if os.path.isdir(self._place / path)]  # noqa: PTH112
                folder = there if there in folders else self._only(key, folders)
            self._folders[key] = folder
        return self._folders[key]

    def _only(self, key: str, found: list[str]) -> str | None:
        if len(found) > 1:
            raise ArgumentError(f"{self._where}: {key!r} may be {' or '.join(found)}; write the one that is meant")
        return found[0] if found else None

    def _read(self, folder: str) -> Mapping[str, list[str]]:
        """Return the paths in a folder by composed name, and, with a slash after it, by name without extension."""
        if folder not in self._entries:
            entries = defaultdict[str, list[str]](list)
            try:
                names = sorted(entry.name for entry in (self._place / folder).iterdir())
            except OSError:  # no folder, or one that may not be read
                names = []
            for name in names:
                path = f"{folder}/{name}".removeprefix("/")
                entries[compose(name)].append(path)
                if Path(name).suffix.lower() in EXTENSIONS:
                    entries[f"{compose(Path(name).stem)}/"].append(path)
            self._entries[folder] = entries
        return self._entries[folder]
