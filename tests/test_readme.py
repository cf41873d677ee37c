"""The README: every command in it is run here, or is listed with the reason why not; it stays short."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from coop_trees import draw
from faircontext.cli import main

README = Path(__file__).parents[1] / "README.md"

pytestmark = pytest.mark.skipif(not README.exists(), reason="the documentation is not here")

NOT_RUN = {
    "git clone": "needs a network",
    "cd faircontext": "is of the shell",
    ". .venv/bin/activate": "is of the shell",
    "python3 -m venv": "sets up an environment; a test of the wheel makes one",
    "pip install": "downloads; a test of the wheel installs it",
    ".venv/bin/pip install": "downloads",
    "make demo": "is `faircontext demo`, which the tests of the command run, after an installation",
    "make test": "is what runs this test",
    "faircontext serve": "goes on until it is stopped; tests/serve starts it",
}
"""How the commands begin that are not run here, and why."""


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def commands() -> list[str]:
    """Return the commands of the README, those in the text included."""
    lines = [line for block in blocks("") for line in block.splitlines()]
    return [*lines, *re.findall(r"`(faircontext [a-z]+(?: [^`]+)?)`", README.read_text("utf-8"))]


RUN = [line for line in commands() if not line.startswith(tuple(NOT_RUN))]


def test_it_is_short_and_each_reason_is_needed() -> None:
    assert len(README.read_text("utf-8").split()) <= 900
    assert all(any(line.startswith(known) for line in commands()) for known in NOT_RUN)
    assert len(RUN) >= 4


def test_every_command_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_folder: Callable[[str], Path],
    make_image: Callable,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the order of the page, with a tiny model in place of the default one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number, path in enumerate(("photo.jpg", "photos/a.jpg", "photos/b.png")):
        Image.fromarray(make_image(number)).save(path)
    for name in ("dog", "house"):
        draw(tmp_path / f"labelled/{name}/1.png")
    for line in RUN:
        command, *words = shlex.split(line, comments=True)[1:]
        if command in ("classify", "explain", "evaluate"):
            words += ["--backbone", f"local-dir:{tiny_folder('clip')}"]
        assert main([command, *words]) == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.slow
def test_the_python_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_image: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(make_image(0)).save("photo.jpg")
    (code,) = blocks("python")
    exec(code, {})
    assert re.match(r"(tabby cat|dog|horse|bicycle) 0\.\d+ tensor\(\[", capsys.readouterr().out)
