"""The positive control: contexts are planted as they say, and what is said of answers follows from them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from faircontext import Episode, LabelSpace
from faircontext.backbones.contexts import read_context
from faircontext.datasets import load_dataset
from faircontext.imageio import load_image

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"
NAMES = ("cat", "dog", "horse", "snail")


@pytest.fixture(scope="module")
def study() -> ModuleType:
    """The script, which imports others beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        import study_control

        yield study_control
        for name in ("study_control", "control_contexts", "study_lite"):
            sys.modules.pop(name, None)


def answered(study: ModuleType, explored: str, main: str, clean: str, seed: int = 1, kind: str = "prior") -> object:
    """Answers of two methods on as many images as there are letters, `+` for a right one."""
    right = [np.array([letter == "+" for letter in word]) for word in (explored, main, clean)]
    planting = study.Planting("clothing10_test", kind, 10, seed)
    return study.Answered(planting, {study.EXPLORED: right[0], study.MAIN: right[1]}, right[2])


def test_recovery_is_the_share_of_what_was_lost(study: ModuleType) -> None:
    one = answered(study, "+++++-----", "++++-+++--", "++++++++-+")
    found = study.recovery([one], study.MAIN)
    assert found.value == pytest.approx((7 - 5) / (9 - 5))
    assert found.low < 0.5 < found.high
    assert study.recovery([one], study.EXPLORED).value == 0.0
    untouched = answered(study, "+-", "++", "+-")
    assert np.isnan(study.recovery([untouched], study.MAIN).value)


def test_an_image_of_several_plantings_is_one_image(study: ModuleType) -> None:
    one = answered(study, "+++++-----", "++++-+++--", "++++++++-+")
    many = [answered(study, "+++++-----", "++++-+++--", "++++++++-+", seed) for seed in range(6)]
    alone, together = study.change([one], study.MAIN, study.EXPLORED), study.change(many, study.MAIN, study.EXPLORED)
    assert together["difference"] == alone["difference"] == pytest.approx(0.2)
    assert together["images"] == pytest.approx(alone["images"])
    assert together["p_value"] == alone["p_value"]
    assert (together["gained"], together["lost"]) == (18, 6)
    assert together["mcnemar"] < alone["mcnemar"]
    # Of 2^4 signs of three gains and a loss, sums of at least 2 in size: those of 4 and of 2, ten of them.
    assert alone["p_value"] == pytest.approx(10 / 16, abs=0.02)


def test_numbers_of_a_part_are_those_of_its_answers(study: ModuleType) -> None:
    some = [answered(study, "+--+", "++-+", "++++"), answered(study, "++++", "++++", "++++", 0, "none")]
    rows = {(row["kind"], row["strength"], row["set"], row["method"]): row for row in study.cells(some)}
    prior = rows["prior", 10, "all", study.MAIN]
    assert (prior["n"], prior["right"], prior["explored"], prior["clean"], prior["recovery"]) == (4, 3, 2, 4, 0.5)
    assert rows["three", None, "all", study.MAIN]["n"] == 4  # none is none of the three
    assert rows["none", None, "all", study.MAIN]["recovery"] is None
    assert "| fcl-area25 | 4 | 75.0 | +25.0 |" in "\n".join(study.table([*rows.values()], "prior", 10))


def test_the_settings_with_the_largest_recovery_that_do_no_harm_are_chosen(study: ModuleType) -> None:
    def rows(label: str, recovery: float, harm: float) -> list[dict]:
        shared = {"strength": None, "set": "all", "method": label}
        return [
            {**shared, "kind": "three", "recovery": recovery, "difference": 0.1},
            {**shared, "kind": "none", "recovery": None, "difference": harm},
        ]

    grid = [*rows("fcl-lr50-s40", 0.9, -0.01), *rows("fcl-lr20-s10", 0.5, -0.005), *rows("fcl-lr20-s5", 0.5, 0.0)]
    assert study.choose_settings({"grid": grid}) == {"lr": 0.02, "steps": 5}
    assert study.choose_settings({}) == {"lr": 0.006, "steps": 10}


def test_every_label_has_settings_that_its_method_takes(study: ModuleType) -> None:
    for part in study.PARTS.values():
        words = study.words_of(part.methods, {"lr": 0.02, "steps": 5})
        labels = words[1 : words.index("--set")]
        assert len(labels) == len(part.methods) == len({study.row_name(label) for label in labels})
        for word in words[words.index("--set") + 1 :]:
            label, _, setting = word.partition(".")
            assert label in labels
            study.parse_settings(study.method_of(label), (setting,))


