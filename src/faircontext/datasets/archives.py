"""Images inside other files, found and not yet read: members of tar archives, as of WebDataset, and Parquet cells."""

import json
import re
import tarfile
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from faircontext.datasets.folder import Walk
from faircontext.datasets.label_encoder import SEVERAL, UNREAD, column_of_labels
from faircontext.datasets.listing import short_digest
from faircontext.datasets.spec import Truth
from faircontext.errors import ArgumentError, and_more, counted, first_reason, reason_of
from faircontext.imageio import image_extensions
from faircontext.sources import Cell, Member, Source

__all__ = [
    "COMPRESSED",
    "Found",
    "expand_braces",
    "find_cells",
    "find_members",
    "hugging_face_names",
    "parquet_images",
    "tar_images",
]


class Found(NamedTuple):
    """An image that was found.

    Attributes:
        key: what it is called in rows.
        source: where it lies.
        label: what is written of its class, see `LabelEncoder`.
        truth: what an encoder has made of that.
    """

    key: str
    source: Source
    label: object = None
    truth: Truth = None


COMPRESSED = "it is compressed; unpack it into a folder, or pack it again without compression (tar -cf)"
"""What is said of an archive whose members cannot be found by their headers."""

_AGAIN = "copy or pack it again"
_LABEL_FIELDS = ("label", "cls", "class", "class_name")
_MOST_LABEL_BYTES = 1 << 20
_BLOCK = 512
_MOST_NAMES = 1_000_000
_RANGE = re.compile(r"\{(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\}")


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


def tar_images(archive: Path, say: Callable[[str], None], walk: Walk, several: bool = False) -> Iterator[Found]:
    """Yield the images of a tar archive, in its order; files of one name without its extensions are one sample.

    A sample's label is what its file `cls` says, or a field of its file `json`, or its file `txt`. Every picture of a
    sample is an image. A file that might say a label and is not read as one is a warning.

    Args:
        archive: an uncompressed tar file.
        say: takes warnings, a line each.
        walk: counts what is left out as clutter of a system and what is passed over.
        several: whether an image may have several labels: then a field `labels` goes before.

    Raises:
        ArgumentError: it is no such archive, holds two files of one name, or webdataset is not installed.
    """
    _need_webdataset(str(archive))
    from webdataset.tariterators import group_by_keys

    samples, unread, names = group_by_keys(_members(archive, say, walk)), _UnreadLabels(), array("Q")
    while True:
        try:
            sample = next(samples, None)
        except ArgumentError:
            raise
        except ValueError as error:  # of two files of one name
            raise _twice(archive, str(error.args[0]).partition(": duplicate")[0]) from None
        if sample is None:
            break
        fields = _fields_of(sample)
        label = _label_of(sample, fields or {}, several)
        unread.take(sample, fields, label)
        for value in sample.values():
            if isinstance(value, Member):
                names.append(short_digest(value.name))
                yield Found(str(value), value, label)
    if len(np.unique(names)) < len(names):  # not beside each other, as `tar -r` adds a file once more
        raise _twice(archive, Counter(picture.name for picture in _pictures(archive)).most_common(1)[0][0])
    for line in unread.warnings():
        say(f"{archive}: {line}")


def _twice(archive: Path, name: str) -> ArgumentError:
    return ArgumentError(f"{archive}: has two files called {name}; rename one of them")


class _UnreadLabels:
    """Files of an archive that might say a label and are not read as one, and why; 8 bytes of memory for a sample."""

    def __init__(self) -> None:
        self._invalid, self._dotted = list[str](), list[str]()
        self._unlabelled, self._apart = array("Q"), array("Q")

    def take(self, sample: dict[str, Any], fields: dict[str, Any] | None, label: object) -> None:
        """Look at a sample, what its `json` says, and the label that is read from both."""
        key, pictures = sample["__key__"], [end for end, value in sample.items() if isinstance(value, Member)]
        if fields is None:
            self._invalid.append(f"{key}.json")
        if not pictures and label is not None:
            self._apart.append(short_digest(key))
        elif pictures and label is None:
            self._unlabelled.append(short_digest(key))
            # "22.05.jpg" beside "22.05.cls", or beside one of another name, which no picture's own text has.
            stems = {end.rpartition(".")[0] for end in pictures} - {""}
            texts = (end.rpartition(".") for end, value in sample.items() if isinstance(value, bytes))
            ends = [f"{stem}.{end}" for stem, _, end in texts if stem in stems or (stem and end == "cls")]
            self._dotted += [f"{key}.{end}" for end in ends]

    def warnings(self) -> list[str]:
        """Return what labels were not read, and how they would be, a line for each reason."""
        lines = []
        if self._invalid:
            reason = "not valid JSON; correct it and pack the archive again"
            lines.append(f"no label is taken from {and_more(self._invalid)}: {reason}")
        if self._dotted:
            reason = "a sample's name ends at its first point; leave the others out and pack the archive again"
            lines.append(f"no label is taken from {and_more(self._dotted)}: {reason}")
        if apart := len(np.intersect1d(np.asarray(self._unlabelled), np.asarray(self._apart))):
            reason = "do not lie beside them, and are not read; pack the archive in order of names (tar --sort=name)"
            lines.append(f"the labels of {counted(apart, 'image')} {reason}")
        return lines


def find_members(archive: Path, names: Collection[str]) -> dict[str, Member]:
    """Return where some pictures lie in a tar archive, by name; those that are not in it are left out.

    Raises:
        ArgumentError: it is no such archive.
    """
    return {one.name: one for one in _pictures(archive) if one.name in names}


def _pictures(archive: Path) -> Iterator[Member]:
    contents = (file["data"] for file in _members(archive, lambda _: None, Walk([])))
    return (content for content in contents if isinstance(content, Member))


