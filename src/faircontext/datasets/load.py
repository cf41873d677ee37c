"""Finding a data set on disk, in whichever layout it is."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from faircontext.datasets import class_folders, layouts
from faircontext.datasets.containers import TABLE, InputOptions, Reader, below, tables_of
from faircontext.datasets.folder import (
    NAMES,
    Walk,
    find_listed,
    folders_in,
    is_folder,
    is_there,
    list_entries,
    passed_over,
)
from faircontext.datasets.label_encoder import LabelEncoder
from faircontext.datasets.layouts import Rows, Split
from faircontext.datasets.listing import ImageList
from faircontext.datasets.spec import (
    CATALOGUE,
    CORRUPTED,
    DATASETS,
    Dataset,
    DatasetSpec,
    Sample,
    imagenet_names,
    locate,
)
from faircontext.errors import ArgumentError, LabelError, and_more, check_choice
from faircontext.names import read_labels

SPLITS = ("test", "val", "official")

_SPLIT_FOLDERS = ("data_splits", "splits", "data/data_splits")
"""Where split files may lie below the root, besides the data set's own folder."""


def load_dataset(name: str, root: Path, split: str = "test", multi_label: bool = False) -> Dataset:
    """Find a data set on disk.

    A folder that is no known data set is a user's: a table `labels.csv`, or `metadata.csv`, in it or one folder below,
    or else class folders, in a folder of the split, see `find_class_folders`, in `images`, or right below the folder,
    or else Parquet tables or tar archives in it or in its `data`; of files that are named after splits, such as
    `test-00000-of-00001.parquet`, those of one split. Integer names are sorted by
    value, others as text; classes are named after their folders. Names in `classnames.txt` go before: to folders of the
    same names, to integer folders as positions in the list, else in the order of folders.

    Args:
        name: see `list_datasets`, of a corrupted data set with a part, as in `imagenet_c:fog:3`; or a folder below the
            root, or a path to one.
        root: the folder that holds the data sets.
        split: `test` or `val`, which are CoOp's, or `official`: the data set's own test images. Where a user's folder
            has but one set of images it is taken, and is called `all`; a warning says where there is no such split.
        multi_label: whether an image may have several labels, in tables and archives of a user's folder.

    Raises:
        FairContextError: it is not there, or not as it must be; the message names the folder or the file.
    """
    check_choice("split", split, SPLITS)
    location = locate(name, root)
    try:
        if isinstance(location, Path):
            return _load_user(location, split, multi_label)
        return _load_known(location, root, split, name.partition(":")[2])
    except RecursionError:
        raise ArgumentError(f"{name}: folders lie too deep in each other") from None


def _load_known(name: str, root: Path, split: str, part: str) -> Dataset:
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
    elif name in CORRUPTED:
        folder = _first_folder(spec, root, is_folder, "no such folder")
        dataset = layouts.read_part(spec, root / folder, _layout(spec, folder), part)
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
    return ArgumentError(f"{spec.name}: {what} in {root}; {expected}{check_hint(spec.name, root)}")


def check_hint(name: str, root: Path) -> str:
    """Return the end of a message that names the command which looks at a data set."""
    return f"; see faircontext data check {name} --root {root}"


def _load_imagenet(spec: DatasetSpec, root: Path) -> Dataset:
    for name in spec.folders:
        folder = root / name
        samples, warnings = layouts.read_imagenet(folder, spec.variant) if is_folder(folder) else ((), [])
        if samples:
            names, layout = imagenet_names(spec.variant), _layout(spec, name)
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
    usual = "CoOp's layout" if spec.name in CATALOGUE else "the usual layout"  # CoOp has those of its papers
    kind = usual if folder == spec.folders[0] and inner == spec.inner[0] else "another layout"
    return f"{kind}: {Path(folder, inner).as_posix()}"


def _listed(name: str, folder: Path, layout: str, names: tuple[str, ...], rows: Rows) -> Dataset:
    """Return the data set of some listed images."""
    files = find_listed(folder, (key for key, _ in rows), name)
    samples = tuple(Sample.of(files[key], folder / files[key], label) for key, label in rows if key in files)
    missing = tuple(key for key, _ in rows if key not in files)
    return Dataset(name, folder, layout, "test", names, samples, missing)


def _load_user(folder: Path, split: str, multi_label: bool = False) -> Dataset:
    """Read a user's folder; see `load_dataset`."""
    name = Path(os.path.abspath(folder)).name or "data"  # noqa: PTH100 (keeps the name of a link, unlike resolve)
    tables, notes = tables_of(folder)
    warnings, more, taken = [*_misnamed(folder), *notes], list[str](), ""
    if tables and tables[0].parent == folder:
        dataset = _read_table(tables[0], name, multi_label)
    elif tables:
        table, part = class_folders.choose_table(tables, split)
        dataset = replace(_read_table(table, name, multi_label, folder), split=part)
        taken = f"its folder {table.parent.name} is taken"
    elif class_dirs := class_folders.find_class_folders(folder, split):
        names, samples, more = class_folders.read_class_folders(folder, class_dirs)
        inner = class_dirs.folder
        dataset = Dataset(name, inner, f"class folders in {inner}", class_dirs.split, names, samples)
        taken = f"its folder {inner.relative_to(folder).as_posix()} is taken"
    elif (packed := _read_packed(folder, name, split, multi_label)) is not None:
        dataset, taken = packed, "that of its files is taken"
    elif warnings:
        raise ArgumentError(f"{folder}: no {TABLE} and no class folders in it; {warnings[0]}")
    else:
        raise _no_class_folders(folder, split)
    if dataset.split == "all":
        taken = "all its images are taken"
    if dataset.split != split and (dataset.split != "all" or split != "test"):  # which is the default
        more.append(f"there is no split {split} in a set of one's own: {taken}")
    return replace(dataset, warnings=(*warnings, *dataset.warnings, *more))


