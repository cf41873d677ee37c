"""Class folders: which folders are splits and which are classes, what the classes are called."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from faircontext.datasets.folder import NAMES, Walk, folders_in, holds_images, is_there, list_entries
from faircontext.datasets.spec import Sample, imagenet_names, imagenet_wnids
from faircontext.errors import ArgumentError, and_more, counted
from faircontext.imageio import EXTENSIONS
from faircontext.names import FolderTruth, are_shards, natural, read_labels

WNID = re.compile(r"n\d{8}")
_FORMS = {
    "train": "train training",
    "val": "val valid validation dev development eval evaluation",
    "test": "test tests testing",
    "images": "images",
}
_SPLITS: Mapping[str, str] = {form: split for split, forms in _FORMS.items() for form in forms.split()}
_NAME = re.compile(rf"({'|'.join(_SPLITS)})(?:[ _-]?(?:set|split|data|images))?(?:[ _-]?(?:19|20)\d\d)?")
_PARTS = frozenset((*_SPLITS, "fold", "holdout", "split")) - {"images"}
_ORDER = {"train": ("train", "images"), "val": ("val", "images"), "test": ("test", "images", "val")}
"""Where images of a split are looked for: validation images may stand in for test images."""


class ClassFolders(NamedTuple):
    """A folder that directly holds class folders."""

    folder: Path
    split: str
    """`test` or `val`; `all` where there is but one set of images."""
    warnings: tuple[str, ...] = ()
    """What was left aside, a line each."""


def split_of(name: str) -> str | None:
    """Return which split a folder's name stands for: `train`, `val`, `test`, or `images` for all of them; else None."""
    match = _NAME.fullmatch(name.casefold())
    return None if match is None else _SPLITS[match[1]]


def find_class_folders(folder: Path, split: str, seen: set[Path] | None = None) -> ClassFolders | None:
    """Find the folder that directly holds the class folders of a split, at any depth of splits and `images`.

    A folder called like a split is one where it holds class folders; beside two or more folders of other names, one
    such folder alone is a class. A folder where only splits hold images is never read as classes.

    Args:
        folder: the data set's.
        split: `val` or `train`, or else test images are looked for, then images of no split, then validation images.
        seen: takes the real folders, each of which is looked at once.
    """
    seen = set() if seen is None else seen
    if (real := folder.resolve()) in seen:
        return None
    seen.add(real)
    filled = _filled(folder)
    others = [entry.name for entry, part in filled.items() if part is None]
    # Only its first class folders are looked at: training images may be many.
    parts = {part for entry, part in filled.items() if part in _ORDER and any(map(holds_images, folders_in(entry)))}
    for part in _ORDER.get(split, _ORDER["test"]):
        if parts == {part} and len(others) > 1:
            continue
        named = sorted((e for e in filled if filled[e] == part), key=lambda e: (e.name != part, e.is_symlink()))
        below = {e: find_class_folders(e, split if part == "images" else part, seen) for e in named}
        if candidates := {entry: class_dirs for entry, class_dirs in below.items() if class_dirs is not None}:
            return _choose(folder, part, candidates, others)
    return ClassFolders(folder, "all") if others and len(parts) < 2 else None


def choose_table(tables: Sequence[Path], split: str) -> tuple[Path, str]:
    """Return which of the tables in folders beside each other is of a split, and that split, see `ClassFolders`."""
    parts = {table: split_of(table.parent.name) for table in tables}
    for part in _ORDER.get(split, _ORDER["test"]) if len(tables) > 1 or None not in parts.values() else ():
        if (of_part := [table for table in tables if parts[table] == part]) and len(of_part) == 1:
            return of_part[0], "all" if part == "images" else part
    if len(tables) > 1 or None not in parts.values():
        ways = " or ".join(_as_named(table.parent) for table in tables)
        raise ArgumentError(f"{tables[0].parent.parent}: tables lie in several folders; name the one to take: {ways}")
    return tables[0], "all"


def _choose(folder: Path, part: str, candidates: Mapping[Path, ClassFolders], others: Sequence[str]) -> ClassFolders:
    """Return what was found in the one folder of a split, or in the one that is called exactly like it."""
    entry, chosen = next(iter(candidates.items()))
    if len(candidates) > 1 and entry.name != part:
        raise ArgumentError(
            f"{folder}: the folders {' and '.join(entry.name for entry in candidates)} are of the same split, {part}; "
            f"name the one to take, for example {_as_named(entry)}"
        )
    if part == "images":
        return chosen
    aside = (f"folders beside {entry.name}, a split, are left out: {and_more(others)}",) if others else ()
    return ClassFolders(chosen.folder, part, (*aside, *chosen.warnings))


