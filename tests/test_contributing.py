"""The recipes of CONTRIBUTING.md, to the letter: packages outside the repository are known by their entry points."""

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from coop_trees import draw
from packages import install, run

pytestmark = pytest.mark.process

RECIPES = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## ")


def follow(title: str, site: Path) -> list[list[str]]:
    """Write a recipe's package into a folder, and return its commands."""
    (recipe,) = (part for part in RECIPES if part.startswith(f"{title}\n"))
    blocks = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", recipe, re.MULTILINE | re.DOTALL)
    commands = []
    for _, language, indented in blocks:
        text = dedent(indented)
        name = text.partition("\n")[0].removeprefix("# ")
        if language == "python":
            (site / name).parent.mkdir(parents=True)
            (site / name).write_text(text, encoding="utf-8")
        elif language == "toml":
            install(site, title.split()[-1], tomllib.loads(text)["project"]["entry-points"])
        else:
            commands += [shlex.split(line)[1:] for line in text.splitlines()]
    assert commands
    return commands


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for packages, beside a photo and two data sets."""
    draw(tmp_path / "photo.png")
    for name in ("circle", "square"):
        for number in range(2):
            draw(tmp_path / f"data/shapes/{name}/{number}.png")
            draw(tmp_path / f"data/flat/{name}_{number}.png")
    return tmp_path / "site"


@pytest.mark.smoke
def test_a_method(site: Path, tiny_folder: Callable[[str], Path]) -> None:
    listing, classify = follow("Add a method", site)
    done = run(site, [listing, [*classify, "--backbone", f"local-dir:{tiny_folder('clip')}"]])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mean_view     zero-shot on the plain view, mixed with the mean of the views\n")
    assert "mean_view (share=0.25)" in done.stdout


def test_a_method_with_a_memory(site: Path, tiny_folder: Callable[[str], Path]) -> None:
    listing, evaluate, classify = follow("Add a method with a memory", site)
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}"]
    done = run(site, [listing, [*evaluate, *model], [*evaluate, *model, "--resume"], [*classify, *model]])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("running_mean  zero-shot with the mean of the logits so far taken off; in order\n")
    for order in range(2):
        document = json.loads((site.parent / f"runs/shapes-order-{order}/run.json").read_text())
        assert document["states"]["running_mean"]["seen"] == 4
        assert document["status"] == "complete"
    assert "running_mean (share=0.25)" in done.stdout


def test_a_backbone(site: Path) -> None:
    listing, classify = follow("Add a backbone", site)
    done = run(site, [listing, [*classify, "--device", "cpu"]])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("toy\n")
    assert "1 image" in done.stdout


def test_a_data_set(site: Path, tiny_folder: Callable[[str], Path]) -> None:
    listing, check, evaluate = follow("Add a data set", site)
    done = run(site, [listing, check, [*evaluate, "--backbone", f"local-dir:{tiny_folder('clip')}"]])
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 can be evaluated" in done.stdout
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["name", "shapes", "flat_shapes"]
    for name in ("shapes", "flat_shapes"):
        assert f"{name} (test): " in done.stdout
        assert (site.parent / "runs" / name / "run.json").is_file()
        assert "a drawing of a {}." in (site.parent / "runs" / name / "run.json").read_text()


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
