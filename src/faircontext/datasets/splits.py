"""Data sets whose images, labels and class names are listed by a split file, as CoOp's, or by official text files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from faircontext.errors import ArgumentError

__all__ = ["Listed", "Split", "present", "read_aircraft", "read_official", "read_split"]

Listed = tuple[tuple[str, ...], tuple[tuple[str, int], ...]]
"""Class names, and (path, label) of each image."""


@dataclass(frozen=True)
class Split:
    """What a split file says.

    Attributes:
        names: class names by label.
        parts: (path, label) of the images of `train`, `val` and `test`.
    """

    names: tuple[str, ...]
    parts: Mapping[str, tuple[tuple[str, int], ...]]


def read_split(path: Path) -> Split:
    """Read `split_zhou_*.json`: three lists of [path, label, class name].

    Raises:
        ArgumentError: it is not of this form; the message names the entry.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: cannot be read as JSON ({type(error).__name__}: {error})") from None
    names: dict[int, str] = {}
    parts = {}
    for part in ("train", "val", "test"):
        entries = document.get(part) if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise ArgumentError(f"{path}: has no list {part!r}; it is no split file of CoOp's form")
        parts[part] = tuple(_read_entry(path, part, place, entry, names) for place, entry in enumerate(entries))
    if sorted(names) != [*range(len(names))]:
        raise ArgumentError(f"{path}: labels are not 0 to {len(names) - 1} without a gap")
    return Split(tuple(names[label] for label in range(len(names))), parts)


def _read_entry(path: Path, part: str, place: int, entry: Any, names: dict[int, str]) -> tuple[str, int]:
    where = f"{path}: {part}[{place}]"
    kinds = [type(value) for value in entry] if isinstance(entry, list) else []
    if kinds != [str, int, str]:
        raise ArgumentError(f"{where} is not [path, label, class name]")
    key, label, name = entry
    key = key.lstrip("/")
    if ".." in PurePosixPath(key).parts or not key:
        raise ArgumentError(f"{where}: the path {key!r} leaves the folder")
    if names.setdefault(label, name) != name:
        raise ArgumentError(f"{where}: class {label} is {names[label]!r}, but is called {name!r}")
    return key, label


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: cannot be read ({type(error).__name__})") from None


def read_aircraft(folder: Path, part: str) -> Listed:
    """Read FGVC-Aircraft's `variants.txt` and `images_variant_*.txt`; a line is a number and a name with blanks.

    Raises:
        ArgumentError: a file is missing, or a line names no variant.
    """
    names = tuple(_lines(folder / "variants.txt"))
    labels = {name: label for label, name in enumerate(names)}
    path = folder / f"images_variant_{part}.txt"
    found = []
    for number, line in enumerate(_lines(path), 1):
        image, _, variant = line.partition(" ")
        if variant not in labels:
            raise ArgumentError(f"{path}, line {number}: {variant!r} is not in variants.txt")
        found.append((f"{image}.jpg", labels[variant]))
    return names, tuple(found)


def read_official(name: str, folder: Path, split: Split) -> tuple[tuple[str, int], ...]:
    """Return (path, label) of the official test images of `dtd`, `food101` or `oxford_flowers`.

    Labels are those of the split file: a class's folder is the one in which the split file has its images.

    Raises:
        ArgumentError: the official list is missing, or names a class that the split file does not have.
    """
    if name == "oxford_flowers":
        return _read_flowers(folder)
    listing = folder / ("labels/test1.txt" if name == "dtd" else "meta/test.txt")
    labels = {key.partition("/")[0]: label for part in split.parts.values() for key, label in part}
    found = []
    for number, line in enumerate(_lines(listing), 1):
        key = line if line.endswith(".jpg") else f"{line}.jpg"
        if key.partition("/")[0] not in labels:
            raise ArgumentError(f"{listing}, line {number}: {key!r} is of no class of the split file")
        found.append((key, labels[key.partition("/")[0]]))
    return tuple(found)


def _read_flowers(folder: Path) -> tuple[tuple[str, int], ...]:
    from scipy.io import loadmat

    try:
        chosen = loadmat(folder / "setid.mat")["tstid"].ravel()
        labels = loadmat(folder / "imagelabels.mat")["labels"].ravel()
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError(
            f"{folder}: needs setid.mat and imagelabels.mat ({type(error).__name__}: {error})"
        ) from None
    return tuple((f"image_{number:05}.jpg", int(labels[number - 1]) - 1) for number in sorted(chosen.tolist()))


def present(place: Path, listed: Iterable[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """Return which of the listed images are below a folder."""
    return [(key, label) for key, label in listed if (place / key).is_file()]
