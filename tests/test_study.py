"""The study page and the code say the same: the recommended settings, and the tables of the results beside it."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faircontext.backbones.lite import Lite
from faircontext.metrics.bootstrap import interval_over_sets
from faircontext.runs.build import parse_fields, parse_settings
from faircontext.runs.experiments import read_experiment
from faircontext.views import ViewRecipe

FOLDER = Path(__file__).parents[1] / "docs" / "results"
PAGE = (FOLDER / "study.md").read_text(encoding="utf-8")
RESULTS = sorted(FOLDER.glob("*.results.json"))


def test_the_recommended_settings_are_those_of_the_page() -> None:
    found: dict[str, dict[str, Any]] = {}
    for owner, name, value in re.findall(r"^\| `(\w+)\.(\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE):
        word = f"{name}={value}"
        parsed = parse_fields(ViewRecipe, "views", [word], word) if owner == "views" else parse_settings(owner, (word,))
        found.setdefault(owner, {}).update(parsed)
    assert found == {owner: dict(settings) for owner, settings in Lite.recommended.items()}


@pytest.mark.parametrize("file", RESULTS, ids=[file.stem for file in RESULTS])
def test_the_table_is_that_of_the_results(file: Path) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    name = document["name"]
    assert file.name == f"{name}.results.json"
    assert f"]({file.name})" in PAGE
    with (FOLDER / "study.csv").open(encoding="utf-8", newline="") as table:
        rows = {row[1]: row[3:] for row in csv.reader(table) if row[0] == name}
    assert document["meta_info"]["versions"]
    assert document["run_info"]["experiment"]["variants"] == read_experiment(name).facts["variants"]
    shown = re.search(rf"<!-- begin {name} -->\n(.*?)<!-- end {name} -->", PAGE, re.DOTALL)
    for variant in document["variants"]:
        if variant["n"]:
            cells = rows[variant["label"]]
            assert cells[0] == str(variant["n"])
            assert cells[1].startswith(f"{100 * variant['accuracy']:.1f} (")
            assert variant["n"] == sum(found["n"] for found in variant["datasets"].values())
            assert shown is None or f" | {' | '.join(cells)} |" in shown[1]
        assert "/work" not in json.dumps(variant)


def test_what_exploration_gains_over_sets_like_these_is_that_of_the_results() -> None:
    document = json.loads((FOLDER / "lite0-localisation.results.json").read_text(encoding="utf-8"))
    (explored,) = (variant["zero_shot"] for variant in document["variants"] if variant["label"] == "explore")
    differences = [
        np.repeat([1, -1, 0], [one["gained"], one["lost"], one["n"] - one["gained"] - one["lost"]])
        for one in explored["datasets"].values()
    ]
    found = interval_over_sets(differences)
    assert found is not None
    assert found.value == pytest.approx(explored["difference"])
    shown = f"{100 * found.low:+.1f} to {100 * found.high:+.1f}".replace("-", "\N{MINUS SIGN}")
    readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    assert [page.count(shown) for page in (PAGE, readme)] == [2, 1]


def test_there_are_results() -> None:
    assert {file.name.partition(".")[0] for file in RESULTS} >= {"lite0-text", "lite0-evidence", "lite0-views"}
