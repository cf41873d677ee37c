"""A run on disk: `run.json` beside its rows in Parquet, written so that a run killed at any moment can go on; merging.

    RUNS/caltech101/run.json           what was run, on what, with which versions; see `RunStore`
    RUNS/caltech101/parts/*.parquet    rows, as they come
    RUNS/caltech101/rows.parquet       all rows in the data set's order, once the run is complete

A part is complete or absent, since it takes its name only when it is written. Rows are known by image and method: what
is there twice, because a run was killed between compacting and deleting parts, counts once. While a run is written its
rows are not held in memory: `runs/rows.py` reads and sorts them a few at a time.
"""

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout
from jaxtyping import Bool, Int

from faircontext.errors import ArgumentError
from faircontext.files import to_json, write_whole, writing
from faircontext.runs.checks import check_positions, check_same, check_same_origin
from faircontext.runs.orders import run_name
from faircontext.runs.records import SCHEMA, Answer, perturbation_of, to_numpy, to_table
from faircontext.runs.rows import (
    batches_of,
    count_rows,
    in_order,
    read_rows,
    row_files,
    sorted_tables,
    write_rows,
    write_tables,
)

FLUSH_SECONDS = 10.0
"""Rows are on disk at the latest this long after they came, one image's time added."""

FLUSH_ROWS = 512
"""So many rows are written before that time: more are not held in memory."""

STATE_SECONDS = 60.0
"""The same, where states are written with rows: they may have 100 MB."""

STATE_ROWS = 8192
"""And so many rows."""


@runtime_checkable
class States(Protocol):
    """What methods with a memory have kept of the images before; it is written with rows, see `runs/streams.py`."""

    def mark(self) -> str | None:
        """Return what names all states as they are, None where one is half changed."""

    def save(self, folder: Path, number: int) -> Mapping[bytes, bytes]:
        """Write the states that go with a part, and return what the part repeats of them."""

    def forget(self, folder: Path, number: int, kept: int = 2) -> None:
        """Delete the states of older parts than the newest ones."""

    def restore(self, folder: Path) -> None:
        """Take the newest states that go with a part, and delete later rows."""


