"""What analyses print: means of right and wrong answers, the bound of the sum of proxies, correlation over images."""

import math
from pathlib import Path

import numpy as np
import pytest

from faircontext.metrics.bootstrap import bootstrap_mean, pool
from faircontext.runs.analyses import analysis_rows, describe_analysis, view_correlation
from faircontext.runs.records import AnalysisRow
from faircontext.runs.store import Run, load_run
from made_analyses import analysis_run


def findings(run: Run, label: str) -> list[AnalysisRow]:
    return list(analysis_rows(run, label))


def describe(run: Run, label: str) -> list[str]:
    return describe_analysis(findings(run, label), label)


def test_means_are_of_all_right_and_wrong_answers(tmp_path: Path) -> None:
    values = [{"ecec": 0.1}, {"ecec": 0.5}, {"ecec": 0.3}, {}, {"ecec": 9.0}]
    run = load_run(analysis_run(tmp_path / "run", "evidence", values, errors=(4,)))
    assert [row.correct for row in findings(run, "evidence")] == [True, False, True, False]
    first, second = describe(run, "evidence")
    assert first == "evidence: 4 images, 2 of them right"
    assert second.startswith("  ecec: all 0.3000 (")
    assert "right 0.2000 (0.1000 to 0.3000, n = 2)" in second
    assert "wrong 0.5000 (0.5000 to 0.5000, n = 1)" in second


@pytest.mark.parametrize("sets", [4, 5])
def test_means_over_five_sets_have_both_intervals(sets: int) -> None:
    values = [[0.9, 1.1] if name == 0 else [0.0, 0.1] for name in range(sets)]
    rows = [
        AnalysisRow(f"set{name}", f"{index}.png", 0, 0, (0,), ("cat",), {"js_common": value})
        for name, own in enumerate(values)
        for index, value in enumerate(own)
    ]
    _, line = describe_analysis(rows, "ambiguity")
    if sets == 4:
        assert "sets" not in line
    else:
        pooled = pool([np.array(own) for own in values], images=bootstrap_mean(np.concatenate(values)))
        ends = [f"{interval.low:.4f} to {interval.high:.4f}" for interval in (pooled.images, pooled.sets)]
        assert line.startswith(f"  js_common: all 0.2400 ({ends[0]}; over sets like these {ends[1]}, n = 10)")


def test_what_the_sum_of_proxies_can_reach_is_printed_beside_what_it_does(tmp_path: Path) -> None:
    found = {"cos_common": 0.7283, "cos_unique_1": 0.6390, "cos_unique_2": 0.6516, "cos_composed": 0.7}
    *_, last = describe(load_run(analysis_run(tmp_path / "run", "decomposition", [found])), "decomposition")
    assert last.strip() == (
        "cos_composed: at most 0.8495 with these three means; the paper reports 0.8705, where its three means allow at "
        "most 0.8495"
    )


def test_views_of_an_image_are_drawn_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = []
    for level in range(6):  # between images the two rise together, within an image they are noise
        noise = rng.normal(0, 0.01, (2, 50))
        images.append(
            {"views": [*range(50)], "entropy": (level + noise[0]).tolist(), "euec": (level + noise[1]).tolist()}
        )
    run = load_run(analysis_run(tmp_path / "run", "entropy", images))
    found = view_correlation(findings(run, "entropy"))
    assert found["pearson"].value == pytest.approx(1.0, abs=1e-3)
    assert set(found) == {"pearson", "spearman"}
    assert "over 300 views: pearson +1.000" in describe(run, "entropy")[-2]


def test_a_correlation_that_is_not_defined_is_left_out(tmp_path: Path) -> None:
    flat = {"views": [0.0, 1.0], "entropy": [1.0, 1.0], "euec": [0.1, 0.2]}
    run = load_run(analysis_run(tmp_path / "run", "entropy", [flat, {}]))
    assert view_correlation(findings(run, "entropy")) == {}
    assert describe(run, "entropy") == ["entropy: 2 images, 1 of them right"]


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    run = load_run(analysis_run(tmp_path / "run", "margin", [{"margin": math.inf}, {"margin": 0.5}]))
    assert describe(run, "margin")[1].startswith("  margin: all 0.5000 (0.5000 to 0.5000, n = 1); wrong")
    run = load_run(analysis_run(tmp_path / "none", "margin", [{"margin": math.nan}]))
    assert describe(run, "margin")[1] == "  margin: no finite value"
    views = [{"views": [0.0], "entropy": [math.nan], "euec": [0.1]}]
    assert view_correlation(findings(load_run(analysis_run(tmp_path / "nan", "entropy", views)), "entropy")) == {}


def test_one_image_gives_a_correlation_without_an_interval(tmp_path: Path) -> None:
    views = [{"views": [0.0, 1.0], "entropy": [1.0, 2.0], "euec": [0.2, 0.1]}]
    *_, last = describe(load_run(analysis_run(tmp_path / "run", "entropy", views)), "entropy")
    assert last == "  entropy and EUEC over 2 views: spearman -1.000 (no interval: too few images)"


def test_convergence_is_printed_for_each_number_of_masks(tmp_path: Path) -> None:
    images = [{"masks": [25.0, 50.0], "convergence": [0.2, 1.0]}, {"masks": [25.0, 50.0], "convergence": [0.4, 1.0]}]
    *_, last = describe(load_run(analysis_run(tmp_path / "run", "stability", images)), "stability")
    assert last == "  convergence with 25 masks: 0.3000 (0.2000 to 0.4000, n = 2)"
