"""What a labelled data set is, and which are known: those of `catalogue.csv` and `corrupted.csv`, and third parties'.

A third party names its data sets by an entry point of the group `faircontext.datasets`, whose object is a
`DatasetSpec`, or a function without arguments that returns several. The command line then knows them by name.
"""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from faircontext.datasets.folder import is_folder
from faircontext.errors import ArgumentError, Registry, check_choice, check_type
from faircontext.perturbations import Corruption, parse_corruptions
from faircontext.sources import Source

Regime = Literal["natural", "fine-grained"]

Truth = int | tuple[int, ...] | None
"""A class, or all classes of an image that may have several, by index; None where it is not known."""


NO_CLASS = (1 << 31) - 1
"""Stands for a label that is no class while images are found: the folder of the image does not decide then."""

BLANK = NO_CLASS - 1
"""Stands for an empty cell of a table that gives labels: the folder does not decide, but another table may."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One image.

    Attributes:
        key: what the image is known by in records: its path below the data set's image folder, with `/` between.
        path: the file, or where else it lies.
        label: index of its class, None where it is not known.
        labels: indices of all its classes, in their order, where an image may have several; None where it has one at
            most, or they are not known.
    """

    key: str
    path: Source
    label: int | None = None
    labels: tuple[int, ...] | None = None

    @classmethod
    def of(cls, key: str, path: Source, truth: Truth) -> "Sample":
        """Return an image with its class or its classes."""
        return cls(key, path, None, truth) if isinstance(truth, tuple) else cls(key, path, truth)

    @property
    def truth(self) -> Truth:
        """Its classes where an image may have several, or else its class; None where it is not known."""
        return self.label if self.labels is None else self.labels

    @property
    def label_set(self) -> tuple[int, ...] | None:
        """Its classes, also where an image has one; None where they are not known."""
        return self.labels if self.label is None else (self.label,)


@dataclass(frozen=True)
class Dataset:
    """A split of a data set, found on disk.

    Attributes:
        name: what it is known by, for example `caltech101`.
        folder: its image folder, which keys of samples start from: a run looks there for its images again.
        layout: which of the known layouts was taken, in words.
        split: `test`, `val` or `official`; `all` where there are none.
        names: class names, in the order of labels; two may be equal, so classes are known by index.
        samples: the images that are there, in the data set's own order.
        missing: keys of images that the split lists and that are not there.
        template: the hand-crafted prompt template of CoOp's zero-shot baseline.
        regime: the kind of data, for `ViewRecipe.regime`.
        warnings: what a person should know before a run, a line each.
        reference: how many images the split has by its authors; None where that is not known.
        in_order: whether a run answers the images in that order, as of archives, which are read from front to back.
        corruption: what has been done to the images as they lie on disk, as in ImageNet-C.
        image_column: of Parquet tables among them, None for `image`.
    """

    name: str
    folder: Path
    layout: str
    split: str
    names: tuple[str, ...]
    samples: Sequence[Sample]
    missing: tuple[str, ...] = ()
    template: str = "a photo of a {}."
    regime: Regime = "natural"
    warnings: tuple[str, ...] = ()
    reference: int | None = None
    in_order: bool = False
    corruption: Corruption | None = None
    image_column: str | None = None

    @property
    def listed(self) -> int:
        """How many images the split has, those that are not there included."""
        return max(len(self.samples) + len(self.missing), self.reference or 0)


