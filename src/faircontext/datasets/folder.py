"""Images from files, folders and lists, with folder names as truth; class names from a list or a file."""

import os
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from faircontext.datasets.split_folders import check_no_splits, split_of
from faircontext.datasets.walk import Walk, is_folder, list_entries, natural
from faircontext.errors import ArgumentError, and_more
from faircontext.imageio import EXTENSIONS
from faircontext.names import ClassIndex, as_integer, count_from_one, normalise

__all__ = [
    "FolderTruth",
    "class_folders",
    "depth_remarks",
    "find_images",
    "keys_below",
]


_SHOWN = 20
"""Folders of no class that are named, a line each."""


def find_images(
    paths: Sequence[str], listed: Iterable[str] = (), say: Callable[[str], None] | None = None
) -> list[Path]:
    """Return the images under some paths, without loading any.

    Folders are searched recursively and sorted, each real folder once, see `Walk`; hidden files and folders, and those
    of the system, are left out. A file that is named is always taken, whatever its extension.

    Args:
        paths: files, folders, or `-` for `listed`.
        listed: lines of file names that stand for `-`.
        say: takes what was left out, a line each.

    Raises:
        ArgumentError: a path does not exist, or there is no image at all.
    """
    walk = Walk([Path(path) for path in paths if path != "-" and _is_folder(path)])
    try:
        found = _find_images(paths, listed, walk)
    except RecursionError:
        raise ArgumentError(f"{', '.join(paths)}: folders lie too deep in each other") from None
    if say is not None:
        for remark in walk.remarks():
            say(remark)
    return found


def _is_folder(path: str) -> bool:
    return bool(path) and os.path.isdir(path)  # noqa: PTH112 (unlike Path, it answers for names that cannot exist)


def _find_images(paths: Sequence[str], listed: Iterable[str], walk: Walk) -> list[Path]:
    if not paths:
        raise ArgumentError("give at least one image, folder, or - for file names on standard input")
    found: list[Path] = []
    for path in paths:
        if path == "-":
            found += _listed_names("".join(listed))
        elif not path:
            raise ArgumentError("a path is empty; give an image, a folder, or - for file names on standard input")
        elif _is_folder(path):
            found += walk.images(Path(path))
        else:
            try:
                os.lstat(path)
            except PermissionError:
                raise ArgumentError(f"{path}: permission denied") from None
            except (OSError, ValueError):
                raise ArgumentError(f"{path}: no such file or folder") from None
            found.append(Path(path))
    if not found and set(paths) == {"-"}:
        raise ArgumentError("standard input names no file; give one file name a line")
    if not found:
        looked = f"no images in {', '.join(paths)}; looked for the extensions {' '.join(sorted(EXTENSIONS))}"
        raise ArgumentError("; ".join([looked, *walk.remarks()]))
    return list(dict.fromkeys(found))


def _listed_names(text: str) -> list[Path]:
    """Read file names, one a line or, as of `find -print0`, with a null character after each."""
    text = text.removeprefix("\ufeff")
    names = text.split("\0") if "\0" in text else [line.rstrip("\r") for line in text.split("\n")]
    return [Path(name) for name in names if name.strip()]


