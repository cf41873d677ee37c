"""Data sets in the layout of CoOp: real ones from shared images by symbolic links, and what miniatures are made of."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

REAL = {
    "caltech101": ("caltech101_coop_test", "split_zhou_Caltech101.json", "caltech-101", "101_ObjectCategories"),
    "dtd": ("dtd10_all", "split_zhou_DescribableTextures.json", "dtd", "images"),
    "oxford_flowers": ("flowers_coop_test_partial", "split_zhou_OxfordFlowers.json", "oxford_flowers", "jpg"),
}
"""For each data set: the folder of shared images, its split file, and CoOp's folders."""


def build_coop_trees(data: Path, root: Path) -> None:
    """Link the shared images into CoOp's trees, where the real split files look for them.

    An image is known by label (or class name) and by its base name without the number that was put before it.
    """
    for shared, split_file, folder, inner in REAL.values():
        split = json.loads((data / "splits" / split_file).read_text())
        places = {(title, path.rpartition("/")[2]): path for path, _, title in split["test"]}
        (root / folder).mkdir(parents=True)
        (root / folder / split_file).symlink_to(data / "splits" / split_file)
        with (data / shared / "labels.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                name = Path(row["path"]).name
                name = name.partition("_")[2] if name[:4].isdecimal() and name[4] == "_" else name
                path = places.get((row["class_name"], name))
                if path is not None:  # of dtd10_all, 25 of 80 are in CoOp's test split
                    link = root / folder / inner / path
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to((data / shared / row["path"]).resolve())


def draw(path: Path) -> None:
    """Write a small picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (len(path.name) % 256, 90, 160)).save(path)


def write_split(path: Path, entries: Mapping[str, Sequence[tuple[str, int, str]]]) -> None:
    """Write a split file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"train": [], "val": [], "test": [], **entries}))
