"""The recipes of CONTRIBUTING.md, and the files of examples/: an installed package is known by its entry points."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from coop_trees import draw
from packages import install, run

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
RECIPES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## ")


def commands_of(title: str) -> list[list[str]]:
    """Return the commands of a recipe."""
    (recipe,) = (part for part in RECIPES if part.startswith(f"{title}\n"))
    blocks = re.findall(r"^( *)```\n(.*?)^\1```$", recipe, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for _, block in blocks for line in dedent(block).splitlines()]


def follow(title: str) -> list[list[str]]:
    """Return the arguments of a recipe's `faircontext` commands."""
    commands = commands_of(title)
    assert commands
    assert {words[0] for words in commands} == {"faircontext"}
    return [words[1:] for words in commands]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of the examples, installed, beside a photo and two data sets."""
    draw(tmp_path / "photo.png")
    for name in ("circle", "square"):
        for number in range(2):
            draw(tmp_path / f"data/shapes/{name}/{number}.png")
            draw(tmp_path / f"data/flat/{name}_{number}.png")
    site = tmp_path / "examples"
    shutil.copytree(EXAMPLES, site, ignore=shutil.ignore_patterns("__pycache__", "*.ipynb"))
    project = tomllib.loads((site / "pyproject.toml").read_text())["project"]
    install(site, project["name"], project["entry-points"])
    return site


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_use_what_the_api_page_lists(path: Path) -> None:
    listed = {*re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)}
    used = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "faircontext"
        for alias in node.names
    }
    assert used or "import faircontext" in path.read_text()
    if "may change without notice" not in path.read_text():
        assert not used - listed


def test_the_pyproject_of_the_examples_is_complete() -> None:
    document = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())
    assert {"name", "version", "dependencies"} <= document["project"].keys()
    groups = document["project"]["entry-points"]
    modules = {f"{target.partition(':')[0]}.py" for group in groups.values() for target in group.values()}
    assert modules == {*document["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]}
    assert all((EXAMPLES / module).is_file() for module in modules)


@pytest.mark.process
@pytest.mark.smoke
def test_a_method(site: Path, tiny_folder: Callable[[str], Path]) -> None:
    listing, classify = follow("Add a method")
    done = run(site, [listing, [*classify, "--backbone", f"local-dir:{tiny_folder('clip')}"]])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mean_view     zero-shot on the plain view, mixed with the mean of the views\n")
    assert "mean_view (share=0.25)" in done.stdout


@pytest.mark.process
def test_a_method_with_a_memory(site: Path, tiny_folder: Callable[[str], Path]) -> None:
    listing, evaluate, classify = follow("Add a method with a memory")
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}"]
    done = run(site, [listing, [*evaluate, *model], [*evaluate, *model, "--resume"], [*classify, *model]])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("running_mean  zero-shot less the mean of the logits so far; in order\n")
    for order in range(2):
        document = json.loads((site.parent / f"runs/shapes-order-{order}/run.json").read_text())
        assert document["states"]["running_mean"]["seen"] == 4
        assert document["status"] == "complete"
    assert "running_mean (share=0.25)" in done.stdout


@pytest.mark.process
def test_a_backbone(site: Path) -> None:
    listing, classify = follow("Add a backbone")
    done = run(site, [listing, [*classify, "--device", "cpu"]])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("toy\n")
    assert "1 image" in done.stdout


@pytest.mark.process
def test_a_data_set(site: Path, tiny_folder: Callable[[str], Path]) -> None:
    listing, check, evaluate = follow("Add a data set")
    done = run(site, [listing, check, [*evaluate, "--backbone", f"local-dir:{tiny_folder('clip')}"]])
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 can be evaluated" in done.stdout
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["name", "shapes", "flat_shapes"]
    for name in ("shapes", "flat_shapes"):
        assert f"{name} (test): " in done.stdout
        assert (site.parent / "runs" / name / "run.json").is_file()
        assert "a drawing of a {}." in (site.parent / "runs" / name / "run.json").read_text()


@pytest.mark.process
@pytest.mark.parametrize(
    ("title", "printed"),
    [
        ("Add a decision", r"photo\.png (cat|dog|none of these: zero-shot predicts (cat|dog))\n"),
        ("Add an executor", r"runs/shapes 4 rows\n"),
    ],
)
def test_a_script(title: str, printed: str, site: Path) -> None:
    (command,) = commands_of(title)
    done = subprocess.run([sys.executable, *command[1:]], cwd=site.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(printed, done.stdout)


@pytest.mark.process
def test_what_cannot_be_imported_is_one_note_and_stops_nothing(site: Path) -> None:
    install(site, "broken-dist", {f"faircontext.{group}": {"odd": "absent:odd"} for group in ("methods", "datasets")})
    done = run(site, [["list", "methods"], ["list", "methods", "fcl"], ["data", "list"], ["data", "list"]])
    assert done.returncode == 0
    assert "fcl" in done.stdout
    assert "caltech101" in done.stdout
    reason = "absent:odd: ModuleNotFoundError: No module named 'absent'"
    assert done.stderr.splitlines() == [
        f"note: {kind} 'odd' of broken-dist is left out: {reason}" for kind in ("method", "data set")
    ]
