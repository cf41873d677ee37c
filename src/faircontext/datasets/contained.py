"""A user's data set in tables and archives: `labels.csv`, Hugging Face's `metadata.csv`, Parquet, tar archives."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from faircontext.datasets.archives import Found, parquet_images, tar_images
from faircontext.datasets.class_folders import split_of
from faircontext.datasets.folder import Walk, clean_key, find_listed, is_folder, list_entries, roots_of
from faircontext.datasets.image_tables import TABLE, listed_images, listed_twice
from faircontext.datasets.label_encoder import LabelEncoder
from faircontext.datasets.layouts import NAMES, is_there
from faircontext.datasets.listing import ImageList
from faircontext.datasets.spec import Dataset, Sample, Truth
from faircontext.errors import ArgumentError, LabelError, and_more
from faircontext.names import read_labels

__all__ = ["read_archives", "read_table"]

_SUFFIXES = (".parquet", ".tar")
_ORDER = {"val": ("val",), "train": ("train",)}


def read_table(table: Path, name: str, several: bool = False, outer: Path | None = None) -> Dataset:
    """Read the images that a table lists, see `listed_images`, by paths below its folder, see `find_listed`.

    Class names come from `classnames.txt` beside it or in `outer`, or else from the table, see `LabelEncoder`.

    Args:
        table: the file.
        name: of the data set.
        several: whether an image may have several labels.
        outer: the folder that the data set is, where the table lies below it.

    Raises:
        ArgumentError: it cannot be used; the message names the line.
    """
    folder, roots = table.parent, roots_of(table.parent)
    encoder = _encoder(folder if outer is None or is_there(folder / NAMES) else outer, several)
    rows: dict[str, tuple[int, Truth]] = {}
    for row in listed_images(table, several=several, labelled=True):
        where, key = f"{table}, line {row.line}", clean_key(row.path, roots)
        if key is None:
            raise ArgumentError(f"{where}: the path {row.path!r} does not lie below the folder")
        truth = encoder.add(row.label, where, row.title)
        line, other = rows.setdefault(key, (row.line, truth))
        if line != row.line and (truth, other) != (None, None):
            raise listed_twice(where, key, line, several)
    _finish(encoder, folder)
    there = find_listed(folder, rows, str(table))
    samples = [
        Sample.of(there[key], folder / there[key], encoder.decode(truth))
        for key, (_, truth) in rows.items()
        if key in there
    ]
    own_order = table.name != TABLE  # as the library datasets reads it
    return Dataset(
        name,
        folder,
        f"the table {table}",
        "all",
        encoder.names,
        ImageList(samples) if own_order else tuple(samples),
        tuple(key for key in rows if key not in there),
        warnings=tuple(encoder.warnings()),
        in_order=own_order,
    )


def _encoder(folder: Path, several: bool) -> LabelEncoder:
    return LabelEncoder(read_labels(folder / NAMES) if is_there(folder / NAMES) else (), several, own=True)


def _finish(encoder: LabelEncoder, folder: Path, warnings: Sequence[str] = ()) -> None:
    """Decide what the labels of a data set are; it must have names of classes."""
    if not encoder.names and encoder.empty:
        said = "; ".join([*warnings, *encoder.warnings()]) or "name the classes there"
        raise LabelError(f"{folder}: no image has a label, and there is no {NAMES}; {said}")
    encoder.finish()


def read_archives(folder: Path, name: str, split: str, several: bool = False) -> Dataset | None:
    """Read the Parquet tables or else the tar archives that lie in a folder, or in its `data`.

    Of files that are named after splits, such as `test-00000-of-00001.parquet`, those of one split are taken.

    Args:
        folder: of the data set.
        name: of the data set.
        split: `val`, or else test images are taken, or where there are none validation images.
        several: whether an image may have several labels, see `LabelEncoder`.

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
        title = split_of(file.stem.partition("-")[0])
        by_split.setdefault(None if title == "images" else title, []).append(file)
    part = next((part for part in _ORDER.get(split, ("test", "val")) if part in by_split), None)
    files = by_split.get(part, files if part is None and None in by_split else [])
    if not files:
        held = " and ".join(str(part) for part in by_split)
        raise ArgumentError(f"{folder}: its tables are of the split {held}, and none of {split}")
    warnings = _split_warnings(files, [] if part is None else by_split.get(None, []), part)

    def found() -> Iterator[Found]:
        for file in files:
            if file.suffix.lower() == ".tar":
                yield from tar_images(file, warnings.append, walk, several)
            else:
                yield from parquet_images(file, None, None, several)

    kind = "Parquet tables" if files[0].suffix.lower() == ".parquet" else "tar archives"
    dataset = _dataset(folder, name, f"{len(files)} {kind} in {files[0].parent}", found(), warnings, part, several)
    said = (*dataset.warnings, *walk.warnings())
    if not dataset.samples:
        raise ArgumentError("; ".join([f"{folder}: no images in {dataset.layout}", *said]))
    return replace(dataset, warnings=said)


def _split_warnings(files: Sequence[Path], others: Sequence[Path], part: str | None) -> list[str]:
    """Return what a person should know of files that lie beside a split, or are parts of several, a line each."""
    if others:
        return [f"files beside those of {part}, a split, are left out: {and_more([file.name for file in others])}"]
    words = ({split_of(word) for word in re.split(r"[-_.]", file.stem)} for file in files)
    held = set().union(*words) - {None, "images"} if part is None else set()
    if len(held) < 2:
        return []
    names = and_more([file.name for file in files])
    return [f"{names} look like parts of a set, and are taken as one: begin their names with train and test"]


def _dataset(
    folder: Path, name: str, layout: str, found: Iterator[Found], warnings: list[str], split: str | None, several: bool
) -> Dataset:
    """Return the data set of some images; classes are named by `classnames.txt`, or else by the labels themselves."""
    encoder, images = _encoder(folder, several), ImageList()
    for key, source, label, _ in found:
        images.append(Sample.of(key.removeprefix(f"{folder}{os.sep}"), source, encoder.add(label, key)))
    _finish(encoder, folder, warnings)
    images.decode(encoder.decode)
    said = (*warnings, *encoder.warnings())
    return Dataset(name, folder, layout, split or "all", encoder.names, images, warnings=said, in_order=True)
