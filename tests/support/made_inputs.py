"""Images as tests name them: small files, archives of them, and what is found under some paths."""

import io
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from faircontext.datasets.inputs import collect


def pixels(seed: int) -> np.ndarray:
    """Return the pixels of `png`, which are noise."""
    return np.random.default_rng(seed).integers(0, 256, (20, 30, 3), np.uint8)


def png(seed: int = 0) -> bytes:
    """Return a PNG file of 30 x 20 pixels, another for each seed."""
    file = io.BytesIO()
    Image.fromarray(pixels(seed)).save(file, "PNG")
    return file.getvalue()


def write_images(folder: Path, *names: str) -> None:
    """Write images below a folder."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png(number))


def write_tar(archive: Path, members: Mapping[str, bytes], mode: Literal["w", "a"] = "w") -> Path:
    """Write an archive, or add to one."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive


def find_images(
    paths: Sequence[str], listed: Iterable[str] = (), say: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Return the files of images under some paths; `say` takes what was left out, a line each."""
    found = collect(paths, listed, ())
    for line in found.warnings:
        say(line)
    return [Path(sample.key) for sample in found.images]
