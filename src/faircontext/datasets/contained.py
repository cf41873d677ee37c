"""A user's data set in tables and archives: Hugging Face's `metadata.csv`, Parquet, WebDataset's tar archives."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from faircontext.datasets.archives import Found, parquet_images, tar_images
from faircontext.datasets.class_folders import split_of
from faircontext.datasets.folder import Walk, absence, is_folder, list_entries
from faircontext.datasets.image_tables import METADATA, ClassOf, listed_images
from faircontext.datasets.layouts import NAMES, is_there
from faircontext.datasets.listing import ImageList
from faircontext.datasets.spec import Dataset, Sample, Truth
from faircontext.errors import ArgumentError, LabelError, counted
from faircontext.names import compose, read_labels

__all__ = ["read_archives", "read_metadata"]

_SUFFIXES = (".parquet", ".tar")
_ORDER = {"val": ("val",), "train": ("train",)}


def read_metadata(folder: Path, name: str, several: bool = False) -> Dataset | None:
    """Read a folder of images with `metadata.csv` or `metadata.jsonl`, as the library datasets reads it.

    Args:
        folder: of the data set.
        name: of the data set.
        several: whether an image may have several labels, see `label_words`.

    Returns:
        The data set, or None where there is no such table.
    """
    table = next((folder / title for title in METADATA if is_there(folder / title)), None)
    if table is None:
        return None
    missing: list[str] = []

    def found() -> Iterator[Found]:
        for path, label in listed_images(table, several=several):
            if os.path.lexists(folder / path):
                yield Found(path, folder / path, label)
            else:
                missing.append(path)

    return _dataset(folder, name, f"the table {table}", found(), missing, [], several=several)


def read_archives(folder: Path, name: str, split: str, several: bool = False) -> Dataset | None:
    """Read the Parquet tables or else the tar archives that lie in a folder, or in its `data`.

    Of files that are named after splits, such as `test-00000-of-00001.parquet`, those of one split are taken.

    Args:
        folder: of the data set.
        name: of the data set.
        split: `val`, or else test images are taken, or where there are none validation images.
        several: whether an image may have several labels, see `label_words`.

    Returns:
        The data set, or None where there is neither.
    """
    for place in filter(is_folder, (folder, folder / "data")):
        entries = [entry for entry in list_entries(place) if entry.is_file()]
        for suffix in _SUFFIXES:
            if files := [entry for entry in entries if entry.suffix.lower() == suffix]:
                walk = Walk([])
                for entry in entries:
                    if entry not in files:
                        walk.pass_over(entry.name)
                return _read_files(folder, name, files, split, several, walk)
    return None


def _read_files(folder: Path, name: str, files: list[Path], split: str, several: bool, walk: Walk) -> Dataset:
    by_split: dict[str | None, list[Path]] = {}
    for file in files:
        by_split.setdefault(split_of(file.stem.partition("-")[0]), []).append(file)
    part = next((part for part in _ORDER.get(split, ("test", "val")) if part in by_split), None)
    files = by_split.get(part, files if part is None and None in by_split else [])
    if not files:
        held = " and ".join(str(part) for part in by_split)
        raise ArgumentError(f"{folder}: its tables are of the split {held}, and none of {split}")
    warnings = list[str]()

    def found() -> Iterator[Found]:
        for file in files:
            if file.suffix.lower() == ".tar":
                yield from tar_images(file, warnings.append, walk, several)
            else:
                yield from parquet_images(file, None, None, several)

    kind = "Parquet tables" if files[0].suffix.lower() == ".parquet" else "tar archives"
    dataset = _dataset(folder, name, f"{len(files)} {kind} in {files[0].parent}", found(), [], warnings, part, several)
    return replace(dataset, warnings=(*dataset.warnings, *walk.warnings()))


def _dataset(
    folder: Path,
    name: str,
    layout: str,
    found: Iterator[Found],
    missing: list[str],
    warnings: list[str],
    split: str | None = None,
    several: bool = False,
) -> Dataset:
    """Return the data set of some images; classes are named by `classnames.txt`, or else by the labels themselves."""
    given = read_labels(folder / NAMES) if is_there(folder / NAMES) else ()
    class_of, words, images = ClassOf(given), dict[str, int](), ImageList()
    for key, source, label in found:
        truth: Truth
        if given or label is None or (isinstance(label, tuple) and not several):
            truth = class_of.all_of(label) if several else class_of(label)
        else:
            indices = [_index_of(key, word, words, folder) for word in (label if isinstance(label, tuple) else [label])]
            truth = tuple(sorted({*indices})) if several else indices[0]
        images.append(Sample.of(key.removeprefix(f"{folder}{os.sep}"), source, truth))
    names = given or tuple(sorted(words))
    if not names and missing:
        raise ArgumentError(absence(name, folder, missing, len(missing), len(images) + len(missing)))
    if not names:
        said = "; ".join([*warnings, *class_of.warnings()])
        fix = said or "name the classes there"
        raise LabelError(f"{folder}: no image has a label, and there is no {NAMES}; {fix}")
    if not given:
        order = {words[word]: position for position, word in enumerate(names)}
        for position, sample in enumerate(images):
            if sample.label is not None:
                images.set_label(position, order[sample.label])
            elif sample.labels is not None:
                images.set_label(position, tuple(sorted(order[label] for label in sample.labels)))
        warnings = [*warnings, f"labels are class names: {counted(len(names), 'class')}, in sorted order"]
    warnings += class_of.warnings()
    return Dataset(
        name,
        folder,
        layout,
        split or "all",
        names,
        images,
        tuple(missing),
        warnings=tuple(warnings),
        in_order=True,
    )


def _index_of(key: str, word: str | int, words: dict[str, int], folder: Path) -> int:
    """Return the number of a word among those that have come so far."""
    if isinstance(word, int) or word.isdecimal():
        raise ArgumentError(f"{key}: its class is {word}; name the classes, from 0, in {folder / NAMES}")
    return words.setdefault(compose(word), len(words))
