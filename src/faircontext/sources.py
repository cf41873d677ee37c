"""Where an image's bytes lie if it is no file: in a tar archive, a Parquet table, a NumPy array, another file system.

Each is known by what it is called in rows, is small, and goes to other processes as it is: bytes are read when the
image's turn comes. What was sent to a service has been read already.
"""

import io
import os
import re
import threading
from dataclasses import dataclass, field
from errno import errorcode
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from faircontext.errors import ArgumentError, first_reason
from faircontext.imagefiles import BinaryFile, UnreadableError, open_regular


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an uncompressed tar archive.

    Attributes:
        archive: the archive's file.
        name: of the member.
        offset: where its bytes begin in the archive.
        size: how many there are.
    """

    archive: str
    name: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.archive}/{self.name}"

    def open(self) -> BinaryFile:
        """Read the member.

        Raises:
            UnreadableError: the archive is not there any more, or ends before the member does.
        """
        with open_regular(Path(self.archive)) as file:
            file.seek(self.offset)
            content = file.read(self.size)
        if len(content) < self.size:
            raise UnreadableError(
                f"the archive is cut short: it has {len(content):,} of the member's {self.size:,} bytes"
            )
        return io.BytesIO(content)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a Parquet table: bytes, or a structure of `bytes` and `path` as the library datasets writes them.

    Where there are no bytes, the path is that of a file, relative to the table's folder.

    Attributes:
        table: the table's file.
        column: name of the column.
        group: index of the row group.
        row: index of the row in its group.
        index: index of the row in the table.
    """

    table: str
    column: str
    group: int
    row: int
    index: int

    def __str__(self) -> str:
        return f"{self.table}/{self.index}"

    def open(self) -> BinaryFile:
        """Read the cell.

        Raises:
            UnreadableError: the table cannot be read, or the cell holds no bytes and no path of a file.
        """
        column = _column_of(self.table, self.group, self.column)
        if self.row >= len(column):
            raise UnreadableError("the table has no such row any more")
        value = column[self.row].as_py()
        content, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
        if content is not None:
            return io.BytesIO(content)
        if not path:
            raise UnreadableError("the cell holds no bytes")
        try:
            return open_regular(Path(self.table).parent / path)
        except (UnreadableError, OSError, ValueError) as error:
            raise UnreadableError(f"the cell holds no bytes, but the path {path}: {first_reason(error)}") from None


def _state(path: str | Path) -> tuple[int, ...]:
    """Return what tells a file from one that is written in its place."""
    status = os.stat(path)  # noqa: PTH116 (a string does as well)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


_LOCK = threading.Lock()


def _column_of(table: str, group: int, name: str) -> Any:
    """Return the column of a row group; several threads read neighbours, for which it is read once."""
    import pyarrow as pa

    try:
        with _LOCK:
            return _read_column(table, group, name, _state(table))
    except (OSError, pa.ArrowException, IndexError) as error:
        raise UnreadableError(f"the table cannot be read: {first_reason(error)}") from None


@lru_cache(maxsize=2)
def _read_column(table: str, group: int, name: str, _: tuple[int, ...]) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(table) as file:
        return file.read_row_group(group, [name]).column(0)


