"""The reference page of options and settings has what commands and methods have."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from faircontext.cli import _COMMANDS
from faircontext.methods.base import METHODS, types_of

ROOT = Path(__file__).parents[1]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import options_page

    return options_page


def test_the_page_has_every_option_and_every_setting(hook: ModuleType) -> None:
    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    page = hook.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri="options.md")))
    assert "<!-- options -->" not in page
    assert "<!-- settings -->" not in page
    found = hook.classes_of_options()
    assert found.keys() == _COMMANDS.keys()
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| `")]
    assert ["| `--masks`", "`100`", "Number of masks per image.", "`demo` |"] in rows
    assert all(any(f"`{command}`" in row[-1] for row in rows) for command in found)
    for name in METHODS:
        settings = page.partition(f"{{ #{name} }}")[2].partition("### ")[0]
        assert [setting for setting in types_of(METHODS[name]) if f"| `{setting}` | " not in settings] == []
    assert "| `imagenet_sketch` | 2.363 | 7.45 | confident |" in page


def test_other_pages_stay_as_they_are(hook: ModuleType) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="classify.md"))
    assert hook.on_page_markdown("<!-- options -->", page) == "<!-- options -->"
