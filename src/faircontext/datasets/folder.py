"""Files of images: those below folders, each real folder visited once, and those that a list names."""

import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import chain
from pathlib import Path, PurePosixPath

from faircontext.errors import ArgumentError, and_more, counted, reason_of
from faircontext.imagefiles import RAW_EXTENSIONS
from faircontext.imageio import EXTENSIONS, image_extensions
from faircontext.names import compose

SYSTEM_FILES = frozenset(
    (
        # Windows: the bin of NTFS before Vista, that of all volumes since, restore points and indices, thumbnails. The
        # old bin of FAT, "Recycled" (Microsoft's article 136517), is not among them, as it may be a class.
        *("recycler", "$recycle.bin", "system volume information", "thumbs.db", "ehthumbs.db", "ehthumbs_vista.db"),
        # macOS: archives of the Finder; bins and the like on file servers, see Netatalk's "Special Files and Folders".
        *("__macosx", "network trash folder", "temporary items", "thefindbycontentfolder", "thevolumesettingsfolder"),
        # Linux: see mklost+found(8) of e2fsprogs, and the thumbnail standard of freedesktop.org.
        *("lost+found", ".thumbnails"),
        # Storage servers: Synology, see DSM's help on shared folders and on snapshots; QNAP's QTS; NetApp's ONTAP.
        *("#recycle", "#snapshot", "@eadir", "@tmp", "@recycle", "@recently-snapshot", "@__thumb", "~snapshot"),
    )
)
"""What operating systems and storage servers put beside photos, in lower case: bins, thumbnails, snapshots."""

_RECOVERED = re.compile(r"found\.\d{3}", re.IGNORECASE)  # where Windows' chkdsk puts what it saves: FOUND.000

_KINDS = {
    "camera raw": " ".join(suffix[1:] for suffix in RAW_EXTENSIONS),
    "video": "3gp avi flv m2ts m4v mkv mov mp4 mpeg mpg mts ogv webm wmv",
    "JPEG 2000": "j2c j2k jp2 jpc jpf jpm jpx",
    "JPEG XL": "jxl",
    "vector drawing": "ai eps svg svgz",
    "layered picture": "psb psd xcf",
    "high dynamic range": "exr hdr",
    "DICOM": "dcm dicom",
    "tar archive": "tar",
    "Parquet table": "parquet",
    "to be unpacked first": "7z rar tar.bz2 tar.gz tar.xz tar.zst tbz2 tgz txz zip",
}

OTHER_KINDS: Mapping[str, str] = {f".{end}": kind for kind, ends in _KINDS.items() for end in ends.split()}
"""What a file is that shows or holds images and is passed over in a folder, by its extension."""
PACKED = tuple(end for end, kind in OTHER_KINDS.items() if kind == "to be unpacked first")
"""How archives end whose members cannot be read where they lie."""


NAMES = "classnames.txt"
"""The file that names the classes of a data set, one a line in the order of labels."""


class Exclusion:
    """Leaves out what patterns match, and counts it.

    Args:
        patterns: as of a shell. One without `/` is compared with each part of a path, one with `/` with the whole of
            it, where `*` stands for any number of folders too.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        if "" in patterns:
            raise ArgumentError("--exclude is empty; give a pattern, for example --exclude '*_small.jpg'")
        self._parts = [pattern.strip("/") for pattern in patterns if "/" not in pattern.strip("/")]
        self._paths = [pattern.strip("/") for pattern in patterns if "/" in pattern.strip("/")]
        self.count = 0

    def matches(self, path: str) -> bool:
        """Tell whether a path, with `/` between its parts, is left out; a folder's is with all that lies in it."""
        if not self._parts and not self._paths:
            return False
        name = any(fnmatchcase(part, pattern) for part in path.split("/") for pattern in self._parts)
        return name or any(fnmatchcase(path, pattern) for pattern in self._paths)

    def takes(self, path: str) -> bool:
        """Tell whether a path is left out, and count it."""
        out = self.matches(path)
        self.count += out
        return out

    def warnings(self) -> list[str]:
        """Return how many files were left out, as a line, where any was."""
        return [f"left out by --exclude: {counted(self.count, 'file')}"] if self.count else []


