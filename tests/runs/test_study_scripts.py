"""The scripts of the study: what goes into its page, and what a rule lets calibration change."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from faircontext.backbones.lite import Lite
from faircontext.datasets import load_dataset
from faircontext.imageio import load_image
from faircontext.methods import FCL
from faircontext.runs.records import row_name
from made_runs import write_run

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(autouse=True)
def scripts_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for their own annotations
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


def test_tables_become_files_and_parts_that_are_not_given_stay(tmp_path: Path) -> None:
    script, path = load("page_tables"), tmp_path / "x.csv"
    head = "| a\\_b | c |\n|---|---|\n"
    text = f"**One \\[95%\\]**\n\n{head}| 1, 2 | x &amp; y |\n\ntext\n\n{head}| 3 |  |\n"
    (title, one), (_, two) = script.tables_of(text)
    assert title == "One \\[95%\\]"
    script.write_csv(path, {"one": one})
    script.write_csv(path, {"two": two})
    script.write_csv(path, {"one": one})
    assert path.read_text() == 'part,a_b,c\none,"1, 2",x & y\ntwo,3,\n'
    with pytest.raises(SystemExit, match=r"x\.csv: one has other columns"):
        script.write_csv(path, {"one": ["| z |", "|---|"]})


def test_a_rule_lets_calibration_change_an_answer_from_its_threshold_on() -> None:
    script, rule = load("select_safe"), "entropy over its maximum"

    def image(openness: float, changed: bool = True, right: bool = True) -> object:
        return script.Image("mine", True, False, not right, right, changed, {"entropy_before": openness, "most": 1.0})

    images = [image(0.7), image(0.8), image(0.9, right=False), image(0.9, changed=False)]
    assert script.allowed(images, rule, 0.8).tolist() == [False, True, True, False]
    assert script.guarded(images, rule, 0.8).tolist() == [False, True, False, False]
    # Where the open images are those that calibration has right, the rule that lets just them change is chosen; of
    # thresholds that are equally right, the one that interferes least.
    halves = [image(0.6, right=False), image(0.65, right=False), image(0.85), image(0.96)]
    assert script.select(halves, [rule]) == (rule, 0.7)


def test_the_rule_that_is_shipped_is_the_one_that_is_reported() -> None:
    script = load("select_safe")
    assert FCL().safe_openness in script.RULES["entropy over its maximum"][1]


def answers(script: ModuleType, correct: list[int], encoded: int) -> object:
    right = np.array(correct, bool)
    return script.Answers(right, *np.zeros((2, len(right)), bool), np.full(len(right), encoded))


def test_the_preset_fast_must_save_and_lose_nothing() -> None:
    script = load("select_fast")
    base = answers(script, [1] * 400 + [0] * 360, 209)
    same, dear = answers(script, [1] * 400 + [0] * 360, 83), answers(script, [1] * 400 + [0] * 360, 84)
    worse = answers(script, [1] * 385 + [0] * 375, 70)
    known = {"base": base, "dear": dear, "worse": worse, "same": same}
    assert script.chosen(known, "base", ["dear", "worse", "same"]) == "same"
    assert script.chosen(known, "base", ["dear", "worse"]) is None


def test_what_an_answer_encoded_is_counted() -> None:
    script = load("select_fast")
    settings = {"k": 10, "pairs": "all"}
    row = {"diagnostics": '{"evidence_masks": 100}'}
    assert script.encoded(row, settings, 64, 1000) == 209
    assert script.encoded(row, {**settings, "pairs": "top3"}, 64, 1000) == 64 + 100 + 24
    assert script.encoded(row, {**settings, "pairs": "top3"}, 64, 2) == 64 + 100 + 1
    assert script.encoded({"diagnostics": '{"vote_share": 0.5}'}, settings, 64, 1000) == 64
    for count in range(1, 12):
        for pairs, leaders in (("all", count), ("top3", 3)):
            rest = max(count - leaders, 0)
            expected = count * (count - 1) // 2 - rest * (rest - 1) // 2
            assert script.pairs_of({"k": count, "pairs": pairs}, 99) == expected


def test_a_fifth_of_the_classes_is_left_out_always_the_same() -> None:
    script = load("study_unknown")
    assert [len(script.left_out(classes)) for classes in (10, 100, 12)] == [2, 20, 2]
    assert script.left_out(10) == script.left_out(10)
    assert script.left_out(100) <= {*range(100)}


def test_unknown_images_are_summed_up_by_set_and_over_sets() -> None:
    """FCL's scores tell known from unknown; zero-shot's are the same for all, which is chance."""
    script = load("study_unknown")
    rows = [
        {
            "set": name,
            "known": known,
            "zero_shot": dict.fromkeys(script.SCORES, 0.5),
            "fcl": dict.fromkeys(script.SCORES, float(known)),
        }
        for name in script.SETS
        for known in [True] * 6 + [False] * 3
    ]
    lines = script.summarise(rows)
    assert len(lines) == len(script.SCORES) * (len(script.SETS) + 1)
    assert lines[0] == (
        f"| {script.SETS[0]} | probability | 6 + 3 | 0.500 (0.500 to 0.500) | 1.000 (1.000 to 1.000) | "
        "+0.500 (+0.500 to +0.500) |"
    )
    assert lines[-1] == f"| mean of {len(script.SETS)} sets | energy | {len(rows)} | | | +0.500 (+0.500 to +0.500) |"


def test_the_study_of_robustness_is_the_one_that_is_registered(tmp_path: Path) -> None:
    script = load("study_robustness")
    page = (SCRIPTS.parent / "docs" / "results" / "robustness.md").read_text(encoding="utf-8")
    parts = script.parts(tmp_path, tmp_path, "local-dir:MODEL")
    assert [path.name for path in parts] == ["corruptions", "attacks", "attacks-trained"]
    for options in parts.values():
        assert all(f"`{name}`" in page for name in options.datasets)
        perturbations = [str(perturbation) for perturbation in options.perturbations if perturbation is not None]
        assert all(
            f"`{perturbation}`" in page or f"`{perturbation.removesuffix(':3')}`" in page
            for perturbation in perturbations
        )
        attacked = any(perturbation.startswith("pgd") for perturbation in perturbations)
        assert (options.engine_image, options.precision) == (("torch", "fp32") if attacked else ("auto", "auto"))
        assert f"{options.limit} images" in page


def study_of(script: ModuleType, images: int = 8) -> dict:
    """Answers in three orders; methods with a memory are right on the second half of each stream."""
    keys = [("mine", position) for position in range(images)]
    study = {}
    for method in ("zero_shot", *script.METHODS):
        study[method] = {}
        for order in script.ORDERS:
            turn = [keys[(number + order) % images] for number in range(images)]
            memory = method not in ("zero_shot", *script.EPISODIC)
            right = {key: memory and 2 * number >= images for number, key in enumerate(turn)}
            seen = {key: number for number, key in enumerate(turn)} if memory else {}
            filed = dict.fromkeys(turn, "vote" in method) if memory else {}
            sizes = {"mine": 2.5} if memory else {}
            study[method][order] = script.Answers(right, filed, seen, [0.5] * images, sizes)
    return study


def test_online_methods_are_summed_up_over_orders() -> None:
    script = load("study_online")
    study = study_of(script)
    lines = [*script.table(study)]
    assert len(lines) == 2 + 1 + len(script.METHODS)
    assert lines[2].startswith("| zero_shot | 8 | 0.0 (0.0 to 32.4) |  |  |  | +0.0 |  | 0 |")
    tda = next(line for line in lines if line.startswith("| tda |"))
    assert tda.startswith("| tda | 8 | 50.0 (21.5 to 78.5) | 0.0, 50.0 to 50.0 | +50.0 (")
    assert tda.endswith(" | 4 | 2.5 | 0.500 |")
    votes = [*script.votes(study)][2:]
    assert [line.split(" | ")[2:5] for line in votes] == [["0.0", "100.0", "+0.0"]] * 3
    thirds = [*script.positions(study)][2:]
    assert len(thirds) == len(script.METHODS) - len(script.EPISODIC)
    assert thirds[0].endswith("| +0.0 (n = 9) | +66.7 (n = 9) | +100.0 (n = 6) |")
    primary = [*script.registered({"lite0": study, "trained": study})]
    assert len(primary) == 2 + 4
    assert primary[2] == "| lite0 | tda | +0.0 | 0.0 | 1 | 1 |"


def test_the_online_study_has_one_setting_for_all_sets() -> None:
    """What is run with the preset recommended is what the page says, the preset paper."""
    script = load("study_online")
    assert set(script.KNOWN) | set(script.FEW) <= set(script.SETS)
    assert len(set(script.SETS)) == 19
    assert not set(script.ONLINE) & set(Lite.recommended)


def test_images_are_reduced_to_their_shorter_side_and_keep_their_labels(tmp_path: Path) -> None:
    script, source = load("study_further"), tmp_path / "set"
    (source / "images").mkdir(parents=True)
    Image.new("RGB", (300, 150), "red").save(source / "images" / "a.jpg")
    Image.new("RGB", (20, 30), "blue").save(source / "images" / "b.png")
    (source / "classnames.txt").write_text("cat\ndog\n", encoding="utf-8")
    (source / "labels.csv").write_text("path,label\nimages/b.png,1\nimages/a.jpg,0\n", encoding="utf-8")
    script.reduce_images(source, tmp_path / "reduced")
    dataset = load_dataset("reduced", tmp_path)
    assert [(sample.key, sample.label) for sample in dataset.samples] == [("images/b.png", 1), ("images/a.png", 0)]
    assert [load_image(sample.path).shape for sample in dataset.samples] == [(30, 20, 3), (64, 128, 3)]


def test_registered_rules_are_applied_to_what_was_answered(tmp_path: Path) -> None:
    script = load("study_further")
    labels, sets = [*map(row_name, script.SETTINGS)], [f"set{number}" for number in range(5)]
    for name in sets:
        right = {label: range(15) for label in labels} | {"zero_shot": range(10), "fcl-fast85": range(12)}
        write_run(tmp_path / "further" / name, name, right)
        for half, explored in (("choosing", 10), ("choosing-reduced", 12), ("further-reduced", 18)):
            write_run(tmp_path / half / name, name, {"zero_shot": range(10), "fcl-explore": range(explored)})
    found = script.summarise(tmp_path)
    assert found["over zero-shot"]["fcl"]["difference"] == 0.25
    assert found["over recommended"]["fcl-fast85"]["lost"] == 15
    assert found["small images"]["further"]["more"]["difference"] == pytest.approx(0.4 - 0.25)
    assert found["rules"] == {
        "a gain elsewhere": True,
        "small images gain": found["small images"]["further"]["more"]["sets"][0] > 0,
        "fcl-safe": True,
        "fcl-fast85": False,
    }
    assert (
        "| `fcl-safe` over `fcl` | 100 | +0.00 | +0.0 to +0.0 | +0.0 to +0.0 | 0 / 0 |"
        in script.tables(found)["further"]
    )
