"""The fifteen data sets of the paper: where repositories keep them, what belongs to them, and how one is loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from faircontext.datasets.imagenet import imagenet_names, read_imagenet
from faircontext.datasets.own import load_own
from faircontext.datasets.spec import Dataset, Sample
from faircontext.datasets.splits import Split, present, read_aircraft, read_official, read_split
from faircontext.errors import ArgumentError, check_choice

__all__ = ["CATALOGUE", "SPLITS", "Entry", "list_datasets", "load_dataset"]

SPLITS = ("test", "val", "official")
SPLIT_FOLDERS = ("data_splits", "splits", "data/data_splits")
"""Where split files may lie below the root, besides the data set's own folder."""


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before it is found.

    Attributes:
        title: as the paper calls it.
        folders: where it may lie below the root; the first is CoOp's, then those of TPT and others.
        inner: where the images may lie in there.
        classes: how many.
        images: by split.
        paper: how many test images the paper counts.
        home: where it comes from.
        split_file: CoOp's split file; empty where labels come from folders or text files.
        template: CoOp's hand-crafted prompt template.
        variant: of ImageNet, see `imagenet_wnids`.
        own_test: whether the data set's own test images are others than CoOp's.
    """

    title: str
    folders: tuple[str, ...]
    inner: tuple[str, ...]
    classes: int
    images: Mapping[str, int]
    paper: int
    home: str
    split_file: str = ""
    template: str = "a photo of a {}."
    variant: str = ""
    regime: Literal["natural", "fine-grained"] = field(default="fine-grained")
    own_test: bool = False


def _imagenet(title: str, folders: tuple[str, ...], classes: int, images: int, home: str, variant: str = "") -> Entry:
    return Entry(title, folders, ("",), classes, {"test": images}, images, home, variant=variant, regime="natural")


CATALOGUE: Mapping[str, Entry] = {
    "imagenet": _imagenet(
        "ImageNet",
        ("imagenet/images/val", "ImageNet/val", "imagenet/val", "imagenet/ILSVRC/Data/CLS-LOC/val"),
        1000,
        50_000,
        "image-net.org (with an account)",
    ),
    "imagenet_a": _imagenet(
        "ImageNet-A",
        ("imagenet-adversarial/imagenet-a", "imagenet-a"),
        200,
        7_500,
        "github.com/hendrycks/natural-adv-examples",
        "a",
    ),
    "imagenet_sketch": _imagenet(
        "ImageNet-Sketch",
        ("imagenet-sketch/images", "ImageNet-Sketch/images", "ImageNet-Sketch", "imagenet-sketch/sketch", "sketch"),
        1000,
        50_889,
        "github.com/HaohanWang/ImageNet-Sketch",
    ),
    "imagenet_r": _imagenet(
        "ImageNet-R",
        ("imagenet-rendition/imagenet-r", "imagenet-r"),
        200,
        30_000,
        "github.com/hendrycks/imagenet-r",
        "r",
    ),
    "imagenet_v2": _imagenet(
        "ImageNet-V2",
        (
            "imagenetv2/imagenetv2-matched-frequency-format-val",
            "imagenetv2-matched-frequency-format-val",
            "imagenetv2",
        ),
        1000,
        10_000,
        "github.com/modestyachts/ImageNetV2",
    ),
    "fgvc_aircraft": Entry(
        "FGVC-Aircraft",
        ("fgvc_aircraft", "fgvc-aircraft-2013b/data", "fgvc_aircraft/fgvc-aircraft-2013b/data", "fgvc_aircraft/data"),
        ("images",),
        100,
        {"test": 3_333, "val": 3_333},
        3_333,
        "Oxford VGG (the folder data, renamed)",
        template="a photo of a {}, a type of aircraft.",
    ),
    "caltech101": Entry(
        "Caltech101",
        ("caltech-101", "Caltech101", "caltech101"),
        ("101_ObjectCategories", "caltech101/101_ObjectCategories", ""),
        100,
        {"test": 2_465, "val": 1_649},
        2_465,
        "Caltech's data repository",
        "split_zhou_Caltech101.json",
    ),
    "stanford_cars": Entry(
        "Stanford Cars",
        ("stanford_cars", "StanfordCars"),
        ("",),
        196,
        {"test": 8_041, "val": 1_635},
        8_041,
        "Stanford (the original links are dead; mirrors exist)",
        "split_zhou_StanfordCars.json",
    ),
    "dtd": Entry(
        "DTD",
        ("dtd", "DTD", "dtd/dtd"),
        ("images", ""),
        47,
        {"test": 1_692, "val": 1_128, "official": 1_880},
        1_880,
        "Oxford VGG",
        "split_zhou_DescribableTextures.json",
        "{} texture.",
        own_test=True,
    ),
    "eurosat": Entry(
        "EuroSAT",
        ("eurosat", "EuroSAT"),
        ("2750", ""),
        10,
        {"test": 8_100, "val": 5_400},
        5_400,
        "DFKI (the RGB archive)",
        "split_zhou_EuroSAT.json",
        "a centered satellite photo of {}.",
    ),
    "oxford_flowers": Entry(
        "Oxford Flowers",
        ("oxford_flowers", "Flower102", "flowers-102", "oxford_flowers102"),
        ("jpg", ""),
        102,
        {"test": 2_463, "val": 1_633, "official": 6_149},
        2_463,
        "Oxford VGG",
        "split_zhou_OxfordFlowers.json",
        "a photo of a {}, a type of flower.",
        own_test=True,
    ),
    "food101": Entry(
        "Food101",
        ("food-101", "Food101", "food101", "food101/food-101"),
        ("images", ""),
        101,
        {"test": 30_300, "val": 20_200, "official": 25_250},
        25_250,
        "ETH Zurich",
        "split_zhou_Food101.json",
        "a photo of {}, a type of food.",
        own_test=True,
    ),
    "oxford_pets": Entry(
        "Oxford Pets",
        ("oxford_pets", "OxfordPets", "oxford-iiit-pet"),
        ("images", ""),
        37,
        {"test": 3_669, "val": 736},
        3_680,
        "Oxford VGG",
        "split_zhou_OxfordPets.json",
        "a photo of a {}, a type of pet.",
    ),
    "sun397": Entry(
        "SUN397",
        ("sun397", "SUN397"),
        ("SUN397", ""),
        397,
        {"test": 19_850, "val": 3_970},
        19_850,
        "Princeton",
        "split_zhou_SUN397.json",
    ),
    "ucf101": Entry(
        "UCF101",
        ("ucf101", "UCF101"),
        ("UCF-101-midframes", ""),
        101,
        {"test": 3_783, "val": 1_898},
        3_783,
        "the middle frames that CoOp's authors share",
        "split_zhou_UCF101.json",
        "a photo of a person doing {}.",
    ),
}
"""In the order of the paper's tables."""