class Walk:
    """Finds the images below some folders, each real folder once, and remembers what it leaves out.

    Links are followed, except back to a folder above. Where a folder is reached both by links and without one, it is
    visited where it really lies; of several links the first in sorted order is taken. So the time is bounded by the
    number of real folders and links, however they link to each other.

    Args:
        roots: the folders to search, all of them.
        base: folder that holds the roots where they are class folders; `warnings` names links relative to it.
        exclusion: what is left out besides, by paths relative to a root.
    """

    def __init__(self, roots: Sequence[Path], base: Path | None = None, exclusion: Exclusion | None = None) -> None:
        self._roots = tuple(roots)
        self._exclusion = exclusion or Exclusion()
        self._base = base
        self._visited: dict[tuple[int, int], str] = {}
        self._link_met = False
        self._repeated: list[Path] = []
        self._system_files, self._passed = Counter[str](), Counter[str]()

    def images(self, root: Path) -> Iterator[Path]:
        """Yield the images in a root and all below it that were not met before, sorted."""
        skip = len(root.parts)
        pending = [self._walk_entries(root)] if self._enter(root) else []
        while pending:
            for entry in pending[-1]:
                if is_folder(entry):
                    if self._exclusion.matches("/".join(entry.parts[skip:])):
                        self._exclusion.count += count_files(entry)
                    elif self._enter(entry, below=True):
                        pending.append(self._walk_entries(entry))
                        break
                elif entry.suffix.lower() in image_extensions() and not self._exclusion.takes(
                    "/".join(entry.parts[skip:])
                ):
                    yield entry
            else:
                pending.pop()

    def entries(self, folder: Path) -> list[Path]:
        """Return what `list_entries` does, and count system files and files of other kinds."""
        return [*self._walk_entries(folder)]

    def _walk_entries(self, folder: Path) -> Iterator[Path]:
        for entry in _list(folder):
            if is_system_file(entry.name):
                self.leave_out(entry.name, count_files(entry))
            elif not is_hidden(entry.name):
                if _other_kind(entry.name) and not is_folder(entry):
                    self.pass_over(entry.name)
                yield entry

    def keeps(self, path: str) -> bool:
        """Tell whether a file is neither hidden nor a system's, and count those of systems.

        Args:
            path: below a folder, or in an archive, with `/` between its parts.
        """
        parts = [part for part in path.split("/") if part not in (".", "..")]
        if system_file := next(filter(is_system_file, parts), None):
            self.leave_out(system_file)
        return not any(map(is_hidden, parts))

    def pass_over(self, path: str) -> None:
        """Count a file that is not taken where it is one of `OTHER_KINDS`."""
        if kind := _other_kind(path):
            self._passed[kind] += 1

    def leave_out(self, system_file: str, count: int = 1) -> None:
        """Count files of a system, see `is_system_file`."""
        self._system_files[system_file] += count

    def leads_back(self, root: Path) -> bool:
        """Tell whether a root is a link to a folder that another root visits, or to one above the roots."""
        return root.is_symlink() and (_identity(root) in self._above or not self._is_owner(root))

    def _enter(self, folder: Path, below: bool = False) -> bool:
        """Tell whether a folder, a root or one below, is to be visited here, and note that it has been."""
        here, identity = os.path.abspath(folder), _identity(folder)  # noqa: PTH100 (keeps links, unlike resolve)
        leads_up = below and folder.is_symlink() and identity in self._above
        visited = self._visited.get(identity)
        if visited == here and not leads_up:  # a root that lies in another
            return False
        if leads_up or visited is not None or not self._is_owner(folder):
            self._repeated.append(folder)
            return False
        self._visited[identity] = here
        return True

    def _is_owner(self, folder: Path) -> bool:
        """Tell whether a folder is not visited under another path; without links there is but one."""
        self._link_met = self._link_met or folder.is_symlink()
        if not self._link_met:
            return True
        here = os.path.abspath(folder)  # noqa: PTH100 (keeps links, unlike resolve)
        return self._owners.get(_identity(folder), here) == here

    @cached_property
    def _owners(self) -> dict[tuple[int, int], str]:
        """The path under which each folder is visited that lies below a root without a further link."""
        owners: dict[tuple[int, int], str] = {}
        for linked in (False, True):
            group = [os.path.abspath(root) for root in self._roots if root.is_symlink() is linked]  # noqa: PTH100
            for root in group if linked else ():  # before what lies below: a root is visited as one
                owners.setdefault(_identity(root), root)
            pending = group[::-1]
            while pending:
                here = pending.pop()
                if owners.setdefault(_identity(here), here) != here:
                    continue
                with suppress(OSError), os.scandir(here) as entries:  # what cannot be read is an error once visited
                    pending += [e.path for e in entries if e.is_dir(follow_symlinks=False) and not is_hidden(e.name)]
        return owners

    @cached_property
    def _above(self) -> frozenset[tuple[int, int]]:
        """The folders over the roots and over what the roots are links to."""
        above: set[Path] = set()
        for root in self._roots:
            holder = Path(os.path.realpath(os.path.dirname(os.path.abspath(root))))  # noqa: PTH100, PTH120 (as above)
            above |= {holder, *holder.parents, *Path(os.path.realpath(root)).parents}
        return frozenset(map(_identity, above))

    def warnings(self) -> list[str]:
        """Return what was left out so far, a line each."""
        lines = []
        if self._repeated:
            inside, skip = "folders that are searched", 0
            if self._base is not None:
                inside, skip = "the class folders", len(self._base.parts)
            links = and_more([Path(*link.parts[skip:]).as_posix() for link in self._repeated])
            lines.append(f"links into {inside}, whose images count once, are left out: {links}")
        if count := self._system_files.total():
            names = sorted(name for name, files in self._system_files.items() if files)
            lines.append(f"left out: {counted(count, 'file')} in {and_more(names)}")
        counts = []
        for kind in _KINDS:
            if suffixes := sorted(suffix for suffix in self._passed if OTHER_KINDS[suffix] == kind):
                total = sum(self._passed[suffix] for suffix in suffixes)
                counts.append(f"{total:,} {kind} ({' '.join(suffixes)})")
        return [*lines, f"passed over: {', '.join(counts)}"] if counts else lines


