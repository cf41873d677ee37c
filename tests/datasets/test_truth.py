"""The truth of class folders and of labels: `classify` and `evaluate` take one class, and doubts are told."""

from pathlib import Path

import pytest

from coop_trees import draw
from faircontext.datasets.check import check_dataset
from faircontext.datasets.class_folders import class_folders
from faircontext.datasets.layouts import read_imagenet
from faircontext.datasets.load import load_dataset
from faircontext.errors import ArgumentError
from faircontext.names import FolderTruth, name_warnings
from made_inputs import find_images

THREE = ("cat", "dog", "eel")


def build(root: Path, folders: tuple[str, ...], names: tuple[str, ...] = ()) -> Path:
    """Make a set of class folders with a picture each, with `classnames.txt` where names are given."""
    for folder in folders:
        draw(root / "mine/images" / folder / "a.png")
    if names:
        (root / "mine/classnames.txt").write_text("\n".join(names), encoding="utf-8")
    return root / "mine/images"


@pytest.mark.parametrize(
    ("folders", "names", "labels"),
    [
        (("0", "1"), ("crane", "crane"), (0, 1)),
        (("0", "1", "2"), ("tabby cat", "tabby cat", "dog"), (0, 1, 2)),
        (("tabby cat", "dog"), ("tabby cat", "tabby cat", "dog"), (0, 2)),
        (("Crane", "crane", "dog"), ("dog", "crane", "Crane"), (2, 1, 0)),
        (("01", "02"), ("1", "2", "3"), (0, 1)),
        (("1", "02", "003"), ("3", "2", "1"), (2, 1, 0)),
        (("000", "002"), THREE, (0, 2)),
        (("001", "002"), THREE, (1, 2)),
        (("café", "Dog"), ("dog", "cafe\u0301"), (1, 0)),
        (("cafe\u0301", "polar_bear"), ("polar bear", "CAFÉ"), (1, 0)),
    ],
)
def test_both_commands_take_the_same_class(
    tmp_path: Path, folders: tuple[str, ...], names: tuple[str, ...], labels: tuple[int, ...]
) -> None:
    place = build(tmp_path, folders, names)
    evaluated = {sample.path.parent.name: sample.label for sample in load_dataset("mine", tmp_path).samples}
    paths = find_images([str(place)])
    truth = FolderTruth(load_dataset("mine", tmp_path).names, paths)
    assert evaluated == dict(zip(folders, labels, strict=True))
    assert {path.parent.name: truth(path) for path in paths} == evaluated


def test_folders_that_differ_in_case_are_two_classes_with_images(tmp_path: Path) -> None:
    place = build(tmp_path, ("Crane", "crane", "dog"))
    names, paths = class_folders([str(place)]), find_images([str(place)])
    truth = FolderTruth(names, paths, [str(place)])
    assert names == load_dataset("mine", tmp_path).names == ("Crane", "crane", "dog")
    assert [truth(path) for path in paths] == [0, 1, 2]
    assert truth.warnings() == []
    assert name_warnings(names) == [
        "class names that differ in case, underscores or blanks alone: Crane, crane; a text model may read them alike, "
        "and the first wins ties"
    ]


# Labels that count from 1


@pytest.mark.parametrize("folders", [("001", "002"), ("1", "2")])
def test_integer_folders_that_leave_class_0_empty_are_noted_with_counts(
    tmp_path: Path, folders: tuple[str, ...]
) -> None:
    place = build(tmp_path, folders, THREE)
    doubt = (
        "; they may count from 1: they run from 1 to 2 for 3 class names, so that class 0, 'cat', has no image; count "
        "from 0"
    )
    (warning,) = FolderTruth(THREE, find_images([str(place)])).warnings()
    assert warning.endswith(f"{folders[0]} = dog, {folders[1]} = eel{doubt}")
    (warning,) = load_dataset("mine", tmp_path).warnings
    assert warning.endswith(f"{folders[0]} = dog, {folders[1]} = eel{doubt}")


