"""Images as people name them: files, folders, patterns, lists, archives, tables, and addresses that fsspec knows."""

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from faircontext.datasets.class_folders import depth_warnings, keys_below, parts_warnings
from faircontext.datasets.containers import (
    COMPRESSED,
    InputOptions,
    ListedImages,
    Locate,
    NoListError,
    Reader,
    anywhere,
    below,
    expand_braces,
    tables_of,
)
from faircontext.datasets.folder import PACKED, Exclusion, Walk, count_files, is_system_file
from faircontext.datasets.label_encoder import LabelEncoder
from faircontext.datasets.listing import ImageList
from faircontext.datasets.spec import BLANK, NO_CLASS, Sample, Truth
from faircontext.errors import ArgumentError, counted
from faircontext.imageio import image_extensions
from faircontext.names import FolderTruth
from faircontext.sources import Cell, Remote, file_system, is_address, reason_at_address

_AS_USUAL = InputOptions()


@dataclass(frozen=True)
class Inputs:
    """Images that were found.

    Attributes:
        images: in the order in which they were given; labels are set where they are known.
        warnings: what was left out, a line each.
        truth_warnings: what is odd about where labels come from, a line each.
        files: archives and tables that images or labels come from.
    """

    images: ImageList
    warnings: tuple[str, ...]
    truth_warnings: tuple[str, ...]
    files: tuple[Path, ...] = ()


def collect(
    paths: Sequence[str],
    listed: Iterable[str],
    names: Sequence[str],
    roots: Sequence[str] = (),
    options: InputOptions = _AS_USUAL,
) -> Inputs:
    """Return the images that some words name, without loading any, with their classes where these are known.

    A label in a table or an archive counts before the name of the folder that holds an image, see `FolderTruth`. So
    does an empty cell of a table that gives labels: the image has none.

    Args:
        paths: files, folders (see `Walk`), patterns with `*`, `{a,b}` or `{000..999}`, tar archives, Parquet tables,
            tables in `.csv` or `.jsonl`, addresses with `://`, or `-` for `listed`.
        listed: lines of file names or addresses that stand for `-`.
        names: class names.
        roots: folders of class folders.
        options: how they are read.

    Raises:
        ArgumentError: something that is named is not there or cannot be read, or there is no image at all.
    """
    finder = _Finder(paths, names, options)
    images = finder.find(listed)
    truth = FolderTruth(names, (path for _, path in _unlabelled(images)), roots)
    for position, path in _unlabelled(images):
        images.set_label(position, truth(path))
    images.decode(lambda label: None if label in (NO_CLASS, BLANK) else label)
    keys = keys_below(map(Path, images.names()), roots)
    depth = [*parts_warnings(names), *depth_warnings(keys)] if roots else []
    truth_warnings = (*finder.truth_warnings(), *truth.warnings())
    return Inputs(images, (*finder.warnings(), *depth), truth_warnings, tuple(finder.files))


def _unlabelled(images: ImageList) -> Iterator[tuple[int, Path]]:
    """Yield the positions and paths of images whose label may be the name of their folder."""
    for position, sample in images.unlabelled():
        if not isinstance(sample.path, Cell):
            yield position, Path(sample.key)


