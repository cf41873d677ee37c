"""Layouts of published data sets: CoOp's split files and official lists, ImageNet's folders, and corrupted images.

ImageNet's classes are called as CLIP's authors call them. Two of the 1,000 names occur twice (missile, sunglasses), so
classes are known by index. The variants A and R have 200 classes each: a label is the rank of its wnid among their
sorted wnids.

Data sets whose images lie corrupted on disk have a part for each corruption and severity (Hendrycks & Dietterich,
2019), which is called `NAME:CORRUPTION:SEVERITY`:

    imagenet-c/CORRUPTION/SEVERITY/WNID/*.JPEG       as its archives unpack; a folder of the kind may lie between
    CIFAR-10-C/CORRUPTION.npy, labels.npy            five severities of equally many images, one after the other
    CIFAR-10-C/CORRUPTION/SEVERITY/CLASS/*.png       the same as class folders

Arrays are mapped into memory, never unpickled; an image is read when its turn comes. They come without names of
classes, which a text file beside them gives.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from faircontext.datasets.class_folders import WNID, ClassFolders, read_class_folders, samples_below
from faircontext.datasets.folder import NAMES, clean_key, is_folder, is_there, list_entries
from faircontext.datasets.label_encoder import add_name, check_gapless
from faircontext.datasets.listing import ImageList
from faircontext.datasets.spec import Dataset, DatasetSpec, Sample, imagenet_names, imagenet_wnids
from faircontext.errors import ArgumentError
from faircontext.files import read_json
from faircontext.names import as_integer, compose, count_from_one, read_labels, read_text
from faircontext.perturbations import KINDS, SEVERITIES, Corruption, parse_corruptions
from faircontext.sources import ArrayRow, map_array, map_images

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
    document = read_json(path)
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


def _check_once(path: Path, part: str, rows: Iterable[tuple[str, int]]) -> Rows:
    rows, seen = tuple(rows), dict[str, int]()
    for index, (key, _) in enumerate(rows):
        if seen.setdefault(key, index) != index:
            raise ArgumentError(f"{path}: {part}[{index}]: {key} is there twice, first as {part}[{seen[key]}]")
    return rows


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_text(path).split("\n") if line.strip()]


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
        return [str(key) for keys in read_json(listing).values() for key in keys]
    except (AttributeError, TypeError) as error:
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


# ImageNet and its variants


def read_imagenet(folder: Path, variant: str = "") -> tuple[tuple[Sample, ...], list[str]]:
    """Return the images in wnid folders, or in folders 0 to 999 as of ImageNet-V2, by label, and warnings."""
    wnids = imagenet_wnids(variant)
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    folders: dict[int, Path] = {}
    flat = False
    for entry in list_entries(folder):
        if not is_folder(entry):  # a README.txt lies beside the class folders of A and R
            flat = flat or bool(re.fullmatch(r"ILSVRC2012_val_\d{8}\.JPEG", entry.name))
        elif WNID.fullmatch(entry.name) or entry.name.isdecimal():
            position = None if variant else as_integer(entry.name)
            label = labels.get(entry.name, -1) if position is None else position
            if not 0 <= label < len(wnids):
                first = "" if variant or 0 in folders else "; folders count from 0, and there is no folder 0"
                raise ArgumentError(f"{entry}: is none of the {len(wnids)} classes; take it away{first}")
            if (other := folders.setdefault(label, entry)) != entry:
                raise ArgumentError(f"{entry}: is of the same class as {other.name}; take one away")
    if flat and not folders:
        raise ArgumentError(
            f"{folder}: the validation images are not sorted into wnid folders; do so with the script valprep.sh that "
            "comes with many ImageNet recipes"
        )
    samples, warnings = samples_below(folder, [(folders[label], label) for label in sorted(folders)])
    from_one = count_from_one(folders, wnids) if all(entry.name.isdecimal() for entry in folders.values()) else ""
    return samples, [*warnings, *([f"folders may count from 1: {from_one}"] if from_one else [])]


# Corrupted on disk

_LABELS = "labels.npy"
_META = ("batches.meta.txt", "fine_label_names.txt")
"""Names of classes as the binary versions of CIFAR-10 and CIFAR-100 have them."""


def read_part(spec: DatasetSpec, folder: Path, layout: str, part: str) -> Dataset:
    """Read the images of a corruption and severity.

    Args:
        spec: of the data set.
        folder: where it was found.
        layout: the same in words.
        part: `CORRUPTION:SEVERITY`.

    Raises:
        ArgumentError: the part is none, or is not there, or an array has another shape or type than it must have.
    """
    if ":" not in part or (corruption := parse_corruptions([part])[0]) is None:
        raise ArgumentError(
            f"{spec.name}: its parts are measured one by one; name a corruption and a severity, as in {spec.name}:fog:3"
        )
    array, images = folder / f"{corruption.name}.npy", _folder_of(folder, corruption)
    if array.is_file():
        dataset = _from_arrays(spec, folder, array, corruption)
    elif images is not None:
        dataset = _from_folders(spec, folder, images)
    else:
        arrays = f", and no {array.name}" if spec.name != "imagenet_c" else ""
        raise ArgumentError(f"{spec.name}: no folder {corruption.name}/{corruption.severity} in {folder}{arrays}")
    return replace(dataset, layout=f"{layout}, {corruption}", corruption=corruption)


def _folder_of(folder: Path, corruption: Corruption) -> Path | None:
    """Return the folder of the images of a part, in the folder of its kind or not; None where there is none."""
    tail = Path(corruption.name, str(corruption.severity))
    return next((folder / kind / tail for kind in ("", *KINDS) if is_folder(folder / kind / tail)), None)


def _from_folders(spec: DatasetSpec, folder: Path, images: Path) -> Dataset:
    if spec.name == "imagenet_c":
        names = imagenet_names()
        samples, warnings = read_imagenet(images)
    else:
        listed = ClassFolders(images, "test")
        names, samples, warnings = read_class_folders(folder, listed)
    return Dataset(spec.name, images, "", "test", names, ImageList(samples), warnings=tuple(warnings))


def _from_arrays(spec: DatasetSpec, folder: Path, array: Path, corruption: Corruption) -> Dataset:
    rows, names = [*rows_of_array(array, corruption.severity)], _names_beside(spec, folder)
    labels = _read_labels(folder / _LABELS, len(rows), len(names))
    if len(labels) > len(rows):
        labels = labels[rows[0][1].row :][: len(rows)]
    samples = (Sample(name, row, label) for (name, row), label in zip(rows, labels.tolist(), strict=True))
    return Dataset(spec.name, folder, "", "test", names, ImageList(samples))


def rows_of_array(array: Path, severity: int) -> Iterator[tuple[str, ArrayRow]]:
    """Yield what the images of a severity are called, by their positions among them, and where they lie in an array.

    Raises:
        ArgumentError: the array cannot be read, or does not hold five severities.
    """
    images = len(map_images(array))
    count, rest = divmod(images, len(SEVERITIES))
    if rest or not count:
        raise ArgumentError(
            f"{array}: holds {images:,} pictures; five severities of equally many must lie one after the other"
        )
    return ((f"{index:05}", ArrayRow(str(array), count * (severity - 1) + index)) for index in range(count))


def _read_labels(path: Path, images: int, classes: int) -> Int[np.ndarray, " images"]:
    """Return the labels of the images of all severities, or of one.

    Args:
        path: of the array.
        images: of one severity.
        classes: how many.
    """
    labels = map_array(path)
    counts = (images * len(SEVERITIES), images)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or len(labels) not in counts:
        raise ArgumentError(
            f"{path}: has shape {labels.shape} and type {labels.dtype}; must be {counts[0]:,} integers, or "
            f"{counts[1]:,} for all severities"
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise ArgumentError(
            f"{path}: labels are from {labels.min()} to {labels.max()}, and the {classes} classes that are named are "
            f"0 to {classes - 1}"
        )
    return np.asarray(labels, np.int64)


def _names_beside(spec: DatasetSpec, folder: Path) -> tuple[str, ...]:
    """Return the names of the classes, of a text file beside the arrays."""
    if is_there(folder / NAMES):
        return read_labels(folder / NAMES)
    for name in _META:
        if is_there(folder / name):
            return tuple(text.replace("_", " ") for text in read_labels(folder / name))
    raise ArgumentError(
        f"{folder}: has no {NAMES}; give the {spec.classes} class names in the order of labels, one a line, or copy "
        f"{' or '.join(_META)} of CIFAR's binary version to it"
    )