def holds_images(folder: Path) -> bool:
    """Tell whether there is an image in a folder or anywhere below it."""
    return any(True for _ in Walk([folder]).images(folder))


def passed_over(folder: Path) -> str:
    """Return the end of a message on images that are not in a folder: what else is there, empty where nothing is."""
    walk = Walk([folder])
    deque(walk.images(folder), maxlen=0)
    return "".join(f"; {line}" for line in walk.warnings())


def list_entries(folder: Path) -> list[Path]:
    """Return what lies in a folder and is neither hidden nor a system's, integer names by value and before words."""
    return [entry for entry in _list(folder) if not is_hidden(entry.name)]


def folders_in(folder: Path) -> list[Path]:
    """Return the folders right below one, as `list_entries` does."""
    return [entry for entry in list_entries(folder) if is_folder(entry)]


def _list(folder: Path) -> Iterator[Path]:
    """Yield what lies in a folder in sorted order; names alone are held, as a folder may have very many."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (names alone)
    except OSError as error:
        raise ArgumentError(f"{folder}: cannot be read: {reason_of(error)}") from None
    names.sort()
    integers = sorted((name for name in names if name.isdecimal()), key=int)
    return map(folder.joinpath, chain(integers, (name for name in names if not name.isdecimal())))


def count_files(entry: Path) -> int:
    """Count the files of a folder, as far as it may be read: some belong to the system. A file counts as one."""
    return sum(len(files) for _, _, files in os.walk(entry)) if entry.is_dir() else 1


def is_folder(entry: Path) -> bool:
    """Tell whether a path is a folder; where nobody may look, it is an error."""
    try:
        return entry.is_dir()
    except OSError as error:  # of a folder that may be listed but not entered
        raise ArgumentError(f"{entry}: cannot be read: {reason_of(error)}") from None


def is_system_file(name: str) -> bool:
    """Tell whether a system has put something there, by its name."""
    return name.casefold() in SYSTEM_FILES or _RECOVERED.fullmatch(name) is not None


def is_hidden(name: str) -> bool:
    """Tell whether something is left out by its name, as hidden or as a system's."""
    return name.startswith(".") or is_system_file(name)


def _other_kind(path: str) -> str:
    """Return the ending of a file that is passed over as one of `OTHER_KINDS`, empty for all other files."""
    stem, end = os.path.splitext(path.lower())  # noqa: PTH122 (a string does as well)
    end = f".tar{end}" if stem.endswith(".tar") and f".tar{end}" in OTHER_KINDS else end
    return end if end in OTHER_KINDS and end not in image_extensions() else ""


