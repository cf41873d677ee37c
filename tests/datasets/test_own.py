"""Folders and tables of one's own: every mistake in them is one line that names the place."""

import re
import shutil
from pathlib import Path

import pytest

from coop_trees import draw
from faircontext import FairContextError
from faircontext.datasets.check import check_present
from faircontext.datasets.load import load_dataset


def table(
    folder: Path, text: str, names: str | None = "cat\ndog\n", images: tuple[str, ...] = ("a.png", "b.png")
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for image in images:
        draw(folder / image)
    (folder / "labels.csv").write_text(text, errors="surrogateescape")
    if names is not None:
        (folder / "classnames.txt").write_text(names)


def test_a_table_is_read_with_more_columns_and_without_class_names(tmp_path: Path) -> None:
    table(tmp_path / "mine", "path,label,class_name,more\na.png,1,DOG,x\nb.png,0,cat,y\n")
    dataset = load_dataset("mine", tmp_path)
    assert [(sample.key, sample.label) for sample in dataset.samples] == [("a.png", 1), ("b.png", 0)]
    assert (dataset.names, dataset.split, dataset.listed) == (("cat", "dog"), "all", 2)
    table(tmp_path / "mine", "path,label\na.png,1\n")
    assert len(load_dataset("mine", tmp_path).samples) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\na.png\n", "has no column label or class_name, but path; call the one of labels so"),
        ("path;label\na.png;0\n", "has no column path or file_name, but path;label; put commas between columns"),
        ("", "has no rows; write one for each image"),
        ("path,label\n,,\n", "has no rows; write one for each image"),
        ("path,label,label\na.png,0,1\n", "has the column 'label' twice"),
        ("path,label\na.png,cow\n", "line 2: the label 'cow' is no class; use 0 to 1, or a class name"),
        ("path,label\na.png,-1\n", "line 2: the label '-1' is no class"),
        ("path,label\na.png,0\n,,\nb.png,2\n", "line 4: the label '2' is no class"),
        (f"path,label\na.png,{'9' * 5000}\n", "line 2: the label '9+' is no class"),
        ('path,label,class_name,more\na.png,0.5,cat,"two\nlines"\n', r"line 2: the label '0\.5' is no class"),
        ("path,label\na.png,cat;dog\n", "the label 'cat;dog' is no class; .*are read with --multi-label"),
        ("path,label\na.png,0\na.png,1\n", "line 3: a.png is there twice, first in line 2; list it once"),
        ("path,label\na.png,0\na.png ,0\n", "line 3: a.png is there twice"),
        ("path,label\ngone.png,0\n./gone.png,1\n", "line 3: gone.png is there twice"),
        ("path,label\n../a.png,0\n", "line 2: the path '../a.png' does not lie below the folder"),
        ("path,label\n/etc/passwd,0\n", "line 2: the path '/etc/passwd' does not lie below the folder"),
        ("path,label\n,0\n", "line 2: has no path in its column path"),
        ("path,label,class_name\na.png,0,dog\n", "line 2: class 0 is 'cat', but is called 'dog'"),
        ('path,label\n"' + "a" * 200_000, "cannot be read: field larger than field limit"),
        ("path,label\n\udcff,0\n", "cannot be read: it is no text in UTF-8"),
    ],
)
def test_a_mistake_in_a_table_names_its_line(text: str, message: str, tmp_path: Path) -> None:
    table(tmp_path / "mine", text)
    with pytest.raises(FairContextError, match=rf"labels\.csv.*{message}"):
        load_dataset("mine", tmp_path)


SEVERAL = [
    ("path,label\na.png,cat\na.png,dog\n", r"labels.csv, line 3: a.png is there twice, first in line 2; write all its"),
    ("path,label,class_name\na.png,0;1,cat\n", r"labels.csv, line 2: has 2 labels and 1 class names; name each"),
    ("path,label\na.png,\n", r"mine: no image has a label, and there is no classnames.txt; "),
    ("path,label,class_name\na.png,0;x,cat;dog\n", r"labels.csv, line 2: the label 'x' is no class; count from 0"),
]


