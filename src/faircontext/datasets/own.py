"""Data sets of one's own: a folder of class folders, or a table `labels.csv` beside `classnames.txt`."""

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from faircontext.classnames import ClassIndex, as_integer, count_from_one
from faircontext.datasets.folder import images_below, is_folder, is_hidden, list_entries, read_labels
from faircontext.datasets.spec import Dataset, Sample
from faircontext.datasets.table import NAMES, TABLE, read_table
from faircontext.errors import ArgumentError
from faircontext.imageio import EXTENSIONS

__all__ = ["WNID", "load_own", "samples_below"]

WNID = re.compile(r"n\d{8}")
"""The name of an ImageNet class folder."""

PARTS = ("images", "train", "val", "test")
"""Folders that are no classes where there are no others: they hold class folders."""


def load_own(folder: Path, split: str = "test") -> Dataset:
    """Read a folder as a data set: a table `labels.csv`, see `read_table`, or else class folders.

    Class folders lie in `test` (or `val`, where that is asked for), in `images`, or right below the folder. Integer
    names are sorted by value, others as text; classes are named after their folders. Names in `classnames.txt` go
    before: to folders of the same names, to integer folders as places in the list, else in the order of folders.

    Args:
        folder: the data set's.
        split: `val` for a folder `val`. Where there is but one set of images it is taken, and is called `all`.

    Raises:
        ArgumentError: the folder is none, or is not laid out as a data set; the message says where and how.
        LabelError: `classnames.txt` cannot be read.
    """
    name = Path(os.path.abspath(folder)).name or "data"  # noqa: PTH100 (keeps the name of a link, unlike resolve)
    if not is_folder(folder):
        raise ArgumentError(f"{folder}: no such folder; see faircontext data list for the data sets that are known")
    if os.path.lexists(folder / TABLE):
        if not (folder / TABLE).is_file():
            raise ArgumentError(
                f"{folder / TABLE}: is no file, or a link to nothing; put the table there, or take it away"
            )
        return read_table(name, folder)
    for inner in ("val", "images", "") if split == "val" else ("test", "images", "val", ""):
        place = folder / inner
        folders = [entry for entry in list_entries(place) if is_folder(entry)] if is_folder(place) else []
        filled = {entry.name for entry in folders if any(images_below(entry))}
        if filled and not (inner == "" and filled <= {*PARTS}):
            return _read_folders(name, folder, place, folders, inner if inner in ("test", "val") else "all")
    where = " below val" if split == "val" and is_folder(folder / "test") else ""
    raise ArgumentError(
        f"{folder}: neither {TABLE} nor folders of images named after classes{where}; see docs, Data sets"
    )


def samples_below(place: Path, folders: Sequence[tuple[Path, int]]) -> tuple[tuple[Sample, ...], list[str]]:
    """Return the images in some class folders, with the label of each folder, and remarks.

    Links are followed, but not into the class folders themselves: their images would count twice, perhaps as of
    another class.

    Args:
        place: that holds the class folders; keys are relative to it.
        folders: with their labels.

    Raises:
        ArgumentError: a class folder is a link into another, or to a folder that holds them.
    """
    skip, left_out = len(place.parts), list[str]()
    inside, classes = Path(os.path.realpath(place)), {folder.name for folder, _ in folders}

    def enter(entry: Path) -> bool:
        again = entry.is_symlink() and _is_reached(Path(os.path.realpath(entry)), inside, classes)
        if again:
            left_out.append("/".join(entry.parts[skip:]))
        return not again

    samples = []
    for folder, label in folders:
        if not enter(folder):
            raise ArgumentError(
                f"{folder}: is a link into the class folders beside it, whose images would count twice; take it away"
            )
        samples += [Sample("/".join(path.parts[skip:]), path, label) for path in images_below(folder, enter=enter)]
    if not left_out:
        return tuple(samples), []
    shown = ", ".join(left_out[:5]) + (f" and {len(left_out) - 5:,} more" if len(left_out) > 5 else "")
    return tuple(samples), [f"links into the class folders, whose images count once, are left out: {shown}"]


