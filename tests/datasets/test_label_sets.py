"""Several labels of an image, from tables, archives and folders; a cell that can be read in two ways is one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faircontext import FairContextError
from faircontext.datasets import Collages, InputOptions, cells_of, collect, load_dataset, write_collages
from faircontext.datasets.listing import data_hash
from made_inputs import png, write_images, write_tar

Read = Callable[..., dict[str, list[str] | None]]
NAMES = ("cat", "dog", "bird")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    write_images(made, *(f"{name}.png" for name in "abcd"))
    return made


def sets_of(folder: Path) -> dict[str, list[str] | None]:
    """Return the labels of each image, as a data set has them."""
    dataset = load_dataset(str(folder), folder.parent, multi_label=True)
    return {
        sample.key: None if sample.label_set is None else [dataset.names[index] for index in sample.label_set]
        for sample in dataset.samples
    }


def inputs_of(*paths: Path, **options: str) -> dict[str, list[str] | None]:
    """Return the same of inputs, by the last part of their names."""
    found = collect([*map(str, paths)], (), NAMES, options=InputOptions(multi_label=True, **options))
    return {
        sample.key.rpartition("/")[2]: None if sample.label_set is None else [NAMES[i] for i in sample.label_set]
        for sample in found.images
    }


TABLE = "path,label\na.png,cat;dog\nb.png, dog ; bird;dog\nc.png,\n"


def test_a_cell_holds_several_labels(folder: Path) -> None:
    (folder / "labels.csv").write_text(TABLE)
    wanted = {"a.png": ["cat", "dog"], "b.png": ["dog", "bird"], "c.png": []}
    assert {name: sorted(labels) for name, labels in sets_of(folder).items()} == {
        name: sorted(labels) for name, labels in wanted.items()
    }
    dataset = load_dataset("mine", folder.parent, multi_label=True)
    assert dataset.names == ("bird", "cat", "dog")
    assert "1 image has none of the classes: an empty cell" in dataset.warnings
    assert [sample.label for sample in dataset.samples] == [None] * 3
    # What is given to `classify` is read alike; an image that the table does not list has no known labels.
    assert inputs_of(folder) == {**wanted, "d.png": None}
    assert inputs_of(folder / "labels.csv") == wanted


def test_indices_and_class_names(folder: Path) -> None:
    (folder / "labels.csv").write_text("path,label,class_name\na.png,0;1,cat;dog\nb.png,1,dog\nc.png,,\n")
    assert sets_of(folder) == {"a.png": ["cat", "dog"], "b.png": ["dog"], "c.png": []}
    (folder / "classnames.txt").write_text("\n".join(NAMES))
    (folder / "labels.csv").write_text("path,label\na.png,0;2\nb.png,dog;2\n")
    assert sets_of(folder) == {"a.png": ["cat", "bird"], "b.png": ["dog", "bird"]}


def test_the_column_labels_goes_before_that_of_one_label_and_only_with_several(folder: Path) -> None:
    (folder / "labels.csv").write_text("path,label,class_name,labels\na.png,0,cat,1;2\nb.png,1,dog,1\n")
    (folder / "classnames.txt").write_text("\n".join(NAMES))
    assert sets_of(folder) == {"a.png": ["dog", "bird"], "b.png": ["dog"]}
    assert inputs_of(folder / "labels.csv") == {"a.png": ["dog", "bird"], "b.png": ["dog"]}
    assert [sample.label for sample in load_dataset("mine", folder.parent).samples] == [0, 1]


def test_the_hash_of_the_data_depends_on_the_labels(folder: Path) -> None:
    hashes = []
    for cell in ("cat;dog", "cat", "dog;cat"):
        (folder / "labels.csv").write_text(f"path,label\na.png,{cell}\nb.png,cat;dog\n")
        hashes.append(data_hash(load_dataset("mine", folder.parent, multi_label=True)))
    assert hashes[0] == hashes[2] != hashes[1]


def test_lists_of_hugging_faces_metadata(folder: Path) -> None:
    rows = [
        {"file_name": "a.png", "label": ["cat", "dog"]},
        {"file_name": "b.png", "label": []},
        {"file_name": "c.png", "label": None},
        {"file_name": "d.png", "label": "bird;cat"},
    ]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    wanted = {"a.png": ["cat", "dog"], "b.png": [], "c.png": None, "d.png": ["bird", "cat"]}
    assert sets_of(folder) == wanted
    assert inputs_of(folder) == {**wanted, "d.png": ["cat", "bird"]}
    (folder / "metadata.jsonl").write_text(json.dumps({"file_name": "a.png", "label": [{}]}))
    with pytest.raises(FairContextError, match=r"metadata.jsonl, line 1: the label '\{\}' is neither a name nor an in"):
        sets_of(folder)


def test_parquet_tables_with_lists(tmp_path: Path) -> None:
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    names = {"labels": {"feature": {"names": ["snail", "cat", "dog"]}}}
    schema = pa.schema(
        [("image", pa.binary()), ("labels", pa.list_(pa.int64()))],
        metadata={"huggingface": json.dumps({"info": {"features": names}})},
    )
    pq.write_table(pa.table({"image": [png()] * 3, "labels": [[1, 2], [], None]}, schema), path)
    wanted = {"data/a.parquet/0": ["cat", "dog"], "data/a.parquet/1": [], "data/a.parquet/2": None}
    assert sets_of(tmp_path) == wanted
    assert inputs_of(path) == {key.rpartition("/")[2]: labels for key, labels in wanted.items()}


def test_archives_of_webdataset(tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    members = {
        "1.png": png(),
        "1.json": json.dumps({"labels": ["cat", "dog"], "label": "snail"}).encode(),
        "2.png": png(),
        "2.cls": b"dog;bird",
        "3.png": png(),
    }
    write_tar(tmp_path / "a.tar", members)
    wanted = {"1.png": ["cat", "dog"], "2.png": ["dog", "bird"], "3.png": None}
    assert inputs_of(tmp_path / "a.tar") == wanted
    found = sets_of(tmp_path)
    assert [None if labels is None else {*labels} for labels in found.values()] == [
        {"cat", "dog"},
        {"dog", "bird"},
        None,
    ]


def test_class_folders_give_one_label(tmp_path: Path) -> None:
    write_images(tmp_path, "cat/1.png", "dog/1.png")
    assert sets_of(tmp_path) == {"cat/1.png": ["cat"], "dog/1.png": ["dog"]}


def test_labels_that_are_no_class_are_left_out_and_counted(folder: Path) -> None:
    (folder / "labels.csv").write_text("path,label\na.png,cat;snail\nb.png,snail\n")
    assert inputs_of(folder / "labels.csv") == {"a.png": ["cat"], "b.png": []}
    found = collect([str(folder / "labels.csv")], (), NAMES, options=InputOptions(multi_label=True))
    (line,) = found.truth_warnings
    assert line.startswith("labels that are no class are left out, 2 in all: 'snail'; the first in ")
    assert line.endswith("labels.csv, line 2")


def test_collages_name_the_classes_of_all_cells(tmp_path: Path) -> None:
    write_images(tmp_path, *(f"photos/{name}/1.png" for name in "pqrst"))
    write_collages(Collages(load_dataset("photos", tmp_path)), tmp_path / "made", 3)
    dataset = load_dataset("made", tmp_path, multi_label=True)
    for sample in dataset.samples:
        assert list(sample.labels) == sorted(cells_of(sample.key).ravel().tolist())


def test_a_table_of_several_labels_names_the_option_that_reads_it(folder: Path) -> None:
    hint = "2 images have labels in a column labels, which is not read: add --multi-label"
    (folder / "labels.csv").write_text("path,labels\na.png,cat;dog\nb.png,dog\nc.png,\n")
    for paths in ([folder], [folder / "labels.csv"]):
        assert hint in collect([*map(str, paths)], (), NAMES).truth_warnings
        assert hint not in collect([*map(str, paths)], (), NAMES, options=InputOptions(multi_label=True)).truth_warnings
    with pytest.raises(FairContextError, match=r"but path, labels; its column labels is read with --multi-label$"):
        load_dataset("mine", folder.parent)
    pq.write_table(pa.table({"image": [png()] * 3, "labels": [["cat", "dog"], ["dog"], []]}), folder / "t.parquet")
    assert hint in collect([str(folder / "t.parquet")], (), NAMES).truth_warnings
    (folder / "labels.csv").rename(folder / "metadata.csv")
    with pytest.raises(FairContextError, match=r"metadata.csv: has no column label .*; its column labels is read with"):
        load_dataset("mine", folder.parent)
    (folder / "one.csv").write_text("path,label\na.png,cat;dog\nb.png,dog\n")
    (line,) = collect([str(folder / "one.csv")], (), NAMES).truth_warnings
    assert line.endswith("one.csv, line 2; several labels, with ; between, are read with --multi-label")


def test_labels_that_make_names_of_classes_say_so_where_they_are_several(folder: Path) -> None:
    (folder / "labels.csv").write_text("path,label\na.png,cat;dog\nb.png,dog\n")
    (line,) = load_dataset("mine", folder.parent).warnings
    assert line.endswith("'cat;dog' is one of them: several labels, with ; between, are read with --multi-label")
