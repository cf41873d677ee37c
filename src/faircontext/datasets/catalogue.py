"""The fifteen data sets of the paper: where repositories keep them, and what belongs to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

__all__ = ["CATALOGUE", "Entry", "list_datasets", "reference"]


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
        regime: the kind of data, see `Dataset`.
        own_test: whether the data set's own test images are others than CoOp's.
        paper_is: what the paper's count is, where it is not that of CoOp's test images.
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
    paper_is: str = ""


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
        ("imagenet-adversarial/imagenet-a", "imagenet-a", "imagenet_a"),
        200,
        7_500,
        "github.com/hendrycks/natural-adv-examples",
        "a",
    ),
    "imagenet_sketch": _imagenet(
        "ImageNet-Sketch",
        (
            "imagenet-sketch/images",
            "ImageNet-Sketch/images",
            "ImageNet-Sketch",
            "imagenet-sketch/sketch",
            "imagenet-sketch",
            "imagenet_sketch",
            "sketch",
        ),
        1000,
        50_889,
        "github.com/HaohanWang/ImageNet-Sketch",
    ),
    "imagenet_r": _imagenet(
        "ImageNet-R",
        ("imagenet-rendition/imagenet-r", "imagenet-r", "imagenet_r"),
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
            "imagenet-v2",
            "imagenet_v2",
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
        paper_is="as many as --split official",
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
        paper_is="as many as --split val",
    ),
    "oxford_flowers": Entry(
        "Oxford Flowers",
        ("oxford_flowers", "Flower102", "flowers-102", "flowers102", "oxford_flowers102"),
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
        paper_is="as many as --split official",
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
        paper_is="as many as CoOp trains and validates on",
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


def reference(entry: Entry, split: str) -> int:
    """Return how many images a split has by its authors."""
    return entry.images.get(split, entry.images["test"])
