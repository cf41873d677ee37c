"""Pictures whose features are NaN or infinite: an error or a fallback in their own rows, and nothing else changes."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from faircontext import FCL, MTA, ZERO, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot, create_backbone
from faircontext.backbones.engines import probe_picture
from faircontext.cli import main
from faircontext.datasets.spec import Sample
from faircontext.errors import FeatureError
from faircontext.files import to_json
from faircontext.methods import FCLVariants
from faircontext.runs.answer import Predictor, answer_images
from faircontext.runs.decisions import AnsweredImage
from faircontext.runs.store import load_run
from faircontext.types import Prediction, read_diagnostics
from helpers import assert_identical, assert_valid
from tiny_clip import write_narrow

NAMES = ("cat", "dog", "missile")


@pytest.fixture(scope="module")
def narrow(narrow_folder: Path) -> Backbone:
    return create_backbone(f"local-dir:{narrow_folder}", precision="fp16")


def strict_json(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_model_is_what_the_tests_need(narrow: Backbone) -> None:
    patches = torch.nn.functional.avg_pool2d(probe_picture(32), 16).sum(1) * 256 * 46
    assert patches.abs().max() < 65504
    with pytest.raises(FeatureError, match=r"^local-dir:.*: the features of the picture are .* in fp16; use fp32$"):
        narrow.encode_image(torch.ones(1, 3, 32, 32))
    with pytest.raises(FeatureError, match="the features of 2 of 18 pictures are NaN, infinite or all zero"):
        narrow.encode_image(torch.cat([torch.full((16, 3, 32, 32), 0.4), torch.ones(2, 3, 32, 32)]))


@pytest.mark.parametrize("methods", ["zero_shot", "zero_shot,fcl,zero"])
def test_classify_answers_the_others_as_without_it(
    methods: str, white_among: Path, narrow_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, *paths: Path) -> tuple[int, list[dict[str, str]], dict[str, Any]]:
        words = ("--labels", ",".join(NAMES), "--backbone", f"local-dir:{narrow_folder}", "--precision", "fp16")
        outputs = ("--csv", str(tmp_path / f"{name}.csv"), "--json", str(tmp_path / f"{name}.json"))
        more = ("--method", methods, "--views", "count=8", *(("--set", "fcl.masks=8") if "fcl" in methods else ()))
        code = main(["classify", *map(str, paths), *words, *outputs, *more])
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows = [{**row, "seconds": ""} for row in csv.DictReader(file)]
        return code, rows, strict_json((tmp_path / f"{name}.json").read_text())

    files = sorted(white_among.iterdir())
    code, rows, document = run("all", *files)
    assert code == 1
    assert "3 answered, 1 unreadable" in capsys.readouterr().out
    bad = [row for row in rows if row["path"] == str(files[2])]
    assert len(bad) == len(methods.split(","))
    for row in bad:
        assert row["error"].endswith("the features of the picture are NaN, infinite or all zero in fp16; use fp32")
        assert row["prediction"] == row["confidence"] == ""
    assert [row for row in rows if row not in bad] == run("others", *files[:2], files[3])[1]
    assert document["run"]["model"] == {"activation": "GELU"}


def evaluate_words(white_set: Path, narrow_folder: Path, out: Path) -> list[str]:
    model = ("--backbone", f"local-dir:{narrow_folder}", "--precision", "fp16", "--views", "count=8")
    words = ["evaluate", "--datasets", white_set.name, "--root", str(white_set.parent), "--out", str(out)]
    return [*words, *model, "--methods", "fcl", "--set", "masks=8"]


@pytest.mark.parametrize("features", [False, True])
def test_evaluate_goes_on(features: bool, white_set: Path, narrow_folder: Path, tmp_path: Path, capsys: Any) -> None:
    more = ["--features", str(tmp_path / "features")] if features else []
    for _ in range(1 + features):  # the second time, features are read
        assert main([*evaluate_words(white_set, narrow_folder, tmp_path / "runs"), *more]) == 1
        run = load_run(tmp_path / "runs" / white_set.name)
        assert run.complete
        assert "unreadable: 2.png: local-dir:" in capsys.readouterr().err
        errors = {row["path"]: bool(row["error"]) for row in run.rows.to_pylist()}
        assert errors == {"0.png": False, "1.png": False, "2.png": True, "3.png": False}
        strict_json((run.folder / "run.json").read_text())
        for row in run.rows.to_pylist():
            strict_json(row["diagnostics"])
        run.folder.rename(tmp_path / f"earlier{len(list(tmp_path.iterdir()))}")


def test_explain_names_the_picture_in_one_line(
    white_among: Path, narrow_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    words = ("--labels", "cat,dog", "--backbone", f"local-dir:{narrow_folder}", "--precision", "fp16")
    assert main(["explain", str(white_among / "2.png"), *words, "--out", str(tmp_path / "page")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"faircontext: {white_among / '2.png'}: local-dir:")


def speck() -> np.ndarray:
    """Return a grey picture with a white square that fills a patch of small crops alone."""
    pixels = np.full((320, 320, 3), 90, np.uint8)
    pixels[120:190, 120:190] = 255
    return pixels


def answers_of(backbone: Backbone, path: Path, methods: dict[str, Any]) -> AnsweredImage:
    recipe = ViewRecipe(count=64, scale=(0.05, 0.06))
    (answer,) = answer_images([Sample("x", path, 0)], Predictor(LabelSpace(NAMES, backbone), methods, recipe))
    return answer


def test_a_method_whose_views_overflow_falls_back_to_zero_shot(narrow: Backbone, tmp_path: Path) -> None:
    Image.fromarray(speck()).save(tmp_path / "speck.png")
    methods = {"zero": ZERO(), "mta": MTA(), "fcl": FCL(masks=8), "zero_shot": ZeroShot()}
    answer = answers_of(narrow, tmp_path / "speck.png", methods)
    assert answer.error == ""
    assert answer.reference is not None
    for row, prediction in zip(answer.answers, answer.predictions, strict=True):
        assert_valid(prediction, len(NAMES))
        assert prediction.index == answer.reference.index
        fell = row.fallback.endswith(" pictures are NaN, infinite or all zero in fp16; use fp32: answered by zero-shot")
        assert fell == (row.method != "zero_shot")


def test_fcl_falls_back_to_exploration_where_only_its_evidence_overflows(tmp_path: Path) -> None:
    backbone = create_backbone(f"local-dir:{write_narrow(tmp_path, 55.0)}", precision="fp16")
    episode = Episode(np.full((40, 40, 3), 120, np.uint8), LabelSpace(NAMES, backbone), ViewRecipe(count=8))
    prediction = FCLVariants(proxy="black")(episode)
    explored = FCL(calibrate=False)(episode)
    assert prediction.fallback is not None
    assert prediction.fallback.endswith("in fp16; use fp32: answered by exploration alone")
    assert explored.fallback is None
    assert prediction.index == explored.index
    assert torch.equal(prediction.probabilities, explored.probabilities)


def test_zero_shot_is_the_same_alone_and_beside_a_picture_that_overflows(narrow: Backbone, white_among: Path) -> None:
    items = [Sample(path.name, path) for path in sorted(white_among.iterdir())]
    labels = LabelSpace(NAMES, narrow)
    together = list(answer_images(items, Predictor(labels, {"zero_shot": ZeroShot()}, ViewRecipe())))
    assert [bool(answer.error) for answer in together] == [False, False, True, False]
    for item, answer in zip(items, together, strict=True):
        (alone,) = answer_images([item], Predictor(labels, {"zero_shot": ZeroShot()}, ViewRecipe()))
        assert alone.error == answer.error
        for first, second in zip(alone.predictions, answer.predictions, strict=True):
            assert_identical(first, second)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_prediction_has_finite_probabilities(value: float) -> None:
    with pytest.raises(FeatureError, match="the probabilities are NaN or infinite"):
        Prediction(0, torch.tensor([0, 1]), torch.tensor([0.5, value]))


# JSON


def test_json_has_no_word_that_is_none() -> None:
    document = {"a": math.nan, "b": [1.5, -math.inf, {"c": (math.inf, 2)}], "d": np.float64("nan"), "e": "NaN"}
    assert strict_json(to_json(document)) == {"a": None, "b": [1.5, None, {"c": [None, 2]}], "d": None, "e": "NaN"}


def test_json_of_finite_numbers_is_as_it_was() -> None:
    document = {"ü": [1, 0.1, (2.5, None)], "t": True}
    assert to_json(document) == json.dumps(document, indent=1, ensure_ascii=False)
    assert to_json(document, indent=None, ensure_ascii=True) == json.dumps(document)


def test_diagnostics_come_back_as_numbers() -> None:
    found = read_diagnostics(to_json({"x": math.nan, "many": [1.0, math.inf], "word": "a"}, indent=None))
    assert math.isnan(found["x"])
    assert found["many"][0] == 1.0
    assert math.isnan(found["many"][1])
    assert found["word"] == "a"
