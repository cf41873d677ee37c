"""Rows of any number are sorted in little memory: equal to sorting them at once, whatever order they come in."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from faircontext.runs import rows
from faircontext.runs.records import Answer, schema_of, to_table
from faircontext.runs.rows import in_order, sorted_tables, write_tables

METHODS = ("zero_shot", "fcl")


def record(position: int, method: str) -> Answer:
    return Answer(path=f"{position}.png", method=method, dataset="set", config="abc", position=position)


@given(
    images=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(METHODS)), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    bucket=st.integers(1, 9),
)
def test_in_buckets_as_at_once(
    images: list[tuple[int, str]], cuts: list[int], bucket: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    records, bounds = [record(*image) for image in images], sorted({0, len(images), *cuts})
    files = []
    for start, stop in pairwise(bounds):
        if part := records[start:stop]:
            files.append(folder / f"{start:06}.parquet")
            pq.write_table(to_table(part), files[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BUCKET_ROWS", bucket)
        patch.setattr(rows, "_MOST_BUCKETS", 5)
        tables = [*sorted_tables(files, METHODS, folder)]
    pairs = [
        pair
        for table in tables
        for pair in zip(*map(pa.ChunkedArray.to_pylist, (table["position"], table["method"])), strict=True)
    ]
    assert pairs == sorted({*images}, key=lambda pair: (pair[0], METHODS.index(pair[1])))
    assert pa.concat_tables(tables).equals(in_order(to_table(records), METHODS))
    assert not [*folder.glob(".sorting-*")]


def test_numbers_for_every_class_stay_with_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BUCKET_ROWS", 3)
    for part in range(3):
        scored = [
            replace(record(position, "zero_shot"), embedding=np.full(2, position, np.float32))
            for position in range(part, 12, 3)
        ]
        pq.write_table(to_table(scored, schema_of(["embedding"])), tmp_path / f"{part}.parquet")
    files = sorted(tmp_path.glob("*.parquet"))
    write_tables(tmp_path / "rows", sorted_tables(files, METHODS))
    table = pq.read_table(tmp_path / "rows")
    assert table["position"].to_pylist() == [*range(12)]
    assert table["embedding"].to_pylist() == [[position] * 2 for position in range(12)]


def test_no_row_at_all_is_an_empty_file(tmp_path: Path) -> None:
    write_tables(tmp_path / "rows", sorted_tables([], METHODS))
    assert pq.read_table(tmp_path / "rows").num_rows == 0
