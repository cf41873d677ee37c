"""--multi-label from the command line: answers, files, stored runs, tables, the page, thresholds, and refusals."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score

from faircontext.cli import main
from faircontext.metrics import score_of
from faircontext.runs.evaluate import evaluate as run_evaluation
from faircontext.runs.label_results import read_label_result
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.records import Answer, answers_of, schema_of, to_table
from faircontext.runs.store import load_run

Run = Callable[..., tuple[int, str, str]]
NAMES = ("cat", "dog", "bird")
SETS = ("cat;dog", "dog", "", "bird;cat", "dog;bird;cat")
ZERO = ("--multi-label", "--methods", "zero_shot")
LOW = ("--threshold", "0.02")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> Path:
    """Ten pictures with sets of labels, and a file that is none."""
    folder = tmp_path_factory.mktemp("several") / "photos"
    folder.mkdir()
    rows = ["path,label"]
    for number in range(10):
        Image.fromarray(make_image(number, 40, 50)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{SETS[number % 5]}")
    (folder / "broken.png").write_bytes(b"\x89PNG but no more")
    (folder / "labels.csv").write_text("\n".join([*rows, "broken.png,cat"]) + "\n")
    (folder / "classnames.txt").write_text("\n".join(NAMES) + "\n")
    return folder


@pytest.fixture
def command(tiny_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str], photos: Path) -> Run:
    """Return a function that runs a command with a tiny model and returns (code, output, errors)."""

    def run(*words: object) -> tuple[int, str, str]:
        model = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32")
        more: tuple[object, ...] = ()
        if words[0] == "classify":
            more = (photos, "--labels", ",".join(NAMES), "--multi-label", "--method", "zero_shot", *model)
        elif words[0] == "evaluate":
            more = ("--root", photos.parent, *(() if "--datasets" in words else ("--datasets", "photos")), *model)
        code = main([*map(str, (words[0], *more, *words[1:]))])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def runs(command: Run, tmp_path: Path) -> Path:
    command("evaluate", *ZERO, *LOW, "--out", tmp_path / "runs")
    return tmp_path / "runs"


def test_a_run_holds_scores_and_sets_and_tells_mean_average_precision(command: Run, tmp_path: Path) -> None:
    code, out, err = command("evaluate", *ZERO, *LOW, "--out", tmp_path)
    assert code == 1  # one file is no picture
    assert "several labels for an image, each scored against 12 negatives; given from a score of 0.02 on" in out
    assert "2 images have none of the classes: an empty cell" in err
    run = load_run(tmp_path / "photos")
    rows = pq.ParquetFile(tmp_path / "photos" / "rows.parquet").read().to_pylist()
    assert run.complete
    assert run.document["config"]["multi_label"]["negatives"][0] == "thing"
    result = read_label_result(run)
    assert (result.metrics.n, result.unreadable, result.unlabelled) == (10, 1, 0)
    for row in (row for row in rows if not row["error"]):
        assert row["label"] == ";".join(sorted(filter(None, SETS[int(row["path"][0]) % 5].split(";")), key=NAMES.index))
        scores = score_of(np.array(row["label_logits"], np.float32))
        given = [NAMES[index] for index in np.argsort(-scores, kind="stable") if scores[index] >= 0.02]
        assert row["prediction"] == row["zero_shot"] == ";".join(given)
        assert row["index"] == int(scores.argmax())
        assert row["confidence"] == scores.max()
        assert row["label_index"] is row["label_probability"] is row["probability_norm"] is None
    assert next(row for row in rows if row["error"])["label_logits"] == []
    oracle = average_precision_score(result.metrics.targets, result.metrics.logits, average="macro")
    assert result.metrics.precision.mean.value == pytest.approx(oracle)
    assert f"mAP {100 * oracle:.1f}% (n = 10, 3 classes, 95% interval " in out
    assert "1 unreadable left out" in out


def test_answers_printed_and_in_files_are_those_of_a_stored_run(command: Run, tmp_path: Path) -> None:
    files = {}
    for name, more in (("plain", ()), ("stored", ("--out", tmp_path / "run"))):
        paths = {kind: tmp_path / f"{name}.{kind}" for kind in ("csv", "json", "parquet")}
        outputs = ("--csv", paths["csv"], "--json", paths["json"], "--scores", paths["parquet"], "--top", "2")
        code, out, _ = command("classify", *LOW, *outputs, *more)
        assert code == 1
        assert "10 answered, 1 unreadable, " in out
        assert "mAP " in out
        rows = list(csv.DictReader(paths["csv"].read_text().splitlines()))
        document = json.loads(paths["json"].read_text())
        for row, answer in zip(rows, document["answers"], strict=True):
            answer.pop("seconds")
            answer.pop("shared_seconds")
            row.pop("seconds")
            assert row["prediction"] == ";".join(label for label, _ in answer["predictions"])
            assert row["scores"] == ";".join(f"{score:.6f}" for _, score in answer["predictions"])
        assert document["run"]["multi_label"]["threshold"] == 0.02
        assert document["summary"]["zero_shot"]["n"] == 10
        files[name] = rows, document["answers"], document["summary"], pq.read_table(paths["parquet"]).to_pylist()
    assert files["plain"] == files["stored"]
    rows, answers, _, table = files["plain"]
    assert [answer["labels"] for answer in answers][:3] == [["cat", "dog"], ["dog"], []]
    assert rows[0]["label"] == "cat;dog"
    assert {*rows[0]} >= {"top1", "top2_probability"}
    for line, answer in zip(table, [answer for answer in answers if not answer["error"]], strict=True):
        assert max(line["probabilities"]) == pytest.approx(answer["confidence"], rel=1e-6)
        for label, score in answer["predictions"]:
            assert line["probabilities"][NAMES.index(label)] == pytest.approx(score, rel=1e-6)


def test_what_is_printed_for_each_image(command: Run) -> None:
    _, out, _ = command("classify", "--threshold", "0")
    (line,) = (line for line in out.splitlines() if line.endswith("0.png"))
    assert all(f"{name} 0." in line for name in NAMES)
    _, out, _ = command("classify", "--threshold", "1")
    (line,) = (line for line in out.splitlines() if line.endswith("0.png"))
    assert line.startswith("(none) ")
    assert "0.00 labels an image, 10 with none" in out


def test_another_label_does_not_change_a_score_of_a_run(command: Run, tmp_path: Path) -> None:
    scores = {}
    for labels in ("dog", "cat,dog,bird,snail"):
        command("classify", "--labels", labels, "--threshold", "0", "--json", tmp_path / "a.json")
        answers = json.loads((tmp_path / "a.json").read_text())["answers"]
        scores[labels] = [[score for name, score in one["predictions"] if name == "dog"] for one in answers]
    assert scores["dog"] == scores["cat,dog,bird,snail"]


def test_a_run_goes_on_only_as_it_was(command: Run, runs: Path) -> None:
    again = ("--out", runs, "--resume")
    assert command("evaluate", *ZERO, *LOW, *again)[0] == 1
    code, _, err = command("evaluate", *ZERO, "--threshold", "0.3", *again)
    assert code == 2
    assert "multi_label.threshold was 0.02 and is 0.3" in err
    assert "is another run than the one that is asked for" in command("evaluate", *ZERO, *again)[2]


def test_shards_are_merged_to_the_run_without_them(command: Run, runs: Path, tmp_path: Path) -> None:
    for part in range(2):
        command("evaluate", *ZERO, *LOW, "--out", tmp_path / "parts", "--shard", f"{part}/2")
    assert command("merge", tmp_path / "parts", "--out", tmp_path / "whole")[0] == 0
    whole, parts = (read_label_result(load_run(folder / "photos")) for folder in (runs, tmp_path / "whole"))
    assert whole.describe() == parts.describe()
    assert np.array_equal(whole.metrics.logits, parts.metrics.logits)


def test_a_record_comes_through_ray_as_it_was() -> None:
    shared = {"path": "a", "dataset": "d", "config": "c", "position": 3, "index": 1, "top5": (1, 0)}
    for targets in (None, (), (0, 2)):
        record = Answer(**shared, targets=targets, label_logits=np.array([-30.5, 1e-3], np.float32))
        ((back,),) = answers_of(to_table([record], schema_of(("targets", "label_logits"))))
        assert (back.targets, back.top5) == (targets, (1, 0))
        assert back.label_logits.tobytes() == record.label_logits.tobytes()


def test_tables(command: Run, runs: Path) -> None:
    result = read_label_result(load_run(runs / "photos"))
    mean = result.metrics.precision.mean
    shown = f"{100 * mean.value:.2f} [{100 * mean.low:.2f}, {100 * mean.high:.2f}]"
    code, out, _ = command("tables", runs, "--format", "md")
    assert code == 0
    assert shown.replace("[", "\\[").replace("]", "\\]") in out
    assert "1 unreadable and left out" in out
    out = command("tables", runs, "--format", "md", "--style", "long")[1]
    assert all(f"| {name} " in out for name in NAMES)
    (row,) = csv.DictReader(command("tables", runs, "--format", "csv")[1].splitlines())
    assert float(row["map"]) == mean.value
    assert (row["n"], row["scores"], row["threshold"]) == ("10", "negatives", "0.02")
    rows = list(csv.DictReader(command("tables", runs, "--format", "csv", "--style", "long")[1].splitlines()))
    assert [row["class"] for row in rows] == [*NAMES]
    assert [int(row["positives"]) for row in rows] == result.metrics.targets.sum(0).tolist()


def test_runs_of_both_kinds_stand_beside_each_other_but_not_in_one_csv(
    command: Run, runs: Path, tmp_path: Path, photos: Path
) -> None:
    (tmp_path / "single").mkdir()
    lines = (photos / "labels.csv").read_text().splitlines()
    for line in lines[1:11]:
        name = line.partition(",")[0]
        (tmp_path / "single" / name).write_bytes((photos / name).read_bytes())
    table = ["path,label", *(f"{line.partition(',')[0]},{number % 2}" for number, line in enumerate(lines[1:11]))]
    (tmp_path / "single" / "labels.csv").write_text("\n".join(table))
    (tmp_path / "single" / "classnames.txt").write_text("cat\ndog\n")
    done = command("evaluate", "--datasets", tmp_path / "single", "--methods", "zero_shot", "--out", tmp_path / "more")
    assert done[0] == 0, done
    code, out, _ = command("tables", runs, tmp_path / "more", "--format", "md")
    assert code == 0
    assert "Several labels for an image" in out
    assert "Top-1 accuracy" in out
    code, _, err = command("tables", runs, tmp_path / "more", "--format", "csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "a CSV has columns of one kind; name runs of one kind" in err
    for folders, words in (((runs,), 0), ((runs, tmp_path / "more"), 10)):
        page = tmp_path / "page.html"
        code, out, _ = command("report", *folders, "--out", page)
        assert code == 0
        assert f"{11 + words} images" in out
        html = page.read_text()
        assert "Several labels for an image" in html
        assert "Average precision of each class" in html
        assert ('id="data"' in html) == bool(words)


def test_a_threshold_is_chosen_on_a_run(command: Run, runs: Path) -> None:
    code, out, _ = command("threshold", runs / "photos")
    metrics = read_label_result(load_run(runs / "photos")).metrics
    threshold = float(out.removeprefix("--threshold ").partition(":")[0])
    scores, targets = score_of(metrics.logits), metrics.targets
    best = max(2 * ((scores >= t) & targets).sum() / ((scores >= t).sum() + targets.sum()) for t in np.unique(scores))
    given = scores >= threshold
    assert code == 0
    assert 2 * (given & targets).sum() / (given.sum() + targets.sum()) == best
    out = command("threshold", runs / "photos", "--precision", "0.5")[1]
    given = scores >= float(out.removeprefix("--threshold ").partition(":")[0])
    assert (given & targets).sum() / given.sum() >= 0.5
    for words, said in (
        (("--coverage", "0.9"), "--coverage, --risk and --temperature are of one label an image"),
        (("--out", "t.json"), "--out is of thresholds for --unknown; pass that of labels as --threshold"),
    ):
        code, _, err = command("threshold", runs / "photos", *words)
        assert (code, err.count("\n")) == (2, 1)
        assert said in err


def test_images_without_labels_are_given_some(command: Run, tmp_path: Path, photos: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "1.png").write_bytes((photos / "1.png").read_bytes())
    words = ("classify", tmp_path / "new", "--labels", "cat,dog", "--multi-label", "--method", "zero_shot")
    code = main([*map(str, words), "--out", str(tmp_path / "run"), "--backbone", "lite0"])
    assert code == 0
    result = read_label_result(load_run(tmp_path / "run"))
    assert (result.metrics.n, result.unlabelled) == (0, 1)
    assert result.describe() == "no labels are known; 1 image has no known labels, and count in nothing"
    code, out, _ = command("tables", tmp_path / "run", "--format", "csv")
    assert code == 0
    assert next(csv.DictReader(out.splitlines()[-2:]))["map"] == ""
    assert "has no labelled image that was answered" in command("threshold", tmp_path / "run")[2]


def test_a_data_set_is_checked_with_its_sets_of_labels(command: Run, photos: Path) -> None:
    code, out, _ = command("data", "check", "photos", "--root", photos.parent, "--multi-label")
    assert code == 0
    assert "3 classes, 3 with images" in out


def test_from_python(tiny_folder: Callable[[str], Path], photos: Path, tmp_path: Path) -> None:
    options = EvaluateOptions(
        datasets=("photos",),
        root=photos.parent,
        methods=("zero_shot",),
        out=tmp_path,
        backbone=f"local-dir:{tiny_folder('siglip')}",
        multi_label=True,
    )
    said: list[str] = []
    assert run_evaluation(options, said.append, said.append) == 1
    assert any("by the model's sigmoid, bias -10; given from a score of 0.5 on" in line for line in said)
    assert load_run(tmp_path / "photos").document["config"]["multi_label"] == {
        "threshold": 0.5,
        "scores": "sigmoid",
        "logit_bias": -10.0,
    }


def test_a_negative_that_is_a_class_is_one_line(command: Run, tmp_path: Path) -> None:
    (tmp_path / "same.txt").write_text("thing\ndog\n")
    code, _, err = command("evaluate", "--out", tmp_path / "runs", *ZERO, "--negatives", tmp_path / "same.txt")
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert (code, len(lines)) == (2, 1)
    assert "the negative 'dog' is the class 'dog' too, which could never be" in lines[0]


def test_other_commands_refuse_in_one_line(command: Run, runs: Path, tmp_path: Path) -> None:
    code, _, err = command("figures", runs, "--out", tmp_path / "figures")
    assert (code, err.count("\n")) == (2, 1)
    assert "its images may have several labels, and figures are of one label an image; see faircontext tables" in err
    code, _, err = command("tables", runs, "--metric", "ece")
    assert code == 2
    assert "--metric ece is of runs with one label an image; leave it out" in err
    code, _, err = command("classify", "--labels", "cat;dog,bird")
    assert code == 2
    assert "class name 'cat;dog' has ';' in it, which stands between the labels of an image; rename it" in err


def test_damaged_rows_are_one_line(command: Run, runs: Path) -> None:
    path = runs / "photos" / "rows.parquet"
    table = pq.ParquetFile(path).read()
    column = [[*row[:-1]] for row in table["label_logits"].to_pylist()]
    index = table.column_names.index("label_logits")
    pq.write_table(table.set_column(index, "label_logits", [column]), path)
    code, _, err = command("tables", runs)
    assert (code, err.count("\n")) == (2, 1)
    assert "is no run of 3 classes with labels: delete it, and make the run again" in err
