"""Folders that are splits, in any spelling: chosen by the split that is asked for, and never taken for classes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coop_trees import draw
from faircontext.cli import main
from faircontext.datasets.class_folders import class_folders, split_of
from faircontext.datasets.inputs import collect
from faircontext.datasets.load import load_dataset
from faircontext.errors import ArgumentError

Lay = Callable[..., Path]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Return a function that lays out a data set: an image in cat and in dog below each folder."""

    def make(*folders: str) -> Path:
        for folder in folders:
            for name in ("cat", "dog"):
                draw(tmp_path / "mine" / folder / name / "1.png")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *[(word, "train") for word in ("train", "Training", "TRAIN", "training_set", "trainset")],
        *[(word, "val") for word in ("val", "valid", "Validation", "dev", "eval", "validation-set")],
        *[(word, "test") for word in ("test", "TEST", "Testing", "test_images", "test set", "tests")],
        *[("train2017", "train"), ("val2014", "val"), ("test_2015", "test"), ("Test-Set 2007", "test")],
        ("Images", "images"),
        ("test3", None),
        *[(word, None) for word in ("tester", "training plane", "retrain", "valley", "devil", "testimonial", "")],
    ],
)
def test_which_split_a_name_stands_for(name: str, split: str | None) -> None:
    assert split_of(name) == split


@pytest.mark.parametrize(
    ("folders", "asked", "taken", "split"),
    [
        (("train", "valid"), "test", "valid", "val"),
        (("train", "valid"), "val", "valid", "val"),
        (("Train", "Test"), "test", "Test", "test"),
        (("training", "testing"), "test", "testing", "test"),
        (("train", "validation"), "val", "validation", "val"),
        (("train", "dev"), "test", "dev", "val"),
        (("TRAIN", "TEST"), "test", "TEST", "test"),
        (("Train", "Valid", "Test"), "val", "Valid", "val"),
        (("Train", "Valid", "Test"), "test", "Test", "test"),
        (("train", "test", "testing"), "test", "test", "test"),
        (("images/train", "images/test"), "test", "images/test", "test"),
        (("images/train", "images/val"), "val", "images/val", "val"),
        (("Images",), "test", "Images", "all"),
        (("training_set/training_set", "test_set/test_set"), "test", "test_set/test_set", "test"),
        (("test/images", "train/images"), "test", "test/images", "test"),
    ],
)
def test_the_split_that_is_asked_for_is_taken(
    lay: Lay, folders: tuple[str, ...], asked: str, taken: str, split: str
) -> None:
    root = lay(*folders)
    dataset = load_dataset("mine", root, asked)
    assert (dataset.names, dataset.split, len(dataset.samples)) == (("cat", "dog"), split, 2)
    assert dataset.layout == f"class folders in {root / 'mine' / taken}"
    other = f"there is no split test in a set of one's own: its folder {taken} is taken"
    assert dataset.warnings == ((other,) if (asked, split) == ("test", "val") else ())


