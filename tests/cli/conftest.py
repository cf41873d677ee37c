"""Commands whose default backbone looks at small pictures; `one_lite` loads it once for all of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import faircontext.backbones
from faircontext import Backbone
from faircontext.backbones import lite as backbones_lite
from faircontext.cli import main


@pytest.fixture(autouse=True)
def small_lite() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backbones_lite._IMAGE_SIZES, "lite0", 64)
        yield


@pytest.fixture
def one_lite(lite: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a command asks for the default backbone, it is the tests' own."""
    create = faircontext.backbones.create_backbone

    def chosen(name: str, pretrained: str | None = None, **options: object) -> Backbone:
        return lite if (name, pretrained) == ("lite0", None) else create(name, pretrained, **options)

    monkeypatch.setattr(faircontext.backbones, "create_backbone", chosen)


@pytest.fixture
def command(
    tiny_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command with a tiny model and returns (code, output, errors)."""

    def run(*words: object) -> tuple[int, str, str]:
        model = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--views", "count=8")
        code = main([*map(str, words), *(model if words[0] in ("classify", "evaluate") else ())])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run
