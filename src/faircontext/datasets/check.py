"""Checking whether a data set that is on disk can be evaluated: its images, classes and files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from faircontext.datasets.folder import passed_over
from faircontext.datasets.load import check_hint, load_dataset
from faircontext.datasets.spec import CORRUPTED, DATASETS, Dataset, expand, known_name, locate
from faircontext.errors import (
    ArgumentError,
    FairContextError,
    ImageError,
    LabelError,
    and_more,
    counted,
    lines_and_more,
)
from faircontext.imageio import read_image
from faircontext.names import check_name, name_warnings


@dataclass(frozen=True)
class Report:
    """What a check of a data set shows.

    Attributes:
        summary: what is there, a line each.
        problems: why the data set cannot be evaluated in full, a line each.
        usable: whether there is an image that can be evaluated, with class names that can.
        most_labels: of one image.
    """

    summary: tuple[str, ...]
    problems: tuple[str, ...]
    usable: bool
    most_labels: int = 0


def check_present(dataset: Dataset, partial: bool) -> None:
    """Raise `ArgumentError` unless a data set's images are there: all of them, or some where `partial` is set."""
    absent, listed = dataset.listed - len(dataset.samples), dataset.listed
    if not dataset.samples or (absent and not partial):
        share = f"{absent:,} of {listed:,} images are not" if dataset.samples else f"none of its {listed:,} images is"
        example = f", for example {dataset.missing[0]}" if dataset.missing else ""
        fix = "; complete it, or measure on those that are there with --partial" if dataset.samples else ""
        raise ArgumentError(f"{dataset.name}: {share} in {dataset.folder}{example}{passed_over(dataset.folder)}{fix}")


def check_dataset(
    name: str, root: Path, split: str = "test", read: bool = False, partial: bool = False, multi_label: bool = False
) -> Report:
    """Look at a data set on disk.

    Args:
        name: see `load_dataset`.
        root: the folder that holds the data sets.
        split: see `load_dataset`.
        read: whether every image is decoded; without it files are only looked for, and empty ones found.
        partial: whether missing images are no problem, as for `evaluate --partial`.
        multi_label: see `load_dataset`.

    Raises:
        ArgumentError: it is neither known nor a folder. What is wrong with one that is goes into the report.
    """
    if locate(name, root) in CORRUPTED and name.count(":") < 2:
        return _check_parts(name, root, split, read, partial)
    try:
        dataset = load_dataset(name, root, split, multi_label)
    except FairContextError as error:
        return Report((), (str(error).removesuffix(check_hint(known_name(name) or name, root)),), False)
    label_sets = [sample.label_set or () for sample in dataset.samples]
    labels = {label for label_set in label_sets for label in label_set}
    empty = [title for label, title in enumerate(dataset.names) if label not in labels]
    first = ", ".join(f"{label} {title}" for label, title in enumerate(dataset.names[:5]))
    summary = [
        f"found: {dataset.layout}",
        f"{counted(len(dataset.names), 'class')}, {len(labels)} with images; in this order: {first}, ...",
        *name_warnings(dataset.names, multi_label),
        _count(dataset, split),
    ]
    absent, listed = list[str](), len(dataset.samples) + len(dataset.missing)
    if dataset.missing:
        are = "is" if len(dataset.missing) == 1 else "are"
        lost = counted(len(dataset.missing), "image")
        absent.append(f"{lost} of the list {are} not there: {and_more(dataset.missing)}{passed_over(dataset.folder)}")
    if dataset.reference not in (None, listed):
        absent.append(f"{counted(listed, 'image')} where {dataset.reference:,} are expected")
    if empty and not dataset.missing:
        line = f"{len(empty)} of {len(dataset.names)} classes have no image: {and_more(empty)}"
        (summary if dataset.reference is None else absent).append(line)
    unreadable, unusable = [*_unreadable(dataset, read)], [*_unusable_names(dataset.names)]
    problems = list[str]()
    if unreadable:
        problems.append(f"{counted(len(unreadable), 'file')} cannot be read: {and_more(unreadable, separator='; ')}")
    if dataset.reference is not None and len(dataset.names) != DATASETS[dataset.name].classes:
        problems.append(f"{counted(len(dataset.names), 'class')} where {DATASETS[dataset.name].classes} are expected")
    if unusable:
        problems.append(f"{counted(len(unusable), 'class name')} cannot be used: {and_more(unusable, separator='; ')}")
    (summary if partial else problems).extend(absent)
    usable = bool(dataset.samples) and not unusable
    return Report((*summary, *dataset.warnings), tuple(problems), usable, max(map(len, label_sets), default=0))


def _check_parts(name: str, root: Path, split: str, read: bool, partial: bool) -> Report:
    """Look at all parts of a corrupted data set."""
    reports = {word: check_dataset(word, root, split, read, partial) for word in expand([name])}
    good = [report for report in reports.values() if report.usable and not report.problems]
    bad = [f"{word}: {'; '.join(report.problems)}" for word, report in reports.items() if report.problems]
    summary = f"{len(good)} of {len(reports)} corruptions and severities can be evaluated"
    problems = lines_and_more(bad, 3, str, "{} more of the kind")
    classes = dict.fromkeys(report.summary[1] for report in good)
    return Report((summary, *classes), tuple(problems), bool(good))


def _count(dataset: Dataset, split: str) -> str:
    line = counted(len(dataset.samples), "image")
    if dataset.reference is not None:
        line += f" of {dataset.reference:,} in the reference"
        paper = DATASETS[dataset.name].paper
        if paper not in (0, dataset.reference) and split != "val":
            line += f"; the paper counts {paper:,}"
    return line


def _unusable_names(names: Sequence[str]) -> Iterator[str]:
    for position, name in enumerate(names, 1):
        try:
            check_name(position, name)
        except LabelError as error:
            yield str(error)


def _unreadable(dataset: Dataset, read: bool) -> Iterator[str]:
    for sample in dataset.samples:
        try:
            if read:
                read_image(sample.path)
            elif isinstance(sample.path, Path) and sample.path.stat().st_size == 0:
                yield f"{sample.path}: the file is empty"
        except (ImageError, OSError) as error:
            yield str(error)
