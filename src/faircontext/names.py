"""Class names: what one must be, how two are compared, which class a word or a folder names, and lists of names."""

import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import chain, count
from pathlib import Path

from faircontext.errors import ArgumentError, LabelError, and_more, lines_and_more, reason_of

_NUMBERED = re.compile(r"(\d+|n\d{8})(?:[.:;,)\t]\s*|\s+)\D.*")
"""A class name after its index or its wnid, as lists of classes have them."""

_OTHER_COMMAS = ";|\uff0c\u3001\uff1b"
"""Marks that lists have in place of commas: the last are the comma of full width, the enumeration comma, and `;`."""

_QUOTES = "'\"`"

_INVISIBLE = re.compile(r"[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Characters for the layout of documents; joiners are not among them, which scripts and emoji need."""

_SHOWN = 20
"""Folders of no class that are named, a line each."""


def lines_of_labels(labels: Sequence[str]) -> str:
    """Return class names as a file of them has them, one a line.

    Raises:
        LabelError: a name cannot be used, see `check_name`, or would be read as a comment.
    """
    for position, name in enumerate(labels, 1):
        check_name(position, name)
        if name.lstrip().startswith("#"):
            raise LabelError(f"class name number {position}, {name!r}, starts with #, as comments do; rename it")
    return "\n".join(labels) + "\n"


def check_name(position: int, name: str, file: Path | None = None) -> None:
    """Refuse a class name that cannot be read in a prompt or shown in a table.

    Args:
        position: of the name in its list, from 1.
        name: as given.
        file: that it was read from, if any, for the message.

    Raises:
        LabelError: it is blank, has control characters or stray bytes, or is no string.
    """
    if not isinstance(name, str):
        raise LabelError(f"class name number {position} is {name!r}, not a string")
    kinds = [unicodedata.category(character) for character in name]
    if control := {*kinds} & {"Cc", "Cs", "Zl", "Zp"}:
        what = "bytes that are not UTF-8" if control == {"Cs"} else "control characters"
        doubt = "give one name a line and nothing else" if "\t" in name else "is the file plain UTF-8?"
        where, hint = (f"{file}: ", f"; {doubt}") if file else ("", "")
        raise LabelError(f"{where}class name number {position}, {name[:60]!r}, has {what}{hint}")
    if all(kind[0] in "CZ" for kind in kinds):
        raise LabelError(f"class name number {position} is blank")


def compose(name: str) -> str:
    """Return a name in Unicode's composed form (NFC)."""
    return unicodedata.normalize("NFC", name)


def normalise(name: str) -> str:
    """Return a class name as it is compared: case, underscores for spaces and composition do not matter."""
    return compose(name).replace("_", " ").strip().casefold()


def as_integer(word: str) -> int | None:
    """Return the value of a word of digits, zeros before it allowed, or None."""
    return int(word) if word.isdecimal() and len(word) < 256 else None  # a file's name is no longer


def natural(path: Path) -> tuple[int, str]:
    """Sort integer names, as of class folders, by value and before words."""
    return (int(path.name), "") if path.name.isdecimal() else (sys.maxsize, path.name)


_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\.|$)", re.IGNORECASE)


def as_file_names(names: Iterable[str]) -> list[str]:
    """Return, for each name, one that a file or folder can have on every system, close to it.

    Signs that paths are made of become underscores, points and blanks at the ends are left out, and what is longer than
    200 bytes is cut. No two that differ in case or composition alone are returned: some systems take them for one.
    """
    usable: dict[str, str] = {}
    for name in names:
        clean = re.sub(r'[\x00-\x1f\x7f<>:"/\\|?*]', "_", name).encode(errors="ignore")[:200].decode(errors="ignore")
        clean = clean.strip(". ")
        clean = f"_{clean}" if not clean or _DEVICE.match(clean) else clean
        numbered = chain([clean], (f"{clean} ({number})" for number in count(2)))
        usable |= [next((key, word) for word in numbered if (key := compose(word).casefold()) not in usable)]
    return [*usable.values()]


