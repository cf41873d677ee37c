"""Figures of little or of broken material: a line instead of a crash, and no picture of nothing."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from faircontext.cli import main
from faircontext.errors import ArgumentError
from faircontext.report.figures import FIGURES, draw_figures, load_groups
from faircontext.report.page import build_page
from faircontext.runs.analyses import read_analysis
from faircontext.runs.groups import find_runs, incomplete
from made_analyses import analysis_run, gallery_row
from made_runs import write_run


def test_one_image_and_one_class_are_drawn_without_a_warning(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    one = {"images": 1, "labels": [0]}
    write_run(runs / "fcl", "dtd", {"zero_shot": [0], "fcl": [0]}, settings={"fcl": {"masks": 50}}, **one)
    write_run(runs / "few", "dtd", {"fcl-9": [0]}, settings={"fcl-9": {"masks": 9}}, **one)
    analysis_run(runs / "evidence", "evidence", [{"ecec": 0.0}])
    analysis_run(runs / "entropy", "entropy", [{"views": [0.0], "entropy": [0.0], "euec": [0.1]}])
    ones = dict.fromkeys(("cos_common", "cos_unique_1", "cos_unique_2", "cos_composed"), 1.0)
    analysis_run(runs / "decomposition", "decomposition", [ones])
    analysis_run(runs / "gallery", "gallery", [gallery_row(0, candidates=2)], candidates=(0, 1), names=("one", "other"))
    outcomes = draw_figures(*load_groups([runs]), [*FIGURES], tmp_path / "out")
    assert {outcome.name for outcome in outcomes if not outcome.files} == {"pareto", "stream", "ablations"}


def test_an_analysis_of_one_candidate_has_no_pair_to_draw(tmp_path: Path) -> None:
    analysis_run(tmp_path / "runs", "gallery", [gallery_row(0, candidates=1)], candidates=(0,))
    outcomes = draw_figures(*load_groups([tmp_path / "runs"]), [*FIGURES], tmp_path / "out")
    assert not any(outcome.files for outcome in outcomes)


def test_runs_without_an_image_give_a_line_for_each_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs", "dtd", {"zero_shot": [], "fcl": []}, answered=0)
    analysis_run(tmp_path / "runs" / "evidence", "evidence", [{"ecec": 1.0}], errors=[0])
    assert main(["figures", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("not drawn: needs") == len(FIGURES)
    assert "faircontext reproduce calibration-gain --root DATA" in captured.err
    assert list((tmp_path / "out").iterdir()) == []


def test_values_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    analysis_run(tmp_path / "runs", "evidence", [{"ecec": value} for value in (0.1, float("nan"), 0.2)])
    (outcome,) = draw_figures(*load_groups([tmp_path / "runs"]), ["ecec"], tmp_path / "out")
    assert outcome.warnings == ("1 image without a finite ECEC is left out",)


def test_runs_of_two_backbones_are_drawn_apart(tmp_path: Path) -> None:
    for name in ("lite0", "lite1"):
        analysis_run(tmp_path / "runs" / name, "evidence", [{"ecec": 0.1}, {"ecec": 0.2}], backbone=name)
    outcomes = draw_figures(*load_groups([tmp_path / "runs"]), ["ecec"], tmp_path / "out")
    assert [outcome.name for outcome in outcomes] == ["ecec-lite0", "ecec-lite1"]


def test_one_image_found_twice_counts_once(tmp_path: Path) -> None:
    for name in ("first", "second"):
        analysis_run(tmp_path / name, "evidence", [{"ecec": 0.1}])
    (group,), _ = load_groups([tmp_path])
    assert len(read_analysis(group.runs, "evidence", lambda row: row.path)) == 1


def test_methods_on_other_images_are_compared_on_those_that_all_have(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "all", "dtd", {"zero_shot": range(10), "zero": range(12)})
    write_run(runs / "few", "dtd", {"zero_shot": range(10), "tpt": range(6)}, answered=8)
    costs = [{"method": name, "backbone": "ViT-B-16", "seconds_mean": 1.0} for name in ("zero_shot", "zero", "tpt")]
    (runs / "costs.json").write_text(json.dumps({"costs": costs}))
    (outcome,) = draw_figures(*load_groups([runs]), ["pareto"], tmp_path / "out")
    lines = (tmp_path / "out" / "pareto.csv").read_text().splitlines()
    assert outcome.files
    assert [line.split(",")[:4] for line in lines[1:]] == [
        ["zero_shot", "8", "1", "1.0"],
        ["tpt", "8", "1", "0.75"],
        ["zero", "8", "1", "1.0"],
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("costs.json", "{", "costs.json: holds no list 'costs'"),
        ("costs.json", '{"costs": [{"method": "fcl"}]}', "costs.json: an entry cannot be read"),
        ("costs.json", '{"costs": 5}', "costs.json: holds no list 'costs'"),
        ("a.results.json", '{"variants": []}', "a.results.json: lacks 'name'"),
        ("a.results.json", '{"variants": [{"label": "x"}]}', "a.results.json: an entry cannot be read"),
        (
            "a.results.json",
            '{"variants": [{"label": "x", "n": "2", "accuracy": 1, "low": 0, "high": 1}]}',
            "a.results.json: an entry cannot be read",
        ),
    ],
)
def test_files_that_cannot_be_read_are_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ArgumentError, match=message):
        load_groups([tmp_path])


def test_a_row_that_lacks_its_quantity_is_named(tmp_path: Path) -> None:
    analysis_run(tmp_path, "evidence", [{"eced": 0.5}])
    with pytest.raises(ArgumentError, match=r"the row evidence of 00000.png cannot be read \(KeyError\('ecec'\)\)"):
        draw_figures(*load_groups([tmp_path]), ["ecec"], tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give at least one folder of runs"),
        (("nowhere",), "nowhere: holds no run (no run.json); make one with faircontext evaluate"),
        (("RUNS/run.json",), "run.json: is no costs.json or NAME.results.json; name the folder"),
        (("RUNS", "--only", "parito"), "unknown figure 'parito'; did you mean 'pareto'?"),
        (("RUNS", "--out", "RUNS/run.json"), "cannot be written"),
        (("RUNS", "--out", ""), "--out is empty"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = analysis_run(tmp_path, "evidence", [{"ecec": 0.1}])
    assert main(["figures", *(word.replace("RUNS", str(runs)) for word in words)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_figure_asked_for_by_name_is_the_only_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = analysis_run(tmp_path / "runs", "evidence", [{"ecec": float(x)} for x in np.linspace(0, 1, 6)])
    out = tmp_path / "out"
    assert main(["figures", str(runs), "--out", str(out), "--only", "ecec"]) == 0
    assert capsys.readouterr() == (f"{out / 'ecec.pdf'} (and .png, .csv)\n", "")
    assert main(["figures", str(runs), "--out", str(out), "--only", "ecec", "entropy"]) == 1
    assert main(["figures", "--only", "list"]) == 0
    assert capsys.readouterr().out.endswith("\n".join(FIGURES) + "\n")


def test_tables_leave_analyses_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analysis_run(tmp_path / "a", "margin", [{"margin": 0.5}])
    assert main(["tables", str(tmp_path)]) == 2
    assert "hold analyses only" in capsys.readouterr().err
    write_run(tmp_path / "b", "mine", {"fcl": [0, 1]}, 4)
    assert main(["tables", str(tmp_path), "--format", "md"]) == 0
    assert "margin" not in capsys.readouterr().out


def test_names_with_dollars_are_no_formulas_and_letters_without_a_shape_are_said(tmp_path: Path) -> None:
    names = (r"a $\x$ b", "漢字", "c$d$")
    runs = tmp_path / "runs"
    analysis_run(runs / "gallery", "gallery", [gallery_row(0)], r"set $\y$", names=names)
    analysis_run(runs / "evidence", "evidence", [{"ecec": 0.1}, {"ecec": 0.2}], r"set $\y$")
    outcomes = draw_figures(*load_groups([runs]), ["scores", "ecec", "gallery"], tmp_path / "out")
    assert [len(outcome.files) for outcome in outcomes] == [3, 3, 3]
    assert outcomes[0].warnings == ("letters that the font lacks are drawn as boxes: 字漢",)
    assert outcomes[1].warnings == ()


def _experiment(folder: Path, views: int, masks: int) -> Path:
    """Write what `ablate` leaves: passes with zero-shot in each, a cell with other prompts, and the results beside."""
    name, shared = folder.name, {"views": {"count": views}}
    settings = {"fcl-base": {"masks": masks}, "fcl-explore": {"masks": masks, "calibrate": False}}
    base = {"zero_shot": range(8), "fcl-base": range(12), "fcl-explore": range(9)}
    write_run(folder / "single" / "001" / "dtd", "dtd", base, settings=settings, **shared)
    write_run(folder / "single" / "002" / "dtd", "dtd", {"zero_shot": range(8), "fcl-late": range(11)}, **shared)
    other = {"zero_shot": range(7), "fcl-seven": range(13)}
    write_run(folder / "generic7" / "001" / "dtd", "dtd", other, prompts="generic7", **shared)
    variant = {"label": "base", "n": 20, "accuracy": 0.6, "low": 0.4, "high": 0.8, "difference": 0.0}
    none = dict.fromkeys(("accuracy", "low", "high", "difference"), None)
    document = {"name": name, "reference": "base", "variants": [variant, {"label": "gone", "n": 0, **none}]}
    (folder / f"{name}.results.json").write_text(json.dumps(document))
    return folder


def test_an_ablation_is_drawn_from_its_passes_and_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = _experiment(tmp_path / "ablations" / "first", 64, 100)
    assert main(["figures", str(first), "--out", str(tmp_path / "out"), "--only", "reliability", "ablations"]) == 0
    names = sorted(path.stem for path in (tmp_path / "out").glob("*.csv"))
    assert names == ["ablations", "reliability-generic7", "reliability-single"]
    assert capsys.readouterr().err == "note: ablations: first: gone has no image, and is left out\n"
    _experiment(tmp_path / "ablations" / "second", 16, 50)
    words = ["figures", str(tmp_path / "ablations"), "--out", str(tmp_path / "both"), "--only"]
    assert main([*words, "ablations"]) == 0
    assert (tmp_path / "both" / "ablations.csv").read_text().count("base,base") == 2
    assert main([*words, "reliability"]) == 2
    assert "both measure fcl-" in capsys.readouterr().err


def test_an_ablation_is_a_page_of_its_passes(tmp_path: Path) -> None:
    page = build_page(find_runs([_experiment(tmp_path / "first", 64, 100)]))
    text = re.search(r'id="data">(.*?)</script>', page.html)
    assert text
    found = json.loads(text[1])
    assert [[name for name, _ in group["methods"]] for group in found["groups"]] == [
        ["zero_shot", "fcl-seven"],
        ["zero_shot", "fcl-base", "fcl-explore", "fcl-late"],
    ]
    assert [[*panel["methods"]] for panel in found["panels"][1:]] == [
        ["zero_shot", "fcl-base", "fcl-explore"],
        ["fcl-late"],
    ]


def test_analyses_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    for name in ("first", "second"):
        analysis_run(tmp_path / name, "evidence", [{"ecec": 0.1}])
    place = tmp_path / "second" / "run.json"
    place.write_text(place.read_text().replace('"abc"', '"abd"'))
    (group,), sidecars = load_groups([tmp_path])
    with pytest.raises(ArgumentError, match=r"second: both are evidence on mine, with other settings; name one"):
        FIGURES["ecec"](group, sidecars)


def test_an_analysis_that_goes_on_is_noted(tmp_path: Path) -> None:
    run = analysis_run(tmp_path, "evidence", [{"ecec": 0.1}, {"ecec": 0.2}])
    (run / "run.json").write_text((run / "run.json").read_text().replace('"complete"', '"running"'))
    (group,), _ = load_groups([tmp_path])
    assert incomplete(group) == [f"{run}: 2 images analysed so far"]
