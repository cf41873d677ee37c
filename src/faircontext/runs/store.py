"""A run on disk: `run.json` beside its rows in Parquet, written so that a run killed at any moment can go on.

    RUNS/caltech101/run.json           what was run, on what, with which versions; see `RunStore`
    RUNS/caltech101/parts/*.parquet    rows, as they come
    RUNS/caltech101/rows.parquet       all rows in the data set's order, once the run is complete

A part is complete or absent, since it takes its name only when it is written. Rows are known by image and method: what
is found twice, because a run was killed between compacting and deleting parts, counts once.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from faircontext.errors import ArgumentError
from faircontext.files import to_json, write_whole, writing
from faircontext.runs.records import SCHEMA, SCHEMA_VERSION, Record, to_table

__all__ = [
    "FLUSH_SECONDS",
    "Run",
    "RunStore",
    "check_same",
    "check_same_model",
    "in_order",
    "load_run",
    "load_runs",
    "write_run",
]

FLUSH_SECONDS = 10.0
"""Rows are on disk at the latest this long after they came, one image's time added."""


@dataclass(frozen=True)
class Run:
    """A run that has been read.

    Attributes:
        folder: where it lies.
        document: its `run.json`; see `RunStore`.
        rows: of all images so far, by position and in the order of methods.
    """

    folder: Path
    document: Mapping[str, Any]
    rows: pa.Table

    @property
    def complete(self) -> bool:
        """Whether every image of the run has been answered, and its rows are there."""
        wanted = self.document.get("counts", {}).get("images")
        there = wanted is None or len(self.rows) == wanted * len(self.document["config"]["methods"])
        return bool(self.document["status"] == "complete") and there


class RunStore:
    """Writes one run; only one process at a time can hold it.

    Args:
        folder: of the run; it is made.
        document: what `run.json` says, at least `config`, what the run is; `status` is added.
        methods: names of the methods, in their order.
        resume: whether to go on with a run that is there.

    Attributes:
        done: keys of images that have been answered, by all methods.

    Raises:
        ArgumentError: there is a run and `resume` is not set, or it is another one, or another process is at work on
            it, or the folder cannot be written.
    """

    def __init__(self, folder: Path, document: Mapping[str, Any], methods: Sequence[str], resume: bool) -> None:
        self.folder = folder
        self._methods = tuple(methods)
        self._parts = folder / "parts"
        with writing(folder):
            self._parts.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder / ".lock")
        try:
            place, rows = folder / "run.json", _read_rows(folder, self._methods)
            earlier = _read_document(place) if place.exists() else None
            self._check_rows(rows, earlier, document.get("hashes"))
            self.document = self._begin(dict(document), earlier, resume)
            write_whole(place, to_json(self.document))
        except BaseException:
            self._lock.release()
            raise
        answered = Counter(rows["path"].to_pylist())
        self.done = frozenset(path for path, number in answered.items() if number == len(self._methods))
        self._buffer: list[Record] = []
        self._flushed = time.monotonic()
        self._number = 1 + max((int(part.stem) for part in self._parts.glob("*.parquet")), default=0)

    def _check_rows(self, rows: pa.Table, earlier: Mapping[str, Any] | None, hashes: Mapping[str, str] | None) -> None:
        """Refuse rows that are not those of the run that `run.json` describes."""
        if earlier is None:
            if len(rows):
                raise ArgumentError(
                    f"{self.folder}: there are rows without a run.json; delete the folder, or name another --out"
                )
            return
        described = earlier.get("hashes", hashes) or {}
        found = set(zip(rows["method"].to_pylist(), rows["config"].to_pylist(), strict=True))
        if described and (foreign := sorted(found - {*described.items()})):
            raise ArgumentError(
                f"{self.folder}: has rows of {foreign[0][0]} of another run than its run.json describes; delete the "
                "folder, or name another --out"
            )

    def _begin(self, document: dict[str, Any], earlier: Mapping[str, Any] | None, resume: bool) -> dict[str, Any]:
        if earlier is not None:
            if not resume:
                raise ArgumentError(f"{self.folder}: there is a run already; add --resume, or name another --out")
            check_same(self.folder, earlier["config"], json.loads(to_json(document["config"])))
            check_same_model(self.folder, earlier, document)
            # What was measured stays; what this process adds comes at the end.
            document |= {key: earlier[key] for key in ("status", "sessions") if key in earlier}
        return {"status": "running", "sessions": [], **document}

    def add(self, records: Sequence[Record]) -> None:
        """Take the rows of an image; they are written with those of others, at the latest after `FLUSH_SECONDS`."""
        self._buffer += records
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what has come as a part.

        Raises:
            ArgumentError: it cannot be written, for example because the disk is full; earlier parts stay.
        """
        self._flushed = time.monotonic()
        if not self._buffer:
            return
        _write_rows(self._parts / f"{self._number:06}.parquet", to_table(self._buffer))
        self._number += 1
        self._buffer = []

    def note(self, **facts: Any) -> None:
        """Put facts into `run.json`."""
        self.document.update(facts)
        write_whole(self.folder / "run.json", to_json(self.document))

    def finish(self) -> None:
        """Compact the rows into one file, say that the run is complete, and delete the parts."""
        self.flush()
        _write_rows(self.folder / "rows.parquet", _read_rows(self.folder, self._methods))
        self.note(status="complete")
        for part in self._parts.iterdir():
            part.unlink()
        self._parts.rmdir()

    def rows(self) -> pa.Table:
        """Return all rows that are on disk."""
        return _read_rows(self.folder, self._methods)

    def __enter__(self) -> "RunStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.flush()
        except ArgumentError:
            if error is None:  # a second complaint about a full disk would hide the first
                raise
        finally:
            self._lock.release()


def _lock(path: Path) -> FileLock:
    """Lock a run's folder for this process; the system releases it where the process ends in whatever way."""
    lock = FileLock(path, thread_local=False)  # whichever thread closes the store releases it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise ArgumentError(f"{path.parent}: another process is at work on this run; wait for it, or stop it") from None
    return lock


