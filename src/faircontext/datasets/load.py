"""Finding a data set on disk: in whichever layout it is, with its class names, labels and missing images."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from faircontext.datasets.catalogue import CATALOGUE, Entry, reference
from faircontext.datasets.imagenet import imagenet_names, read_imagenet
from faircontext.datasets.own import load_own
from faircontext.datasets.spec import Dataset, Sample
from faircontext.datasets.splits import Split, present, read_aircraft, read_official, read_split
from faircontext.errors import ArgumentError, check_choice

__all__ = ["SPLITS", "load_dataset"]

SPLITS = ("test", "val", "official")
SPLIT_FOLDERS = ("data_splits", "splits", "data/data_splits")
"""Where split files may lie below the root, besides the data set's own folder."""


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


def _check_split(name: str, entry: Entry, split: str) -> None:
    if split == "val" and "val" not in entry.images:
        raise ArgumentError(f"--split val: {name} has test images only")
    if split == "official" and name in ("caltech101", "eurosat"):
        raise ArgumentError(f"--split official: {name} has no official test images; use test, CoOp's")


def _not_found(name: str, entry: Entry, root: Path, what: str) -> ArgumentError:
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
    raise _not_found(name, entry, root, "no folders of images")


def _load_aircraft(name: str, entry: Entry, root: Path, split: str) -> Dataset:
    for folder in entry.folders:
        if (root / folder / "variants.txt").is_file():
            names, listed = read_aircraft(root / folder, "val" if split == "val" else "test")
            return _listed(name, root / folder / "images", _layout(entry, folder), names, listed)
    raise _not_found(name, entry, root, "no variants.txt")


def _find_split_file(entry: Entry, root: Path) -> Path | None:
    """Return the split file: in one of the data set's folders, or where TPT has all of them."""
    places = [root / folder for folder in (*entry.folders, *SPLIT_FOLDERS, "")]
    return next((place / entry.split_file for place in places if (place / entry.split_file).is_file()), None)


def _candidates(entry: Entry, root: Path) -> Iterator[tuple[str, str]]:
    """Yield (folder, inner) of every folder where images may lie and that is there."""
    for folder in entry.folders:
        for inner in entry.inner:
            if (root / folder / inner).is_dir():
                yield folder, inner


def _load_split(name: str, entry: Entry, root: Path, split: str) -> Dataset:
    path = _find_split_file(entry, root)
    if path is None:
        raise _not_found(name, entry, root, f"no {entry.split_file} (CoOp's DATASETS.md says where to get it)")
    read = read_split(path)
    best: tuple[int, str, str] | None = None
    for folder, inner in _candidates(entry, root):
        number = len(present(root / folder / inner, _part(name, entry, root / folder, read, split, path)))
        if best is None or number > best[0]:
            best = number, folder, inner
    if best is None:
        raise _not_found(name, entry, root, "no folder of images")
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
