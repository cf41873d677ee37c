"""Rows of a run in its Parquet files, a few at a time: reading, writing, and sorting any number in little memory.

Rows come in any order, and some are there twice. To sort them they are dealt to buckets of neighbouring positions, in
files of their own; then one bucket after the other is sorted in memory.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faircontext.errors import ArgumentError
from faircontext.files import replacing
from faircontext.runs.checks import check_positions
from faircontext.runs.records import FORMER_COLUMNS, LATER_COLUMNS, SCHEMA, to_numpy

BUCKET_ROWS = 512
"""Rows that are sorted in memory together; more only where there are more than `_MOST_BUCKETS` times as many."""

_MOST_BUCKETS = 256

_WRITTEN: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
"""How rows are written: whoever reads them finds out whether a file was damaged."""


def row_files(folder: Path) -> list[Path]:
    """Return the files that hold the rows of a run."""
    return [*folder.glob("rows.parquet"), *sorted((folder / "parts").glob("[0-9]*.parquet"))]


def batches_of(files: Iterable[Path], columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows of some files a few at a time, in the order in which they lie.

    Args:
        files: of rows.
        columns: their names; None for all.

    Raises:
        ArgumentError: a file cannot be read, or lacks a column.
    """
    for file in files:
        try:
            # `read_table` would import pyarrow.dataset, and with it pandas.
            with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                schema = _schema_of(file, parquet.schema_arrow)
                names = schema.names if columns is None else [*columns]
                wanted = pa.schema([schema.field(name) for name in names])
                names_of = dict(zip(_names_in(parquet.schema_arrow, names), names, strict=True))
                lacking = LATER_COLUMNS.intersection(names_of) - {*parquet.schema_arrow.names}
                present = [name for name in names_of if name not in lacking]
                for batch in parquet.iter_batches(BUCKET_ROWS, columns=present):
                    rows = pa.Table.from_batches([batch]).select(present)
                    for name in lacking:
                        rows = rows.append_column(name, pa.nulls(len(rows)))
                    yield rows.select([*names_of]).rename_columns(names).cast(wanted)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(file, error) from None


def _schema_of(file: Path, present: pa.Schema) -> pa.Schema:
    """Return the columns of a file with the types that rows have; others than theirs may follow."""
    columns = _names_in(present, SCHEMA.names)
    if absent := [name for name in columns if name not in present.names and name not in LATER_COLUMNS]:
        raise ArgumentError(f"{file}: has no column {absent[0]}; delete it and go on with --resume")
    return pa.schema([*SCHEMA, *(field for field in present if field.name not in columns)])


def _names_in(present: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return what a file calls columns, which in runs of schema version 1 have former names."""
    return [name if name in present.names else FORMER_COLUMNS.get(name, name) for name in names]


def _unreadable(file: Path, error: Exception) -> ArgumentError:
    return ArgumentError(f"{file}: cannot be read: {str(error).splitlines()[0]}; delete it and go on with --resume")


def read_rows(folder: Path, config: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a run's files, each image and method once, by position and in the order of methods.

    Args:
        folder: of the run.
        config: of its `run.json`.

    Raises:
        ArgumentError: a file cannot be read or is damaged, or rows are impossible; see `check_positions`.
    """
    tables = [*batches_of(row_files(folder), SCHEMA.names)]
    rows = in_order(pa.concat_tables(tables) if tables else SCHEMA.empty_table(), [*config["methods"]])
    check_positions(folder, rows)
    return rows


def count_rows(folder: Path, methods: Sequence[str]) -> int:
    """Return how many rows a run has, each image and method once."""
    files = row_files(folder)
    try:
        if len(files) == 1:
            with pq.ParquetFile(files[0]) as parquet:
                return int(parquet.metadata.num_rows)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(files[0], error) from None
    return sum(len(table) for table in sorted_tables(files, methods))


def in_order(table: pa.Table, methods: Sequence[str]) -> pa.Table:
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


def sorted_tables(files: Sequence[Path], methods: Sequence[str], scratch: Path | None = None) -> Iterator[pa.Table]:
    """Yield the rows of some files a few at a time, each once, by position and in the order of methods.

    Args:
        files: of rows, in which a row may be twice.
        methods: their order.
        scratch: folder for files on the way; None for the system's own.

    Raises:
        ArgumentError: a file cannot be read.
    """
    rows, end = 0, 0
    for table in batches_of(files, ["position"]):
        rows, end = rows + len(table), max(end, 1 + int(to_numpy(table["position"]).max(initial=-1)))
    count = min(_MOST_BUCKETS, -(-rows // BUCKET_ROWS))
    if count <= 1:
        tables = [*batches_of(files)]
        if tables:
            yield in_order(pa.concat_tables(tables), methods)
        return
    with tempfile.TemporaryDirectory(prefix=".sorting-", dir=scratch) as folder:
        for bucket in _deal(files, end, count, Path(folder)):
            with pa.OSFile(str(bucket)) as file, pa.ipc.open_stream(file) as stream:
                table = in_order(stream.read_all(), methods)
            bucket.unlink()
            yield table


def _deal(files: Sequence[Path], end: int, count: int, folder: Path) -> list[Path]:
    """Write rows to a file for each range of positions, and return those files in order."""
    writers: dict[int, tuple[Path, pa.ipc.RecordBatchStreamWriter]] = {}
    with ExitStack() as stack:
        for table in batches_of(files):
            owner = to_numpy(table["position"]) * count // end
            for bucket in np.unique(owner).tolist():
                if bucket not in writers:
                    path = folder / f"{bucket:06}.arrow"
                    file = stack.enter_context(pa.OSFile(str(path), "wb"))
                    writers[bucket] = path, stack.enter_context(pa.ipc.new_stream(file, table.schema))
                writers[bucket][1].write_table(table.filter(owner == bucket))
    return [writers[bucket][0] for bucket in sorted(writers)]


def write_rows(path: Path, table: pa.Table) -> None:
    """Write rows to a file in one step."""
    with replacing(path) as partial:
        pq.write_table(table, partial, **_WRITTEN)


def write_tables(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write rows that come a few at a time to a file in one step."""
    first = next(rest := iter(tables), SCHEMA.empty_table())
    with replacing(path) as partial, pq.ParquetWriter(partial, first.schema, **_WRITTEN) as writer:
        writer.write_table(first)
        for table in rest:
            writer.write_table(table)
