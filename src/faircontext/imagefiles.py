"""What an image file holds, before it is decoded: its kind, the pages of a TIFF, metadata that makes it unreadable."""

import io
import math
import os
import stat
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from PIL import features
from PIL.PngImagePlugin import PngStream
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from faircontext.errors import reason_of

PNG = b"\x89PNG\r\n\x1a\n"
BinaryFile = io.BufferedReader | io.BytesIO
"""An open file whose bytes are read at any position."""

ZEROS = "nothing but zeros, as an interrupted copy or download leaves behind"
"""What a file is that was given its size and not its content."""

RAW_EXTENSIONS = frozenset(
    f".{name}"
    for name in (
        "3fr arw cr2 cr3 crw dcr dng erf fff gpr iiq kdc mef mos mrw nef nrw orf pef raf rw2 rwl sr2 srf srw x3f"
    ).split()
)
"""What camera raw is called; it is read where rawpy is installed."""


@cache
def reads_raw() -> bool:
    """Tell whether camera raw can be read."""
    return find_spec("rawpy") is not None


_EXPORT = "export it as JPEG, PNG or TIFF"
_RAW = f"camera raw, which is not read; {_EXPORT}, or: pip install 'faircontext[raw]'"


class UnreadableError(Exception):
    """Why an image cannot be read; the caller adds the path."""


class RawError(UnreadableError):
    """The file is camera raw, of which a decoder would take a preview."""

    def __init__(self) -> None:
        super().__init__(_RAW)


def open_regular(path: Path) -> BinaryFile:
    """Open a regular file."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableError("a folder, not an image")
        if not stat.S_ISREG(mode):
            raise UnreadableError("not a regular file")
        return path.open("rb")
    except FileNotFoundError:
        raise UnreadableError("a link to nothing" if path.is_symlink() else "no such file") from None
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot be read: {reason_of(error)}") from None


# Kinds by their first bytes

_TEXTS = {b"<!doctype html": "a web page", b"<html": "a web page", b"%pdf": "a PDF", b"<svg": "an SVG drawing"}
_TEXTS |= {b"<?xml": "an XML file", b"pk\x03\x04": "a ZIP archive", b"\x1f\x8b": "a gzip archive"}
_TEXTS |= {b"%!ps": "a PostScript drawing", b"\xc5\xd0\xd3\xc6": "a PostScript drawing", b"\x93numpy": "a NumPy array"}
_TEXTS |= {b"version https://git-lfs": "a pointer of Git LFS; fetch the file itself with: git lfs pull"}
_TEXTS |= {b"/annex/objects/": "a pointer of git-annex; fetch the file itself with: git annex get"}
_VIDEOS = (b"\x1a\x45\xdf\xa3", b"\0\0\1\xba", b"\0\0\1\xb3", b"FLV\1", b"\x30\x26\xb2\x75")  # Matroska, MPEG, FLV, ASF
_UNREAD = {b"\0\0\0\x0cjP  ": "JPEG 2000", b"\xff\x4f\xff\x51": "JPEG 2000"}
_UNREAD |= {b"\0\0\0\x0cJXL ": "JPEG XL", b"\xff\x0a": "JPEG XL", b"8BPS": "a Photoshop file", b"P7\n": "PAM"}
# Fujifilm, Sigma, Minolta, Canon's CRW, then what looks like TIFF: Olympus, Panasonic.
_RAWS = (b"FUJIFILMCCD-RAW", b"FOVb", b"\0MRM", b"II\x1a\0\0\0HEAPCCDR", b"IIRO", b"IIRS", b"MMOR", b"IIU\0")
_HEIC = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}
_AVIF = {b"avif", b"avis"}


def what_it_is(head: bytes) -> str:
    """Say what a file is that no decoder takes, by its first bytes."""
    if not head:
        return "the file is empty"
    if len(head) >= 16 and not any(head):
        return ZEROS
    if kind := known_kind(head):
        return f"not an image but {kind}"
    for magic, kind in _UNREAD.items():
        if head.startswith(magic):
            return f"{kind}, which is not read; {_EXPORT}"
    if head.startswith(_VIDEOS) or (head[:4] == b"RIFF" and head[8:12] == b"AVI "):
        return "not an image but a video"
    if b"\0" not in head and head.isascii():
        return "not an image but text"
    return "not an image of a kind that can be read"


def known_kind(head: bytes) -> str:
    """Say what a file is that is often found instead of another, by its first bytes; empty for all others."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return next((kind for magic, kind in _TEXTS.items() if start.startswith(magic)), "")