@pytest.mark.parametrize(("text", "message"), SEVERAL)
def test_a_mistake_in_several_labels_names_its_line(text: str, message: str, tmp_path: Path) -> None:
    table(tmp_path / "mine", text, names=None)
    with pytest.raises(FairContextError, match=message):
        load_dataset("mine", tmp_path, multi_label=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\na.png,0\n", "line 2: its label is '0'; name the classes, from 0, in classnames.txt, or in a"),
        ("path,label,class_name\na.png,one,cat\n", "line 2: the label 'one' is no class; count from 0"),
        ("path,label,class_name\na.png,0,cat\nb.png,0,dog\n", "line 3: class 0 is 'cat', but is called 'dog'"),
        ("path,label,class_name\na.png,0,cat\nb.png,2,dog\n", "labels are not 0 to 1 without a gap"),
        ("path,label,class_name\na.png,1,cat\nb.png,2,dog\n", "from 1 to 2; count from 0"),
    ],
)
def test_a_table_alone_must_tell_all_class_names(text: str, message: str, tmp_path: Path) -> None:
    table(tmp_path / "mine", text, names=None)
    with pytest.raises(FairContextError, match=message):
        load_dataset("mine", tmp_path)


def test_files_of_a_table_that_are_not_there_are_missing(tmp_path: Path) -> None:
    table(tmp_path / "mine", "path,label\na.png,0\nc.png,1\n")
    dataset = load_dataset("mine", tmp_path)
    assert (len(dataset.samples), dataset.missing, dataset.listed) == (1, ("c.png",), 2)


@pytest.mark.parametrize("split", ["val", "official"])
def test_a_split_that_a_set_of_ones_own_does_not_have_is_pointed_out(split: str, tmp_path: Path) -> None:
    table(tmp_path / "table", "path,label\na.png,0\n")
    draw(tmp_path / "folders" / "cat" / "1.png")
    for name in ("table", "folders"):
        assert load_dataset(name, tmp_path).warnings == ()
        warning = f"there is no split {split} in a set of one's own: all its images are taken"
        assert load_dataset(name, tmp_path, split).warnings == (warning,)


def test_a_split_that_is_a_folder_is_taken_without_a_word(tmp_path: Path) -> None:
    for part in ("val", "test"):
        draw(tmp_path / "mine" / part / "cat" / "1.png")
        assert load_dataset("mine", tmp_path, part).warnings == ()
    warning = "there is no split official in a set of one's own: its folder test is taken"
    assert load_dataset("mine", tmp_path, "official").warnings == (warning,)


@pytest.mark.parametrize("inner", ["", "images", "test", "val", "images/test"])
def test_class_folders_are_found_below_the_folder(inner: str, tmp_path: Path) -> None:
    for path in ("dog/2.png", "cat/deep/1.png", "cat/3.png"):
        draw(tmp_path / "mine" / inner / path)
    (tmp_path / "mine" / inner / "README.txt").touch()
    dataset = load_dataset("mine", tmp_path)
    assert dataset.names == ("cat", "dog")
    assert [(sample.key, sample.label) for sample in dataset.samples] == [
        ("cat/3.png", 0),
        ("cat/deep/1.png", 0),
        ("dog/2.png", 1),
    ]
    assert all(dataset.folder / sample.key == sample.path for sample in dataset.samples)


def test_integer_folders_are_in_order_of_value_with_names_from_the_list(tmp_path: Path) -> None:
    for label in range(11):
        draw(tmp_path / "mine" / str(label) / "a.png")
    assert "class folders are integers" in load_dataset("mine", tmp_path).warnings[0]
    (tmp_path / "mine" / "classnames.txt").write_text("\n".join("abcdefghijk"))
    dataset = load_dataset("mine", tmp_path)
    assert dataset.names == tuple("abcdefghijk")
    assert [(s.path.parent.name, s.label) for s in dataset.samples] == [(str(label), label) for label in range(11)]
    assert "0 = a, 1 = b" in dataset.warnings[0]
    (tmp_path / "mine" / "classnames.txt").write_text("a\nb\n")
    with pytest.raises(FairContextError, match=r"classnames.txt: 2 names for 11 class folders"):
        load_dataset("mine", tmp_path)


