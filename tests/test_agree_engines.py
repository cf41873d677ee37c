"""The script that compares engines: its table from runs that are there, by hand."""

from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from carried import carry_out
from faircontext.imageio import read_image
from faircontext.runs.executors import answer_here

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "scripts" / "agree_engines.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("agree_engines", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_says_how_often_labels_are_the_same_and_by_how_much_accuracies_differ(script: ModuleType) -> None:
    same = 96 * [((1, True), (1, True))]
    others = [((1, True), (2, False)), ((2, False), (1, True)), ((0, False), (2, False)), ((1, False), (1, False))]
    cells = script.compare(same + others, level=0.97).split(" | ")
    assert cells[:2] == ["100", "97.0 (91.5 to 99.0)"]
    assert cells[2].startswith("97.0%")
    assert cells[4].startswith("+0.00 (-3.00 to +3.00)")
    assert cells[5] == "no"  # 97 of 100 labels are enough, the interval is not
    assert script.compare(999 * [((1, True), (1, True))], level=0.99).endswith("| yes")
    assert script.compare(999 * [((1, True), (2, True))], level=0.99).endswith("| no")


def test_only_runs_that_both_engines_have_are_compared(
    script: ModuleType, tmp_path: Path, make_plan: Callable[..., object]
) -> None:
    answer = partial(answer_here, read=read_image, workers=0)
    plan = make_plan(limit=6)
    for name in (script.REFERENCE, "openvino-bf16"):
        for method in script.METHODS:
            carry_out(plan, tmp_path / method / name, answer, False, {}, print)
    rows = list(script.table(tmp_path))[2:]
    assert [row.split(" | ")[:2] for row in rows] == [["| openvino, bf16", "zero_shot"], ["| openvino, bf16", "fcl"]]
    assert {row.split(" | ")[3] for row in rows} == {"100.0 (56.6 to 100.0)"}  # of five: one is no picture