@dataclass(frozen=True)
class Run:
    """A run that has been read.

    Attributes:
        folder: where it lies.
        document: its `run.json`; see `RunStore`.
    """

    folder: Path
    document: Mapping[str, Any]

    @cached_property
    def rows(self) -> pa.Table:
        """Of all images so far, by position and in the order of methods; they are read when they are asked for."""
        return read_rows(self.folder, self.document["config"])

    @property
    def _methods(self) -> list[str]:
        return list(self.document["config"]["methods"])

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows a few at a time, in the same order, with all columns that are stored."""
        for rows in sorted_tables(row_files(self.folder), self._methods):
            check_positions(self.folder, rows)
            yield rows

    @property
    def complete(self) -> bool:
        """Whether every image of the run has been answered, and its rows are there."""
        wanted = self.document.get("counts", {}).get("images")
        if self.document["status"] != "complete":
            return False
        is_read = "rows" in vars(self)  # then the files need not be there any more
        count = len(self.rows) if is_read else count_rows(self.folder, self._methods)
        return wanted is None or count == wanted * len(self._methods)

    @property
    def unreadable(self) -> int:
        """How many files could not be read so far."""
        return len(self.rows.filter(pc.not_equal(self.rows["error"], ""))["path"].unique())


class RunStore(AbstractContextManager["RunStore"]):
    """Writes one run; only one process at a time can hold it.

    Args:
        folder: of the run; it is made.
        document: what `run.json` says, at least `config`, what the run is; `status` is added.
        methods: names of the methods, in their order.
        resume: whether to go on with a run that is there.
        states: of methods with a memory, which rows are written with; None where there is no such method.
        keep_state: whether the last states stay when the run is complete.
        schema: columns of the rows.

    Raises:
        ArgumentError: there is a run and `resume` is not set, or it is another one, or another process is at work on
            it, or the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        document: Mapping[str, Any],
        methods: Sequence[str],
        resume: bool,
        states: States | None = None,
        keep_state: bool = False,
        schema: pa.Schema = SCHEMA,
    ) -> None:
        self.folder, self._schema = folder, schema
        self._states, self._keep_state, self._mark = states, keep_state, "" if states is None else states.mark()
        self._methods = tuple(methods)
        self._parts = folder / "parts"
        with writing(folder):
            self._parts.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder / ".lock")
        try:
            earlier = _read_if_there(path := folder / "run.json")
            self._answered = np.zeros((len(self._methods), 0), np.bool_)
            if states is not None and earlier is not None and earlier["status"] != "complete":
                self._check_earlier(document, earlier, resume)  # before anything is deleted
                states.restore(folder)
                self._mark = states.mark()
            self._read_earlier(earlier)
            self.document = self._begin(dict(document), earlier, resume)
            write_whole(path, to_json(self.document))
        except BaseException:
            self._lock.release()
            raise
        self._buffer: list[Answer] = []
        self._flushed = time.monotonic()
        self._next_part = 1 + max((int(part.stem) for part in self._parts.glob("[0-9]*.parquet")), default=0)

    def _read_earlier(self, earlier: Mapping[str, Any] | None) -> None:
        """Note which images are answered, and refuse rows that are not those of the run that `run.json` describes."""
        if earlier is None:
            if any(map(len, batches_of(row_files(self.folder), ["position"]))):
                raise ArgumentError(
                    f"{self.folder}: there are rows without a run.json; delete the folder, or name another --out"
                )
            return
        for rows in batches_of(row_files(self.folder), SCHEMA.names):
            pairs = rows.group_by(["method", "config"]).aggregate([])
            present = set(zip(pairs["method"].to_pylist(), pairs["config"].to_pylist(), strict=True))
            if foreign := sorted(present - {*earlier["hashes"].items()}):
                raise ArgumentError(
                    f"{self.folder}: has rows of {foreign[0][0]} of another run than its run.json describes; delete "
                    "the folder, or name another --out"
                )
            self._note_answered(rows)

    def _note_answered(self, rows: pa.Table) -> None:
        positions = to_numpy(rows["position"])
        if (more := int(positions.max(initial=-1)) + 1 - self._answered.shape[1]) > 0:
            self._answered = np.pad(self._answered, ((0, 0), (0, max(more, self._answered.shape[1]))))
        for index, method in enumerate(self._methods):
            self._answered[index, positions[to_numpy(pc.equal(rows["method"], method), False)]] = True

    def is_answered(self, positions: Int[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
        """Return which images had been answered by all methods when the run was opened."""
        n = self._answered.shape[1]
        by_all = np.append(np.asarray(self._answered.all(axis=0), np.bool_), False)
        return np.asarray(by_all[np.minimum(positions, n)])

    def _begin(self, document: dict[str, Any], earlier: Mapping[str, Any] | None, resume: bool) -> dict[str, Any]:
        if earlier is not None:
            self._check_earlier(document, earlier, resume)
            # What was measured stays; what this process adds comes at the end.
            document |= {key: earlier[key] for key in ("status", "sessions", "states") if key in earlier}
        return {"status": "running", "sessions": [], **document}

    def _check_earlier(self, document: Mapping[str, Any], earlier: Mapping[str, Any], resume: bool) -> None:
        check_same(self.folder, earlier["config"], document["config"])  # first: --resume does not help another run
        if not resume:
            raise ArgumentError(f"{self.folder}: there is a run already; add --resume, or name another --out")
        check_same_origin(self.folder, earlier, document)

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answers for an image; they are written with others, at the latest after `FLUSH_SECONDS`.

        Those that do not say of which data set and configuration they are, are of the run's.
        """
        name, hashes = self.document["config"]["dataset"]["name"], self.document.get("hashes", {})
        for answer in answers:
            config = answer.config or hashes.get(answer.method, "")
            self._buffer.append(replace(answer, dataset=answer.dataset or name, config=config))
        seconds, rows = FLUSH_SECONDS, FLUSH_ROWS
        if self._states is not None:
            seconds, rows = STATE_SECONDS, STATE_ROWS
            self._mark = None if self._mark is None else self._states.mark()
        if time.monotonic() - self._flushed > seconds or len(self._buffer) >= rows:
            self.flush()

    def flush(self) -> None:
        """Write what has come as a part, with the states as they are after it.

        Where an image was interrupted after it had changed a state, what has come since the last part is left out.

        Raises:
            ArgumentError: it cannot be written, for example because the disk is full; earlier parts stay.
        """
        self._flushed = time.monotonic()
        if not self._buffer:
            return
        table = to_table(self._buffer, self._schema)
        if self._states is not None:
            if self._mark is None or self._mark != self._states.mark():
                self._mark, self._buffer = None, []  # nor is anything that comes later written
                return
            table = table.replace_schema_metadata(self._states.save(self.folder, self._next_part))
        write_rows(self._parts / f"{self._next_part:06}.parquet", table)
        self._next_part += 1
        self._buffer = []  # before older states are deleted, which may fail: the rows are there
        if self._states is not None:
            self._states.forget(self.folder, self._next_part - 1)

    def update(self, **entries: Any) -> None:
        """Put facts into `run.json`."""
        self.document.update(entries)
        write_whole(self.folder / "run.json", to_json(self.document))

    def finish(self) -> None:
        """Compact the rows into one file, say that the run is complete, and delete the parts.

        Raises:
            ArgumentError: a file cannot be written or deleted, or rows were left out, see `flush`.
        """
        self.flush()
        if self._mark is None:
            raise ArgumentError(f"{self.folder}: a state was left half changed; go on with --resume")
        tables = sorted_tables(row_files(self.folder), self._methods, self._parts)
        write_tables(self.folder / "rows.parquet", tables)
        self.update(status="complete")
        with writing(self._parts):
            shutil.rmtree(self._parts)
        if self._states is not None and not self._keep_state:
            self._states.forget(self.folder, self._next_part, kept=0)

    def __exit__(self, *raised: object) -> None:
        try:
            self.flush()
        except ArgumentError:
            if not any(raised):  # a second complaint about a full disk would hide the first
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


def write_run(folder: Path, document: Mapping[str, Any], rows: pa.Table) -> Path:
    """Write a complete run that has come about otherwise, and return its folder.

    Raises:
        ArgumentError: there is a run already, or it cannot be written.
    """
    path = folder / "run.json"
    if path.exists():
        raise ArgumentError(f"{folder}: there is a run already; name another --out")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "rows.parquet", rows)
    write_whole(path, to_json(document))
    return folder


def _read_if_there(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    from faircontext.runs.documents import read_document

    return read_document(path)


def load_run(folder: Path) -> Run:
    """Read a run, complete or not.

    Raises:
        ArgumentError: a file is missing or cannot be read.
    """
    from faircontext.runs.documents import read_document

    run = Run(folder, read_document(folder / "run.json"))
    run.rows  # noqa: B018 (what cannot be read is told here)
    return run


def load_only_run(folder: Path) -> Run:
    """Read the run in a folder or below; raise `ArgumentError` where there is not exactly one."""
    folders = run_folders(folder)
    if len(folders) != 1:
        raise ArgumentError(f"{folder}: holds {len(folders)} runs; name the folder of one")
    return load_run(folders[0])


def run_folders(folder: Path) -> list[Path]:
    """Return all folders with runs in a folder and below, by path; shards are runs of their own.

    Raises:
        ArgumentError: there is none.
    """
    paths = sorted(Path(above) / "run.json" for above, _, files in os.walk(folder) if "run.json" in files)
    if not paths:
        raise ArgumentError(f"{folder}: holds no run (no run.json); make one with faircontext evaluate")
    return [path.parent for path in paths]


def load_runs(folder: Path) -> list[Run]:
    """Read all runs in a folder and below, by path.

    Raises:
        ArgumentError: there is none, or one cannot be read.
    """
    return [load_run(path) for path in run_folders(folder)]


def merge(folders: Sequence[Path], out: Path) -> Iterator[Path]:
    """Join the shards below some folders to the runs that would have been made without them, and yield their folders.

    Args:
        folders: where the shards are.
        out: folder for the runs; not one of `folders`, nor below.

    Raises:
        ArgumentError: there is no shard, shards differ in more than their number, a shard is missing or not complete,
            or an image is missing or doubled.
    """
    for folder in folders:
        if folder.resolve() in (out.resolve(), *out.resolve().parents):
            raise ArgumentError(f"{out}: lies in {folder}, where its shards are; name another --out")
    shards: dict[str, list[Run]] = defaultdict(list)
    for run in (run for folder in folders for run in load_runs(folder)):
        config = run.document["config"]
        if config["shard"] is not None:
            if stream := config.get("stream"):
                raise ArgumentError(
                    f"{run.folder}: {stream['methods'][0]} answered this shard as a stream of its own, and streams "
                    "are not joined; run it without --shard"
                )
            shards[run_name(config["dataset"]["name"], perturbation=perturbation_of(config))].append(run)
    if not shards:
        raise ArgumentError(f"{', '.join(map(str, folders))}: no shard of a run; make some with --shard i/n")
    joined = {name: _join(name, runs) for name, runs in shards.items()}  # all are checked before one is written
    for name, (document, rows) in joined.items():
        yield write_run(out / name, document, rows)


def _join(name: str, shards: Sequence[Run]) -> tuple[dict[str, Any], pa.Table]:
    first, config = shards[0], shards[0].document["config"]
    indices, n = [run.document["config"]["shard"][0] for run in shards], config["shard"][1]
    for run in shards:
        documents = (first.document, run.document)
        configs = ({**one["config"], "shard": one["config"]["shard"][1], "hashes": one["hashes"]} for one in documents)
        check_same(run.folder, *configs)
        check_same_origin(run.folder, first.document, run.document)
        if not run.complete:
            raise ArgumentError(f"{run.folder}: is not complete; go on with --resume")
    if missing := sorted({*range(n)} - {*indices}):
        raise ArgumentError(f"{first.folder}: shard {missing[0]} of {n} is missing; run it with --shard")
    if doubled := [index for index in indices if indices.count(index) > 1]:
        where = " and ".join(str(run.folder) for run, index in zip(shards, indices, strict=True) if index == doubled[0])
        raise ArgumentError(f"shard {doubled[0]} of {n} is there more than once: {where}")
    tables = [table for run in shards for table in run.tables()]  # with all columns that are stored
    rows, methods = pa.concat_tables(tables or [first.rows]), list(config["methods"])
    _check_images(name, config, rows)
    document = {
        **first.document,
        "config": {**config, "shard": None},
        "sessions": [session for run in shards for session in run.document["sessions"]],
        "counts": {"images": len(rows) // len(methods), "unreadable": sum(run.unreadable for run in shards)},
    }
    return document, in_order(rows, methods)


def _check_images(name: str, config: Mapping[str, Any], rows: pa.Table) -> None:
    """Check that each image has been answered once by each method."""
    images = rows.group_by(["path", "method"], use_threads=False).aggregate([([], "count_all")])
    doubled = images.filter(pc.greater(images["count_all"], 1))["path"]
    if len(doubled):
        raise ArgumentError(f"{name}: {doubled[0]} is in more than one shard ({len(doubled)} rows in all)")
    wanted = min(config["dataset"]["images"], config["limit"] or config["dataset"]["images"])
    for method in config["methods"]:
        n = pc.sum(pc.equal(images["method"], method)).as_py() or 0
        if n != wanted:
            raise ArgumentError(f"{name}: the shards have {n} of {wanted} images of {method}; {wanted - n} missing")
