"""Every data set of the paper on a generated miniature, in each layout, with the traps that their users know."""

import json
from pathlib import Path

import pytest
from PIL import Image

from coop_trees import build_coop_trees, draw, write_split
from faircontext import FairContextError
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import CATALOGUE, CORRUPTED, imagenet_names, imagenet_wnids, list_datasets

SPLIT_SETS = [name for name, entry in CATALOGUE.items() if entry.split_file]

MINIATURES: dict[str, list[tuple[str, int, str]]] = {
    "caltech101": [("Faces/image_0426.jpg", 0, "face"), ("water_lilly/image_0001.jpg", 1, "water_lilly")],
    "stanford_cars": [
        ("cars_test/00001.jpg", 0, "2000 AM General Hummer SUV"),
        ("cars_test/00002.jpg", 1, "2012 Ram C/V Cargo Van Minivan"),
    ],
    "dtd": [("banded/banded_0060.jpg", 0, "banded"), ("polka-dotted/polka-dotted_0001.jpg", 1, "polka-dotted")],
    "eurosat": [
        ("AnnualCrop/AnnualCrop_1048.jpg", 0, "Annual Crop Land"),
        ("SeaLake/SeaLake_1.jpg", 1, "Sea or Lake"),
    ],
    "oxford_flowers": [("image_00172.jpg", 1, "passion flower"), ("image_00001.jpg", 0, "pink primrose")],
    "food101": [("cheese_plate/1.jpg", 0, "cheese_plate"), ("cheesecake/1.jpg", 1, "cheesecake")],
    "oxford_pets": [("Abyssinian_201.jpg", 0, "abyssinian"), ("american_bulldog_3.jpg", 1, "american_bulldog")],
    "sun397": [
        ("/a/apartment_building/outdoor/sun_1.jpg", 0, "outdoor apartment_building"),
        ("a/abbey/sun_2.jpg", 1, "abbey"),
    ],
    "ucf101": [
        ("Hammering/v_Hammering_g01_c01.jpg", 0, "Hammering"),
        ("Hammer_Throw/v_HammerThrow_g01_c01.jpg", 1, "Hammer_Throw"),
    ],
}
"""Two test images of each set with a split file."""


def layouts(name: str) -> list[tuple[str, str]]:
    entry = CATALOGUE[name]
    return [(folder, inner) for folder in entry.folders for inner in entry.inner]


CASES = [(name, *layout, where) for name in SPLIT_SETS for layout in layouts(name) for where in ("own", "data_splits")]


def build(root: Path, name: str, folder: str, inner: str, where: str = "own") -> None:
    """Write a miniature: images in a layout, stray files beside them, and the split file where it is asked for."""
    images = MINIATURES[name]
    for key, _, _ in images:
        draw(root / folder / inner / key.lstrip("/"))
    (root / folder / "README.txt").write_text("beside the class folders")
    place = root / folder if where == "own" else root / where
    write_split(place / CATALOGUE[name].split_file, {"test": images, "val": images[:1]})


@pytest.mark.parametrize(("name", "folder", "inner", "where"), CASES)
def test_a_set_with_a_split_file_is_found_in_each_layout(
    name: str, folder: str, inner: str, where: str, tmp_path: Path
) -> None:
    build(tmp_path, name, folder, inner, where)
    dataset = load_dataset(name, tmp_path)
    images = MINIATURES[name]
    assert [(sample.key, sample.label) for sample in dataset.samples] == [
        (k.lstrip("/"), label) for k, label, _ in images
    ]
    assert dataset.names == tuple(title for _, _, title in sorted(images, key=lambda image: image[1]))
    assert all(sample.path.is_file() and sample.path == dataset.folder / sample.key for sample in dataset.samples)
    assert dataset.folder == tmp_path / folder / inner
    assert Path(folder, inner).as_posix() in dataset.layout
    assert dataset.template == CATALOGUE[name].template
    assert dataset.regime == "fine-grained"
    assert dataset.listed == CATALOGUE[name].images["test"]
    assert len(load_dataset(name, tmp_path, "val").samples) == 1


def test_folders_that_the_split_file_leaves_out_are_no_classes(tmp_path: Path) -> None:
    build(tmp_path, "caltech101", "caltech-101", "101_ObjectCategories")
    for excluded in ("BACKGROUND_Google", "Faces_easy"):
        draw(tmp_path / "caltech-101/101_ObjectCategories" / excluded / "image_0001.jpg")
    dataset = load_dataset("caltech101", tmp_path)
    assert dataset.names == ("face", "water_lilly")
    assert len(dataset.samples) == 2


def test_of_two_layouts_the_one_with_the_images_is_taken(tmp_path: Path) -> None:
    (tmp_path / "dtd" / "images" / "banded").mkdir(parents=True)  # an empty tree
    build(tmp_path, "dtd", "DTD", "images")
    assert load_dataset("dtd", tmp_path).folder == tmp_path / "DTD" / "images"


