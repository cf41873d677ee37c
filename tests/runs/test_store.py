"""A run on disk: what was flushed survives, what is there twice counts once, another run is refused by name."""

import errno
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from faircontext import FairContextError
from faircontext.runs import rows, store
from faircontext.runs.checks import check_same
from faircontext.runs.records import SCHEMA, Answer, answers_of, to_table
from faircontext.runs.store import RunStore, load_run, load_runs, write_run
from made_runs import describe_run

METHODS = ("zero_shot", "fcl")
DOCUMENT = describe_run("set", {name: {} for name in METHODS})
CONFIG = DOCUMENT["config"]


def image(position: int, **changes: object) -> list[Answer]:
    common = {"dataset": "set", "config": "abc", "position": position, "label_index": 1, "path": f"{position}.png"}
    common |= dict.fromkeys(("zero_shot_index", "index"), 1)
    common |= dict.fromkeys(("confidence", "label_probability", "probability_norm"), 0.5)
    return [Answer(**(common | {"method": method} | changes)) for method in METHODS]


def open_store(folder: Path, resume: bool = False, document: dict = DOCUMENT) -> RunStore:
    return RunStore(folder, document, METHODS, resume)


def test_rows_come_back_by_position_and_in_the_order_of_methods(tmp_path: Path) -> None:
    with open_store(tmp_path / "set") as run:
        for position in (2, 0, 1):
            run.add(image(position))
            run.flush()
        run.finish()
    table = load_run(tmp_path / "set").rows
    assert table["position"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert table["method"].to_pylist() == [*METHODS] * 3
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [".lock", "rows.parquet", "run.json"]


def test_every_column_comes_back_as_it_was(tmp_path: Path) -> None:
    record = Answer(
        path="a\nb.png",
        label="é",
        votes=3,
        confidence=1 / 3,
        method="fcl",
        seconds=0.25,
        dataset="set",
        config="abc",
        position=7,
        label_index=1,
        zero_shot_index=0,
        index=1,
        top5=(1, 0, 2),
        top5_probabilities=(0.5, 1 / 3, 1e-30),
        label_probability=0.5,
        probability_norm=0.36,
        candidates=(1, 0),
        diagnostics='{"views_selected": 19}',
        warnings=("the first of several frames was taken",),
    )
    with open_store(tmp_path) as run:
        run.add([record])
        run.finish()
    assert [*answers_of(load_run(tmp_path).rows)] == [[record]]
    assert pq.read_schema(tmp_path / "rows.parquet").names == SCHEMA.names


def test_bytes_of_a_name_that_are_no_text_are_escapes() -> None:
    (row,) = to_table(image(0, path="\udcff.png")[:1]).to_pylist()
    assert row["path"] == "\\udcff.png"


def test_what_was_flushed_survives_and_is_known_as_done(tmp_path: Path) -> None:
    run = open_store(tmp_path)
    run.add(image(0))
    run.flush()
    run.add(image(1))  # lost: the process ends here, without a word
    run._lock.release()
    assert not load_run(tmp_path).complete
    with open_store(tmp_path, resume=True) as again:
        assert again.is_answered(np.array([0, 1, 9])).tolist() == [True, False, False]
        again.add(image(1))
        again.finish()
    found = load_run(tmp_path)
    assert found.complete
    assert found.rows["path"].to_pylist() == ["0.png"] * 2 + ["1.png"] * 2


def test_rows_are_written_in_time_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(store.time, "monotonic", lambda: clock[0])
    run = open_store(tmp_path)
    run.add(image(0))
    assert not list(tmp_path.glob("parts/*.parquet"))
    clock[0] = 29.0 - store.FLUSH_SECONDS / 2
    run.add(image(1))
    assert len(list(tmp_path.glob("parts/*.parquet"))) == 1
    assert store.FLUSH_SECONDS < 30
    run._lock.release()


def test_an_exception_does_not_lose_what_came(tmp_path: Path) -> None:
    run = open_store(tmp_path)
    run.add(image(0))
    run.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert len(load_run(tmp_path).rows) == 2


def test_killed_between_compacting_and_deleting_parts(tmp_path: Path) -> None:
    with open_store(tmp_path) as run:
        run.add(image(0))
        run.flush()
        kept = {path.name: path.read_bytes() for path in tmp_path.glob("parts/*")}
        run.finish()
    (tmp_path / "parts").mkdir()
    for name, content in kept.items():
        (tmp_path / "parts" / name).write_bytes(content)
    (tmp_path / "parts" / ".000009.parquet.partial").write_bytes(b"half")
    assert len(load_run(tmp_path).rows) == 2
    with open_store(tmp_path, resume=True) as again:
        again.finish()
    assert len(load_run(tmp_path).rows) == 2
    assert not (tmp_path / "parts").exists()


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    open_store(tmp_path).__exit__(None, None, None)
    with pytest.raises(FairContextError, match="there is a run already; add --resume, or name another --out"):
        open_store(tmp_path)


def test_another_run_is_refused_and_says_what_differs(tmp_path: Path) -> None:
    open_store(tmp_path).__exit__(None, None, None)
    other = {**DOCUMENT, "config": {**CONFIG, "seed": 1, "dataset": {**CONFIG["dataset"], "name": "other"}}}
    with pytest.raises(FairContextError) as refused:
        open_store(tmp_path, resume=True, document=other)
    assert 'dataset.name was "set" and is "other"; seed was 0 and is 1; name another --out' in str(refused.value)
    with open_store(tmp_path, resume=True):  # the refusal let go of the lock, and changed nothing
        pass


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("xy"), st.integers())))
def test_a_configuration_is_the_same_as_itself_alone(config: dict) -> None:
    check_same("here", config, json.loads(json.dumps(config)))
    with pytest.raises(FairContextError, match="z was null and is 1"):
        check_same("here", config, {**config, "z": 1})


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(FairContextError, match="another process is at work on this run"):
        open_store(tmp_path, resume=True)