class ClassIndex:
    """Which class a word names, by index: the name that is equal, else alike in less and less.

    First the very same name counts, then the same in another Unicode composition, then one that differs in case or
    underscores too, then an integer of the same value (`01` names the class `1`). Thus `Crane` and `crane` may be two
    classes, and where only one of them is a class, either word names it.

    Args:
        names: class names; two may be equal.
    """

    def __init__(self, names: Sequence[str]) -> None:
        keys: tuple[Callable[[str], Hashable], ...] = (str, compose, normalise, as_integer)
        self._levels: list[tuple[Callable[[str], Hashable], dict[Hashable, list[int]]]] = []
        for key in keys:
            indices: dict[Hashable, list[int]] = {}
            for index, name in enumerate(names):
                indices.setdefault(key(name), []).append(index)
            indices.pop(None, None)  # of names that are no integers
            self._levels.append((key, indices))

    def find_all(self, word: str) -> tuple[int, ...]:
        """Return the indices of all classes that a word names: several where they have one name."""
        return next((tuple(indices[key(word)]) for key, indices in self._levels if key(word) in indices), ())

    def find(self, word: str) -> int | None:
        """Return the index of the class that a word names, the first of several, or None."""
        return next(iter(self.find_all(word)), None)


def count_from_one(labels: Collection[int], names: Sequence[str]) -> str:
    """Return, with the counts, that labels which should count from 0 never use 0; empty where they do.

    Args:
        labels: integers that stand for classes.
        names: class names.
    """
    if not labels or 0 in labels:
        return ""
    ends = f"they run from {min(labels)} to {max(labels)} for {len(names)} class names"
    return f"{ends}, so that class 0, {names[0]!r}, has no image; count from 0"


def are_shards(folders: Collection[str], n: int) -> bool:
    """Tell whether integer folders are numbered parts, as img2dataset's `00000`, and no positions among `n` classes.

    Parts are numbered with zeros before, to more digits than the positions take, and five at least.
    """
    digits = max(4, len(str(n - 1)))
    padded = any(name.startswith("0") for name in folders)
    return padded and all(name.isdecimal() and len(name) > digits for name in folders)


