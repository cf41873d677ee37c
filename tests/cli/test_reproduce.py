"""The command reproduce: what each table needs, that runs are shared and not repeated, and what is said before."""

import csv
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from coop_trees import draw
from faircontext import FCL
from faircontext.bench.reproduce import EXPERIMENTS, FINE_GRAINED, MASKS, METHODS, NATURAL
from faircontext.bench.store import load_runs
from faircontext.cli import main
from faircontext.datasets.imagenet import imagenet_wnids
from faircontext.methods import create_method, parse_settings

Run = Callable[..., tuple[int, str, str]]


def reported(name: str) -> list[dict[str, str]]:
    text = (files("faircontext.report") / "reported" / f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


def test_the_main_tables_have_the_papers_columns_and_rows() -> None:
    for name, table in (("natural-shift-b16", "natural_shift_vit_b16"), ("fine-grained-b16", "fine_grained_vit_b16")):
        (job,) = EXPERIMENTS[name].jobs
        rows = reported(table)
        assert set(job.datasets) == set(rows[0]) - {"method", "avg", "ood_avg"}
        titles = {"TPT", "C-TPT", "RLCF", "MTA", "ZERO", "TTL", "TPS", "R-TPT", "FCL"}
        assert titles <= {row["method"] for row in rows}
        assert {method.upper() for method in job.methods} == {title.replace("-", "") for title in titles}
    assert len(NATURAL) == 5
    assert len(FINE_GRAINED) == 10


def test_ablations_change_one_setting_each() -> None:
    masks = EXPERIMENTS["ablation-num-masks"].jobs[0]
    assert [str(number) for number in MASKS] == [row["num_masks"] for row in reported("ablation_num_masks")[1:]]
    assert masks.settings == tuple(f"fcl-{number}.masks={number}" for number in MASKS)
    changed = {
        "ablation-losses": [{"lambda_cal": 0.0}, {"lambda_align": 0.0}],
        "ablation-aggregation": [{"aggregation": "mean"}],
        "calibration-gain": [{"calibrate": False}],
        "prompt-ensemble": [{"context": "cl-hp"}],
        "context-hardprompt": [{"context": "cl-hp"}],
    }
    paper = FCL().settings()
    for name, wanted in changed.items():
        words = [word.partition(".")[2] for word in EXPERIMENTS[name].jobs[-1].settings]
        found = []
        for word in words:
            settings = create_method("fcl", **parse_settings("fcl", (word,))).settings()
            found.append({key: value for key, value in settings.items() if value != paper[key]})
        assert found == wanted


def test_every_job_can_be_planned_and_one_folder_means_one_thing() -> None:
    known: dict[str, object] = {}
    for found in EXPERIMENTS.values():
        for job in found.jobs:
            facts = (job.methods, job.settings, job.prompts, job.backbone)
            assert known.setdefault(job.folder("openai"), facts) == facts
            labels = {method.partition("-")[0] for method in job.methods}
            assert labels <= {*METHODS}
            assert all(word.partition(".")[0] in job.methods for word in job.settings)


def test_tables_that_need_the_same_runs_share_them() -> None:
    natural = {EXPERIMENTS[name].jobs[0] for name in ("natural-shift-b16", "natural-shift-b32")}
    assert natural == {*EXPERIMENTS["delta-over-clip"].jobs}
    assert EXPERIMENTS["prompt-ensemble"].jobs[0].folder(None) == EXPERIMENTS["natural-shift-b16"].jobs[0].folder(None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for wnid in imagenet_wnids()[:2]:
        draw(tmp_path / "data" / "imagenet/images/val" / wnid / f"{wnid}_1.JPEG")
    return tmp_path / "data"


@pytest.fixture
def reproduce(tiny_folder: Callable[[str], Path], root: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(name: str, *more: str) -> tuple[int, str, str]:
        model = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--root", str(root))
        code = main(["reproduce", name, *model, "--out", str(root.parent / "runs"), "--partial", *more])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_an_ablation_runs_once_and_says_the_time_first(reproduce: Run, root: Path) -> None:
    code, out, _ = reproduce("ablation-aggregation", "--dry-run")
    assert code == 0
    assert "2 images, about " in out
    assert out.splitlines()[-1].startswith("estimated: ")
    assert not (root.parent / "runs").exists()
    code, out, _ = reproduce("ablation-aggregation")
    assert code == 0
    assert out.index("estimated: ") < out.index("imagenet (test): ")
    (run,) = load_runs(root.parent / "runs")
    methods = run.document["config"]["methods"]
    assert list(methods) == ["zero_shot", "fcl", "fcl-mean"]
    assert (methods["fcl"]["aggregation"], methods["fcl-mean"]["aggregation"]) == ("vote", "mean")
    assert (methods["fcl"]["masks"], run.document["config"]["preset"]) == (400, "paper")
    assert run.document["config"]["views"]["scale"] == [0.08, 1.0]
    before = (run.folder / "rows.parquet").stat().st_mtime_ns
    code, out, _ = reproduce("ablation-aggregation")
    assert code == 0
    assert "all there" in out
    assert "Zero-shot" in out  # the table is printed again
    assert (run.folder / "rows.parquet").stat().st_mtime_ns == before
    assert len(json.loads((run.folder / "run.json").read_text())["sessions"]) == 1


def test_missing_data_sets_are_named_before_anything_runs(reproduce: Run, root: Path) -> None:
    code, out, err = reproduce("natural-shift-b16")
    assert code == 2
    lines = err.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("note: imagenet_a: no folders of images in ")
    assert "natural-shift-b16 needs 4 data sets that are not in " in lines[-1]
    assert "leave them out with --available" in lines[-1]
    assert out == ""
    assert not (root.parent / "runs").exists()
    code, out, _ = reproduce("context-hardprompt", "--available", "--limit", "1", "--dry-run")
    assert code == 0
    assert out.count(" on imagenet\n") == 2


def test_none_of_the_data_sets_is_an_error(reproduce: Run) -> None:
    code, _, err = reproduce("ablation-losses", "--available")
    assert code == 2
    assert "none of its data sets is in" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["natural-shift"], "unknown experiment 'natural-shift'; did you mean 'natural-shift-b"),
        (["ablation-losses"], "reproduce needs --root"),
        (["efficiency", "--root", ".", "--trials", "1"], "trials=1 is not possible"),
    ],
)
def test_a_wrong_word_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_the_list_has_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EXPERIMENTS)


def test_costs_are_measured_beside_the_accuracies(reproduce: Run, root: Path) -> None:
    code, out, _ = reproduce("efficiency", "--trials", "2", "--limit", "1")
    assert code == 0
    lines = [line.split() for line in out.splitlines() if "2 trials" in line]
    assert [line[0] for line in lines] == ["tpt", "fcl-200", "fcl-400", "fcl-800"]
    assert all(float(line[1]) > 0 and line[3:5] == ["(standard", "error"] for line in lines)
    groups = {run.folder.parent.name for run in load_runs(root.parent / "runs")}
    assert groups == {"natural-shift", "num-masks"}
