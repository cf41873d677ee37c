"""The image files that a list of paths names, also where a path is written in another way than on disk."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from faircontext.classnames import compose
from faircontext.errors import ArgumentError
from faircontext.imageio import EXTENSIONS

__all__ = ["clean_key", "find_listed", "roots_of"]


def clean_key(path: str, roots: Iterable[Path] = ()) -> str | None:
    """Return a relative path in its shortest form, or None where it does not lie below a folder.

    `..` is taken back as it is written, as if no folder were a link.

    Args:
        path: as listed.
        roots: absolute names of the folder; an absolute path inside it is made relative.
    """
    root = next((root for root in roots if Path(path).is_relative_to(root)), None)
    if root is not None:
        path = Path(path).relative_to(root).as_posix()
    if ".." in re.split(r"[/\\]", path):
        path = os.path.normpath(path.replace("\\", "/"))
    parts = PurePosixPath(path)
    leaves = parts.is_absolute() or parts.parts[:1] == ("..",)
    return None if leaves or not path.strip() or not parts.parts or "\0" in path else str(parts)


def roots_of(folder: Path) -> tuple[Path, ...]:
    """Return the absolute names of a folder: with its links as they are, and with links followed."""
    return Path(os.path.abspath(folder)), Path(os.path.realpath(folder))  # noqa: PTH100 (keeps links, unlike resolve)


def find_listed(place: Path, listed: Iterable[str], where: str) -> dict[str, str]:
    """Return, for each listed path whose file is there, the path of that file below the folder.

    The path as it is written counts first. Where there is no such file, blanks around it are left out, backslashes are
    taken for slashes, an absolute path inside the folder is made relative, a name may be in another Unicode
    composition, and the extension may be missing where one image has that name.

    Args:
        place: the folder of images.
        listed: paths, see `clean_key`.
        where: what lists them, for messages.

    Raises:
        ArgumentError: a path stands for several files, or two for one.
    """
    listing, found, taken = _Listing(place, where), dict[str, str](), dict[str, str]()
    for key in listed:
        # Unlike Path's, this answers for names that cannot exist, and in a third of the time.
        there = os.path.isfile(os.path.join(place, key))  # noqa: PTH113, PTH118
        real = key if there else listing.find(key)
        if real is None:
            continue
        if taken.setdefault(real, key) != key:
            raise ArgumentError(f"{where}: {taken[real]!r} and {key!r} are one file, {real}; list it once")
        found[key] = real
    return found


class _Listing:
    """What lies below a folder, read where a path is not there as it is written; each folder is looked at once."""

    def __init__(self, place: Path, where: str) -> None:
        self._place, self._where, self._roots = place, where, roots_of(place)
        self._entries: dict[str, Mapping[str, list[str]]] = {}
        self._folders: dict[str, str | None] = {"": ""}

    def find(self, key: str) -> str | None:
        """Return the path of the file that a path stands for, or None."""
        plain = key.strip().replace("\\", "/")
        forms: list[str | None] = [key]
        if plain != key:
            forms.append(clean_key(plain, self._roots))
        if any(f"/{plain}".startswith(root.as_posix()) for root in self._roots):  # its slash has been left out
            forms.append(clean_key(f"/{plain}", self._roots))
        walked = (self._walk(form) for form in dict.fromkeys(forms) if form is not None)
        return next((real for real in walked if real is not None), None)

    def _walk(self, key: str) -> str | None:
        above, _, name = key.rpartition("/")
        folder = self._enter(above)
        if folder is None:
            return None
        entries = self._read(folder)
        # Unlike Path's, these answer for files that may not be looked at.
        files = [path for path in entries.get(compose(name), ()) if os.path.isfile(self._place / path)]  # noqa: PTH113
        if not files and Path(name).suffix.lower() not in EXTENSIONS:
            files = entries.get(f"{compose(name)}/", [])
        return self._only(key, files)

    def _enter(self, key: str) -> str | None:
        """Return the path of the folder that a path stands for, or None."""
        if key not in self._folders:
            above, _, name = key.rpartition("/")
            folder = self._enter(above)
            if folder is not None:
                there = f"{folder}/{name}".removeprefix("/")
                paths = self._read(folder).get(compose(name), ())
                folders = [path for path in paths if os.path.isdir(self._place / path)]  # noqa: PTH112
                folder = there if there in folders else self._only(key, folders)
            self._folders[key] = folder
        return self._folders[key]

    def _only(self, key: str, found: list[str]) -> str | None:
        if len(found) > 1:
            raise ArgumentError(f"{self._where}: {key!r} may be {' or '.join(found)}; write the one that is meant")
        return found[0] if found else None

    def _read(self, folder: str) -> Mapping[str, list[str]]:
        """Return the paths in a folder by composed name, and, with a slash after it, by name without extension."""
        if folder not in self._entries:
            entries = defaultdict[str, list[str]](list)
            try:
                names = sorted(entry.name for entry in (self._place / folder).iterdir())
            except OSError:  # no folder, or one that may not be read
                names = []
            for name in names:
                path = f"{folder}/{name}".removeprefix("/")
                entries[compose(name)].append(path)
                if Path(name).suffix.lower() in EXTENSIONS:
                    entries[f"{compose(Path(name).stem)}/"].append(path)
            self._entries[folder] = entries
        return self._entries[folder]
