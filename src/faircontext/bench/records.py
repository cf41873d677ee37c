"""One row per image and method: the columns of `classify`, and their CSV file."""

import csv
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

from faircontext.errors import ArgumentError, reason_of
from faircontext.imageio import EXTENSIONS

__all__ = ["EntrySpool", "Row", "RowWriter", "check_folder", "check_outputs", "to_json", "write_whole", "writing"]


@dataclass(frozen=True)
class Row:
    """One image and method; classes are given by name.

    Attributes:
        path: the image, as it was given or found.
        label: the true class, or empty.
        zero_shot: zero-shot's answer from the same prompts.
        prediction: the method's answer.
        votes: votes for the prediction, None where the method does not vote.
        confidence: probability of the prediction.
        method: the method's name.
        fallback: why the method answered with less than its full procedure, or empty.
        error: why the file was refused, or empty; then there is no answer.
        seconds: time that the method took; the first one also pays for reading, views and features, which all share.
    """

    path: str
    label: str = ""
    zero_shot: str = ""
    prediction: str = ""
    votes: int | None = None
    confidence: float | None = None
    method: str = ""
    fallback: str = ""
    error: str = ""
    seconds: float = 0.0

    def cells(self) -> dict[str, Any]:
        """Return the row as it is written: six decimals of a probability, three of seconds, nothing for None."""
        cells = asdict(self)
        cells["votes"] = "" if self.votes is None else self.votes
        cells["confidence"] = "" if self.confidence is None else f"{self.confidence:.6f}"
        cells["seconds"] = f"{self.seconds:.3f}"
        return cells


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """Turn what the operating system says about a file into one line that names it.

    Raises:
        ArgumentError: the file cannot be written, for example because the disk is full.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        named = isinstance(error.filename, str) and not error.filename.endswith(".partial")
        place = error.filename if named else path
        raise ArgumentError(f"{place}: cannot be written: {reason_of(error)}") from None


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Check, before any work is done and without changing a file, that outputs can be written and are nobody else's.

    Nothing of the trial stays.

    Raises:
        ArgumentError: an output is an input, or another output, or cannot be written.
    """
    taken, made = list(inputs), list[Path]()
    try:
        for path in outputs:
            _check_output(path, taken, made)
            taken.append(path)
    finally:
        for place in made:  # last: outputs that are one file by different names are known by what is there
            place.unlink(missing_ok=True)


def _check_output(path: Path, taken: Sequence[Path], made: list[Path]) -> None:
    """Check an output against what is taken, and try to write it; `made` gets what was not there."""
    if any(_is_same(path, other) for other in taken):
        raise ArgumentError(f"{path}: would be written over what is read, or over another output; name another file")
    if path.suffix.lower() in EXTENSIONS:
        raise ArgumentError(f"{path}: has the name of an image; name another file")
    if _is_printed_to(path):
        raise ArgumentError(f"{path}: is where this command prints to, which would be written over; name another file")
    with writing(path):
        place = Path(os.path.realpath(path))
        new = not place.exists()
        path.open("a").close()
        made += [place] if new else []
        if path.is_file():
            partial = _partial(path)
            partial.open("w").close()
            partial.unlink()


def check_folder(folder: Path) -> None:
    """Check, before any work is done, that a folder can be made and written to; nothing of the trial stays.

    Raises:
        ArgumentError: it cannot; the message names the part of the path that is in the way.
    """
    place = folder
    try:
        while not _is_there(place):
            place = place.parent
        # To try is the one way that knows of read-only disks and of root, who may write where modes say no.
        with tempfile.TemporaryDirectory(prefix=".faircontext-", dir=place):
            pass
    except OSError as error:
        raise ArgumentError(f"{place}: cannot be written: {reason_of(error)}") from None


def _is_there(place: Path) -> bool:
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except (OSError, ValueError):  # one of them does not exist
        return os.path.realpath(first) == os.path.realpath(second)


def _is_printed_to(path: Path) -> bool:
    """Tell whether a file is that of standard output or error; a pipe or a terminal takes both in turn."""
    for stream in (1, 2):
        with suppress(OSError):  # closed, or no such file
            found = os.fstat(stream)
            if stat.S_ISREG(found.st_mode) and os.path.samestat(found, path.stat()):
                return True
    return False


