"""Finding a data set on disk, in whichever layout it is, and checking whether it can be evaluated."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from faircontext.datasets import class_folders, contained, layouts
from faircontext.datasets.folder import Walk, find_listed, folders_in, is_folder, list_entries
from faircontext.datasets.layouts import NAMES, TABLE, Rows, Split
from faircontext.datasets.spec import CATALOGUE, DATASETS, Dataset, DatasetSpec, Sample, locate
from faircontext.errors import ArgumentError, FairContextError, ImageError, LabelError, and_more, check_choice
from faircontext.imageio import read_image
from faircontext.names import check_name, name_warnings

__all__ = ["SPLITS", "Report", "check_dataset", "check_present", "load_dataset"]

SPLITS = ("test", "val", "official")

_SPLIT_FOLDERS = ("data_splits", "splits", "data/data_splits")
"""Where split files may lie below the root, besides the data set's own folder."""


def load_dataset(name: str, root: Path, split: str = "test") -> Dataset:
    """Find a data set on disk.

    A folder that is no known data set is a user's: a table `labels.csv`, see `read_table`, or `metadata.csv`, see
    `read_metadata`, or else class folders, in a folder of the split, see `find_class_folders`, in `images`, or right
    below the folder, or else tables and archives, see `read_archives`. Integer names are sorted by
    value, others as text; classes are named after their folders. Names in `classnames.txt` go before: to folders of the
    same names, to integer folders as positions in the list, else in the order of folders.

    Args:
        name: see `list_datasets`; or a folder below the root, or a path to one.
        root: the folder that holds the data sets.
        split: `test` or `val`, which are CoOp's, or `official`: the data set's own test images. Where a user's folder
            has but one set of images it is taken, and is called `all`; a warning says where there is no such split.

    Raises:
        FairContextError: it is not there, or not as it must be; the message names the folder or the file.
    """
    check_choice("split", split, SPLITS)
    location = locate(name, root)
    try:
        return _load_user(location, split) if isinstance(location, Path) else _load_known(location, root, split)
    except RecursionError:
        raise ArgumentError(f"{name}: folders lie too deep in each other") from None


def _load_known(name: str, root: Path, split: str) -> Dataset:
    if not is_folder(root):
        raise ArgumentError(f"{root}: no such folder; --root is the folder that holds the data sets")
    spec = DATASETS[name]
    _check_split(spec, split)
    if spec.split_file:
        dataset = _load_split(spec, root, split)
    elif name == "fgvc_aircraft":
        dataset = _load_aircraft(spec, root, split)
    elif name in CATALOGUE:
        dataset = _load_imagenet(spec, root)
    else:
        folder = _first_folder(spec, root, is_folder, "no such folder")
        with DATASETS.blamed(name):
            dataset = (spec.read or _load_user)(root / folder, split)
            _check_read(dataset)
    warnings = list(dataset.warnings)
    if split == "official" and "official" not in spec.images:
        warnings.append("CoOp's test images are the official ones")
    if split == "test" and spec.paper not in (0, count := spec.images["test"]):
        warnings.append(f"the paper counts {spec.paper:,} test images, {spec.paper_is}, where this split has {count:,}")
    return replace(
        dataset,
        name=name,
        split=split,
        template=spec.template,
        regime=spec.regime,
        warnings=tuple(warnings),
        reference=spec.count(split),
    )


def _check_read(dataset: Dataset) -> None:
    """Raise `TypeError` unless what a third party's function has read is a data set."""
    if not isinstance(dataset, Dataset):
        raise TypeError(f"it returns {type(dataset).__name__}, not Dataset")
    if not all(isinstance(sample, Sample) and isinstance(sample.path, Path) for sample in dataset.samples):
        raise TypeError("its samples must be of the type Sample, and their paths of the type Path")


def _check_split(spec: DatasetSpec, split: str) -> None:
    if split == "val" and "val" not in spec.images:
        raise ArgumentError(f"--split val: {spec.name} has test images only")
    if split == "official" and spec.name in ("caltech101", "eurosat"):
        raise ArgumentError(f"--split official: {spec.name} has no official test images; use test, CoOp's")
    if split == "official" and spec.name not in CATALOGUE and (spec.split_file or "official" not in spec.images):
        raise ArgumentError(f"--split official: {spec.name} has no official test images; use test")


