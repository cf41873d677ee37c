"""Kinds of image file that are rarer than photos, each made by the test."""

import os

import numpy as np
import pytest
from PIL import Image, ImageCms

import faircontext.imagefiles
from faircontext.errors import ImageError
from faircontext.imageio import load_image, read_image

RED, WHITE = (200, 30, 40), (255, 255, 255)


def near(pixels: np.ndarray, colour: tuple[int, int, int], levels: int) -> bool:
    return bool(np.abs(pixels.astype(int) - np.array(colour)).max() <= levels)


def test_lab_is_converted_to_its_colour(tmp_path):
    to_lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    ImageCms.applyTransform(Image.new("RGB", (4, 3), RED), to_lab).save(tmp_path / "a.tif")
    with Image.open(tmp_path / "a.tif") as written:
        assert written.mode == "LAB"
    assert near(load_image(tmp_path / "a.tif"), RED, 4)


def test_an_adobe_cmyk_jpeg_is_not_inverted(tmp_path):
    Image.new("CMYK", (16, 16), (0, 200, 180, 20)).save(tmp_path / "a.jpg", quality=95)
    content = (tmp_path / "a.jpg").read_bytes()
    assert b"Adobe" in content
    assert near(load_image(tmp_path / "a.jpg"), (235, 51, 69), 12)


def test_a_ycck_jpeg_is_not_inverted(tmp_path):
    Image.new("CMYK", (16, 16), (0, 200, 180, 20)).save(tmp_path / "a.jpg", quality=95)
    content = bytearray((tmp_path / "a.jpg").read_bytes())
    place = content.index(b"Adobe") + 11
    assert content[place] == 0  # the transform: 0 for CMYK, 2 for YCCK
    content[place] = 2
    (tmp_path / "a.jpg").write_bytes(content)
    # The file's numbers now mean YCCK: YCbCr of what Adobe stores, 255 - CMY, complemented once more, beside 255 - K.
    y, cb, cr, k = (255 - value for value in (0, 200, 180, 20))
    rgb = np.array([y + 1.402 * (cr - 128), y - 0.344136 * (cb - 128) - 0.714136 * (cr - 128), y + 1.772 * (cb - 128)])
    expected = (255 - np.clip(rgb, 0, 255)) * k / 255
    assert near(load_image(tmp_path / "a.jpg"), tuple(expected.astype(int)), 12)


def profile(blue: float) -> bytes:
    """Return an sRGB profile that calls another colour blue, by editing its matrix."""
    content = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    tags = int.from_bytes(content[128:132], "big")
    for tag in range(tags):
        entry = 132 + 12 * tag
        if content[entry : entry + 4] == b"bXYZ":
            offset = int.from_bytes(content[entry + 4 : entry + 8], "big") + 8
            for axis in range(3):
                place = slice(offset + 4 * axis, offset + 4 * axis + 4)
                value = int.from_bytes(content[place], "big", signed=True)
                content[place] = int(value * blue).to_bytes(4, "big", signed=True)
    return bytes(content)


@pytest.mark.parametrize("kind", ["png", "jpg", "tif"])
def test_a_colour_profile_is_converted(tmp_path, kind):
    image = Image.new("RGB", (16, 16), (20, 40, 200))
    image.save(tmp_path / f"same.{kind}", icc_profile=profile(1.0))
    image.save(tmp_path / f"weak.{kind}", icc_profile=profile(0.25))
    assert near(load_image(tmp_path / f"same.{kind}"), (20, 40, 200), 3)
    assert load_image(tmp_path / f"weak.{kind}")[..., 2].max() < 120


def test_a_profile_keeps_transparency_on_white(tmp_path):
    image = Image.new("RGBA", (4, 4), (20, 40, 200, 0))
    image.putpixel((1, 1), (20, 40, 200, 255))
    image.save(tmp_path / "a.png", icc_profile=profile(0.25))
    pixels = load_image(tmp_path / "a.png")
    assert near(pixels[0, 0], WHITE, 0)
    assert pixels[1, 1, 2] < 120


@pytest.mark.parametrize("junk", [b"no profile", profile(1.0)[:200]])
def test_a_broken_profile_is_left_out(tmp_path, junk):
    Image.new("RGB", (4, 4), RED).save(tmp_path / "a.png", icc_profile=junk)
    assert near(load_image(tmp_path / "a.png"), RED, 0)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (np.linspace(0, 65_535, 256).round().astype(">u2"), [*range(256)]),
        (np.array([0, 257, 65_535], np.int32), [0, 1, 255]),  # fits 16 bits
        (np.array([-1_000_000, 0, 1_000_000], np.int32), [0, 128, 255]),
        (np.array([0.0, 0.5, 1.0, np.nan, np.inf, -np.inf], np.float32), [0, 128, 255, 0, 255, 0]),
    ],
)
def test_wide_values_are_scaled(tmp_path, values, levels):
    Image.fromarray(values[None]).save(tmp_path / "a.tif")
    assert load_image(tmp_path / "a.tif")[0, :, 0].tolist() == levels


@pytest.mark.parametrize("kind", ["gif", "png", "webp", "tif"])
def test_of_several_frames_the_first_is_taken_and_noted(tmp_path, kind):
    frames = [Image.new("RGB", (5, 4), colour) for colour in (RED, (0, 0, 0), WHITE)]
    options = {"lossless": True} if kind == "webp" else {}
    frames[0].save(tmp_path / f"a.{kind}", save_all=True, append_images=frames[1:], **options)
    found = read_image(tmp_path / f"a.{kind}")
    assert found.warnings == ("the first of several frames was taken",)
    assert near(found.pixels, RED, 0)


@pytest.mark.parametrize("size", [(1, 40), (40, 1), (3, 40), (40, 3), (2000, 1)])
def test_thin_images_keep_their_shape_and_channel_order(tmp_path, size):
    Image.new("RGB", size, RED).save(tmp_path / "a.png")
    pixels = load_image(tmp_path / "a.png")
    assert pixels.shape == (size[1], size[0], 3)
    assert near(pixels, RED, 0)


def refusal(path) -> str:
    with pytest.raises(ImageError) as caught:
        load_image(path)
    return caught.value.reason


def test_what_is_no_file_that_can_be_read_is_refused(tmp_path):
    (tmp_path / "link.jpg").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    assert refusal(tmp_path / "link.jpg") == "a link to nothing"
    assert refusal(tmp_path / "pipe.jpg") == "not a regular file"
    assert refusal(tmp_path / "folder.jpg") == "a folder, not an image"
    assert refusal("null\0byte.jpg").startswith("cannot be read: ")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission_is_refused(tmp_path):
    Image.new("RGB", (4, 4), RED).save(tmp_path / "a.png")
    (tmp_path / "a.png").chmod(0)
    assert refusal(tmp_path / "a.png") == "cannot be read: permission denied"


def test_heic_without_its_plug_in_is_refused_with_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64))
    monkeypatch.setattr(faircontext.imagefiles, "find_spec", lambda _: None)
    assert refusal(tmp_path / "a.heic") == "HEIC images need a plug-in: pip install pillow-heif"


def test_formats_that_run_programs_are_not_opened(tmp_path):
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n"
    (tmp_path / "a.jpg").write_bytes(eps)
    assert refusal(tmp_path / "a.jpg") == "not an image but a PostScript drawing"


def test_the_decoders_own_limit_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    Image.new("1", (100, 150)).save(tmp_path / "a.png")
    assert load_image(tmp_path / "a.png").shape == (150, 100, 3)
    assert Image.MAX_IMAGE_PIXELS == 10_000