def check_raw(head: bytes) -> None:
    """Refuse camera raw that is known by its first bytes: of some kinds a decoder would take the preview."""
    canon_or_phase_one = head[:2] in (b"II", b"MM") and (head[8:10] == b"CR" or head[8:12] in (b"IIII", b"MMMM"))
    if head.startswith(_RAWS) or canon_or_phase_one:
        raise RawError


def check_plugin(head: bytes) -> None:
    """Make AVIF and HEIC readable where their plug-ins are installed, by the brands of the box format.

    Raises:
        UnreadableError: the plug-in is not installed, or the file is a film or camera raw, which have such boxes too.
    """
    size = int.from_bytes(head[:4], "big")
    brands = {head[8:12], *(head[start : start + 4] for start in range(16, min(size, len(head)), 4))}
    if b"crx " in brands:
        raise RawError
    if not brands & (_AVIF | _HEIC):
        raise UnreadableError("not an image but a video")
    avif = bool(brands & _AVIF)
    if avif and features.check("avif"):
        return
    kind, module, package = (
        ("AVIF", "pillow_avif", "pillow-avif-plugin") if avif else ("HEIC", "pillow_heif", "pillow-heif")
    )
    if find_spec(module) is None:
        raise UnreadableError(f"{kind} images need a plug-in: pip install {package}")
    plugin = import_module(module)
    if not avif:
        plugin.register_heif_opener()


# The pages of a TIFF

_SUBFILE, _OLD_SUBFILE, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 254, 255, 256, 257, 258, 259, 262
_SAMPLES, _INNER, _FORMAT, _DNG_VERSION = 277, 330, 339, 50706
_WANTED = {_SUBFILE, _OLD_SUBFILE, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _SAMPLES, _INNER, _FORMAT}
_WANTED |= {_DNG_VERSION}
_TIFFS = (b"II*\0", b"II+\0", b"MM\0*", b"MM\0+")
_SENSOR = {32803, 34892}  # photometric interpretations of camera raw: a colour filter array, and LinearRaw
_MOST_DIRECTORIES = 64  # of a hostile file no more is read

_Tags = dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Tiff:
    """The directories of a TIFF: of its pages, and of the images inside them."""

    pages: tuple[_Tags, ...]
    inner: tuple[_Tags, ...]

    def description(self) -> str:
        """Say what the first page is, for a TIFF that no decoder takes."""
        tags = self.pages[0] if self.pages else {}
        samples, bits = tags.get(_SAMPLES, (1,))[0], tags.get(_BITS, (1,))[0]
        kind = {2: "signed integers", 3: "floats"}.get(tags.get(_FORMAT, (1,))[0], "integers")
        coded = tags.get(_COMPRESSION, (1,))[0]
        packed = f", compression {coded}" if coded != 1 else ""
        return (
            f"a TIFF of {samples} band{'s' * (samples != 1)} of {bits}-bit {kind}{packed}, which cannot be read; "
            "export it as RGB of 8 or 16 bits"
        )


def read_tiff(file: BinaryFile, head: bytes) -> Tiff | None:
    """Read the directories of a TIFF, whose first bytes are given, as far as they are sound; None for another file."""
    if head[:4] not in _TIFFS or len(head) < 16:
        return None
    pages, inner, seen, header = list[_Tags](), list[_Tags](), set[int](), head[: 16 if head[2] == 43 else 8]
    with suppress(Exception):  # what is broken is the decoder's to refuse
        offset = ImageFileDirectory_v2(header).next
        while offset and offset not in seen and len(seen) < _MOST_DIRECTORIES:
            seen.add(offset)
            tags, offset = _directory(file, header, offset)
            pages.append(tags)
            for below in [start for start in tags.get(_INNER, ()) if start not in seen][:_MOST_DIRECTORIES]:
                seen.add(below)
                inner.append(_directory(file, header, below)[0])
    return Tiff(tuple(pages), tuple(inner))