def _first_folder(spec: DatasetSpec, root: Path, fits: Callable[[Path], bool], what: str) -> str:
    """Return the first folder where a data set lies that fits; else raise the error for one that is not there."""
    for folder in spec.folders:
        if fits(root / folder):
            return folder
    raise _not_found(spec, root, what)


def _not_found(spec: DatasetSpec, root: Path, what: str) -> ArgumentError:
    """Build the error for a data set that is not there."""
    others = f" (or {', '.join(spec.folders[1:3])})" if spec.folders[1:] else ""
    expected = f"expected {root / spec.folders[0]}{others}"
    return ArgumentError(
        f"{spec.name}: {what} in {root}; {expected}; see faircontext data check {spec.name} --root {root}"
    )


def _load_imagenet(spec: DatasetSpec, root: Path) -> Dataset:
    for name in spec.folders:
        folder = root / name
        samples, warnings = class_folders.read_imagenet(folder, spec.variant) if is_folder(folder) else ((), [])
        if samples:
            names, layout = layouts.imagenet_names(spec.variant), _layout(spec, name)
            return Dataset(spec.name, folder, layout, "test", names, samples, warnings=tuple(warnings))
    raise _not_found(spec, root, "no folders of images")


def _load_aircraft(spec: DatasetSpec, root: Path, split: str) -> Dataset:
    folder = _first_folder(spec, root, lambda path: (path / "variants.txt").is_file(), "no variants.txt")
    names, rows = layouts.read_aircraft(root / folder, "val" if split == "val" else "test")
    inner = spec.inner[0]
    return _listed(spec.name, root / folder / inner, _layout(spec, folder, inner), names, rows)


