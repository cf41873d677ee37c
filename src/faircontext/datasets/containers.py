"""Files that hold or list images, each read by one function: tables in CSV, JSON and Parquet, and tar archives.

Labels go to an encoder, which is asked what they are once all have been read: until then an image has a code of it.
"""

import csv
import json
import os
import re
import tarfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import chain, count, repeat
from math import prod
from pathlib import Path
from posixpath import normpath
from typing import IO, Any, NamedTuple

import numpy as np

from faircontext.datasets.folder import Listing, Walk, clean_key, folders_in, holds_images, is_there
from faircontext.datasets.label_encoder import (
    LABEL_COLUMNS,
    SEPARATOR,
    SEVERAL,
    UNREAD,
    LabelEncoder,
    column_of_labels,
    label_in,
)
from faircontext.datasets.layouts import rows_of_array
from faircontext.datasets.listing import ImageList, short_digest
from faircontext.datasets.spec import Sample
from faircontext.errors import ArgumentError, and_more, counted, first_reason, reason_of
from faircontext.imageio import image_extensions
from faircontext.perturbations import parse_corruptions
from faircontext.sources import Cell, Member, Remote, Source, is_address

TABLE = "labels.csv"
LABELS = (TABLE, "metadata.csv", "metadata.jsonl")
"""Tables that say of which class the images beside them are."""

COMPRESSED = "it is compressed; unpack it into a folder, or pack it again without compression (tar -cf)"
"""What is said of an archive whose members cannot be found by their headers."""

_PATHS = ("path", "file_name", "filepath", "file_path", "filename", "image")
_AGAIN = "copy or pack it again"
_MOST_LABEL_BYTES = 1 << 20
_BLOCK = 512
_MOST_NAMES = 1_000_000
_RANGE = re.compile(r"\{(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\}")
_END = "\0end of the table"
"""A line after the last one: where a quotation mark is not closed, it becomes part of that cell."""

_Row = tuple[int, list[tuple[str, object]]]
"""The line where a row of a table begins, and its cells with the names of their columns."""


@dataclass(frozen=True)
class InputOptions:
    """How inputs are read.

    Attributes:
        exclude: patterns of what is left out, see `Exclusion`.
        image_column: of tables, where it has no usual name.
        label_column: the same.
        multi_label: whether an image may have several labels, see `label_words`.
    """

    exclude: tuple[str, ...] = ()
    image_column: str | None = None
    label_column: str | None = None
    multi_label: bool = False


class NoListError(ArgumentError):
    """A table does not list images: it may be there for something else."""


class ListedImages(NamedTuple):
    """What a table lists, in its order: the images that are there, and those that are not.

    Attributes:
        images: that are there.
        missing: those that are not.
        digests: of the names of `images`, see `short_digest`.
    """

    images: ImageList
    missing: ImageList
    digests: "array[int]"


Locate = Callable[[str, str], tuple[str, Source | None]]
"""Returns what a listed image is called and where it lies, given its path as written and the place of its row."""