def _directory(file: BinaryFile, header: bytes, begin: int) -> tuple[_Tags, int]:
    """Read those tags of a directory that are wanted here, and where the next directory lies."""
    directory = ImageFileDirectory_v2(header)
    file.seek(begin)
    directory.load(file)
    values = {tag: directory[tag] for tag in _WANTED if tag in directory}
    return {tag: value if isinstance(value, tuple) else (value,) for tag, value in values.items()}, directory.next


def image_page(tiff: Tiff) -> int:
    """Return the index of the page that holds a TIFF's image: the first that is no reduced copy and no mask.

    Raises:
        UnreadableError: the file is camera raw, whose page is a preview; or another page or an image inside has four
            times the pixels, so that the first may be a small copy of it that does not say so.
    """
    everything = (*tiff.pages, *tiff.inner)
    if any(_DNG_VERSION in tags or tags.get(_PHOTOMETRIC, (0,))[0] in _SENSOR for tags in everything):
        raise RawError
    page = next((index for index, tags in enumerate(tiff.pages) if _is_whole(tags)), 0)
    sizes = [(tags.get(_WIDTH, (0,))[0], tags.get(_HEIGHT, (0,))[0]) for tags in everything]
    if tiff.pages:
        width, height = sizes[page]
        full_sizes = [size for size, tags in zip(sizes, everything, strict=True) if _is_whole(tags)]
        largest = max(full_sizes, key=math.prod, default=(0, 0))
        if 0 < 4 * width * height <= math.prod(largest):
            raise UnreadableError(
                f"the page of {width} x {height} pixels may be a small copy of another in the same file, of "
                f"{largest[0]} x {largest[1]}; export the one that is meant"
            )
    return page


def _is_whole(tags: _Tags) -> bool:
    return not tags.get(_SUBFILE, (0,))[0] & 0b101 and tags.get(_OLD_SUBFILE, (1,))[0] != 2


# The metadata of a PNG

_PIXELS = {b"tRNS", b"acTL", b"fcTL", b"fdAT"}  # not critical by their names, but of the image
_CHUNKS = {"tEXt": "text", "zTXt": "text", "iTXt": "text", "iCCP": "colour profile", "eXIf": "EXIF"}


def without_bad_metadata(file: BinaryFile) -> tuple[BinaryFile, tuple[str, ...]]:
    """Copy a PNG without metadata that Pillow refuses: too large, broken, or of a wrong checksum.

    Pillow's limits on metadata are the process's own, and one text that is larger makes the image unreadable. What is
    metadata says the standard: chunks that are called by a small letter are not needed for the image.

    Returns:
        The copy, and what was left out, in words; nothing where all metadata is fine.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    copy, judge, left_out = io.BytesIO(), PngStream(io.BytesIO()), dict[str, None]()
    copy.write(file.read(len(PNG)))
    while len(header := file.read(8)) == 8:
        name, length = header[4:], int.from_bytes(header[:4], "big")
        content = file.read(min(length + 4, size - file.tell()))
        if not name[:1].islower() or name in _PIXELS or _is_accepted(judge, name, content):
            copy.write(header + content)
        else:
            word = name.decode("latin-1")
            left_out[f"{_CHUNKS.get(word, 'chunk')} ({word})"] = None
        if name == b"IEND":
            break
    copy.seek(0)
    return copy, tuple(left_out)


def _is_accepted(judge: PngStream, name: bytes, content: bytes) -> bool:
    """Tell whether Pillow takes a chunk, by its own reader, which also counts the text of all chunks together."""
    data, checksum = content[:-4], content[-4:]
    if zlib.crc32(data, zlib.crc32(name)) != int.from_bytes(checksum, "big"):
        return False
    judge.fp = io.BytesIO(data)
    try:
        if hasattr(judge, f"chunk_{name.decode('latin-1')}"):
            judge.call(name, 0, len(data))
    except Exception:  # as in `read_image`: decoders raise anything
        return False
    return True
