"""A user's data set in tables and archives, measured by `evaluate`: class names, splits, labels, trouble in a line."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faircontext import FairContextError
from faircontext.cli import main
from faircontext.datasets import load_dataset
from faircontext.runs.store import load_run
from made_inputs import png

PNGS = [png(number) for number in range(6)]


def labels_of(folder: Path, split: str = "test") -> list[tuple[str, str | None]]:
    dataset = load_dataset(str(folder), folder.parent, split)
    return [(sample.key, None if sample.label is None else dataset.names[sample.label]) for sample in dataset.samples]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_metadata_of_hugging_face(kind: str, tmp_path: Path) -> None:
    rows = [("b.png", "dog"), ("sub/a.png", "cat"), ("gone.png", "dog")]
    for name, content in zip(("b.png", "sub/a.png"), PNGS, strict=False):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    lines = [json.dumps({"file_name": name, "label": label}) for name, label in rows]
    lines = lines if kind == "jsonl" else ["file_name,label", *(f"{name},{label}" for name, label in rows)]
    (tmp_path / f"metadata.{kind}").write_text("\n".join(lines))
    dataset = load_dataset(str(tmp_path), tmp_path)
    assert (dataset.names, dataset.missing, dataset.in_order) == (("cat", "dog"), ("gone.png",), True)
    assert labels_of(tmp_path) == [("b.png", "dog"), ("sub/a.png", "cat")]
    (tmp_path / "classnames.txt").write_text("dog\nbird\ncat\n")
    assert load_dataset(str(tmp_path), tmp_path).names == ("dog", "bird", "cat")
    assert labels_of(tmp_path) == [("b.png", "dog"), ("sub/a.png", "cat")]


def write_parquet(path: Path, pngs: list[bytes], labels: list[int], names: list[str] | None = None) -> None:
    path.parent.mkdir(exist_ok=True)
    facts = {"huggingface": json.dumps({"info": {"features": {"label": {"names": names}}}})} if names else None
    schema = pa.schema([("image", pa.binary()), ("label", pa.int64())], metadata=facts)
    pq.write_table(pa.table({"image": pngs, "label": labels}, schema), path)


def test_parquet_tables_of_splits(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data/train-00000-of-00001.parquet", PNGS[:1], [0], ["cat", "dog"])
    write_parquet(tmp_path / "data/test-00000-of-00002.parquet", PNGS[:2], [0, 1], ["cat", "dog"])
    write_parquet(tmp_path / "data/test-00001-of-00002.parquet", PNGS[2:3], [1], ["cat", "dog"])
    tables = [f"data/test-0000{part}-of-00002.parquet" for part in range(2)]
    assert labels_of(tmp_path) == [(f"{tables[0]}/0", "cat"), (f"{tables[0]}/1", "dog"), (f"{tables[1]}/0", "dog")]
    for path in (tmp_path / "data").glob("test*"):
        path.unlink()
    with pytest.raises(FairContextError, match=r"its tables are of the split train, and none of test"):
        load_dataset(str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("tables", "split", "taken", "said"),
    [
        (("test-0", "more"), "test", ["test-0"], "files beside those of test, a split, are left out: more.parquet"),
        (("images-0", "images-1"), "all", ["images-0", "images-1"], None),
        (
            ("x-train-0", "x-val-0"),
            "all",
            ["x-train-0", "x-val-0"],
            "x-train-0.parquet, x-val-0.parquet look like parts of a set, and are taken as one: begin their names with",
        ),
        (("x-val-0", "x-val-1"), "all", ["x-val-0", "x-val-1"], None),
    ],
)
def test_of_tables_that_may_be_splits_it_is_said_what_is_taken(
    tables: tuple[str, ...], split: str, taken: list[str], said: str | None, tmp_path: Path
) -> None:
    for name in tables:
        write_parquet(tmp_path / f"{name}.parquet", PNGS[:1], [0], ["cat", "dog"])
    dataset = load_dataset(str(tmp_path), tmp_path)
    assert (dataset.split, [sample.key for sample in dataset.samples]) == (
        split,
        [f"{name}.parquet/0" for name in taken],
    )
    lines = [line for line in dataset.warnings if not line.startswith("labels are class names")]
    assert lines == [] if said is None else lines[0].startswith(said)


def test_indices_need_names(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", PNGS[:2], [0, 1])
    with pytest.raises(
        FairContextError, match=r"a.parquet/0: its label is '0'; name the classes, from 0, in classnames.txt"
    ):
        load_dataset(str(tmp_path), tmp_path)
    (tmp_path / "classnames.txt").write_text("cat\ndog\n")
    assert labels_of(tmp_path) == [("a.parquet/0", "cat"), ("a.parquet/1", "dog")]


def test_archives_are_measured_with_shards_that_join(
    tmp_path: Path, tiny_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    webdataset = pytest.importorskip("webdataset")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "classnames.txt").write_text("cat\ndog\n")
    for shard in range(2):
        with webdataset.TarWriter(str(folder / f"{shard:03}.tar")) as writer:
            for number in range(3):
                sample = {"__key__": f"{number}", "png": PNGS[3 * shard + number]}
                writer.write(sample | ({"cls": number % 2} if number or shard else {}))
    common = ["evaluate", "--datasets", "mine", "--root", str(tmp_path), "--methods", "zero_shot"]
    common += ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32"]
    assert main([*common, "--out", str(tmp_path / "whole")]) == 0
    assert "1 image has no label, and counts in no accuracy" in capsys.readouterr().out
    for part in range(2):
        assert main([*common, "--out", str(tmp_path / "parts"), "--shard", f"{part}/2"]) == 0
    assert main(["merge", str(tmp_path / "parts"), "--out", str(tmp_path / "joined")]) == 0
    whole, joined = (
        load_run(tmp_path / name / "mine").rows.drop_columns(["seconds", "shared_seconds"])
        for name in ("whole", "joined")
    )
    assert whole.equals(joined)
    assert whole["path"].to_pylist() == [f"{shard:03}.tar/{number}.png" for shard in range(2) for number in range(3)]
    assert whole["label_index"].to_pylist() == [None, 1, 0, 0, 1, 0]


def test_where_no_label_is_valid_json_it_is_said(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "0.tar")) as writer:
        writer.write({"__key__": "1", "png": PNGS[0], "json": b'{"label": '})
    with pytest.raises(
        FairContextError, match=r"no image has a label, .*; .*0.tar: no label is taken from 1.json: not v"
    ):
        load_dataset(str(tmp_path), tmp_path)
    (tmp_path / "classnames.txt").write_text("cat\ndog\n")
    assert labels_of(tmp_path) == [("0.tar/1.png", None)]
    assert any("no label is taken from 1.json" in line for line in load_dataset(str(tmp_path), tmp_path).warnings)