def check_same_model(folder: Path, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` where two documents are of models with another activation: no hash of weights shows it."""
    if "model" in earlier and "model" in now:  # runs of earlier versions do not say
        activations = ({"activation": document["model"].get("activation")} for document in (earlier, now))
        check_same(folder, *activations)


def check_same(folder: Path | str, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` naming what differs, unless two configurations are equal."""
    differences = list(_differences(earlier, now))
    if differences:
        shown = "; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise ArgumentError(f"{folder}: is another run than the one that is asked for: {shown}; name another --out")


def _differences(earlier: Any, now: Any, name: str = "") -> Iterable[str]:
    if isinstance(earlier, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*earlier, *now]):
            inner = f"{name}.{key}" if name else str(key)
            yield from _differences(earlier.get(key), now.get(key), inner)
    elif earlier != now:
        yield f"{name} was {_short(earlier)} and is {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:76] + " ..."


def _write_rows(path: Path, table: pa.Table) -> None:
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            pq.write_table(table, partial, compression="zstd")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def _read_rows(folder: Path, methods: Sequence[str]) -> pa.Table:
    """Return the rows of a run's files, each image and method once, by position and in the order of methods."""
    files = [*folder.glob("rows.parquet"), *sorted((folder / "parts").glob("[0-9]*.parquet"))]
    tables = []
    for file in files:
        try:
            there = pq.read_schema(file).names
            if absent := [name for name in SCHEMA.names if name not in there]:  # else they would be read as empty
                raise ArgumentError(f"{file}: has no column {absent[0]}; delete it and go on with --resume")
            tables.append(pq.read_table(file, schema=SCHEMA))
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise ArgumentError(f"{file}: cannot be read: {reason}; delete it and go on with --resume") from None
    return in_order(pa.concat_tables(tables) if tables else SCHEMA.empty_table(), methods)


def in_order(table: pa.Table, methods: Sequence[str]) -> pa.Table:
    """Return rows with each image and method once, by position and in the order of methods."""
    first: dict[tuple[str, str], int] = {}
    keys = zip(table["path"].to_pylist(), table["method"].to_pylist(), strict=True)
    for number, key in enumerate(keys):
        first.setdefault(key, number)
    places = table["position"].to_pylist()
    order = {name: number for number, name in enumerate(methods)}
    kept = sorted(first.items(), key=lambda item: (places[item[1]], order.get(item[0][1], len(order))))
    return table.take(pa.array([number for _, number in kept], pa.int64()))


def _read_document(place: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        version = document["schema_version"]
        if version == SCHEMA_VERSION:
            document["config"]["methods"], document["status"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArgumentError(
            f"{place}: is no description of a run ({type(error).__name__}); delete its folder"
        ) from None
    if version != SCHEMA_VERSION:
        raise ArgumentError(f"{place}: has schema version {version}; this faircontext reads {SCHEMA_VERSION}")
    if odd := next(_misshapen(document, _SHAPE), None):
        raise ArgumentError(f"{place}: is no description of a run ({odd}); put it right, or delete its folder")
    return document


_NUMBER = (int, float, type(None))
_WHOLE = (int, type(None))

_SHAPE: Mapping[str, Any] = {
    "model": {},
    "sessions": [{"versions": {}, "seconds": _NUMBER}],
    "hashes": {},
    "counts": {"images": _WHOLE, "refused": _WHOLE},
    "config": {
        "dataset": {"images": _WHOLE, "listed": _WHOLE, "classes": _WHOLE},
        "names": [],
        "limit": _WHOLE,
        "seed": _WHOLE,
        "backbone": {},
        "views": {"scale": []},
        "methods": {},
        "versions": {},
    },
}
"""Kinds of what a `run.json` may hold, where it holds it: who reads a run need not check them."""


def _misshapen(found: Any, shape: Any, name: str = "") -> Iterator[str]:
    """Yield, in words, what of a document is of another kind than a shape says."""
    if isinstance(shape, tuple):
        if not isinstance(found, shape) or isinstance(found, bool):
            yield f"{name} is {_short(found)} and no number"
    elif not isinstance(found, type(shape)):
        yield f"{name} is {_short(found)} and no {'list' if isinstance(shape, list) else 'object'}"
    elif isinstance(shape, list):
        for part in shape:
            for number, inner in enumerate(found):
                yield from _misshapen(inner, part, f"{name}[{number}]")
    else:
        for key in (key for key in shape if key in found):
            yield from _misshapen(found[key], shape[key], f"{name}.{key}" if name else key)


def write_run(folder: Path, document: Mapping[str, Any], rows: pa.Table) -> Path:
    """Write a complete run that has come about otherwise, and return its folder.

    Raises:
        ArgumentError: there is a run already, or it cannot be written.
    """
    place = folder / "run.json"
    if place.exists():
        raise ArgumentError(f"{folder}: there is a run already; name another --out")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _write_rows(folder / "rows.parquet", rows)
    write_whole(place, to_json(document))
    return folder


def load_run(folder: Path) -> Run:
    """Read a run, complete or not.

    Raises:
        ArgumentError: a file is missing or cannot be read.
    """
    document = _read_document(folder / "run.json")
    return Run(folder, document, _read_rows(folder, list(document["config"]["methods"])))


def load_runs(folder: Path) -> list[Run]:
    """Read all runs in a folder and below, by path; shards are runs of their own.

    Raises:
        ArgumentError: there is none, or one cannot be read.
    """
    places = sorted(Path(above) / "run.json" for above, _, files in os.walk(folder) if "run.json" in files)
    if not places:
        raise ArgumentError(f"{folder}: holds no run (no run.json); make one with faircontext evaluate")
    return [load_run(place.parent) for place in places]
