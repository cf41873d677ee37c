"""Images from files, folders and lists, with folder names as truth; class names from a list or a file."""

import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from faircontext.classnames import check_name
from faircontext.errors import ArgumentError, LabelError, reason_of
from faircontext.imageio import EXTENSIONS

__all__ = [
    "FolderTruth",
    "class_folders",
    "class_names",
    "find_images",
    "images_below",
    "is_folder",
    "is_hidden",
    "list_entries",
    "name_remarks",
    "normalise",
    "parse_labels",
    "read_labels",
]


def find_images(paths: Sequence[str], listed: Iterable[str] = ()) -> list[Path]:
    """Return the images under some paths, without loading any.

    Folders are searched recursively, links followed, and sorted; hidden files and folders are left out. A file that is
    named is always taken, whatever its extension.

    Args:
        paths: files, folders, or `-` for `listed`.
        listed: lines of file names that stand for `-`.

    Raises:
        ArgumentError: a path does not exist, or there is no image at all.
    """
    try:
        return _find_images(paths, listed)
    except RecursionError:
        raise ArgumentError(f"{', '.join(paths)}: folders lie too deep in each other") from None


def _find_images(paths: Sequence[str], listed: Iterable[str]) -> list[Path]:
    if not paths:
        raise ArgumentError("give at least one image, folder, or - for file names on standard input")
    found: list[Path] = []
    for path in paths:
        if path == "-":
            found += _listed_names("".join(listed))
        elif not path:
            raise ArgumentError("a path is empty; give an image, a folder, or - for file names on standard input")
        elif os.path.isdir(path):  # noqa: PTH112 (unlike Path, it answers for names that cannot exist)
            found += images_below(Path(path))
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
        raise ArgumentError(
            f"no images in {', '.join(paths)}; looked for the extensions {' '.join(sorted(EXTENSIONS))}"
        )
    return list(dict.fromkeys(found))


def _listed_names(text: str) -> list[Path]:
    """Read file names, one a line or, as of `find -print0`, with a null character after each."""
    text = text.removeprefix("\ufeff")
    names = text.split("\0") if "\0" in text else [line.rstrip("\r") for line in text.split("\n")]
    return [Path(name) for name in names if name.strip()]


