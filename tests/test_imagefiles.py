"""What a file holds besides the picture, or instead of it: metadata, previews, pages, and files that are no images."""

import io
import logging
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, PngImagePlugin

from faircontext.errors import ImageError
from faircontext.imageio import load_image, read_image
from made_images import BYTE, LONG, SHORT, Page, png, tiff

NOT_READ = "which is not read; export it as JPEG, PNG or TIFF"
Image.init()
without_avif = pytest.mark.skipif("AVIF" not in Image.SAVE, reason="this Pillow has no AVIF")
AVIF = pytest.param("avif", marks=without_avif)
RAW = f"camera raw, {NOT_READ}, or: pip install 'faircontext[raw]'"
COLOURS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14
ROWS = b"".join(b"\0" + row.tobytes() for row in COLOURS)


def refusal(path: Path, **options) -> str:
    with pytest.raises(ImageError) as caught:
        load_image(path, **options)
    assert "\n" not in str(caught.value)
    return caught.value.reason


# Metadata

MANY = zlib.compress(b"x" * 2_000_000)
NOISE = os.urandom(2_000_000)
ORIENTATION_6 = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
METADATA = {
    "zTXt of 2 MB": ([(b"zTXt", b"Comment\0\0" + MANY)], "text (zTXt)"),
    "iTXt of 2 MB": ([(b"iTXt", b"Comment\0\1\0\0\0" + MANY)], "text (iTXt)"),
    "iCCP of 2 MB": ([(b"iCCP", b"profile\0\0" + zlib.compress(NOISE))], "colour profile (iCCP)"),
    "iCCP packed in an unknown way": ([(b"iCCP", b"profile\0\7" + MANY)], "colour profile (iCCP)"),
    "zTXt packed in an unknown way": ([(b"zTXt", b"Comment\0\7" + MANY)], "text (zTXt)"),
    "zTXt behind the pixels": ([(b"IDAT", b""), (b"zTXt", b"Comment\0\0" + MANY)], "text (zTXt)"),
    "two kinds": ([(b"zTXt", b"a\0\0" + MANY), (b"iTXt", b"b\0\1\0\0\0" + MANY)], "text (zTXt), text (iTXt)"),
    "64 MB of text in all": (
        [(b"zTXt", b"%d\0\0" % number + zlib.compress(b"x" * 1_000_000)) for number in range(70)],
        "text (zTXt)",
    ),
    "a cut gAMA": ([(b"gAMA", b"x")], "chunk (gAMA)"),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_is_too_large_or_broken_costs_itself_and_not_the_picture(tmp_path, case):
    chunks, words = METADATA[case]
    (tmp_path / "a.png").write_bytes(png(8, 2, (3, 2), ROWS, *chunks))
    found = read_image(tmp_path / "a.png")
    assert np.array_equal(found.pixels, COLOURS)
    assert found.warnings == (f"too large or broken, and left out: {words}",)


@pytest.mark.parametrize("chunk", [b"IHDR", b"IDAT"])
def test_what_the_picture_needs_is_never_left_out(tmp_path, chunk):
    content = bytearray(png(8, 2, (3, 2), ROWS, (b"zTXt", b"Comment\0\0" + MANY)))
    place = content.index(chunk)
    content[place + 4 : place + 8] = b"\xff\xff\xff\xff"
    (tmp_path / "a.png").write_bytes(content)
    assert refusal(tmp_path / "a.png")


def test_metadata_beside_the_large_one_still_counts(tmp_path):
    large = (b"zTXt", b"Comment\0\0" + MANY)
    (tmp_path / "a.png").write_bytes(png(8, 2, (3, 2), ROWS, large, (b"eXIf", ORIENTATION_6)))
    assert np.array_equal(load_image(tmp_path / "a.png"), np.rot90(COLOURS, -1))
    assert np.array_equal(load_image(tmp_path / "a.png", exif=False), COLOURS)


def test_large_metadata_is_no_way_round_the_limit_of_pixels(tmp_path):
    large = (b"zTXt", b"Comment\0\0" + MANY)
    (tmp_path / "a.png").write_bytes(png(8, 2, (3, 2), ROWS, large))
    assert refusal(tmp_path / "a.png", max_pixels=5) == "3 x 2 pixels are more than the limit of 5 (max_pixels)"
    (tmp_path / "a.png").write_bytes(png(8, 2, (20_000, 20_000), ROWS, large))
    assert refusal(tmp_path / "a.png") == "more pixels than the limit of 178,000,000 (max_pixels)"


def test_limits_of_the_decoder_are_left_as_they_are(tmp_path):
    before = PngImagePlugin.MAX_TEXT_CHUNK, PngImagePlugin.MAX_TEXT_MEMORY, ImageFile.LOAD_TRUNCATED_IMAGES
    (tmp_path / "a.png").write_bytes(png(8, 2, (3, 2), ROWS, (b"zTXt", b"Comment\0\0" + MANY)))
    load_image(tmp_path / "a.png")
    assert before == (PngImagePlugin.MAX_TEXT_CHUNK, PngImagePlugin.MAX_TEXT_MEMORY, ImageFile.LOAD_TRUNCATED_IMAGES)


@pytest.mark.parametrize("kind", ["jpg", "tif", "webp", AVIF, "gif"])
def test_other_formats_carry_any_metadata_too(tmp_path, kind):
    options = {"comment": NOISE} if kind == "gif" else {"icc_profile": NOISE}
    Image.new("RGB", (16, 16), (200, 30, 40)).save(tmp_path / f"a.{kind}", **options)
    assert np.abs(load_image(tmp_path / f"a.{kind}").astype(int) - (200, 30, 40)).max() < 8


# Orientation

TURNED = {
    1: COLOURS,
    2: COLOURS[:, ::-1],
    3: COLOURS[::-1, ::-1],
    4: COLOURS[::-1],
    5: COLOURS.transpose(1, 0, 2),
    6: np.rot90(COLOURS, -1),
    7: COLOURS[::-1, ::-1].transpose(1, 0, 2),
    8: np.rot90(COLOURS),
}
LOSSLESS = {
    "png": {},
    "tif": {},
    "tif lzw": {"compression": "tiff_lzw"},
    "tif deflate": {"compression": "tiff_adobe_deflate"},
    "webp": {"lossless": True},
}


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("orientation", TURNED)
def test_orientation_is_applied_or_not_in_every_format(tmp_path, kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{kind.split()[0]}"
    Image.fromarray(COLOURS).save(path, exif=exif, **LOSSLESS[kind])
    assert np.array_equal(load_image(path), TURNED[orientation])
    assert np.array_equal(load_image(path, exif=False), COLOURS)


XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description tiff:Orientation="6" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"/></rdf:RDF></x:xmpmeta>'
)


@pytest.mark.parametrize("kind", ["tif", "png"])
def test_an_orientation_in_xmp_is_one_as_well(tmp_path, kind):
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", XMP)
    options = {"tiffinfo": {700: XMP.encode()}} if kind == "tif" else {"pnginfo": text}
    Image.fromarray(COLOURS).save(tmp_path / f"a.{kind}", **options)
    if kind == "png":  # the oldest Pillow does not look for it in a TIFF
        assert np.array_equal(load_image(tmp_path / f"a.{kind}"), TURNED[6])
    assert np.array_equal(load_image(tmp_path / f"a.{kind}", exif=False), COLOURS)


@pytest.mark.parametrize("kind", ["jpg", AVIF, "mpo"])
def test_formats_with_loss_are_turned_or_not(tmp_path, kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = np.zeros((16, 32, 3), dtype=np.uint8)
    stored[:, 16:] = 255
    image = Image.fromarray(stored)
    options = {"save_all": True, "append_images": [image]} if kind == "mpo" else {}
    image.save(tmp_path / f"a.{kind}", exif=exif, **options)
    turned, plain = load_image(tmp_path / f"a.{kind}"), load_image(tmp_path / f"a.{kind}", exif=False)
    assert turned.shape == (32, 16, 3)
    assert (turned[:12].max() < 40, turned[20:].min() > 215) == (True, True)
    assert plain.shape == (16, 32, 3)
    assert (plain[:, :12].max() < 40, plain[:, 20:].min() > 215) == (True, True)


# Camera raw, and pages of a TIFF

REDUCED = {254: (LONG, (1,))}
SENSOR = {262: (SHORT, (32803,))}
LINEAR = {262: (SHORT, (34892,))}
VERSION = {50706: (BYTE, (1, 4, 0, 0))}
BOX = b"\0\0\0\x18ftyp%s\0\0\0\0%s" + bytes(64)
RAWS = {
    "DNG": tiff(Page((160, 120), tags={**REDUCED, **VERSION}, inner=[Page((320, 240), tags=SENSOR)])),
    "DNG of one page": tiff(Page((160, 120), tags={**SENSOR, **VERSION})),
    "DNG of RGB": tiff(Page((160, 120), tags={**REDUCED, **VERSION}, inner=[Page((320, 240), tags=LINEAR)])),
    "DNG big-endian": tiff(Page((160, 120), tags={**REDUCED, **VERSION}), order=">"),
    "NEF": tiff(
        Page((160, 120), tags=REDUCED, inner=[Page((64, 48), tags=REDUCED), Page((320, 240), tags=SENSOR)]), order=">"
    ),
    "ARW": tiff(Page((160, 120), tags=REDUCED, inner=[Page((320, 240), tags=SENSOR)])),
    "PEF": tiff(Page((160, 120), tags=SENSOR), Page((64, 48))),
    "CR2": b"II*\0\x10\0\0\0CR\2\0" + tiff(Page((160, 120)))[12:],
    "IIQ": b"IIII" + bytes(4) + b"IIII" + bytes(64),
    "CR3": BOX % (b"crx ", b"isom"),
    "RAF": b"FUJIFILMCCD-RAW 0201" + bytes(64),
    "ORF": b"IIRO\x08\0\0\0" + bytes(64),
    "RW2": b"IIU\0\x18\0\0\0" + bytes(64),
    "X3F": b"FOVb" + bytes(64),
    "CRW": b"II\x1a\0\0\0HEAPCCDR" + bytes(64),
}


@pytest.mark.parametrize("extension", ["dng", "tif", "jpg"])
@pytest.mark.parametrize("kind", RAWS)
def test_camera_raw_is_refused_by_what_is_in_it(tmp_path, kind, extension):
    (tmp_path / f"a.{extension}").write_bytes(RAWS[kind])
    assert refusal(tmp_path / f"a.{extension}") == RAW


def grey(width: int, height: int, level: int, tags=None, inner=()) -> Page:
    return Page((width, height), bytes([level]) * (width * height), tags or {}, inner)


FIRST = ("the first of several frames was taken",)
PAGES = {
    "pages of one size": ([grey(8, 6, 10), grey(8, 6, 20)], 10, FIRST),
    "a larger page, of less than four times": ([grey(8, 6, 10), grey(15, 12, 20)], 10, FIRST),
    "smaller copies behind": ([grey(80, 60, 10), grey(8, 6, 20, REDUCED)], 10, FIRST),
    "smaller copies inside": ([grey(80, 60, 10, inner=[grey(8, 6, 20, REDUCED)])], 10, ()),
    "a reduced copy in front": (
        [grey(8, 6, 10, REDUCED), grey(80, 60, 20)],
        20,
        ("page 2 was taken, as those before are reduced copies",),
    ),
    "the old mark of a reduced copy": (
        [grey(8, 6, 10, {255: (SHORT, (2,))}), grey(80, 60, 20)],
        20,
        ("page 2 was taken, as those before are reduced copies",),
    ),
    "a mask in front": (
        [grey(80, 60, 10, {254: (LONG, (4,))}), grey(80, 60, 20)],
        20,
        ("page 2 was taken, as those before are reduced copies",),
    ),
    "reduced copies only": ([grey(8, 6, 10, REDUCED), grey(80, 60, 20, REDUCED)], 10, FIRST),
}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("case", PAGES)
def test_of_a_tiff_the_first_page_is_taken_that_is_no_reduced_copy(tmp_path, case, order):
    pages, level, notes = PAGES[case]
    (tmp_path / "a.tif").write_bytes(tiff(*pages, order=order))
    found = read_image(tmp_path / "a.tif")
    assert (found.pixels.min(), found.pixels.max()) == (level, level)
    assert found.warnings == notes


@pytest.mark.parametrize(
    "pages",
    [
        [grey(16, 12, 10), grey(160, 120, 20)],
        [grey(16, 12, 10), grey(16, 12, 10), grey(32, 24, 20)],
        [grey(16, 12, 10, inner=[grey(160, 120, 20)])],
        [grey(16, 12, 10, REDUCED, inner=[grey(160, 120, 20)])],
    ],
)
def test_a_small_page_that_may_be_a_copy_of_a_large_one_is_refused(tmp_path, pages):
    (tmp_path / "a.tif").write_bytes(tiff(*pages))
    largest = max(page.size for page in (*pages, *pages[0].inner))
    assert refusal(tmp_path / "a.tif") == (
        "the page of 16 x 12 pixels may be a small copy of another in the same file, of "
        f"{largest[0]} x {largest[1]}; export the one that is meant"
    )


def test_the_limit_of_pixels_holds_for_the_page_that_is_taken(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiff(grey(8, 6, 10, REDUCED), grey(80, 60, 20)))
    assert refusal(tmp_path / "a.tif", max_pixels=4_799).startswith("80 x 60 pixels are more than the limit of 4,799")


def test_a_hostile_tiff_is_looked_at_for_a_moment_only(tmp_path):
    # A directory that links to itself through both kinds of link, and one that claims 65,535 tags.
    content = bytearray(tiff(grey(8, 6, 10), grey(8, 6, 10)))
    second = struct.unpack("<L", content[-4:])[0]
    assert second == 0
    content[-4:] = content[4:8]
    (tmp_path / "a.tif").write_bytes(content)
    assert load_image(tmp_path / "a.tif").max() == 10
    place = struct.unpack("<L", content[4:8])[0]
    content[place : place + 2] = b"\xff\xff"
    (tmp_path / "a.tif").write_bytes(content)
    with suppress(ImageError):  # what follows the directory is read as tags, and may or may not make sense
        assert load_image(tmp_path / "a.tif").shape == (6, 8, 3)


# What no decoder takes

RGB32F = {258: (SHORT, (32,) * 3), 262: (SHORT, (2,)), 277: (SHORT, (3,)), 339: (SHORT, (3,) * 3)}
UNREAD = {
    "13 bands": (
        tiff(Page((4, 2), bytes(104), {258: (SHORT, (8,) * 13), 277: (SHORT, (13,))})),
        "a TIFF of 13 bands of 8-bit integers, which cannot be read; export it as RGB of 8 or 16 bits",
    ),
    "3 x float32": (
        tiff(Page((4, 2), bytes(96), RGB32F)),
        "a TIFF of 3 bands of 32-bit floats, which cannot be read; export it as RGB of 8 or 16 bits",
    ),
    "float64": (
        tiff(Page((4, 2), bytes(64), {258: (SHORT, (64,)), 339: (SHORT, (3,))})),
        "a TIFF of 1 band of 64-bit floats, which cannot be read; export it as RGB of 8 or 16 bits",
    ),
    "an unknown compression": (
        tiff(Page((4, 2), bytes(8), {259: (SHORT, (34712,))})),
        "a TIFF of 1 band of 8-bit integers, compression 34712, which cannot be read; export it as RGB of 8 or 16 bits",
    ),
    "a cut header": (b"II*\0\xff\0\0\0" + bytes(16), None),
    "JPEG 2000": (
        b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(64),
        f"JPEG 2000, {NOT_READ}",
    ),
    "JPEG XL": (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(64), f"JPEG XL, {NOT_READ}"),
    "Photoshop": (b"8BPS\0\1" + bytes(64), f"a Photoshop file, {NOT_READ}"),
    "PAM": (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\nabc", f"PAM, {NOT_READ}"),
    "NumPy": (b"\x93NUMPY\1\0" + bytes(64), "not an image but a NumPy array"),
    "Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 9\n",
        "not an image but a pointer of Git LFS; fetch the file itself with: git lfs pull",
    ),
    "git-annex": (
        b"/annex/objects/SHA256E-s9--0a.jpg\n",
        "not an image but a pointer of git-annex; fetch the file itself with: git annex get",
    ),
    "zeros": (bytes(4096), "nothing but zeros, as an interrupted copy or download leaves behind"),
    "MP4": (BOX % (b"isom", b"mp42"), "not an image but a video"),
    "QuickTime": (BOX % (b"qt  ", bytes(4)), "not an image but a video"),
    "AVI": (b"RIFF\0\1\0\0AVI LIST" + bytes(64), "not an image but a video"),
    "Matroska": (b"\x1a\x45\xdf\xa3" + bytes(64), "not an image but a video"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_a_file_that_no_decoder_takes_is_called_what_it_is_and_nothing_is_printed(tmp_path, kind, capsys, monkeypatch):
    content, reason = UNREAD[kind]
    # As in a process of its own, where log lines without a handler go to standard error.
    monkeypatch.setattr(logging.getLogger("PIL"), "propagate", False)
    (tmp_path / "a.tif").write_bytes(content)
    assert refusal(tmp_path / "a.tif") == reason if reason else refusal(tmp_path / "a.tif")
    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("PIL").handlers == []


@without_avif
def test_avif_is_known_by_any_of_its_brands(tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 40)).save(file, format="AVIF")
    content = bytearray(file.getvalue())
    assert content[8:12] == b"avif"
    content[8:12] = b"mif1"
    (tmp_path / "a.avif").write_bytes(content)
    assert load_image(tmp_path / "a.avif").shape == (16, 16, 3)