@dataclass(frozen=True)
class DatasetSpec:
    """What is known of a data set before it is found on disk.

    Attributes:
        name: what it is known by in `--datasets` and in records.
        title: as tables call it.
        folders: where it may lie below the root, the usual one first.
        classes: how many.
        images: how many by split, `test` and perhaps `val` and `official` (the data set's own test images, where they
            are others than CoOp's).
        home: where it comes from.
        inner: where the images may lie in there.
        paper: how many test images the paper counts; 0 where it is none of the paper's.
        paper_is: what the paper's count is, where it is not that of CoOp's test images.
        split_file: CoOp's split file; empty where labels come from folders or text files.
        template: hand-crafted prompt template.
        variant: of ImageNet, see `imagenet_wnids`.
        regime: the kind of data, see `Dataset`.
        read: reads a split, given the data set's folder and `test`, `val` or `official`, of a third party's data set in
            a layout of its own; without it and without a split file its folder is read as any other, see
            `load_dataset`.

    Raises:
        ArgumentError: a field has a value that cannot be used.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    classes: int
    images: Mapping[str, int]
    home: str = ""
    inner: tuple[str, ...] = ("",)
    paper: int = 0
    paper_is: str = ""
    split_file: str = ""
    template: str = "a photo of a {}."
    variant: str = ""
    regime: Regime = "natural"
    read: Callable[[Path, str], Dataset] | None = None

    def __post_init__(self) -> None:
        for field in ("name", "title", "home", "paper_is", "split_file", "template", "variant"):
            check_type(f"{field} of a DatasetSpec", getattr(self, field), str)
        for field in ("folders", "inner"):
            value = getattr(self, field)
            if not (isinstance(value, tuple) and value and all(isinstance(folder, str) for folder in value)):
                raise ArgumentError(
                    f"invalid {field} {value!r} of {self.name}: must be a tuple of folders, one at least"
                )
        counts = (self.classes, self.paper, *(self.images.values() if isinstance(self.images, Mapping) else ("",)))
        if not all(isinstance(count, int) and count >= 0 for count in counts) or "test" not in self.images:
            raise ArgumentError(
                f"invalid classes, images or paper of {self.name}: must be numbers, of images by split, `test` included"
            )
        check_choice(f"regime of {self.name}", self.regime, get_args(Regime))
        if self.read is not None and not callable(self.read):
            raise ArgumentError(
                f"invalid read {self.read!r} of {self.name}: must be a function of a folder and a split"
            )

    def count(self, split: str) -> int:
        """Return how many images a split has by its authors."""
        return self.images.get(split, self.images["test"])


def _read_catalogue(file: str) -> dict[str, DatasetSpec]:
    """Read a file of data sets; several folders have `|` between them."""
    text = files("faircontext.datasets").joinpath(file).read_text(encoding="utf-8")
    return {row["name"]: _spec(row) for row in csv.DictReader(text.splitlines())}


def _spec(row: Mapping[str, Any]) -> DatasetSpec:
    read = {
        "folders": tuple(row["folders"].split("|")),
        "inner": tuple(row["inner"].split("|")),
        "classes": int(row["classes"]),
        "paper": int(row["paper"]),
    }
    splits = ("test", "val", "official")
    images = {split: int(row[split]) for split in splits if row[split]}
    return DatasetSpec(images=images, **{key: text for key, text in row.items() if key not in splits} | read)


def _unpack(_: str, loaded: Any) -> dict[str, DatasetSpec]:
    """Return the data sets of a third party's entry point by name."""
    specs = [loaded] if isinstance(loaded, DatasetSpec) else [*loaded()]
    if not all(isinstance(spec, DatasetSpec) for spec in specs):
        raise TypeError("it returns something that is no DatasetSpec")
    return {spec.name: spec for spec in specs}


CATALOGUE: Mapping[str, DatasetSpec] = _read_catalogue("catalogue.csv")
"""The paper's, in the order of its tables."""

CORRUPTED: Mapping[str, DatasetSpec] = _read_catalogue("corrupted.csv")
"""Those whose images lie corrupted on disk; a part of one is called `NAME:CORRUPTION:SEVERITY`, see `corrupted`."""

DATASETS: Registry[DatasetSpec] = Registry("data set", "faircontext.datasets", _unpack)
"""All that are known by name: the paper's, corrupted ones, and those of third parties."""

for _name, _known in (*CATALOGUE.items(), *CORRUPTED.items()):
    DATASETS.register(_name)(_known)


def list_datasets(pattern: str = "*") -> list[str]:
    """Return the names of the data sets that match a shell pattern."""
    return DATASETS.names(pattern)