def _is_reached(target: Path, place: Path, classes: Collection[str]) -> bool:
    """Tell whether images in a folder are found in class folders without a link, or the class folders lie in it."""
    if target == place or target in place.parents:
        return True
    if place not in target.parents:
        return False
    parts = target.relative_to(place).parts
    return parts[0] in classes and not any(map(is_hidden, parts))


def _read_folders(name: str, folder: Path, place: Path, folders: Sequence[Path], split: str) -> Dataset:
    names, labels, remarks = _name_classes(folder, folders)
    samples, more = samples_below(place, sorted(zip(folders, labels, strict=True), key=lambda found: found[1]))
    remarks += more
    empty = {*labels} - {sample.label for sample in samples}
    if empty:
        few = ", ".join(entry.name for entry, label in zip(folders, labels, strict=True) if label in empty)
        remarks.append(f"class folders without images, which stay classes: {few}")
    if loose := sum(entry.suffix.lower() in EXTENSIONS for entry in {*list_entries(place)} - {*folders}):
        remarks.append(f"images that lie in no class folder are left out: {loose} in {place}")
    return Dataset(name, folder, f"class folders in {place}", split, names, samples, remarks=tuple(remarks))


def _name_classes(folder: Path, folders: Sequence[Path]) -> tuple[tuple[str, ...], list[int], list[str]]:
    """Return class names, the label of each class folder, and remarks."""
    words = tuple(entry.name for entry in folders)
    order = [*range(len(words))]
    if (folder / NAMES).is_file():
        given = read_labels(folder / NAMES)
        return given, *_match(folder, words, given)
    if all(WNID.fullmatch(word) for word in words):
        return _wnid_names(folder, words), order, ["class folders are wnids, which get the names of CLIP's authors"]
    if all(word.isdecimal() for word in words):
        return words, order, [f"class folders are integers, and so are the class names; give names in {NAMES}"]
    return words, order, []


def _match(folder: Path, words: Sequence[str], given: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the indices of class folders in a list of class names, and remarks."""
    index = ClassIndex(given)
    named, numbers = [index.find(word) for word in words], [as_integer(word) for word in words]
    known = [label for label in named if label is not None]
    integers = [number for number in numbers if number is not None]
    if len(known) == len(words):
        labels, remark = known, ""
    elif len(integers) == len(words) and max(integers) < len(given):
        labels, odd = integers, count_from_one(integers, given)
        remark = f"class folders are places in {NAMES}, from 0: {_pairs(words, labels, given)}"
        remark += f"; they may count from 1: {odd}" if odd else ""
    elif len(given) == len(words):
        labels = [*range(len(words))]
        remark = f"class names are from {NAMES}, in the order of the folders: {_pairs(words, labels, given)}"
    else:
        raise ArgumentError(
            f"{folder / NAMES}: {len(given)} names for {len(words)} class folders, which are named otherwise; give one "
            "for each, in order"
        )
    # A folder that has the name of one class is not taken for another one because of its place.
    if any(one not in (None, other) for one, other in zip(named, labels, strict=True)):
        strange = next(word for word, label in zip(words, named, strict=True) if label is None)
        raise ArgumentError(
            f"{folder / NAMES}: class folder {strange} is named after none of its {len(given)} names, but "
            f"{len(known)} others are; name all folders so, or none"
        )
    if len({*labels}) < len(labels):
        doubled = next(place for place in labels if labels.count(place) > 1)
        raise ArgumentError(f"{folder}: two class folders are named after class {doubled}, {given[doubled]}; join them")
    return labels, [remark] if remark else []


def _pairs(words: Sequence[str], labels: Sequence[int], given: Sequence[str]) -> str:
    pairs = [f"{word} = {given[label]}" for word, label in zip(words, labels, strict=True)]
    return ", ".join(pairs[:5]) + (" ..." if len(pairs) > 5 else "")


def _wnid_names(folder: Path, words: Sequence[str]) -> tuple[str, ...]:
    from faircontext.datasets.imagenet import imagenet_names, imagenet_wnids  # which imports this module

    names = dict(zip(imagenet_wnids(), imagenet_names(), strict=True))
    if strange := [word for word in words if word not in names]:
        raise ArgumentError(
            f"{folder}: {strange[0]} is none of ImageNet's 1,000 classes; give the names of all class folders, in "
            f"order, in {NAMES}"
        )
    return tuple(names[word] for word in words)