class _Finder:
    """Reads words one after the other."""

    def __init__(self, paths: Sequence[str], names: Sequence[str], options: InputOptions) -> None:
        if not paths:
            raise ArgumentError("give at least one image, folder, or - for file names on standard input")
        self._paths, self._options = paths, options
        # Unlike Path's, this answers for names that cannot exist.
        self._folders = {path for path in paths if path not in ("", "-") and os.path.isdir(path)}  # noqa: PTH112
        self._exclusion = Exclusion(options.exclude)
        self._walk = Walk([Path(path) for path in paths if path in self._folders], exclusion=self._exclusion)
        self._walks, self._tables = [self._walk], list[_TableLabels]()
        self._reader = Reader(LabelEncoder(names, options.multi_label), options, self._walk)
        self._read_table = False
        self.files: list[Path] = []

    def find(self, listed: Iterable[str]) -> ImageList:
        images = ImageList()
        try:
            for path in self._paths:
                for part in self._lines(listed) if path == "-" else self._word(path):
                    images.extend(part)
        except RecursionError:
            raise ArgumentError(f"{', '.join(self._paths)}: folders lie too deep in each other") from None
        if not len(images) and {*self._paths} == {"-"}:
            raise ArgumentError("standard input names no file; give one file name a line")
        if not len(images):
            named, looked = ", ".join(self._paths), " ".join(sorted(image_extensions()))
            tables = all(path.lower().endswith(".parquet") for path in self._paths)
            looked = f"no images in {named}; " + ("no rows in it" if tables else f"looked for the extensions {looked}")
            raise ArgumentError("; ".join([looked, *self.warnings()]))
        self._reader.encoder.finish()
        images.decode(self._reader.encoder.decode)
        alone = len(self._paths) == 1 and self._paths[0] in self._folders  # where a walk visits each folder once
        return images if alone else images.without_doubles(", ".join(map(str, self.files)))

    def warnings(self) -> list[str]:
        lines = [line for walk in self._walks for line in walk.warnings()]
        lines += [*self._exclusion.warnings(), *self._reader.notes]
        columns = {"image": self._options.image_column, "label": self._options.label_column}
        options = [f"--{kind}-column {name}" for kind, name in columns.items() if name is not None]
        unused = f"{' and '.join(options)}: no table was read (.parquet, .csv, .jsonl, or labels.csv in a folder)"
        return [*lines, *([unused] if options and not self._read_table else [])]

    def truth_warnings(self) -> list[str]:
        return [*(table.warning() for table in self._tables), *self._reader.encoder.warnings()]

    def _word(self, word: str) -> Iterator[Iterable[Sample]]:
        """Yield what a word of the command line names, in parts."""
        if word in self._folders:
            yield self._folder(Path(word), self._walk)
        elif not word or "\0" in word or os.path.lexists(word):
            yield self._file(_named_file(word))
        elif is_address(word):
            yield self._address(word)
        elif "{" in word:
            for name in expand_braces(word):
                yield from self._word(name) if "{" not in name else [self._file(_named_file(name))]
        elif glob.has_magic(word):
            yield self._pattern(word)
        else:
            yield self._file(_named_file(word))

    def _folder(self, folder: Path, walk: Walk) -> Iterator[Sample]:
        """Yield the images below a folder, with labels of a table that lies in it, or of tables one folder below."""
        tables, notes = tables_of(folder)
        self._reader.notes += notes
        labels = {
            table.parent: table_labels for table in tables if (table_labels := self._labels_in(table)) is not None
        }
        skip = len(folder.parts)
        if not labels:
            yield from (Sample(str(path), path) for path in walk.images(folder))
            return
        for path in walk.images(folder):
            holder = folder if folder in labels else Path(*path.parts[: skip + 1])
            key = "/".join(path.parts[len(holder.parts) :])
            yield Sample.of(str(path), path, labels[holder].find(key) if holder in labels else None)

    def _labels_in(self, table: Path) -> "_TableLabels | None":
        """Return the labels that a table in a folder gives, if it gives any."""
        try:
            listed = self._listed(table, below(table))
        except NoListError as error:  # it may be there for something else
            if self._options.label_column is not None:
                raise
            self._reader.notes.append(f"no labels are taken from {error}")
            return None
        self._tables.append(_TableLabels(table, listed))
        return self._tables[-1]

    def _listed(self, table: Path, locate: Locate) -> ListedImages:
        """Read a table; where it gives labels, an empty cell says that an image has none."""
        self._read_table = True
        self.files.append(table)
        listed = self._reader.listed(table, locate)
        if listed.images.labelled:
            listed.images.decode(lambda truth: BLANK if truth is None else truth)
        return listed

    def _file(self, path: Path) -> Iterable[Sample]:
        """Yield what a file holds: itself, or what lies in an archive or a table."""
        suffix = path.suffix.lower()
        if path.name.lower().endswith(PACKED):
            raise ArgumentError(f"{path}: {COMPRESSED}")
        if suffix not in (".tar", ".parquet", ".csv", ".jsonl"):
            return self._kept([Sample(str(path), path, None)])
        if suffix in (".csv", ".jsonl"):
            return self._kept(self._listed(path, anywhere(path)).images)
        self.files.append(path)
        self._read_table = self._read_table or suffix == ".parquet"
        return self._kept(self._reader.packed(path))

    def _kept(self, images: Iterable[Sample]) -> Iterable[Sample]:
        if not self._options.exclude:
            return images
        return (
            image for image in images if isinstance(image.path, Cell) or not self._exclusion.takes(image.key.strip("/"))
        )

    def _pattern(self, pattern: str) -> Iterator[Sample]:
        """Yield the images, archives and tables that a pattern names, sorted; folders are searched."""
        paths = [Path(name) for name in sorted(glob.iglob(pattern, recursive=True))]  # noqa: PTH207 (of any depth)
        pattern_path, empty = Path(pattern), True
        folders = [path for path in paths if path.is_dir() and "**" not in pattern]  # "**" names what is in them too
        walk = Walk(folders, exclusion=self._exclusion)
        self._walks.append(walk)
        for path in paths:
            samples: Iterable[Sample] = ()
            inner = "/".join(part for part in path.parts if part not in pattern_path.parts and not part.startswith("."))
            if path in folders and is_system_file(path.name):
                walk.leave_out(path.name, count_files(path))
            elif path in folders:
                samples = self._folder(path, walk)
            elif path.is_file() and walk.keeps(inner):  # what begins with a point has been asked for
                if path.suffix.lower() in (*image_extensions(), ".tar", ".parquet"):
                    samples = self._file(path)
                else:
                    walk.pass_over(inner)
            for image in samples:
                empty = False
                yield image
        if empty:
            raise ArgumentError(f"{pattern}: no image has such a name, and there is no such file or folder")

    def _lines(self, lines: Iterable[str]) -> Iterator[Iterable[Sample]]:
        """Yield the images that lines name, one each or, as of `find -print0`, with a null character after each."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape", newline="") as file:
            null = False
            for line in lines:
                null = null or "\0" in line
                file.write(line)
            file.seek(0)
            for number, name in enumerate(_split(file, "\0" if null else "\n")):
                name = name if null else name.rstrip("\r")
                name = name.removeprefix("\ufeff") if number == 0 else name
                if name.strip():
                    yield self._name_in_list(name)

    def _name_in_list(self, name: str) -> Iterable[Sample]:
        if is_address(name):
            return self._address(name)
        path = Path(name)
        archive = path.suffix.lower() in (".tar", ".parquet") and path.is_file()
        return self._file(path) if archive else self._kept([Sample(str(path), path, None)])

    def _address(self, address: str) -> Iterator[Sample]:
        """Yield the images at an address: a file, all below a folder, or those that a pattern names."""
        protocol = address.partition("://")[0]
        try:
            system = file_system(protocol)
            for name in _names_at(system, address, self._walk):
                url = system.unstrip_protocol(name)
                if not self._exclusion.takes(name.strip("/")):
                    yield Sample(url, Remote(url), None)
        except (ArgumentError, KeyboardInterrupt):
            raise
        except Exception as error:  # each file system has errors of its own
            raise ArgumentError(f"{address}: {reason_at_address(error)}") from None


def _names_at(system: Any, address: str, walk: Walk) -> list[str]:
    """Return the names of images at an address, sorted, without hidden ones and system files."""
    if address.lower().endswith((*PACKED, ".tar", ".parquet", ".csv", ".jsonl")):
        raise ArgumentError(f"{address}: archives and tables are read from local disks alone; copy it there")
    if system.isfile(address):
        return [system._strip_protocol(address)]
    if glob.has_magic(address):
        names = [name for name in system.glob(address) if system.isfile(name)]
    elif system.exists(address):
        names = system.find(address)
    else:
        system.info(address)  # which says why it is not there
        raise FileNotFoundError(address)
    images, extensions = list[str](), image_extensions()
    for name in sorted(names):
        inner = PurePosixPath(name).parts[len(PurePosixPath(system._strip_protocol(address)).parts) :]
        if not walk.keeps("/".join(inner)):
            continue
        if PurePosixPath(name).suffix.lower() in extensions:
            images.append(name)
        else:
            walk.pass_over(name)
    if not images:
        raise ArgumentError(f"{address}: no images there; looked for the extensions {' '.join(sorted(extensions))}")
    return images


class _TableLabels:
    """The labels that a table in a folder gives to images below it."""

    def __init__(self, table: Path, listed: ListedImages) -> None:
        self._table, self._find, self._used = table, listed.images.label_finder(listed.digests), 0
        self._missing = sum(sample.truth is not None for sample in listed.missing)

    def find(self, key: str) -> Truth:
        """Return what the encoder gave for an image, known by its path below the folder."""
        truth = self._find(key)
        self._used += truth not in (None, NO_CLASS, BLANK)
        return truth

    def warning(self) -> str:
        """Return what the table says, as a line."""
        line = f"{self._table}: gives the class of {counted(self._used, 'image')}"
        return line + (f"; {self._missing:,} more that it lists are not there" if self._missing else "")


def _split(file: IO[str], mark: str) -> Iterator[str]:
    """Yield the pieces of a text between marks, a block at a time."""
    rest = ""
    while block := file.read(1 << 16):
        *pieces, rest = (rest + block).split(mark)
        yield from pieces
    yield rest


def _named_file(path: str) -> Path:
    if not path:
        raise ArgumentError("a path is empty; give an image, a folder, or - for file names on standard input")
    try:
        os.lstat(path)
    except PermissionError:
        raise ArgumentError(f"{path}: permission denied") from None
    except (OSError, ValueError):
        raise ArgumentError(f"{path}: no such file or folder") from None
    return Path(path)