def list_datasets(pattern: str = "*") -> list[str]:
    """Return the names of the data sets that match a shell pattern."""
    return [name for name in CATALOGUE if fnmatchcase(name, pattern)]


def load_dataset(name: str, root: Path, split: str = "test") -> Dataset:
    """Find a data set on disk.

    Args:
        name: see `list_datasets`; or a folder below the root, or a path to one, laid out as in `load_own`.
        root: the folder that holds the data sets.
        split: `test` or `val`, which are CoOp's, or `official`: the data set's own test images. A folder of one's own
            has one split.

    Raises:
        ArgumentError: it is not there, or not as it must be; the message names the folder or the file.
    """
    check_choice("split", split, SPLITS)
    if name not in CATALOGUE:
        return load_own(Path(root, name))
    if not root.is_dir():
        raise ArgumentError(f"{root}: no such folder; --root is the folder that holds the data sets")
    entry = CATALOGUE[name]
    _check_split(name, entry, split)
    if entry.split_file:
        found = _load_split(name, entry, root, split)
    elif name == "fgvc_aircraft":
        found = _load_aircraft(name, entry, root, split)
    else:
        found = _load_imagenet(name, entry, root)
    remarks = list(found.remarks)
    if split == "official" and not entry.own_test:
        remarks.append("CoOp's test images are the official ones")
    if split == "test" and entry.paper != entry.images["test"]:
        remarks.append(f"the paper counts {entry.paper:,} test images where this split has {entry.images['test']:,}")
    return replace(
        found,
        split=split,
        template=entry.template,
        regime=entry.regime,
        remarks=tuple(remarks),
        reference=reference(entry, split),
    )


