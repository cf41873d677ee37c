"""A service of the tiny model, one for all tests, and photos to send."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from services import NAMES, Running, Sent, running


@pytest.fixture(scope="session")
def model_words(tiny_folder: Callable[[str], Path]) -> tuple[str, ...]:
    """Options that choose the tiny model, with few views."""
    return ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--views", "count=8")


@pytest.fixture(scope="session")
def pets_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of class names."""
    file = tmp_path_factory.mktemp("labels") / "pets.txt"
    file.write_text("\n".join(NAMES) + "\n")
    return file


@pytest.fixture(scope="session")
def service(
    model_words: tuple[str, ...], pets_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A service with two label sets."""
    words = (*model_words, "--labels", "cup,glass", "--label-sets", f"pets={pets_file}", "--max-images", "30")
    with running(tmp_path_factory.mktemp("service"), *words, "--set", "masks=8", "--max-file-mb", "0.5") as started:
        yield started


@pytest.fixture(scope="session")
def sent(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> list[Path]:
    """Twenty photos, the fourth and the ninth of them broken."""
    folder = tmp_path_factory.mktemp("sent")
    for number in range(20):
        Image.fromarray(make_image(number, 60, 80)).save(folder / f"{number:02}.jpg", quality=92)
    (folder / "03.jpg").write_bytes(b"no picture")
    (folder / "08.jpg").write_bytes((folder / "07.jpg").read_bytes()[:300])
    return sorted(folder.iterdir())


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> Sent:
    """A photo as a field of a form."""
    file = tmp_path_factory.mktemp("photo") / "photo.png"
    Image.fromarray(make_image(1, 40, 40)).save(file)
    return "images", (file.name, file.read_bytes())
