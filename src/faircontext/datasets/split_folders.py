"""Folders that are splits of a data set and no classes, such as `train` and `test`, whatever their spelling."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faircontext.datasets.walk import holds_images, is_folder, list_entries
from faircontext.errors import ArgumentError, and_more

__all__ = ["ClassFolders", "check_no_splits", "find_class_folders", "split_hint", "split_of"]

_WORDS = {
    "train": "train training",
    "val": "val valid validation dev development eval evaluation",
    "test": "test tests testing",
    "images": "images",
}
_SPLITS: Mapping[str, str] = {word: split for split, words in _WORDS.items() for word in words.split()}
_NAME = re.compile(rf"({'|'.join(_SPLITS)})(?:[ _-]?(?:set|split|data|images))?(?:[ _-]?(?:19|20)\d\d)?")
_ORDER = {"train": ("train", "images"), "val": ("val", "images"), "test": ("test", "images", "val")}
"""Where images of a split are looked for: validation images may stand in for test images."""


@dataclass(frozen=True)
class ClassFolders:
    """A folder that directly holds class folders.

    Attributes:
        place: the folder.
        split: `test` or `val`; `all` where there is but one set of images.
        remarks: what was left aside, a line each.
    """

    place: Path
    split: str
    remarks: tuple[str, ...] = ()


def split_of(name: str) -> str | None:
    """Return which split a folder's name stands for: `train`, `val`, `test`, or `images` for all of them; else None."""
    found = _NAME.fullmatch(name.casefold())
    return None if found is None else _SPLITS[found[1]]


def find_class_folders(folder: Path, split: str) -> ClassFolders | None:
    """Find the folder that directly holds the class folders of a split, at any depth of splits and `images`.

    A folder called like a split is one where it holds class folders; beside two or more folders of other names, one
    such folder alone is a class. A folder where only splits hold images is never read as classes.

    Args:
        folder: the data set's.
        split: `val`, or else test images are looked for, then images of no split, then validation images.

    Returns:
        None where there is none.

    Raises:
        ArgumentError: a folder cannot be read, or two folders are of the split.
    """
    return _find(folder, "val" if split == "val" else "test", set())


def _find(folder: Path, split: str, seen: set[Path]) -> ClassFolders | None:
    """See `find_class_folders`; `seen` takes the real folders, each of which is looked at once."""
    if (real := folder.resolve()) in seen:
        return None
    seen.add(real)
    filled = _filled(folder)
    others = [entry.name for entry, part in filled.items() if part is None]
    # Only its first class folders are looked at: training images may be many.
    held = {part for entry, part in filled.items() if part in _ORDER and any(map(holds_images, _folders(entry)))}
    for part in _ORDER[split]:
        if held == {part} and len(others) > 1:
            continue
        named = sorted((e for e in filled if filled[e] == part), key=lambda e: (e.name != part, e.is_symlink()))
        inner = {entry: _find(entry, split if part == "images" else part, seen) for entry in named}
        if there := {entry: found for entry, found in inner.items() if found is not None}:
            return _choose(folder, part, there, others)
    return ClassFolders(folder, "all") if others and len(held) < 2 else None


def _choose(folder: Path, part: str, candidates: Mapping[Path, ClassFolders], others: Sequence[str]) -> ClassFolders:
    """Return what was found in the one folder of a split, or in the one that is called exactly like it."""
    entry = next(iter(candidates))
    if len(candidates) > 1 and entry.name != part:
        raise ArgumentError(
            f"{folder}: the folders {' and '.join(entry.name for entry in candidates)} are of the same split, {part}; "
            f"name the one to take, for example {_as_named(entry)}"
        )
    found = candidates[entry]
    if part == "images":
        return found
    aside = (f"folders beside {entry.name}, a split, are left out: {and_more(others)}",) if others else ()
    return ClassFolders(found.place, part, (*aside, *found.remarks))


def _as_named(place: Path) -> str:
    """Return a path in the form that `--datasets` takes for one, whatever the root is."""
    return str(place) if place.is_absolute() or place.parts[:1] == ("..",) else f"./{place}"


def _folders(folder: Path) -> list[Path]:
    return [entry for entry in list_entries(folder) if is_folder(entry)]


def _filled(folder: Path) -> dict[Path, str | None]:
    """Return the folders right below one that hold images, at any depth, and which splits they are."""
    return {entry: split_of(entry.name) for entry in _folders(folder) if holds_images(entry)}


def split_hint(folder: Path) -> str:
    """Return, where splits lie right below a folder and no classes, what can be named in its place; else nothing.

    Raises:
        ArgumentError: see `find_class_folders`.
    """
    filled = _filled(folder)
    splits = {entry: part for entry, part in filled.items() if part is not None}
    if len(splits) < len(filled):
        taken = find_class_folders(folder, "test")
        if taken is None or taken.split == "all":
            return ""
    if not splits:
        return ""
    seen: set[Path] = set()
    found = [_find(entry, part if part in _ORDER else "test", seen) for entry, part in splits.items()]
    places = [_as_named(inner.place) for inner in found if inner is not None]
    *first, last = (entry.name for entry in splits)
    names = f"{', '.join(first)} and {last} are splits, not classes" if first else f"{last} is a split, not a class"
    way = f"; name the one to take: {' or '.join(places)}" if places else ", without class folders inside"
    return names + way


def check_no_splits(folder: Path) -> None:
    """Raise `ArgumentError` where the folders right below one are splits, which would be taken for classes."""
    try:
        hint = split_hint(folder)
    except RecursionError:
        raise ArgumentError(f"{folder}: folders lie too deep in each other") from None
    if hint:
        raise ArgumentError(f"{folder}: {hint}; or give the class names with --labels")