@dataclass(frozen=True, slots=True)
class Remote:
    """A file of a file system that fsspec names.

    Attributes:
        url: with the file system's name before `://`.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def open(self) -> BinaryFile:
        """Read the file.

        Raises:
            UnreadableError: it cannot be read.
        """
        protocol, _, path = self.url.partition("://")
        try:
            return io.BytesIO(file_system(protocol).cat_file(path if protocol == "file" else self.url))
        except Exception as error:  # each file system has errors of its own
            raise UnreadableError(reason_at_address(error)) from None


@dataclass(frozen=True, slots=True)
class Content:
    """An image in memory, for example one that was sent.

    Attributes:
        name: what it is called.
        content: of the file.
    """

    name: str
    content: bytes = field(repr=False)

    def __str__(self) -> str:
        return self.name

    def open(self) -> BinaryFile:
        """Read the content."""
        return io.BytesIO(self.content)


_PROTOCOL = r"[A-Za-z][A-Za-z0-9+.-]*"
_ADDRESS = re.compile(f"(?:{_PROTOCOL}::)*{_PROTOCOL}://")


def is_address(word: str) -> bool:
    """Return whether a word begins with the name of a file system, or of one in another as in `a::b`, and `://`."""
    return _ADDRESS.match(word) is not None


@cache
def file_system(protocol: str) -> Any:
    """Return a file system that fsspec knows.

    Raises:
        ValueError: it knows none of this name, or it is one inside a file of another.
    """
    import fsspec
    from fsspec.archive import AbstractArchiveFileSystem

    try:
        inside = "::" in protocol or issubclass(fsspec.get_filesystem_class(protocol), AbstractArchiveFileSystem)
        system = None if inside else fsspec.filesystem(protocol)
    except ValueError:
        if protocol in fsspec.available_protocols():
            raise
        raise ValueError(f"no file system is called {protocol!r}; use one of fsspec's, such as https or s3") from None
    if system is None:
        raise ValueError("it is inside another file; unpack or copy that, and name the folder")
    return system


def reason_at_address(error: Exception) -> str:
    """Return why something at an address cannot be read.

    The web's file system says of every failure that no file is there; the cause of its error says what it was.
    """
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
    if isinstance(cause, Exception) and (isinstance(cause, OSError) or hasattr(cause, "status")):
        error = cause
    status, number = getattr(error, "status", None), getattr(error, "errno", None)
    if isinstance(error, FileNotFoundError) or status == 404:
        return "no such file or folder"
    if status is not None:
        return f"cannot be read: {status} {getattr(error, 'message', '')}".rstrip()
    # A library has words of its own for what the system says.
    system = os.strerror(number).lower() if isinstance(number, int) and number in errorcode else ""
    return f"cannot be read: {system or first_reason(error)}"


@dataclass(frozen=True, slots=True)
class ArrayRow:
    """An image of an array of images, in a file of NumPy.

    Attributes:
        array: the file.
        row: index of the image.
    """

    array: str
    row: int

    def __str__(self) -> str:
        return f"{self.array}/{self.row}"

    def open(self) -> BinaryFile:
        """Read the image, as a file of the format PPM, which holds pixels as they are.

        Raises:
            UnreadableError: the array cannot be read, or has no such image.
        """
        try:
            pixels = map_images(Path(self.array))[self.row]
        except (ArgumentError, IndexError) as error:
            raise UnreadableError(f"the array cannot be read: {error}") from None
        height, width, _ = pixels.shape
        return io.BytesIO(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes())


def map_images(path: Path) -> UInt8[np.ndarray, "images height width 3"]:
    """Map a file of NumPy that holds RGB images into memory.

    Raises:
        ArgumentError: it cannot be read, or is no array of shape (images, height, width, 3) and type uint8.
    """
    images = map_array(path)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or 0 in images.shape:
        raise ArgumentError(
            f"{path}: has shape {images.shape} and type {images.dtype}; must be (pictures, height, width, 3) of "
            "type uint8"
        )
    return images


def map_array(path: Path) -> np.ndarray:
    """Map a file of NumPy into memory; it is never unpickled.

    Raises:
        ArgumentError: it cannot be read.
    """
    try:
        return _map(path, _state(path))
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(f"{path}: cannot be read as an array of NumPy: {first_reason(error)}") from None


@lru_cache(maxsize=8)
def _map(path: Path, _: tuple[int, ...]) -> np.ndarray:
    array: np.ndarray = np.lib.format.open_memmap(path, mode="r")
    return array


Source = Path | ArrayRow | Cell | Content | Member | Remote
"""Where an image lies."""


def open_source(source: Source) -> BinaryFile:
    """Open an image's bytes.

    Raises:
        UnreadableError: they cannot be read.
    """
    return open_regular(source) if isinstance(source, Path) else source.open()
