"""Runs that tests of a session read and none changes; figures are written at few dots per inch."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def few_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faircontext.report.style.DPI", 40)


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faircontext.report.page.charts_of", lambda *_: [])


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], object]], Path]:
    """Return a function that returns a folder which another has filled, once in a session."""
    folders: dict[Callable[[Path], object], Path] = {}

    def fill(write: Callable[[Path], object]) -> Path:
        if write not in folders:
            folders[write] = tmp_path_factory.mktemp(write.__name__)
            write(folders[write])
        return folders[write]

    return fill