def _as_named(folder: Path) -> str:
    """Return a path in the form that `--datasets` takes for one, whatever the root is."""
    return str(folder) if folder.is_absolute() or folder.parts[:1] == ("..",) else f"./{folder}"


def _filled(folder: Path) -> dict[Path, str | None]:
    """Return the folders right below one that hold images, at any depth, and which splits they are."""
    return {entry: split_of(entry.name) for entry in folders_in(folder) if holds_images(entry)}


def parts_warnings(folder_names: Sequence[str]) -> list[str]:
    """Return that class folders look like parts of a set, as a line, where each is called after one, as `x_train`."""
    parts = [any(word in _PARTS for word in re.findall("[a-z]+", name.casefold())) for name in folder_names]
    if len(parts) < 2 or not all(parts):
        return []
    return [
        f"the class folders {and_more(folder_names)} look like parts of a set: to measure one, name that folder, or "
        "call them train and test"
    ]


def _check_no_shards(folder: Path, folder_names: Sequence[str], n: int) -> None:
    if are_shards(folder_names, n):
        raise ArgumentError(
            f"{folder}: the folders {and_more(folder_names)} are numbered parts of a set and no classes; list the "
            "images with their classes in labels.csv"
        )


def split_hint(folder: Path) -> str:
    """Return, where splits lie right below a folder and no classes, what can be named in its place; else nothing."""
    filled = _filled(folder)
    splits = {entry: part for entry, part in filled.items() if part is not None}
    if not splits:
        return ""
    if len(splits) < len(filled):
        default = find_class_folders(folder, "test")
        if default is None or default.split == "all":
            return ""
    seen: set[Path] = set()
    inner = [find_class_folders(entry, part, seen) for entry, part in splits.items()]
    ways = [_as_named(class_dirs.folder) for class_dirs in inner if class_dirs is not None]
    *first, last = (entry.name for entry in splits)
    names = f"{', '.join(first)} and {last} are splits, not classes" if first else f"{last} is a split, not a class"
    return names + (f"; name the one to take: {' or '.join(ways)}" if ways else ", without class folders inside")


