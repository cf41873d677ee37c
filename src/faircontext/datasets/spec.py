"""What a labelled data set is, and the catalogue of the paper's fifteen, which is read from `catalogue.csv`."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

__all__ = ["CATALOGUE", "Dataset", "Entry", "Sample", "list_datasets", "reference"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One labelled image.

    Attributes:
        key: what the image is known by in records: its path below the data set's image folder, with `/` between.
        path: the file.
        label: index of its class.
    """

    key: str
    path: Path
    label: int


@dataclass(frozen=True)
class Dataset:
    """A split of a data set, found on disk.

    Attributes:
        name: what it is known by, for example `caltech101`.
        folder: where it was found.
        layout: which of the known layouts was taken, in words.
        split: `test`, `val` or `official`; `all` where there are none.
        names: class names, in the order of labels; two may be equal, so classes are known by index.
        samples: the images that are there, in the data set's own order.
        missing: keys of images that the split lists and that are not there.
        template: the hand-crafted prompt template of CoOp's zero-shot baseline.
        regime: the kind of data, for `ViewRecipe.regime`.
        remarks: what a person should know before a run, a line each.
        reference: how many images the split has by its authors; None where that is not known.
    """

    name: str
    folder: Path
    layout: str
    split: str
    names: tuple[str, ...]
    samples: tuple[Sample, ...]
    missing: tuple[str, ...] = ()
    template: str = "a photo of a {}."
    regime: Literal["natural", "fine-grained"] = "natural"
    remarks: tuple[str, ...] = ()
    reference: int | None = None

    @property
    def listed(self) -> int:
        """How many images the split has, those that are not there included."""
        return max(len(self.samples) + len(self.missing), self.reference or 0)


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
    regime: Literal["natural", "fine-grained"] = "fine-grained"
    own_test: bool = False
    paper_is: str = ""


def _read_catalogue() -> dict[str, Entry]:
    """Read `catalogue.csv`; several folders have `|` between them."""
    text = files("faircontext.datasets").joinpath("catalogue.csv").read_text(encoding="utf-8")
    return {row["name"]: _entry(row) for row in csv.DictReader(text.splitlines())}


def _entry(row: Mapping[str, str]) -> Entry:
    regime: Any = row["regime"]
    return Entry(
        title=row["title"],
        folders=tuple(row["folders"].split("|")),
        inner=tuple(row["inner"].split("|")),
        classes=int(row["classes"]),
        images={split: int(row[split]) for split in ("test", "val", "official") if row[split]},
        paper=int(row["paper"]),
        home=row["home"],
        split_file=row["split_file"],
        template=row["template"],
        variant=row["variant"],
        regime=regime,
        own_test=row["own_test"] == "yes",
        paper_is=row["paper_is"],
    )


CATALOGUE: Mapping[str, Entry] = _read_catalogue()
"""In the order of the paper's tables."""


def list_datasets(pattern: str = "*") -> list[str]:
    """Return the names of the data sets that match a shell pattern."""
    return [name for name in CATALOGUE if fnmatchcase(name, pattern)]


def reference(entry: Entry, split: str) -> int:
    """Return how many images a split has by its authors."""
    return entry.images.get(split, entry.images["test"])
