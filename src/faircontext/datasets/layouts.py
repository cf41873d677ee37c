"""Files that list labelled images: CoOp's split files and official lists.

Also the classes of ImageNet and its variants: their names are those of CLIP's authors. Two of the 1,000 names occur
twice (missile, sunglasses), so classes are known by index. The variants A and R have 200 classes each: a label is the
rank of its wnid among their sorted wnids.
"""

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from faircontext.datasets.folder import clean_key
from faircontext.errors import ArgumentError, reason_of
from faircontext.names import compose, normalise

NAMES = "classnames.txt"
"""The file that names the classes of a data set, one a line in the order of labels."""

Rows = tuple[tuple[str, int], ...]
"""(path, label) of each image."""


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
    return Split(check_gapless(path, names), parts)


def _read_entry(where: str, entry: Any, names: dict[int, str]) -> tuple[str, int]:
    path_text, label, name = entry if isinstance(entry, list) and len(entry) == 3 else (None, None, None)
    if isinstance(label, float) and label.is_integer():  # as tools that know no integers write them
        label = int(label)
    if not isinstance(path_text, str) or type(label) is not int or not isinstance(name, str) or not name.strip():
        raise ArgumentError(f"{where} is not [path, label, class name] with an integer for the label: {entry!r:.200}")
    key = clean_key(path_text.removeprefix("/"))
    if key is None:
        raise ArgumentError(f"{where}: the path {path_text!r} leaves the folder of images")
    add_name(names, label, compose(name).strip(), where)
    return key, label


def add_name(names: dict[int, str], label: int, name: str, where: str) -> None:
    """Note what a class is called, and raise `ArgumentError` where it was called otherwise before."""
    if normalise(names.setdefault(label, name)) != normalise(name):
        raise ArgumentError(f"{where}: class {label} is {names[label]!r}, but is called {name!r}")


def check_gapless(path: Path | str, names: Mapping[int, str], hint: str = "") -> tuple[str, ...]:
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
