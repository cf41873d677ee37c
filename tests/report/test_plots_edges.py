"""Figures of little or of broken material: a line instead of a crash, and no picture of nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from faircontext.cli import main
from faircontext.errors import ArgumentError
from faircontext.report.diagrams import DIAGRAMS, write_diagrams
from faircontext.report.plots.registry import PLOTS
from faircontext.report.plots.sources import read_materials
from faircontext.report.plots.write import draw_all
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
    analysis_run(runs / "gallery", "gallery", [gallery_row(0, candidates=2)], candidates=(0, 1), names=("only",))
    outcomes = draw_all(read_materials([runs]), PLOTS, tmp_path / "out")
    assert {outcome.name for outcome in outcomes if not outcome.files} == {"pareto", "ablations"}


def test_an_analysis_of_one_candidate_has_no_pair_to_draw(tmp_path: Path) -> None:
    analysis_run(tmp_path / "runs", "gallery", [gallery_row(0, candidates=1)], candidates=(0,))
    outcomes = draw_all(read_materials([tmp_path / "runs"]), PLOTS, tmp_path / "out")
    assert not any(outcome.files for outcome in outcomes)


def test_runs_without_an_image_give_a_line_for_each_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs", "dtd", {"zero_shot": [], "fcl": []}, answered=0)
    analysis_run(tmp_path / "runs" / "evidence", "evidence", [{"ecec": 1.0}], errors=[0])
    assert main(["figures", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("not drawn: needs") == len(PLOTS)
    assert "faircontext reproduce calibration-gain --root DATA" in captured.err
    assert list((tmp_path / "out").iterdir()) == []


def test_values_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    analysis_run(tmp_path / "runs", "evidence", [{"ecec": value} for value in (0.1, float("nan"), 0.2)])
    (outcome,) = draw_all(read_materials([tmp_path / "runs"]), {"ecec": PLOTS["ecec"]}, tmp_path / "out")
    assert outcome.notes == ("1 images without a finite ECEC are left out",)


def test_runs_of_two_backbones_are_drawn_apart(tmp_path: Path) -> None:
    for name in ("lite0", "lite1"):
        analysis_run(tmp_path / "runs" / name, "evidence", [{"ecec": 0.1}, {"ecec": 0.2}], backbone=name)
    outcomes = draw_all(read_materials([tmp_path / "runs"]), {"ecec": PLOTS["ecec"]}, tmp_path / "out")
    assert [outcome.name for outcome in outcomes] == ["ecec-lite0", "ecec-lite1"]


def test_one_image_found_twice_counts_once(tmp_path: Path) -> None:
    for name in ("first", "second"):
        analysis_run(tmp_path / name, "evidence", [{"ecec": 0.1}])
    (found,) = read_materials([tmp_path])
    assert len(found.analysis("evidence", lambda row: row.path)) == 1


def test_methods_on_other_images_are_compared_on_those_that_all_have(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "all", "dtd", {"zero_shot": range(10), "zero": range(12)})
    write_run(runs / "few", "dtd", {"zero_shot": range(10), "tpt": range(6)}, answered=8)
    costs = [{"method": name, "backbone": "ViT-B-16", "seconds_mean": 1.0} for name in ("zero_shot", "zero", "tpt")]
    (runs / "costs.json").write_text(json.dumps({"costs": costs}))
    (outcome,) = draw_all(read_materials([runs]), {"pareto": PLOTS["pareto"]}, tmp_path / "out")
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
        ("a.results.json", '{"variants": []}', "a.results.json: lacks 'name'"),
        ("a.results.json", '{"variants": [{"label": "x"}]}', "a.results.json: an entry cannot be read"),
    ],
)
def test_files_that_cannot_be_read_are_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ArgumentError, match=message):
        read_materials([tmp_path])


def test_a_row_that_lacks_its_quantity_is_named(tmp_path: Path) -> None:
    analysis_run(tmp_path, "evidence", [{"eced": 0.5}])
    with pytest.raises(ArgumentError, match=r"the row evidence of 00000.png cannot be read \(KeyError\('ecec'\)\)"):
        draw_all(read_materials([tmp_path]), {"ecec": PLOTS["ecec"]}, tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give at least one folder of runs"),
        (("nowhere",), "nowhere: holds no run (no run.json); make one with faircontext evaluate"),
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
    assert capsys.readouterr().out.endswith("\n".join(PLOTS) + "\n")


def test_diagrams_are_vectors_and_the_same_each_time(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_diagrams(tmp_path)]
    assert [path.read_bytes() for path in write_diagrams(tmp_path)] == first
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(DIAGRAMS)
    for content in first:
        assert b"<svg" in content
        assert b"<image" not in content


def test_tables_leave_analyses_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analysis_run(tmp_path / "a", "margin", [{"margin": 0.5}])
    assert main(["tables", str(tmp_path)]) == 2
    assert "holds analyses only" in capsys.readouterr().err
    write_run(tmp_path / "b", "mine", {"fcl": [0, 1]}, 4)
    assert main(["tables", str(tmp_path), "--format", "md"]) == 0
    assert "margin" not in capsys.readouterr().out


def test_names_with_dollars_are_no_formulas_and_letters_without_a_shape_are_said(tmp_path: Path) -> None:
    names = (r"a $\x$ b", "漢字", "c$d$")
    runs = tmp_path / "runs"
    analysis_run(runs / "gallery", "gallery", [gallery_row(0)], r"set $\y$", names=names)
    analysis_run(runs / "evidence", "evidence", [{"ecec": 0.1}, {"ecec": 0.2}], r"set $\y$")
    chosen = {name: PLOTS[name] for name in ("scores", "gallery", "ecec")}
    outcomes = draw_all(read_materials([runs]), chosen, tmp_path / "out")
    assert [len(outcome.files) for outcome in outcomes] == [3, 3, 3]
    assert outcomes[0].notes == ("letters that the font lacks are drawn as boxes: 字漢",)
    assert outcomes[2].notes == ()