def _reader(folder: Path, multi_label: bool) -> Reader:
    names = read_labels(folder / NAMES) if is_there(folder / NAMES) else ()
    return Reader(LabelEncoder(names, multi_label, strict=True), InputOptions(multi_label=multi_label), Walk([]))


def _decode(reader: Reader, folder: Path, images: ImageList) -> None:
    """Decide what the labels of a data set are; it must have names of classes."""
    if not reader.encoder.names and reader.encoder.empty:
        reason = "; ".join([*reader.notes, *reader.encoder.warnings()]) or "name the classes there"
        raise LabelError(f"{folder}: no image has a label, and there is no {NAMES}; {reason}")
    reader.encoder.finish()
    images.decode(reader.encoder.decode)


def _read_table(table: Path, name: str, multi_label: bool, outer: Path | None = None) -> Dataset:
    """Read the images that a table lists below its folder.

    Class names come from `classnames.txt` beside it or in `outer`, or else from the table, see `LabelEncoder`.
    """
    folder = table.parent
    reader = _reader(folder if outer is None or is_there(folder / NAMES) else outer, multi_label)
    images, missing, _ = reader.listed(table, below(table, strict=True), labelled=True)
    _decode(reader, folder, images)
    own_order, images = table.name != TABLE, images.without_doubles()  # as the library datasets reads it
    return Dataset(
        name,
        folder,
        f"the table {table}",
        "all",
        reader.encoder.names,
        images if own_order else tuple(images),
        tuple(dict.fromkeys(sample.key for sample in missing)),
        warnings=tuple(reader.encoder.warnings()),
        in_order=own_order,
    )


def _read_packed(folder: Path, name: str, split: str, multi_label: bool) -> Dataset | None:
    """Read the Parquet tables or else the tar archives of a split in a folder, or in its `data`; None without any."""
    for holder in filter(is_folder, (folder, folder / "data")):
        entries = [entry for entry in list_entries(holder) if entry.is_file()]
        for suffix, kind in ((".parquet", "Parquet tables"), (".tar", "tar archives")):
            if files := [entry for entry in entries if entry.suffix.lower() == suffix]:
                chosen, part, notes = _choose_files(folder, files, split)
                reader = _reader(folder, multi_label)
                reader.notes += notes
                for entry in entries:
                    if entry not in files:
                        reader.walk.pass_over(entry.name)
                layout = f"{len(chosen)} {kind} in {holder}"
                return _read_files(reader, Dataset(name, folder, layout, part, (), (), in_order=True), chosen)
    return None


def _choose_files(folder: Path, files: list[Path], split: str) -> tuple[list[Path], str, list[str]]:
    """Return the files of a split, or all where none is named after one, the split, and notes."""
    by_split: dict[str | None, list[Path]] = {}
    for file in files:
        title = class_folders.split_of(file.stem.partition("-")[0])
        by_split.setdefault(None if title == "images" else title, []).append(file)
    parts = (split,) if split == "val" else ("test", "val")
    part = next((part for part in parts if part in by_split), None)
    if part is None and None not in by_split:
        splits = " and ".join(str(part) for part in by_split)
        raise ArgumentError(f"{folder}: its tables are of the split {splits}, and none of {split}")
    others = by_split.get(None, []) if part is not None else []
    notes = [f"files beside those of {part}, a split, are left out: {and_more([file.name for file in others])}"]
    if part is None:
        words = ({class_folders.split_of(word) for word in re.split(r"[-_.]", file.stem)} for file in by_split[None])
        others = by_split[None] if len(set().union(*words) - {None, "images"}) > 1 else []
        names = and_more([file.name for file in others])
        notes = [f"{names} look like parts of a set, and are taken as one: begin their names with train and test"]
    return by_split[part], part or "all", notes if others else []


def _read_files(reader: Reader, dataset: Dataset, files: Sequence[Path]) -> Dataset:
    """Read archives or tables; keys are paths below the folder of the data set."""
    images = ImageList(
        replace(sample, key=sample.key.removeprefix(f"{dataset.folder}{os.sep}"))
        for file in files
        for sample in reader.packed(file)
    )
    _decode(reader, dataset.folder, images)
    warnings = (*reader.notes, *reader.encoder.warnings(), *reader.walk.warnings())
    if not images:
        raise ArgumentError("; ".join([f"{dataset.folder}: no images in {dataset.layout}", *warnings]))
    return replace(dataset, names=reader.encoder.names, samples=images, warnings=warnings)


def _misnamed(folder: Path) -> list[str]:
    """Return that a file is not read which only case or the ending tells from the table or the list of names."""
    wanted = {form: name for name in (TABLE, NAMES) for form in (name, f"{name}.txt", f"{name[:-3]}tsv")}
    forms = [(entry.name, wanted[form]) for entry in list_entries(folder) if (form := entry.name.casefold()) in wanted]
    misnamed = [(form, name) for form, name in forms if not os.path.lexists(folder / name)]
    return [f"{form} is not read: the file that is read is called {name}" for form, name in misnamed]


def _no_class_folders(folder: Path, split: str) -> ArgumentError:
    """Build the error for a folder without class folders, with what else lies there."""
    test = any(class_folders.split_of(entry.name) == "test" for entry in folders_in(folder))
    what = f"{folder}: neither {TABLE} nor folders of images named after classes"
    hint = f"; {hint}" if (hint := class_folders.split_hint(folder)) else passed_over(folder)
    below = " below val" if split == "val" and test else ""
    return ArgumentError(f"{what}{below}{hint}; see docs, Data sets")
