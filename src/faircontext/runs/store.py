"""A run on disk: `run.json` beside its rows in Parquet, written so that a run killed at any moment can go on; merging.

    RUNS/caltech101/run.json           what was run, on what, with which versions; see `RunStore`
    RUNS/caltech101/parts/*.parquet    rows, as they come
    RUNS/caltech101/rows.parquet       all rows in the data set's order, once the run is complete

A part is complete or absent, since it takes its name only when it is written. Rows are known by image and method: what
is there twice, because a run was killed between compacting and deleting parts, counts once.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from faircontext.errors import ArgumentError
from faircontext.files import replacing, to_json, write_whole, writing
from faircontext.runs.checks import check_positions, check_rows, check_same, check_same_origin, read_document
from faircontext.runs.records import FORMER_COLUMNS, SCHEMA, Record, to_numpy, to_table

__all__ = [
    "FLUSH_SECONDS",
    "Run",
    "RunStore",
    "load_run",
    "load_runs",
    "merge",
    "run_folders",
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

    Attributes:
        rows: those that were on disk when the run was opened; after `finish`, all.
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
            path = folder / "run.json"
            earlier = read_document(path) if path.exists() else None
            self.rows = _read_rows(folder, methods, None if earlier is None else earlier["config"])
            self._check_rows(earlier)
            self.document = self._begin(dict(document), earlier, resume)
            write_whole(path, to_json(self.document))
        except BaseException:
            self._lock.release()
            raise
        answered = self.rows["path"].value_counts()
        whole = pc.equal(answered.field("counts"), len(self._methods))
        self.done = frozenset(answered.field("values").filter(whole).to_pylist())
        self._buffer: list[Record] = []
        self._flushed = time.monotonic()
        self._next_part = 1 + max((int(part.stem) for part in self._parts.glob("*.parquet")), default=0)

    def _check_rows(self, earlier: Mapping[str, Any] | None) -> None:
        """Refuse rows that are not those of the run that `run.json` describes."""
        if earlier is None:
            if len(self.rows):
                raise ArgumentError(
                    f"{self.folder}: there are rows without a run.json; delete the folder, or name another --out"
                )
            return
        pairs = self.rows.group_by(["method", "config"]).aggregate([])
        present = set(zip(pairs["method"].to_pylist(), pairs["config"].to_pylist(), strict=True))
        if foreign := sorted(present - {*earlier["hashes"].items()}):
            raise ArgumentError(
                f"{self.folder}: has rows of {foreign[0][0]} of another run than its run.json describes; delete the "
                "folder, or name another --out"
            )

    def _begin(self, document: dict[str, Any], earlier: Mapping[str, Any] | None, resume: bool) -> dict[str, Any]:
        if earlier is not None:
            if not resume:
                raise ArgumentError(f"{self.folder}: there is a run already; add --resume, or name another --out")
            check_same(self.folder, earlier["config"], json.loads(to_json(document["config"])))
            check_same_origin(self.folder, earlier, document)
            # What was measured stays; what this process adds comes at the end.
            document |= {key: earlier[key] for key in ("status", "sessions")}
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
        _write_rows(self._parts / f"{self._next_part:06}.parquet", to_table(self._buffer))
        self._next_part += 1
        self._buffer = []

    def update(self, **facts: Any) -> None:
        """Put facts into `run.json`."""
        self.document.update(facts)
        write_whole(self.folder / "run.json", to_json(self.document))

    def finish(self) -> None:
        """Compact the rows into one file, say that the run is complete, and delete the parts."""
        self.flush()
        self.rows = _read_rows(self.folder, self._methods)
        _write_rows(self.folder / "rows.parquet", self.rows)
        self.update(status="complete")
        for part in self._parts.iterdir():
            part.unlink()
        self._parts.rmdir()

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


def _write_rows(path: Path, table: pa.Table) -> None:
    with replacing(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def _read_rows(folder: Path, methods: Iterable[str], config: Mapping[str, Any] | None = None) -> pa.Table:
    """Return the rows of a run's files, each image and method once, by position and in the order of methods.

    Rows that a process finds are checked against the configuration of their `run.json`, its own are not.
    """
    files = [*folder.glob("rows.parquet"), *sorted((folder / "parts").glob("[0-9]*.parquet"))]
    tables = []
    for file in files:
        try:
            with pq.ParquetFile(file) as parquet:  # `read_table` would import pyarrow.dataset, and with it pandas
                present = parquet.schema_arrow.names
                names = [name if name in present else FORMER_COLUMNS.get(name, name) for name in SCHEMA.names]
                if absent := [name for name in names if name not in present]:
                    raise ArgumentError(f"{file}: has no column {absent[0]}; delete it and go on with --resume")
                table = parquet.read(names).select(names).rename_columns(SCHEMA.names).cast(SCHEMA)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise ArgumentError(f"{file}: cannot be read: {reason}; delete it and go on with --resume") from None
        if config is not None:
            check_rows(file, config, table)
        tables.append(table)
    rows = _in_order(pa.concat_tables(tables) if tables else SCHEMA.empty_table(), methods)
    if config is not None:
        check_positions(folder, rows)
    return rows


def _in_order(table: pa.Table, methods: Iterable[str]) -> pa.Table:
    """Return rows with each image and method once, by position and in the order of methods."""
    if not len(table):
        return table
    paths, labels = (table[name].combine_chunks().dictionary_encode() for name in ("path", "method"))
    path, label = (to_numpy(column.indices) for column in (paths, labels))
    _, first = np.unique(path.astype(np.int64) * len(labels.dictionary) + label, return_index=True)
    first.sort()
    rank = {method: index for index, method in enumerate(methods)}
    ranks = np.array([rank.get(method, len(rank)) for method in labels.dictionary.to_pylist()])
    order = first[np.lexsort((ranks[label[first]], to_numpy(table["position"])[first]))]
    return table if np.array_equal(order, np.arange(len(table))) else table.take(order)


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
    _write_rows(folder / "rows.parquet", rows)
    write_whole(path, to_json(document))
    return folder


def load_run(folder: Path) -> Run:
    """Read a run, complete or not.

    Raises:
        ArgumentError: a file is missing or cannot be read.
    """
    document = read_document(folder / "run.json")
    return Run(folder, document, _read_rows(folder, document["config"]["methods"], document["config"]))


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
        if run.document["config"]["shard"] is not None:
            shards[run.document["config"]["dataset"]["name"]].append(run)
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
        facts = ({**one["config"], "shard": one["config"]["shard"][1], "hashes": one["hashes"]} for one in documents)
        check_same(run.folder, *facts)
        check_same_origin(run.folder, first.document, run.document)
        if not run.complete:
            raise ArgumentError(f"{run.folder}: is not complete; go on with --resume")
    if missing := sorted({*range(n)} - {*indices}):
        raise ArgumentError(f"{first.folder}: shard {missing[0]} of {n} is missing; run it with --shard")
    if doubled := [index for index in indices if indices.count(index) > 1]:
        where = " and ".join(str(run.folder) for run, index in zip(shards, indices, strict=True) if index == doubled[0])
        raise ArgumentError(f"shard {doubled[0]} of {n} is there more than once: {where}")
    rows, methods = pa.concat_tables([run.rows for run in shards]), list(config["methods"])
    _check_images(name, config, rows)
    document = {
        **first.document,
        "config": {**config, "shard": None},
        "sessions": [session for run in shards for session in run.document["sessions"]],
        "counts": {"images": len(rows) // len(methods), "unreadable": sum(run.unreadable for run in shards)},
    }
    return document, _in_order(rows, methods)


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
