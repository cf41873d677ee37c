"""Figures of runs with known answers: the numbers that are drawn, what is written, and little or broken material."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from faircontext.cli import main
from faircontext.errors import ArgumentError
from faircontext.evidence import common_evidence, unique_evidence
from faircontext.metrics.bootstrap import bootstrap_means, paired_bootstrap
from faircontext.metrics.scores import expected_calibration_error, reconstruction_bound
from faircontext.metrics.selective import aurc, aurc_draws
from faircontext.report.benchmarks import METRICS
from faircontext.report.figures import FIGURES, draw_figures, load_groups, pareto_front
from faircontext.report.images import common_map, unique_map
from faircontext.report.render import MissingError
from faircontext.report.style import COLUMN, FigureResult, new_figure, styled
from faircontext.runs.analyses import read_analysis
from faircontext.runs.groups import incomplete
from made_analyses import analysis_run, gallery_row
from made_reports import accuracy_runs, analyses, experiment
from made_runs import write_run

Shared = Callable[[Callable[[Path], object]], Path]


def drawn(name: str, *folders: Path) -> FigureResult:
    (group,), sidecars = load_groups(folders)
    with styled():
        return FIGURES[name](group, sidecars)


def rows(name: str, *folders: Path) -> list[Mapping[str, Any]]:
    data = drawn(name, *folders).data
    assert not isinstance(data, Mapping)
    return list(data)


def texts(result: FigureResult) -> str:
    return "\n".join(text.get_text() for text in result.figure.findobj(lambda a: hasattr(a, "get_text")))


def test_ecec_is_told_apart_by_what_zero_shot_answered(tmp_path: Path) -> None:
    values = np.array([0.1, 0.5, 0.2, 0.7, 0.3, 0.9])
    for name in ("dtd", "eurosat"):
        analysis_run(tmp_path / name, "evidence", [{"ecec": float(value)} for value in (*values, np.nan)], name)
    result = drawn("ecec", tmp_path)
    found = {(row["dataset"], row["zero_shot"]): row for row in result.data}
    assert found["dtd", "right"]["mean"] == pytest.approx(0.2)
    assert found["dtd", "wrong"]["mean"] == pytest.approx(0.7)
    low, high = np.quantile(bootstrap_means(values[1::2], 400), [0.025, 0.975])
    assert (found["dtd", "wrong"]["low"], found["dtd", "wrong"]["high"]) == pytest.approx((low, high))
    assert found["all sets", "right"]["n"] == 6
    assert "zero-shot wrong (n = 6)" in texts(result)
    assert result.warnings == ("2 images without a finite ECEC are left out",)


def test_entropy_has_a_point_per_view_and_its_correlation(shared: Shared) -> None:
    result = drawn("entropy", shared(analyses) / "entropy")
    assert len(result.data) == 40
    assert any("Pearson r = -1.00 (95%: -1.00 to -1.00)" in note for note in result.warnings)
    assert "20 views of 4 images" in texts(result)


def test_gains_are_paired_and_sorted_with_their_mean_last(shared: Shared) -> None:
    first, second, mean = rows("calibration-gain", shared(accuracy_runs))
    assert (first["dataset"], second["dataset"], mean["dataset"]) == ("eurosat", "dtd", "mean of 2 sets")
    assert [row["gain"] for row in (first, second, mean)] == pytest.approx([0.2, 0.1, 0.15])
    own, base = np.arange(20) < 12, np.arange(20) < 10
    assert second["low"] == pytest.approx(paired_bootstrap(own, base).low)
    assert (second["n"], second["gained"], second["lost"]) == (20, 2, 0)
    assert {row["reference"] for row in (first, second, mean)} == {"exploration only"}


def test_gains_are_over_zero_shot_without_a_run_that_does_not_calibrate(shared: Shared, tmp_path: Path) -> None:
    result = drawn("calibration-gain", shared(accuracy_runs) / "fcl")
    assert "FCL less zero-shot" in texts(result)
    assert "drawn against zero-shot" in result.warnings[0]
    write_run(tmp_path, "dtd", {"zero_shot": range(8), "fcl": range(12), "fcl-explore": range(10)})
    assert {row["reference"] for row in rows("calibration-gain", tmp_path)} == {"zero-shot"}  # so it is called


def test_numbers_of_masks_come_from_settings_and_not_from_labels(shared: Shared) -> None:
    found = rows("masks", shared(accuracy_runs))
    assert [row["masks"] for row in found] == [50, 100, 400]
    assert [row["accuracy"] for row in found] == pytest.approx([0.5, 0.55, 0.65])
    assert [row["difference"] for row in found] == pytest.approx([-0.15, -0.1, 0])
    assert {row["n"] for row in found} == {40}


def test_masks_and_gains_take_only_runs_on_the_same_views(tmp_path: Path) -> None:
    few = {"fcl": {"masks": 50}, "fcl-wide": {"masks": 50}}
    for name, number in (("fcl", 64), ("fcl-wide", 16)):
        right = {"zero_shot": range(8), name: range(10)}
        write_run(tmp_path / name, "dtd", right, settings=few, views={"count": number})
    many = {"fcl-many": {"masks": 100}, "fcl-explore": {"calibrate": False}}
    right = {"zero_shot": range(8), "fcl-many": range(12), "fcl-explore": range(9)}
    write_run(tmp_path / "many", "dtd", right, settings=many, views={"count": 16})
    assert [row["accuracy"] for row in rows("masks", tmp_path)] == [0.5, 0.6]
    (tmp_path / "fcl-wide" / "run.json").unlink()
    with pytest.raises(MissingError, match="at least two numbers of masks"):
        drawn("masks", tmp_path)
    assert {row["reference"] for row in rows("calibration-gain", tmp_path)} == {"zero-shot"}


def test_pareto_takes_costs_from_their_file_and_else_from_rows(shared: Shared, tmp_path: Path) -> None:
    costs = [
        {"method": name, "backbone": "ViT-B-16", "seconds_mean": seconds, "peak_memory_mb": 100.0}
        for name, seconds in (("zero_shot", 0.1), ("fcl", 2.0), ("fcl-few", 3.0))
    ]
    (tmp_path / "costs.json").write_text(json.dumps({"costs": [*costs, {**costs[0], "backbone": "other"}]}))
    result = drawn("pareto", shared(accuracy_runs), tmp_path)
    assert isinstance(result.data, list)
    assert {row["method"]: row["seconds"] for row in result.data} == {"zero_shot": 0.1, "fcl": 2.0, "fcl-few": 3.0}
    assert "fcl-100 is left out: its cost is not known" in result.warnings
    assert "peak memory (MB)" in texts(result)
    with pytest.raises(MissingError, match="needs the costs of two methods, and knows 0"):  # all took 0 s
        drawn("pareto", shared(accuracy_runs))


def test_methods_on_other_images_are_compared_on_those_that_all_have(tmp_path: Path) -> None:
    write_run(tmp_path / "all", "dtd", {"zero_shot": range(10), "zero": range(12)})
    write_run(tmp_path / "few", "dtd", {"zero_shot": range(10), "tpt": range(6)}, answered=8)
    costs = [{"method": name, "backbone": "ViT-B-16", "seconds_mean": 1.0} for name in ("zero_shot", "zero", "tpt")]
    (tmp_path / "costs.json").write_text(json.dumps({"costs": costs}))
    found = [(row["method"], row["n"], row["datasets"], row["accuracy"]) for row in rows("pareto", tmp_path)]
    assert found == [("zero_shot", 8, 1, 1.0), ("tpt", 8, 1, 0.75), ("zero", 8, 1, 1.0)]


def test_a_front_is_what_nothing_beats() -> None:
    assert pareto_front([1.0, 2.0, 2.0, 3.0, 0.5], [5.0, 4.0, 7.0, 7.0, 5.0]) == [4, 2]


def test_reliability_is_over_all_images_of_a_method(shared: Shared) -> None:
    found = [row for row in rows("reliability", shared(accuracy_runs)) if row["method"] == "fcl"]
    right = np.concatenate([np.arange(20) < 12, np.arange(20) < 14])
    assert sum(row["answers"] for row in found) == 40
    assert found[0]["ece"] == pytest.approx(expected_calibration_error(np.full(40, 0.6), right))
    assert [row["accuracy"] for row in found] == pytest.approx([0.65])


SURE = [0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]
"""Confidences by position."""

ANSWERED = {"zero_shot": [0, 2, 4, 6, 8], "fcl": [0, 1, 3, 4, 6, 8, 9]}


def correct(method: str) -> np.ndarray:
    return np.isin(np.arange(10), ANSWERED[method])


def sure(folder: Path) -> None:
    write_run(folder, "a", ANSWERED, images=10, confidence=SURE)


def test_risk_over_coverage_has_the_curve_and_its_area(shared: Shared, tmp_path: Path) -> None:
    result = drawn("risk-coverage", shared(sure))
    found = [row for row in result.data if row["method"] == "fcl"]
    assert [row["coverage"] for row in found] == pytest.approx(np.arange(1, 11) / 10)
    assert [row["threshold"] for row in found] == SURE
    assert [row["risk"] for row in found] == pytest.approx(np.cumsum(~correct("fcl")) / np.arange(1, 11))
    assert found[0]["aurc"] == pytest.approx(np.mean(np.cumsum(~correct("fcl")) / np.arange(1, 11)))
    assert found[0]["aurc_low"] <= found[0]["aurc"] <= found[0]["aurc_high"]
    assert all(row["low"] <= row["risk"] <= row["high"] for row in found)
    (legend,) = result.figure.legends
    assert [text.get_text().split(":")[0] for text in legend.get_texts()] == ["Zero-shot", "FCL"]
    write_run(tmp_path, "b", {"fcl": ANSWERED["fcl"]}, images=10)  # zero-shot's predictions are known, not its scores
    (one,) = rows("risk-coverage", tmp_path)  # all scores are equal
    assert (one["method"], one["aurc"]) == ("fcl", pytest.approx(0.3))


def test_the_area_is_a_metric_that_is_paired_with_zero_shot(shared: Shared) -> None:
    (group,), _ = load_groups([shared(sure)])
    metric, result, base = METRICS["aurc"], group.results["a"]["fcl"], group.results["a"]["zero_shot"]
    areas = [aurc(np.array(SURE), correct(name)) for name in ("fcl", "zero_shot")]
    draws = np.subtract(*(aurc_draws(np.array(SURE), correct(name)) for name in ("fcl", "zero_shot")))
    change, mean = metric.gain([result]), metric.measure([result, base])
    assert change is not None
    assert change.value == pytest.approx(areas[0] - areas[1])
    assert (change.images.low, change.images.high) == tuple(np.quantile(draws, (0.025, 0.975)))
    assert mean is not None
    assert mean.value == pytest.approx(np.mean(areas))
    assert mean.low < mean.value < mean.high


def test_decomposition_stands_beside_the_paper_with_the_bound(shared: Shared) -> None:
    found = rows("decomposition", shared(analyses) / "decomposition")
    assert [row["mean"] for row in found] == pytest.approx([0.7, 0.6, 0.65, 0.8])
    assert [row["paper"] for row in found] == [0.7283, 0.639, 0.6516, 0.8705]
    assert found[3]["bound_of_paper"] == pytest.approx(0.8495, abs=5e-5)
    assert found[3]["bound_of_measured"] == pytest.approx(reconstruction_bound(0.7, 0.6, 0.65))


def test_ablations_are_drawn_as_they_are_given(tmp_path: Path) -> None:
    reference = {"label": "fcl", "n": 40, "accuracy": 0.6, "low": 0.5, "high": 0.7}
    change = {"difference": -0.05, "difference_low": -0.1, "difference_high": 0.0}
    other = {**reference, "label": "no loss", **change, "gained": 1, "lost": 3, "p_value": 0.625, "unknown": 1}
    document = {"name": "losses", "reference": "fcl", "variants": [reference, other]}
    (tmp_path / "losses.results.json").write_text(json.dumps(document))
    result = drawn("ablations", tmp_path / "losses.results.json")
    assert isinstance(result.data, list)
    assert [row["difference"] for row in result.data] == [None, -0.05]
    assert "n = 40, +1/-3, p = 0.62" in texts(result)
    assert drawn("ablations", tmp_path).data == result.data


def test_scores_prefer_images_that_zero_shot_has_wrong_among_the_candidates(tmp_path: Path) -> None:
    given = {"labels": [0, 9, 0, 1], "answers": [0, 1, 1, 1]}
    analysis_run(tmp_path, "gallery", [gallery_row(n) for n in range(4)], **given)
    data = drawn("scores", tmp_path).data
    assert isinstance(data, Mapping)
    assert [entry["path"] for entry in data["images"]] == ["00002.png", "00001.png", "00000.png"]
    unique = data["images"][0]["unique"]
    assert (unique["true"]["class"], unique["true"]["against"]) == (0, 1)
    assert (unique["answered"]["class"], unique["answered"]["against"]) == (1, 0)
    assert [*data["images"][1]["unique"]] == ["answered"]


def test_unique_evidence_is_where_one_class_looks_and_the_other_does_not() -> None:
    own, other = np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32)
    own[0, 0], own[1, 1], other[1, 1] = 3, 3, 3
    weights = unique_map(own, other)
    assert weights.argmax() == 0
    assert weights[1, 1] == pytest.approx(0)


def test_maps_of_stored_evidence_are_those_of_the_method() -> None:
    maps = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    pair = torch.tensor([[0], [1]])
    for found, (expected,) in (
        (common_map(*maps), common_evidence(torch.from_numpy(maps), pair, "none")),
        (unique_map(*maps), unique_evidence(torch.from_numpy(maps), pair)),
    ):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-7)


def test_a_gallery_shows_two_candidates_and_what_they_share(shared: Shared) -> None:
    data = drawn("gallery", shared(analyses) / "gallery").data
    assert isinstance(data, Mapping)
    assert len(data["images"]) == 6
    assert data["images"][0]["names"] == ["class 0", "class 1"]
    assert np.array(data["images"][0]["common"]).max() == 1


@pytest.mark.slow
def test_all_figures_are_written_from_records_alone_with_the_same_bytes_each_time(
    shared: Shared, tmp_path: Path
) -> None:
    runs = experiment(tmp_path / "runs", 64, 100)
    shutil.rmtree(runs / "generic7")
    shutil.rmtree(runs / "single")
    for place in ("first", "second"):
        made = load_groups([runs, shared(accuracy_runs), *sorted(shared(analyses).iterdir())])
        outcomes = draw_figures(*made, [*FIGURES], tmp_path / place)
    assert {outcome.name for outcome in outcomes if not outcome.files} == {"pareto", "stream"}
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert len(files) == 3 * (len(FIGURES) - 2)
    for name in files:
        content = (tmp_path / "first" / name).read_bytes()
        assert content == (tmp_path / "second" / name).read_bytes()
        if name.endswith(".pdf"):
            assert content.startswith(b"%PDF")
            assert b"/FontFile2" in content  # TrueType, embedded
            assert (b"/Subtype /Image" in content) == name.startswith(("scores", "gallery", "confusion"))
        elif name.endswith(".png"):
            with Image.open(tmp_path / "first" / name) as image:
                assert image.width in (132, 276)  # 3.3 and 6.9 inches
        elif name.endswith(".csv"):
            assert list(csv.DictReader(content.decode().splitlines()))
        if name.endswith((".csv", ".json")):
            assert not re.search(r"\b(nan|inf)\b", content.decode(), re.IGNORECASE)


def test_one_image_and_one_class_are_drawn_without_a_warning(tmp_path: Path) -> None:
    runs, one = tmp_path / "runs", {"images": 1, "labels": [0]}
    write_run(runs / "fcl", "dtd", {"zero_shot": [0], "fcl": [0]}, settings={"fcl": {"masks": 50}}, **one)
    write_run(runs / "few", "dtd", {"fcl-9": [0]}, settings={"fcl-9": {"masks": 9}}, **one)
    analysis_run(runs / "evidence", "evidence", [{"ecec": 0.0}])
    analysis_run(runs / "entropy", "entropy", [{"views": [0.0], "entropy": [0.0], "euec": [0.1]}])
    ones = dict.fromkeys(("cos_common", "cos_unique_1", "cos_unique_2", "cos_composed"), 1.0)
    analysis_run(runs / "decomposition", "decomposition", [ones])
    analysis_run(runs / "gallery", "gallery", [gallery_row(0, candidates=2)], candidates=(0, 1), names=("one", "other"))
    outcomes = draw_figures(*load_groups([runs]), [*FIGURES], tmp_path / "out")
    assert {outcome.name for outcome in outcomes if not outcome.files} == {"pareto", "stream", "ablations"}


def test_runs_without_material_give_a_line_for_each_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs", "dtd", {"zero_shot": [], "fcl": []}, answered=0)
    analysis_run(tmp_path / "runs" / "evidence", "evidence", [{"ecec": 1.0}], errors=[0])
    one = [gallery_row(0, candidates=1)]  # no pair to draw
    analysis_run(tmp_path / "runs" / "gallery", "gallery", one, candidates=(0,))
    assert main(["figures", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    missing = dict(re.findall(r"note: (\S+): not drawn: needs (.*)", captured.err))
    assert missing.keys() == FIGURES.keys()
    assert "faircontext reproduce calibration-gain --root DATA" in missing["calibration-gain"]
    assert list((tmp_path / "out").iterdir()) == []


def test_runs_of_two_backbones_are_drawn_apart_and_a_figure_asked_for_is_the_only_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lite0", "lite1"):
        analysis_run(tmp_path / "runs" / name, "evidence", [{"ecec": 0.1}, {"ecec": 0.2}], backbone=name)
    out, words = tmp_path / "out", ["figures", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--only", "ecec"]
    assert main(words) == 0
    lines = "".join(f"{out / f'ecec-{name}'}.pdf (and .png, .csv)\n" for name in ("lite0", "lite1"))
    assert capsys.readouterr() == (lines, "")
    assert main([*words, "entropy"]) == 1
    assert main(["figures", "--only", "list"]) == 0
    assert capsys.readouterr().out.endswith("\n".join(FIGURES) + "\n")


def test_one_image_found_twice_counts_once(tmp_path: Path) -> None:
    for name in ("first", "second"):
        analysis_run(tmp_path / name, "evidence", [{"ecec": 0.1}])
    (group,), sidecars = load_groups([tmp_path])
    assert len(read_analysis(group.runs, "evidence", lambda row: row.path)) == 1
    place = tmp_path / "second" / "run.json"
    place.write_text(place.read_text().replace('"abc"', '"abd"'))
    (group,), sidecars = load_groups([tmp_path])
    with pytest.raises(ArgumentError, match=r"second: both are evidence on mine, with other settings; name one"):
        FIGURES["ecec"](group, sidecars)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("costs.json", "{", "costs.json: holds no list 'costs'"),
        ("costs.json", '{"costs": [{"method": "fcl"}]}', "costs.json: an entry cannot be read"),
        ("costs.json", '{"costs": 5}', "costs.json: holds no list 'costs'"),
        ("a.results.json", '{"variants": []}', "a.results.json: lacks 'name'"),
        ("a.results.json", '{"variants": [{"label": "x"}]}', "a.results.json: an entry cannot be read"),
        ("a.results.json", '{"variants": [{"label": "x", "n": "2"}]}', "a.results.json: an entry cannot be read"),
    ],
)
def test_files_that_cannot_be_read_are_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ArgumentError, match=message):
        load_groups([tmp_path])


def test_a_row_that_lacks_its_quantity_is_named(tmp_path: Path) -> None:
    analysis_run(tmp_path, "evidence", [{"eced": 0.5}])
    with pytest.raises(ArgumentError, match=r"the row evidence of 00000.png cannot be read \(KeyError\('ecec'\)\)"):
        drawn("ecec", tmp_path)


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
    outcomes = draw_figures(*load_groups([runs]), ["scores", "ecec"], tmp_path / "out")
    assert [len(outcome.files) for outcome in outcomes] == [3, 3]
    assert outcomes[0].warnings == ("letters that the font lacks are drawn as boxes: 字漢",)
    assert outcomes[1].warnings == ()


def test_an_ablation_is_drawn_from_its_passes_and_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = experiment(tmp_path / "ablations" / "first", 64, 100)
    assert main(["figures", str(first), "--out", str(tmp_path / "out"), "--only", "reliability", "ablations"]) == 0
    names = sorted(path.stem for path in (tmp_path / "out").glob("*.csv"))
    assert names == ["ablations", "reliability-generic7", "reliability-single"]
    assert capsys.readouterr().err == "note: ablations: first: gone has no image, and is left out\n"
    experiment(tmp_path / "ablations" / "second", 16, 50)
    words = ["figures", str(tmp_path / "ablations"), "--out", str(tmp_path / "both"), "--only"]
    assert main([*words, "ablations"]) == 0
    assert (tmp_path / "both" / "ablations.csv").read_text().count("base,base") == 2
    assert main([*words, "reliability"]) == 2
    assert "both measure fcl-" in capsys.readouterr().err


def test_an_analysis_that_goes_on_is_noted(tmp_path: Path) -> None:
    run = analysis_run(tmp_path, "evidence", [{"ecec": 0.1}, {"ecec": 0.2}])
    (run / "run.json").write_text((run / "run.json").read_text().replace('"complete"', '"running"'))
    (group,), _ = load_groups([tmp_path])
    assert incomplete(group) == [f"{run}: 2 images analysed so far"]


def test_a_line_on_top_that_is_too_long_keeps_its_ends() -> None:
    where = f"local-dir:/{'a long folder/' * 9}model"
    with styled():
        short, long = (new_figure(COLUMN, 2, "Title", line).texts[1].get_text() for line in ("lite0, seed 0", where))
    assert short == "lite0, seed 0"
    start, end = long.split("…")
    assert len(long) > 40
    assert where.startswith(start)
    assert where.endswith(end)
    figure = new_figure(COLUMN, 2, "Title", where)
    assert figure.texts[1].get_window_extent().x1 <= figure.bbox.width
