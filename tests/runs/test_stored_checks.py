"""A damaged run is one line that names the file, what is wrong in it, and what to do; no command ends otherwise."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from faircontext import FairContextError
from faircontext.cli import main
from faircontext.runs.analyses import analysis_rows
from faircontext.runs.documents import read_document
from faircontext.runs.records import SCHEMA
from faircontext.runs.store import RunStore, load_run
from made_analyses import analysis_run
from made_runs import write_run

METHODS = ("zero_shot", "fcl")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run of twenty images."""
    right = {"zero_shot": range(9), "fcl": range(12)}
    return write_run(tmp_path / "runs" / "mine", "mine", right, views={"scale": [0.5, 1.0]}, names=[*"ABCDEFGHIJ"])


def put(folder: Path, name: str, value: Any) -> None:
    """Put a value at a dotted name of a `run.json`; `...` takes the entry away."""
    document = json.loads((folder / "run.json").read_text())
    *above, last = name.split(".")
    holder = document
    for key in above:
        holder = holder[key]
    holder[last] = value
    if value is ...:
        del holder[last]
    (folder / "run.json").write_text(json.dumps(document))


def put_in_row(folder: Path, name: str, value: Any, row: int = 5) -> None:
    """Put a value into a row, by default of the third image by FCL."""
    rows = pq.read_table(folder / "rows.parquet")
    column = rows[name].to_pylist()
    column[row] = value
    index = rows.column_names.index(name)
    changed = rows.set_column(index, name, pa.array(column, SCHEMA.field(name).type))
    pq.write_table(changed, folder / "rows.parquet")


def refusals(folder: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the lines that commands which read runs end with, all with the exit code 2."""
    lines = set()
    for command in ("tables", "report", "figures", "merge"):
        assert main([command, str(folder), "--out", f"{folder}-{command}"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        lines.add(error.removeprefix("faircontext: ").strip())
    return lines


ENTRIES = [
    ("status", 5, "invalid status 5: must be 'running' or 'complete'"),
    ("sessions", None, "invalid sessions null: must be a valid array"),
    ("sessions", [{"versions": None}], "invalid sessions[0].versions null: must be an object"),
    ("hashes", {"fcl": "a"}, "hashes.zero_shot is missing"),
    ("counts", {"images": "2"}, 'invalid counts.images "2": must be a valid integer'),
    ("folder", 5, "invalid folder 5: must be a valid string"),
    ("config", [], "invalid config []: must be an object"),
    ("config.methods", {}, "invalid config.methods {}: dictionary should have at least 1 item, not 0"),
    ("config.methods.fcl", None, "invalid config.methods.fcl null: must be an object"),
    ("config.shard", [5], "invalid config.shard [5]: must be two whole numbers [i, n] with i below n"),
    ("config.shard", "x", 'invalid config.shard "x": must be a valid array'),
    ("config.shard", [2, 2], "invalid config.shard [2, 2]: must be two whole numbers [i, n] with i below n"),
    ("config.views", {"scale": ["a"]}, 'invalid config.views.scale[0] "a": must be a valid number'),
    ("config.limit", float("nan"), "invalid config.limit NaN: must be a valid integer"),
    ("config.seed", True, "invalid config.seed true: must be a valid integer"),
    ("config.pretrained", 5, "invalid config.pretrained 5: must be a valid string"),
    ("config.names", ["A"], "config.names has 1 name, and config.dataset.classes is 10"),
    ("config.dataset.name", ..., "config.dataset.name is missing"),
    ("config.dataset.name", "../a", 'invalid config.dataset.name "../a": must be the name of a folder'),
    ("config.dataset.images", None, "invalid config.dataset.images null: must be a valid integer"),
    ("config.dataset.classes", -1, "invalid config.dataset.classes -1: must be greater than or equal to 0"),
]


@pytest.mark.parametrize(("name", "value", "fault"), ENTRIES)
def test_an_entry_that_cannot_be_is_named_by_every_command(
    name: str, value: Any, fault: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(run, name, value)
    fix = "put it right, or delete its folder and make the run again"
    line = f"{run / 'run.json'}: is no description of a run: {fault}; {fix}"
    assert refusals(run.parent, capsys) == {line}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no description of a run: expecting value"),
        ("[]", "is no description of a run: must be an object"),
        ("[" * 100_000, "is no description of a run: "),
        ("{}", "has no schema version; this faircontext reads 1 and 2: make the run again"),
        ('{"schema_version": 99}', "has schema version 99; this faircontext reads 1 and 2: make the run again"),
        ('{"schema_version": 1, "counts": []}', "is no description of a run: status is missing"),
    ],
)
def test_a_file_that_describes_no_run_is_a_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(FairContextError, match=f"^{re.escape(str(tmp_path))}/run.json: {message}"):
        read_document(tmp_path / "run.json")


@pytest.mark.parametrize("name", ["index", "path", "confidence", "seconds"])
def test_a_damaged_file_is_named_by_every_command_and_made_again(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "rows.parquet"
    group = pq.read_metadata(path).row_group(0)
    column = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == name)
    content = bytearray(path.read_bytes())
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    (line,) = refusals(run.parent, capsys)
    assert line.startswith(f"{path}: cannot be read: ")
    assert line.endswith("; delete it and go on with --resume")
    document = json.loads((run / "run.json").read_text())
    with pytest.raises(FairContextError, match=f"^{re.escape(line)}$"):
        RunStore(run, document, METHODS, resume=True)
    path.unlink()
    with RunStore(run, document, METHODS, resume=True) as store:
        assert not store.is_answered(np.arange(20)).any()


def test_a_file_that_was_written_without_checksums_is_read(run: Path) -> None:
    rows = pq.read_table(run / "rows.parquet")
    pq.write_table(rows, run / "rows.parquet")
    assert load_run(run).rows.equals(rows)


@given(position=st.integers(0, 19), method=st.integers(0, 1), other=st.integers(0, 19))
def test_two_images_at_one_position_are_found_wherever_they_are(
    position: int, method: int, other: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_run(tmp_path_factory.mktemp("run") / "mine", "mine", {"zero_shot": (), "fcl": ()})
    put_in_row(folder, "position", other, 2 * position + method)
    if other == position:
        assert load_run(folder).complete
        return
    with pytest.raises(FairContextError, match=f"are both at position {other}; delete rows.parquet and parts in it"):
        load_run(folder)


def test_what_is_missing_by_right_is_no_fault(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", "mine", {"zero_shot": range(9)}, unreadable=(3,))
    assert load_run(run).rows["index"].null_count == 1
    analysis = analysis_run(tmp_path / "two", "margin", [{"a": 1.0}, {}], errors=(1,))
    assert load_run(analysis).rows["confidence"].null_count == 2


@pytest.mark.parametrize("text", ["not json", "[1]", "[" * 100_000])
def test_diagnostics_that_cannot_be_read_are_a_line(text: str, tmp_path: Path) -> None:
    folder = analysis_run(tmp_path, "margin", [{"a": 1.0}])
    put_in_row(folder, "diagnostics", text, 0)
    with pytest.raises(FairContextError, match=r"the row margin of 00000.png cannot be read .*; make the run again"):
        list(analysis_rows(load_run(folder), "margin"))


def test_a_run_of_earlier_days_is_read(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.views", "config.names", "config.pretrained"):
        put(run, name, ...)
    for command in (["tables"], ["report", "--out", str(tmp_path / "page.html")]):
        assert main([*command, str(run)]) == 0, capsys.readouterr().err
