"""What real copies of data sets hold that would be scored under a wrong label, or end in a traceback."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.io import savemat

from coop_trees import draw, write_split
from faircontext.datasets.folder import clean_key
from faircontext.datasets.layouts import read_split
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import CATALOGUE, Dataset, imagenet_names, imagenet_wnids
from faircontext.errors import ArgumentError, FairContextError

FLOWERS = [("image_00002.jpg", 1, "colt's foot"), ("image_00001.jpg", 0, "pink-yellow dahlia")]
FOOD = [("cheese_plate/1.jpg", 0, "cheese_plate"), ("cheesecake/2.jpg", 1, "cheesecake")]


OUTSIDE = ("../a.jpg", "x/../../a.jpg", "//etc/a.jpg", "", ".", "/", "a\0.jpg")
TWICE = ("a/b.jpg", "a//b.jpg", "./a/b.jpg", "/a/b.jpg")
ENTRIES = (
    ("a.jpg", 0),
    (0, 0, "a"),
    ("a.jpg", 0, " "),
    "a.jpg",
    None,
    *(("a.jpg", x, "a") for x in ("0", 0.5, None, True)),
)


def build(root: Path, name: str, rows: list[tuple[str, int, str]], folder: str = "", split_folder: str = "") -> Path:
    """Write a miniature of a data set with a split file, and return its folder."""
    entry = CATALOGUE[name]
    place = root / (folder or entry.folders[0])
    for key, _, _ in rows:
        draw(place / entry.inner[0] / key)
    write_split((root / split_folder if split_folder else place) / entry.split_file, {"test": rows, "val": rows[:1]})
    return place


def pairs(dataset: Dataset) -> list[tuple[str, int]]:
    return [(sample.key, sample.label) for sample in dataset.samples]


# Names of data sets


@pytest.mark.parametrize("name", ["DTD", "Dtd", "dtd"])
def test_case_does_not_make_a_known_set_a_folder_of_all_its_images(tmp_path: Path, name: str) -> None:
    folder = build(tmp_path, "dtd", [("banded/1.jpg", 0, "banded")], "DTD", "data_splits")
    draw(folder / "images/banded/of_training.jpg")
    assert load_dataset(name, tmp_path).name == "dtd"
    assert pairs(load_dataset(name, tmp_path)) == [("banded/1.jpg", 0)]


def test_coop_s_folder_stands_for_the_data_set(tmp_path: Path) -> None:
    build(tmp_path, "food101", FOOD)
    assert load_dataset("food-101", tmp_path).name == "food101"


def test_a_name_of_nothing_is_an_error_with_close_ones(tmp_path: Path) -> None:
    draw(tmp_path / "pacs_photo/cat/1.jpg")
    with pytest.raises(ArgumentError, match=r"pacs_foto: no such folder; see .* did you mean 'pacs_photo'\?"):
        load_dataset("pacs_foto", tmp_path)
    with pytest.raises(ArgumentError, match="did you mean 'caltech101"):
        load_dataset("caltech01", tmp_path)
    with pytest.raises(ArgumentError, match="no such folder"):
        load_dataset("", tmp_path)


@pytest.mark.parametrize("name", ["./mine", "../data/mine"])
def test_a_path_is_taken_wherever_the_root_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    draw(tmp_path / "data/mine/cat/1.jpg")
    monkeypatch.chdir(tmp_path / "data")
    assert load_dataset(name, tmp_path).name == "mine"


def test_a_link_keeps_its_name(tmp_path: Path) -> None:
    draw(tmp_path / "far/away/cat/1.jpg")
    (tmp_path / "mine").symlink_to(tmp_path / "far/away")
    assert load_dataset("mine", tmp_path).name == "mine"


# Split files


@pytest.mark.parametrize("split_folder", ["", "data_splits", "splits", "data/data_splits"])
def test_a_split_file_is_found_where_repositories_have_it(tmp_path: Path, split_folder: str) -> None:
    build(tmp_path, "oxford_flowers", FLOWERS, "Flower102", split_folder)
    dataset = load_dataset("oxford_flowers", tmp_path)
    assert pairs(dataset) == [("image_00002.jpg", 1), ("image_00001.jpg", 0)]
    assert f"{split_folder or 'Flower102'}/split_zhou_OxfordFlowers.json" in dataset.layout
    assert pairs(load_dataset("oxford_flowers", tmp_path, "val")) == [("image_00002.jpg", 1)]


def test_a_slash_before_paths_as_in_sun397_is_left_out(tmp_path: Path) -> None:
    rows = [("/a/apartment_building/outdoor/1.jpg", 1, "outdoor apartment_building"), ("a/abbey/2.jpg", 0, "abbey")]
    build(tmp_path, "sun397", [(key.lstrip("/"), label, name) for key, label, name in rows], split_folder="splits")
    write_split(tmp_path / "splits/split_zhou_SUN397.json", {"test": rows})
    dataset = load_dataset("sun397", tmp_path)
    assert pairs(dataset) == [("a/apartment_building/outdoor/1.jpg", 1), ("a/abbey/2.jpg", 0)]
    assert dataset.names == ("abbey", "outdoor apartment_building")


@given(st.lists(st.sampled_from(["a", "b c", "..", ".", "", "d.jpg", "\0"]), max_size=5).map("/".join))
def test_a_key_always_lies_below(path: str) -> None:
    key = clean_key(path)
    if key is not None:
        assert Path("/root/images") in Path("/root/images", key).parents
        assert ".." not in Path(key).parts
        assert clean_key(key) == key


def written(*rows: Any) -> str:
    return json.dumps({"train": [], "val": [], "test": rows})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *[(written([key, 0, "a"]), r"test\[0\]: the path .* leaves the folder of images") for key in OUTSIDE],
        *[(written(["a/b.jpg", 0, "a"], [key, 0, "a"]), r"test\[1\]: a/b.jpg is there twice") for key in TWICE],
        *[(written(["b.jpg", 0, "a"], entry), r"test\[1\] is not \[path, label, class name\]") for entry in ENTRIES],
        (written(["1.jpg", 1, "a"], ["2.jpg", 2, "b"]), "labels are not 0 to 1 without a gap: 2 of them, from 1 to 2"),
        (written(["1.jpg", -1, "a"], ["2.jpg", 0, "b"]), "labels are not 0 to 1 without a gap"),
        (written(["a.jpg", 0, "cat"], ["b.jpg", 0, "dog"]), r"test\[1\]: class 0 is 'cat', but is called 'dog'"),
        *[(text, "not valid JSON") for text in ("", "\xff", "[" * 100_000, "1" * 5000)],
        ("[]", "has no list 'train'"),
        ('{"train": [], "val": []}', "has no list 'test'"),
        (written(), "lists no image"),
    ],
)
def test_a_split_file_that_cannot_be_used_names_the_entry(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "s.json").write_text(text, encoding="latin-1")
    with pytest.raises(ArgumentError, match=rf"s\.json.*{reason}"):
        read_split(tmp_path / "s.json")


def test_a_label_of_a_split_file_may_be_written_with_a_point(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(written(["a.jpg", 0.0, "cat"]))
    assert read_split(tmp_path / "s.json").parts["test"] == (("a.jpg", 0),)


# Official test images


@pytest.mark.parametrize("form", ["txt", "json"])
def test_food101_s_list_has_two_forms(tmp_path: Path, form: str) -> None:
    meta = build(tmp_path, "food101", FOOD) / "meta"
    meta.mkdir()
    listed = {"cheese_plate": ["cheese_plate/1"], "cheesecake": ["cheesecake/2", "cheesecake/3"]}
    text = json.dumps(listed) if form == "json" else "\n".join(key for keys in listed.values() for key in keys)
    (meta / f"test.{form}").write_text(text)
    dataset = load_dataset("food101", tmp_path, "official")
    assert pairs(dataset) == [("cheese_plate/1.jpg", 0), ("cheesecake/2.jpg", 1)]
    assert dataset.missing == ("cheesecake/3.jpg",)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("test.txt", None, r"test.txt: no such file or directory"),
        ("test.txt", "cheesecake/2\ncheesecake/2", r"test.txt: line\[1\]: cheesecake/2.jpg is there twice"),
        ("test.txt", "cheesecake/2\npizza/1", r"test.txt, line 2: 'pizza/1' is of no class of the split file"),
        ("test.txt", "cheesecake/../../2", "line 1: 'cheesecake/../../2' is of no class of the split file"),
        ("test.json", "[1]", r"test.json: is no mapping from classes to images"),
    ],
)
def test_a_list_that_cannot_be_used_is_an_error(tmp_path: Path, file: str, text: str | None, reason: str) -> None:
    meta = build(tmp_path, "food101", FOOD) / "meta"
    meta.mkdir()
    if text is not None:
        (meta / file).write_text(text)
    with pytest.raises(FairContextError, match=reason):
        load_dataset("food101", tmp_path, "official")


def write_flowers(root: Path, labels: list[int]) -> Path:
    folder = build(root, "oxford_flowers", FLOWERS)
    savemat(folder / "setid.mat", {"tstid": np.array([[2, 1]]), "trnid": np.array([[1]])})
    savemat(folder / "imagelabels.mat", {"labels": np.array([labels])})
    return folder


def test_lists_of_flowers_that_agree(tmp_path: Path) -> None:
    write_flowers(tmp_path, [1, 2])
    assert pairs(load_dataset("oxford_flowers", tmp_path, "official")) == [
        ("image_00001.jpg", 0),
        ("image_00002.jpg", 1),
    ]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([2, 2], r"imagelabels.mat: image_00001.jpg is of class 1, but not in the split file"),
        ([1], r"oxford_flowers: needs setid.mat and imagelabels.mat of the data set"),
    ],
)
def test_lists_of_flowers_that_disagree_are_an_error(tmp_path: Path, labels: list[int], reason: str) -> None:
    write_flowers(tmp_path, labels)
    with pytest.raises(ArgumentError, match=reason):
        load_dataset("oxford_flowers", tmp_path, "official")


def test_damaged_lists_of_flowers_are_an_error(tmp_path: Path) -> None:
    (write_flowers(tmp_path, [1, 2]) / "setid.mat").write_bytes(b"no matrix" * 99)
    with pytest.raises(ArgumentError, match=r"oxford_flowers: needs setid.mat and imagelabels.mat of the data set"):
        load_dataset("oxford_flowers", tmp_path, "official")


# FGVC-Aircraft and ImageNet


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0034309", "'' is not in variants.txt"),
        ("0000007 F-16A", "'F-16A' is not in variants.txt"),
        ("../a F-16A/B", "the path '../a' leaves the folder"),
    ],
)
def test_a_line_of_aircraft_that_cannot_be_used_is_named(tmp_path: Path, line: str, reason: str) -> None:
    folder = tmp_path / "fgvc_aircraft"
    (folder / "images").mkdir(parents=True)
    (folder / "variants.txt").write_text("707-320\nF-16A/B\n")
    (folder / "images_variant_test.txt").write_text(f"0034309 F-16A/B\n{line}\n")
    with pytest.raises(ArgumentError, match=f"images_variant_test.txt, line 2: {reason}"):
        load_dataset("fgvc_aircraft", tmp_path)


def test_aircraft_without_its_list_of_images_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "fgvc_aircraft").mkdir()
    (tmp_path / "fgvc_aircraft/variants.txt").write_text("707-320\n")
    with pytest.raises(FairContextError, match=r"images_variant_val.txt: no such file or directory"):
        load_dataset("fgvc_aircraft", tmp_path, "val")


def test_an_imagenet_class_with_two_folders_is_an_error(tmp_path: Path) -> None:
    for folder in ("0", imagenet_wnids()[0]):
        draw(tmp_path / "imagenetv2" / folder / "a.jpeg")
    with pytest.raises(ArgumentError, match="n01440764: is of the same class as 0; take one away"):
        load_dataset("imagenet_v2", tmp_path)


@pytest.mark.parametrize("folder", ["17", "1000"])
def test_an_integer_that_is_no_class_is_an_error(tmp_path: Path, folder: str) -> None:
    name = "imagenet_a" if folder == "17" else "imagenet_v2"  # a place in which list, of 200 or of 1,000?
    draw(tmp_path / CATALOGUE[name].folders[1] / folder / "a.jpeg")
    with pytest.raises(ArgumentError, match=f"{folder}: is none of the (200|1000) classes; take it away"):
        load_dataset(name, tmp_path)


# Folders of one's own


@pytest.mark.parametrize("target", ["mine", "", "mine/dog", "mine/dog/deep", "mine/cat/deep"])
@pytest.mark.parametrize("inner", ["", "images"])
def test_a_link_into_the_set_itself_counts_no_image_twice(tmp_path: Path, target: str, inner: str) -> None:
    place = tmp_path / "mine" / inner
    for key in ("cat/1.jpg", "cat/deep/2.jpg", "dog/3.jpg", "dog/deep/4.jpg"):
        draw(place / key)
    inside = Path(target).relative_to("mine") if target.startswith("mine/") else None
    (place / "cat/link").symlink_to(tmp_path / target if inside is None else place / inside)
    dataset = load_dataset("mine", tmp_path)
    assert pairs(dataset) == [("cat/1.jpg", 0), ("cat/deep/2.jpg", 0), ("dog/3.jpg", 1), ("dog/deep/4.jpg", 1)]
    links, deeper = dataset.warnings
    assert links == "links into the class folders, whose images count once, are left out: cat/link"
    assert deeper.startswith("2 of 4 images lie deeper than right in a class folder")


@pytest.mark.parametrize("target", ["mine/cat", "mine/cat/deep", "mine", ""])
def test_a_class_folder_that_is_a_link_to_another_is_an_error(tmp_path: Path, target: str) -> None:
    draw(tmp_path / "mine/cat/deep/1.jpg")
    (tmp_path / "mine/kitten").symlink_to(tmp_path / target)
    with pytest.raises(ArgumentError, match=r"kitten: is a link into the class folders beside it, .*; take it away"):
        load_dataset("mine", tmp_path)


def test_links_to_what_is_found_in_no_other_way_are_followed(tmp_path: Path) -> None:
    for key in ("store/1.jpg", "mine/.store/dog/2.jpg", "mine/all/cat/3.jpg", "mine/cat/.more/4.jpg"):
        draw(tmp_path / key)
    (tmp_path / "mine/images/cat").mkdir(parents=True)
    (tmp_path / "mine/images/dog").symlink_to(tmp_path / "mine/.store/dog")
    for number, target in enumerate(("store", "mine/all/cat", "mine/cat/.more")):
        (tmp_path / f"mine/images/cat/{number}").symlink_to(tmp_path / target)
    dataset = load_dataset("mine", tmp_path)
    assert pairs(dataset) == [("cat/0/1.jpg", 0), ("cat/1/3.jpg", 0), ("cat/2/4.jpg", 0), ("dog/2.jpg", 1)]
    (deeper,) = dataset.warnings
    assert deeper.startswith("3 of 4 images lie deeper than right in a class folder")


def test_links_of_imagenet_are_no_other_case(tmp_path: Path) -> None:
    first, second = imagenet_wnids()[:2]
    draw(tmp_path / "imagenetv2" / "store" / first / "a.jpeg")
    (tmp_path / "imagenetv2" / first).symlink_to(tmp_path / "imagenetv2" / "store" / first)
    draw(tmp_path / "imagenetv2" / second / "b.jpeg")
    (tmp_path / "imagenetv2" / second / "back").symlink_to(tmp_path / "imagenetv2")
    dataset = load_dataset("imagenet_v2", tmp_path)
    assert pairs(dataset) == [(f"{first}/a.jpeg", 0), (f"{second}/b.jpeg", 1)]
    assert f"are left out: {second}/back" in dataset.warnings[0]


def write_named(folder: Path, folders: tuple[str, ...], names: tuple[str, ...]) -> None:
    for word in folders:
        draw(folder / word / "a.jpg")
    (folder / "classnames.txt").write_text("\n".join(names), encoding="utf-8")


@pytest.mark.parametrize(
    ("folders", "names", "expected"),
    [
        (("Cat", "polar_bear"), ("polar bear", "dog", "cat"), {"polar_bear": 0, "Cat": 2}),  # by name
        (("2", "10"), tuple("abcdefghijkl"), {"2": 2, "10": 10}),  # by place
        (("1", "2", "10"), ("x", "y", "z"), {"1": 0, "2": 1, "10": 2}),  # counted from 1: in order
        (("Faces", "Motorbikes"), ("face", "motorbike"), {"Faces": 0, "Motorbikes": 1}),  # named otherwise: in order
    ],
)
def test_each_folder_gets_its_own_name(
    tmp_path: Path, folders: tuple[str, ...], names: tuple[str, ...], expected: dict[str, int]
) -> None:
    write_named(tmp_path / "mine", folders, names)
    dataset = load_dataset("mine", tmp_path)
    assert dataset.names == names
    assert {sample.path.parent.name: sample.label for sample in dataset.samples} == expected
    assert [sample.label for sample in dataset.samples] == sorted(expected.values())
    assert len(dataset.warnings) == (0 if "Cat" in folders else 1)


@pytest.mark.parametrize(
    ("folders", "names", "reason"),
    [
        (("a", "b"), ("x", "y", "z"), r"classnames.txt: 3 names for 2 class folders, which are named otherwise"),
        (
            ("polar_bear", "polar bear"),
            ("polar bear",),
            "mine: the folders polar bear, polar_bear are of one class, 0 polar bear; join them$",
        ),
        (("1", "01"), ("x", "y"), "the folders 01, 1 are of one class, 1 y; join them$"),
    ],
)
def test_names_that_do_not_fit_are_an_error(
    tmp_path: Path, folders: tuple[str, ...], names: tuple[str, ...], reason: str
) -> None:
    write_named(tmp_path / "mine", folders, names)
    with pytest.raises(ArgumentError, match=reason):
        load_dataset("mine", tmp_path)


def test_wnid_folders_get_the_names_of_their_classes(tmp_path: Path) -> None:
    places = (657, 0, 744)  # two of them are missiles
    for place in places:
        draw(tmp_path / "imagenette/val" / imagenet_wnids()[place] / "a.JPEG")
    dataset = load_dataset("imagenette", tmp_path)
    assert (
        dataset.names == ("tench", "missile", "missile") == tuple(imagenet_names()[place] for place in sorted(places))
    )
    assert [sample.label for sample in dataset.samples] == [0, 1, 2]


def test_wnid_folders_of_no_known_class_are_an_error(tmp_path: Path) -> None:
    for wnid in ("n01440764", "n00000001"):
        draw(tmp_path / "mine" / wnid / "a.JPEG")
    with pytest.raises(ArgumentError, match="n00000001 is none of ImageNet's 1,000 classes; give the names of all"):
        load_dataset("mine", tmp_path)


def test_classes_without_images_and_images_without_class_are_pointed_out(tmp_path: Path) -> None:
    draw(tmp_path / "mine/cat/1.jpg")
    draw(tmp_path / "mine/loose.jpg")
    (tmp_path / "mine/dog").mkdir()
    assert load_dataset("mine", tmp_path).warnings == (
        "class folders without images, which stay classes: dog",
        f"images that lie in no class folder are left out: 1 in {tmp_path / 'mine'}",
    )


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_class_folder_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    draw(tmp_path / "mine/dog/1.jpg")
    (tmp_path / "mine/dog").chmod(0)
    try:
        with pytest.raises(ArgumentError, match="dog: cannot be read: permission denied"):
            load_dataset("mine", tmp_path)
    finally:
        (tmp_path / "mine/dog").chmod(0o700)


# Tables


def test_a_table_as_spreadsheets_save_it(tmp_path: Path) -> None:
    draw(tmp_path / "mine/a, b.jpg")
    text = '\ufeffpath,label,class_name\r\n"a, b.jpg",0,"cat, black"\r\n\r\n'
    (tmp_path / "mine/labels.csv").write_text(text, encoding="utf-8", newline="")
    dataset = load_dataset("mine", tmp_path)
    assert (dataset.names, pairs(dataset)) == (("cat, black",), [("a, b.jpg", 0)])