def _members(archive: Path, say: Callable[[str], None], walk: Walk) -> Iterator[dict[str, Any]]:
    """Yield the files of an archive: pictures as where they lie, small text as its bytes, in WebDataset's form."""
    places, unread = cache(lambda: _places(archive)), list[str]()
    try:
        size = archive.stat().st_size
        with tarfile.open(archive, "r:") as tar:
            for member in _headers(archive, tar, say):
                if member.isdir() or not walk.keeps(member.name):
                    continue
                if member.islnk() and (place := places().get(member.linkname)):
                    member.type, (member.offset_data, member.size) = tarfile.REGTYPE, place
                    places()[member.name] = place
                if not member.isreg() or member.issparse():
                    unread.append(member.name)
                    continue
                suffix, whole = Path(member.name).suffix.lower(), member.offset_data + member.size <= size
                value: Member | bytes | None = None
                if suffix in image_extensions():
                    value = Member(str(archive), member.name, member.offset_data, member.size)
                elif suffix in (".cls", ".json", ".txt") and member.size < _MOST_LABEL_BYTES and whole:
                    file = tar.extractfile(member)
                    value = b"" if file is None else file.read()
                else:
                    walk.pass_over(member.name)
                if not whole:
                    say(f"{archive}: is cut short within {member.name}; what came after it is missing; {_AGAIN}")
                yield {"fname": member.name, "data": value, "__url__": str(archive)}
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


def _fields_of(sample: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a sample's `json` where labels are read from it; None where it is not valid."""
    content = sample.get("json")
    if not isinstance(content, bytes) or isinstance(sample.get("cls"), bytes):
        return {}
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else {}


def _label_of(sample: dict[str, Any], fields: dict[str, Any], several: bool) -> object:
    """Return what a sample says of its class, or of its classes."""
    if isinstance(content := sample.get("cls"), bytes):
        return content
    for field in (SEVERAL, *_LABEL_FIELDS) if several else _LABEL_FIELDS:
        if (value := fields.get(field)) is not None:
            return value
    return sample.get("txt")


def parquet_images(
    table: Path, image_column: str | None, label_column: str | None, several: bool = False
) -> Iterator[Found]:
    """Yield the images of a Parquet table: a row each, known by the table's name and the row's number from 0.

    Args:
        table: the file.
        image_column: holds bytes, or structures with `bytes` in them; None for `image`.
        label_column: holds indices or names of classes; None for the first of the usual names, if there is one.
        several: whether an image may have several labels: then the column holds lists, or texts with `;` between, and
            `labels` goes before the others.

    Raises:
        ArgumentError: it is no Parquet table, or has no such column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(table) as file:
            schema = file.schema_arrow
            column = _image_column(table, schema, image_column)
            label = column_of_labels(schema.names, label_column, several)
            if unread := label is None and SEVERAL in schema.names:
                label = SEVERAL
            if label is not None:
                _check_once(table, label, schema, "label")
            names, number = hugging_face_names(schema, label), 0
            for group in range(file.num_row_groups):
                labels = None if label is None else file.read_row_group(group, [label]).column(0)
                for row in range(file.metadata.row_group(group).num_rows):
                    value: Any = None if labels is None else labels[row].as_py()
                    cell = Cell(str(table), column, group, row, number)
                    known = _named(value, names) if not unread else UNREAD if value not in (None, "", []) else None
                    yield Found(str(cell), cell, known)
                    number += 1
    except (OSError, pa.ArrowException) as error:
        raise _no_table(table, error) from None


def find_cells(table: Path, image_column: str | None, rows: Collection[int]) -> dict[int, Cell]:
    """Return some cells of a Parquet table by the number of their row, from 0; those that it lacks are left out.

    Raises:
        ArgumentError: it is no Parquet table, or has no such column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(table) as file:
            column = _image_column(table, file.schema_arrow, image_column)
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    except (OSError, pa.ArrowException) as error:
        raise _no_table(table, error) from None
    starts = [0, *accumulate(sizes)]
    groups = {row: bisect_right(starts, row) - 1 for row in rows if 0 <= row < starts[-1]}
    return {row: Cell(str(table), column, group, row - starts[group], row) for row, group in groups.items()}


def _no_table(table: Path, error: Exception) -> ArgumentError:
    said = first_reason(error).rstrip(".")
    return ArgumentError(f"{table}: is no Parquet table that can be read: {said}; copy or write it again")


def _image_column(table: Path, schema: Any, asked: str | None) -> str:
    import pyarrow as pa

    column = asked or "image"
    _check_once(table, column, schema, "image")
    kind = schema.field(column).type
    if pa.types.is_struct(kind):
        kind = kind.field("bytes").type if kind.get_field_index("bytes") >= 0 else kind
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)):
        raise ArgumentError(f"{table}: the column {column} holds {kind} and no bytes; name another with --image-column")
    return column


def _check_once(table: Path, column: str, schema: Any, option: str) -> None:
    if (count := schema.names.count(column)) > 1:
        raise ArgumentError(f"{table}: has the column {column!r} twice; which of them counts?")
    if not count:
        raise ArgumentError(
            f"{table}: has no column {column!r}, but {and_more(schema.names)}; name one with --{option}-column"
        )


def _named(value: Any, names: list[str]) -> Any:
    """Return the labels of a cell with names in place of numbers, where the table has names."""
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    number = isinstance(value, int | float) and not isinstance(value, bool) and value in range(len(names))
    return names[int(value)] if number else value


def hugging_face_names(schema: Any, label: str | None) -> list[str]:
    """Return the names of classes that the library datasets has written into a table, none where it has not."""
    try:
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]
        return [str(name) for name in feature.get("feature", feature)["names"]]
    except (KeyError, ValueError, TypeError, AttributeError):
        return []
