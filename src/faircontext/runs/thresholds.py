"""Thresholds chosen on a labelled run: of "none of these" by coverage or risk, of several labels by F1 or precision."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.errors import ArgumentError
from faircontext.metrics.multi_label import score_of, threshold_for_f1, threshold_for_precision
from faircontext.metrics.selective import OperatingPoint, threshold_for_coverage, threshold_for_risk
from faircontext.metrics.stats import Accuracy
from faircontext.runs.label_results import LabelMetrics, is_multi_label, read_label_result
from faircontext.runs.records import is_analysis, to_numpy
from faircontext.runs.store import Run, load_run, run_folders
from faircontext.runs.unknown import SCHEMA_VERSION, SCORES
from faircontext.types import read_diagnostics


@dataclass(frozen=True)
class Thresholds:
    """A threshold for each method of a run, and the file that `--unknown` reads."""

    points: dict[str, OperatingPoint]
    document: dict[str, Any]


def choose_thresholds(folder: Path, score: str, coverage: float | None, risk: float | None) -> Thresholds:
    """Choose a threshold for each method of a run.

    Args:
        folder: of the run, or one above it.
        score: one of `SCORES`.
        coverage: least share of the images that is answered; None where `risk` is given.
        risk: largest share of wrong predictions among the answered; None where `coverage` is given.

    Raises:
        ArgumentError: not exactly one of the two is given, the run has no labels or lacks the score, or no threshold
            has so little risk.
    """
    if (coverage is None) == (risk is None):
        raise ArgumentError("give either --coverage, the share of images to answer, or --risk, the share of errors")
    run = _only_run(folder)
    if is_multi_label(run):
        raise ArgumentError(
            f"{run.folder}: its images may have several labels, whose threshold is chosen by --precision, or by the "
            "largest F1 where nothing is given; --coverage and --risk are of one label an image"
        )
    points = {}
    for method in (name for name in run.document["config"]["methods"] if not is_analysis(name)):
        values, correct = _scores(run, method, score)
        choose = partial(threshold_for_coverage, values, correct)
        points[method] = choose(coverage) if coverage is not None else threshold_for_risk(values, correct, risk or 0.0)
    return Thresholds(points, _document(run, score, points, {"coverage": coverage, "risk": risk}))


def choose_label_threshold(folder: Path, precision: float | None) -> tuple[float, LabelMetrics]:
    """Choose from which score on labels are given, on a run whose images may have several: with the largest F1.

    Returns the threshold, and the metrics of the run with it.

    Args:
        folder: of the run, or one above it.
        precision: least share of correct labels among those given, in place of the largest F1; None for that.

    Raises:
        ArgumentError: the run has no labels, or no threshold is so precise.
    """
    run = _only_run(folder)
    metrics = read_label_result(run).metrics
    if not metrics.targets.any():
        raise ArgumentError(f"{run.folder}: has no labelled image that was answered; choose on a labelled run")
    scores = score_of(metrics.logits)
    if precision is None:
        threshold = threshold_for_f1(scores, metrics.targets).threshold
    else:
        threshold = threshold_for_precision(scores, metrics.targets, precision).threshold
    return threshold, LabelMetrics(metrics.logits, metrics.targets, threshold)


def chooses_labels(folder: Path) -> bool:
    """Return whether the images of a run may have several labels, so that its threshold is one of labels."""
    return is_multi_label(_only_run(folder))


def _only_run(folder: Path) -> Run:
    folders = list(run_folders(folder))
    if len(folders) != 1:
        raise ArgumentError(f"{folder}: holds {len(folders)} runs; name the folder of one")
    return load_run(folders[0])


def _scores(run: Run, method: str, score: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of a method's predictions on labelled images, and which are correct."""
    rows = run.rows.filter(pc.and_(pc.equal(run.rows["method"], method), pc.equal(run.rows["error"], "")))
    rows = rows.filter(pc.is_valid(rows["label_index"]))
    if not len(rows):
        raise ArgumentError(
            f"{run.folder}: has no labelled image that was answered; choose thresholds on a labelled run"
        )
    correct = np.asarray(to_numpy(rows["index"]) == to_numpy(rows["label_index"]))
    return _column(run, rows, score), correct


def _column(run: Run, rows: pa.Table, score: str) -> np.ndarray:
    if score == SCORES[0]:
        return to_numpy(rows["confidence"]).astype(np.float64)
    values = [read_diagnostics(text).get(score) for text in rows["diagnostics"].to_pylist()]
    if any(value is None for value in values):
        raise ArgumentError(f"{run.folder}: has no {score} of its predictions; make the run with --unknown {score}")
    return np.array(values, np.float64)


def _document(
    run: Run, score: str, points: dict[str, OperatingPoint], asked: dict[str, float | None]
) -> dict[str, Any]:
    config = run.document["config"]
    return {
        "schema_version": SCHEMA_VERSION,
        "score": score,
        "thresholds": {name: point.threshold for name, point in points.items()},
        "asked": {name: value for name, value in asked.items() if value is not None},
        "run": {
            "dataset": config["dataset"]["name"],
            "classes": config["dataset"]["classes"],
            "backbone": config["backbone"]["name"],
            "weights": config["backbone"].get("weights"),
            "prompts": config["prompts"],
            "seed": config["seed"],
        },
        "measured": {
            name: {"coverage": _measured(point.coverage), "risk": _measured(point.risk)}
            for name, point in points.items()
        },
    }


def _measured(share: Accuracy) -> dict[str, Any]:
    return {"value": share.value, "n": share.n, "interval": list(share.interval)}
