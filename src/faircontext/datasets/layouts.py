"""Data sets in the layouts of CoOp and of their authors: split files, official lists, ImageNet's folders.

Of ImageNet and its variants labels are by wnid or integer folder, and class names those of CLIP's authors. Two of the
1,000 names occur twice (missile, sunglasses), so classes are known by index. The variants A and R have 200 classes
each: a label is the rank of its wnid among their sorted wnids.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from faircontext.datasets.own import WNID, samples_below
from faircontext.datasets.spec import Sample
from faircontext.datasets.table import check_gapless, clean_key
from faircontext.datasets.walk import is_folder, list_entries
from faircontext.errors import ArgumentError, reason_of
from faircontext.names import as_integer, compose, count_from_one, normalise

__all__ = [
    "Listed",
    "Rows",
    "Split",
    "imagenet_names",
    "imagenet_wnids",
    "official_list",
    "read_aircraft",
    "read_imagenet",
    "read_official",
    "read_split",
]

Rows = tuple[tuple[str, int], ...]
Listed = tuple[tuple[str, ...], Rows]
"""Class names, and (path, label) of each image."""


@dataclass(frozen=True)
class Split:
    """What a split file says.

    Attributes:
        names: class names by label.
        parts: (path, label) of the images of `train`, `val` and `test`.
    """

    names: tuple[str, ...]
    parts: Mapping[str, Rows]


def read_split(path: Path) -> Split:
    """Read `split_zhou_*.json`: three lists of [path, label, class name].

    Paths are relative to the folder of images; one slash before them, as in SUN397's own lists, is left out.

    Raises:
        ArgumentError: it is not of this form; the message names the entry.
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
        parts[part] = tuple(_read_entry(path, part, place, entry, names) for place, entry in enumerate(entries))
        _check_once(path, part, parts[part])
    if not names:
        raise ArgumentError(f"{path}: lists no image")
    check_gapless(path, names)
    return Split(tuple(names[label] for label in range(len(names))), parts)


def _read_entry(path: Path, part: str, place: int, entry: Any, names: dict[int, str]) -> tuple[str, int]:
    where = f"{path}: {part}[{place}]"
    path_text, number, name = entry if isinstance(entry, list) and len(entry) == 3 else (None, None, None)
    if isinstance(number, float) and number.is_integer():  # as tools that know no integers write them
        number = int(number)
    if not isinstance(path_text, str) or type(number) is not int or not isinstance(name, str) or not name.strip():
        raise ArgumentError(f"{where} is not [path, label, class name] with an integer for the label: {entry!r:.200}")
    key, name = clean_key(path_text.removeprefix("/")), compose(name).strip()
    if key is None:
        raise ArgumentError(f"{where}: the path {path_text!r} leaves the folder of images")
    if normalise(names.setdefault(number, name)) != normalise(name):
        raise ArgumentError(f"{where}: class {number} is {names[number]!r}, but is called {name!r}")
    return key, number


def _check_once(path: Path, part: str, rows: Rows) -> None:
    seen: dict[str, int] = {}
    for place, (key, _) in enumerate(rows):
        if seen.setdefault(key, place) != place:
            raise ArgumentError(f"{path}: {part}[{place}]: {key} is there twice, first as {part}[{seen[key]}]")


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError:
        raise ArgumentError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise ArgumentError(f"{path}: {reason_of(error)}; it is part of the archive") from None


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
        key = clean_key(f"{image}.jpg")
        if variant not in labels:
            raise ArgumentError(f"{path}, line {number}: {variant!r} is not in variants.txt")
        if key is None:
            raise ArgumentError(f"{path}, line {number}: the path {image!r} leaves the folder")
        found.append((key, labels[variant]))
    _check_once(path, "line", tuple(found))
    return names, tuple(found)


def official_list(name: str, folder: Path) -> Path:
    """Return where the official list of test images of `dtd`, `food101` or `oxford_flowers` lies in a folder."""
    if name == "food101" and not (folder / "meta/test.txt").is_file() and (folder / "meta/test.json").is_file():
        return folder / "meta/test.json"
    return folder / {"dtd": "labels/test1.txt", "food101": "meta/test.txt", "oxford_flowers": "setid.mat"}[name]