class FolderTruth:
    """Which class an image's folder is named after, by index.

    A folder of exactly a class's name is that class; else case, underscores for spaces, Unicode composition, and zeros
    before an integer do not matter, see `ClassIndex`. Where no folder is named after a class and all are integers, as
    in copies of ImageNet, an integer is the position of the class, from 0, unless they are parts, see `are_shards`.

    Args:
        names: class names.
        paths: all images.
        roots: folders of class folders, which may hold more folders; without them the folder that directly holds an
            image counts.
    """

    def __init__(self, names: Sequence[str], paths: Iterable[Path], roots: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self._roots = [Path(os.path.abspath(root)) for root in roots]  # noqa: PTH100 (keeps links, unlike resolve)
        index = ClassIndex(self.names)
        self._folder = cache(self._find_folder)
        folders = {self._folder(path.parent) for path in paths} - {*self._roots}
        self.folders = sorted(folders, key=lambda folder: (natural(folder), folder))  # 01 before 1
        self.labels = {folder: index.find(folder.name) for folder in self.folders}
        self._positions = [value for value in (as_integer(folder.name) for folder in self.folders) if value is not None]
        named = any(label is not None for label in self.labels.values())
        self.numbered = bool(self.folders) and len(self._positions) == len(self.folders) and not named
        self.shards = self.numbered and are_shards([folder.name for folder in self.folders], len(self.names))
        if self.numbered and not self.shards and max(self._positions) < len(self.names):
            self.labels = dict(zip(self.folders, self._positions, strict=True))
        self.shared = self._leave_shared()

    def _leave_shared(self) -> list[str]:
        """Take the class from folders beside each other that are of one class, and say so, a line for each class."""
        beside: dict[tuple[Path, int], list[Path]] = {}
        for folder, label in self.labels.items():
            if label is not None:
                beside.setdefault((folder.parent, label), []).append(folder)
        shared = {(label, tuple(folders)) for (_, label), folders in beside.items() if len(folders) > 1}
        self._apart = {folder for _, folders in shared for folder in folders}
        self.labels |= dict.fromkeys(self._apart)
        named = "{}: the folders {} are of one class, {} {}; join them"
        return [
            named.format(folders[0].parent, and_more([folder.name for folder in folders]), label, self.names[label])
            for label, folders in sorted(shared)
        ]

    def __call__(self, path: Path) -> int | None:
        """Return the index of the class of one of the images, or None."""
        return self.labels.get(self._folder(path.parent))

    def _find_folder(self, holder: Path) -> Path:
        """Return which folder may be named after the class of the images that lie in one."""
        absolute = Path(os.path.abspath(holder))  # noqa: PTH100 (as above)
        for root in self._roots:
            if root in absolute.parents:
                return root / absolute.relative_to(root).parts[0]
        return absolute if holder == Path() or os.pardir in holder.parts else holder

    def warnings(self) -> list[str]:
        """Return what a person should know about the folders before a run, a line each."""
        lines = [f"{line}; their images count in no accuracy" for line in self.shared]
        if self.numbered:
            return [*lines, self._position_warning()]
        known = {folder: label for folder, label in self.labels.items() if label is not None}
        if known and all(folder.name.isdecimal() for folder in self.folders):
            order = and_more(sorted((folder.name for folder in known), key=int), 20)
            lines.append(f"class folders are all integers, and so are the class names, in this order: {order}")
        strange = [folder for folder in self.folders if known and folder not in known and folder not in self._apart]
        lines += lines_and_more(strange, _SHOWN, self._strange_warning, "{} more folders are named after no class")
        empty = [name for index, name in enumerate(self.names) if index not in known.values()]
        if self._roots and empty:
            lines.append(f"class folders without images, which stay classes: {and_more(empty, 20)}")
        return lines

    def _strange_warning(self, folder: Path) -> str:
        """Say that a folder is named after no class, with names that are close."""
        close = get_close_matches(normalise(folder.name), {*map(normalise, self.names)}, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        return f"folder {folder} is named after no class, its images count in no accuracy{hint}"

    def _position_warning(self) -> str:
        """Say which classes integer folders stand for, or that they stand for none."""
        head = "class folders are all integers"
        if self.shards:
            return (
                f"folders are numbered parts, such as {self.folders[0].name}, and no positions among "
                f"{len(self.names)} classes: no image has a truth from its folder"
            )
        if max(self._positions) >= len(self.names):
            return (
                f"{head}, but {self.folders[-1].name} is no position among {len(self.names)} classes, counted from 0: "
                "no image has a truth"
            )
        pairs = [
            f"{folder.name} = {self.names[position]}"
            for folder, position in self.labels.items()
            if position is not None
        ]
        from_one = count_from_one(self._positions, self.names)
        doubt = f"; they may count from 1: {from_one}" if from_one else ""
        return f"{head}, taken as positions in the list of classes, from 0: {and_more(pairs, 20)}{doubt}"


def list_warnings(names: Sequence[str], multi_label: bool = False) -> list[str]:
    """Return what is odd in a whole list of class names, a line each.

    Args:
        names: of all classes.
        multi_label: whether an image may have several labels: then one label is decided upon as any other.
    """
    lines = []
    if len(names) == 1:
        if not multi_label:
            lines.append(f"with one class, {names[0]}, nothing is decided: every image is answered with it")
        if "," in names[0]:
            lines.append("the one class name has commas in it; a file of class names has one a line")
        elif other := next((mark for mark in _OTHER_COMMAS if mark in names[0]), None):
            lines.append(f"the one class name has {other!r} in it; --labels takes names with commas (,) between")
    if hidden := next(((name, mark[0]) for name in names if (mark := _INVISIBLE.search(name))), None):
        what = f"has a character that nobody sees, {hidden[1]!a}"
        lines.append(f"the class name {hidden[0]!r} {what}; prompts have it too")
    return lines + _odd_forms(names)


def name_warnings(names: Sequence[str], multi_label: bool = False) -> list[str]:
    """Return what a person should know about class names before a run, a line each.

    Besides `list_warnings`: which names are equal or nearly so. In a known data set that is as it should be.
    """
    lines = list_warnings(names, multi_label)
    equal, alike = Counter(map(compose, names)), Counter(map(normalise, names))
    doubled = sorted({name for name in names if equal[compose(name)] > 1})
    if doubled:
        lines.append(
            f"class names given more than once: {', '.join(doubled)}; each keeps its position, the first wins ties"
        )
    similar = sorted({name for name in names if alike[normalise(name)] > 1} - {*doubled})
    if similar:
        lines.append(
            f"class names that differ in case, underscores or blanks alone: {', '.join(similar)}; a text model may "
            "read them alike, and the first wins ties"
        )
    return lines


def _odd_forms(names: Sequence[str]) -> list[str]:
    """Return where all names have something around them that a file or a shell put there."""
    prefixes = [match[1] for match in map(_NUMBERED.fullmatch, names) if match]
    counted = [as_integer(prefix) for prefix in prefixes]
    in_order = counted in ([*range(len(names))], [*range(1, len(names) + 1)])
    if len(prefixes) == len(names) > 1 and (
        in_order or not any(map(str.isdecimal, prefixes))
    ):  # not of years, as of cars
        return [f"each class name begins with its number, as in {names[0]!r}; prompts will have it in them"]
    unclosed = next((name for name in names if name.startswith('"') and name.count('"') == 1), None)
    if unclosed or (names and names[0][:1] in _QUOTES and names[-1][-1:] == names[0][:1]):
        return [f"quotation marks are read as part of class names, as in {unclosed or names[0]!r}"]
    last = names[-1] if names else ""
    if any(last.count(closing) > last.count(opening) for opening, closing in ("[]", "{}", "()")):
        return [f"brackets are read as part of class names, as in {last!r}; give the names alone"]
    for mark in ",;":
        if len(names) > 1 and all(name.endswith(mark) for name in names[:-1]):
            return [f"each class name ends with {mark!r}, as in {names[0]!r}; prompts will have it in them"]
    if len(names) > 1 and all(name.startswith(("- ", "* ")) for name in names):
        return [f"each class name begins with a mark of lists, as in {names[0]!r}; prompts will have it in them"]
    return []


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
        for position, name in enumerate(names, 1):
            check_name(position, name, file)
        return names
    raise ArgumentError("give the class names either as --labels a,b,c or as --labels-file FILE")


def parse_labels(text: str, source: str = "--labels") -> tuple[str, ...]:
    """Read class names with commas between.

    Args:
        text: the names.
        source: what gives them, for the message.

    Raises:
        LabelError: there are none.
    """
    return _clean(text.split(","), source)


def split_labels(text: str, source: str, what: str = "class names") -> tuple[str, ...]:
    """Read class names, one a line; blank lines and lines that start with # are left out.

    Args:
        text: the names.
        source: what gives them, for the message.
        what: they are, for the message.

    Raises:
        LabelError: there are none.
    """
    lines = text.split("\n")  # splitlines knows more ends than a file has
    return _clean((line for line in lines if not line.lstrip().startswith("#")), source, what)


def read_labels(path: Path, what: str = "class names") -> tuple[str, ...]:
    """Read class names from a text file, see `split_labels`.

    Args:
        path: of the file.
        what: they are, for the message.

    Raises:
        LabelError: the file cannot be read, or has no names.
    """
    return split_labels(read_text(path), str(path), what)


def read_text(path: Path) -> str:
    """Return the text of a file that people write.

    Raises:
        LabelError: the file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise LabelError(f"{path}: not a text file in UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise LabelError(f"{path}: {reason_of(error)}") from None


def _clean(names: Iterable[str], source: str, what: str = "class names") -> tuple[str, ...]:
    cleaned = tuple(compose(name.strip()) for name in names if name.strip())
    if not cleaned:
        raise LabelError(f"{source}: no {what}; give at least one")
    return cleaned
