"""What lies below folders: their images, each real folder visited once, and what is left out on the way."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from faircontext.errors import ArgumentError, and_more, reason_of
from faircontext.imageio import EXTENSIONS

__all__ = [
    "CLUTTER",
    "OTHER_KINDS",
    "Walk",
    "holds_images",
    "is_folder",
    "is_hidden",
    "list_entries",
    "natural",
]

CLUTTER = frozenset(
    "@eadir @tmp @recycle @recently-snapshot @__thumb #recycle #snapshot ~snapshot $recycle.bin lost+found __macosx "
    ".thumbnails".split()
) | {"system volume information"}
"""Folders that operating systems and storage servers put beside photos, in lower case: bins, thumbnails, snapshots."""

_KINDS = {
    "camera raw": "3fr arw cr2 cr3 crw dcr dng erf fff gpr iiq kdc mef mos mrw nef nrw orf pef raf rw2 rwl sr2 srf srw "
    "x3f",
    "video": "3gp avi flv m2ts m4v mkv mov mp4 mpeg mpg mts ogv webm wmv",
    "JPEG 2000": "j2c j2k jp2 jpc jpf jpm jpx",
    "JPEG XL": "jxl",
    "vector drawing": "ai eps svg svgz",
    "layered picture": "psb psd xcf",
    "high dynamic range": "exr hdr",
    "DICOM": "dcm dicom",
}

OTHER_KINDS: Mapping[str, str] = {f".{word}": kind for kind, words in _KINDS.items() for word in words.split()}
"""What a file is that shows a picture but is not read, by its extension."""

Identity = tuple[int, int]
"""Device and inode."""


class Walk:
    """Finds the images below some folders, each real folder once, and remembers what it leaves out.

    Links are followed, except back to a folder above. Where a folder is reached both by links and without one, it is
    visited where it really lies; of several links the first in sorted order is taken. So the time is bounded by the
    number of real folders and links, however they link to each other.

    Args:
        roots: the folders to search, all of them.
        base: folder that holds the roots, relative to which links are named in `remarks`; None for paths as given.
    """

    def __init__(self, roots: Sequence[Path], base: Path | None = None) -> None:
        self._roots = tuple(roots)
        self._skip = 0 if base is None else len(base.parts)
        self._visited: dict[Identity, str] = {}
        self._link_met = False
        self._repeated: list[Path] = []
        self._clutter: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()

    def images(self, root: Path) -> Iterator[Path]:
        """Yield the images in a root and all below it that were not met before, sorted.

        Raises:
            ArgumentError: a folder cannot be read.
        """
        pending = [iter(self.entries(root))] if self._enter(root) else []
        while pending:
            for entry in pending[-1]:
                if is_folder(entry):
                    if not self._is_above(entry) and self._enter(entry):
                        pending.append(iter(self.entries(entry)))
                        break
                elif entry.suffix.lower() in EXTENSIONS:
                    yield entry
            else:
                pending.pop()

    def entries(self, folder: Path) -> list[Path]:
        """Return what `list_entries` does, and count files in clutter and of other kinds.

        Raises:
            ArgumentError: the folder cannot be read.
        """
        found = []
        for entry in _list(folder):
            suffix = entry.suffix.lower()
            if entry.name.casefold() in CLUTTER:
                # Counted as far as it may be read: some of these folders belong to the system.
                self._clutter[entry.name] += sum(len(files) for _, _, files in os.walk(entry))
            elif not is_hidden(entry.name):
                found.append(entry)
                if suffix in OTHER_KINDS and not is_folder(entry):
                    self._passed[suffix] += 1
        return found

    def leads_back(self, root: Path) -> bool:
        """Tell whether a root is a link to a folder that another root visits, or to one above the roots."""
        return root.is_symlink() and (_identity(root) in self._above or not self._is_owner(root))

    def _enter(self, folder: Path) -> bool:
        """Tell whether a folder is to be visited here, and note that it has been."""
        here = os.path.abspath(folder)  # noqa: PTH100 (keeps links, unlike resolve)
        there = self._visited.get(_identity(folder))
        if there == here:  # a root that lies in another
            return False
        if there is not None or not self._is_owner(folder):
            self._repeated.append(folder)
            return False
        self._visited[_identity(folder)] = here
        return True

    def _is_above(self, folder: Path) -> bool:
        back = folder.is_symlink() and _identity(folder) in self._above
        if back:
            self._repeated.append(folder)
        return back

    def _is_owner(self, folder: Path) -> bool:
        """Tell whether a folder is not visited under another path; without links there is but one."""
        self._link_met = self._link_met or folder.is_symlink()
        if not self._link_met:
            return True
        here = os.path.abspath(folder)  # noqa: PTH100 (keeps links, unlike resolve)
        return self._owners.get(_identity(folder), here) == here

    @cached_property
    def _owners(self) -> dict[Identity, str]:
        """The path under which each folder is visited that lies below a root without a further link."""
        owners: dict[Identity, str] = {}
        for linked in (False, True):
            group = [os.path.abspath(root) for root in self._roots if root.is_symlink() is linked]  # noqa: PTH100
            for root in group:  # before what lies below: a root is visited as one
                if linked:
                    owners.setdefault(_identity(root), root)
            for root in group:
                _own_below(root, owners)
        return owners

    @cached_property
    def _above(self) -> frozenset[Identity]:
        """The folders over the roots and over what the roots are links to."""
        found: set[Path] = set()
        for root in self._roots:
            holder = Path(os.path.realpath(os.path.dirname(os.path.abspath(root))))  # noqa: PTH100, PTH120 (as above)
            found |= {holder, *holder.parents, *Path(os.path.realpath(root)).parents}
        return frozenset(map(_identity, found))

    def remarks(self, inside: str = "folders that are searched") -> list[str]:
        """Return what was left out so far, a line each.

        Args:
            inside: what the links that were not followed lead into.
        """
        found = []
        if self._repeated:
            links = and_more([Path(*link.parts[self._skip :]).as_posix() for link in self._repeated])
            found.append(f"links into {inside}, whose images count once, are left out: {links}")
        if number := self._clutter.total():
            names = sorted(name for name, files in self._clutter.items() if files)
            found.append(f"left out: {number:,} file{'s' * (number != 1)} in {and_more(names)}")
        if self._passed:
            kinds = {kind: sorted(s for s in self._passed if OTHER_KINDS[s] == kind) for kind in _KINDS}
            counts = [
                f"{sum(self._passed[suffix] for suffix in suffixes):,} {kind} ({' '.join(suffixes)})"
                for kind, suffixes in kinds.items()
                if suffixes
            ]
            found.append(f"passed over: {', '.join(counts)}")
        return found


def _own_below(root: str, owners: dict[Identity, str]) -> None:
    """Note the path of each folder below a root that is reached without a link and not noted yet."""
    pending = [root]
    while pending:
        here = pending.pop()
        if owners.setdefault(_identity(here), here) != here:
            continue
        with suppress(OSError), os.scandir(here) as entries:  # what cannot be read is an error once it is visited
            pending += [e.path for e in entries if e.is_dir(follow_symlinks=False) and not is_hidden(e.name)]


def holds_images(folder: Path) -> bool:
    """Tell whether there is an image in a folder or anywhere below it.

    Raises:
        ArgumentError: a folder cannot be read.
    """
    return any(True for _ in Walk([folder]).images(folder))


def list_entries(folder: Path) -> list[Path]:
    """Return what lies in a folder and is neither hidden nor clutter, integer names by value and before words.

    Raises:
        ArgumentError: the folder cannot be read.
    """
    return [entry for entry in _list(folder) if not is_hidden(entry.name)]


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=natural)
    except OSError as error:
        raise ArgumentError(f"{folder}: cannot be read: {reason_of(error)}") from None


def is_folder(entry: Path) -> bool:
    """Tell whether a path is a folder.

    Raises:
        ArgumentError: nobody may look.
    """
    try:
        return entry.is_dir()
    except OSError as error:  # of a folder that may be listed but not entered
        raise ArgumentError(f"{entry}: cannot be read: {reason_of(error)}") from None


def is_hidden(name: str) -> bool:
    """Tell whether files and folders of this name are passed over."""
    return name.startswith(".") or name.casefold() in CLUTTER


def natural(path: Path) -> tuple[int, str]:
    """Sort integer names, as of class folders, by value and before words."""
    return (int(path.name), "") if path.name.isdecimal() else (sys.maxsize, path.name)


def _identity(folder: str | os.PathLike[str]) -> Identity:
    try:
        found = os.stat(folder)  # noqa: PTH116 (a string does as well)
    except OSError as error:
        raise ArgumentError(f"{os.fspath(folder)}: cannot be read: {reason_of(error)}") from None
    return found.st_dev, found.st_ino
