"""Photos sorted into a folder for each answer: a sink of a run, and what undoes it.

A manifest names each copy before it is made. Whatever stops a run, no copy is missing there, and what is named there
and was not made yet is made by the next call.
"""

import csv
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from faircontext.datasets.spec import Sample
from faircontext.errors import ArgumentError, reason_of
from faircontext.files import digest, replacing, writing
from faircontext.imagefiles import BinaryFile, UnreadableError
from faircontext.names import as_file_name, as_folder_names
from faircontext.runs.records import Answer
from faircontext.sources import Member, Remote, Source, is_address, open_source

MANIFEST = "sorted.csv"
"""Of the copies in a folder: from what, below which name, and their SHA-256, or `link`."""

APART = ("none of these", "unreadable")
"""Folders of photos without an answer; where a class is called so, its folder has a number."""

_COLUMNS, _LINK, _PARTIAL = ["source", "copy", "sha256"], "link", ".sorting.partial"
_BELOW = re.compile(r"[^./][^/]*/[^./][^/]*")
_AS_TEXT: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "newline": ""}  # any name of a file
_AS_ROWS: dict[str, Any] = {"quoting": csv.QUOTE_ALL, "lineterminator": "\n"}


class Sorter(AbstractContextManager["Sorter"]):
    """Copies each photo, or a link to it, into the folder of its answer; no file is ever replaced.

    Args:
        folder: where the folders of answers are made; photos that are sorted there already stay as they are.
        samples: all images of the run, by position.
        names: of the classes.
        link: whether to make symbolic links in place of copies.

    Raises:
        ArgumentError: the folder cannot be written, or has a file with the manifest's name that is none.
    """

    def __init__(self, folder: Path, samples: Sequence[Sample], names: Sequence[str], link: bool) -> None:
        self._folder, self._samples, self._link = folder, samples, link
        _, self._unknown, self._unreadable, *self._classes = as_folder_names([MANIFEST, *APART, *names])
        self._counts, self._numbers, path = Counter[str](), Counter[str](), folder / MANIFEST
        earlier = _read(folder) if path.exists() else []
        self._done = {origin: copy.partition("/")[0] for origin, copy, _ in earlier}
        self._undo = f"faircontext unsort {shlex.quote(str(folder))}"
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            _write(path, earlier)
            self._file = path.open("a", **_AS_TEXT)
        self._writer = csv.writer(self._file, **_AS_ROWS)

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answer for an image.

        Raises:
            ArgumentError: the copy cannot be written, or an earlier call has sorted the image into another folder.
        """
        answer, source = answers[0], self._samples[answers[0].position].path
        apart = self._unreadable if answer.error else "" if answer.prediction else self._unknown
        origin, place = _origin(source), apart or self._classes[answer.index or 0]
        if self._done.get(origin, place) != place:
            was = f"{origin} was sorted into {self._done[origin]!r} before, and now goes into {place!r}"
            raise ArgumentError(f"{self._folder}: {was}; undo that with {self._undo}, or name another folder")
        done = "there before"
        if origin not in self._done:
            try:
                with open_source(source) as file:
                    done = self._put(source, origin, self._free(place, Path(str(source)).name), file)
            except (UnreadableError, OSError):  # as its answer says
                done = "left out, as nothing can be read"
        self._counts[done] += 1

    def _put(self, source: Source, origin: str, copy: str, file: BinaryFile) -> str:
        """Name a copy in the manifest, then make it, in one step; return what was done."""
        content, target = b"" if self._link else file.read(), self._folder / copy
        with writing(target):
            target.parent.mkdir(exist_ok=True)
            self._writer.writerow([origin, copy, _LINK if self._link else digest(content)])
            self._file.flush()
            if self._link:
                target.symlink_to(origin)
                return "linked"
            with replacing(target, self._folder / _PARTIAL) as made:
                made.write_bytes(content)
                if isinstance(source, Path):  # photos are looked through by their dates
                    shutil.copystat(source, made)
        return "copied"

    def _free(self, place: str, name: str) -> str:
        """Return a name below the folder that no file has; of doubled names, the last number is kept."""
        path = Path(as_file_name(name))
        first = f"{place}/{path}"
        for number in count(self._numbers[first] or 1):
            copy = f"{place}/{path.stem} ({number}){path.suffix}" if number > 1 else first
            if not os.path.lexists(self._folder / copy):
                break
        if number > 1:
            self._numbers[first] = number
        return copy

    def __exit__(self, *_: object) -> None:
        """Say what was done, whatever has happened, and what undoes it."""
        with suppress(OSError):  # what could not be written has been said already
            self._file.close()
        parts = ", ".join(f"{n:,} {what}" for what, n in self._counts.items()) or "nothing"
        print(f"sorted into {self._folder}: {parts}; undo with: {self._undo}")


def check_sortable(samples: Iterable[Sample], link: bool) -> None:
    """Check, before any work is done, that photos can be sorted; `link` says that each must be a file of its own.

    Raises:
        ArgumentError: one is no file, as in a table or an array; or it is in an archive or elsewhere, for a link.
    """
    kinds = (Path,) if link else (Path, Member, Remote)
    if other := next((sample.path for sample in samples if not isinstance(sample.path, kinds)), None):
        how = "links to" if link else "copies"
        raise ArgumentError(f"--sort-into {how} files, and {other} is none{' of its own' * link}; leave it out")


def unsort(folder: Path) -> tuple[int, int]:
    """Remove what a folder's manifest names, and folders that are then empty; return how many were and were not.

    A copy stays, and its entry, where it has been changed since, or where what it was copied from is gone.

    Raises:
        ArgumentError: the folder has no manifest, or something cannot be removed.
    """
    entries = _read(folder)
    with writing(folder / MANIFEST):
        for origin, copy, made in entries:
            if _is_as_made(folder / copy, origin, made):
                (folder / copy).unlink()
        _write(folder / MANIFEST, kept := _read(folder))
        if not kept:
            (folder / MANIFEST).unlink()
    for place in (*{(folder / copy).parent for _, copy, _ in entries}, folder):
        with suppress(OSError):  # something else is in it
            place.rmdir()
    return len(entries) - len(kept), len(kept)


def _origin(source: Source) -> str:
    return str(source) if isinstance(source, Remote) else os.path.abspath(str(source))  # noqa: PTH100 (keeps links)


def _is_as_made(path: Path, origin: str, made: str) -> bool:
    """Return whether a copy is what was made, and what it was made from, or the archive of that, is still there."""
    if path.is_symlink():
        return made == _LINK and str(path.readlink()) == origin
    there = is_address(origin) or any(part.is_file() for part in (Path(origin), *Path(origin).parents))
    return there and path.is_file() and digest(path.read_bytes()) == made


def _read(folder: Path) -> list[list[str]]:
    """Return the entries of a folder's manifest whose copies are there; one that was cut short has none."""
    path = folder / MANIFEST
    try:
        with path.open(**_AS_TEXT) as file:
            head, *rows = [*csv.reader(file)] or [[]]
    except (OSError, csv.Error) as error:
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}") from None
    if head != _COLUMNS:
        raise ArgumentError(f"{path}: is no manifest of --sort-into; name another folder")
    return [row for row in rows if len(row) == 3 and _BELOW.fullmatch(row[1]) and os.path.lexists(folder / row[1])]


def _write(path: Path, entries: Iterable[Sequence[str]]) -> None:
    with replacing(path) as made, made.open("w", **_AS_TEXT) as file:
        csv.writer(file, **_AS_ROWS).writerows([_COLUMNS, *entries])
