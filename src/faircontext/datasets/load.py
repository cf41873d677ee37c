"""Finding a data set on disk: in whichever layout it is, with its class names, labels and missing images."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from faircontext.datasets.catalogue import CATALOGUE, Entry, reference
from faircontext.datasets.imagenet import imagenet_names, read_imagenet
from faircontext.datasets.own import load_own
from faircontext.datasets.paths import find_listed
from faircontext.datasets.spec import Dataset, Sample
from faircontext.datasets.splits import Rows, Split, official_list, read_aircraft, read_official, read_split
from faircontext.datasets.walk import is_folder
from faircontext.errors import ArgumentError, check_choice

__all__ = ["SPLITS", "load_dataset", "locate"]

SPLITS = ("test", "val", "official")
SPLIT_FOLDERS = ("data_splits", "splits", "data/data_splits")
"""Where split files may lie below the root, besides the data set's own folder."""


def locate(name: str, root: Path) -> str | Path:
    """Return the name in the catalogue of a data set, or else the folder that is meant.

    Case and `-` for `_` do not matter, and CoOp's names of folders stand for the data set. `./NAME`, `../NAME` and
    absolute paths are folders wherever the root is.

    Raises:
        ArgumentError: it is neither.
    """
    word = name.lower().replace("-", "_")
    for known, entry in CATALOGUE.items():
        if word in (known, entry.folders[0].partition("/")[0].replace("-", "_")):
            return known
    free = name in (".", "..") or name.startswith(("./", "../"))
    folder = Path(name) if free else root / name  # which is the name itself where that is an absolute path
    if not name.strip() or not is_folder(folder):
        below = [entry.name for entry in root.iterdir() if is_folder(entry)] if is_folder(root) else []
        close = get_close_matches(name, [*CATALOGUE, *below], n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ArgumentError(
            f"{folder}: no such folder; see faircontext data list for the data sets that are known{hint}"
        )
    return folder


def load_dataset(name: str, root: Path, split: str = "test") -> Dataset:
    """Find a data set on disk.

    Args:
        name: see `list_datasets`; or a folder below the root, or a path to one, laid out as in `load_own`.
        root: the folder that holds the data sets.
        split: `test` or `val`, which are CoOp's, or `official`: the data set's own test images. For a folder of one's
            own see `load_own`.

    Raises:
        FairContextError: it is not there, or not as it must be; the message names the folder or the file.
    """
    check_choice("split", split, SPLITS)
    place = locate(name, root)
    try:
        return load_own(place, split) if isinstance(place, Path) else _load_known(place, root, split)
    except RecursionError:
        raise ArgumentError(f"{name}: folders lie too deep in each other") from None


def _load_known(name: str, root: Path, split: str) -> Dataset:
    if not is_folder(root):
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
        remarks.append(
            f"the paper counts {entry.paper:,} test images, {entry.paper_is}, where this split has "
            f"{entry.images['test']:,}"
        )
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
        samples, remarks = read_imagenet(place, entry.variant) if is_folder(place) else ((), [])
        if samples:
            names, layout = imagenet_names(entry.variant), _layout(entry, folder)
            return Dataset(name, place, layout, "test", names, samples, remarks=tuple(remarks))
    raise _not_found(name, entry, root, "no folders of images")


def _load_aircraft(name: str, entry: Entry, root: Path, split: str) -> Dataset:
    for folder in entry.folders:
        if (root / folder / "variants.txt").is_file():
            names, listed = read_aircraft(root / folder, "val" if split == "val" else "test")
            place = root / folder / entry.inner[0]
            return _listed(name, place, _layout(entry, folder, entry.inner[0]), names, listed)
    raise _not_found(name, entry, root, "no variants.txt")


def _find_split_file(entry: Entry, root: Path) -> Path | None:
    """Return the split file: in one of the data set's folders, or where TPT has all of them."""
    places = [root / folder for folder in (*entry.folders, *SPLIT_FOLDERS, "")]
    return next((place / entry.split_file for place in places if (place / entry.split_file).is_file()), None)


def _candidates(entry: Entry, root: Path) -> Iterator[tuple[str, str]]:
    """Yield (folder, inner) of every folder where images may lie and that is there."""
    for folder in entry.folders:
        for inner in entry.inner:
            if is_folder(root / folder / inner):
                yield folder, inner


def _load_split(name: str, entry: Entry, root: Path, split: str) -> Dataset:
    path = _find_split_file(entry, root)
    if path is None:
        raise _not_found(name, entry, root, f"no {entry.split_file} (CoOp's DATASETS.md says where to get it)")
    read = read_split(path)
    found: Dataset | None = None
    for folder, inner in _candidates(entry, root):
        layout = f"{_layout(entry, folder, inner)}, {path.relative_to(root).as_posix()}"
        listed = _part(name, entry, root / folder, read, split, path)
        here = _listed(name, root / folder / inner, layout, read.names, listed)
        if found is None or len(here.samples) > len(found.samples):
            found = here
        if not here.missing:
            break
    if found is None:
        raise _not_found(name, entry, root, "no folder of images")
    return found


def _part(name: str, entry: Entry, folder: Path, read: Split, split: str, path: Path) -> Rows:
    """Return (path, label) of the images of a split; lists of official images lie in either folder."""
    if split == "official" and entry.own_test:
        places = dict.fromkeys((folder, path.parent))
        return read_official(name, next((p for p in places if official_list(name, p).is_file()), folder), read)
    return read.parts["val" if split == "val" else "test"]


def _layout(entry: Entry, folder: str, inner: str = "") -> str:
    kind = "CoOp's layout" if folder == entry.folders[0] and inner == entry.inner[0] else "another layout"
    return f"{kind}: {Path(folder, inner).as_posix()}"


def _listed(name: str, place: Path, layout: str, names: tuple[str, ...], listed: Rows) -> Dataset:
    there = find_listed(place, (key for key, _ in listed), name)
    samples = tuple(Sample(there[key], place / there[key], label) for key, label in listed if key in there)
    missing = tuple(key for key, _ in listed if key not in there)
    return Dataset(name, place, layout, "test", names, samples, missing)
