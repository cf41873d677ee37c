"""What a run's rows say about a method, against sums by hand."""

from pathlib import Path

import numpy as np
import pytest

from faircontext.metrics.bootstrap import paired_bootstrap
from faircontext.metrics.scores import brier_score, expected_calibration_error, negative_log_likelihood
from faircontext.metrics.stats import Accuracy, mcnemar_exact
from faircontext.runs.records import Answer, to_table
from faircontext.runs.results import Result, describe_result, read_results
from faircontext.runs.store import Run

# Per image: true class, zero-shot's answer, the method's, its confidence. Class 2 has no image.
IMAGES = [(0, 0, 0, 0.9), (0, 1, 0, 0.6), (0, 1, 0, 0.6), (1, 1, 0, 0.7), (1, 0, 3, 0.4), (3, 0, 0, 1.0)]
CLASSES = 4


def rows(method: str = "fcl", images: list[tuple[int, int, int, float]] = IMAGES) -> list[Answer]:
    """Return rows in which the answer has its confidence and the three other classes share the rest."""
    found = []
    for position, (label, zero_shot, index, confidence) in enumerate(images):
        rest = (1 - confidence) / 3
        probabilities = np.full(CLASSES, rest)
        probabilities[index] = confidence
        others = [c for c in range(CLASSES) if c != index]
        record = Answer(
            path=f"{position}.png",
            label="same name",
            zero_shot="same name",
            prediction="same name",
            confidence=confidence,
            method=method,
            fallback="fewer than two candidates" if position == 0 else "",
            seconds=float(position),
            dataset="set",
            config="abc",
            position=position,
            label_index=label,
            zero_shot_index=zero_shot,
            index=index,
            top5=(index, *others[:2]),  # fewer than five, so that the last class is not among them
            label_probability=float(probabilities[label]),
            probability_norm=float((probabilities**2).sum()),
        )
        found.append(record)
    return found


def unreadable(method: str = "fcl", position: int = 9) -> Answer:
    return Answer(
        path=f"{position}.png",
        error="the file is empty",
        method=method,
        dataset="set",
        config="abc",
        position=position,
        label_index=1,
        seconds=100.0,
    )


def results(*records: Answer) -> dict[str, Result]:
    methods = dict.fromkeys(record.method for record in records)
    document = {"config": {"methods": {name: {} for name in methods}, "dataset": {"name": "set"}}}
    run = Run(Path("run"), document)
    vars(run)["rows"] = to_table(records)  # in place of files
    found = read_results(run)
    return {result.method: result for result in found}


def test_every_figure_by_hand() -> None:
    found = results(*rows(), unreadable())["fcl"]
    assert (found.n, found.unreadable, found.fallbacks) == (6, 1, 1)
    assert found.correct.sum() == 3
    assert found.in_top5.sum() == 5  # the last image's class is the last of all
    # One bin each for 0.9, 0.7, 0.4 and 1.0; two predictions at 0.6.
    error = expected_calibration_error(found.confidence, found.correct)
    assert error == pytest.approx((0.1 + 2 * 0.4 + 0.7 + 0.4 + 1.0) / 6)
    assert found.comparison.reference == Accuracy(2, 6)
    assert (found.comparison.gained, found.comparison.lost) == (2, 1)
    assert found.comparison.p_value == mcnemar_exact(2, 1) == 1.0
    assert found.comparison.difference.value == pytest.approx(1 / 6)
    assert found.seconds.mean() == pytest.approx(2.5)


def test_probabilities_give_the_scores_of_the_whole_tables() -> None:
    found = results(*rows())["fcl"]
    squares, logs = [], []
    for label, _, index, confidence in IMAGES:
        p = np.full(CLASSES, (1 - confidence) / 3)
        p[index] = confidence
        squares.append(((p - np.eye(CLASSES)[label]) ** 2).sum())
        logs.append(-np.log(max(p[label], np.finfo(np.float32).tiny)))
    assert brier_score(found.label_probability, found.probability_norm) == pytest.approx(np.mean(squares))
    assert negative_log_likelihood(found.label_probability) == pytest.approx(np.mean(logs))


def test_the_interval_is_of_the_same_images() -> None:
    method = np.array([index == label for label, _, index, _ in IMAGES])
    zero_shot = np.array([answer == label for label, answer, _, _ in IMAGES])
    assert results(*rows())["fcl"].comparison.difference == paired_bootstrap(method, zero_shot)


def test_methods_keep_their_order_and_their_rows() -> None:
    perfect = [(label, zero_shot, label, 1.0) for label, zero_shot, _, _ in IMAGES]
    found = results(*rows("tpt"), *rows("fcl", perfect), unreadable("tpt"), unreadable("fcl"))
    assert [*found] == ["tpt", "fcl"]
    assert [result.correct.sum() for result in found.values()] == [3, 6]
    assert [result.unreadable for result in found.values()] == [1, 1]


def test_where_no_file_could_be_read_nothing_is_compared() -> None:
    found = results(unreadable(), unreadable(position=10))["fcl"]
    assert (found.n, found.unreadable, found.comparison) == (0, 2, None)


def test_zero_shot_is_not_compared_with_itself() -> None:
    same = [(label, zero_shot, zero_shot, 0.5) for label, zero_shot, _, _ in IMAGES]
    found = results(*rows("zero_shot", same))["zero_shot"]
    assert found.comparison is None
    assert "over zero-shot" not in describe_result(found)


def test_a_result_is_one_line_that_says_what_counts() -> None:
    line = describe_result(results(*rows(), unreadable())["fcl"])
    assert "\n" not in line
    assert "42.9% with the 1 unreadable counted as wrong" in line
    assert "+16.7 over zero-shot" in line
    assert "alone right on 2, zero-shot alone on 1; exact McNemar p = 1" in line
    assert "unreadable" not in describe_result(results(*rows())["fcl"])