def test_missing_images_are_named(tmp_path: Path) -> None:
    build(tmp_path, "dtd", "dtd", "images")
    (tmp_path / "dtd/images/banded/banded_0060.jpg").unlink()
    dataset = load_dataset("dtd", tmp_path)
    assert dataset.missing == ("banded/banded_0060.jpg",)
    assert len(dataset.samples) == 1


def build_aircraft(folder: Path) -> None:
    (folder / "images").mkdir(parents=True)
    (folder / "variants.txt").write_text("707-320\nF-16A/B\nBAE 146-200\n")
    (folder / "images_variant_test.txt").write_text("0000007 F-16A/B\n1234567 BAE 146-200\n")
    (folder / "images_variant_val.txt").write_text("0000008 707-320\n")
    for image in ("0000007", "1234567", "0000008"):
        draw(folder / "images" / f"{image}.jpg")


@pytest.mark.parametrize("folder", CATALOGUE["fgvc_aircraft"].folders)
def test_aircraft_is_read_from_its_own_lists(folder: str, tmp_path: Path) -> None:
    build_aircraft(tmp_path / folder)
    dataset = load_dataset("fgvc_aircraft", tmp_path)
    assert dataset.names == ("707-320", "F-16A/B", "BAE 146-200")
    assert [(sample.key, sample.label) for sample in dataset.samples] == [("0000007.jpg", 1), ("1234567.jpg", 2)]
    assert [sample.label for sample in load_dataset("fgvc_aircraft", tmp_path, "val").samples] == [0]
    assert "CoOp's test images are the official ones" in load_dataset("fgvc_aircraft", tmp_path, "official").warnings


def build_wnids(place: Path, variant: str = "", classes: int = 12) -> None:
    for wnid in reversed(imagenet_wnids(variant)[:classes]):
        draw(place / wnid / f"{wnid}_1.JPEG")
    (place / "README.txt").write_text("beside the class folders")


IMAGENETS = [(name, folder) for name in CATALOGUE if name.startswith("imagenet") for folder in CATALOGUE[name].folders]


@pytest.mark.parametrize(("name", "folder"), IMAGENETS)
def test_imagenets_are_labelled_by_wnid_in_each_layout(name: str, folder: str, tmp_path: Path) -> None:
    variant = CATALOGUE[name].variant
    build_wnids(tmp_path / folder, variant)
    dataset = load_dataset(name, tmp_path)
    assert [sample.label for sample in dataset.samples] == [*range(12)]
    assert [sample.path.parent.name for sample in dataset.samples] == [*imagenet_wnids(variant)[:12]]
    assert all(sample.path == dataset.folder / sample.key for sample in dataset.samples)
    assert len(dataset.names) == CATALOGUE[name].classes
    assert dataset.regime == "natural"
    assert dataset.listed == CATALOGUE[name].images["test"]


def test_integer_folders_are_labels_and_not_sorted_as_words(tmp_path: Path) -> None:
    place = tmp_path / "imagenetv2/imagenetv2-matched-frequency-format-val"
    for label in (0, 1, 2, 10, 100, 999):
        draw(place / str(label) / "a.jpeg")
    dataset = load_dataset("imagenet_v2", tmp_path)
    assert [(sample.path.parent.name, sample.label) for sample in dataset.samples] == [
        (str(label), label) for label in (0, 1, 2, 10, 100, 999)
    ]


def test_names_that_occur_twice_stay_two_classes() -> None:
    names = imagenet_names()
    assert len(names) == 1000
    assert len(set(names)) == 998
    assert (names[657], names[744], names[836], names[837]) == ("missile", "missile", "sunglasses", "sunglasses")


def test_the_classes_of_imagenets_are_those_of_the_facts(data: Path) -> None:
    known = json.loads((data / "splits/imagenet_classes.json").read_text())
    assert imagenet_wnids() == tuple(entry["wnid"] for entry in known)
    assert imagenet_names() == tuple(entry["name"] for entry in known)
    for variant, indices in json.loads((data / "splits/imagenet_a_r_indices.json").read_text()).items():
        assert imagenet_wnids(variant) == tuple(known[index]["wnid"] for index in indices)
        assert imagenet_names(variant) == tuple(known[index]["name"] for index in indices)
        assert list(imagenet_wnids(variant)) == sorted(imagenet_wnids(variant))


def test_a_class_of_another_variant_is_refused(tmp_path: Path) -> None:
    build_wnids(tmp_path / "imagenet-a", "a")
    foreign = next(wnid for wnid in imagenet_wnids() if wnid not in imagenet_wnids("a"))
    draw(tmp_path / "imagenet-a" / foreign / "a.JPEG")
    with pytest.raises(FairContextError, match=rf"{foreign}: is none of the 200 classes"):
        load_dataset("imagenet_a", tmp_path)
    draw(tmp_path / "imagenetv2" / "1000" / "a.jpeg")
    with pytest.raises(FairContextError, match=r"1000: is none of the 1000 classes"):
        load_dataset("imagenet_v2", tmp_path)


