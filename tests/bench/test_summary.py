"""What a run's rows say about a method, against sums by hand."""

import numpy as np
import pytest
from faircontext.bench.summary import summarise

from faircontext.metrics.stats import Accuracy, mcnemar_exact, paired_bootstrap
from faircontext.runs.records import Record, to_table

# Per image: true class, zero-shot's answer, the method's, its confidence. Class 2 has no image.
IMAGES = [(0, 0, 0, 0.9), (0, 1, 0, 0.6), (0, 1, 0, 0.6), (1, 1, 0, 0.7), (1, 0, 3, 0.4), (3, 0, 0, 1.0)]
CLASSES = 4


def rows(method: str = "fcl", images: list[tuple[int, int, int, float]] = IMAGES) -> list[Record]:
    """Return rows in which the answer has its confidence and the three other classes share the rest."""
    found = []
    for position, (label, zero_shot, index, confidence) in enumerate(images):
        rest = (1 - confidence) / 3
        probabilities = np.full(CLASSES, rest)
        probabilities[index] = confidence
        others = [c for c in range(CLASSES) if c != index]
        record = Record(
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


def refused(method: str = "fcl", position: int = 9) -> Record:
    return Record(
        path=f"{position}.png",
        error="the file is empty",
        method=method,
        dataset="set",
        config="abc",
        position=position,
        label_index=1,
        seconds=100.0,
    )


def test_every_figure_by_hand():
    found = summarise(to_table([*rows(), refused()]), CLASSES)["fcl"]
    assert found.top1 == Accuracy(3, 6)
    assert found.with_refused == Accuracy(3, 7)
    assert found.top5 == Accuracy(5, 6)  # the last image's class is the last of all
    assert found.per_class == pytest.approx((1 + 0 + 0) / 3)
    # One bin each for 0.9, 0.7, 0.4 and 1.0; two answers at 0.6.
    assert found.ece == pytest.approx((0.1 + 2 * 0.4 + 0.7 + 0.4 + 1.0) / 6)
    assert found.zero_shot == Accuracy(2, 6)
    assert (found.gained, found.lost) == (2, 1)
    assert found.p_value == mcnemar_exact(2, 1) == 1.0
    assert found.difference.value == pytest.approx(1 / 6)
    assert found.fallbacks == 1
    assert found.seconds == pytest.approx(2.5)


def test_probabilities_give_the_scores_of_the_whole_tables():
    found = summarise(to_table(rows()), CLASSES)["fcl"]
    squares, logs = [], []
    for label, _, index, confidence in IMAGES:
        p = np.full(CLASSES, (1 - confidence) / 3)
        p[index] = confidence
        squares.append(((p - np.eye(CLASSES)[label]) ** 2).sum())
        logs.append(-np.log(max(p[label], np.finfo(np.float32).tiny)))
    assert found.brier == pytest.approx(np.mean(squares))
    assert found.nll == pytest.approx(np.mean(logs))


def test_the_interval_is_of_the_same_images():
    found = summarise(to_table(rows()), CLASSES)["fcl"]
    method = np.array([index == label for label, _, index, _ in IMAGES])
    zero_shot = np.array([answer == label for label, answer, _, _ in IMAGES])
    assert found.difference == paired_bootstrap(method, zero_shot)


def test_classes_of_one_name_are_told_apart():
    assert summarise(to_table(rows()), CLASSES)["fcl"].top1.value == 0.5  # though all names are equal


def test_methods_keep_their_order_and_their_rows():
    perfect = [(label, zero_shot, label, 1.0) for label, zero_shot, _, _ in IMAGES]
    table = to_table([*rows("tpt"), *rows("fcl", perfect), refused("tpt"), refused("fcl")])
    found = summarise(table, CLASSES)
    assert [*found] == ["tpt", "fcl"]
    assert found["tpt"].top1 == Accuracy(3, 6)
    assert found["fcl"].top1 == Accuracy(6, 6)
    assert found["fcl"].ece == found["fcl"].brier == found["fcl"].nll == 0
    assert found["fcl"].with_refused == Accuracy(6, 7)


def test_where_no_file_could_be_read_there_is_no_summary():
    assert summarise(to_table([refused(), refused(position=10)]), CLASSES) == {}
    assert summarise(to_table([]), CLASSES) == {}


def test_zero_shot_against_itself_is_a_tie():
    same = [(label, zero_shot, zero_shot, 0.5) for label, zero_shot, _, _ in IMAGES]
    found = summarise(to_table(rows("zero_shot", same)), CLASSES)["zero_shot"]
    assert (found.gained, found.lost, found.p_value) == (0, 0, 1.0)
    assert (found.difference.value, found.difference.low, found.difference.high) == (0, 0, 0)


def test_a_summary_is_one_line_that_says_what_counts():
    found = summarise(to_table([*rows(), refused()]), CLASSES)["fcl"]
    line = found.describe("fcl")
    assert "\n" not in line
    assert "42.9% with the 1 refused counted as wrong" in line
    assert "+16.7 over zero-shot" in line
    assert "alone right on 2, zero-shot alone on 1; exact McNemar p = 1" in line
    assert "over zero-shot" not in found.describe("zero_shot")
    assert "refused" not in summarise(to_table(rows()), CLASSES)["fcl"].describe("fcl")
