"""Risk over coverage in tables, figures and the page: the areas, their intervals, and what cannot be drawn."""

from pathlib import Path

import numpy as np
import pytest

from faircontext.cli import main
from faircontext.metrics.selective import aurc, aurc_draws
from faircontext.report.accuracy_figures import draw_risk_coverage, pooled_selective
from faircontext.report.benchmarks import METRICS
from faircontext.report.figures import load_groups
from faircontext.report.page import build_page
from faircontext.report.render import MissingError
from faircontext.report.style import styled
from faircontext.runs.groups import RunGroup, RunSettings, find_runs
from faircontext.runs.sidecars import Sidecars
from made_runs import write_run

SURE = [0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]
"""Confidences by position."""

RIGHT = {"zero_shot": [0, 2, 4, 6, 8], "fcl": [0, 1, 3, 4, 6, 8, 9]}


def correct(method: str) -> np.ndarray:
    return np.isin(np.arange(10), RIGHT[method])


@pytest.fixture
def group(tmp_path: Path) -> RunGroup:
    write_run(tmp_path / "a", "a", RIGHT, images=10, confidence=SURE)
    (group,), _ = load_groups([tmp_path])
    return group


def test_a_figure_has_the_curve_and_its_area(group: RunGroup) -> None:
    with styled():
        result = draw_risk_coverage(group, Sidecars())
    rows = [row for row in result.data if row["method"] == "fcl"]
    assert [row["coverage"] for row in rows] == pytest.approx(np.arange(1, 11) / 10)
    assert [row["threshold"] for row in rows] == SURE
    assert [row["risk"] for row in rows] == pytest.approx(np.cumsum(~correct("fcl")) / np.arange(1, 11))
    assert rows[0]["aurc"] == pytest.approx(np.mean(np.cumsum(~correct("fcl")) / np.arange(1, 11)))
    assert rows[0]["aurc_low"] <= rows[0]["aurc"] <= rows[0]["aurc_high"]
    assert all(row["low"] <= row["risk"] <= row["high"] for row in rows)
    (legend,) = result.figure.legends
    assert [text.get_text().split(":")[0] for text in legend.get_texts()] == ["Zero-shot", "FCL"]


def test_the_metric_is_paired_with_zero_shot(group: RunGroup) -> None:
    metric, result = METRICS["aurc"], group.results["a"]["fcl"]
    base = group.results["a"]["zero_shot"]
    score = np.array(SURE)
    assert metric.value(result) == aurc(score, correct("fcl"))
    change = metric.gain([result])
    assert change is not None
    assert change.value == pytest.approx(aurc(score, correct("fcl")) - aurc(score, correct("zero_shot")))
    draws = aurc_draws(score, correct("fcl")) - aurc_draws(score, correct("zero_shot"))
    assert (change.low, change.high) == tuple(np.quantile(draws, (0.025, 0.975)))
    mean = metric.measure([result, base])
    assert mean is not None
    assert mean.value == pytest.approx((metric.value(result) + metric.value(base)) / 2)
    assert mean.low < mean.value < mean.high
    assert "[" in metric.show(mean)


def test_equal_confidences_have_the_error_rate_as_their_area(tmp_path: Path) -> None:
    write_run(tmp_path / "b", "b", RIGHT, images=10)
    (group,), _ = load_groups([tmp_path])
    one = pooled_selective([group.results["b"]["fcl"]])
    assert one is not None
    assert one.area.value == pytest.approx(0.3)
    assert one.curve.n == 10
    assert len(one.curve.threshold) == 1


def test_without_confidences_there_is_no_curve(tmp_path: Path) -> None:
    group = RunGroup(RunSettings("", "", "", "", "", 0), ())
    with pytest.raises(MissingError, match="needs runs with confidences"):
        draw_risk_coverage(group, Sidecars())
    assert pooled_selective([]) is None
    write_run(tmp_path / "c", "c", {"fcl": [0]}, images=4)
    (other,), _ = load_groups([tmp_path])
    zero_shot = other.results["c"]["fcl"].zero_shot
    assert zero_shot is not None
    assert pooled_selective([zero_shot]) is None  # its predictions are known, not its probabilities


def test_tables_have_the_area_with_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", "a", RIGHT, images=10, confidence=SURE)
    assert main(["tables", str(tmp_path), "--metric", "aurc", "--format", "md"]) == 0
    out = capsys.readouterr().out
    assert "Area under the curve of risk over coverage (%)" in out
    assert f"{100 * aurc(np.array(SURE), correct('fcl')):.2f}" in out
    assert "Less is better." in out
    assert "±95%" in out
    assert "No intervals" not in out


def test_the_page_has_a_chart_of_risk(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "a", RIGHT, images=10, confidence=SURE)
    html = build_page(find_runs([tmp_path]), 0).html
    assert "Risk of FCL: the share of errors among the predictions that it is surest of" in html
    assert "AURC" in html
