"""Image files that no encoder here writes, byte by byte: PNGs of any chunks, TIFFs of any tags and pages."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

SHORT, LONG, BYTE = 3, 4, 1
_CODES = {BYTE: "B", SHORT: "H", LONG: "L"}


def png(depth: int, colour: int, size: tuple[int, int], rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """Return a PNG.

    Args:
        depth: bits of a sample.
        colour: type of colour: 0 grey, 2 RGB, 4 and 6 the same with alpha, 3 palette.
        size: width and height.
        rows: each row's filter byte and samples.
        chunks: names and contents of more chunks, before the pixels or, after one named IDAT, behind them.
    """
    head = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    pixels = [(b"IDAT", zlib.compress(rows))]
    places = [name for name, _ in chunks]
    cut = places.index(b"IDAT") if b"IDAT" in places else len(chunks)
    everything = [(b"IHDR", head), *chunks[:cut], *pixels, *chunks[cut + 1 :], (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in everything
    )


@dataclass
class Page:
    """A page of a TIFF: its samples, and tags over those of 8-bit grey; each tag has a type and values."""

    size: tuple[int, int]
    samples: bytes = b""
    tags: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    inner: Sequence["Page"] = ()


def tiff(*pages: Page, order: str = "<") -> bytes:
    """Return a TIFF of some pages; `inner` pages are reached through the tag SubIFDs."""
    content = bytearray({"<": b"II*\0", ">": b"MM\0*"}[order] + bytes(4))
    link = 4
    for page in pages:
        link = _append(content, page, order, link)
    return bytes(content)


def _append(content: bytearray, page: Page, order: str, link: int | None) -> int:
    """Append a page, write where it begins to `link`, and return where its own link to the next one is."""
    inner = []
    for below in page.inner:
        _append(content, below, order, None)
        inner.append(below.place)
    width, height = page.size
    samples = page.samples or bytes(width * height)
    tags = {
        256: (LONG, (width,)),
        257: (LONG, (height,)),
        258: (SHORT, (8,)),
        259: (SHORT, (1,)),
        262: (SHORT, (1,)),
        273: (LONG, (len(content),)),
        277: (SHORT, (1,)),
        278: (LONG, (height,)),
        279: (LONG, (len(samples),)),
        **({330: (LONG, tuple(inner))} if inner else {}),
        **page.tags,
    }
    content += samples + bytes(len(samples) % 2)
    entries = b""
    for tag, (kind, values) in sorted(tags.items()):
        value = struct.pack(f"{order}{len(values)}{_CODES[kind]}", *values)
        if len(value) > 4:
            place, value = len(content), value + bytes(len(value) % 2)
            content += value
            value = struct.pack(f"{order}L", place)
        entries += struct.pack(f"{order}HHL", tag, kind, len(values)) + value.ljust(4, b"\0")
    page.place = len(content)
    if link is not None:
        content[link : link + 4] = struct.pack(f"{order}L", page.place)
    content += struct.pack(f"{order}H", len(tags)) + entries + bytes(4)
    return len(content) - 4