def _identity(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Return device and inode of a folder."""
    try:
        status = os.stat(folder)  # noqa: PTH116 (a string does as well)
    except OSError as error:
        raise ArgumentError(f"{os.fspath(folder)}: cannot be read: {reason_of(error)}") from None
    return status.st_dev, status.st_ino


def clean_key(path: str, roots: Iterable[Path] = ()) -> str | None:
    """Return a relative path in its shortest form, or None where it does not lie below a folder.

    `..` is taken back as it is written, as if no folder were a link. A path below a root, which is an absolute path, is
    made relative to it.
    """
    for root in roots if os.path.isabs(path) else ():  # noqa: PTH117 (most paths need no Path)
        if (whole := Path(path)).is_relative_to(root):
            path = whole.relative_to(root).as_posix()
            break
    if ".." in re.split(r"[/\\]", path):
        path = os.path.normpath(path.replace("\\", "/"))
    parts = PurePosixPath(path)
    leaves = parts.is_absolute() or parts.parts[:1] == ("..",)
    return None if leaves or not path.strip() or not parts.parts or "\0" in path else str(parts)


def find_listed(folder: Path, listed: Iterable[str], where: str) -> dict[str, str]:
    """Return, for each listed path whose file is there, the path of that file below the folder.

    The path as it is written counts first. Where there is no such file, blanks around it are left out, backslashes are
    taken for slashes, an absolute path inside the folder is made relative, a name may be in another Unicode
    composition, and the extension may be missing where one image has that name.
    """
    listing, files, keys = Listing(folder, where), dict[str, str](), dict[str, str]()
    for key in listed:
        if (file := listing.find(key)) is None:
            continue
        if keys.setdefault(file, key) != key:
            raise ArgumentError(f"{where}: {keys[file]!r} and {key!r} are one file, {file}; list it once")
        files[key] = file
    return files


class Listing:
    """What lies below a folder, read where a path is not there as it is written; each folder is looked at once.

    Args:
        root: the folder.
        where: paths are listed, for messages.
    """

    def __init__(self, root: Path, where: str) -> None:
        self._root, self._where = root, where
        self.roots = Path(os.path.abspath(root)), Path(os.path.realpath(root))  # noqa: PTH100 (links, and followed)
        self._folder = cache(lambda key: self._resolve(key, os.path.isdir) if key else "")
        self._entries = cache(self._read)

    def file_of(self, written: str) -> str | None:
        """Return the path below the folder of the file that a path in a list stands for, or None; see `find_listed`."""
        key = clean_key(written, self.roots)
        return None if key is None else self.find(key)

    def find(self, key: str) -> str | None:
        """Return the path of the file that a path of the form of `clean_key` stands for, or None."""
        # Unlike Path's, this answers for names that cannot exist, and in a third of the time.
        if os.path.isfile(os.path.join(self._root, key)):  # noqa: PTH113, PTH118
            return key
        plain = key.strip().replace("\\", "/")
        forms: list[str | None] = [key]
        if plain != key:
            forms.append(clean_key(plain, self.roots))
        if any(f"/{plain}".startswith(root.as_posix()) for root in self.roots):  # its slash has been left out
            forms.append(clean_key(f"/{plain}", self.roots))
        files = (self._resolve(form, os.path.isfile) for form in dict.fromkeys(forms) if form is not None)
        return next((file for file in files if file is not None), None)

    def _resolve(self, key: str, is_kind: Callable[[Path], bool]) -> str | None:
        """Return the path of the file, or the folder, that a path stands for, or None."""
        above, _, name = key.rpartition("/")
        folder = self._folder(above)
        if folder is None:
            return None
        entries = self._entries(folder)
        # Unlike Path's, what tells the kind answers for files that may not be looked at.
        paths = [path for path in entries.get(compose(name), ()) if is_kind(self._root / path)]
        if is_kind is os.path.isdir and (exact := f"{folder}/{name}".removeprefix("/")) in paths:
            return exact
        if not paths and is_kind is os.path.isfile and Path(name).suffix.lower() not in EXTENSIONS:
            paths = entries.get(f"{compose(name)}/", [])
        if len(paths) > 1:
            raise ArgumentError(f"{self._where}: {key!r} may be {' or '.join(paths)}; write the one that is meant")
        return paths[0] if paths else None

    def _read(self, folder: str) -> Mapping[str, list[str]]:
        """Return the paths in a folder by composed name, and, with a slash after it, by name without extension."""
        entries = defaultdict[str, list[str]](list)
        names: list[str] = []
        with suppress(OSError):  # no folder, or one that may not be read
            names = sorted(os.listdir(self._root / folder))  # noqa: PTH208 (names alone)
        for name in names:
            path = f"{folder}/{name}".removeprefix("/")
            entries[compose(name)].append(path)
            if Path(name).suffix.lower() in EXTENSIONS:
                entries[f"{compose(Path(name).stem)}/"].append(path)
        return entries


def is_there(path: Path) -> bool:
    """Return whether a file of a data set is there."""
    is_file = os.path.isfile(path)  # noqa: PTH113 (unlike Path's, it answers for a folder that may not be looked into)
    if os.path.lexists(path) and not is_file:
        raise ArgumentError(f"{path}: is no file, or a link to nothing; put the file there, or take it away")
    return is_file