def class_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the folders right below some folders, as class names, integers by value.

    Raises:
        ArgumentError: a path is no folder or cannot be read, or there is no folder below, or there are splits.
    """
    folders: list[Path] = []
    for path in paths:
        if not _is_folder(path):
            raise ArgumentError(f"{path}: not a folder; --labels-from-folders takes folders of class folders")
        check_no_splits(Path(path))
        folders += [entry for entry in list_entries(Path(path)) if is_folder(entry)]
    if not folders:
        raise ArgumentError(f"no class folders in {', '.join(paths)}; give the class names with --labels")
    return tuple(dict.fromkeys(folder.name for folder in sorted(folders, key=natural)))


def depth_remarks(keys: Iterable[str]) -> list[str]:
    """Return how many images lie deeper than right in a class folder, as a line, where any does.

    Args:
        keys: paths of images, the class folder first, with `/` between.
    """
    levels = [key.split("/") for key in keys]
    deeper = [parts for parts in levels if len(parts) > 2]
    if not deeper:
        return []
    splits = sorted({parts[1] for parts in deeper if split_of(parts[1]) not in (None, "images")})
    advice = "where the inner folders are the classes, move them up"
    if len(splits) > 1:
        advice = f"{and_more(splits)} are splits, which all count: to measure one, lay it out as {splits[0]}/CLASS"
    return [
        f"{len(deeper):,} of {len(levels):,} images lie deeper than right in a class folder, and count for the outer "
        f"one, {'/'.join(deeper[0])} for {deeper[0][0]}; {advice}"
    ]


def keys_below(paths: Iterable[Path], roots: Sequence[str]) -> list[str]:
    """Return the paths of those images that lie below a root, relative to it, with `/` between."""
    starts = tuple(os.path.join(os.path.abspath(root), "") for root in roots)  # noqa: PTH100, PTH118 (keeps links)
    keys = []
    for path in paths:
        place = os.path.abspath(path)  # noqa: PTH100 (as above)
        keys += [place[len(start) :].replace(os.sep, "/") for start in starts if place.startswith(start)][:1]
    return keys


class FolderTruth:
    """Which class an image's folder is named after, by index.

    A folder of exactly a class's name is that class; else case, underscores for spaces, Unicode composition, and zeros
    before an integer do not matter, see `ClassIndex`. Where no folder is named after a class and all are integers, as
    in copies of ImageNet, an integer is the position of the class, from 0.

    Args:
        names: class names.
        paths: all images.
        roots: folders of class folders, which may hold more folders; without them the folder that directly holds an
            image counts.
    """

    def __init__(self, names: Sequence[str], paths: Iterable[Path], roots: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self._roots = [Path(os.path.abspath(root)) for root in roots]  # noqa: PTH100 (keeps links, unlike resolve)
        self._index = ClassIndex(self.names)
        self.folders = sorted({self._folder(path) for path in paths} - {*self._roots}, key=natural)
        words = [folder.name for folder in self.folders]
        self._integers = [number for number in map(as_integer, words) if number is not None]
        named = any(self._index.find(word) is not None for word in words)
        self.numbered = bool(words) and len(self._integers) == len(words) and not named
        self._by_position = self.numbered and max(self._integers) < len(self.names)

    def __call__(self, path: Path) -> int | None:
        """Return the index of an image's class, or None."""
        folder = self._folder(path)
        return None if folder in self._roots else self._find(folder)

    def _find(self, folder: Path) -> int | None:
        return as_integer(folder.name) if self._by_position else self._index.find(folder.name)

    def _folder(self, path: Path) -> Path:
        place = Path(os.path.abspath(path))  # noqa: PTH100 (as above)
        for root in self._roots:
            if root in place.parents[1:]:
                return root / place.relative_to(root).parts[0]
        return place.parent if path.parent == Path() or os.pardir in path.parts else path.parent

    def remarks(self) -> list[str]:
        """Return what a person should know about the folders before a run, a line each."""
        if self.numbered:
            return [self._position_remark()]
        places = {folder: self._find(folder) for folder in self.folders}
        known = {folder: index for folder, index in places.items() if index is not None}
        found = []
        if known and all(folder.name.isdecimal() for folder in self.folders):
            order = and_more(sorted((folder.name for folder in known), key=int), 20)
            found.append(f"class folders are all integers, and so are the class names, in this order: {order}")
        strange = [folder for folder in self.folders if known and folder not in known]
        for folder in strange[:_SHOWN]:
            close = get_close_matches(normalise(folder.name), {*map(normalise, self.names)}, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            found.append(f"folder {folder} is named after no class, its images count in no accuracy{hint}")
        if strange[_SHOWN:]:
            found.append(f"{len(strange) - _SHOWN:,} more folders are named after no class")
        empty = [name for index, name in enumerate(self.names) if index not in known.values()]
        if self._roots and empty:
            found.append(f"class folders without images, which stay classes: {and_more(empty, 20)}")
        return found

    def _position_remark(self) -> str:
        """Say which classes integer folders stand for, or that they stand for none."""
        head = "class folders are all integers"
        if not self._by_position:
            return (
                f"{head}, but {self.folders[-1].name} is no place among {len(self.names)} classes, counted from 0: no "
                "image has a truth"
            )
        pairs = [f"{folder.name} = {self.names[int(folder.name)]}" for folder in self.folders]
        odd = count_from_one(self._integers, self.names)
        doubt = f"; they may count from 1: {odd}" if odd else ""
        return f"{head}, taken as places in the list of classes, from 0: {and_more(pairs, 20)}{doubt}"
