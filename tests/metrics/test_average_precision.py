"""Average precision against scikit-learn and torchmetrics, ties included; decisions and thresholds by definition."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.metrics import average_precision_score, precision_recall_fscore_support
from test_errors import unchecked
from torchmetrics.classification import MultilabelAveragePrecision

from faircontext.errors import ArgumentError
from faircontext.metrics import (
    average_precision,
    label_decisions,
    mean_average_precision,
    score_of,
    threshold_for_f1,
    threshold_for_precision,
)

IMAGES = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30)
"""Scores that often tie, and whether the image has the label."""

SETS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def one_class(images: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([score for score, _ in images], np.float32), np.array([label for _, label in images])


def some_classes(rng: np.random.Generator, values: int = 6) -> tuple[np.ndarray, np.ndarray]:
    n, classes = int(rng.integers(1, 25)), int(rng.integers(1, 5))
    return rng.integers(0, values, (n, classes)).astype(np.float32), rng.random((n, classes)) < 0.4


def test_average_precision_that_is_known_by_hand() -> None:
    scores, targets = np.array([0.9, 0.8, 0.8, 0.1]), np.array([True, False, True, True])
    # Recall 1/3 at precision 1, then 2/3 at 2/3 (the two that tie count together), then 1 at 3/4.
    assert average_precision(scores, targets) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert average_precision(scores, np.ones(4, np.bool_)) == 1.0
    assert average_precision(np.zeros(4), targets) == pytest.approx(3 / 4)  # one threshold: the share of positives


@given(IMAGES)
def test_average_precision_is_scikit_learns(images: list[tuple[int, bool]]) -> None:
    scores, targets = one_class(images)
    if targets.any():
        assert average_precision(scores, targets) == pytest.approx(average_precision_score(targets, scores), abs=1e-12)


@given(SETS)
def test_the_mean_is_that_of_torchmetrics_and_leaves_out_classes_without_an_image(rng: np.random.Generator) -> None:
    scores, targets = some_classes(rng)
    targets[0, 0] = True
    found = mean_average_precision(scores, targets, resamples=3)
    known = [c for c in range(targets.shape[1]) if targets[:, c].any()]
    assert [c for c, one in enumerate(found.per_class) if one is not None] == known
    assert found.classes == len(known)
    assert found.positives.tolist() == targets.sum(0).tolist()
    assert found.n == len(scores)
    if len(known) > 1:
        probabilities = torch.from_numpy(scores[:, known]) / 8
        oracle = MultilabelAveragePrecision(num_labels=len(known), average="none")
        theirs = oracle(probabilities, torch.from_numpy(targets[:, known]).long()).numpy()
        np.testing.assert_allclose([found.per_class[c].value for c in known], theirs, atol=1e-6)
        assert found.mean.value == pytest.approx(float(theirs.mean()), abs=1e-6)


def drawn_in_their_own_order(values: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return images as they are drawn: sorted by a digest of their values and labels, which knows nothing of rows."""
    order = sorted(
        range(len(values)),
        key=lambda i: int.from_bytes(
            blake2b((values[i] + 0.0).tobytes() + targets[i].tobytes(), digest_size=8).digest(), "little"
        ),
    )
    return values[order], targets[order]


def test_the_interval_is_that_of_images_drawn_again() -> None:
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 9, (20, 3)).astype(np.float32)
    targets = rng.random((20, 3)) < 0.3
    targets[:2, 2], targets[2:, 2] = True, False  # some resamples have none of it
    found, again = mean_average_precision(scores, targets, 200, seed=3), np.random.default_rng(3)
    scores, targets = drawn_in_their_own_order(scores, targets)
    means, last = [], []
    for _ in range(200):
        rows = again.integers(0, 20, 20)
        each = [average_precision_score(targets[rows, c], scores[rows, c]) for c in range(3) if targets[rows, c].any()]
        means += [np.mean(each)] if each else []
        if targets[rows, 2].any():
            last.append(average_precision_score(targets[rows, 2], scores[rows, 2]))
    assert len(last) < 200
    for ends, drawn in ((found.mean, means), (found.per_class[2], last)):
        centre, half = 2 * ends.value - np.mean(drawn), 1.959964 * np.std(drawn)
        wanted = min(ends.value, centre - half), max(ends.value, centre + half)
        np.testing.assert_allclose([ends.low, ends.high], np.clip(wanted, 0, 1), atol=1e-6)


