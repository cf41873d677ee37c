"""Figures of runs with known answers: the numbers that are drawn, and what is written."""

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from faircontext.evidence import common_evidence
from faircontext.metrics.bootstrap import bootstrap_means, paired_bootstrap
from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.scores import reconstruction_bound
from faircontext.report.accuracy_figures import pareto_front
from faircontext.report.figures import FIGURES, draw_figures, load_groups
from faircontext.report.pictures import common_map, unique_map
from faircontext.report.render import MissingError
from faircontext.report.style import FigureResult, styled
from made_analyses import analysis_run, gallery_row
from made_runs import write_run


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


def accuracy_runs(folder: Path) -> Path:
    """Two sets of 20 images; FCL gains 2 and 4 over exploration alone, which is in runs of its own."""
    settings = {"fcl": {"masks": 400, "k": 10}, "fcl-few": {"masks": 50, "k": 10}, "fcl-100": {"masks": 100, "k": 10}}
    for number, name in enumerate(("dtd", "eurosat")):
        right = {"zero_shot": range(8), "fcl": range(12 + 2 * number), "fcl-few": range(10), "fcl-100": range(11)}
        write_run(folder / "fcl" / name, name, right, settings=settings)
        explore = {"fcl-explore": {"masks": 400, "k": 10, "calibrate": False}}
        write_run(folder / "explore" / name, name, {"zero_shot": range(8), "fcl-explore": range(10)}, settings=explore)
    return folder


def analyses(folder: Path, images: int = 8) -> Path:
    rng = np.random.default_rng(0)
    analysis_run(folder / "evidence", "evidence", [{"ecec": 0.2 + 0.1 * (n % 2)} for n in range(images)])
    entropy = [rng.random(5).tolist() for _ in range(images)]
    views = [{"views": [0.0, 1.0, 2.0, 3.0, 4.0], "entropy": e, "euec": [0.3 - 0.1 * v for v in e]} for e in entropy]
    analysis_run(folder / "entropy", "entropy", views)
    parts = {"cos_common": 0.7, "cos_unique_1": 0.6, "cos_unique_2": 0.65, "cos_composed": 0.8}
    analysis_run(folder / "decomposition", "decomposition", [parts] * images)
    analysis_run(folder / "gallery", "gallery", [gallery_row(n) for n in range(images)])
    return folder


def test_ecec_is_told_apart_by_what_zero_shot_answered(tmp_path: Path) -> None:
    values = np.array([0.1, 0.5, 0.2, 0.7, 0.3, 0.9])
    for name in ("dtd", "eurosat"):
        analysis_run(tmp_path / name, "evidence", [{"ecec": float(value)} for value in values], name)
    found = {(row["dataset"], row["zero_shot"]): row for row in rows("ecec", tmp_path)}
    assert found["dtd", "right"]["mean"] == pytest.approx(0.2)
    assert found["dtd", "wrong"]["mean"] == pytest.approx(0.7)
    low, high = np.quantile(bootstrap_means(values[1::2], 400), [0.025, 0.975])
    assert (found["dtd", "wrong"]["low"], found["dtd", "wrong"]["high"]) == pytest.approx((low, high))
    assert found["all sets", "right"]["n"] == 6
    assert "zero-shot wrong (n = 6)" in texts(drawn("ecec", tmp_path))


def test_entropy_has_a_point_per_view_and_its_correlation(tmp_path: Path) -> None:
    result = drawn("entropy", analyses(tmp_path) / "entropy")
    assert len(result.data) == 40
    assert any("Pearson r = -1.00 (95%: -1.00 to -1.00)" in note for note in result.warnings)
    assert "20 views of 4 images" in texts(result)


def test_gains_are_paired_and_sorted_with_their_mean_last(tmp_path: Path) -> None:
    first, second, mean = rows("calibration-gain", accuracy_runs(tmp_path))
    assert (first["dataset"], second["dataset"], mean["dataset"]) == ("eurosat", "dtd", "mean of 2 sets")
    assert [row["gain"] for row in (first, second, mean)] == pytest.approx([0.2, 0.1, 0.15])
    own, base = np.arange(20) < 12, np.arange(20) < 10
    assert second["low"] == pytest.approx(paired_bootstrap(own, base).low)
    assert (second["n"], second["gained"], second["lost"]) == (20, 2, 0)
    assert {row["reference"] for row in (first, second, mean)} == {"exploration only"}


def test_gains_are_over_zero_shot_where_exploration_alone_is_not_there(tmp_path: Path) -> None:
    result = drawn("calibration-gain", accuracy_runs(tmp_path) / "fcl")
    assert "FCL less zero-shot" in texts(result)
    assert "drawn against zero-shot" in result.warnings[0]