@dataclass
class Reader:
    """Reads files that hold or list images, for every command.

    Attributes:
        encoder: takes labels.
        options: how they are read.
        walk: counts what is left out of archives.
        notes: takes what was not read, a line each.
    """

    encoder: LabelEncoder
    options: InputOptions
    walk: Walk
    notes: list[str] = field(default_factory=list)

    def listed(self, table: Path, locate: Locate, labelled: bool = False) -> ListedImages:
        """Read the images that a `.csv` or `.jsonl` lists.

        Args:
            table: the file.
            locate: see `Locate`.
            labelled: whether there must be a column of labels.

        Raises:
            NoListError: it cannot be read, or has no such columns.
            ArgumentError: it lists an image twice with a label, or a row cannot be used; the message names the line.
        """
        try:
            column, rows = _open_table(table, self.options, labelled)
        except ArgumentError as error:
            raise NoListError(str(error)) from None
        lists, lines, digests = (ImageList(), ImageList()), (array("L"), array("L")), (array("Q"), array("Q"))
        for line, pairs in rows:
            row, where = dict(pairs), f"{table}, line {line}"
            if not isinstance(written := row.get(column), str) or not written.strip():
                raise ArgumentError(f"{where}: has no path in its column {column}")
            label, title = label_in(row, self.options.label_column, self.options.multi_label)
            key, source = locate(written, where)
            absent = source is None
            lists[absent].append(Sample.of(key, source or Path(key), self.encoder.add(label, where, title)))
            lines[absent].append(line)
            digests[absent].append(short_digest(key))
        for images, lines_of_list, names in zip(lists, lines, digests, strict=True):
            if (twice := images.labelled_twice(names)) is not None:
                in_one_cell = f"write all its labels in one cell, with {SEPARATOR} between"
                raise ArgumentError(
                    f"{table}, line {lines_of_list[twice[1]]}: {images[twice[1]].key} is there twice, first in line "
                    f"{lines_of_list[twice[0]]}; {in_one_cell if self.options.multi_label else 'list it once'}"
                )
        return ListedImages(*lists, digests[0])

    def packed(self, path: Path) -> Iterator[Sample]:
        """Return the images in a tar archive or, for any other extension, a Parquet table, in its order.

        Raises:
            ArgumentError: it cannot be read, or does not hold what it must.
        """
        return self._tar(path) if path.suffix.lower() == ".tar" else self._parquet(path)

    def _parquet(self, table: Path) -> Iterator[Sample]:
        """Yield the images of a Parquet table: a row each, known by the table's name and the row's number from 0."""
        with _open_parquet(table) as file:
            image, label = _columns_of_parquet(table, file.schema_arrow, self.options)
            names = _hugging_face_names(file.schema_arrow, label)
            columns = {label or SEVERAL, *(["class_name"] if label == "label" and not names else [])}
            rows = _rows_of_parquet(file, [name for name in file.schema_arrow.names if name in columns])
            for cell, row in zip(_cells(table, file, image), rows, strict=False):
                value, title = label_in(row, self.options.label_column, self.options.multi_label)
                yield Sample.of(str(cell), cell, self.encoder.add(_named(value, names), str(cell), title))

    def _tar(self, archive: Path) -> Iterator[Sample]:
        """Yield the images of a tar archive, in its order; files of one name without its extensions are one sample.

        Each image file of a sample is an image of its own. A file that might say a label and is not read is a note.
        """
        _need_webdataset(str(archive))
        from webdataset.tariterators import group_by_keys

        samples = group_by_keys(_members(archive, self.notes.append, self.walk))
        unread, names = _UnreadLabels(), array("Q")
        while True:
            try:
                sample = next(samples, None)
            except ArgumentError:
                raise
            except ValueError as error:  # of two files of one name
                raise _twice(archive, str(error.args[0]).partition(": duplicate")[0]) from None
            if sample is None:
                break
            label, title = self._label_of(sample, unread)
            for value in sample.values():
                if isinstance(value, Member):
                    names.append(short_digest(normpath(value.name)))
                    yield Sample.of(str(value), value, self.encoder.add(label, str(value), title))
        if len(np.unique(names)) < len(names):  # not beside each other, as `tar -r` adds a file once more
            counts = Counter(normpath(image.name) for image in _images_of_tar(archive))
            raise _twice(archive, counts.most_common(1)[0][0])
        self.notes += [f"{archive}: {line}" for line in unread.lines()]

    def _label_of(self, sample: Mapping[str, Any], unread: "_UnreadLabels") -> tuple[object, str]:
        """Return what a sample says of its class, or of its classes, and what that is called.

        Its `cls` goes before a column of labels in its `json`, and that before its `txt`; what is blank comes last.
        """
        texts = {end: value for end, value in sample.items() if isinstance(value, bytes)}
        fields, title = None, ""
        if "json" in texts and not texts.get("cls", b"").strip():
            try:
                fields = json.loads(texts["json"])
            except (ValueError, RecursionError):
                unread.invalid.append(f"{sample['__key__']}.json")
        in_json, title = label_in(fields if isinstance(fields, dict) else {}, None, self.options.multi_label)
        order = (texts.get("cls"), None if in_json is UNREAD else in_json, texts.get("txt"), in_json)
        labels = [value for value in order if value is not None]
        label = next((value for value in labels if not isinstance(value, str | bytes) or value.strip()), None)
        label = next(iter(labels), None) if label is None else label
        unread.take(sample, label)
        return label, title if label is in_json else ""


