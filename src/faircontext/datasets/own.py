"""Data sets of one's own: a folder of class folders, or a table `labels.csv` beside `classnames.txt`."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from faircontext.datasets.folder import depth_remarks
from faircontext.datasets.spec import Dataset, Sample
from faircontext.datasets.split_folders import ClassFolders, find_class_folders, split_hint, split_of
from faircontext.datasets.table import NAMES, TABLE, is_there, read_table
from faircontext.datasets.walk import Walk, is_folder, list_entries
from faircontext.errors import ArgumentError
from faircontext.imageio import EXTENSIONS
from faircontext.names import ClassIndex, as_integer, count_from_one, read_labels

__all__ = ["WNID", "load_own", "samples_below"]

WNID = re.compile(r"n\d{8}")
"""The name of an ImageNet class folder."""


def load_own(folder: Path, split: str = "test") -> Dataset:
    """Read a folder as a data set: a table `labels.csv`, see `read_table`, or else class folders.

    Class folders lie in a folder of the split, see `find_class_folders`, in `images`, or right below the folder.
    Integer names are sorted by value, others as text; classes are named after their folders. Names in `classnames.txt`
    go before: to folders of the same names, to integer folders as places in the list, else in the order of folders.

    Args:
        folder: the data set's.
        split: `val` for validation images. Where there is but one set of images it is taken, and is called `all`; a
            remark says where there is no such split.

    Raises:
        ArgumentError: the folder is none, or is not laid out as a data set; the message says where and how.
        LabelError: `classnames.txt` cannot be read.
    """
    name = Path(os.path.abspath(folder)).name or "data"  # noqa: PTH100 (keeps the name of a link, unlike resolve)
    if not is_folder(folder):
        raise ArgumentError(f"{folder}: no such folder; see faircontext data list for the data sets that are known")
    misnamed = _misnamed(folder)
    if is_there(folder / TABLE):
        return _remarked(_with_split(read_table(name, folder), split, folder), misnamed)
    found = find_class_folders(folder, split)
    if found is None and misnamed:
        raise ArgumentError(f"{folder}: no {TABLE} and no class folders in it; {misnamed[0]}")
    if found is None:
        raise _no_class_folders(folder, split)
    return _remarked(_with_split(_read_folders(name, folder, found), split, found.place), misnamed)


def _misnamed(folder: Path) -> tuple[str, ...]:
    """Return that a file is not read which only case or the ending tells from the table or the list of names."""
    wanted = {word: name for name in (TABLE, NAMES) for word in (name, f"{name}.txt", f"{name[:-3]}tsv")}
    there = [(entry.name, wanted[word]) for entry in list_entries(folder) if (word := entry.name.casefold()) in wanted]
    odd = [(name, right) for name, right in there if not os.path.lexists(folder / right)]
    return tuple(f"{name} is not read: the file that is read is called {right}" for name, right in odd)


def _remarked(dataset: Dataset, remarks: Sequence[str]) -> Dataset:
    """Return a data set with more remarks before its own."""
    return replace(dataset, remarks=(*remarks, *dataset.remarks)) if remarks else dataset


def _with_split(dataset: Dataset, split: str, place: Path) -> Dataset:
    """Return a data set with a remark where it has no such split as was asked for."""
    if dataset.split == split or (dataset.split, split) == ("all", "test"):  # which is asked for where nobody asks
        return dataset
    inner = place.relative_to(dataset.folder).as_posix()
    taken = "all its images are taken" if dataset.split == "all" else f"its folder {inner} is taken"
    return replace(dataset, remarks=(*dataset.remarks, f"there is no split {split} in a set of one's own: {taken}"))


def _no_class_folders(folder: Path, split: str) -> ArgumentError:
    """Build the error for a folder without class folders, with what else lies there."""
    test = any(split_of(entry.name) == "test" for entry in list_entries(folder) if is_folder(entry))
    what = f"{folder}: neither {TABLE} nor folders of images named after classes"
    hints = [hint] if (hint := split_hint(folder)) else _left_out(folder)
    return ArgumentError(
        "; ".join([f"{what} below val" if split == "val" and test else what, *hints, "see docs, Data sets"])
    )


def _left_out(folder: Path) -> list[str]:
    """Return what a search of a folder leaves out, a line each."""
    walk = Walk([folder])
    for _ in walk.images(folder):
        pass
    return walk.remarks()


def samples_below(place: Path, folders: Sequence[tuple[Path, int]]) -> tuple[tuple[Sample, ...], list[str]]:
    """Return the images in some class folders, with the label of each folder, and remarks on what was left out.

    Each real folder is visited once, see `Walk`: images that are found in two class folders would count twice, perhaps
    as of another class.

    Args:
        place: that holds the class folders; keys are relative to it.
        folders: with their labels.

    Raises:
        ArgumentError: a class folder is a link into another, or to a folder that holds them.
    """
    walk, skip = Walk([folder for folder, _ in folders], place), len(place.parts)
    samples: list[Sample] = []
    for folder, label in folders:
        if walk.leads_back(folder):
            raise ArgumentError(
                f"{folder}: is a link into the class folders beside it, whose images would count twice; take it away"
            )
        samples += [Sample("/".join(path.parts[skip:]), path, label) for path in walk.images(folder)]
    walk.entries(place)  # what lies beside the class folders is left out as well
    return tuple(samples), [*walk.remarks("the class folders"), *depth_remarks(sample.key for sample in samples)]


def _read_folders(name: str, folder: Path, found: ClassFolders) -> Dataset:
    place = found.place
    folders = [entry for entry in list_entries(place) if is_folder(entry)]
    names, labels, remarks = _name_classes(folder, folders)
    remarks += found.remarks
    samples, more = samples_below(place, sorted(zip(folders, labels, strict=True), key=lambda found: found[1]))
    remarks += more
    empty = {*labels} - {sample.label for sample in samples}
    if empty:
        few = ", ".join(entry.name for entry, label in zip(folders, labels, strict=True) if label in empty)
        remarks.append(f"class folders without images, which stay classes: {few}")
    if loose := sum(entry.suffix.lower() in EXTENSIONS for entry in {*list_entries(place)} - {*folders}):
        remarks.append(f"images that lie in no class folder are left out: {loose} in {place}")
    return Dataset(name, folder, f"class folders in {place}", found.split, names, samples, remarks=tuple(remarks))


def _name_classes(folder: Path, folders: Sequence[Path]) -> tuple[tuple[str, ...], list[int], list[str]]:
    """Return class names, the label of each class folder, and remarks."""
    words = tuple(entry.name for entry in folders)
    order = [*range(len(words))]
    if is_there(folder / NAMES):
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
            f"{folder / NAMES}: {len(given)} name{'s' * (len(given) != 1)} for {len(words)} class folders, which are "
            "named otherwise; give one for each, a line each, in order"
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
    from faircontext.datasets.imagenet import imagenet_wnids  # which imports this module
    from faircontext.datasets.layouts import imagenet_names

    names = dict(zip(imagenet_wnids(), imagenet_names(), strict=True))
    if strange := [word for word in words if word not in names]:
        raise ArgumentError(
            f"{folder}: {strange[0]} is none of ImageNet's 1,000 classes; give the names of all class folders, in "
            f"order, in {NAMES}"
        )
    return tuple(names[word] for word in words)