def read_official(name: str, folder: Path, split: Split) -> Rows:
    """Return (path, label) of the official test images of `dtd`, `food101` or `oxford_flowers`.

    Labels are those of the split file: a class's folder is the one in which the split file has its images.

    Raises:
        ArgumentError: the official list is missing, or does not agree with the split file.
    """
    listing = official_list(name, folder)
    if name == "oxford_flowers":
        return _read_flowers(folder, split)
    labels = {key.partition("/")[0]: label for part in split.parts.values() for key, label in part}
    found = []
    for number, line in enumerate(_food_keys(listing) if listing.suffix == ".json" else _lines(listing), 1):
        key = clean_key(line if line.endswith(".jpg") else f"{line}.jpg")
        if key is None or key.partition("/")[0] not in labels:
            raise ArgumentError(f"{listing}, line {number}: {line!r} is of no class of the split file")
        found.append((key, labels[key.partition("/")[0]]))
    _check_once(listing, "line", tuple(found))
    return tuple(found)


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
        found = tuple((f"image_{number:05}.jpg", int(labels[number - 1]) - 1) for number in chosen)
    except Exception as error:  # what scipy raises on files that are none of MATLAB's is not documented
        raise ArgumentError(f"{folder}: needs setid.mat and imagelabels.mat of the data set ({error})") from None
    known = {key: label for part in split.parts.values() for key, label in part}
    for key, label in found:
        if known.get(key, label) != label or not 0 <= label < len(split.names):
            raise ArgumentError(f"{folder / 'imagelabels.mat'}: {key} is of class {label}, but not in the split file")
    return found


FLAT = re.compile(r"ILSVRC2012_val_\d{8}\.JPEG")


@cache
def imagenet_wnids(variant: str = "") -> tuple[str, ...]:
    """Return the wnids by label, of all 1,000 classes or of a variant: `a` or `r`."""
    name = f"imagenet_{variant}_synsets.txt" if variant else "imagenet_synsets.txt"
    lines = (files("timm.data") / "_info" / name).read_text(encoding="utf-8").split()
    return tuple(lines)


def imagenet_names(variant: str = "") -> tuple[str, ...]:
    """Return the class names by label; see `imagenet_wnids`."""
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES  # takes seconds to import

    places = {wnid: place for place, wnid in enumerate(imagenet_wnids())}
    return tuple(IMAGENET_CLASSNAMES[places[wnid]] for wnid in imagenet_wnids(variant))


def read_imagenet(place: Path, variant: str = "") -> tuple[tuple[Sample, ...], list[str]]:
    """Return the images in wnid folders, or in folders 0 to 999 as of ImageNet-V2, in the order of labels, and remarks.

    Raises:
        ArgumentError: a folder is none of the classes, or two are the same one, or images lie without folders.
    """
    wnids = imagenet_wnids(variant)
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    folders: dict[int, Path] = {}
    flat = False
    for entry in list_entries(place):
        if not is_folder(entry):  # a README.txt lies beside the class folders of A and R
            flat = flat or bool(FLAT.fullmatch(entry.name))
        elif WNID.fullmatch(entry.name) or entry.name.isdecimal():
            number = None if variant else as_integer(entry.name)
            label = labels.get(entry.name, -1) if number is None else number
            if not 0 <= label < len(wnids):
                first = "" if variant or 0 in folders else "; folders count from 0, and there is no folder 0"
                raise ArgumentError(f"{entry}: is none of the {len(wnids)} classes; take it away{first}")
            if (other := folders.setdefault(label, entry)) != entry:
                raise ArgumentError(f"{entry}: is of the same class as {other.name}; take one away")
    if flat and not folders:
        raise ArgumentError(
            f"{place}: the validation images are not sorted into wnid folders; do so with the script valprep.sh that "
            "comes with many ImageNet recipes"
        )
    samples, remarks = samples_below(place, [(folders[label], label) for label in sorted(folders)])
    odd = count_from_one(folders, wnids) if all(folder.name.isdecimal() for folder in folders.values()) else ""
    return samples, [*remarks, *([f"folders may count from 1: {odd}"] if odd else [])]