def anywhere(table: Path) -> Locate:
    """Return what finds listed images by paths relative to the table's folder, which may lead out, or by addresses."""
    folder, listing = table.parent, Listing(table.parent, str(table))

    def locate(written: str, _: str) -> tuple[str, Source]:
        if is_address(written):
            return written, Remote(written)
        path = folder / written
        if not os.path.lexists(path):
            path = folder / (listing.file_of(written) or written.strip().replace("\\", "/"))
        return str(path), path

    return locate


def below(table: Path, strict: bool = False) -> Locate:
    """Return what finds listed images below the table's folder; a path that leads out is an error if it is strict."""
    folder, listing = table.parent, Listing(table.parent, str(table))

    def locate(written: str, where: str) -> tuple[str, Source | None]:
        key = clean_key(written, listing.roots)
        if key is None and strict:
            raise ArgumentError(f"{where}: the path {written!r} does not lie below the folder")
        file = None if key is None else listing.find(key)
        return (key or written, None) if file is None else (file, folder / file)

    return locate


def tables_of(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the tables that say of which class the images of a folder are, and a line for what is not read.

    There is the one in the folder, or else those one folder below, as of splits. The latter are not read where images
    lie in other folders beside them too.
    """
    if tables := _tables_in(folder):
        return tables[:1], _not_read(tables)
    by_folder = {entry: _tables_in(entry) for entry in folders_in(folder)}
    first = [tables[0] for tables in by_folder.values() if tables]
    if first and (other := next((e for e, tables in by_folder.items() if not tables and holds_images(e)), None)):
        names = and_more([str(table) for table in first])
        return [], [f"{names}: no labels are taken from it, as {other.name} beside it has images and no table"]
    return first, [line for tables in by_folder.values() for line in _not_read(tables)]


def _tables_in(folder: Path) -> list[Path]:
    return [folder / name for name in LABELS if is_there(folder / name)]


def _not_read(tables: Sequence[Path]) -> list[str]:
    others = and_more([table.name for table in tables[1:]])
    return [f"{tables[0]}: is taken, and {others} beside it is not read"] if others else []


def _choose_columns(
    table: Path, names: Sequence[str], options: InputOptions, usual: Sequence[str]
) -> tuple[str, str | None]:
    """Return the columns of images, or of their paths, and of labels; the latter may be missing.

    Args:
        table: the file.
        names: of its columns.
        options: how it is read.
        usual: names of the column of images.

    Raises:
        ArgumentError: there is no such column, or it is there twice.
    """
    image = options.image_column or next((name for name in usual if name in names), None)
    label = column_of_labels(names, options.label_column, options.multi_label)
    if twice := next((name for name in (image, label, *LABEL_COLUMNS, SEVERAL) if names.count(name or "") > 1), None):
        raise ArgumentError(f"{table}: has the column {twice!r} twice; which of them counts?")
    for column, option in ((image, "image"), (label or "", "label")):
        if column is None or (column and column not in names):
            fix = f"name one with --{option}-column"
            fix = "put commas between columns" if any(mark in name for name in names for mark in ";\t") else fix
            name_or_usual = column or " or ".join(usual[:2])
            raise ArgumentError(f"{table}: has no column {name_or_usual}, but {and_more(names)}; {fix}")
    assert image is not None
    return image, label


def _open_table(table: Path, options: InputOptions, labelled: bool) -> tuple[str, Iterator[_Row]]:
    """Return the column of paths of a table in text, and its rows; columns are looked at at once."""
    in_json = table.suffix.lower() == ".jsonl"
    rows = _json_rows(table) if in_json else _csv_rows(table)
    if (first := next(rows, None)) is None:
        raise ArgumentError(f"{table}: has no rows; write one for each image")
    names = [name for name, _ in first[1]]
    path, label = _choose_columns(table, names, options, _PATHS)
    if labelled and not in_json and label is None:
        hint = f"its column {SEVERAL} is read with --multi-label" if SEVERAL in names else "call the one of labels so"
        raise ArgumentError(f"{table}: has no column label or class_name, but {and_more(names)}; {hint}")
    return path, chain([first], rows)


@contextmanager
def _text_of(table: Path) -> Iterator[IO[str]]:
    """Open a table in text."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError:
        raise ArgumentError(f"{table}: cannot be read: it is no text in UTF-8; save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise ArgumentError(f"{table}: cannot be read: {reason_of(error)}") from None


def _csv_rows(table: Path) -> Iterator[_Row]:
    head, start = list[str](), 1
    with _text_of(table) as file:
        reader = csv.reader(chain(file, [_END]))
        for cells in reader:
            line, start = start, reader.line_num + 1
            if cells == [_END]:
                break
            if not any(cell.strip() for cell in cells):
                continue
            short = len(cells) < len(head) and any("\n" in cell or "\r" in cell for cell in cells)
            if short or cells[-1].endswith(_END):
                raise ArgumentError(f"{table}, line {line}: a quotation mark in it is not closed")
            if not head:
                head = [title.strip() for title in cells]
                continue
            yield line, [*zip(head, chain(cells, repeat("")))]  # noqa: B905 (a line may be short, or longer)


def _json_rows(table: Path) -> Iterator[_Row]:
    with _text_of(table) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise ArgumentError(f"{table}, line {number}: is no JSON object")
            yield number, [*row.items()]


# Parquet


@contextmanager
def _open_parquet(table: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(table) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        reason = first_reason(error).rstrip(".")
        raise ArgumentError(
            f"{table}: is no Parquet table that can be read: {reason}; copy or write it again"
        ) from None


def _columns_of_parquet(table: Path, schema: Any, options: InputOptions) -> tuple[str, str | None]:
    import pyarrow as pa

    column, label = _choose_columns(table, schema.names, options, ("image",))
    kind = schema.field(column).type
    if pa.types.is_struct(kind):
        kind = kind.field("bytes").type if kind.get_field_index("bytes") >= 0 else kind
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)):
        raise ArgumentError(f"{table}: the column {column} holds {kind} and no bytes; name another with --image-column")
    return column, label


def _cells(table: Path, file: Any, column: str) -> Iterator[Cell]:
    """Yield where the images of a table lie, none of which is read."""
    index = count()
    for group in range(file.num_row_groups):
        for row in range(file.metadata.row_group(group).num_rows):
            yield Cell(str(table), column, group, row, next(index))


def _rows_of_parquet(file: Any, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the cells of some columns by row; without any, empty rows without an end."""
    groups = (file.read_row_group(group, columns).to_pylist() for group in range(file.num_row_groups))
    return chain.from_iterable(groups) if columns else repeat({})


def _named(value: Any, names: list[str]) -> Any:
    """Return the labels of a cell with names in place of numbers, where the table has names."""
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    number = isinstance(value, int | float) and not isinstance(value, bool) and value in range(len(names))
    return names[int(value)] if number else value


def _hugging_face_names(schema: Any, label: str | None) -> list[str]:
    """Return the names of classes that the library datasets has written into a table, none where it has not."""
    try:
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]
        return [str(name) for name in feature.get("feature", feature)["names"]]
    except (KeyError, ValueError, TypeError, AttributeError):
        return []


# Tar archives


def expand_braces(pattern: str) -> list[str]:
    """Return what a pattern such as `shards/{000..999}.tar` stands for, as WebDataset reads it.

    Raises:
        ArgumentError: webdataset is not installed, braces are not closed, or there are more than a million names.
    """
    _need_webdataset(pattern)
    from webdataset.shardlists import expand_urls

    if (count := _count_of_ranges(pattern)) > _MOST_NAMES:
        raise ArgumentError(
            f"{pattern}: stands for {count:,} names, at most {_MOST_NAMES:,} are possible; write a shorter range, or a "
            "pattern with *"
        )
    try:
        return [str(name) for name in expand_urls(pattern)]
    except ValueError:
        raise ArgumentError(f"{pattern}: a brace is not closed; write a range as {{000..999}}") from None


def _count_of_ranges(pattern: str) -> int:
    """Return how many names the ranges of numbers in a pattern stand for, before there is one of them."""
    ranges = [map(int, match.groups(default="1")) for match in _RANGE.finditer(pattern)]
    return prod(abs(last - first) // max(1, abs(step)) + 1 for first, last, step in ranges)


def _need_webdataset(what: str) -> None:
    if find_spec("webdataset") is None:
        raise ArgumentError(f"{what}: needs webdataset: pip install 'faircontext[webdataset]'")


def _twice(archive: Path, name: str) -> ArgumentError:
    return ArgumentError(f"{archive}: has two files called {name}; rename one of them")


class _UnreadLabels:
    """Files of an archive that might say a label and are not read as one, and why; 8 bytes of memory for a sample."""

    def __init__(self) -> None:
        self.invalid, self._dotted = list[str](), list[str]()
        self._unlabelled, self._apart = array("Q"), array("Q")

    def take(self, sample: Mapping[str, Any], label: object) -> None:
        """Look at a sample and the label that is read from it."""
        key, images = sample["__key__"], [end for end, value in sample.items() if isinstance(value, Member)]
        if not images and label is not None:
            self._apart.append(short_digest(key))
        elif images and label is None:
            self._unlabelled.append(short_digest(key))
            # "22.05.jpg" beside "22.05.cls", or beside one of another name, which no image's own text has.
            stems = {end.rpartition(".")[0] for end in images} - {""}
            texts = (end.rpartition(".") for end, value in sample.items() if isinstance(value, bytes))
            ends = [f"{stem}.{end}" for stem, _, end in texts if stem in stems or (stem and end == "cls")]
            self._dotted += [f"{key}.{end}" for end in ends]

    def lines(self) -> list[str]:
        """Return what labels were not read, and how they would be, a line for each reason."""
        lines = []
        if self.invalid:
            reason = "not valid JSON; correct it and pack the archive again"
            lines.append(f"no label is taken from {and_more(self.invalid)}: {reason}")
        if self._dotted:
            reason = "a sample's name ends at its first point; leave the others out and pack the archive again"
            lines.append(f"no label is taken from {and_more(self._dotted)}: {reason}")
        if apart := len(np.intersect1d(np.asarray(self._unlabelled), np.asarray(self._apart))):
            reason = "do not lie beside them, and are not read; pack the archive in order of names (tar --sort=name)"
            lines.append(f"the labels of {counted(apart, 'image')} {reason}")
        return lines


def _images_of_tar(archive: Path) -> Iterator[Member]:
    contents = (file["data"] for file in _members(archive, lambda _: None, Walk([])))
    return (content for content in contents if isinstance(content, Member))


def _members(archive: Path, say: Callable[[str], None], walk: Walk) -> Iterator[dict[str, Any]]:
    """Yield the files of an archive: images as where they lie, small text as its bytes, in WebDataset's form."""
    offsets, unread = cache(lambda: _places(archive)), list[str]()
    try:
        size = archive.stat().st_size
        with tarfile.open(archive, "r:") as tar:
            for member in _headers(archive, tar, say):
                if member.isdir() or not walk.keeps(member.name):
                    continue
                if member.islnk() and (offset := offsets().get(member.linkname)):
                    member.type, (member.offset_data, member.size) = tarfile.REGTYPE, offset
                    offsets()[member.name] = offset
                if not member.isreg() or member.issparse():
                    unread.append(member.name)
                    continue
                suffix, complete = Path(member.name).suffix.lower(), member.offset_data + member.size <= size
                value: Member | bytes | None = None
                if suffix in image_extensions():
                    value = Member(str(archive), member.name, member.offset_data, member.size)
                elif suffix in (".cls", ".json", ".txt") and member.size < _MOST_LABEL_BYTES and complete:
                    file = tar.extractfile(member)
                    value = b"" if file is None else file.read()
                else:
                    walk.pass_over(member.name)
                if not complete:
                    say(f"{archive}: is cut short within {member.name}; what came after it is missing; {_AGAIN}")
                yield {"fname": normpath(member.name), "data": value, "__url__": str(archive)}
    except tarfile.ReadError as error:
        kind = COMPRESSED if _is_compressed(archive) else f"{error}; {_AGAIN}"
        raise ArgumentError(f"{archive}: is no tar archive that can be read: {kind}") from None
    except OSError as error:
        raise ArgumentError(f"{archive}: cannot be read: {reason_of(error)}") from None
    if unread:
        fix = "pack the files themselves (tar --dereference, without --sparse)"
        say(f"{archive}: links and sparse files are not read, {len(unread):,} in all: {and_more(unread)}; {fix}")


def _places(archive: Path) -> dict[str, tuple[int, int]]:
    """Return where the bytes of an archive's files begin and how many there are, by name, for links to them."""
    with tarfile.open(archive, "r:") as tar:
        files = (member for member in _headers(archive, tar) if member.isreg() and not member.issparse())
        return {file.name: (file.offset_data, file.size) for file in files}


def _headers(
    archive: Path, tar: tarfile.TarFile, say: Callable[[str], None] = lambda _: None
) -> Iterator[tarfile.TarInfo]:
    """Yield the members up to the end, or to where the archive is cut short or damaged."""
    while True:
        begin = tar.offset
        try:
            member = tar.next()
        except tarfile.ReadError:
            if not begin:
                raise
            return  # within a member, which has been said
        if member is None:
            break
        tar.members = []  # type: ignore[attr-defined]  # they would be kept
        yield member
    if begin:
        with archive.open("rb") as file:
            file.seek(begin)
            block, rest = file.read(_BLOCK), iter(lambda: file.read(1 << 16), b"")
            joined = not any(block) and any(content.strip(b"\0") for content in rest)
        if any(block) or len(block) < _BLOCK:
            why = "as of an archive that is cut short or damaged; what came after is missing"
            say(f"{archive}: has no end, {why}; {_AGAIN}")
        elif joined:
            say(f"{archive}: another archive is joined to its end, and is not read; keep it in a file of its own")


def _is_compressed(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(6).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"))


# Images found again

_NOT_SAID = "the run does not say where its images are"
_GONE = "no such file"


@dataclass(frozen=True)
class Place:
    """Where the images of a run lie.

    Attributes:
        folder: that the names of images are below, empty where that is not known.
        part: corruption and severity of a data set whose images may lie in arrays, as in `fog:3`; else empty.
        image_column: of Parquet tables, None for `image`.
    """

    folder: str
    part: str = ""
    image_column: str | None = None

    def find(self, keys: Iterable[str]) -> tuple[dict[str, Source], dict[str, str]]:
        """Return where images lie by name, and for the others why they are not found; none is read.

        Args:
            keys: what images are called in rows, see `Sample`.
        """
        sources, reasons = dict[str, Source](), dict[str, str]()
        inside: dict[str, dict[str, str]] = {}
        for key in keys:
            if is_address(key):
                sources[key] = Remote(key)
            elif not self.folder:
                reasons[key] = _NOT_SAID
            elif (path := Path(self.folder, key)).is_file():
                sources[key] = path
            else:
                holder = next(self._holders(key), "")
                inside.setdefault(holder, {})[key] = key[len(holder) :].lstrip("/") if holder else key
        for holder, names in inside.items():
            wanted = {*names.values()}
            try:
                inner_sources = {name: source for name, source in self._within(holder) if name in wanted}
            except ArgumentError as error:
                reasons |= dict.fromkeys(names, str(error))
                continue
            sources |= {key: inner_sources[name] for key, name in names.items() if name in inner_sources}
            reason = f"{Path(self.folder, holder)} has no such image any more" if holder or self.part else _GONE
            reasons |= {key: reason for key, name in names.items() if name not in inner_sources}
        return sources, reasons

    def _holders(self, key: str) -> Iterator[str]:
        """Yield the beginnings of a name that are archives or tables."""
        for end in (position for position, letter in enumerate(key) if letter == "/"):
            start = key[:end]
            if start.lower().endswith((".tar", ".parquet")) and Path(self.folder, start).is_file():
                yield start

    def _within(self, holder: str) -> Iterator[tuple[str, Source]]:
        """Yield what images are called in an archive, a table or the array of a corruption, and where they lie."""
        path = Path(self.folder, holder)
        if holder.lower().endswith(".tar"):
            yield from ((member.name, member) for member in _images_of_tar(path))
        elif holder:
            with _open_parquet(path) as file:
                options = InputOptions(image_column=self.image_column)
                cells = _cells(path, file, _columns_of_parquet(path, file.schema_arrow, options)[0])
                yield from ((str(cell.index), cell) for cell in cells)
        for corruption in parse_corruptions([self.part] if self.part and not holder else []):
            if corruption is not None and (array_file := Path(self.folder, f"{corruption.name}.npy")).is_file():
                yield from rows_of_array(array_file, corruption.severity)
