"""Numbers of more, or fewer, than eight bits, and the one of them that is transparent."""

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircontext.imageio import load_image
from made_images import SHORT, Page, png, tiff

EIGHT, SIXTEEN = [0, 100, 254], [0, 25_700, 65_535]


def levels(path: Path) -> list[int]:
    pixels = load_image(path)
    assert (pixels == pixels[..., :1]).all()
    return pixels[0, :, 0].tolist()


def grey_tiff(path: Path, code: str, values: list[float], order: str = "<", **tags: int) -> Path:
    bits = 8 * struct.calcsize(f"={code}")
    kind = {339: (SHORT, ({"f": 3, "i": 2, "h": 2, "b": 2}.get(code, 1),))}
    more = {int(tag[1:]): (SHORT, (value,)) for tag, value in tags.items()}
    samples = struct.pack(f"{order}{len(values)}{code}", *values)
    page = Page((len(values), 1), samples, {258: (SHORT, (bits,)), **kind, **more})
    path.write_bytes(tiff(page, order=order))
    return path


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        # 16 bits without a sign: the depth is the range, and a dark picture stays dark.
        ("H", EIGHT, [0, 0, 1]),
        ("H", SIXTEEN, [0, 100, 255]),
        # Wider, or with a sign: what fits 8 bits is 8 bits, what fits 16 is 16, and all else has its own range.
        ("b", [0, 100, 127], [0, 100, 127]),
        ("b", [-128, 0, 127], [0, 128, 255]),
        ("h", EIGHT, EIGHT),
        ("h", [0, 257, 25_700], [0, 1, 100]),
        ("h", [-128, 0, 128], [0, 128, 255]),
        ("i", EIGHT, EIGHT),
        ("i", SIXTEEN, [0, 100, 255]),
        ("i", [0, 1_000_000, 2_000_000], [0, 128, 255]),
        ("i", [-1_000_000, 0, 1_000_000], [0, 128, 255]),
        ("I", EIGHT, EIGHT),
        ("I", [0, 0, 0], [0, 0, 0]),
        ("I", SIXTEEN, [0, 100, 255]),
        ("I", [0, 2**31, 2**32 - 1], [0, 128, 255]),
        ("f", [0.0, 0.5, 1.0], [0, 128, 255]),
        ("f", [-1.0, 0.0, 1.0], [0, 128, 255]),
    ],
)
def test_grey_that_is_no_plain_byte_has_the_range_that_its_depth_or_its_numbers_say(tmp_path, code, values, expected):
    assert levels(grey_tiff(tmp_path / "a.tif", code, values)) == expected


@pytest.mark.parametrize(("values", "expected"), [(EIGHT, [0, 0, 1]), (SIXTEEN, [0, 100, 255])])
def test_sixteen_bits_are_sixteen_bits_in_png_and_pgm_too(tmp_path, values, expected):
    Image.fromarray(np.array([values], np.uint16)).save(tmp_path / "a.png")
    (tmp_path / "a.pgm").write_bytes(b"P5 3 1 65535\n" + struct.pack(">3H", *values))
    assert levels(tmp_path / "a.png") == expected
    assert levels(tmp_path / "a.pgm") == expected


def test_twelve_bits_have_their_own_white(tmp_path):
    packed = bytes([0x00, 0x08, 0x00, 0xFF, 0xFF, 0xFF])  # 0, 2048, 4095, 4095
    page = Page((4, 1), packed, {258: (SHORT, (12,))})
    (tmp_path / "a.tif").write_bytes(tiff(page))
    assert levels(tmp_path / "a.tif") == [0, 128, 255, 255]


@pytest.mark.parametrize(("code", "top"), [("B", 255), ("H", 65_535), ("f", 1.0)])
def test_white_may_be_zero_at_any_depth(tmp_path, code, top):
    path = grey_tiff(tmp_path / "a.tif", code, [0, top, top], t262=0)
    assert levels(path) == [255, 0, 0]


GREY, RGB = 0, 2


@pytest.mark.parametrize(
    ("depth", "colour", "samples", "transparent", "expected"),
    [
        (1, GREY, b"\x40", (1,), [[0] * 3, [255] * 3, [0] * 3]),
        (1, GREY, b"\x40", (0,), [[255] * 3, [255] * 3, [255] * 3]),
        (2, GREY, b"\x18", (1,), [[0] * 3, [255] * 3, [170] * 3]),
        (4, GREY, b"\x05\xa0", (5,), [[0] * 3, [255] * 3, [170] * 3]),
        (8, GREY, b"\x00\x05\xaa", (5,), [[0] * 3, [255] * 3, [170] * 3]),
        (16, GREY, b"\x00\x00\x12\x34\xff\xff", (0x1234,), [[0] * 3, [255] * 3, [255] * 3]),
        (16, GREY, b"\x00\x00\x12\x34\x80\x80", (0,), [[255] * 3, [18] * 3, [128] * 3]),
        (8, RGB, b"\x01\x02\x03\x05\x06\x07\xff\xff\x00", (5, 6, 7), [[1, 2, 3], [255] * 3, [255, 255, 0]]),
        (
            16,
            RGB,
            b"\x01\x01\x02\x02\x03\x03\x05\x15\x06\x16\x07\x17\xff\xff\xff\xff\x00\x00",
            (0x0515, 0x0616, 0x0717),
            [[1, 2, 3], [255] * 3, [255, 255, 0]],
        ),
    ],
)
def test_a_transparent_number_of_any_depth_is_on_white(tmp_path, depth, colour, samples, transparent, expected):
    chunk = (b"tRNS", struct.pack(f">{len(transparent)}H", *transparent))
    (tmp_path / "a.png").write_bytes(png(depth, colour, (3, 1), b"\0" + samples, chunk))
    assert load_image(tmp_path / "a.png")[0].tolist() == expected
