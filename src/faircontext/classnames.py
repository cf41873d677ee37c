"""Class names: what one must be, how two are compared, and which class a word names; known apart from models."""

import unicodedata
from collections.abc import Callable, Collection, Hashable, Sequence
from pathlib import Path

from faircontext.errors import LabelError

__all__ = ["ClassIndex", "as_integer", "check_name", "compose", "count_from_one", "normalise"]


def check_name(number: int, name: str, file: Path | None = None) -> None:
    """Refuse a class name that cannot be read in a prompt or shown in a table.

    Args:
        number: of the name in its list, from 1.
        name: as given.
        file: that it was read from, if any, for the message.

    Raises:
        LabelError: it is blank, has control characters or stray bytes, or is no string.
    """
    if not isinstance(name, str):
        raise LabelError(f"class name number {number} is {name!r}, not a string")
    kinds = [unicodedata.category(character) for character in name]
    if control := {*kinds} & {"Cc", "Cs", "Zl", "Zp"}:
        what = "bytes that are not UTF-8" if control == {"Cs"} else "control characters"
        doubt = "give one name a line and nothing else" if "\t" in name else "is the file plain UTF-8?"
        where, hint = (f"{file}: ", f"; {doubt}") if file else ("", "")
        raise LabelError(f"{where}class name number {number}, {name[:60]!r}, has {what}{hint}")
    if all(kind[0] in "CZ" for kind in kinds):
        raise LabelError(f"class name number {number} is blank")


def compose(name: str) -> str:
    """Return a name in Unicode's composed form (NFC)."""
    return unicodedata.normalize("NFC", name)


def normalise(name: str) -> str:
    """Return a class name as it is compared: case, underscores for spaces and composition do not matter."""
    return compose(name).replace("_", " ").strip().casefold()


def as_integer(word: str) -> int | None:
    """Return the value of a word of digits, zeros before it allowed, or None."""
    return int(word) if word.isdecimal() and len(word) < 256 else None  # a file's name is no longer


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
            places: dict[Hashable, list[int]] = {}
            for index, name in enumerate(names):
                places.setdefault(key(name), []).append(index)
            places.pop(None, None)  # of names that are no integers
            self._levels.append((key, places))

    def find_all(self, word: str) -> tuple[int, ...]:
        """Return the indices of all classes that a word names: several where they have one name."""
        return next((tuple(places[key(word)]) for key, places in self._levels if key(word) in places), ())

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
    return (
        f"they run from {min(labels)} to {max(labels)} for {len(names)} class names, so that class 0, {names[0]!r}, "
        "has no image; count from 0"
    )
