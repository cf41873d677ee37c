"""None of these: predictions withheld below a threshold, by value or from a labelled run, for classify and evaluate."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from faircontext import FCL, Backbone, Episode, LabelSpace, Prediction, ZeroShot
from faircontext.metrics.selective import aurc
from faircontext.metrics.stats import Accuracy
from faircontext.runs.decisions import AnsweredImage
from faircontext.runs.records import Answer
from faircontext.runs.results import read_results
from faircontext.runs.store import load_run
from faircontext.runs.unknown import Abstention

Run = Callable[..., tuple[int, str, str]]


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def evaluate(command: Run, picture_set: Path) -> Run:
    where = ("--datasets", "pictures", "--root", picture_set.parent)
    return lambda *words: command("evaluate", *where, *words)


def test_scores_are_what_they_are_called(lite: Backbone, photos: dict[str, np.ndarray], make_episode) -> None:
    episode: Episode = make_episode(photos["cat"])
    text = episode.labels.zero_shot_text.double()
    cosines = (text @ episode.z.double()).tolist()
    prediction = ZeroShot()(episode)
    scores = Abstention("energy", {}, lite.logit_scale).scores_of(prediction, prediction)
    assert scores["cosine"] == pytest.approx(max(cosines), abs=1e-6)
    assert scores["energy"] == pytest.approx(np.log(np.exp(lite.logit_scale * np.array(cosines)).sum()), abs=1e-4)
    assert scores["probability"] == prediction.confidence == float(prediction.probabilities.max())


def test_cosines_of_fcl_are_those_of_the_learnt_text(photos: dict[str, np.ndarray], make_episode) -> None:
    episode: Episode = make_episode(photos["astronaut"])
    adaptation = FCL(masks=8, k=4, beta=5.0, lr=0.05).adapt(episode)
    assert adaptation.calibration is not None
    text = episode.labels.text[0].clone()
    text[adaptation.candidates] = adaptation.calibration.text
    torch.testing.assert_close(adaptation.prediction.cosines, text @ episode.z, rtol=0, atol=1e-6)
    assert not torch.equal(adaptation.prediction.cosines, ZeroShot()(episode).cosines)


def test_an_ensemble_has_mean_cosines_and_other_methods_zero_shots(
    lite: Backbone, photos: dict[str, np.ndarray], make_episode
) -> None:
    labels = LabelSpace(("cat", "dog", "snail"), lite, ("a photo of a {}.", "art of the {}."))
    episode = make_episode(photos["cat"], labels)
    prediction = FCL(calibrate=False, k=3)(episode)
    torch.testing.assert_close(prediction.cosines, (labels.text @ episode.z).mean(0), rtol=0, atol=1e-6)
    plain = Prediction(prediction.index, prediction.ranking, prediction.probabilities)
    rule = Abstention("cosine", {}, 1.0)
    assert rule.scores_of(plain, prediction) == rule.scores_of(prediction, prediction)


def test_predictions_below_a_threshold_are_empty_with_the_reason(
    command: Run, picture_set: Path, tmp_path: Path
) -> None:
    paths = [picture_set / "images" / f"{number:02}.png" for number in (0, 1, 2, 5)]
    words = ("--labels", "red circle,blue square,cat", "--method", "zero_shot,fcl", "--set", "masks=8")

    def rows(name: str, *more: str) -> list[dict[str, str]]:
        code, out, err = command("classify", *paths, *words, "--csv", tmp_path / name, *more)
        assert code == 1, err  # one file is no picture
        printed.append(out)
        return read_csv(tmp_path / name)

    printed: list[str] = []
    plain = rows("plain.csv")
    least = sorted(float(row["confidence"]) for row in plain if row["confidence"])[2] - 1e-5
    for before, after in zip(plain, rows("some.csv", "--unknown", f"probability={least}"), strict=True):
        low = bool(before["confidence"]) and float(before["confidence"]) < least
        changed = {"prediction": "", "fallback": after["fallback"]} if low else {}
        assert {**before, **changed, "seconds": ""} == {**after, "seconds": ""}
        if low:
            value = f"{float(before['confidence']):.3f}"
            assert after["fallback"].startswith(f"none of these: probability {value[:-1]}")
            assert after["fallback"].endswith(f" is below {least:.6g}")
    assert "0 fell back" in printed[1]
    assert "(unknown)" in printed[1]
    assert "none of these: " not in printed[0]
    assert {row["prediction"] for row in rows("all.csv", "--unknown", "cosine=1")} == {""}
    kept = rows("none.csv", "--unknown", "energy")
    assert [row["prediction"] for row in kept] == [row["prediction"] for row in plain]


@pytest.mark.parametrize("score", ["probability", "cosine", "energy"])
def test_the_answer_at_a_threshold_is_given_by_the_file_and_by_the_digits_that_are_printed(
    evaluate: Run, command: Run, tmp_path: Path, score: str
) -> None:
    words = ("--methods", "zero_shot")
    assert evaluate(*words, "--unknown", score, "--out", tmp_path / "first")[0] == 1
    choice = ("--score", score, "--coverage", 0.7, "--out", tmp_path / "file.json")
    code, out, _ = command("threshold", tmp_path / "first", *choice)
    assert code == 0
    assert "answers 75.0% (n = 12, " in out
    printed = out.split(" >= ")[1].partition(":")[0]
    assert len(printed) <= 11
    for name, unknown in (("file", tmp_path / "file.json"), ("digits", f"{score}={printed}")):
        assert evaluate(*words, "--unknown", unknown, "--out", tmp_path / name)[0] == 1
        (result,) = read_results(load_run(tmp_path / name / "pictures"))
        assert result.withheld is not None
        assert int(result.withheld.sum()) == 3


@pytest.mark.parametrize("least", [0.639, 0.6, 0.1, float(np.float32(0.639)), float(np.nextafter(np.float32(0.6), 0))])
def test_a_probability_is_compared_in_float32(least: float) -> None:
    def given(probability: float, dtype: torch.dtype) -> bool:
        probabilities = torch.tensor([probability, 1 - probability], dtype=dtype)
        found = Prediction(0, torch.tensor([0, 1]), probabilities, cosines=torch.ones(2))
        answer = Answer("a.png", prediction="cat", method="fcl", confidence=found.confidence)
        image = AnsweredImage((answer,), (found,), found)
        return Abstention("probability", {"fcl": least}).decide(image).answers[0].prediction == "cat"

    at, below = np.float32(least), np.nextafter(np.float32(least), np.float32(0))
    for dtype in (torch.float32, torch.float64):
        assert [given(float(value), dtype) for value in (at, below)] == [True, False]
    assert given(least, torch.float64)


def test_a_threshold_is_chosen_on_a_labelled_run_and_used(evaluate: Run, command: Run, tmp_path: Path) -> None:
    assert evaluate("--unknown", "energy", "--set", "masks=8", "--out", tmp_path / "first")[0] == 1
    run = tmp_path / "first" / "pictures"
    file = tmp_path / "energy.json"
    code, out, err = command("threshold", run, "--score", "energy", "--coverage", 0.7, "--out", file)
    assert (code, err) == (0, "")
    head, below = out.splitlines()
    assert head.startswith("zero_shot      energy >= ")
    assert below.startswith("fcl            energy >= ")
    assert "answers 75.0% (n = 12, 95% interval" in head  # nine of twelve are the fewest that are 70%
    document = json.loads(file.read_text())
    assert document["measured"]["fcl"]["coverage"]["n"] == 12

    code, out, _ = evaluate("--unknown", file, "--set", "masks=8", "--out", tmp_path / "second")
    assert code == 1
    assert out.count("none of these on 3 of 12, ") == 2
    first, second = (load_run(tmp_path / name / "pictures") for name in ("first", "second"))
    for before, after in zip(read_results(first), read_results(second), strict=True):
        assert after.withheld is not None
        assert int(after.withheld.sum()) == 3
        assert before.withheld is not None
        assert not before.withheld.any()
        assert np.array_equal(before.correct, after.correct)  # as if all were given
        assert (before.fallbacks, after.fallbacks) == (0, 0)
        given = Accuracy(int(after.correct[~after.withheld].sum()), 9)
        assert f", {given} of the others are right" in out
    assert second.document["config"]["unknown"]["score"] == "energy"
    assert first.document["hashes"] != second.document["hashes"]


def test_a_run_with_a_chosen_threshold_goes_through_tables_figures_and_the_page(
    evaluate: Run, command: Run, tmp_path: Path
) -> None:
    runs, file, methods = tmp_path / "runs", tmp_path / "risk.json", ("--methods", "zero_shot", "tps")
    assert evaluate(*methods, "--out", tmp_path / "first")[0] == 1
    assert command("threshold", tmp_path / "first", "--coverage", 0.5, "--out", file)[0] == 0
    assert evaluate(*methods, "--unknown", file, "--out", runs)[0] == 1
    results = read_results(load_run(runs / "pictures"))
    assert all(result.withheld is not None and 0 < result.withheld.sum() <= 6 for result in results)

    code, table, _ = command("tables", runs, "--metric", "aurc", "--format", "md")
    assert code == 0
    values = [100 * aurc(result.confidence, result.correct) for result in results]  # as if none were withheld
    assert all(f"{value:.2f}" in table for value in values)
    assert command("figures", runs, "--only", "risk-coverage", "--out", tmp_path / "figures")[0] == 0
    (drawn,) = (tmp_path / "figures").rglob("*.csv")
    areas = {row["method"]: 100 * float(row["aurc"]) for row in read_csv(drawn)}
    assert areas == pytest.approx({result.method: value for result, value in zip(results, values, strict=True)})
    assert command("report", runs, "--out", tmp_path / "page.html")[0] == 0
    assert "Risk of TPS: the share of errors" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_stored_run_of_photos_withholds_too(command: Run, picture_set: Path, tmp_path: Path) -> None:
    words = ("classify", picture_set / "images", "--labels", "a,b", "--method", "zero_shot", "--unknown", "cosine=1")
    printed = [
        command(*words, "--csv", tmp_path / f"{out}.csv", *more)
        for out, more in (("plain", ()), ("stored", ("--out", tmp_path / "run")))
    ]
    files = [read_csv(tmp_path / f"{name}.csv") for name in ("plain", "stored")]
    assert [{**row, "seconds": ""} for row in files[0]] == [{**row, "seconds": ""} for row in files[1]]
    assert all("zero_shot    none of these: 100.0% (n = 12" in out for _, out, _ in printed)


def test_any_run_has_the_probability_and_a_risk_may_be_asked_for(evaluate: Run, command: Run, tmp_path: Path) -> None:
    assert evaluate("--methods", "zero_shot", "--out", tmp_path)[0] == 1
    code, out, _ = command("threshold", tmp_path, "--risk", 1)
    assert code == 0
    assert "answers 100.0% (n = 12" in out
    code, _, err = command("threshold", tmp_path, "--score", "cosine", "--risk", 1)
    assert code == 2
    assert err.endswith("pictures: has no cosine of its predictions; make the run with --unknown cosine\n")
    document = (tmp_path / "pictures" / "run.json").read_bytes()
    assert command("threshold", tmp_path, "--risk", 1, "--out", tmp_path / "pictures" / "run.json")[0] == 2
    assert (tmp_path / "pictures" / "run.json").read_bytes() == document


def test_thresholds_of_another_model_are_refused_in_one_line(command: Run, picture_set: Path, tmp_path: Path) -> None:
    document = {"score": "cosine", "thresholds": {}, "run": {"backbone": "x"}}
    (tmp_path / "other.json").write_text(json.dumps(document))
    photo = picture_set / "images" / "00.png"
    code, _, err = command("classify", photo, "--labels", "a,b", "--unknown", tmp_path / "other.json")
    assert code == 2
    assert "other.json: was chosen for backbone x, and this run has " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give either --coverage, the share of images to answer, or --risk, the share of errors"),
        (["--coverage", "0.5", "--risk", "0.1"], "give either --coverage"),
        (["--coverage", "0"], "coverage=0.0 is not possible"),
        (["--risk", "-1"], "invalid risk -1.0: must be between 0 and 1"),
        (["--risk", "0", "--out", "x.txt"], "--out x.txt: must end in .json"),
    ],
)
def test_a_wrong_threshold_is_one_line(
    evaluate: Run, command: Run, tmp_path: Path, words: list[str], message: str
) -> None:
    evaluate("--methods", "zero_shot", "--limit", "3", "--out", tmp_path)
    code, _, err = command("threshold", tmp_path, *words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_run_without_labels_has_no_threshold(command: Run, picture_set: Path, tmp_path: Path) -> None:
    command("classify", picture_set / "images", "--labels", "a,b", "--method", "zero_shot", "--out", tmp_path / "run")
    code, _, err = command("threshold", tmp_path / "run", "--coverage", 0.9)
    assert code == 2
    assert err.endswith("run: has no labelled image that was answered; choose thresholds on a labelled run\n")
