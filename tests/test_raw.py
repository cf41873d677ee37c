"""Camera raw is developed where rawpy is installed: a small DNG that the test makes."""

import struct
from pathlib import Path

import numpy as np
import pytest

from faircontext import FairContextError
from faircontext.datasets.inputs import collect
from faircontext.imageio import image_extensions, read_image

rawpy = pytest.importorskip("rawpy")


@pytest.fixture
def with_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faircontext.imagefiles.reads_raw", lambda: True)


def write_dng(
    path: Path, colour: tuple[float, float, float], orientation: int = 1, size: tuple[int, int] = (64, 96)
) -> Path:
    """Write an uncompressed DNG of a Bayer sensor that sees one colour, brighter in its left half."""
    height, width = size
    mosaic = np.empty((height, width), np.float64)
    for row in range(2):
        for column in range(2):
            mosaic[row::2, column::2] = colour[row + column]
    mosaic[:, : width // 2] *= 1.5
    values = np.clip(mosaic * 30_000, 0, 65_535).astype("<u2").tobytes()
    to_camera = [32405, -15371, -4985, -9693, 18760, 416, 556, -2040, 10572]  # from XYZ: the camera sees linear sRGB
    tags: dict[int, tuple[int, list[int]]] = {
        254: (4, [0]),
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [16]),
        259: (3, [1]),
        262: (3, [32803]),
        273: (4, [0]),
        274: (3, [orientation]),
        277: (3, [1]),
        278: (4, [height]),
        279: (4, [len(values)]),
        33421: (3, [2, 2]),
        33422: (1, [0, 1, 1, 2]),
        50706: (1, [1, 4, 0, 0]),
        50708: (2, [*b"Made by a test\0"]),
        50714: (4, [0]),
        50717: (4, [65_535]),
        50721: (10, [number for value in to_camera for number in (value, 10_000)]),
        50728: (5, [1, 1] * 3),
        50778: (3, [21]),
    }
    codes = {1: "B", 2: "B", 3: "H", 4: "L", 5: "L", 10: "l"}
    begin = 8 + 2 + 12 * len(tags) + 4
    extra = b""
    entries = b""
    for tag, (kind, numbers) in sorted(tags.items()):
        count = len(numbers) // (2 if kind in (5, 10) else 1)
        packed = struct.pack(f"<{len(numbers)}{codes[kind]}", *numbers)
        if tag == 273:
            packed = b"STRP"
        if len(packed) > 4:
            entries += struct.pack("<HHLL", tag, kind, count, begin + len(extra))
            extra += packed + bytes(len(packed) % 2)
        else:
            entries += struct.pack("<HHL", tag, kind, count) + packed.ljust(4, b"\0")
    entries = entries.replace(b"STRP", struct.pack("<L", begin + len(extra)))
    path.write_bytes(
        struct.pack("<2sHL", b"II", 42, 8) + struct.pack("<H", len(tags)) + entries + bytes(4) + extra + values
    )
    return path


@pytest.mark.usefixtures("with_raw")
def test_raw_is_developed(tmp_path: Path) -> None:
    path = write_dng(tmp_path / "photo.dng", (1.0, 0.4, 0.2))
    image = read_image(path)
    height, width, _ = image.pixels.shape
    assert (height, width) == pytest.approx((64, 96), abs=8)  # a decoder may leave the border out
    left, right = image.pixels[:, 4 : width // 2 - 4].mean((0, 1)), image.pixels[:, width // 2 + 4 : -4].mean((0, 1))
    assert left[0] > left[1] > left[2]  # red before green before blue
    assert (left > right + 5).all()
    assert image.warnings == ("camera raw was developed with the camera's white balance",)


@pytest.mark.usefixtures("with_raw")
def test_the_camera_s_orientation_is_applied_unless_it_is_left_out(tmp_path: Path) -> None:
    path = write_dng(tmp_path / "photo.dng", (1.0, 0.4, 0.2), orientation=6)
    turned, plain = read_image(path).pixels, read_image(path, exif=False).pixels
    assert turned.shape[0] > turned.shape[1]
    assert np.array_equal(np.rot90(turned), plain)


@pytest.mark.usefixtures("with_raw")
def test_raw_in_a_folder_counts_as_an_image(tmp_path: Path) -> None:
    write_dng(tmp_path / "a.dng", (0.5, 0.5, 0.5))
    (tmp_path / "b.CR2").touch()
    assert ".cr2" in image_extensions()
    assert [Path(sample.key).name for sample in collect([str(tmp_path)], (), ["cat"]).images] == ["a.dng", "b.CR2"]


@pytest.mark.usefixtures("with_raw")
def test_raw_that_cannot_be_developed_and_raw_that_is_too_large_say_so(tmp_path: Path) -> None:
    path = write_dng(tmp_path / "photo.dng", (0.5, 0.5, 0.5))
    with pytest.raises(FairContextError, match=r"photo.dng: 96 x 64 pixels are more than the limit of 100"):
        read_image(path, max_pixels=100)
    (tmp_path / "cut.raf").write_bytes(b"FUJIFILMCCD-RAW " + bytes(200))
    with pytest.raises(FairContextError, match=r"cut.raf: camera raw that LibRaw cannot read: "):
        read_image(tmp_path / "cut.raf")


def test_without_rawpy_it_says_what_to_install(tmp_path: Path) -> None:
    path = write_dng(tmp_path / "photo.dng", (0.5, 0.5, 0.5))
    with pytest.raises(FairContextError, match=r"camera raw, which is not read; .*pip install 'faircontext\[raw\]'"):
        read_image(path)
