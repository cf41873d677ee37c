"""The command reproduce: what each table needs, that runs are shared and not repeated, and what is said before."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from coop_trees import draw
from faircontext import FCL, Episode
from faircontext.cli import main
from faircontext.datasets.spec import CATALOGUE, imagenet_wnids
from faircontext.runs.answer import answer_images
from faircontext.runs.experiments import experiment_names, read_experiment
from faircontext.runs.reproduce import interpolate
from faircontext.runs.sidecars import find_sidecars
from faircontext.runs.store import load_runs

Run = Callable[..., tuple[int, str, str]]

EXPERIMENTS = {name: read_experiment(name, paper=True) for name in experiment_names(paper=True)}
NATURAL, FINE_GRAINED = (
    tuple(name for name, entry in CATALOGUE.items() if entry.regime == regime) for regime in ("natural", "fine-grained")
)
B16, B32 = "ViT-B-16", "ViT-B-32"


def reported(name: str) -> list[dict[str, str]]:
    text = (files("faircontext.report") / "reported" / f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


def methods_of(name: str) -> list[str]:
    return [method for job in EXPERIMENTS[name].runs for method in job.methods]


def test_the_main_tables_have_the_papers_columns_and_rows() -> None:
    for name, table in (("natural-shift-b16", "natural_shift_vit_b16"), ("fine-grained-b16", "fine_grained_vit_b16")):
        rows = reported(table)
        titles = {"TPT", "C-TPT", "RLCF", "MTA", "ZERO", "TTL", "TPS", "R-TPT", "FCL"}
        assert titles <= {row["method"] for row in rows}
        found = methods_of(name)
        assert sorted(method.upper() for method in found) == sorted(title.replace("-", "") for title in titles)
        for job in EXPERIMENTS[name].runs:
            assert set(job.datasets) == set(rows[0]) - {"method", "avg", "ood_avg"}
            assert (job.backbone, job.prompts, job.overrides) == ("ViT-B-16", "single", ())
    assert len(NATURAL) == 5
    assert len(FINE_GRAINED) == 10


def test_ablations_change_one_setting_each() -> None:
    changed: dict[str, dict[str, dict[str, object]]] = {
        "ablation-losses": {"fcl-without-cal": {"lambda_cal": 0.0}, "fcl-without-align": {"lambda_align": 0.0}},
        "ablation-aggregation": {"fcl-mean": {"aggregation": "mean"}},
        "ablation-num-masks": {f"fcl-{number}": {"masks": number} for number in (50, 100, 200, 800)},
        "calibration-gain": {"fcl-explore": {"calibrate": False}},
        "prompt-ensemble": {"fcl-hp": {"context": "cl-hp"}},
        "context-hardprompt": {"fcl-hp": {"context": "cl-hp"}},
    }
    paper = FCL().settings()
    for name, wanted in changed.items():
        found = {}
        for job in EXPERIMENTS[name].runs:
            for label, settings in job.settings().items():
                if label.partition("-")[0] == "fcl":
                    found[label] = {key: value for key, value in settings.items() if value != paper[key]}
        assert found == {"fcl": {}, **wanted}
    masks = {row["num_masks"] for row in reported("ablation_num_masks")[1:]}
    assert masks == {"400", *(label.removeprefix("fcl-") for label in changed["ablation-num-masks"])}


def test_each_table_has_the_papers_data_sets_backbones_and_prompts() -> None:
    assert set(EXPERIMENTS["dataset-statistics"].counted) == set(CATALOGUE)
    for name in ("ablation-aggregation", "ablation-num-masks", "prompt-ensemble", "efficiency"):
        assert {job.datasets for job in EXPERIMENTS[name].runs} == {("imagenet",)}
    for name in ("ablation-losses", "calibration-gain"):
        assert {job.datasets for job in EXPERIMENTS[name].runs} == {FINE_GRAINED}
    ensemble = [(job.prompts, tuple(job.methods)) for job in EXPERIMENTS["prompt-ensemble"].runs]
    assert ensemble == [("single", ("fcl",)), ("generic7", ("fcl",)), ("generic7", ("fcl-hp",))]
    costs = {(job.backbone, method) for job in EXPERIMENTS["efficiency"].runs for method in job.methods}
    assert costs == {(name, method) for name in (B16, B32) for method in ("tpt", "fcl-200", "fcl", "fcl-800")}


def test_a_folder_is_of_one_kind_of_runs_and_a_method_is_in_one_folder() -> None:
    known: dict[str, object] = {}
    places: dict[tuple[str, str, str], str] = {}
    for found in EXPERIMENTS.values():
        for job in found.runs:
            facts = (tuple(job.methods), job.overrides, job.prompts, job.backbone)
            assert known.setdefault(job.folder, facts) == facts
            for method in job.methods:
                place = job.folder
                assert places.setdefault((job.backbone, job.prompts, method), place) == place


def test_tables_that_need_the_same_runs_share_them() -> None:
    natural = [run for name in ("natural-shift-b16", "natural-shift-b32") for run in EXPERIMENTS[name].runs]
    assert natural == [*EXPERIMENTS["delta-over-clip"].runs]
    folders = {name: {job.folder for job in found.runs} for name, found in EXPERIMENTS.items()}
    for name in ("ablation-aggregation", "ablation-num-masks", "prompt-ensemble", "efficiency", "context-hardprompt"):
        assert "ViT-B-16-openai/single/fcl" in folders[name] & folders["natural-shift-b16"]
    for name in ("ablation-losses", "calibration-gain"):
        assert "ViT-B-16-openai/single/fcl" in folders[name] & folders["fine-grained-b16"]


@pytest.mark.parametrize(("classes", "seconds"), [(10, 1.0), (60, 2.0), (110, 3.0)])
def test_costs_between_are_on_a_line(classes: int, seconds: float) -> None:
    assert interpolate({110: 3.0, 10: 1.0}, classes) == pytest.approx(seconds)
    assert interpolate({110: 3.0}, 110) == 3.0


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
    assert out.count("imagenet 2 images") == 2
    assert re.fullmatch(r"estimated: \d+ s in all, on .+ \(cpu, fp32, \d+ threads\)", out.splitlines()[-1])
    assert not (root.parent / "runs").exists()
    code, out, _ = reproduce("ablation-aggregation")
    assert code == 0
    assert out.index("estimated: ") < out.index("imagenet (test): ")
    runs = {run.folder.parent.name: run for run in load_runs(root.parent / "runs")}
    methods = {name: run.document["config"]["methods"] for name, run in runs.items()}
    assert {name: list(found) for name, found in methods.items()} == {
        "fcl": ["zero_shot", "fcl"],
        "aggregation": ["zero_shot", "fcl-mean"],
    }
    assert methods["fcl"]["fcl"] == json.loads(json.dumps(FCL().settings()))
    assert methods["aggregation"]["fcl-mean"]["aggregation"] == "mean"
    for run in runs.values():
        assert run.document["config"]["preset"] == "paper"
        assert run.document["config"]["views"]["scale"] == [0.08, 1.0]
    before = snapshot(root)
    code, out, _ = reproduce("ablation-aggregation")
    assert code == 0
    assert "nothing is left to run" in out
    (table,) = [line for line in out.splitlines() if line.startswith(" Zero-shot")]  # one, of both runs
    assert table
    assert {" FCL ", " FCL-mean "} <= {f" {line.split()[0]} " for line in out.splitlines() if line.split()}
    assert snapshot(root) == before
    assert main(["tables", str(root.parent / "runs")]) == 0  # all runs together are one table as well


def snapshot(root: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in (root.parent / "runs").rglob("*") if file.is_file()}


@pytest.mark.slow
def test_another_table_runs_only_what_is_not_there(reproduce: Run, root: Path) -> None:
    assert reproduce("ablation-aggregation")[0] == 0
    before = snapshot(root)
    code, out, _ = reproduce("calibration-gain", "--dry-run", "--available")
    assert code == 2  # none of its data sets is there
    code, out, _ = reproduce("prompt-ensemble")
    assert code == 0
    assert out.count("imagenet complete") == 1
    assert before.items() <= snapshot(root).items()
    prompts = [run.document["config"]["prompts"] for run in load_runs(root.parent / "runs")]
    assert sorted(prompts) == ["generic7"] * 2 + ["single"] * 2


@pytest.mark.slow
def test_masks_are_encoded_once_for_the_numbers_that_run_together(
    reproduce: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, bool]] = []
    original = Episode.masked_features

    def spy(episode: Episode, count: int, *rest: Any) -> Any:
        before = episode.known.get(("masked", *rest))
        answer = original(episode, count, *rest)
        found.append((count, episode.known[("masked", *rest)] is not before))
        return answer

    monkeypatch.setattr(Episode, "masked_features", spy)
    assert reproduce("ablation-num-masks", "--limit", "1")[0] == 0
    assert found[-5:] == [(400, True), (800, True), (200, False), (100, True), (50, False)]


@pytest.mark.slow
def test_a_stopped_call_goes_on(reproduce: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = iter([False, True])

    def interrupted(*rest: Any) -> Iterator[Any]:
        for answer in answer_images(*rest):
            if next(stop):
                raise KeyboardInterrupt
            yield answer

    with monkeypatch.context() as patch:
        patch.setattr("faircontext.runs.executors.answer_images", interrupted)
        code, _, err = reproduce("ablation-aggregation")
    assert code == 130
    assert err.splitlines()[-1].endswith("interrupted after 1 of 2 images; the same command goes on")
    (run,) = load_runs(root.parent / "runs")
    (first,) = set(run.rows["path"].to_pylist())
    code, out, _ = reproduce("ablation-aggregation")
    assert code == 0
    assert "imagenet 1 image\n" in out
    (run,) = [run for run in load_runs(root.parent / "runs") if run.folder.parent.name == "fcl"]
    assert [session["images"] for session in run.document["sessions"]] == [1, 1]
    assert first in run.rows["path"].to_pylist()
    assert len(run.rows) == 4


@pytest.mark.slow
def test_what_would_be_refused_later_is_refused_before_anything_is_measured(
    reproduce: Run, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce("ablation-aggregation", "--limit", "1")[0] == 0
    code, out, err = reproduce("ablation-aggregation")
    assert (code, "estimated" in out) == (2, False)
    assert "limit was 1 and is null; name another --out" in err.splitlines()[-1]
    assert main(["reproduce", "ablation-aggregation", "--root", str(root)]) == 2  # not --partial
    first, last = capsys.readouterr().err.splitlines()
    assert "imagenet: 49,998 of 50,000 images are not in" in first
    assert "with --partial" in first
    assert "none of its data sets can be taken from" in last


@pytest.mark.slow
def test_a_backbone_leaves_out_what_it_cannot_run(
    tiny_folder: Callable[[str], Path], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--root", str(root), "--partial", "--available", "--limit", "1", "--dry-run", "--precision", "fp32"]
    model = f"local-dir:{tiny_folder('resnet')}"
    assert main(["reproduce", "natural-shift-b16", "--backbone", model, *words]) == 0
    shown = capsys.readouterr()
    assert f"note: {model} cannot run ttl: left out\n" in shown.err
    assert "/single/baselines: zero_shot, ctpt, rlcf, mta, zero, tps, rtpt\n" in shown.out


def test_statistics_count_what_is_there(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "dataset-statistics", "--root", str(root)]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].split() == ["imagenet", "1,000", "1,000", "2", "50,000", "50,000"]
    assert shown.err.count("note: ") == 14


def test_missing_data_sets_are_named_before_anything_runs(reproduce: Run, root: Path) -> None:
    code, out, err = reproduce("natural-shift-b16")
    assert code == 2
    lines = err.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("note: imagenet_a: no folders of images in ")
    assert "natural-shift-b16 needs 4 data sets that cannot be taken from " in lines[-1]
    assert "leave them out with --available" in lines[-1]
    assert out == ""
    assert not (root.parent / "runs").exists()
    code, out, _ = reproduce("context-hardprompt", "--available", "--limit", "1", "--dry-run")
    assert code == 0
    assert out.count("    imagenet 1 image\n") == 4


def test_none_of_the_data_sets_is_an_error(reproduce: Run) -> None:
    code, _, err = reproduce("ablation-losses", "--available")
    assert code == 2
    assert "none of its data sets can be taken from" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["natural-shift"], "unknown experiment 'natural-shift'; did you mean 'natural-shift-b"),
        (["ablation-losses"], "reproduce needs --root"),
        (["efficiency", "--root", ".", "--trials", "1"], "trials=1 is not possible"),
        (["efficiency", "--root", ".", "--limit", "0"], "limit=0 is not possible"),
        (["efficiency", "--root", ".", "--workers", "-1"], "workers=-1 is not possible"),
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


@pytest.mark.slow
def test_costs_are_measured_beside_the_accuracies(reproduce: Run, root: Path) -> None:
    code, out, _ = reproduce("efficiency", "--trials", "2", "--limit", "1")
    assert code == 0
    lines = [line.split() for line in out.splitlines() if "2 trials" in line]
    assert [line[0] for line in lines] == ["tpt", "fcl-200", "fcl", "fcl-800"]
    assert all(float(line[1]) > 0 and line[3:5] == ["(standard", "error"] for line in lines)
    groups = {run.folder.parent.name for run in load_runs(root.parent / "runs")}
    assert groups == {"tpt", "fcl", "masks-many"}
    (kept,) = (root.parent / "runs").rglob("costs.json")
    _, sidecars = find_sidecars([kept])
    assert [cost.method for cost in sidecars.costs] == ["tpt", "fcl-200", "fcl", "fcl-800"]
    assert all(cost.seconds_mean > 0 and cost.peak_memory_mb is not None for cost in sidecars.costs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("decomposition", ["decomposition"]),
        ("evidence-gallery", ["gallery"]),
        ("ablation-num-masks", ["masks"]),
        ("efficiency", ["pareto"]),
    ],
)
def test_figures_are_drawn_by_name_and_what_is_there_is_not_run_again(
    name: str, figures: list[str], reproduce: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wnid in imagenet_wnids("a")[:2] if name == "evidence-gallery" else ():
        draw(root / "imagenet_a" / wnid / f"{wnid}_1.JPEG")
    words = ("--trials", "2", *(("--available",) if name == "evidence-gallery" else ()))
    code, out, err = reproduce(name, *words)
    assert code == 0, err
    drawn = sorted(path.stem for path in (root.parent / "runs" / "figures").glob("*.pdf"))
    assert [stem.partition("-")[0] for stem in drawn] == figures
    assert "estimated: " in out
    if name == "decomposition":
        assert "at most" in out  # what the sum of proxies can reach
        (run,) = load_runs(root.parent / "runs")
        assert (run.document["config"]["limit"], run.document["config"]["preset"]) == (1000, "paper")
    monkeypatch.setattr("faircontext.runs.evaluate.evaluate", lambda *_: pytest.fail("everything is there"))
    assert reproduce(name, *words)[0] == 0


def test_observations_need_three_analyses() -> None:
    found = {tuple(job.methods): (job.datasets, job.limit) for job in EXPERIMENTS["observations"].runs}
    assert found == {
        ("gallery",): (("imagenet_a",), 100),
        ("evidence",): (NATURAL, 1000),
        ("entropy",): (("imagenet",), 100),
    }
    assert EXPERIMENTS["observations"].facts["figures"] == ["scores", "ecec", "entropy"]
