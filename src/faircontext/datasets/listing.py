"""A long list of images at a few bytes of memory an image: it is kept in a file and read as it is walked through."""

import json
import os
import tempfile
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, overload

import numpy as np

from faircontext.datasets.spec import BLANK, Dataset, Sample, Truth
from faircontext.errors import ArgumentError
from faircontext.files import digest_of_json
from faircontext.sources import ArrayRow, Cell, Member, Remote, Source

_KINDS: dict[str, Any] = {"member": Member, "cell": Cell, "remote": Remote, "array": ArrayRow}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_READ_AT_ONCE = 1 << 16
_NO_LABEL = -1
_FIRST_SET = -2
"""Stands for the first set of labels, the number below for the second."""


class ImageList(Sequence[Sample]):
    """Images in an order, in a file without a name that goes with the process; labels may be set later.

    An image costs twelve bytes of memory: where its line begins, and its label, or which of the sets of labels that
    occur is its own.

    Args:
        samples: the first images.
    """

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the list)
        weakref.finalize(self, self._file.close)
        self._starts, self._end = array("Q"), 0
        self._labels = array("i")
        self._sets: dict[tuple[int, ...], int] = {}
        self._ordered: list[tuple[int, ...]] = []
        self.extend(samples)

    def append(self, sample: Sample) -> None:
        """Add an image at the end."""
        line = _encode(sample.key, sample.path)
        self._file.write(line)
        self._starts.append(self._end)
        self._end += len(line)
        self._labels.append(self._number_of(sample.truth))

    def extend(self, samples: Iterable[Sample]) -> None:
        """Add images at the end, those of another list as they lie in its file."""
        if not isinstance(samples, ImageList):
            for sample in samples:
                self.append(sample)
            return
        self._starts.frombytes((np.asarray(samples._starts, np.uint64) + np.uint64(self._end)).tobytes())
        self._labels.extend(self._number_of(samples._truth_of(number)) for number in samples._labels)
        for block in samples._blocks():
            self._file.write(block)
        self._end += samples._end

    def _blocks(self) -> Iterator[bytes]:
        start = 0
        self._file.flush()
        while block := os.pread(self._file.fileno(), _READ_AT_ONCE, start):
            start += len(block)
            yield block

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        self._file.flush()
        start = self._starts[position]
        stop = self._starts[position + 1] if position + 1 < len(self) else self._end
        return self._decode(os.pread(self._file.fileno(), stop - start, start), position)

    def __iter__(self) -> Iterator[Sample]:
        return (self._decode(line, position) for position, line in enumerate(self._lines()))

    def names(self) -> Iterator[str]:
        """Yield the names of the images."""
        return (json.loads(line)[0] for line in self._lines())

    def unlabelled(self) -> Iterator[tuple[int, Sample]]:
        """Yield the images whose class is not known, with their positions."""
        for position, line in enumerate(self._lines()):
            if self._labels[position] == _NO_LABEL:
                yield position, self._decode(line, position)

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for block in self._blocks():
            *lines, rest = (rest + block).split(b"\n")
            yield from lines

    def _decode(self, line: bytes, position: int) -> Sample:
        key, kind, *facts = json.loads(line)
        source = _KINDS[kind](*facts) if kind else Path(facts[0] if facts else key)
        return Sample.of(key, source, self._truth_of(self._labels[position]))

    def _number_of(self, truth: Truth) -> int:
        """Return the number that stands for a class, none, or a set of classes."""
        if truth is None:
            return _NO_LABEL
        return truth if isinstance(truth, int) else _FIRST_SET - self._sets.setdefault(truth, len(self._sets))

    def _truth_of(self, number: int) -> Truth:
        if number >= _NO_LABEL:
            return None if number == _NO_LABEL else number
        if len(self._ordered) < len(self._sets):
            self._ordered = [*self._sets]
        return self._ordered[_FIRST_SET - number]

    def set_label(self, position: int, label: Truth) -> None:
        """Say which class or classes an image is of."""
        self._labels[position] = self._number_of(label)

    def decode(self, truth_of: Callable[[Truth], Truth]) -> None:
        """Replace labels by what a function makes of them, which is asked once for each that occurs."""
        labels = np.asarray(self._labels, np.int32)
        numbers, inverse = np.unique(labels, return_inverse=True)
        new = np.array([self._number_of(truth_of(self._truth_of(number))) for number in numbers.tolist()], np.int32)
        self._labels = array("i", new[inverse].tobytes())

    @property
    def labelled(self) -> bool:
        """Whether an image has a label."""
        return any(number != _NO_LABEL for number in self._labels)

    def labelled_twice(self, digests: "array[int]") -> tuple[int, int] | None:
        """Return the two positions of a name that stands twice, once at least with a label; None without any.

        Args:
            digests: of all names, see `short_digest`.
        """
        hashes = np.asarray(digests)
        order = np.argsort(hashes, kind="stable")
        known = np.asarray(self._labels, np.int32)[order] != _NO_LABEL
        twice = (hashes[order][1:] == hashes[order][:-1]) & (known[1:] | known[:-1])
        if not twice.any():
            return None
        second = int(order[1:][twice].min())
        return int(np.flatnonzero(hashes == hashes[second])[0]), second

    def label_finder(self, digests: "array[int]") -> Callable[[str], Truth]:
        """Return a function that returns the label of an image by its name; None where it is not in the list.

        Args:
            digests: of all names, see `short_digest`.
        """
        hashes = np.asarray(digests)
        order = np.argsort(hashes)
        hashes = hashes[order]

        def find(key: str) -> Truth:
            digest = np.uint64(short_digest(key))
            at = int(np.searchsorted(hashes, digest))
            is_listed = at < len(hashes) and hashes[at] == digest
            return self._truth_of(self._labels[order[at]]) if is_listed else None

        return find

    def without_doubles(self, where: str = "what is given") -> "ImageList":
        """Return the list with each name once, where it stands first, and with its label, wherever that stands.

        Args:
            where: labels come from, for the message.

        Raises:
            ArgumentError: a name has two labels. Names are compared by 64-bit digests.
        """
        digests = np.fromiter(map(short_digest, self.names()), np.uint64, len(self))
        _, first, names = np.unique(digests, return_index=True, return_inverse=True)
        if len(first) == len(self):
            return self
        numbers, labels = np.asarray(self._labels, np.int32), np.full(len(first), _NO_LABEL, np.int32)
        labels[names[numbers == BLANK]] = BLANK
        known = (numbers != _NO_LABEL) & (numbers != BLANK)
        labels[names[known]] = numbers[known]
        if (conflicts := np.flatnonzero(known & (numbers != labels[names]))).size:
            raise ArgumentError(f"{self[int(conflicts[0])].key}: has two labels in {where}; take one of them away")
        self._labels = array("i", labels[names].tobytes())
        keep = np.zeros(len(self), np.bool_)
        keep[first] = True
        return ImageList(sample for sample, kept in zip(self, keep, strict=True) if kept)

    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, over (name, size in bytes, label) of the images in their order."""
        total = sha256()
        for sample in self:
            total.update(json.dumps([sample.key, size_of(sample.path), sample.truth]).encode())
        return total.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        self._file.flush()
        content = zlib.compress(os.pread(self._file.fileno(), self._end, 0), 1)
        return _restore, (content, self._labels.tobytes(), [*self._sets])


def _restore(content: bytes, labels: bytes, sets: Sequence[tuple[int, ...]]) -> ImageList:
    images = ImageList()
    images._sets = {classes: number for number, classes in enumerate(sets)}
    plain = zlib.decompress(content)
    images._file.write(plain)
    ends = np.flatnonzero(np.frombuffer(plain, np.uint8) == 10).astype(np.uint64) + 1
    images._starts = array("Q", [0, *ends[:-1].tolist()] if len(ends) else [])
    images._end = len(plain)
    images._labels = array("i", labels)
    return images


def _encode(key: str, source: Source) -> bytes:
    """Return a line; JSON's escapes keep line breaks and stray bytes of names."""
    if isinstance(source, Path):
        facts = ["", *([] if str(source) == key and str(Path(key)) == key else [str(source)])]
    else:
        facts = [_NAMES[type(source)], *astuple(source)]
    return json.dumps([key, *facts]).encode() + b"\n"


def data_hash(dataset: Dataset) -> str:
    """Return the SHA-256, in hexadecimal, over the sorted (key, size in bytes, label) of the images.

    Those of an `ImageList` count in their own order: they are too many to sort.
    """
    if isinstance(dataset.samples, ImageList):
        return dataset.samples.digest()
    return digest_of_json(sorted((sample.key, size_of(sample.path), sample.truth) for sample in dataset.samples))


def short_digest(key: str) -> int:
    """Return a 64-bit digest of a name."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def size_of(source: Source) -> int:
    """Return how many bytes an image has, -1 where the file is not there: it will be a row with an error."""
    if isinstance(source, Path):
        try:
            return os.stat(source).st_size  # noqa: PTH116 (three times as fast as through Path, for 50,000 files)
        except (OSError, ValueError):
            return -1
    if isinstance(source, Member):
        return source.size
    if isinstance(source, ArrayRow):
        return source.row
    return source.index if isinstance(source, Cell) else -1
