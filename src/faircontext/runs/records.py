"""What a run keeps of each image and method: rows, their columns on disk, and the CSV and JSON of `classify`."""

import csv
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from faircontext.errors import ArgumentError
from faircontext.files import to_json, write_whole, writing

__all__ = [
    "ANALYSES",
    "SCHEMA",
    "SCHEMA_VERSION",
    "EntrySpool",
    "Record",
    "Row",
    "RowWriter",
    "is_analysis",
    "method_of",
    "to_table",
]

SCHEMA_VERSION = 1

ANALYSES = frozenset(
    {"ambiguity", "decomposition", "entropy", "evidence", "gallery", "margin", "pointing", "stability"}
)
"""Names of `faircontext.analysis`, known here without importing it: tables need no model."""


def method_of(label: str) -> str:
    """Return the method of a label: `fcl-50` is a variant of `fcl`."""
    return label.partition("-")[0]


def is_analysis(label: str) -> bool:
    """Return whether rows of this label are of an analysis, or a variant of one, and not of a method."""
    return method_of(label) in ANALYSES


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


@dataclass(frozen=True, kw_only=True)
class Record(Row):
    """A row of a run: the columns of `classify`, and what statistics need; classes are given by index as well.

    Attributes:
        dataset: name of the data set.
        config: hash of all that the answer depends on besides the image, see `Plan.hashes`.
        position: of the image in the data set.
        label_index: the true class.
        zero_shot_index: zero-shot's answer.
        index: the method's answer, None where the file was refused.
        top5: the five best classes, best first.
        top5_probabilities: theirs.
        label_probability: probability of the true class.
        probability_norm: sum over classes of the squared probabilities, which the Brier score needs.
        candidates: classes that the method decided between.
        diagnostics: how the answer came about, as JSON.
        notes: what was decided when the file was read.
    """

    dataset: str
    config: str
    position: int
    label_index: int | None = None
    zero_shot_index: int | None = None
    index: int | None = None
    top5: tuple[int, ...] = ()
    top5_probabilities: tuple[float, ...] = ()
    label_probability: float | None = None
    probability_norm: float | None = None
    candidates: tuple[int, ...] = ()
    diagnostics: str = "{}"
    notes: tuple[str, ...] = ()


_TYPES: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    int | None: pa.int64(),
    float | None: pa.float64(),
    tuple[int, ...]: pa.list_(pa.int64()),
    tuple[float, ...]: pa.list_(pa.float64()),
    tuple[str, ...]: pa.list_(pa.string()),
}

SCHEMA = pa.schema([(field.name, _TYPES[field.type]) for field in fields(Record)])
"""Columns of a run's rows."""


def to_table(records: Sequence[Record]) -> pa.Table:
    """Return records as a table; bytes of file names that are no UTF-8 become escapes."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for record in records:
        for name, value in asdict(record).items():
            columns[name].append(value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value)
    return pa.table(columns, schema=SCHEMA)


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