def test_a_full_disk_is_a_line_and_earlier_parts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = open_store(tmp_path)
    run.add(image(0))
    run.flush()
    monkeypatch.setattr(rows.pq, "write_table", fill)
    run.add(image(1))
    with pytest.raises(FairContextError) as full:
        run.flush()
    run.__exit__(FairContextError, full.value, None)
    assert str(full.value) == f"{tmp_path}/parts/000002.parquet: cannot be written: no space left on device"
    monkeypatch.undo()
    assert load_run(tmp_path).rows["path"].to_pylist() == ["0.png"] * 2
    with open_store(tmp_path, resume=True) as again:
        assert again.is_answered(np.array([0, 1, 9])).tolist() == [True, False, False]


def test_a_folder_that_cannot_be_made_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FairContextError, match=r"cannot be written: not a directory"):
        open_store(tmp_path / "file" / "set")


def test_a_broken_part_is_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    with open_store(tmp_path) as run:
        run.add(image(0))
    (part,) = tmp_path.glob("parts/*.parquet")
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(
        FairContextError, match=r"000001.parquet: cannot be read: .*; delete it and go on with --resume"
    ):
        open_store(tmp_path, resume=True)


@pytest.mark.parametrize("column", ["path", "position", "index", "seconds"])
@pytest.mark.parametrize("place", ["rows.parquet", "parts/000001.parquet"])
def test_rows_without_a_column_are_a_line_that_names_the_file(tmp_path: Path, place: str, column: str) -> None:
    with open_store(tmp_path) as run:
        run.add(image(0))
        if place == "rows.parquet":
            run.finish()
    pq.write_table(pq.read_table(tmp_path / place).drop_columns([column]), tmp_path / place)
    message = f"{tmp_path / place}: has no column {column}; delete it and go on with --resume"
    for read in (load_run, load_runs, lambda folder: open_store(folder, resume=True)):
        with pytest.raises(FairContextError, match=f"^{message}$"):
            read(tmp_path)


