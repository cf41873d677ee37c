"""Whether a data set on disk can be evaluated: what was expected, what was found, and what is wrong, a line each."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faircontext.classnames import check_name
from faircontext.datasets.catalogue import CATALOGUE
from faircontext.datasets.folder import name_remarks
from faircontext.datasets.load import load_dataset, locate
from faircontext.datasets.spec import Dataset
from faircontext.errors import ArgumentError, FairContextError, ImageError, LabelError
from faircontext.imageio import read_image

__all__ = ["Report", "check_dataset", "check_present", "expected_tree"]

SHOWN = 5
"""Files that are listed of each kind of problem."""


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
        found: what is there, a line each.
        problems: why the data set cannot be evaluated in full, a line each.
        usable: whether there is an image that can be evaluated, with class names that can.
    """

    found: tuple[str, ...]
    problems: tuple[str, ...]
    usable: bool


def check_present(dataset: Dataset, partial: bool) -> None:
    """Raise `ArgumentError` unless a data set's images are there: all of them, or some where `partial` is set."""
    example = f", for example {dataset.missing[0]}" if dataset.missing else ""
    if not dataset.samples:
        raise ArgumentError(f"{dataset.name}: none of its {dataset.listed:,} images is in {dataset.folder}{example}")
    absent = dataset.listed - len(dataset.samples)
    if absent and not partial:
        raise ArgumentError(
            f"{dataset.name}: {absent:,} of {dataset.listed:,} images are not in {dataset.folder}{example}; complete "
            "it, or measure on those that are there with --partial"
        )


def expected_tree(name: str, root: Path) -> list[str]:
    """Return, a line each, where a data set is looked for; CoOp's layout first.

    Raises:
        ArgumentError: it is neither known nor a folder.
    """
    place = locate(name, root)
    if isinstance(place, Path):
        return [f"{place}/labels.csv and classnames.txt, or a folder of images for each class"]
    entry = CATALOGUE[place]
    inner = f"/{entry.inner[0]}" if entry.inner[0] else ""
    lines = [f"{root / entry.folders[0]}{inner}/"]
    if entry.split_file:
        lines.append(f"{root / entry.folders[0]}/{entry.split_file} (or in {root}/data_splits/)")
    elif place == "fgvc_aircraft":
        lines.append(f"{root / entry.folders[0]}/variants.txt and images_variant_test.txt")
    if others := entry.folders[1:]:
        lines.append(f"or, in place of {entry.folders[0]}: {', '.join(others)}")
    return lines


def check_dataset(name: str, root: Path, split: str = "test", read: bool = False, partial: bool = False) -> Report:
    """Look at a data set on disk.

    Args:
        name: see `load_dataset`.
        root: the folder that holds the data sets.
        split: see `load_dataset`.
        read: whether every image is decoded; without it files are only looked for, and empty ones found.
        partial: whether missing images are no problem, as for `evaluate --partial`.

    Raises:
        ArgumentError: it is neither known nor a folder. What is wrong with one that is goes into the report.
    """
    locate(name, root)
    try:
        dataset = load_dataset(name, root, split)
    except FairContextError as error:
        return Report((), (str(error),), False)
    counts = Counter(sample.label for sample in dataset.samples)
    found = [f"found: {dataset.layout}", *_class_lines(dataset, counts), *_count_lines(split, dataset)]
    absent = [*_absent(dataset), *_counts_off(dataset)]
    empty = [title for label, title in enumerate(dataset.names) if not counts[label]]
    if empty and not dataset.missing:
        line = f"{len(empty)} of {len(dataset.names)} classes have no image: {_some(empty)}"
        (found if dataset.reference is None else absent).append(line)
    refused = list(_refused_names(dataset))
    problems = [*_unreadable(dataset, read), *_wrong_classes(dataset), *refused]
    if partial:
        found += absent
    else:
        problems += absent
    return Report((*found, *dataset.remarks), tuple(problems), bool(dataset.samples) and not refused)


def _class_lines(dataset: Dataset, counts: Counter[int]) -> Iterator[str]:
    first = ", ".join(f"{label} {title}" for label, title in enumerate(dataset.names[:SHOWN]))
    yield f"{len(dataset.names)} classes, {len(counts)} with images; in this order: {first}, ..."
    yield from name_remarks(dataset.names)


def _count_lines(split: str, dataset: Dataset) -> Iterator[str]:
    line = f"{len(dataset.samples):,} images"
    if dataset.reference is not None:
        line += f" of {dataset.reference:,} in the reference"
        paper = CATALOGUE[dataset.name].paper
        if paper != dataset.reference and split != "val":
            line += f"; the paper counts {paper:,}"
    yield line


def _absent(dataset: Dataset) -> Iterator[str]:
    if dataset.missing:
        yield f"{len(dataset.missing):,} images of the list are not there: {_some(dataset.missing)}"


def _counts_off(dataset: Dataset) -> Iterator[str]:
    listed = len(dataset.samples) + len(dataset.missing)
    if dataset.reference is not None and listed != dataset.reference:
        yield f"{listed:,} images where {dataset.reference:,} are expected"


def _wrong_classes(dataset: Dataset) -> Iterator[str]:
    if dataset.reference is not None and len(dataset.names) != CATALOGUE[dataset.name].classes:
        yield f"{len(dataset.names)} classes where {CATALOGUE[dataset.name].classes} are expected"


def _refused_names(dataset: Dataset) -> Iterator[str]:
    refused = []
    for number, name in enumerate(dataset.names, 1):
        try:
            check_name(number, name)
        except LabelError as error:
            refused.append(str(error))
    if refused:
        yield f"{len(refused)} class names cannot be used: {_some(refused, '; ')}"


def _unreadable(dataset: Dataset, read: bool) -> Iterator[str]:
    broken = []
    for sample in dataset.samples:
        try:
            if read:
                read_image(sample.path)
            elif sample.path.stat().st_size == 0:
                broken.append(f"{sample.path}: the file is empty")
        except (ImageError, OSError) as error:
            broken.append(str(error))
    if broken:
        yield f"{len(broken)} files cannot be read: {_some(broken, '; ')}"


def _some(words: list[str] | tuple[str, ...], separator: str = ", ") -> str:
    rest = len(words) - SHOWN
    return separator.join(words[:SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")