def test_integer_folders_that_start_at_0_leave_no_doubt(tmp_path: Path) -> None:
    build(tmp_path, ("0", "2"), THREE)
    assert "count from 1" not in load_dataset("mine", tmp_path).warnings[0]


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("0", "1", "2"), ("1", "2", "3")),  # by place, folder 1 would be class 2
        (("cat", "zebra"), ("zebu", "cat")),  # in order, folder cat would be class zebu
    ],
)
def test_a_folder_of_one_class_s_name_is_no_other_class(
    tmp_path: Path, folders: tuple[str, ...], names: tuple[str, ...]
) -> None:
    build(tmp_path, folders, names)
    with pytest.raises(ArgumentError, match=r"classnames.txt: class folder \w+ is named after none of its \d names"):
        load_dataset("mine", tmp_path)


def test_integer_folders_of_imagenet_that_count_from_1_are_told(tmp_path: Path) -> None:
    draw(tmp_path / "v2/1/a.jpeg")
    draw(tmp_path / "v2/999/a.jpeg")
    samples, warnings = read_imagenet(tmp_path / "v2")
    assert [sample.label for sample in samples] == [1, 999]
    assert [warning.partition(" for ")[0] for warning in warnings] == [
        "folders may count from 1: they run from 1 to 999",
    ]
    draw(tmp_path / "v2/1000/a.jpeg")
    with pytest.raises(ArgumentError, match=r"1000: is none of the 1000 classes; .* count from 0, and there is no fol"):
        read_imagenet(tmp_path / "v2")
    draw(tmp_path / "v2/0/a.jpeg")
    with pytest.raises(ArgumentError, match=r"1000: is none of the 1000 classes; take it away$"):
        read_imagenet(tmp_path / "v2")


def table(root: Path, labels: tuple[object, ...], titles: tuple[str, ...] = ()) -> None:
    """Make a table of three class names, with a picture for each label."""
    lines = ["path,label,class_name"]
    for number, label in enumerate(labels):
        draw(root / "mine" / f"{number}.png")
        lines.append(f"{number}.png,{label},{titles[number] if titles else ''}")
    (root / "mine/labels.csv").write_text("\n".join(lines))
    (root / "mine/classnames.txt").write_text("\n".join(THREE))


@pytest.mark.parametrize(
    ("labels", "titles", "noted"),
    [
        ((1, 1, 2, 2), (), True),
        ((1, 2), ("dog", ""), True),
        ((1, 2), ("dog", "eel"), False),  # names that agree leave no doubt
        (("dog", "eel"), (), False),
        ((0, 2), (), False),
    ],
)
def test_labels_that_leave_class_0_empty_are_noted_unless_names_agree(
    tmp_path: Path, labels: tuple[object, ...], titles: tuple[str, ...], noted: bool
) -> None:
    table(tmp_path, labels, titles)
    warning = (
        "labels may count from 1: they run from 1 to 2 for 3 class names, so that class 0, 'cat', has no image; count "
        "from 0"
    )
    dataset = load_dataset("mine", tmp_path)
    assert dataset.warnings == ((warning,) if noted else ())
    assert (warning in check_dataset("mine", tmp_path).summary) == noted


def test_a_check_names_the_classes_of_ones_own_set_that_have_no_image(tmp_path: Path) -> None:
    table(tmp_path, (0, 2))
    report = check_dataset("mine", tmp_path)
    assert "1 of 3 classes have no image: dog" in report.summary
    assert report.problems == ()


def test_a_name_that_is_another_class_s_in_other_case_is_a_mistake(tmp_path: Path) -> None:
    table(tmp_path, (0,), ("crane",))
    (tmp_path / "mine/classnames.txt").write_text("Crane\ncrane\n")
    with pytest.raises(ArgumentError, match="line 2: class 0 is 'Crane', but is called 'crane'"):
        load_dataset("mine", tmp_path)
    (tmp_path / "mine/classnames.txt").write_text("Crane\ndog\n")
    assert load_dataset("mine", tmp_path).samples[0].label == 0