def test_runs_are_found_below_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FairContextError, match=r"holds no run \(no run.json\)"):
        load_runs(tmp_path)
    for name in ("b/set", "a/set"):
        write_run(tmp_path / name, {**DOCUMENT, "status": "complete", "sessions": []}, to_table(image(0)))
    assert [run.folder.relative_to(tmp_path).as_posix() for run in load_runs(tmp_path)] == ["a/set", "b/set"]
    with pytest.raises(FairContextError, match="there is a run already"):
        write_run(tmp_path / "a/set", {**DOCUMENT, "status": "complete", "sessions": []}, to_table(image(0)))


HASHES = {"zero_shot": "abc", "fcl": "abc"}


def test_rows_without_a_description_are_not_taken_over(tmp_path: Path) -> None:
    with open_store(tmp_path) as run:
        run.add(image(0))
        run.finish()
    (tmp_path / "run.json").unlink()
    for resume in (False, True):
        with pytest.raises(FairContextError, match=r"there are rows without a run.json; delete the folder"):
            open_store(tmp_path, resume)
    assert not (tmp_path / "run.json").exists()


def test_rows_of_another_run_are_not_taken_over(tmp_path: Path) -> None:
    document = {**DOCUMENT, "hashes": HASHES}
    with open_store(tmp_path / "one", document=document) as run:
        run.add(image(0))
        run.finish()
    with open_store(tmp_path / "two", document=document) as run:
        run.add(image(1, config="xyz"))
        run.finish()
    (tmp_path / "two" / "rows.parquet").rename(tmp_path / "one" / "rows.parquet")
    with pytest.raises(FairContextError, match=r"has rows of fcl of another run than its run.json describes"):
        open_store(tmp_path / "one", resume=True, document=document)


def test_an_image_that_lacks_a_method_is_answered_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as run:
        run.add([*image(0), image(1)[0]])
        run.update(counts={"images": 2, "unreadable": 0})
        run.finish()
    assert not load_run(tmp_path).complete
    with open_store(tmp_path, resume=True) as again:
        assert again.is_answered(np.array([0, 1, 9])).tolist() == [True, False, False]
        again.add(image(1))
        again.finish()
    found = load_run(tmp_path)
    assert found.complete
    assert found.rows["path"].to_pylist() == ["0.png"] * 2 + ["1.png"] * 2


def as_version_1(folder: Path) -> None:
    """Write a run again as schema version 1 had it, under the names of then."""
    rows = pq.read_table(folder / "rows.parquet")
    former = ["notes" if name == "warnings" else name for name in rows.column_names]
    pq.write_table(rows.rename_columns(former), folder / "rows.parquet")
    document = json.loads((folder / "run.json").read_text())
    document["counts"] = {"images": 1, "refused": 1}
    document["model"] = {"remarks": ["a line"]}
    document["config"]["views"] = {"number": 8, "scale": [0.5, 1]}
    (folder / "run.json").write_text(json.dumps({**document, "schema_version": 1}))


def test_a_run_of_schema_version_1_is_read_under_the_names_of_today_and_not_gone_on_with(tmp_path: Path) -> None:
    document = {**DOCUMENT, "hashes": HASHES}
    with open_store(tmp_path, document=document) as run:
        run.add(image(0, warnings=("a frame",)))
        run.finish()
    as_version_1(tmp_path)
    read = load_run(tmp_path)
    assert read.document["schema_version"] == 2
    assert read.document["counts"] == {"images": 1, "unreadable": 1}
    assert read.document["model"] == {"warnings": ["a line"]}
    assert read.document["config"]["views"] == {"count": 8, "scale": [0.5, 1]}
    assert read.rows["warnings"].to_pylist() == [["a frame"]] * 2
    assert read.complete
    now = {**document, "config": read.document["config"], "hashes": {"zero_shot": "abc", "fcl": "new"}}
    with pytest.raises(FairContextError, match="was made by another version of faircontext, and can only be read"):
        open_store(tmp_path, resume=True, document=now)
    assert json.loads((tmp_path / "run.json").read_text())["schema_version"] == 1
