"""Images from files, folders and lists, with folder names as truth; class names from a list or a file."""

import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from faircontext.errors import ArgumentError, LabelError
from faircontext.imageio import EXTENSIONS

__all__ = ["class_names", "find_images", "folder_label", "parse_labels", "read_labels", "remarks"]


def find_images(paths: Sequence[str], listed: Iterable[str] = ()) -> list[Path]:
    """Return the images under some paths, without loading any.

    Folders are searched recursively, links followed, and sorted; hidden files and folders are left out. A file that is
    named is always taken, whatever its extension.

    Args:
        paths: files, folders, or `-` for `listed`.
        listed: file names that stand for `-`, one each.

    Raises:
        ArgumentError: a path does not exist, or there is no image at all.
    """
    if not paths:
        raise ArgumentError("give at least one image, folder, or - for file names on standard input")
    found: list[Path] = []
    for path in paths:
        if path == "-":
            found += [Path(line.rstrip("\r\n")) for line in listed if line.strip()]
        elif os.path.isdir(path):  # noqa: PTH112 (unlike Path, it answers for names that cannot exist)
            found += _search(Path(path))
        elif os.path.lexists(path):
            found.append(Path(path))
        else:
            raise ArgumentError(f"{path}: no such file or folder")
    if not found and set(paths) == {"-"}:
        raise ArgumentError("standard input names no file; give one file name a line")
    if not found:
        raise ArgumentError(
            f"no images in {', '.join(paths)}; looked for the extensions {' '.join(sorted(EXTENSIONS))}"
        )
    return list(dict.fromkeys(found))


def _search(folder: Path, above: frozenset[str] = frozenset()) -> Iterator[Path]:
    place = os.path.realpath(folder)
    if place in above:  # a link back up would never end
        return
    try:
        entries = sorted((entry for entry in folder.iterdir() if not _is_hidden(entry.name)), key=_natural)
    except OSError as error:
        raise ArgumentError(f"{folder}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    for entry in entries:
        if entry.is_dir():
            yield from _search(entry, above | {place})
        elif entry.suffix.lower() in EXTENSIONS:
            yield entry


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _natural(path: Path) -> tuple[int, str]:
    """Sort integer names, as of class folders, by value and before words."""
    return (int(path.name), "") if path.name.isdecimal() else (sys.maxsize, path.name)


def folder_label(path: Path, names: Sequence[str]) -> int | None:
    """Return the index of the class that an image's folder is named after, or None.

    Case, underscores for spaces, and Unicode composition do not matter.
    """
    folder = _normalise(Path(os.path.abspath(path)).parent.name)  # noqa: PTH100 (keeps links, unlike resolve)
    return next((index for index, name in enumerate(names) if _normalise(name) == folder), None)


def remarks(names: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return what a person should know about class names and folders before a run, a line each."""
    found = []
    if len(names) == 1:
        found.append(f"with one class, {names[0]}, nothing is decided: every image is answered with it")
    alike = Counter(map(_normalise, names))
    if doubled := sorted({name for name in names if alike[_normalise(name)] > 1}):
        found.append(
            f"class names given more than once: {', '.join(doubled)}; each keeps its place, the first wins ties"
        )
    folders = {path.parent for path in paths}
    known = {folder for folder in folders if folder_label(folder / "image", names) is not None}
    if known:  # else folder names are not meant as class names
        for folder in sorted(folders - known):
            close = get_close_matches(_normalise(folder.name), [_normalise(name) for name in names], n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            found.append(f"folder {folder} is named after no class, its images count in no accuracy{hint}")
    return found


def _normalise(name: str) -> str:
    return unicodedata.normalize("NFC", name).replace("_", " ").strip().casefold()


def class_names(text: str | None, file: Path | None) -> tuple[str, ...]:
    """Read class names from a list with commas or from a file, whichever is given.

    Raises:
        ArgumentError: none or both are given.
        LabelError: there are no names, or the file cannot be read.
    """
    if text is not None and file is None:
        return parse_labels(text)
    if file is not None and text is None:
        return read_labels(file)
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
        raise LabelError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return _clean((line for line in lines if not line.lstrip().startswith("#")), str(path))


def _clean(names: Iterable[str], source: str) -> tuple[str, ...]:
    cleaned = tuple(unicodedata.normalize("NFC", name.strip()) for name in names if name.strip())
    if not cleaned:
        raise LabelError(f"{source}: no class names; give at least one")
    return cleaned