def _partial(path: Path) -> Path:
    """Return where a file is made before it takes its place; a link's target is replaced, not the link."""
    place = Path(os.path.realpath(path))
    return place.with_name(f".{place.name}.partial")


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a file in one step: whoever looks at it sees the old content or the new, never a part.

    Args:
        path: the file.
        text: what it is to hold; pieces are written one after the other.

    Raises:
        ArgumentError: the file cannot be written.
    """
    pieces = [text] if isinstance(text, str) else text
    with writing(path):
        if path.exists() and not path.is_file():  # a device
            with path.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
            return
        partial = _partial(path)
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
            partial.replace(os.path.realpath(path))
        finally:
            partial.unlink(missing_ok=True)


def to_json(
    document: Any, *, indent: int | None = 1, ensure_ascii: bool = False, separators: tuple[str, str] | None = None
) -> str:
    """Return JSON text that every reader takes.

    Numbers that are NaN or infinite become null, since JSON has none; bytes of file names that are no UTF-8 become
    escapes.

    Args:
        document: what is written.
        indent: see `json.dumps`, as the other two.
        ensure_ascii: see there.
        separators: see there.
    """
    layout: dict[str, Any] = {"indent": indent, "ensure_ascii": ensure_ascii, "separators": separators}
    try:
        text = json.dumps(document, allow_nan=False, **layout)
    except ValueError:  # the copy is only made where it is needed
        text = json.dumps(_finite(document), allow_nan=False, **layout)
    return re.sub("[\ud800-\udfff]", lambda stray: f"\\u{ord(stray[0]):04x}", text)


def _finite(value: Any) -> Any:
    """Return a document with None for numbers that are NaN or infinite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


_SPOOLED_AT_ONCE = 64
"""Entries that are encoded together: each call of `json.dumps` with an indent leaves a reference cycle."""


class EntrySpool:
    """Keeps the entries of a JSON document's last list on disk as they come, until the document is written.

    They lie in a file without a name beside the document, which goes with the process.

    Args:
        path: of the document.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        beside = path.parent if path.is_file() or not path.exists() else None  # not beside a device
        with writing(path):
            self._file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="", dir=beside)  # noqa: SIM115
        self._buffer: list[Mapping[str, Any]] = []

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append entries in one step, so that an interruption leaves all of them or none.

        Raises:
            ArgumentError: it cannot be written, for example because the disk is full.
        """
        self._buffer = [*self._buffer, *entries]
        if len(self._buffer) >= _SPOOLED_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._buffer:
            # Line breaks within strings are escapes: every one here begins a line, indented as in a list of a document.
            lines = to_json(self._buffer).removeprefix("[").removesuffix("\n]").replace("\n", "\n ")
            with writing(self._path):
                self._file.write("," + lines)
            self._buffer = []

    def write(self, document: Mapping[str, Any], name: str) -> None:
        """Write the document in one step, with the entries as a list that comes last; see `write_whole`."""
        self._flush()
        head = to_json({**document, name: []}).removesuffix("[]\n}")
        with writing(self._path):
            self._file.seek(0)
            empty = not self._file.read(1)  # the first entry's comma
        write_whole(self._path, chain([head, "["], self._file, ["]\n}" if empty else "\n ]\n}"]))

    def __enter__(self) -> "EntrySpool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what could not be written has been said already
            self._file.close()


class RowWriter:
    """Writes rows to a CSV file as they come, so that an interrupted run keeps what it had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
        columns = [field.name for field in fields(Row)]
        self._writer = csv.DictWriter(self._file, columns, lineterminator="\n")
        # The writer does not quote a lone carriage return, which a reader then takes for the end of the row.
        self._quoting_writer = csv.DictWriter(self._file, columns, lineterminator="\n", quoting=csv.QUOTE_ALL)
        try:
            with writing(path):
                self._writer.writeheader()
                self._file.flush()
        except ArgumentError:
            self._close()
            raise

    def write(self, row: Row) -> None:
        """Append a row and hand it to the operating system."""
        cells = row.cells()
        special = any("\r" in str(cell) for cell in cells.values())
        with writing(self._path):
            (self._quoting_writer if special else self._writer).writerow(cells)
            self._file.flush()

    def _close(self) -> None:
        with suppress(OSError):  # what could not be written has been said already
            self._file.close()

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
