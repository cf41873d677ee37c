"""Models of this folder are many: what one test had is given back before the next."""

import ctypes
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from faircontext import Backbone, create_backbone


@pytest.fixture(autouse=True)
def trimmed() -> Iterator[None]:
    yield
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


@pytest.fixture(scope="session")
def kind_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that writes the tiny model of transformers of a kind, once; a test changes copies."""
    from tiny_transformers import write  # imports transformers, which takes seconds

    root = tmp_path_factory.mktemp("kinds")
    return cache(lambda kind: write(root / kind, kind))


@pytest.fixture(scope="session")
def of_kind(kind_folder: Callable[[str], Path]) -> Callable[[str], Backbone]:
    """Return a function that loads it in float32, once."""
    return cache(lambda kind: create_backbone(f"transformers:{kind_folder(kind)}", precision="fp32"))


@pytest.fixture
def copied(kind_folder: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies the folder of a kind, for a test to change."""
    return lambda kind: Path(shutil.copytree(kind_folder(kind), tmp_path / f"copy-{kind}"))
