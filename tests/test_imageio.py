from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircontext.errors import ArgumentError, ImageError
from faircontext.imageio import MAX_PIXELS, load_image, read_image
from faircontext.sources import Content

COLOURS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14
RED, GREEN, BLUE, WHITE, BLACK = [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [0, 0, 0]


def save(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


def refusal(path: Path, **options) -> str:
    with pytest.raises(ImageError) as caught:
        load_image(path, **options)
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    assert "\n" not in str(caught.value)
    return caught.value.reason


# What is read


@pytest.mark.parametrize("kind", ["png", "bmp", "tiff", "ppm", "tga", "webp"])
def test_a_lossless_colour_image_is_read_as_it_is(tmp_path, kind):
    options = {"lossless": True} if kind == "webp" else {}
    pixels = load_image(save(tmp_path / f"a.{kind}", Image.fromarray(COLOURS), **options))
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, COLOURS)


def test_an_image_in_memory_is_read_as_its_file(tmp_path):
    content = save(tmp_path / "a.png", Image.fromarray(COLOURS)).read_bytes()
    assert np.array_equal(load_image(Content("sent.png", content)), COLOURS)
    for broken, reason in ((b"", "the file is empty"), (content[:50], "cannot be decoded"), (b"text", "text")):
        with pytest.raises(ImageError, match=rf"^sent\.png: .*{reason}"):
            load_image(Content("sent.png", broken))
    with pytest.raises(ImageError, match=r"^sent\.png: 3 x 2 pixels are more than the limit of 5"):
        load_image(Content("sent.png", content), max_pixels=5)


def test_a_jpeg_is_read_within_its_loss(tmp_path):
    ramp = np.repeat(np.linspace(0, 255, 64, dtype=np.uint8)[None, :, None], 32, 0).repeat(3, -1)
    pixels = load_image(save(tmp_path / "a.jpg", Image.fromarray(ramp), quality=95))
    assert pixels == pytest.approx(ramp, abs=4)


def test_a_path_may_be_a_string_and_the_extension_may_be_wrong(tmp_path):
    path = save(tmp_path / "a.jpg", Image.fromarray(COLOURS), format="PNG")
    assert np.array_equal(load_image(str(path)), COLOURS)


def test_broken_exif_does_not_cost_the_image(tmp_path):
    path = save(tmp_path / "a.png", Image.fromarray(COLOURS), exif=b"Exif\0\0II*\0\xff\xff\xff\xffbroken")
    assert np.array_equal(load_image(path), COLOURS)


@pytest.mark.parametrize("alpha", [0, 51, 128, 255])
def test_transparency_is_composited_on_white(tmp_path, alpha):
    colour = np.array([200, 100, 0])
    path = save(tmp_path / "a.png", Image.new("RGBA", (3, 2), (*colour, alpha)))
    expected = colour * alpha / 255 + 255 * (1 - alpha / 255)
    assert load_image(path) == pytest.approx(np.broadcast_to(expected, (2, 3, 3)), abs=1)


def row(values: list, kind: type = np.uint8) -> Image.Image:
    return Image.fromarray(np.array([values], kind))


def palette_image() -> Image.Image:
    image = row([0, 1, 2]).convert("P")
    image.putpalette([*RED, *GREEN, *BLUE])
    image.putdata([0, 1, 2])
    return image


INKS = [row(values) for values in ([0, 255, 0, 0], [255, 0, 0, 0], [255, 255, 0, 0], [0, 0, 0, 255])]
MEANT = {
    "palette": ("png", palette_image(), {}, [RED, GREEN, BLUE]),
    "clear palette entry": ("png", palette_image(), {"transparency": 1}, [RED, WHITE, BLUE]),
    "clear palette entry of a GIF": ("gif", palette_image(), {"transparency": 1}, [RED, WHITE, BLUE]),
    "clear colour": ("png", row([RED, BLUE]), {"transparency": (255, 0, 0)}, [WHITE, BLUE]),
    "grey": ("png", row([0, 100, 255]), {}, [BLACK, [100] * 3, WHITE]),
    "clear grey": ("png", row([[0, 0], [0, 51], [0, 255]]), {}, [WHITE, [204] * 3, BLACK]),
    "bilevel": ("png", row([True, False], bool), {}, [WHITE, BLACK]),
    "CMYK": ("tif", Image.merge("CMYK", INKS), {}, [RED, GREEN, WHITE, BLACK]),
    "dark 16 bits": ("png", row([0, 257, 2570], np.uint16), {}, [BLACK, [1] * 3, [10] * 3]),
    "256 levels": ("png", row([257 * level for level in range(256)], np.uint16), {}, [[n] * 3 for n in range(256)]),
    "floats": ("tif", row([-1.0, 0.0, 1.0], np.float32), {}, [BLACK, [128] * 3, WHITE]),
}


@pytest.mark.parametrize("case", MEANT)
def test_values_become_the_colours_that_they_mean(tmp_path, case):
    kind, image, options, colours = MEANT[case]
    assert load_image(save(tmp_path / f"a.{kind}", image, **options)).tolist() == [colours]


@pytest.mark.parametrize("rle", [False, True])
def test_a_tga_of_32_bits_without_alpha_bits_is_opaque(tmp_path, rle):
    layers = np.dstack([COLOURS, np.zeros((2, 3), np.uint8)])
    path = save(tmp_path / "a.tga", Image.fromarray(layers), rle=rle)
    content = bytearray(path.read_bytes())
    assert content[17] & 15 == 8
    content[17] &= 0xF0
    path.write_bytes(content)
    assert np.array_equal(load_image(path), COLOURS)


@pytest.mark.parametrize("kind", ["png", "tga", "gif", "webp", "grey", "depth", "colour"])
def test_a_wholly_transparent_picture_is_noted(tmp_path, kind):
    if kind in ("grey", "depth", "colour"):
        pixels, key = {
            "grey": (np.full((2, 3), 7, np.uint8), 7),
            "depth": (np.full((2, 3), 700, np.uint16), 700),
            "colour": (np.full((2, 3, 3), 7, np.uint8), (7, 7, 7)),
        }[kind]
        path = save(tmp_path / "a.png", Image.fromarray(pixels), transparency=key)
    else:
        path = save(tmp_path / f"a.{kind}", Image.fromarray(np.dstack([COLOURS, np.zeros((2, 3), np.uint8)])))
    image = read_image(path)
    assert (image.pixels == 255).all()
    assert image.warnings == ("wholly transparent: nothing is to be seen in it, and a white area is answered",)
    part = np.dstack([COLOURS, np.eye(2, 3, dtype=np.uint8)])
    assert read_image(save(tmp_path / "part.png", Image.fromarray(part))).warnings == ()


def test_the_pixels_can_be_written_to(tmp_path):
    pixels = load_image(save(tmp_path / "a.png", Image.fromarray(COLOURS)))
    pixels[0, 0] = 7
    assert pixels[0, 0].tolist() == [7, 7, 7]


# What is refused


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello, this is no picture\n", "not an image but text"),
        (b"\x00", "not an image of a kind that can be read"),
        (b"\xff\xd8", "not an image of a kind that can be read"),
        (b"\x7fELF\x02\x01\x01\x00", "not an image of a kind that can be read"),
    ],
)
def test_what_is_no_image_is_called_what_it_is(tmp_path, content, reason):
    (tmp_path / "a.jpg").write_bytes(content)
    assert refusal(tmp_path / "a.jpg") == reason
    assert refusal(tmp_path / "gone.jpg") == "no such file"


