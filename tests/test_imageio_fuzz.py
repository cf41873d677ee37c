"""Damaged files of every format: each is read, or refused by the package's own error, fast and in little memory."""

import io
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircontext.errors import ImageError
from faircontext.imageio import load_image
from faircontext.system import lifetime_peak_mb

FILES_PER_KIND = 200
KINDS = {
    "jpg": {},
    "jpg cmyk": {"mode": "CMYK"},
    "jpg exif": {"exif": True},
    "png": {},
    "png palette": {"mode": "P"},
    "png 16 bit": {"mode": "I;16"},
    "gif": {"frames": 3},
    "webp": {"frames": 2},
    "tif": {"frames": 2},
    "bmp": {},
    "ppm": {},
    "tga": {},
}


def sample(kind: str, mode: str = "RGB", frames: int = 1, exif: bool = False) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    images = [Image.fromarray(np.roll(noise, perturbation, 0)).resize((48, 40)) for perturbation in range(frames)]
    if mode == "I;16":
        images = [Image.fromarray(noise[..., 0].astype(np.uint16) * 257)]
    elif mode != "RGB":
        images = [image.convert(mode) for image in images]
    options = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
    if exif:
        tags = Image.Exif()
        tags[0x0112] = 6
        options["exif"] = tags
    file = io.BytesIO()
    name = kind.split()[0]
    images[0].save(file, format={"jpg": "JPEG", "tif": "TIFF"}.get(name, name.upper()), **options)
    return file.getvalue()


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, mostly in the header; cut the end off; or write over a stretch."""
    damaged = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        way = rng.integers(4)
        place = int(rng.integers(min(len(damaged), 64) if rng.random() < 0.5 else len(damaged)))
        if way == 0:
            damaged[place] ^= 1 << int(rng.integers(8))
        elif way == 1:
            damaged[place] = int(rng.choice([0, 1, 127, 128, 255]))
        elif way == 2 and len(damaged) > 8:
            del damaged[max(8, place) :]
        else:
            stretch = rng.bytes(int(rng.integers(1, 9)))
            damaged[place : place + len(stretch)] = stretch
    return bytes(damaged)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    content = sample(kind, **KINDS[kind])
    path = tmp_path / "damaged"
    path.write_bytes(content)
    assert load_image(path).shape[2] == 3
    rng = np.random.default_rng(sum(kind.encode()))
    memory = lifetime_peak_mb() or 0
    filters, refused = list(warnings.filters), []
    for _ in range(FILES_PER_KIND):
        path.write_bytes(damage(content, rng))
        begin = time.perf_counter()
        try:
            pixels = load_image(path, max_pixels=4_000_000)
            assert (pixels.ndim, pixels.shape[2], pixels.dtype) == (3, 3, np.uint8)
        except ImageError as error:
            refused.append(error)
        assert time.perf_counter() - begin < 60  # no damage sends a decoder round in circles
    assert 0 < len(refused) < FILES_PER_KIND  # the damage was neither harmless nor total
    assert [str(error) for error in refused] == [f"{path}: {error.reason}" for error in refused]
    assert not any("\n" in error.reason for error in refused)
    assert warnings.filters == filters
    assert (lifetime_peak_mb() or 0) - memory < 500