@pytest.mark.parametrize(
    ("folders", "asked", "reason"),
    [
        (("Train",), "test", r"Train is a split, not a class; name the one to take: \S+/mine/Train; see docs"),
        (("training_set/training_set",), "test", r"name the one to take: \S+/training_set/training_set; see docs"),
        (
            ("train", "Testing"),
            "val",
            r"below val; Testing and train are splits, .*: \S+/Testing or \S+/train; see",
        ),
        (("train", "tests", "Testing"), "test", r"the folders Testing and tests are of the same split, test; name the"),
    ],
)
def test_without_the_split_the_way_out_is_named(lay: Lay, folders: tuple[str, ...], asked: str, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        load_dataset("mine", lay(*folders), asked)


@pytest.mark.parametrize("root", ["absolute", "data", "../data"])
def test_the_way_out_leads_out(lay: Lay, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = lay("Train")
    (base / "data").symlink_to(base)
    (base / "here").mkdir()
    monkeypatch.chdir(base / "here" if root == "../data" else base)
    place = base if root == "absolute" else Path(root)
    with pytest.raises(ArgumentError, match="name the one to take") as refused:
        load_dataset("mine", place)
    named = str(refused.value).partition("name the one to take: ")[2].partition(";")[0]
    assert load_dataset(named, place).names == ("cat", "dog")


def test_splits_without_class_folders_are_said_to_have_none(tmp_path: Path) -> None:
    for key in ("Train/1.png", "valid/images/2.png"):
        draw(tmp_path / "mine" / key)
    with pytest.raises(ArgumentError, match="Train and valid are splits, not classes, without class folders inside"):
        load_dataset("mine", tmp_path)


@pytest.mark.parametrize("name", ["test", "Train", "validation"])
@pytest.mark.parametrize("inner", ["", "deep"])
def test_a_class_may_be_called_like_a_split_beside_others(tmp_path: Path, name: str, inner: str) -> None:
    classes = [f"c{number}" for number in range(10)]
    for folder in (*classes, name):
        draw(tmp_path / "mine" / folder / inner / "1.png")
    for split in ("test", "val"):
        assert load_dataset("mine", tmp_path, split).names == tuple(sorted([*classes, name]))
    assert class_folders([str(tmp_path / "mine")]) == tuple(sorted([*classes, name]))


def test_folders_beside_splits_are_left_out_with_a_note(lay: Lay) -> None:
    root = lay("train", "test")
    draw(root / "mine/figures/plot.png")
    draw(root / "mine/logs/plot.png")
    dataset = load_dataset("mine", root)
    assert (dataset.names, dataset.split) == (("cat", "dog"), "test")
    assert dataset.warnings == ("folders beside test, a split, are left out: figures, logs",)


def test_splits_that_link_to_each_other_end(lay: Lay) -> None:
    words = ("val", "valid", "validation", "dev", "eval", "valset", "devset", "evalset", "development")
    root = lay()
    for folder in words:
        (root / "mine" / folder).mkdir(parents=True)
        for other in words:
            if other != folder:
                (root / "mine" / folder / other).symlink_to(root / "mine" / other)
    draw(root / "mine/val/cat/1.png")
    assert [sample.key for sample in load_dataset("mine", root, "val").samples] == ["cat/1.png"]


# Class names from folders


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("train", "valid"), "train and valid are splits, not classes"),
        (("Train", "Test"), "Test and Train are splits, not classes"),
        (("images",), "images is a split, not a class"),
    ],
)
def test_class_names_are_not_taken_from_splits(lay: Lay, folders: tuple[str, ...], names: str) -> None:
    root = lay(*folders)
    with pytest.raises(ArgumentError, match=rf"mine: {names}; name the one to take: \S+/mine/\w+.*; or give the class"):
        class_folders([str(root / "mine")])
    assert class_folders([str(root / "mine" / folder) for folder in folders]) == ("cat", "dog")


def test_class_names_are_not_taken_from_splits_with_other_folders_beside(lay: Lay) -> None:
    root = lay("train", "test")
    draw(root / "mine/figures/plot.png")
    with pytest.raises(ArgumentError, match=r"mine: test and train are splits, not classes; name the one to take"):
        class_folders([str(root / "mine")])


def test_the_commands_refuse_in_one_line(lay: Lay, capsys: pytest.CaptureFixture[str]) -> None:
    root = lay("Train")
    assert main(["classify", str(root / "mine"), "--labels-from-folders"]) == 2
    assert "Train is a split, not a class; name the one to take: " in capsys.readouterr().err
    assert main(["data", "check", "mine", "--root", str(root)]) == 1
    assert "PROBLEM: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folders", "noted"),
    [
        (("x_train", "x_test"), True),
        (("train-80", "test-20"), True),
        (("fold1", "fold2"), True),
        (("holdout", "train"), True),
        (("x_train", "dog"), False),
        (("training shoe", "boot"), False),
    ],
)
def test_class_folders_that_look_like_parts_of_a_set_are_noted(
    tmp_path: Path, folders: tuple[str, str], noted: bool
) -> None:
    for folder in folders:
        draw(tmp_path / "mine" / folder / "cat/1.png")
    root = str(tmp_path / "mine")
    for lines in (load_dataset("mine", tmp_path).warnings, collect([root], (), folders, [root]).warnings):
        assert any("look like parts of a set" in line for line in lines) == noted