@pytest.mark.parametrize("kind", ["jpg", "png", "bmp", "gif", "tif"])
def test_a_truncated_file_says_so(tmp_path, kind):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    path = save(tmp_path / f"a.{kind}", Image.fromarray(noise))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert refusal(path).startswith("cannot be decoded: image file is truncated")


# Limits


def test_an_image_over_the_limit_is_refused_with_its_size(tmp_path):
    path = save(tmp_path / "a.png", Image.fromarray(COLOURS))
    assert refusal(path, max_pixels=5) == "3 x 2 pixels are more than the limit of 5 (max_pixels)"
    assert np.array_equal(load_image(path, max_pixels=6), COLOURS)


@pytest.mark.parametrize("options", [{}, {"max_pixels": 10**12}])
@pytest.mark.parametrize(
    ("side", "reason"),
    [
        (13_345, "13345 x 13345 pixels are more than the limit of 178,000,000 (max_pixels)"),
        (20_000, "more pixels than the limit of 178,000,000 (max_pixels)"),
    ],
)
def test_the_default_limit_cannot_be_raised(tmp_path, side, reason, options):
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P6 %d %d 255\n" % (side, side))
    assert side * side > MAX_PIXELS
    assert refusal(path, **options) == reason


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_pixel_is_refused(tmp_path, limit):
    with pytest.raises(
        ArgumentError, match=rf"^max_pixels={limit} is not possible; it must be a number of at least 1$"
    ):
        load_image(tmp_path / "a.png", max_pixels=limit)


def test_a_large_image_causes_no_warning(tmp_path):
    # 100 million pixels: Pillow warns above 89 million, and warnings are errors here. The file is a header only.
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P5 10000 10000 255\n")
    assert "truncated" in refusal(path)