def test_the_page_has_a_place_for_every_table(study: ModuleType) -> None:
    page = (SCRIPTS.parent / "docs" / "results" / "control.md").read_text(encoding="utf-8")
    for name, part in study.PARTS.items():
        for kind in (*part.kinds, "none"):
            assert f"<!-- begin {name}-{kind} -->" in page


@pytest.fixture(scope="module")
def garden(
    study: ModuleType,
    tiny_folder: Callable[[str], Path],
    make_image: Callable[..., np.ndarray],
    tmp_path_factory: pytest.TempPathFactory,
) -> object:
    """A tiny model that has its own answers on two sets right."""
    root = tmp_path_factory.mktemp("control")
    images = [make_image(seed, 48, 48) for seed in range(16)]
    for name in ("clothing10_test", "grocery81_test"):
        (root / name / "images").mkdir(parents=True)
        (root / name / "classnames.txt").write_text("\n".join(NAMES) + "\n")
        for seed, image in enumerate(images):
            Image.fromarray(image).save(root / name / "images" / f"{seed:02}.png")
        (root / name / "labels.csv").write_text("path,label\n" + "".join(f"images/{i:02}.png,0\n" for i in range(16)))
    made = study.Garden(root, tiny_folder("clip"), root / "first")
    text = LabelSpace(NAMES, made.backbone).text[0]
    answers = (made.plain(load_dataset("clothing10_test", root)) @ text.T).argmax(1).tolist()
    for name in ("clothing10_test", "grocery81_test"):
        lines = [f"images/{number:02}.png,{answer}\n" for number, answer in enumerate(answers)]
        (root / name / "labels.csv").write_text("path,label\n" + "".join(lines))
    return study.Garden(root, tiny_folder("clip"), root / "out")


@pytest.mark.parametrize("kind", ["prior", "shared", "overfit", "noise"])
def test_a_context_loses_what_it_says(garden: object, study: ModuleType, kind: str, tmp_path: Path) -> None:
    planting = study.Planting("clothing10_test", kind, 10, 1)
    garden.plant("clothing10_test", kind, 1, (10,))
    facts = json.loads(garden.file(planting).with_suffix(".json").read_text())
    assert facts["zero_shot"] == 1.0
    assert facts["n"] == 16
    assert facts["lost"] is None or facts["lost"] >= 0.1
    assert garden.file(planting).exists() == (facts["lost"] is not None)
    if facts["lost"] is None:
        assert facts["step"] == 250
        return
    context = read_context(garden.file(planting))
    dataset = load_dataset("clothing10_test", garden.root)
    planted = LabelSpace(NAMES, garden.backbone, context=context).text[0]
    truth = torch.tensor([sample.label for sample in dataset.samples])
    right = ((garden.plain(dataset) @ planted.T).argmax(1) == truth).double().mean()
    assert facts["lost"] == pytest.approx(1.0 - float(right))
    again = study.Garden(garden.root, Path(garden.backbone.name.partition(":")[2]), tmp_path)
    again.plant("clothing10_test", kind, 1, (10,))
    assert torch.equal(read_context(again.file(planting)).tokens, context.tokens)


def test_steps_are_compared_with_the_way_back(garden: object, study: ModuleType) -> None:
    garden.plant("clothing10_test", "prior", 1, (10,))
    planting = study.Planting("clothing10_test", "prior", 10, 1)
    settings = {"masks": 8, "grids": (3, 4), "k": 3, "lr": 0.006}
    methods = {str(steps): study.create_method("fcl", **settings, steps=steps) for steps in (1, 2)}
    one, two = study.directions(garden, planting, garden.root, methods, 1)
    assert (one["method"], two["method"]) == ("1", "2")
    assert -1.0 <= one["tokens"] <= 1.0
    assert one["loss_before"] == two["loss_before"]
    # The loss after a step is that before the next.
    (image,) = {one["image"], two["image"]}
    dataset = load_dataset("clothing10_test", garden.root)
    sample = next(sample for sample in dataset.samples if sample.key == image)
    labels = LabelSpace(NAMES, garden.backbone, context=read_context(garden.file(planting)))
    losses = methods["2"].adapt(Episode(load_image(sample.path), labels)).calibration.losses
    assert one["loss_after"] == pytest.approx(losses[1], rel=1e-4)