def test_the_interval_covers_the_truth_where_positive_images_are_few() -> None:
    def drawn(n: int, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        targets = rng.random((n, classes)) < 0.05
        return rng.normal(size=(n, classes)) + 1.5 * targets, targets

    scores, targets = drawn(400_000, 1, np.random.default_rng(0))
    truth = average_precision(scores[:, 0], targets[:, 0])
    intervals = [mean_average_precision(*drawn(150, 8, np.random.default_rng(seed)), 99).mean for seed in range(60)]
    assert np.mean([one.value for one in intervals]) > truth + 0.02  # biased, as is said
    # A share of 95%, less the error of 60 trials; quantiles of the resamples cover it in fewer than 60%.
    assert np.mean([one.low <= truth <= one.high for one in intervals]) > 0.85


def test_what_is_printed() -> None:
    targets = np.array([[True, False], [False, False]])
    said = str(mean_average_precision(np.array([[0.2, 0.1], [0.1, 0.3]]), targets, 20))
    assert said == (
        "mAP 100.0% (n = 2, 1 of 2 classes, as the others have no image, no interval: every resample of the images has "
        "this value)"
    )
    said = str(mean_average_precision(np.array([[0.1], [0.2], [0.3]]), np.array([[True], [False], [True]]), 50))
    assert said.startswith("mAP 83.3% (n = 3, 1 class, 95% interval ")


@given(SETS)
def test_the_order_of_rows_changes_no_interval(rng: np.random.Generator) -> None:
    scores, targets = some_classes(rng)
    targets[0, 0] = True
    order = rng.permutation(len(scores))
    first, second = (mean_average_precision(scores[rows], targets[rows], 20) for rows in (slice(None), order))
    assert repr(first) == repr(second)
    first, second = (label_decisions(scores[rows] >= 3, targets[rows], 20) for rows in (slice(None), order))
    assert repr(first) == repr(second)


@given(SETS)
def test_no_interval_is_of_zero_width(rng: np.random.Generator) -> None:
    scores, targets = some_classes(rng)
    targets[0, 0] = True
    mean, decisions = mean_average_precision(scores, targets, 20), label_decisions(scores >= 3, targets, 20)
    shares = [mean.mean, *filter(None, mean.per_class), decisions.precision, decisions.recall, decisions.f1]
    for share in shares:
        assert share.low < share.high or (np.isnan(share.low) and np.isnan(share.high))
        assert np.isnan(share.low) or share.low <= share.value <= share.high
    if len(scores) == 1:
        assert all(np.isnan(share.low) for share in shares if not np.isnan(share.value))


@given(SETS)
def test_decisions_are_scikit_learns_micro_averages(rng: np.random.Generator) -> None:
    scores, targets = some_classes(rng)
    predicted = scores >= 3
    found = label_decisions(predicted, targets, resamples=5)
    theirs = precision_recall_fscore_support(targets.ravel(), predicted.ravel(), average="binary", zero_division=np.nan)
    for ours, other in zip((found.precision, found.recall), theirs, strict=False):
        assert ours.value == pytest.approx(other, nan_ok=True)
    assert found.f1.value == pytest.approx(theirs[2], nan_ok=True)
    assert found.exact.correct == int((predicted == targets).all(1).sum())
    assert found.exact.n == len(targets)


def test_intervals_of_decisions_are_those_of_images_drawn_again() -> None:
    rng = np.random.default_rng(0)
    predicted, targets = rng.random((30, 4)) < 0.4, rng.random((30, 4)) < 0.4
    found, again = label_decisions(predicted, targets, 100, seed=7), np.random.default_rng(7)
    predicted, targets = drawn_in_their_own_order(predicted, targets)
    rows = [again.integers(0, 30, 30) for _ in range(100)]
    shares = [(predicted[row] & targets[row]).sum() / predicted[row].sum() for row in rows]
    np.testing.assert_allclose([found.precision.low, found.precision.high], np.quantile(shares, (0.025, 0.975)))


@given(SETS)
def test_thresholds_keep_what_they_promise(rng: np.random.Generator) -> None:
    scores, targets = some_classes(rng)
    targets[0, 0] = True

    def at(threshold: float) -> tuple[float, float, int]:
        given = scores >= threshold
        hits = int((given & targets).sum())
        return hits / given.sum(), 2 * hits / (given.sum() + targets.sum()), int(given.sum())

    points = {float(value): at(value) for value in np.unique(scores)}
    best = threshold_for_f1(scores, targets)
    assert best.f1 == pytest.approx(max(f1 for _, f1, _ in points.values()))
    assert best.f1 == pytest.approx(points[best.threshold][1])
    asked = max(precision for precision, *_ in points.values()) * 0.9
    found = threshold_for_precision(scores, targets, asked)
    assert found.precision == pytest.approx(points[found.threshold][0])
    assert points[found.threshold][2] == max(n for precision, _, n in points.values() if precision >= asked - 1e-9)


@given(st.floats(-(2.0**99), 2.0**99, width=32))
def test_a_score_is_the_sigmoid_of_log_odds(logit: float) -> None:
    score = float(score_of(np.array([logit], np.float32))[0])
    assert score == pytest.approx(float(torch.tensor(logit, dtype=torch.float64).sigmoid()), rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: average_precision(np.ones(2), np.zeros(2, np.bool_)), "targets has no positive image; average "),
        (lambda: average_precision(np.array([np.nan, 1]), np.ones(2, np.bool_)), "scores has NaN; give every image"),
        (
            lambda: average_precision(np.ones(2), np.ones(2, np.int64)),
            "targets is of type int64; it holds truth values",
        ),
        (lambda: average_precision(np.ones(2), np.ones(3, np.bool_)), "targets has 3 entries and scores has 2"),
        (
            lambda: mean_average_precision(np.ones((2, 3)), np.ones((2, 2), np.bool_)),
            "scores is of shape (2, 3) and targets of (2, 2); both are alike",
        ),
        (
            lambda: mean_average_precision(np.ones((2, 2)), np.zeros((2, 2), np.bool_)),
            "no image has a label; average precision needs one that has",
        ),
        (lambda: threshold_for_f1(np.ones((1, 1)), np.zeros((1, 1), np.bool_)), "no image has a label; choose a "),
        (
            lambda: threshold_for_precision(np.ones((2, 1)), np.array([[True], [False]]), 0.9),
            "precision 0.9 is not possible: the most is 0.500; ask for less",
        ),
    ],
)
def test_what_is_refused(call: Callable[[], object], said: str) -> None:
    with unchecked(), pytest.raises(ArgumentError) as raised:
        call()
    assert str(raised.value).startswith(said)
