"""The scripts of the study: what goes into its page, and what a rule lets calibration change."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_results_do_not_say_where_a_model_lies() -> None:
    script = load("study_lite")
    assert script.without_folders('{"name": "local-dir:/home/me/models/small"}') == '{"name": "local-dir:small"}'
    assert script.without_folders('["local-dir:../small/", "lite0"]') == '["local-dir:small", "lite0"]'


def test_blocks_go_between_their_marks_again_and_again() -> None:
    script, page = load("study_lite"), "a\n<!-- begin x -->\n<!-- end x -->\nb"
    once = script.fill(page, {"x": r"1 \\1"})
    assert once == "a\n<!-- begin x -->\n\n" + r"1 \\1" + "\n\n<!-- end x -->\nb"
    assert script.fill(once, {"x": "2"}) == script.fill(page, {"x": "2"})
    with pytest.raises(SystemExit, match="no marks for y"):
        script.fill(page, {"y": ""})


def test_a_rule_lets_calibration_change_an_answer_up_to_its_threshold() -> None:
    script = load("select_safe")

    def image(lead: float, changed: bool = True) -> object:
        values = {"votes_old_before": 0.5 + lead, "votes_new_before": 0.5}
        return script.Image("mine", True, False, False, changed, changed, values)

    images = [image(0.1), image(0.2), image(0.3), image(0.0, changed=False)]
    assert script.answer(images, "lead in votes at most", 0.2).tolist() == [True, True, False, False]
