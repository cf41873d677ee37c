"""Which class a label is: decided here for every table, archive and list, whatever the command."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from faircontext.datasets.folder import NAMES
from faircontext.datasets.spec import BLANK, NO_CLASS, Truth
from faircontext.errors import ArgumentError, and_more, counted
from faircontext.names import ClassIndex, compose, count_from_one, normalise

SEVERAL = "labels"
"""The column that holds all labels of an image; where there is none, that of the label does."""

LABEL_COLUMNS = ("label", "class_name", "class", "cls")
"""What the column of an image's label is called, the first of them that there is."""

SEPARATOR = ";"
"""Between the labels of a cell."""

UNREAD = object()
"""Stands for labels in the column `labels`, which is not read where an image has one label."""

_OTHER_MARKS = ",|/\t"
"""What people put between labels in place of the separator."""

_MOST_STRANGE = 1000


def column_of_labels(names: Collection[str], label_column: str | None, multi_label: bool) -> str | None:
    """Return the column of labels: the one that is asked for, or the first of the usual names; None where none is.

    Args:
        names: of all columns.
        label_column: asked for by the user, if any.
        multi_label: whether an image may have several labels.
    """
    usual = (SEVERAL, *LABEL_COLUMNS) if multi_label else LABEL_COLUMNS
    return label_column or next((name for name in usual if name in names), None)


def label_in(row: Mapping[str, object], label_column: str | None, multi_label: bool) -> tuple[object, str]:
    """Return the label of a row, `UNREAD` where it has labels that are not read, and what its class is called.

    Args:
        row: of a table, or the object of a `json` in an archive; what is empty may be missing.
        label_column: asked for by the user, see `column_of_labels`; else `class_name` beside `label` is what the class
            is called.
        multi_label: whether an image may have several labels.
    """
    column = column_of_labels(row, label_column, multi_label)
    if column is None:
        return (None if row.get(SEVERAL) in (None, "", []) else UNREAD), ""
    title = row.get("class_name") if column == "label" and label_column is None else None
    return row.get(column), title.strip() if isinstance(title, str) else ""


def _text(value: object, where: str) -> str:
    """Return a label as it would stand in a CSV file, empty where it is missing."""
    if value is None or value != value:  # NaN is not equal to itself
        return ""
    if isinstance(value, bool):
        return str(value).lower()  # it may be the name of a class, and is no position
    if isinstance(value, str | int | float | Decimal):
        return compose(str(value).strip())
    raise ArgumentError(
        f"{where}: the label {str(value)[:60]!r} is neither a name nor an index; give a list of these, or one text "
        f"with {SEPARATOR} between"
    )


def label_words(value: Any, where: str, multi_label: bool) -> tuple[str, ...] | None:
    """Return the labels of a cell as texts; None where they are not known.

    Args:
        value: of the cell: a text, a number, or a list of these.
        where: it stands, for the message.
        multi_label: whether an image may have several labels: a text then has `;` between, and an empty one has none.
            If not, a list is the text that would stand for it.

    Raises:
        ArgumentError: it is something else.
    """
    value, listed = value.decode("utf-8", "replace") if isinstance(value, bytes) else value, isinstance(value, list)
    if not listed and (value is None or value != value):
        return None
    items = value if listed else value.split(SEPARATOR) if multi_label and isinstance(value, str) else [value]
    words = tuple(text for text in (_text(item, where) for item in items) if text)
    if multi_label:
        return words
    return (SEPARATOR.join(words),) if words else None


def _integer(word: str) -> int | None:
    """Return the value of an integer, perhaps as it is written in a column of floats."""
    match = re.fullmatch(r"(\d{1,9})(\.0*)?", word)
    return None if match is None else int(match[1])


@dataclass
class _Word:
    """A label that occurs, where the classes are named by what occurs."""

    text: str
    where: str
    title: str