def test_flat_validation_images_are_said_to_need_folders(tmp_path: Path) -> None:
    draw(tmp_path / "imagenet/images/val/ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(FairContextError, match="not sorted into wnid folders"):
        load_dataset("imagenet", tmp_path)


def test_official_test_images_of_textures_and_food(tmp_path: Path) -> None:
    for name, folder, listing in (("dtd", "dtd", "labels/test1.txt"), ("food101", "food-101", "meta/test.txt")):
        build(tmp_path, name, folder, "images")
        keys = [key for key, _, _ in MINIATURES[name]][::-1]
        path = tmp_path / folder / listing
        path.parent.mkdir()
        path.write_text("\n".join(key if name == "dtd" else key.removesuffix(".jpg") for key in keys) + "\n")
        dataset = load_dataset(name, tmp_path, "official")
        assert [(sample.key, sample.label) for sample in dataset.samples] == [(keys[0], 1), (keys[1], 0)]
        assert dataset.listed == CATALOGUE[name].images["official"] == CATALOGUE[name].paper
        path.write_text("none/none.jpg\n")
        with pytest.raises(FairContextError, match=r"line 1: 'none/none.jpg' is of no class"):
            load_dataset(name, tmp_path, "official")


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("imagenet_a", "val", "imagenet_a has test images only"),
        ("caltech101", "official", "no official test images"),
        ("eurosat", "official", "no official test images"),
        ("dtd", "train", "split='train' is not possible"),
    ],
)
def test_a_split_that_does_not_exist_is_refused(name: str, split: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FairContextError, match=message):
        load_dataset(name, tmp_path, split)


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_a_set_that_is_not_there_is_one_line_with_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(FairContextError) as refused:
        load_dataset(name, tmp_path)
    assert str(tmp_path / CATALOGUE[name].folders[0]) in str(refused.value)
    assert f"faircontext data check {name}" in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(FairContextError, match="no such folder; --root is the folder that holds the data sets"):
        load_dataset(name, tmp_path / "none")


def test_real_split_files_find_the_real_images(data: Path, tmp_path: Path) -> None:
    build_coop_trees(data, tmp_path)
    found = {name: load_dataset(name, tmp_path) for name in ("caltech101", "dtd", "oxford_flowers")}
    assert {name: (len(d.samples), d.listed) for name, d in found.items()} == {
        "caltech101": (200, 2_465),
        "dtd": (25, 1_692),
        "oxford_flowers": (90, 2_463),
    }
    for sample in found["caltech101"].samples[:5]:
        with Image.open(sample.path) as image:
            assert image.size[0] > 0


REAL_SPLITS = [(name, CATALOGUE[name].split_file) for name in SPLIT_SETS if name not in ("food101", "sun397")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file"), REAL_SPLITS)
def test_real_split_files_have_the_reference_counts_and_names(name: str, file: str, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / CATALOGUE[name].folders[0]
    (folder / CATALOGUE[name].inner[0]).mkdir(parents=True)
    (folder / file).symlink_to(data / "splits" / file)
    dataset = load_dataset(name, tmp_path)
    names = json.loads((data / "splits" / file.replace("split_zhou", "classes")).read_text())
    assert dataset.names == tuple(names)
    assert len(names) == CATALOGUE[name].classes
    assert len(dataset.missing) == CATALOGUE[name].images["test"]
    assert len(load_dataset(name, tmp_path, "val").missing) == CATALOGUE[name].images["val"]


PAPER_COUNTS = {
    "imagenet": (1000, 50000),
    "imagenet_a": (200, 7500),
    "imagenet_sketch": (1000, 50889),
    "imagenet_r": (200, 30000),
    "imagenet_v2": (1000, 10000),
    "fgvc_aircraft": (100, 3333),
    "caltech101": (100, 2465),
    "stanford_cars": (196, 8041),
    "dtd": (47, 1880),
    "eurosat": (10, 5400),
    "oxford_flowers": (102, 2463),
    "food101": (101, 25250),
    "oxford_pets": (37, 3680),
    "sun397": (397, 19850),
    "ucf101": (101, 3783),
}
"""Classes and test images, from the paper's table of data sets."""


def test_counts_are_those_of_the_paper() -> None:
    assert {name: (spec.classes, spec.paper) for name, spec in CATALOGUE.items()} == PAPER_COUNTS
    assert list_datasets() == [*CATALOGUE, *CORRUPTED]
    assert list_datasets("imagenet_*") == [f"imagenet_{name}" for name in ("a", "sketch", "r", "v2", "c")]
