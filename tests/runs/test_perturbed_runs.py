"""Runs on corrupted and attacked images: rows do not depend on how they were made, and the configuration tells."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from faircontext import Backbone, Episode, FairContextError, LabelSpace, ViewRecipe, ZeroShot
from faircontext.cli import main
from faircontext.datasets.spec import Sample
from faircontext.perturbations import Attack, Corruption, Perturbation
from faircontext.runs.answer import Predictor, answer_images
from faircontext.runs.option_parts import PerturbationOptions
from faircontext.runs.outputs import read_embeddings
from faircontext.runs.records import perturbation_of
from faircontext.runs.store import load_run
from made_perturbed import PERTURBATIONS, perturbed_views

pytest.importorskip("imagecorruptions")
Run = Callable[..., tuple[int, str, str]]
ZERO = ("--methods", "zero_shot")


@pytest.fixture
def evaluate(tiny_folder: Callable[[str], Path], picture_set: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command on the pictures and returns (code, output, errors)."""

    def run(out: Path, *more: str, root: Path = picture_set.parent, datasets: str = "pictures") -> tuple[int, str, str]:
        model = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--preset", "paper")
        code = main(["evaluate", "--datasets", datasets, "--root", str(root), "--out", str(out), *model, *more])
        return code, *capsys.readouterr()

    return run


def rows_of(folder: Path) -> pa.Table:
    return load_run(folder).rows.drop_columns(["seconds", "shared_seconds"])


