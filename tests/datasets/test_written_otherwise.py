"""Tables and split files that write a path, a label or a name in another way: read where the meaning is plain."""

import unicodedata
from pathlib import Path

import pytest

from coop_trees import draw, write_split
from faircontext.datasets.folder import find_listed
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import Dataset
from faircontext.errors import ArgumentError

CAFE, CAFE_NFD = "café", unicodedata.normalize("NFD", "café")
IMAGES = (f"{CAFE}/{CAFE_NFD}.png", f"{CAFE_NFD} noir/1.png", "cat/1.png", "cat/2.png", "cat/3.v2.jpg", "cat/2.txt")
DOTTED = ("a\u0323\u0308.png", "a\u0308\u0323.png", "\u1ea1\u0308.png")
"""One name in three ways."""
HERE = "<folder of images>"

PATHS = [
    (f"{CAFE}/{CAFE}.png", f"{CAFE}/{CAFE_NFD}.png"),
    (f"{CAFE_NFD}/{CAFE}.png", f"{CAFE}/{CAFE_NFD}.png"),
    (f"{CAFE} noir/1.png", f"{CAFE_NFD} noir/1.png"),
    ("cat\\1.png", "cat/1.png"),
    (f"{CAFE_NFD}\\{CAFE}", f"{CAFE}/{CAFE_NFD}.png"),
    (f"{HERE}/cat/1.png", "cat/1.png"),
    (f"{HERE}/{CAFE} noir/1", f"{CAFE_NFD} noir/1.png"),
    (" cat/1.png ", "cat/1.png"),
    ("./cat/1", "cat/1.png"),
    ("cat/../cat/1.png", "cat/1.png"),
    ("cat\\..\\cat\\1.png", "cat/1.png"),
    ("cat/2", "cat/2.png"),  # the text beside it is no image
    ("cat/3.v2", "cat/3.v2.jpg"),
]


def load(root: Path, kind: str, path: str) -> Dataset:
    """List one image, of class dog, in a table or in a split file."""
    if kind == "table":
        place = root / "mine"
        for image in IMAGES:
            draw(place / image) if not image.endswith("txt") else (place / image).touch()
        (place / "labels.csv").write_text(f"path,label\n{path.replace(HERE, str(place))},1\n", encoding="utf-8")
        (place / "classnames.txt").write_text("cat\ndog\n")
        return load_dataset("mine", root)
    place = root / "dtd/images"
    for image in IMAGES:
        draw(place / image) if not image.endswith("txt") else (place / image).touch()
    entries = [(path.replace(HERE, str(place)), 1, "dog"), ("none.jpg", 0, "cat")]
    write_split(root / "dtd/split_zhou_DescribableTextures.json", {"test": entries[:1], "train": entries[1:]})
    return load_dataset("dtd", root)


@pytest.mark.parametrize("kind", ["table", "split"])
@pytest.mark.parametrize(("path", "real"), PATHS)
def test_a_path_that_is_written_otherwise_names_its_file(tmp_path: Path, kind: str, path: str, real: str) -> None:
    dataset = load(tmp_path, kind, path)
    (sample,) = dataset.samples
    assert (sample.key, sample.label, dataset.missing) == (real, 1, ())
    assert sample.path.is_file()


@pytest.mark.parametrize("kind", ["table", "split"])
@pytest.mark.parametrize(
    ("files", "path", "reason"),
    [
        (("cat/4.png", "cat/4.jpg"), "cat/4", "'cat/4' may be cat/4.jpg or cat/4.png; write the one that is meant"),
        ((DOTTED[0], DOTTED[1]), DOTTED[2], " may be .* or .*; write the one that is meant"),
    ],
)
def test_a_path_that_may_be_several_files_is_refused(
    tmp_path: Path, kind: str, files: tuple[str, ...], path: str, reason: str
) -> None:
    for file in files:
        draw(tmp_path / ("mine" if kind == "table" else "dtd/images") / file)
    with pytest.raises(ArgumentError, match=reason):
        load(tmp_path, kind, path)


@pytest.mark.parametrize("kind", ["table", "split"])
@pytest.mark.parametrize("path", ["cat/4", "dog/1.png", "cat\\..\\..\\secret.png", "CAT/1.png", "cat"])
def test_a_path_of_no_file_stays_missing_or_is_refused(tmp_path: Path, kind: str, path: str) -> None:
    draw(tmp_path / "secret.png")
    if ".." in path:
        with pytest.raises(ArgumentError, match=r"the path .*secret"):
            load(tmp_path, kind, path)
        return
    dataset = load(tmp_path, kind, path)
    assert (dataset.samples, dataset.missing) == ((), (path,))


