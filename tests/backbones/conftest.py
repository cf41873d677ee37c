"""Models of this folder are many: what one test had is given back before the next."""

import ctypes
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def trimmed() -> Iterator[None]:
    yield
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