def test_each_shift_is_a_run_of_its_own(evaluate: Run, tmp_path: Path) -> None:
    perturbations = ("--corrupt", "none", "contrast:3", "contrast:5", "--attack", "pgd:4")
    code, out, _ = evaluate(tmp_path, *ZERO, *perturbations)
    assert code == 1  # a file is unreadable
    names = ["pictures", "pictures-contrast-3", "pictures-contrast-5", "pictures-pgd-4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert "pictures (all, contrast:3): the table" in out
    configs = [load_run(tmp_path / name).document["config"] for name in names]
    assert [perturbation_of(config) for config in configs] == ["", "contrast:3", "contrast:5", "pgd:4"]
    assert "shift" not in configs[0]
    assert configs[1]["shift"]["versions"]["pillow"]
    assert configs[3]["shift"] == {"kind": "attack", "name": "pgd", "eps": 4, "steps": 7, "step": 1.0}
    hashes = {load_run(tmp_path / name).document["hashes"]["zero_shot"] for name in names}
    assert len(hashes) == 4


@pytest.mark.parametrize("perturbation", PERTURBATIONS, ids=str)
def test_answers_are_those_of_the_shifted_picture(
    perturbation: Perturbation, tiny: Callable[[str], Backbone], photo_files: dict[str, Path]
) -> None:
    labels = LabelSpace((*photo_files,), tiny("clip"))
    items = [Sample(name, path, index) for index, (name, path) in enumerate(photo_files.items())]
    recipe = ViewRecipe(count=4)
    for item, answered in zip(
        items,
        answer_images(items, Predictor(labels, {"zero_shot": ZeroShot()}, recipe), 7, perturbation=perturbation),
        strict=True,
    ):
        expected = ZeroShot()(Episode.of(perturbed_views(item, labels, recipe, perturbation), labels))
        assert np.allclose(answered.predictions[0].probabilities, expected.probabilities, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("perturbation", PERTURBATIONS, ids=str)
def test_an_answer_is_the_same_alone_in_any_order_and_made_ahead(
    perturbation: Perturbation, tiny: Callable[[str], Backbone], photo_files: dict[str, Path]
) -> None:
    labels = LabelSpace((*photo_files,), tiny("clip"))
    items = [Sample(name, path, index) for index, (name, path) in enumerate(photo_files.items())]
    predictor = Predictor(labels, {"zero_shot": ZeroShot()}, ViewRecipe(count=4))

    def answer(items: list[Sample], workers: int = 0) -> dict[str, list[float]]:
        answers = answer_images(items, predictor, workers=workers, perturbation=perturbation)
        return {one.path: one.predictions[0].probabilities.tolist() for one in answers}

    whole = answer(items)
    assert answer(items[::-1]) == whole
    assert answer(items[2:3]) == {items[2].key: whole[items[2].key]}
    assert answer(items, workers=1) == whole


def test_a_run_is_resumed_only_with_the_same_shift(evaluate: Run, tmp_path: Path) -> None:
    evaluate(tmp_path, *ZERO, "--corrupt", "contrast:3")
    folder = tmp_path / "pictures-contrast-3"
    rows = rows_of(folder)
    assert evaluate(tmp_path, *ZERO, "--corrupt", "contrast:3", "--resume")[0] == 1
    assert rows_of(folder).equals(rows)
    document = json.loads((folder / "run.json").read_text())
    document["config"]["shift"]["versions"]["pillow"] = "1.0"
    (folder / "run.json").write_text(json.dumps(document))
    code, _, err = evaluate(tmp_path, *ZERO, "--corrupt", "contrast:3", "--resume")
    assert code == 2
    assert "pillow" in err


def test_shards_of_several_shifts_are_joined_each_to_its_run(
    evaluate: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    perturbations = ("--corrupt", "none", "contrast:3", "--attack", "pgd:4")
    evaluate(tmp_path / "whole", *ZERO, *perturbations)
    for part in range(2):
        evaluate(tmp_path / "shards", *ZERO, *perturbations, "--shard", f"{part}/2")
    assert main(["merge", str(tmp_path / "shards"), "--out", str(tmp_path / "joined")]) == 0
    capsys.readouterr()
    for name in ("pictures", "pictures-contrast-3", "pictures-pgd-4"):
        assert rows_of(tmp_path / "joined" / name).equals(rows_of(tmp_path / "whole" / name))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--corrupt", "fog:6"), "invalid severity 6 of fog: must be 1, 2, 3, 4 or 5\n"),
        (("--corrupt", "fog:-2"), "invalid severity -2 of fog: must be 1, 2, 3, 4 or 5\n"),
        (("--corrupt", "fgo"), "unknown corruption 'fgo'; did you mean 'fog' or 'frost'?\n"),
        (
            ("--attack", "pgd:256"),
            "invalid eps 256 of pgd: must be a whole number from 1 to 255, in 1/255\n",
        ),
    ],
)
def test_what_is_not_possible_is_one_line(words: tuple[str, ...], message: str, evaluate: Run, tmp_path: Path) -> None:
    assert evaluate(tmp_path / "out", *words) == (2, "", f"faircontext: {message}")
    assert not (tmp_path / "out").exists()


def test_what_has_no_gradient_or_several_labels_cannot_be_attacked(
    evaluate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = evaluate(tmp_path / "out", *ZERO, "--attack", "pgd:4", "--precision", "bf16")
    assert code == 2
    needs = "faircontext: --attack pgd:4 needs the exact gradient of the image tower, which "
    fix = " does not give; add --engine-image torch --precision fp32\n"
    assert err == f"{needs}bf16{fix}"
    monkeypatch.setattr("faircontext.backbones.create_backbone", None)  # said before a model is loaded
    assert evaluate(tmp_path / "out", *ZERO, "--attack", "pgd:4", "--precision", "fp16") == (2, "", f"{needs}fp16{fix}")
    asked = ("--attack", "pgd:4", "--engine-image", "openvino")
    assert evaluate(tmp_path / "out", *ZERO, *asked) == (2, "", f"{needs}openvino{fix}")
    code, _, err = evaluate(tmp_path / "out", *ZERO, "--attack", "pgd:4", "--multi-label")
    assert code == 2
    assert err == (
        "faircontext: --attack pgd:4 moves an image away from its one true class, and here it may have several; leave "
        "one of the two out\n"
    )
    assert not (tmp_path / "out").exists()


def test_images_without_a_label_cannot_be_attacked(
    tiny_folder: Callable[[str], Path], white_among: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--labels", "cat,dog", "--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32"]
    words = ["classify", str(white_among), *model, "--method", "zero_shot", "--attack", "pgd:4"]
    for more in ([], ["--out", str(tmp_path / "run")]):
        assert main([*words, *more]) == 2
        err = capsys.readouterr().err
        assert "--attack pgd:4 needs the true class of every image, and " in err
        assert err.endswith(" has no label; give it one, by the name of its folder or in a table, or leave it out\n")


def test_photos_are_corrupted_and_attacked_by_classify(
    tiny_folder: Callable[[str], Path], white_among: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, label in (("0.png", "cat"), ("1.png", "dog")):
        (tmp_path / "mine" / label).mkdir(parents=True)
        shutil.copy(white_among / name, tmp_path / "mine" / label / name)
    model = ["--labels", "cat,dog", "--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32"]
    files = {name: tmp_path / f"a.{name}" for name in ("json", "csv", "parquet")}
    written = ["--json", str(files["json"]), "--csv", str(files["csv"]), "--embeddings", str(files["parquet"])]
    words = ["classify", str(tmp_path / "mine"), *model, "--method", "zero_shot", *written]
    confidences = []
    said = {
        "contrast:5": "the images are corrupted first: contrast, severity 5 of 5\n",
        "pgd:8": "the images are attacked first: PGD against zero-shot, by at most 8/255, 7 steps\n",
    }
    for more in ([], ["--corrupt", "contrast:5"], ["--attack", "pgd:8"]):
        perturbation = more[1] if more else ""
        for stored in ([], ["--out", str(tmp_path / f"run{perturbation}")]):
            capsys.readouterr()
            assert main([*words, *more, *stored]) == 0
            out = capsys.readouterr().out
            if not stored:
                assert [line for line in said.values() if line in out] == [said[one] for one in more[1:]]
            document = json.loads(files["json"].read_text())
            assert perturbation_of(document["run"]) == perturbation
            rows = [*csv.DictReader(files["csv"].read_text().splitlines())]
            assert [row.get("shift", "") for row in rows] == [perturbation] * 2
            assert ("shift" in rows[0]) == bool(perturbation)
            assert perturbation_of(read_embeddings(files["parquet"])[2]) == perturbation
        confidences.append([answer["confidence"] for answer in document["answers"]])
    assert len({*map(tuple, confidences)}) == 3
    capsys.readouterr()
    assert main([*words, "--corrupt", "fog"]) == 2
    assert capsys.readouterr().err == (
        "faircontext: one corruption or attack is possible here, not fog:1 and fog:2; evaluate takes several\n"
    )


def test_options_are_split_into_those_of_each_run() -> None:
    asked = PerturbationOptions(corrupt=("none", "fog:3"), attack=("pgd:4", "none"))
    assert asked.perturbations == (None, Corruption("fog", 3), Attack(4))
    each = [*asked.each_perturbation()]
    assert [one.perturbation for one in each] == [None, Corruption("fog", 3), Attack(4)]
    assert PerturbationOptions().perturbation is None
    with pytest.raises(FairContextError, match="not none and fog:3; evaluate takes several"):
        _ = asked.perturbation
