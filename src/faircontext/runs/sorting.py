"""Photos sorted into a folder for each answer: a sink of a run, and what undoes it.

A list names each copy before it is made, so that none is missing there, whatever stops a run. What is named and was not
made is made by the next call.
"""

import json
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain, count
from pathlib import Path

from faircontext.datasets.spec import Sample
from faircontext.errors import ArgumentError, reason_of
from faircontext.files import digest, replacing, write_whole, writing
from faircontext.imagefiles import UnreadableError, open_regular
from faircontext.names import as_file_names
from faircontext.runs.records import Answer

MANIFEST = "sorted.jsonl"
"""The list, a line of JSON each: the photo, the copy below the folder, and its SHA-256, or where a link leads."""

APART = ("none of these", "unreadable")
"""Folders of photos without an answer."""

_PARTIAL = ".sorting.partial"
_BELOW = re.compile(r"[^./][^/]*/[^./][^/]*")


class Sorter(AbstractContextManager["Sorter"]):
    """Copies each photo, or makes a link to it, in the folder of its answer; no file is ever replaced.

    Args:
        folder: where the folders of answers are made; photos that an earlier call has sorted there stay as they are.
        samples: all images of the run, by position; each is a file.
        names: of the classes.
        link: whether to make symbolic links in place of copies.

    Raises:
        ArgumentError: the folder cannot be written, or has a file with the list's name that is none.
    """

    def __init__(self, folder: Path, samples: Sequence[Sample], names: Sequence[str], link: bool) -> None:
        self._folder, self._samples, self._link, self._counts = folder, samples, link, Counter[str]()
        _, *self._places = as_file_names([MANIFEST, *APART, *names])
        earlier = _read(folder) if (folder / MANIFEST).exists() else []
        self._done = {photo: copy.partition("/")[0] for photo, copy, _ in earlier}
        self._undo = f"faircontext unsort {shlex.quote(str(folder))}"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        _write(folder, earlier)  # without what was not made

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answer for an image.

        Raises:
            ArgumentError: the copy cannot be written, or an earlier call has sorted the image into another folder.
        """
        answer = answers[0]
        photo = Path(os.path.abspath(str(self._samples[answer.position].path)))  # noqa: PTH100 (keeps links)
        place = self._places[1 if answer.error else 2 + (answer.index or 0) if answer.prediction else 0]
        earlier = self._done.get(str(photo))
        if earlier not in (None, place):
            was = f"{photo} was sorted into {earlier!r} before, and now goes into {place!r}"
            raise ArgumentError(f"{self._folder}: {was}; undo that with {self._undo}, or name another folder")
        self._counts["there before" if earlier else self._put(photo, place, answer.position)] += 1

    def _put(self, photo: Path, place: str, number: int) -> str:
        """Copy or link a photo, by a name that no file has; return what was done."""
        try:
            with open_regular(photo) as file:
                content = b"" if self._link else file.read()
        except (UnreadableError, OSError):  # as its answer says
            return "left out, as nothing can be read"
        (stem,), numbers = as_file_names([photo.stem]), (f" ({n})" for n in count(number + 1))
        copies = (f"{place}/{stem}{end}{photo.suffix}" for end in chain([""], numbers))
        copy = next(name for name in copies if not os.path.lexists(self._folder / name))
        with writing(target := self._folder / copy):
            target.parent.mkdir(exist_ok=True)
            with (self._folder / MANIFEST).open("a", encoding="utf-8") as manifest:
                manifest.write(_row((str(photo), copy, str(photo) if self._link else digest(content))))
            if self._link:
                target.symlink_to(photo)
                return "linked"
            with replacing(target, self._folder / _PARTIAL) as made:
                made.write_bytes(content)
                shutil.copystat(photo, made)  # photos are looked through by their dates
        return "copied"

    def __exit__(self, *_: object) -> None:
        """Say what was done, whatever has happened, and what undoes it."""
        parts = ", ".join(f"{n:,} {what}" for what, n in self._counts.items()) or "nothing"
        print(f"sorted into {self._folder}: {parts}; undo with: {self._undo}")


def unsort(folder: Path) -> tuple[int, int]:
    """Remove what a folder's list names, and folders that are then empty; return how many were and were not.

    A copy stays, and its entry, where it has been changed since, or where the photo that it was made from is gone.

    Raises:
        ArgumentError: the folder has no list, or something cannot be removed.
    """
    entries = _read(folder)
    with writing(folder / MANIFEST):
        for photo, copy, mark in entries:
            made, original = folder / copy, Path(photo)
            # Behind a link of a folder, the photo itself may be what is there now.
            is_copy = made.is_file() and original.exists() and made.resolve() != original.resolve()
            found = str(made.readlink()) if made.is_symlink() else digest(made.read_bytes()) if is_copy else ""
            if found == mark:
                made.unlink()
        (folder / _PARTIAL).unlink(missing_ok=True)
        _write(folder, kept := _read(folder))
        if not kept:
            (folder / MANIFEST).unlink()
    for place in (*{(folder / copy).parent for _, copy, _ in entries}, folder):
        with suppress(OSError):  # something else is in it
            place.rmdir()
    return len(entries) - len(kept), len(kept)


def _read(folder: Path) -> list[tuple[str, str, str]]:
    """Return the entries of a folder's list whose copies are there; a line that was cut short is none."""
    path = folder / MANIFEST
    try:
        *lines, rest = path.read_text(encoding="utf-8").split("\n")
        if not "[".startswith(rest[:1]):
            raise ValueError("lines are no entries of it")
        entries = [(photo, copy, mark) for photo, copy, mark in map(json.loads, lines)]
        return [one for one in entries if _BELOW.fullmatch(one[1]) and os.path.lexists(folder / one[1])]
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(f"{path}: is no list of --sort-into: {reason_of(error)}; name another folder") from None


def _row(entry: Sequence[str]) -> str:
    return json.dumps(entry) + "\n"


def _write(folder: Path, entries: Iterable[Sequence[str]]) -> None:
    write_whole(folder / MANIFEST, map(_row, entries))