def test_a_path_that_is_there_as_it_is_written_is_taken_so(tmp_path: Path) -> None:
    for name in ("cat\\1.png", "cat/1.png", f"{CAFE}.png", f"{CAFE_NFD}.png", "2 .png", "2", "2.png"):
        draw(tmp_path / name) if name != "2" else (tmp_path / name).touch()
    listed = ["cat\\1.png", "cat/1.png", f"{CAFE}.png", f"{CAFE_NFD}.png", "2", "2 .png"]
    assert find_listed(tmp_path, listed, "list") == {path: path for path in listed}


def test_two_ways_to_write_one_file_are_an_error(tmp_path: Path) -> None:
    draw(tmp_path / "cat/1.png")
    with pytest.raises(ArgumentError, match=r"^list: 'cat/1.png' and 'cat.*1' are one file, cat/1.png; list it once$"):
        find_listed(tmp_path, ["cat/1.png", "cat\\1"], "list")


# Cells of a table


def read(root: Path, text: str, names: str | None = f"cat\n{CAFE}\n") -> list[tuple[str, int]]:
    for image in ("a.jpg", "b.jpg", "c.jpg"):
        draw(root / "mine" / image)
    (root / "mine/labels.csv").write_text(text, encoding="utf-8")
    if names is not None:
        (root / "mine/classnames.txt").write_text(names, encoding="utf-8")
    dataset = load_dataset("mine", root)
    return [(sample.key, sample.label) for sample in dataset.samples]


@pytest.mark.parametrize(
    "text",
    [
        f"path,label,class_name\na.jpg,0,cat\nb.jpg,1,{CAFE_NFD}\n",
        f"path,label,class_name\na.jpg,0, Cat \nb.jpg,1,{CAFE_NFD.upper()}\n",
        "path, label\na.jpg, 0\nb.jpg, 1\n",
        " path ,label \na.jpg ,0 \n b.jpg,1\n",
        "path,label,class_name\na.jpg,0,cat\n,,\n\n , ,\nb.jpg,1,\n,,\n",
        "\n,,\npath,label\na.jpg,0\nb.jpg,1\n",
        f"path,label\na.jpg,cat\nb.jpg,{CAFE}\n",
        f"path,label\na.jpg,Cat\nb.jpg, {CAFE_NFD}\n",
        f"path,label\na.jpg,0\nb.jpg,{CAFE}\n",
        "path,label\na.jpg,0.0\nb.jpg,1.0\n",
        "path,label\na.jpg,0.\nb.jpg,01\n",
        "path,label\na,0\nb,1\n",
    ],
)
def test_cells_that_are_written_otherwise_are_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [("a.jpg", 0), ("b.jpg", 1)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"path,label\na.jpg,{CAFE_NFD}\nb.jpg,cat\nc.jpg,{CAFE}\n", ("café", "cat")),
        ("path,label\na.jpg,dog\nb.jpg,cat\nc.jpg,Dog\n", ("cat", "dog")),
        ("path,label,class_name\na.jpg,dog,dog\nb.jpg,cat,Cat\nc.jpg,dog,\n", ("cat", "dog")),
    ],
)
def test_labels_that_are_names_need_no_list_of_names(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    labels = dict(read(tmp_path, text, None))
    dataset = load_dataset("mine", tmp_path)
    assert dataset.names == tuple(sorted(names))
    assert labels["a.jpg"] == labels["c.jpg"] != labels["b.jpg"]
    assert dataset.warnings == ("labels are class names: 2 classes, in sorted order",)


# Entries of a split file


def test_names_of_a_split_file_may_be_in_either_composition(tmp_path: Path) -> None:
    entries = [("a.jpg", 0, CAFE_NFD), ("b.jpg", 0, CAFE), ("c.jpg", 1, " dog"), ("d.jpg", 1, "Dog")]
    write_split(tmp_path / "dtd/split_zhou_DescribableTextures.json", {"test": entries})
    (tmp_path / "dtd/images").mkdir()
    assert load_dataset("dtd", tmp_path).names == (CAFE, "dog")
