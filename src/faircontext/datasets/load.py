"""Finding a data set on disk, in whichever layout it is, and checking whether it can be evaluated."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from faircontext.datasets.layouts import (
    Rows,
    Split,
    imagenet_names,
    official_list,
    read_aircraft,
    read_imagenet,
    read_official,
    read_split,
)
from faircontext.datasets.own import load_own
from faircontext.datasets.spec import CATALOGUE, Dataset, Entry, Sample, reference
from faircontext.datasets.table import find_listed
from faircontext.datasets.walk import is_folder
from faircontext.errors import ArgumentError, FairContextError, ImageError, LabelError, and_more, check_choice
from faircontext.imageio import read_image
from faircontext.names import check_name, name_remarks

__all__ = ["SPLITS", "Report", "check_dataset", "check_present", "expected_tree", "load_dataset", "locate"]

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
        line = f"{len(empty)} of {len(dataset.names)} classes have no image: {and_more(empty)}"
        (found if dataset.reference is None else absent).append(line)
    refused = list(_refused_names(dataset))
    problems = [*_unreadable(dataset, read), *_wrong_classes(dataset), *refused]
    if partial:
        found += absent
    else:
        problems += absent
    return Report((*found, *dataset.remarks), tuple(problems), bool(dataset.samples) and not refused)


def _class_lines(dataset: Dataset, counts: Counter[int]) -> Iterator[str]:
    first = ", ".join(f"{label} {title}" for label, title in enumerate(dataset.names[:5]))
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
        yield f"{len(dataset.missing):,} images of the list are not there: {and_more(dataset.missing)}"


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
        yield f"{len(refused)} class names cannot be used: {and_more(refused, separator='; ')}"


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
        yield f"{len(broken)} files cannot be read: {and_more(broken, separator='; ')}"