def reference(entry: Entry, split: str) -> int | None:
    """Return how many images a split has by its authors."""
    return entry.images.get(split, entry.images["test"])


def _check_split(name: str, entry: Entry, split: str) -> None:
    if split == "val" and "val" not in entry.images:
        raise ArgumentError(f"--split val: {name} has test images only")
    if split == "official" and name in ("caltech101", "eurosat"):
        raise ArgumentError(f"--split official: {name} has no official test images; use test, CoOp's")


def not_found(name: str, entry: Entry, root: Path, what: str) -> ArgumentError:
    """Build the error for a data set that is not there."""
    return ArgumentError(
        f"{name}: {what} in {root}; expected {root / entry.folders[0]} (or {', '.join(entry.folders[1:3])}); see "
        f"faircontext data check {name} --root {root}"
    )


def _load_imagenet(name: str, entry: Entry, root: Path) -> Dataset:
    for folder in entry.folders:
        place = root / folder
        if place.is_dir() and (samples := read_imagenet(place, entry.variant)):
            return Dataset(name, place, _layout(entry, folder), "test", imagenet_names(entry.variant), samples)
    raise not_found(name, entry, root, "no folders of images")


def _load_aircraft(name: str, entry: Entry, root: Path, split: str) -> Dataset:
    for folder in entry.folders:
        if (root / folder / "variants.txt").is_file():
            names, listed = read_aircraft(root / folder, "val" if split == "val" else "test")
            return _listed(name, root / folder / "images", _layout(entry, folder), names, listed)
    raise not_found(name, entry, root, "no variants.txt")


def find_split_file(entry: Entry, root: Path) -> Path | None:
    """Return the split file: in one of the data set's folders, or where TPT has all of them."""
    places = [root / folder for folder in (*entry.folders, *SPLIT_FOLDERS, "")]
    return next((place / entry.split_file for place in places if (place / entry.split_file).is_file()), None)


def candidates(entry: Entry, root: Path) -> Iterator[tuple[str, str]]:
    """Yield (folder, inner) of every folder where images may lie and that is there."""
    for folder in entry.folders:
        for inner in entry.inner:
            if (root / folder / inner).is_dir():
                yield folder, inner


def _load_split(name: str, entry: Entry, root: Path, split: str) -> Dataset:
    path = find_split_file(entry, root)
    if path is None:
        raise not_found(name, entry, root, f"no {entry.split_file} (CoOp's DATASETS.md says where to get it)")
    read = read_split(path)
    best: tuple[int, str, str] | None = None
    for folder, inner in candidates(entry, root):
        number = len(present(root / folder / inner, _part(name, entry, root / folder, read, split, path)))
        if best is None or number > best[0]:
            best = number, folder, inner
    if best is None:
        raise not_found(name, entry, root, "no folder of images")
    _, folder, inner = best
    listed = _part(name, entry, root / folder, read, split, path)
    layout = f"{_layout(entry, folder, inner)}, {path.relative_to(root)}"
    return _listed(name, root / folder / inner, layout, read.names, listed)


def _part(name: str, entry: Entry, folder: Path, read: Split, split: str, path: Path) -> tuple[tuple[str, int], ...]:
    if split == "official" and entry.own_test:
        places = dict.fromkeys((folder, path.parent))
        return read_official(name, next((p for p in places if (p / _official(name)).is_file()), folder), read)
    return read.parts["val" if split == "val" else "test"]


def _official(name: str) -> str:
    return {"dtd": "labels/test1.txt", "food101": "meta/test.txt", "oxford_flowers": "setid.mat"}[name]


def _layout(entry: Entry, folder: str, inner: str = "") -> str:
    kind = "CoOp's layout" if folder == entry.folders[0] and inner == entry.inner[0] else "another layout"
    return f"{kind}: {Path(folder, inner).as_posix()}"


def _listed(
    name: str, place: Path, layout: str, names: tuple[str, ...], listed: tuple[tuple[str, int], ...]
) -> Dataset:
    there = dict(present(place, listed))
    samples = tuple(Sample(key, place / key, label) for key, label in there.items())
    missing = tuple(key for key, _ in listed if key not in there)
    return Dataset(name, place, layout, "test", names, samples, missing)