def known_name(word: str) -> str | None:
    """Return the name by which a data set is known, None where it is none of those.

    Case and `-` for `_` do not matter, and CoOp's names of folders stand for the paper's data sets. What follows `:` in
    the name of a corrupted data set is left out.
    """
    form = word.lower().replace("-", "_")
    for known in DATASETS:
        spec = CATALOGUE.get(known) or CORRUPTED.get(known)
        usual = known if spec is None else spec.folders[0].partition("/")[0].lower().replace("-", "_")
        if (form.partition(":")[0] if known in CORRUPTED else form) in (known, usual):
            return known
    return None


def expand(words: Iterable[str]) -> list[str]:
    """Return names of data sets with those of corrupted ones taken apart, each part once.

    `NAME` stands for all severities of the fifteen corruptions, `NAME:CORRUPTION` for five; see `parse_corruptions`.

    Raises:
        ArgumentError: there is no such corruption or severity.
    """
    names: dict[str, None] = {}
    for word in words:
        if (known := known_name(word)) in CORRUPTED:
            part = word.partition(":")[2] or "all"
            if part.partition(":")[0] == "none":
                raise ArgumentError(f"{word}: has no images as they are; name {known}:fog, {known}:fog:3 or {known}")
            names |= dict.fromkeys(f"{known}:{corruption}" for corruption in parse_corruptions([part]))
        else:
            names[word] = None
    return [*names]


def locate(name: str, root: Path) -> str | Path:
    """Return the name by which a data set is known, see `known_name`, or else the folder that is meant.

    `./NAME`, `../NAME` and absolute paths are folders wherever the root is.

    Raises:
        ArgumentError: it is neither.
    """
    if (known := known_name(name)) is not None:
        return known
    free = name in (".", "..") or name.startswith(("./", "../"))
    folder = Path(name) if free else root / name  # which is the name itself where that is an absolute path
    if not name.strip() or not is_folder(folder):
        below = [entry.name for entry in root.iterdir() if is_folder(entry)] if is_folder(root) else []
        close = get_close_matches(name, [*DATASETS, *below], n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ArgumentError(
            f"{folder}: no such folder; see faircontext data list for the data sets that are known{hint}"
        )
    return folder


def expected_tree(name: str, root: Path) -> list[str]:
    """Return, a line each, where a data set is looked for; CoOp's layout first.

    Raises:
        ArgumentError: it is neither known nor a folder.
    """
    location = locate(name, root)
    if isinstance(location, Path):
        return [f"{location}/labels.csv and classnames.txt, or a folder of images for each class"]
    spec = DATASETS[location]
    usual, *others = spec.folders
    lines = [f"{root / usual}{'/' if spec.inner[0] else ''}{spec.inner[0]}/"]
    if spec.split_file:
        lines.append(f"{root / usual}/{spec.split_file} (or in {root}/data_splits/)")
    elif location in CORRUPTED:
        lines.append(f"{root / usual}/CORRUPTION/SEVERITY/CLASS/, or CORRUPTION.npy, labels.npy and classnames.txt")
    elif location == "fgvc_aircraft":
        lines.append(f"{root / usual}/variants.txt and images_variant_test.txt")
    if others:
        lines.append(f"or, in place of {usual}: {', '.join(others)}")
    return lines


@cache
def imagenet_wnids(variant: str = "") -> tuple[str, ...]:
    """Return the wnids by label, of all 1,000 classes or of a variant: `a` or `r`."""
    name = f"imagenet_{variant}_synsets.txt" if variant else "imagenet_synsets.txt"
    return tuple((files("timm.data") / "_info" / name).read_text(encoding="utf-8").split())


def imagenet_names(variant: str = "") -> tuple[str, ...]:
    """Return the class names by label; see `imagenet_wnids`."""
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES  # takes seconds to import

    names = dict(zip(imagenet_wnids(), IMAGENET_CLASSNAMES, strict=True))
    return tuple(names[wnid] for wnid in imagenet_wnids(variant))
