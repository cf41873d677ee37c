"""One row per image and method: the columns of `classify`, and their CSV file."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from faircontext.errors import ArgumentError

__all__ = ["Row", "RowWriter", "open_output", "writing"]


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
        seconds: time taken by the image, all its methods together.
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
        raise ArgumentError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def open_output(path: Path) -> TextIO:
    """Open a text file for writing.

    Raises:
        ArgumentError: the file cannot be written.
    """
    with writing(path):
        return path.open("w", encoding="utf-8", errors="surrogateescape", newline="")


class RowWriter:
    """Writes rows to a CSV file as they come, so that an interrupted run keeps what it had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_output(path)
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
