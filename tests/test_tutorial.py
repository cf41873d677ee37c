"""The tutorial: the page is run from top to bottom, and the notebook is the page."""

import json
import re
import shutil
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from faircontext.backbones import lite
from faircontext.datasets import load_dataset

ROOT = Path(__file__).parents[1]
PAGE, NOTEBOOK = ROOT / "docs/tutorial.md", ROOT / "examples/tutorial.ipynb"

pytestmark = pytest.mark.skipif(not NOTEBOOK.exists(), reason="the documentation is not here")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("write_tutorial", ROOT / "scripts/write_tutorial.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["write_tutorial"] = module  # where dataclasses look for their own annotations
    spec.loader.exec_module(module)
    return module


def test_the_notebook_is_the_page(script: ModuleType, tmp_path: Path) -> None:
    cells = script.split(PAGE.read_text("utf-8"))
    assert "".join(cell.to_markdown() for cell in cells) == PAGE.read_text("utf-8")
    script.write_notebook(PAGE, tmp_path / "made.ipynb")
    assert (tmp_path / "made.ipynb").read_text("utf-8") == NOTEBOOK.read_text("utf-8")
    assert NOTEBOOK.stat().st_size < 400_000


def test_cells_outputs_and_links(script: ModuleType, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.jpg")
    page = "A [link](b.md).\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n\n```sh\nfaircontext list methods\n```\n"
    page += "\n```python\nx\n```\n\n![a](a.jpg)\n\nEnd.\n"
    cells = script.split(page)
    assert "".join(cell.to_markdown() for cell in cells) == page
    made = script.to_notebook(cells, tmp_path)["cells"]
    assert made[0]["source"] == ["A [link](../docs/b.md)."]
    assert made[1]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": ["2\n"]}]
    assert made[3]["source"] == ["!faircontext list methods"]
    assert [*made[5]["outputs"][0]["data"]] == ["image/jpeg", "text/plain"]
    assert [cell.printed for cell, _ in script.run(cells[:2], tmp_path)] == ["", "2\n"]


def shape(printed: str) -> str:
    """Return what is printed without what differs between machines: engine, numbers, rules, widths of columns."""
    printed = re.sub(r"lite0 \([^)]*\)", "lite0", printed)
    return " ".join(re.sub(r"[\d.,+-]+|[─━]+|\u2212", "#", printed).split())


def with_less(cells: list[Any]) -> list[Any]:
    """Return the code with one noisy photo of each class, and with features that calls share."""
    less = {"range(6)": "range(2, 3)", "classify photos": "classify photos --features features"}
    return [
        replace(cell, text=re.sub("|".join(map(re.escape, less)), lambda m: less[m[0]], cell.text)) for cell in cells
    ]


@pytest.mark.slow
def test_the_tutorial_runs_and_prints_what_the_page_says(script: ModuleType, tmp_path: Path) -> None:
    cells = script.split(PAGE.read_text("utf-8"))
    for own, (cell, drawn) in zip(cells, script.run(with_less(cells), tmp_path), strict=True):
        assert (drawn is None) == (own.picture is None)
        assert shape(cell.printed) == shape(own.printed)


@pytest.mark.slow
def test_it_runs_on_a_labelled_folder_of_ones_own(
    script: ModuleType, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lite._IMAGE_SIZES, "lite0", 64)  # a twelfth of the work
    photos = load_dataset("pacs_photo", data)
    for sample in photos.samples[:: len(photos.samples) // 10]:
        folder = tmp_path / "labelled" / photos.names[sample.label]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(sample.path, folder)
    cells = with_less(script.split(PAGE.read_text("utf-8")))
    printed = [cell.printed for cell, _ in script.run(cells, tmp_path)]
    assert f"n = {len([*(tmp_path / 'labelled').glob('*/*')])}" in printed[-2]


def test_the_notebook_is_of_the_format_that_jupyter_reads() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len({*ids}) == len(ids)