def class_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the folders right below some folders, as class names, integers by value.

    Raises:
        ArgumentError: a path is no folder or cannot be read, or there is no folder below, or there are splits.
    """
    folders: list[Path] = []
    for path in paths:
        if not path or not os.path.isdir(path):  # noqa: PTH112 (unlike Path, it answers for names that cannot exist)
            raise ArgumentError(f"{path}: not a folder; --labels-from-folders takes folders of class folders")
        try:
            hint = split_hint(Path(path))
        except RecursionError:
            raise ArgumentError(f"{Path(path)}: folders lie too deep in each other") from None
        if hint:
            raise ArgumentError(f"{Path(path)}: {hint}; or give the class names with --labels")
        folders += folders_in(Path(path))
    if not folders:
        raise ArgumentError(f"no class folders in {', '.join(paths)}; give the class names with --labels")
    names = tuple(dict.fromkeys(folder.name for folder in sorted(folders, key=natural)))
    _check_no_shards(Path(paths[0]), names, len(names))
    return names


def samples_below(folder: Path, folders: Sequence[tuple[Path, int]]) -> tuple[tuple[Sample, ...], list[str]]:
    """Return the images in some class folders, with the label of each folder, and warnings of what was left out.

    Each real folder is visited once, see `Walk`: images that are found in two class folders would count twice, perhaps
    as two classes.
    """
    walk, skip = Walk([entry for entry, _ in folders], folder), len(folder.parts)
    samples: list[Sample] = []
    for entry, label in folders:
        if walk.leads_back(entry):
            raise ArgumentError(
                f"{entry}: is a link into the class folders beside it, whose images would count twice; take it away"
            )
        samples += [Sample("/".join(path.parts[skip:]), path, label) for path in walk.images(entry)]
    walk.entries(folder)  # what lies beside the class folders is left out as well
    return tuple(samples), [*walk.warnings(), *depth_warnings(sample.key for sample in samples)]


def read_class_folders(folder: Path, class_dirs: ClassFolders) -> tuple[tuple[str, ...], tuple[Sample, ...], list[str]]:
    """Return class names, images and warnings of the class folders of a data set, which may have `classnames.txt`."""
    folders = folders_in(class_dirs.folder)
    names, labels, warnings = _name_classes(folder, folders)
    labelled = [*zip(folders, labels, strict=True)]
    samples, left_out = samples_below(class_dirs.folder, sorted(labelled, key=lambda pair: pair[1]))
    warnings += [*class_dirs.warnings, *parts_warnings([entry.name for entry in folders]), *left_out]
    filled = {sample.label for sample in samples}
    if empty := [entry.name for entry, label in labelled if label not in filled]:
        warnings.append(f"class folders without images, which stay classes: {', '.join(empty)}")
    if loose := sum(e.suffix.lower() in EXTENSIONS for e in list_entries(class_dirs.folder) if e not in folders):
        warnings.append(f"images that lie in no class folder are left out: {loose} in {class_dirs.folder}")
    return names, samples, warnings


def _name_classes(folder: Path, folders: Sequence[Path]) -> tuple[tuple[str, ...], list[int], list[str]]:
    """Return class names, the label of each class folder, and warnings."""
    folder_names = tuple(entry.name for entry in folders)
    order = [*range(len(folder_names))]
    if is_there(folder / NAMES):
        names = read_labels(folder / NAMES)
        return names, *_match(folders, names, folder / NAMES)
    _check_no_shards(folder, folder_names, len(folder_names))
    if all(map(WNID.fullmatch, folder_names)):
        known = dict(zip(imagenet_wnids(), imagenet_names(), strict=True))
        if strange := [name for name in folder_names if name not in known]:
            raise ArgumentError(
                f"{folder}: {strange[0]} is none of ImageNet's 1,000 classes; give the names of all class folders, in "
                f"order, in {NAMES}"
            )
        warning = "class folders are wnids, which get the names of CLIP's authors"
        return tuple(known[name] for name in folder_names), order, [warning]
    if all(map(str.isdecimal, folder_names)):
        return folder_names, order, [f"class folders are integers, and so are the class names; give names in {NAMES}"]
    return folder_names, order, []


def _match(folders: Sequence[Path], names: Sequence[str], where: Path) -> tuple[list[int], list[str]]:
    """Return the indices of class folders in a list of class names, and warnings; see `FolderTruth`.

    Where neither names nor positions tell the class of each folder, and there is a name for each, they are in order.
    """
    truth = FolderTruth(names, (folder / "x" for folder in folders))
    known = [truth.labels[folder] for folder in folders]
    if truth.shared:
        raise ArgumentError(truth.shared[0])
    if truth.shards:
        _check_no_shards(where.parent, [folder.name for folder in folders], len(names))
    labels = [label for label in known if label is not None]
    warnings = list[str]()
    if len(labels) == len(folders):
        warnings = truth.warnings() if truth.numbered else []
    elif len(names) == len(folders):
        labels = [*range(len(folders))]
        pairs = and_more([f"{folder.name} = {name}" for folder, name in zip(folders, names, strict=True)])
        warnings = [f"class names are from {NAMES}, in the order of the folders: {pairs}"]
    else:
        raise ArgumentError(
            f"{where}: {counted(len(names), 'name')} for {len(folders)} class folders, which are named otherwise; give "
            "one for each, a line each, in order"
        )
    # A folder that has the name of one class is not taken for another one because of its position.
    if any(known_label not in (None, other) for known_label, other in zip(known, labels, strict=True)):
        strange = folders[known.index(None)].name
        raise ArgumentError(
            f"{where}: class folder {strange} is named after none of its {len(names)} names, but "
            f"{len(known) - known.count(None)} others are; name all folders so, or none"
        )
    return labels, warnings


def depth_warnings(keys: Iterable[str]) -> list[str]:
    """Return how many images lie deeper than right in a class folder, as a line, where any does.

    Args:
        keys: paths of images, the class folder first, with `/` between.
    """
    total = count = 0
    first: list[str] = []
    inner: set[str] = set()
    for parts in (key.split("/") for key in keys):
        total += 1
        if len(parts) > 2:
            count, first = count + 1, first or parts
            inner.add(parts[1])
    if not count:
        return []
    splits = sorted(name for name in inner if split_of(name) not in (None, "images"))
    advice = "where the inner folders are the classes, move them up"
    if len(splits) > 1:
        advice = f"{and_more(splits)} are splits, which all count: to measure one, lay it out as {splits[0]}/CLASS"
    return [
        f"{count:,} of {total:,} images lie deeper than right in a class folder, and count for the outer "
        f"one, {'/'.join(first)} for {first[0]}; {advice}"
    ]


def keys_below(paths: Iterable[Path], roots: Sequence[str]) -> Iterator[str]:
    """Yield the paths of those images that lie below a root, relative to it, with `/` between."""
    starts = tuple(os.path.join(os.path.abspath(root), "") for root in roots)  # noqa: PTH100, PTH118 (keeps links)
    for path in paths:
        absolute = os.path.abspath(path)  # noqa: PTH100 (as above)
        yield from [absolute[len(start) :].replace(os.sep, "/") for start in starts if absolute.startswith(start)][:1]
