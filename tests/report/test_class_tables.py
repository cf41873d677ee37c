"""What a method does with each class: compared with scikit-learn, and by hand where answers are withheld."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as sklearn_matrix, precision_recall_fscore_support

from faircontext.cli import main
from faircontext.metrics.stats import wilson_interval
from faircontext.report.class_tables import cell_records, class_records, confusion_matrix
from faircontext.runs.records import Answer
from faircontext.runs.results import Result, read_results
from faircontext.runs.store import RunStore, load_run
from made_runs import describe_run, write_run


def run_of(folder: Path, index: np.ndarray, labels: np.ndarray, names: list[str], withheld: np.ndarray) -> Result:
    """Return the result of a run with these predictions, of which some are withheld."""
    document = describe_run("pets", {"zero_shot": {}}, len(index), len(names), names=names)
    with RunStore(folder, document, ["zero_shot"], resume=False) as store:
        for position, (answer, label) in enumerate(zip(index.tolist(), labels.tolist(), strict=True)):
            given = "" if withheld[position] else "x"
            one = Answer(
                f"{position}.png",
                method="zero_shot",
                prediction=given,
                label_index=label,
                index=answer,
                position=position,
            )
            one = replace(one, zero_shot_index=answer, confidence=0.6, label_probability=0.5, probability_norm=0.5)
            store.add([replace(one, dataset="pets", config="abc", top5=(answer,), top5_probabilities=(0.6,))])
        store.finish()
    (result,) = read_results(load_run(folder))
    return result


def test_each_class_is_as_of_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    index, labels = rng.integers(0, 3, 200), rng.integers(0, 4, 200)  # the last class is no answer
    index = np.where(rng.random(200) < 0.5, np.minimum(labels, 2), index)
    result = run_of(tmp_path, index, labels, ["a", "b", "c", "d"], np.zeros(200, bool))
    records, (found_matrix, answers) = [*class_records(result)], confusion_matrix(result)
    shares = precision_recall_fscore_support(labels, index, labels=range(4), zero_division=np.nan)
    for name, values in zip(("precision", "recall", "f1"), shares[:3], strict=True):
        found = [record[name].value for record in records]
        assert found[:3] == pytest.approx(values[:3].tolist()), name
        assert all(record[name].low <= record[name].value <= record[name].high for record in records[:3])
    assert [record["n"] for record in records] == shares[3].tolist()
    assert np.isnan(records[3]["precision"].value)
    assert (records[3]["recall"].value, records[3]["f1"].value) == (0, 0)
    assert all(record["accuracy"] == record["recall"] for record in records)
    matrix = sklearn_matrix(labels, index, labels=range(4))
    assert np.array_equal(found_matrix, matrix)
    assert answers == ["a", "b", "c", "d"]
    np.fill_diagonal(matrix, 0)
    assert [record["confused"] for record in records] == matrix.max(1).tolist()
    assert [record["confused_with"] for record in records] == ["abcd"[k] for k in matrix.argmax(1)]


def test_withheld_answers_are_a_column_of_their_own_and_cost_recall(tmp_path: Path) -> None:
    index, labels = np.array([0, 0, 0, 1, 1, 0]), np.array([0, 0, 0, 0, 1, 1])
    withheld = np.array([False, True, True, False, False, True])
    result = run_of(tmp_path, index, labels, ["missile", "missile"], withheld)
    first, second = class_records(result)
    assert (first["recall"].value, first["precision"].value, first["accuracy"].value) == (1 / 4, 1, 3 / 4)
    assert (first["confused_with"], first["confused"]) == ("(unknown)", 2)
    assert (first["recall"].low, first["recall"].high) == wilson_interval(1, 4)
    assert (second["recall"].value, second["precision"].value, second["f1"].value) == (0.5, 0.5, 0.5)
    names = ("missile (class 0)", "missile (class 1)", "(unknown)")
    cells = [(cell["class"], cell["answer"], cell["n"]) for cell in cell_records(result)]
    pairs = ((0, 0, 1), (0, 1, 1), (0, 2, 2), (1, 1, 1), (1, 2, 1))
    assert cells == [(names[of], names[answer], n) for of, answer, n in pairs]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_run(tmp_path / "runs" / "dtd", "dtd", {"zero_shot": range(10), "fcl": range(14)})
    write_run(tmp_path / "runs" / "mine", "mine", {"zero_shot": range(10), "fcl": range(14)}, unreadable=[3])
    return tmp_path / "runs"


@pytest.mark.parametrize("style", ["classes", "confusion"])
@pytest.mark.parametrize(("form", "mark"), [("md", "(class 4)"), ("latex", "(class 4) &"), ("rich", "(class 4)")])
def test_tables_of_each_method_and_data_set(
    runs: Path, style: str, form: str, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", str(runs), "--style", style, "--format", form]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for title in ("Zero-shot on DTD", "FCL on DTD", "Zero-shot on mine", "FCL on mine"):
        assert f"{style.capitalize()}: {title}" in shown.out
    assert shown.out.count(mark) >= 4
    assert "(unknown)" not in shown.out


def test_csv_files_hold_the_same_of_all(runs: Path, tmp_path: Path) -> None:
    rows: dict[str, list[dict[str, str]]] = {}
    for style in ("classes", "confusion"):
        out = tmp_path / f"{style}.csv"
        assert main(["tables", str(runs), "--style", style, "--format", "csv", "--out", str(out)]) == 0
        with out.open(newline="") as file:
            rows[style] = [*csv.DictReader(file)]
    assert len(rows["classes"]) == 2 * 2 * 10
    assert {row["dataset"] for row in rows["classes"]} == {"dtd", "mine"}
    first = rows["classes"][0]
    assert (first["class"], first["n"], float(first["recall"])) == ("missile (class 0)", "2", 0.5)
    assert [float(first[f"recall_{end}"]) for end in ("low", "high")] == pytest.approx(wilson_interval(1, 2))
    of = [row for row in rows["confusion"] if (row["dataset"], row["method"]) == ("mine", "fcl")]
    assert sum(int(row["n"]) for row in of) == 19  # one file is unreadable
    assert sum(int(row["n"]) for row in of if row["class"] == row["answer"]) == 13


def test_the_figure_holds_the_same_counts(runs: Path, tmp_path: Path) -> None:
    assert main(["figures", str(runs), "--only", "confusion", "--out", str(tmp_path / "figures")]) == 0
    (drawn,) = (tmp_path / "figures").rglob("*.csv")
    with drawn.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert {row["method"] for row in rows} == {"fcl"}
    assert sum(int(row["n"]) for row in rows if row["dataset"] == "dtd") == 20


def test_what_cannot_be_shown_is_one_line(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", str(runs), "--style", "classes", "--compare", "paper"]) == 2
    assert "--compare paper is not possible with --style classes" in capsys.readouterr().err
    write_run(tmp_path / "none", "none", {"zero_shot": []}, images=2, unreadable=[0, 1])
    assert main(["tables", str(tmp_path / "none"), "--style", "classes"]) == 2
    assert capsys.readouterr().err == f"faircontext: {tmp_path}/none: no answer has a label\n"


def test_a_matrix_of_many_classes_is_drawn_without_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path / "many", np.arange(101), np.arange(101), [f"c{n}" for n in range(101)], np.zeros(101, bool))
    words, out = [str(tmp_path / "many"), "--style", "confusion"], ["--out", str(tmp_path / "figures")]
    assert main(["tables", *words]) == 2
    assert "many: too many classes for a printed matrix; give --format csv" in capsys.readouterr().err
    assert main(["tables", *words, "--format", "csv"]) == 0
    assert main(["figures", str(tmp_path / "many"), "--only", "confusion", *out]) == 0
