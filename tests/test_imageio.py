from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
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


@pytest.mark.parametrize("orientation", TURNED)
def test_exif_orientation_is_applied_unless_switched_off(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "a.png", Image.fromarray(COLOURS), exif=exif)
    assert np.array_equal(load_image(path), TURNED[orientation])
    assert np.array_equal(load_image(path, exif=False), COLOURS)


def test_a_turned_jpeg_is_turned_back(tmp_path):
    stored = np.zeros((16, 32, 3), dtype=np.uint8)
    stored[:, 16:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = load_image(save(tmp_path / "a.jpg", Image.fromarray(stored), exif=exif))
    assert pixels.shape == (32, 16, 3)
    assert pixels[:12].max() < 40
    assert pixels[20:].min() > 215


def test_broken_exif_does_not_cost_the_image(tmp_path):
    path = save(tmp_path / "a.png", Image.fromarray(COLOURS), exif=b"Exif\0\0II*\0\xff\xff\xff\xffbroken")
    assert np.array_equal(load_image(path), COLOURS)


@pytest.mark.parametrize("alpha", [0, 51, 128, 255])
def test_transparency_is_composited_on_white(tmp_path, alpha):
    colour = np.array([200, 100, 0])
    path = save(tmp_path / "a.png", Image.new("RGBA", (3, 2), (*colour, alpha)))
    expected = colour * alpha / 255 + 255 * (1 - alpha / 255)
    assert load_image(path) == pytest.approx(np.broadcast_to(expected, (2, 3, 3)), abs=1)


def test_transparent_grey_is_composited_on_white(tmp_path):
    image = Image.merge("LA", [Image.new("L", (3, 1), 0), Image.new("L", (3, 1))])
    image.putalpha(Image.fromarray(np.array([[0, 51, 255]], dtype=np.uint8)))
    assert load_image(save(tmp_path / "a.png", image)).tolist() == [[WHITE, [204, 204, 204], BLACK]]


def palette_image() -> Image.Image:
    image = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8), "L").convert("P")
    image.putpalette([*RED, *GREEN, *BLUE])
    image.putdata([0, 1, 2])
    return image


def test_a_palette_is_looked_up(tmp_path):
    assert load_image(save(tmp_path / "a.png", palette_image())).tolist() == [[RED, GREEN, BLUE]]


@pytest.mark.parametrize("kind", ["png", "gif"])
def test_a_transparent_palette_entry_becomes_white(tmp_path, kind):
    path = save(tmp_path / f"a.{kind}", palette_image(), transparency=1)
    assert load_image(path).tolist() == [[RED, WHITE, BLUE]]


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


def test_a_transparent_colour_of_an_image_without_alpha_becomes_white(tmp_path):
    image = Image.fromarray(np.array([[RED, BLUE]], dtype=np.uint8))
    assert load_image(save(tmp_path / "a.png", image, transparency=(255, 0, 0))).tolist() == [[WHITE, BLUE]]


def test_grey_is_three_equal_channels(tmp_path):
    grey = np.array([[0, 100, 255]], dtype=np.uint8)
    assert load_image(save(tmp_path / "a.png", Image.fromarray(grey))).tolist() == [[BLACK, [100] * 3, WHITE]]


def test_bilevel_is_black_and_white(tmp_path):
    image = Image.fromarray(np.array([[True, False]]))
    assert image.mode == "1"
    assert load_image(save(tmp_path / "a.png", image)).tolist() == [[WHITE, BLACK]]


def test_cmyk_is_converted(tmp_path):
    image = Image.merge(
        "CMYK",
        [
            Image.fromarray(np.array([row], dtype=np.uint8))
            for row in ([0, 255, 0, 0], [255, 0, 0, 0], [255, 255, 0, 0], [0, 0, 0, 255])
        ],
    )
    assert load_image(save(tmp_path / "a.tif", image)).tolist() == [[RED, GREEN, WHITE, BLACK]]


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_sixteen_bits_are_scaled_and_keep_their_levels(tmp_path, kind):
    ramp = (np.arange(256, dtype=np.uint16) * 257)[None]
    pixels = load_image(save(tmp_path / f"a.{kind}", Image.fromarray(ramp)))
    assert pixels.tolist() == [[[level] * 3 for level in range(256)]]


def test_a_dark_sixteen_bit_image_stays_dark(tmp_path):
    values = np.array([[0, 257, 2570]], dtype=np.uint16)
    assert load_image(save(tmp_path / "a.png", Image.fromarray(values)))[0, :, 0].tolist() == [0, 1, 10]


def test_floats_are_scaled_by_their_own_range(tmp_path):
    values = np.array([[-1.0, 0.0, 1.0]], dtype=np.float32)
    assert load_image(save(tmp_path / "a.tif", Image.fromarray(values)))[0, :, 0].tolist() == [0, 128, 255]


def test_of_an_animation_the_first_frame_is_read(tmp_path):
    first, second = Image.new("RGB", (2, 1), (255, 0, 0)), Image.new("RGB", (2, 1), (0, 0, 255))
    path = save(tmp_path / "a.gif", first, save_all=True, append_images=[second])
    assert load_image(path).tolist() == [[RED, RED]]


def test_the_pixels_can_be_written_to(tmp_path):
    pixels = load_image(save(tmp_path / "a.png", Image.fromarray(COLOURS)))
    pixels[0, 0] = 7
    assert pixels[0, 0].tolist() == [7, 7, 7]


# What is refused


def test_a_missing_file_is_named(tmp_path):
    assert refusal(tmp_path / "gone.jpg") == "no such file"


def test_a_folder_is_no_image(tmp_path):
    assert refusal(tmp_path) == "a folder, not an image"


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    path = tmp_path / "a.jpg"
    path.touch()
    assert refusal(path) == "the file is empty"


def test_text_under_an_image_name_is_said_to_be_text(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_text("hello, this is no picture\n")
    assert refusal(path) == "not an image but text"


@pytest.mark.parametrize("content", [b"\x00", b"\xff\xd8", b"\x7fELF\x02\x01\x01\x00"])
def test_other_bytes_under_an_image_name_are_no_image(tmp_path, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    assert refusal(path) == "not an image of a kind that can be read"


@pytest.mark.parametrize("kind", ["jpg", "png", "bmp", "gif", "tif"])
def test_a_truncated_file_says_so(tmp_path, kind):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    path = save(tmp_path / f"a.{kind}", Image.fromarray(noise))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert refusal(path).startswith("cannot be decoded: image file is truncated")


@given(data=st.data(), kind=st.sampled_from(["png", "jpg", "gif", "tif", "bmp"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_read_or_refused_by_name(tmp_path, data, kind):
    path = save(tmp_path / f"a.{kind}", Image.fromarray(COLOURS))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        outcome = load_image(path, max_pixels=10_000)
    except ImageError as error:
        outcome = error
    if isinstance(outcome, ImageError):
        assert str(outcome) == f"{path}: {outcome.reason}"
    else:
        assert (outcome.ndim, outcome.shape[2], outcome.dtype) == (3, 3, np.uint8)


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
