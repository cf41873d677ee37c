"""Data sets whose images lie corrupted on disk, a part for each corruption and severity (Hendrycks & Dietterich, 2019).

    imagenet-c/CORRUPTION/SEVERITY/WNID/*.JPEG       as its archives unpack; a folder of the kind may lie between
    CIFAR-10-C/CORRUPTION.npy, labels.npy            five severities of equally many pictures, one after the other
    CIFAR-10-C/CORRUPTION/SEVERITY/CLASS/*.png       the same as class folders

A part is called `NAME:CORRUPTION:SEVERITY`. Arrays are mapped into memory, never unpickled; a picture is read when its
turn comes. They come without names of classes, which a text file beside them gives.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from faircontext.datasets import class_folders, layouts
from faircontext.datasets.class_folders import ClassFolders
from faircontext.datasets.folder import is_folder
from faircontext.datasets.layouts import NAMES
from faircontext.datasets.listing import ImageList
from faircontext.datasets.spec import CORRUPTED, Dataset, DatasetSpec, Sample, known_name
from faircontext.errors import ArgumentError
from faircontext.names import read_labels
from faircontext.shifts import KINDS, SEVERITIES, Corruption, parse_corruptions
from faircontext.sources import ArrayRow, map_pictures

__all__ = ["expand", "picture_rows", "read_part"]

_LABELS = "labels.npy"
_META = ("batches.meta.txt", "fine_label_names.txt")
"""Names of classes as the binary versions of CIFAR-10 and CIFAR-100 have them."""


def expand(words: Iterable[str]) -> list[str]:
    """Return names of data sets with those of corrupted ones taken apart, each part once.

    `NAME` stands for all severities of the fifteen corruptions, `NAME:CORRUPTION` for five; see `parse_corruptions`.

    Raises:
        ArgumentError: there is no such corruption or severity.
    """
    found: dict[str, None] = {}
    for word in words:
        if (known := known_name(word)) in CORRUPTED:
            part = word.partition(":")[2] or "all"
            if part.partition(":")[0] == "none":
                raise ArgumentError(f"{word}: has no images as they are; name {known}:fog, {known}:fog:3 or {known}")
            found |= dict.fromkeys(f"{known}:{one}" for one in parse_corruptions([part]))
        else:
            found[word] = None
    return [*found]


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
        names = layouts.imagenet_names()
        samples, warnings = class_folders.read_imagenet(images)
    else:
        listed = ClassFolders(images, "test")
        names, samples, warnings = class_folders.read_class_folders(folder, listed)
    return Dataset(spec.name, images, "", "test", names, ImageList(samples), warnings=tuple(warnings))


def _from_arrays(spec: DatasetSpec, folder: Path, array: Path, corruption: Corruption) -> Dataset:
    rows = picture_rows(array, corruption.severity)
    names = _names(spec, folder)
    pictures = len(rows) * len(SEVERITIES)
    labels = _labels(folder / _LABELS, pictures, len(names))
    own = labels[rows.start : rows.stop] if len(labels) == pictures else labels
    samples = (
        Sample(f"{index:05}", ArrayRow(str(array), rows[index]), label) for index, label in enumerate(own.tolist())
    )
    return Dataset(spec.name, folder, "", "test", names, ImageList(samples))


def picture_rows(array: Path, severity: int) -> range:
    """Return which pictures of an array are of a severity; an image is called by its position among them.

    Raises:
        ArgumentError: the array cannot be read, or does not hold five severities.
    """
    pictures = len(map_pictures(array))
    count, rest = divmod(pictures, len(SEVERITIES))
    if rest or not count:
        raise ArgumentError(
            f"{array}: holds {pictures:,} pictures; five severities of equally many must lie one after the other"
        )
    return range(count * (severity - 1), count * severity)


def _labels(path: Path, pictures: int, classes: int) -> Int[np.ndarray, " images"]:
    """Return the labels of all pictures, or of those of one severity."""
    labels: Any = _load(path)
    counts = (pictures, pictures // len(SEVERITIES))
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


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ArgumentError(f"{path}: no such file; it gives the class of each picture") from None
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(f"{path}: cannot be read as an array of NumPy: {str(error).splitlines()[0]}") from None


def _names(spec: DatasetSpec, folder: Path) -> tuple[str, ...]:
    """Return the names of the classes, of a text file beside the arrays."""
    if layouts.is_there(folder / NAMES):
        return read_labels(folder / NAMES)
    for name in _META:
        if layouts.is_there(folder / name):
            return tuple(text.replace("_", " ") for text in read_labels(folder / name))
    raise ArgumentError(
        f"{folder}: has no {NAMES}; give the {spec.classes} class names in the order of labels, one a line, or copy "
        f"{' or '.join(_META)} of CIFAR's binary version to it"
    )