class LabelEncoder:
    """Turns labels into indices of classes: first all are added, then it is decided what they are.

    A label that is the name of a class is that class. Else an integer is a position in the list of classes, from 0,
    `1.0` as well as `1`. An empty cell, null and NaN are no label. What is neither is refused where the names are the
    data set's own, and else, as a person may give some of its classes, counted, and of no class.
    Without a list of names classes are called like the labels, in sorted order, or as the titles of integers say.

    Args:
        names: of the classes; empty where labels name them.
        multi_label: whether an image may have several labels.
        strict: whether names are the data set's own.
    """

    def __init__(self, names: Sequence[str] = (), multi_label: bool = False, strict: bool = False) -> None:
        self.names, self._multi_label, self._strict = tuple(names), multi_label, strict
        self._n, self._index = len(self.names), ClassIndex(self.names)
        self._words: dict[str | int, tuple[int, _Word]] = {}
        self._strange, self._positions = Counter[str](), Counter[str]()
        self._named, self._first_strange, self._highest = "", "", ""
        self._range: tuple[int, int] | None = None
        self._only_integers, self._titled = True, True
        self._unread = self._without = 0
        self._classes: list[int] = []
        self._notes: list[str] = []

    def add(self, label: object, where: str, title: str = "") -> Truth:
        """Take a label, and return what `decode` turns into its class or its classes.

        Args:
            label: see `label_words`; `UNREAD` where it is not read.
            where: it stands, for messages.
            title: the name of its class, or of its classes with `;` between, where a table has that beside the label.

        Raises:
            ArgumentError: it is no label, or its title is the name of another class.
        """
        words = None if label is UNREAD else label_words(label, where, self._multi_label)
        self._unread += label is UNREAD
        self._without += words == ()
        if words is None:
            return None
        titles = [part for text in title.split(SEPARATOR) if (part := text.strip())] if self._multi_label else [title]
        if not title:
            titles = [""] * len(words)
        elif words and len(titles) != len(words):
            raise ArgumentError(f"{where}: has {len(words)} labels and {len(titles)} class names; name each, or none")
        codes = [self._code(word, where, compose(name)) for word, name in zip(words, titles, strict=False)]
        classes = {code for code in codes if code is not None}
        return tuple(sorted(classes)) if self._multi_label else next(iter(classes), None)

    def _code(self, word: str, where: str, title: str) -> int | None:
        """Return a number for a label: of a word, or of a class, or, from the count of classes on, of a position."""
        if word.casefold() == "nan" and not self._index.find_all(word):  # NumPy's word for a label that is missing
            return None
        if not self._n:
            return self._code_of_word(word, where, title)
        named, integer = self._index.find_all(word), _integer(word)
        if integer is None:
            self._only_integers = False
        else:
            named = named or self._index.find_all(str(integer))
            self._count_integer(integer, where, bool(title))
        positions = (integer,) if integer is not None and integer < self._n else ()
        if title and (named or positions):
            return self._code_of_title((*named, *positions), where, title)
        if named:
            self._named = self._named or (word if integer is not None else "")
            return named[0]
        if positions:
            self._positions[word] += 1
            return self._n + positions[0]
        self._first_strange = self._first_strange or where
        self._strange[word if len(self._strange) < _MOST_STRANGE or word in self._strange else "others"] += 1
        return NO_CLASS

    def _code_of_word(self, word: str, where: str, title: str) -> int:
        integer = _integer(word)
        new = len(self._words), _Word(word, where, title)
        number, first = self._words.setdefault(normalise(word) if integer is None else integer, new)
        if title and normalise(first.title or title) != normalise(title):
            raise ArgumentError(f"{where}: class {word} is {first.title!r}, but is called {title!r}")
        first.title = first.title or title
        return number

    def _code_of_title(self, candidates: Sequence[int], where: str, title: str) -> int:
        titled = self._index.find_all(title)
        chosen = next((candidate for candidate in candidates if candidate in titled), None)
        if chosen is None:
            label = candidates[0]
            raise ArgumentError(f"{where}: class {label} is {self.names[label]!r}, but is called {title!r}")
        return chosen

    def _count_integer(self, integer: int, where: str, titled: bool) -> None:
        low, high = self._range or (integer, integer)
        if self._range is None or integer > high:
            self._highest = where
        self._range, self._titled = (min(low, integer), max(high, integer)), self._titled and titled

    def finish(self) -> None:
        """Decide what labels are, once all have been added.

        Raises:
            ArgumentError: they count from 1, or may be names or positions, or one is none of the data set's classes.
        """
        if not self._n:
            self._classes = self._name_classes()
            return
        positions = [*range(self._n)]
        if self._named and self._positions:
            other = next(iter(self._positions))
            if self._strict or (self._range is not None and self._range[1] < self._n):
                raise ArgumentError(
                    f"{self._highest.partition(', line ')[0]}: of its labels {self._named!r} is the name of a class, "
                    f"and {other!r} may be a position; give names alone"
                )
            positions = [NO_CLASS] * self._n  # numbers are names here, some of classes that are not in the list
            self._first_strange = self._first_strange or self._highest
            self._strange += self._positions
        self._classes = [*range(self._n), *positions]
        self._check_start()
        self._check_known()

    def _check_start(self) -> None:
        """Look for positions that count from 1: an error where that is certain, a note where it may be so."""
        if self._range is None or not self._only_integers or self._named:
            return
        from_one = count_from_one({*self._range}, self.names)
        if from_one and self._range[1] == self._n:
            raise ArgumentError(f"{self._highest.partition(', line ')[0]}: labels count from 1: {from_one}")
        if from_one and not self._titled:
            self._notes.append(f"labels may count from 1: {from_one}")

    def _check_known(self) -> None:
        if self._strict and self._strange:
            word = next(iter(self._strange))
            hint = f"; {_how(self._multi_label)}" if self._is_joined(word) else ""
            raise ArgumentError(
                f"{self._first_strange}: the label {word[:60]!r} is no class; use 0 to {self._n - 1}, or a class "
                f"name{hint}"
            )

    def _name_classes(self) -> list[int]:
        """Take class names from titles, or from labels where these are words, and return the class of each word."""
        words = [word for _, word in self._words.values()]
        titled = any(normalise(word.title) not in ("", normalise(word.text)) for word in words)
        if not titled and all(_integer(word.text) is None for word in words):
            self.names = tuple(sorted(word.text for word in words))
            order = {name: index for index, name in enumerate(self.names)}
            self._notes.append(f"labels are class names: {counted(len(words), 'class')}, in sorted order{self._hint()}")
            return [order[word.text] for word in words]
        by_label: dict[int, str] = {}
        for word in words:
            if not word.title:
                raise ArgumentError(
                    f"{word.where}: its label is {word.text[:60]!r}; name the classes, from 0, in {NAMES}, or in a "
                    "column class_name"
                )
            if (integer := _integer(word.text)) is None:
                raise ArgumentError(f"{word.where}: the label {word.text[:60]!r} is no class; count from 0")
            add_name(by_label, integer, word.title, word.where)
        where = words[0].where.partition(", line ")[0]
        self.names = check_gapless(where, by_label, f"; name all classes in {NAMES}")
        return [integer for word in words if (integer := _integer(word.text)) is not None]

    def _hint(self) -> str:
        """Return, where labels look like several in one cell, how these are read."""
        marks = _OTHER_MARKS if self._multi_label else SEPARATOR
        joined = next((name for name in self.names if any(mark in name for mark in marks)), None)
        return f"; {joined!r} is one of them: {_how(self._multi_label)}" if joined else ""

    def decode(self, truth: Truth) -> Truth:
        """Return the index of the class, or of the classes, that `add` took, or `NO_CLASS`, after `finish`."""
        if truth is None or isinstance(truth, int):
            return truth if truth in (None, NO_CLASS, BLANK) else self._classes[truth]
        return tuple(sorted({self._classes[code] for code in truth if code != NO_CLASS} - {NO_CLASS}))

    @property
    def empty(self) -> bool:
        """Whether no label has been added that could name a class."""
        return not self._words

    def warnings(self) -> list[str]:
        """Return what a person should know about the labels, a line each."""
        lines = [*self._notes]
        if self._unread:
            images = f"{counted(self._unread, 'image')} {'has' if self._unread == 1 else 'have'}"
            lines.append(f"{images} labels in a column {SEVERAL}, which is not read: add --multi-label")
        if self._without:
            images = f"{counted(self._without, 'image')} {'has' if self._without == 1 else 'have'}"
            lines.append(f"{images} none of the classes: an empty cell")
        return [*lines, *self._strange_warning()]

    def _strange_warning(self) -> list[str]:
        if not self._strange:
            return []
        n, words = self._strange.total(), [*self._strange]
        named = f"{and_more([repr(word[:60]) for word in words])}; the first in {self._first_strange}"
        joined = any(self._is_joined(word) for word in words)
        hint = f"; {_how(self._multi_label)}" if joined else ""
        if self._multi_label:
            return [f"labels that are no class are left out, {n:,} in all: {named}{hint}"]
        count = f"{counted(n, 'image')} {'counts' if n == 1 else 'count'}"
        return [f"labels that are no class, whose {count} in no accuracy: {named}{hint}"]

    def _is_joined(self, word: str) -> bool:
        """Tell whether a word is several labels, with a mark between."""
        if not self._multi_label and SEPARATOR in word:
            return True
        parts = ([part.strip() for part in word.split(mark)] for mark in (*_OTHER_MARKS, SEPARATOR) if mark in word)
        return any(all(self._index.find_all(part) or self._is_position(part) for part in each) for each in parts)

    def _is_position(self, word: str) -> bool:
        integer = _integer(word)
        return integer is not None and integer < self._n


def _how(multi_label: bool) -> str:
    """Return how several labels in a cell are read."""
    if multi_label:
        return f"several labels in a cell have {SEPARATOR} between"
    return f"several labels, with {SEPARATOR} between, are read with --multi-label"


def add_name(names: dict[int, str], label: int, name: str, where: str) -> None:
    """Note what a class is called, and raise `ArgumentError` where it was called otherwise before."""
    if normalise(names.setdefault(label, name)) != normalise(name):
        raise ArgumentError(f"{where}: class {label} is {names[label]!r}, but is called {name!r}")


def check_gapless(path: Path | str, names: Mapping[int, str], hint: str = "") -> tuple[str, ...]:
    """Return class names by label, which must be 0, 1, ... without a gap."""
    if sorted(names) != [*range(len(names))]:
        raise ArgumentError(
            f"{path}: labels are not 0 to {len(names) - 1} without a gap: {len(names)} of them, from {min(names)} to "
            f"{max(names)}{hint if 0 in names else '; count from 0'}"
        )
    return tuple(names[label] for label in range(len(names)))