def test_a_folder_that_is_no_data_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(FairContextError, match=r"neither labels.csv nor folders of images"):
        load_dataset("mine", tmp_path)
    draw(tmp_path / "mine" / "a.png")
    with pytest.raises(FairContextError, match=r"neither labels.csv nor folders of images"):
        load_dataset("mine", tmp_path)
    with pytest.raises(FairContextError, match=r"no such folder; see faircontext data list"):
        load_dataset("other", tmp_path)


def test_the_shared_sets_are_read(data: Path) -> None:
    folders = sorted(path.parent for path in data.glob("*/labels.csv"))
    for folder in folders:
        dataset = load_dataset(folder.name, data)
        assert not dataset.missing
        assert len(dataset.names) == len((folder / "classnames.txt").read_text().splitlines())
    assert len(folders) == 19


def test_class_folders_and_table_of_a_shared_set_agree(data: Path, tmp_path: Path) -> None:
    by_table = load_dataset("pacs_photo", data)
    shutil.copytree(data / "pacs_photo" / "images", tmp_path / "pacs_photo" / "images")
    by_folder = load_dataset("pacs_photo", tmp_path)
    titles = {f"images/{sample.key}": by_folder.names[sample.label] for sample in by_folder.samples}
    assert titles == {sample.key: by_table.names[sample.label] for sample in by_table.samples}


@pytest.mark.parametrize("kind", ["link", "folder"])
@pytest.mark.parametrize("name", ["labels.csv", "classnames.txt", "classnames.txt beside a table"])
def test_what_only_has_the_name_of_a_file_is_not_passed_over(tmp_path: Path, name: str, kind: str) -> None:
    draw(tmp_path / "mine" / "cat" / "a.png")
    name, _, table = name.partition(" ")
    if table:
        (tmp_path / "mine" / "labels.csv").write_text("path,label,class_name\ncat/a.png,0,cat\n")
    place = tmp_path / "mine" / name
    place.symlink_to("nothing") if kind == "link" else place.mkdir()
    with pytest.raises(FairContextError, match=f"{name}: is no file, or a link to nothing; put the file there"):
        load_dataset("mine", tmp_path)


def test_where_no_image_of_a_table_is_there_one_is_named(tmp_path: Path) -> None:
    table(tmp_path / "mine", "path,label\nmine/a.png,0\nhttps://example.org/b.png,1\n")
    said = re.escape(f"mine: none of its 2 images is in {tmp_path / 'mine'}, for example mine/a.png")
    with pytest.raises(FairContextError, match=f"^{said}$"):
        check_present(load_dataset("mine", tmp_path), partial=True)


@pytest.mark.parametrize(
    ("file", "right"),
    [
        ("Labels.csv", "labels.csv"),
        ("LABELS.CSV", "labels.csv"),
        ("labels.csv.txt", "labels.csv"),
        ("labels.tsv", "labels.csv"),
        ("ClassNames.txt", "classnames.txt"),
    ],
)
def test_a_file_that_is_nearly_called_like_one_that_is_read_is_named(tmp_path: Path, file: str, right: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / file).write_text("path,label\ncat/a.png,1\n")
    said = f"{file} is not read: the file that is read is called {right}"
    with pytest.raises(FairContextError, match=f"no labels.csv and no class folders in it; {re.escape(said)}"):
        load_dataset("mine", tmp_path)
    draw(tmp_path / "mine" / "cat" / "a.png")
    assert load_dataset("mine", tmp_path).warnings == (said,)
    (tmp_path / "mine" / "labels.csv").write_text("path,label,class_name\ncat/a.png,0,cat\n")
    assert load_dataset("mine", tmp_path).warnings == (() if right == "labels.csv" else (said,))