def _load_split(spec: DatasetSpec, root: Path, split: str) -> Dataset:
    # In one of the data set's folders, or where TPT has all split files.
    paths = [root / folder / spec.split_file for folder in (*spec.folders, *_SPLIT_FOLDERS, "")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise _not_found(spec, root, f"no {spec.split_file} (CoOp's DATASETS.md says where to get it)")
    read = layouts.read_split(path)
    best: Dataset | None = None
    for folder, inner in product(spec.folders, spec.inner):
        if not is_folder(root / folder / inner):
            continue
        layout = f"{_layout(spec, folder, inner)}, {path.relative_to(root).as_posix()}"
        rows = _part(spec, root / folder, read, split, path)
        dataset = _listed(spec.name, root / folder / inner, layout, read.names, rows)
        if best is None or len(dataset.samples) > len(best.samples):
            best = dataset
        if not dataset.missing:
            break
    if best is None:
        raise _not_found(spec, root, "no folder of images")
    return best


def _part(spec: DatasetSpec, folder: Path, read: Split, split: str, path: Path) -> Rows:
    """Return (path, label) of the images of a split; lists of official images lie in either folder."""
    if split == "official" and "official" in spec.images:
        holders = [holder for holder in (folder, path.parent) if layouts.official_list(spec.name, holder).is_file()]
        return layouts.read_official(spec.name, (*holders, folder)[0], read)
    return read.parts["val" if split == "val" else "test"]


def _layout(spec: DatasetSpec, folder: str, inner: str = "") -> str:
    kind = "CoOp's layout" if folder == spec.folders[0] and inner == spec.inner[0] else "another layout"
    return f"{kind}: {Path(folder, inner).as_posix()}"


def _listed(name: str, folder: Path, layout: str, names: tuple[str, ...], rows: Rows, where: str = "") -> Dataset:
    """Return the data set of some listed images."""
    there = find_listed(folder, (key for key, _ in rows), where or name)
    samples = tuple(Sample(there[key], folder / there[key], label) for key, label in rows if key in there)
    missing = tuple(key for key, _ in rows if key not in there)
    return Dataset(name, folder, layout, "test", names, samples, missing)


def _load_user(folder: Path, split: str) -> Dataset:
    """Read a user's folder; see `load_dataset`."""
    name = Path(os.path.abspath(folder)).name or "data"  # noqa: PTH100 (keeps the name of a link, unlike resolve)
    warnings = _misnamed(folder)
    if layouts.is_there(folder / TABLE):
        names, rows, more = layouts.read_table(folder)
        where = str(folder / TABLE)
        dataset = replace(_listed(name, folder, f"the table {where}", names, rows, where), split="all")
    elif (listed := contained.read_metadata(folder, name)) is not None:
        dataset, more = listed, []
    elif class_dirs := class_folders.find_class_folders(folder, split):
        names, samples, more = class_folders.read_class_folders(folder, class_dirs)
        dataset = Dataset(name, folder, f"class folders in {class_dirs.folder}", class_dirs.split, names, samples)
        if class_dirs.split not in ("all", split):
            more.append(_no_split(split, f"its folder {class_dirs.folder.relative_to(folder).as_posix()} is taken"))
    elif (packed := contained.read_archives(folder, name, split)) is not None:
        dataset = packed
        more = [] if dataset.split in ("all", split) else [_no_split(split, "that of its files is taken")]
    elif warnings:
        raise ArgumentError(f"{folder}: no {TABLE} and no class folders in it; {warnings[0]}")
    else:
        raise _no_class_folders(folder, split)
    if dataset.split == "all" and split != "test":  # which is asked for where nobody asks
        more.append(_no_split(split, "all its images are taken"))
    return replace(dataset, warnings=(*warnings, *dataset.warnings, *more))


def _no_split(split: str, taken: str) -> str:
    return f"there is no split {split} in a set of one's own: {taken}"


def _misnamed(folder: Path) -> list[str]:
    """Return that a file is not read which only case or the ending tells from the table or the list of names."""
    wanted = {form: name for name in (TABLE, NAMES) for form in (name, f"{name}.txt", f"{name[:-3]}tsv")}
    forms = [(entry.name, wanted[form]) for entry in list_entries(folder) if (form := entry.name.casefold()) in wanted]
    odd = [(form, name) for form, name in forms if not os.path.lexists(folder / name)]
    return [f"{form} is not read: the file that is read is called {name}" for form, name in odd]


def _no_class_folders(folder: Path, split: str) -> ArgumentError:
    """Build the error for a folder without class folders, with what else lies there."""
    test = any(class_folders.split_of(entry.name) == "test" for entry in folders_in(folder))
    what = f"{folder}: neither {TABLE} nor folders of images named after classes"
    hints = [class_folders.split_hint(folder)]
    if not hints[0]:
        walk = Walk([folder])
        deque(walk.images(folder), maxlen=0)
        hints = walk.warnings()
    return ArgumentError(
        "; ".join([f"{what} below val" if split == "val" and test else what, *hints, "see docs, Data sets"])
    )


@dataclass(frozen=True)
class Report:
    """What a check of a data set shows.

    Attributes:
        summary: what is there, a line each.
        problems: why the data set cannot be evaluated in full, a line each.
        usable: whether there is an image that can be evaluated, with class names that can.
    """

    summary: tuple[str, ...]
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
    labels = {sample.label for sample in dataset.samples}
    empty = [title for label, title in enumerate(dataset.names) if label not in labels]
    first = ", ".join(f"{label} {title}" for label, title in enumerate(dataset.names[:5]))
    summary = [
        f"found: {dataset.layout}",
        f"{len(dataset.names)} classes, {len(labels)} with images; in this order: {first}, ...",
        *name_warnings(dataset.names),
        _count(dataset, split),
    ]
    absent, listed = list[str](), len(dataset.samples) + len(dataset.missing)
    if dataset.missing:
        absent.append(f"{len(dataset.missing):,} images of the list are not there: {and_more(dataset.missing)}")
    if dataset.reference not in (None, listed):
        absent.append(f"{listed:,} images where {dataset.reference:,} are expected")
    if empty and not dataset.missing:
        line = f"{len(empty)} of {len(dataset.names)} classes have no image: {and_more(empty)}"
        (summary if dataset.reference is None else absent).append(line)
    unreadable, unusable = [*_unreadable(dataset, read)], [*_unusable_names(dataset.names)]
    problems = [f"{len(unreadable)} files cannot be read: {and_more(unreadable, separator='; ')}"] * bool(unreadable)
    if dataset.reference is not None and len(dataset.names) != DATASETS[dataset.name].classes:
        problems.append(f"{len(dataset.names)} classes where {DATASETS[dataset.name].classes} are expected")
    if unusable:
        problems.append(f"{len(unusable)} class names cannot be used: {and_more(unusable, separator='; ')}")
    (summary if partial else problems).extend(absent)
    return Report((*summary, *dataset.warnings), tuple(problems), bool(dataset.samples) and not unusable)


def _count(dataset: Dataset, split: str) -> str:
    line = f"{len(dataset.samples):,} images"
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