def images_below(
    folder: Path, above: frozenset[str] = frozenset(), enter: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    """Yield the images in a folder and all below it, links followed, sorted.

    Args:
        folder: to look in.
        above: the folders over it.
        enter: whether a folder below it is looked into; None for all of them.

    Raises:
        ArgumentError: a folder cannot be read.
    """
    place = os.path.realpath(folder)
    if place in above:  # a link back up would never end
        return
    for entry in list_entries(folder):
        if is_folder(entry):
            if enter is None or enter(entry):
                yield from images_below(entry, above | {place}, enter)
        elif entry.suffix.lower() in EXTENSIONS:
            yield entry


def list_entries(folder: Path) -> list[Path]:
    """Return what lies in a folder and is not hidden, integer names by value and before words.

    Raises:
        ArgumentError: the folder cannot be read.
    """
    try:
        return sorted((entry for entry in folder.iterdir() if not is_hidden(entry.name)), key=_natural)
    except OSError as error:
        raise ArgumentError(f"{folder}: cannot be read: {reason_of(error)}") from None


def is_folder(entry: Path) -> bool:
    """Tell whether a path is a folder.

    Raises:
        ArgumentError: nobody may look.
    """
    try:
        return entry.is_dir()
    except OSError as error:  # of a folder that may be listed but not entered
        raise ArgumentError(f"{entry}: cannot be read: {reason_of(error)}") from None


def is_hidden(name: str) -> bool:
    """Tell whether files and folders of this name are passed over."""
    return name.startswith(".") or name == "__MACOSX"


def _natural(path: Path) -> tuple[int, str]:
    """Sort integer names, as of class folders, by value and before words."""
    return (int(path.name), "") if path.name.isdecimal() else (sys.maxsize, path.name)


def class_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the folders right below some folders, as class names, integers by value.

    Raises:
        ArgumentError: a path is no folder or cannot be read, or there is no folder below.
    """
    folders: list[Path] = []
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 (unlike Path, it answers for names that cannot exist)
            raise ArgumentError(f"{path}: not a folder; --labels-from-folders takes folders of class folders")
        folders += [entry for entry in list_entries(Path(path)) if is_folder(entry)]
    if not folders:
        raise ArgumentError(f"no class folders in {', '.join(paths)}; give the class names with --labels")
    return tuple(dict.fromkeys(folder.name for folder in sorted(folders, key=_natural)))


class FolderTruth:
    """Which class an image's folder is named after.

    Case, underscores for spaces, and Unicode composition do not matter. Where no folder is named after a class and all
    are integers, as in copies of ImageNet, an integer is the position of the class, from 0.

    Args:
        names: class names.
        paths: all images.
        roots: folders of class folders, which may hold more folders; without them the folder that directly holds an
            image counts.
    """

    def __init__(self, names: Sequence[str], paths: Iterable[Path], roots: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self._roots = [Path(os.path.abspath(root)) for root in roots]  # noqa: PTH100 (keeps links, unlike resolve)
        self._places: dict[str, int] = {}
        for index, name in enumerate(self.names):
            self._places.setdefault(normalise(name), index)
        self.folders = sorted({self._folder(path) for path in paths} - {*self._roots}, key=_natural)
        words = [folder.name for folder in self.folders]
        self.numbered = bool(words) and all(word.isdecimal() and word not in self._places for word in words)
        if self.numbered and int(words[-1]) < len(self.names):
            self._places = {word: int(word) for word in words}

    def __call__(self, path: Path) -> int | None:
        """Return the index of an image's class, or None."""
        folder = self._folder(path)
        return None if folder in self._roots else self._places.get(normalise(folder.name))

    def _folder(self, path: Path) -> Path:
        place = Path(os.path.abspath(path))  # noqa: PTH100 (as above)
        for root in self._roots:
            if root in place.parents[1:]:
                return root / place.relative_to(root).parts[0]
        return place.parent if path.parent == Path() or os.pardir in path.parts else path.parent

    def remarks(self) -> list[str]:
        """Return what a person should know about the folders before a run, a line each."""
        places = {folder: self._places.get(normalise(folder.name)) for folder in self.folders}
        known = {folder: index for folder, index in places.items() if index is not None}
        if self.numbered and known:
            pairs = _list_some([f"{folder.name} = {self.names[index]}" for folder, index in known.items()])
            return [f"class folders are all integers, taken as places in the list of classes, from 0: {pairs}"]
        found = []
        if self.numbered:
            found.append(
                f"class folders are all integers, but {self.folders[-1].name} is no place among {len(self.names)} "
                "classes, counted from 0: no image has a truth"
            )
        if known and all(folder.name.isdecimal() for folder in self.folders):
            order = _list_some(sorted((folder.name for folder in known), key=int))
            found.append(f"class folders are all integers, and so are the class names, in this order: {order}")
        for folder in [folder for folder in self.folders if known and folder not in known]:
            close = get_close_matches(normalise(folder.name), self._places, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            found.append(f"folder {folder} is named after no class, its images count in no accuracy{hint}")
        empty = [name for index, name in enumerate(self.names) if index not in known.values()]
        if self._roots and empty:
            found.append(f"class folders without images, which stay classes: {_list_some(empty)}")
        return found


def _list_some(words: Sequence[str], limit: int = 20) -> str:
    rest = len(words) - limit
    return ", ".join(words[:limit]) + (f" and {rest} more" if rest > 0 else "")


def name_remarks(names: Sequence[str]) -> list[str]:
    """Return what a person should know about class names before a run, a line each."""
    found = []
    if len(names) == 1:
        found.append(f"with one class, {names[0]}, nothing is decided: every image is answered with it")
        if "," in names[0]:
            found.append("the one class name has commas in it; a file of class names has one a line")
    alike = Counter(map(normalise, names))
    if doubled := sorted({name for name in names if alike[normalise(name)] > 1}):
        found.append(
            f"class names given more than once: {', '.join(doubled)}; each keeps its place, the first wins ties"
        )
    return found


def normalise(name: str) -> str:
    """Return a class name as it is compared: case, underscores for spaces and composition do not matter."""
    return unicodedata.normalize("NFC", name).replace("_", " ").strip().casefold()


def class_names(text: str | None, file: Path | None) -> tuple[str, ...]:
    """Read class names from a list with commas or from a file, whichever is given.

    Raises:
        ArgumentError: none or both are given.
        LabelError: there are no names, or the file cannot be read, or has a name that cannot be used.
    """
    if text is not None and file is None:
        return parse_labels(text)
    if file is not None and text is None:
        names = read_labels(file)
        for number, name in enumerate(names, 1):
            check_name(number, name, file)
        return names
    raise ArgumentError("give the class names either as --labels a,b,c or as --labels-file FILE")


def parse_labels(text: str) -> tuple[str, ...]:
    """Read class names with commas between.

    Raises:
        LabelError: there are none.
    """
    return _clean(text.split(","), "--labels")


def read_labels(path: Path) -> tuple[str, ...]:
    """Read class names from a text file, one a line; blank lines and lines that start with # are left out.

    Raises:
        LabelError: the file cannot be read, or has no names.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise LabelError(f"{path}: not a text file in UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise LabelError(f"{path}: {reason_of(error)}") from None
    return _clean((line for line in lines if not line.lstrip().startswith("#")), str(path))


def _clean(names: Iterable[str], source: str) -> tuple[str, ...]:
    cleaned = tuple(unicodedata.normalize("NFC", name.strip()) for name in names if name.strip())
    if not cleaned:
        raise LabelError(f"{source}: no class names; give at least one")
    return cleaned
