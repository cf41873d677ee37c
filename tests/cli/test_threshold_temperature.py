"""A temperature that is fitted on a labelled run, and what the file does to other runs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from faircontext.metrics.scores import expected_calibration_error, negative_log_likelihood, temper
from faircontext.runs.results import read_results
from faircontext.runs.store import load_run
from helpers import change_json

Run = Callable[..., tuple[int, str, str]]
NAMES = ("cat", "dog", "snail")
WORDS = ("--labels", ",".join(NAMES), "--method", "zero_shot")


@pytest.fixture
def labelled(command: Run, tmp_path: Path, make_image: Callable[..., np.ndarray]) -> Path:
    """Forty small pictures in folders of three classes: of four, three as the model answers them."""
    (tmp_path / "mixed").mkdir()
    for number in range(40):
        Image.fromarray(make_image(number, 30, 40)).save(tmp_path / "mixed" / f"{number:02}.png")
    code, _, err = command("classify", tmp_path / "mixed", *WORDS, "--sort-into", tmp_path / "labelled")
    assert code == 0, err
    for number, path in enumerate(sorted((tmp_path / "labelled").rglob("*.png"))):
        other = tmp_path / "labelled" / NAMES[NAMES.index(path.parent.name) - 1]
        if number % 4 == 0:
            other.mkdir(exist_ok=True)
            path.rename(other / path.name)
    return tmp_path / "labelled"


@pytest.fixture
def classify(command: Run, labelled: Path) -> Run:
    return lambda *more: command("classify", labelled, *WORDS, *more)


@pytest.fixture
def fitted(classify: Run, command: Run, tmp_path: Path) -> tuple[Path, str]:
    """Return a file with a temperature, and what was printed when it was made."""
    code, _, err = classify("--out", tmp_path / "run", "--scores", tmp_path / "before.parquet")
    assert code == 0, err
    code, out, err = command("threshold", tmp_path / "run", "--temperature", "--out", tmp_path / "t.json")
    assert (code, err) == (0, "")
    return tmp_path / "t.json", out


def arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = pq.read_table(path)
    return np.array(rows["probabilities"].to_pylist(), np.float32), np.array(
        [NAMES.index(name) for name in rows["label"].to_pylist()]
    )


def test_half_of_the_images_fit_and_the_other_half_measures(fitted: tuple[Path, str], tmp_path: Path) -> None:
    document, out = json.loads(fitted[0].read_text()), fitted[1]
    (temperature,) = document["temperatures"].values()
    assert document["thresholds"] == document["asked"] == document["measured"] == {}
    before, labels = arrays(tmp_path / "before.parquet")
    others = np.random.default_rng(0).permutation(40)[20:]
    values = (before, temper(before, temperature))
    calibration = document["calibration"]["zero_shot"]
    assert calibration["n"] == 20
    for when, exact in zip(("before", "after"), (one[others] for one in values), strict=True):
        rows, index = np.arange(20), before[others].argmax(1)
        nll = negative_log_likelihood(exact[rows, labels[others]])
        ece = expected_calibration_error(exact[rows, index], index == labels[others])
        for name, value in (("NLL", nll), ("ECE", ece)):
            found = calibration[f"{name} {when}"]
            assert found["value"] == pytest.approx(value, rel=1e-5)
            assert found["low"] <= found["value"] <= found["high"]
            assert f"{name} {when} {found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]" in out
    assert out.startswith(f"zero_shot      temperature {temperature:.4g}; on 20 other images: NLL before ")


def test_the_file_tempers_everything_that_is_written(fitted: tuple[Path, str], classify: Run, tmp_path: Path) -> None:
    (temperature,) = json.loads(fitted[0].read_text())["temperatures"].values()
    words = ("--unknown", fitted[0], "--scores", tmp_path / "after.parquet", "--csv", tmp_path / "a.csv", "--top", "2")
    code, _, err = classify(*words, "--json", tmp_path / "a.json", "--out", tmp_path / "again")
    assert code == 0, err
    before, _ = arrays(tmp_path / "before.parquet")
    after, labels = arrays(tmp_path / "after.parquet")
    expected = temper(before, temperature)
    assert after == pytest.approx(expected, abs=1e-6)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [float(row["confidence"]) for row in rows] == pytest.approx(expected.max(1).tolist(), abs=2e-6)
    assert [float(row["top2_probability"]) for row in rows] == pytest.approx(
        np.sort(expected, 1)[:, 1].tolist(), abs=2e-6
    )
    assert all(row["prediction"] for row in rows)  # nothing is withheld
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["run"]["unknown"]["temperatures"] == {"zero_shot": temperature}
    plain, tempered = (read_results(load_run(tmp_path / name))[0] for name in ("run", "again"))
    assert np.array_equal(plain.correct, tempered.correct)
    assert tempered.label_probability == pytest.approx(expected[np.arange(40), labels], abs=1e-6)
    assert tempered.probability_norm == pytest.approx((expected**2).sum(1), abs=1e-6)
    assert plain.hash != tempered.hash


def test_thresholds_are_chosen_after_tempering(
    fitted: tuple[Path, str], classify: Run, command: Run, tmp_path: Path
) -> None:
    both = tmp_path / "both.json"
    assert command("threshold", tmp_path / "run", "--temperature", "--coverage", 0.5, "--out", both)[0] == 0
    document = json.loads(both.read_text())
    temperature, least = document["temperatures"]["zero_shot"], document["thresholds"]["zero_shot"]
    assert temperature == json.loads(fitted[0].read_text())["temperatures"]["zero_shot"]
    before, _ = arrays(tmp_path / "before.parquet")
    certain = temper(before, temperature).max(1)
    assert least == pytest.approx(np.sort(certain)[20], abs=1e-6)
    _, out, _ = classify("--unknown", both, "--out", tmp_path / "withheld")
    assert "none of these: 50.0% (n = 40" in out


def test_what_cannot_be_fitted_or_used_is_one_line(
    fitted: tuple[Path, str], classify: Run, command: Run, tmp_path: Path, labelled: Path
) -> None:
    def refused(*words: object) -> str:
        code, _, err = command(*words)
        assert (code, err.count("\n")) == (2, 1)
        return err

    classify("--out", tmp_path / "bare")
    assert "bare: has no probabilities of every class; make the run with faircontext classify --out RUN --scores" in (
        refused("threshold", tmp_path / "bare", "--temperature")
    )
    classify("--out", tmp_path / "again", "--unknown", fitted[0], "--scores", tmp_path / "x.parquet")
    for words in (("--temperature",), ("--coverage", "0.5")):
        err = refused("threshold", tmp_path / "again", *words)
        assert err.endswith("again: was made with temperatures; choose them, and thresholds, on a run without\n")
    photo = next(labelled.rglob("*.png"))
    err = refused("classify", photo, "--labels", "a,b", "--method", "tps", "--unknown", fitted[0])
    assert "t.json: has no temperature of tps; it has those of zero_shot" in err
    change_json(fitted[0], temperatures__zero_shot=-1.0)
    assert "t.json: " in refused("classify", photo, "--labels", "a,b", "--method", "zero_shot", "--unknown", fitted[0])