def test_numbers_of_masks_come_from_settings_and_not_from_labels(tmp_path: Path) -> None:
    found = rows("masks", accuracy_runs(tmp_path))
    assert [row["masks"] for row in found] == [50, 100, 400]
    assert [row["accuracy"] for row in found] == pytest.approx([0.5, 0.55, 0.65])
    assert [row["difference"] for row in found] == pytest.approx([-0.15, -0.1, 0])
    assert {row["n"] for row in found} == {40}


def test_pareto_takes_costs_from_their_file_and_else_from_rows(tmp_path: Path) -> None:
    accuracy_runs(tmp_path)
    costs = [
        {"method": name, "backbone": "ViT-B-16", "seconds_mean": seconds, "peak_memory_mb": 100.0}
        for name, seconds in (("zero_shot", 0.1), ("fcl", 2.0), ("fcl-few", 3.0))
    ]
    (tmp_path / "costs.json").write_text(json.dumps({"costs": [*costs, {**costs[0], "backbone": "other"}]}))
    result = drawn("pareto", tmp_path)
    assert isinstance(result.data, list)
    assert {row["method"]: row["seconds"] for row in result.data} == {"zero_shot": 0.1, "fcl": 2.0, "fcl-few": 3.0}
    assert "fcl-100 is left out: its cost is not known" in result.warnings
    assert "peak memory (MB)" in texts(result)
    (tmp_path / "costs.json").unlink()
    with pytest.raises(MissingError, match="needs the costs of two methods, and knows 0"):  # all took 0 s
        drawn("pareto", tmp_path)


def test_a_front_is_what_nothing_beats() -> None:
    assert pareto_front([1.0, 2.0, 2.0, 3.0, 0.5], [5.0, 4.0, 7.0, 7.0, 5.0]) == [4, 2]


def test_reliability_is_over_all_images_of_a_method(tmp_path: Path) -> None:
    found = [row for row in rows("reliability", accuracy_runs(tmp_path)) if row["method"] == "fcl"]
    right = np.concatenate([np.arange(20) < 12, np.arange(20) < 14])
    assert sum(row["answers"] for row in found) == 40
    assert found[0]["ece"] == pytest.approx(expected_calibration_error(np.full(40, 0.6), right))
    assert [row["accuracy"] for row in found] == pytest.approx([0.65])


def test_decomposition_stands_beside_the_paper_with_the_bound(tmp_path: Path) -> None:
    found = rows("decomposition", analyses(tmp_path) / "decomposition")
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
    np.testing.assert_allclose(common_map(np.log([[1.0, 2.0], [3.0, 4.0]]), np.zeros((2, 2))), [[0.1, 0.2], [0.3, 0.4]])
    constant = common_evidence(torch.full((2, 2, 2), 7.0), torch.tensor([[0], [1]]), "minmax")
    assert torch.equal(constant, torch.ones(1, 2, 2))


def test_a_gallery_shows_two_candidates_and_what_they_share(tmp_path: Path) -> None:
    data = drawn("gallery", analyses(tmp_path) / "gallery").data
    assert isinstance(data, Mapping)
    assert len(data["images"]) == 6
    assert data["images"][0]["names"] == ["class 0", "class 1"]
    assert np.array(data["images"][0]["common"]).max() == 1


@pytest.mark.slow
def test_all_figures_are_written_from_records_alone_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    accuracy_runs(runs)
    for folder in analyses(tmp_path / "made").iterdir():
        folder.rename(runs / folder.name)
    (runs / "x.results.json").write_text(
        json.dumps(
            {
                "name": "x",
                "reference": "a",
                "variants": [{"label": "a", "n": 1, "accuracy": 1.0, "low": 0.0, "high": 1.0}],
            }
        )
    )
    for place in ("first", "second"):
        outcomes = draw_figures(*load_groups([runs]), [*FIGURES], tmp_path / place)
        assert {outcome.name for outcome in outcomes if not outcome.files} == {"pareto", "stream"}
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert len(files) == 3 * (len(FIGURES) - 2)
    for name in files:
        content = (tmp_path / "first" / name).read_bytes()
        assert content == (tmp_path / "second" / name).read_bytes()
        if name.endswith(".pdf"):
            assert content.startswith(b"%PDF")
            assert b"/FontFile2" in content  # TrueType, embedded
            assert (b"/Subtype /Image" in content) == name.startswith(("scores", "gallery"))
        elif name.endswith(".png"):
            with Image.open(tmp_path / "first" / name) as image:
                assert image.width in (990, 2070)  # 3.3 and 6.9 inches at 300 dpi
        elif name.endswith(".csv"):
            assert list(csv.DictReader(content.decode().splitlines()))
        if name.endswith((".csv", ".json")):
            assert not re.search(r"\b(nan|inf)\b", content.decode(), re.IGNORECASE)


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


def test_what_is_called_exploration_only_but_calibrates_is_no_reference(tmp_path: Path) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": range(8), "fcl": range(12), "fcl-explore": range(10)})
    assert {row["reference"] for row in rows("calibration-gain", tmp_path)} == {"zero-shot"}
