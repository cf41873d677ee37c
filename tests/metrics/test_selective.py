"""Risk and coverage against slow definitions, AUROC against scikit-learn, thresholds against their promise."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import roc_auc_score

from faircontext.errors import ArgumentError
from faircontext.metrics.selective import (
    aurc,
    aurc_draws,
    auroc,
    auroc_difference,
    risk_coverage,
    threshold_for_coverage,
    threshold_for_risk,
)

ANSWERS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40)
"""Scores that often tie, and whether the prediction is correct."""


def arrays(answers: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([score for score, _ in answers], np.float64), np.array([right for _, right in answers])


def test_a_curve_that_is_known_by_hand() -> None:
    score, correct = np.array([0.9, 0.8, 0.8, 0.1]), np.array([True, False, True, False])
    curve = risk_coverage(score, correct)
    assert curve.threshold.tolist() == [0.9, 0.8, 0.1]
    assert curve.coverage.tolist() == [0.25, 0.75, 1.0]
    assert curve.risk.tolist() == [0.0, 1 / 3, 0.5]
    # Among the first two, one of the tied images is there: half a wrong answer on average.
    assert aurc(score, correct) == pytest.approx((0 + 0.5 / 2 + 1 / 3 + 2 / 4) / 4)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_the_area_is_the_mean_over_all_orders_of_tied_images(answers: list[tuple[int, bool]]) -> None:
    areas = []
    for order in permutations(answers):
        if all(one[0] >= two[0] for one, two in pairwise(order)):
            wrong = np.cumsum([not right for _, right in order])
            areas.append(np.mean(wrong / np.arange(1, len(order) + 1)))
    assert aurc(*arrays(answers)) == pytest.approx(np.mean(areas))


@given(ANSWERS)
def test_points_are_what_thresholds_answer(answers: list[tuple[int, bool]]) -> None:
    score, correct = arrays(answers)
    curve = risk_coverage(score, correct)
    assert curve.threshold.tolist() == sorted({*score.tolist()}, reverse=True)
    for threshold, coverage, risk in zip(curve.threshold, curve.coverage, curve.risk, strict=True):
        answered = score >= threshold
        assert coverage == answered.mean()
        assert risk == pytest.approx(1 - correct[answered].mean())


@given(ANSWERS, st.floats(0.01, 1))
def test_a_threshold_for_coverage_is_the_highest_that_reaches_it(
    answers: list[tuple[int, bool]], coverage: float
) -> None:
    score, correct = arrays(answers)
    point = threshold_for_coverage(score, correct, coverage)
    assert point.coverage.value >= coverage - 1e-9
    assert point.coverage.value == (score >= point.threshold).mean()
    assert all((score >= higher).mean() < coverage for higher in score[score > point.threshold])


@given(ANSWERS, st.floats(0, 1))
def test_a_threshold_for_risk_is_the_lowest_that_keeps_it(answers: list[tuple[int, bool]], risk: float) -> None:
    score, correct = arrays(answers)
    kept = [t for t in score if (~correct[score >= t]).mean() <= risk + 1e-9]
    if not kept:
        with pytest.raises(
            ArgumentError, match=r"^risk .* is not possible: the least is .* at coverage .*; ask for more"
        ):
            threshold_for_risk(score, correct, risk)
        return
    point = threshold_for_risk(score, correct, risk)
    assert point.threshold == min(kept)
    assert point.risk.value <= risk + 1e-9


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_auroc_is_scikit_learns(known: list[int], unknown: list[int]) -> None:
    truth = [1] * len(known) + [0] * len(unknown)
    first, second = np.array(known, np.float64), np.array(unknown, np.float64)
    value = auroc(first, second, resamples=50)
    assert value.value == pytest.approx(roc_auc_score(truth, known + unknown))
    assert value.low <= value.high
    swapped = auroc(second, first, resamples=50)
    assert swapped.value == pytest.approx(1 - value.value)


@pytest.mark.slow
def test_the_interval_of_auroc_covers_the_truth_about_as_often_as_it_says() -> None:
    """Normal scores one standard deviation apart: the truth is Phi(1 / sqrt 2)."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        interval = auroc(rng.normal(1, 1, 60), rng.normal(0, 1, 40), resamples=400)
        covered += interval.low <= 0.7602499 <= interval.high
    assert 0.89 <= covered / 200 <= 0.985


def test_a_difference_is_paired() -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(1, 1, 80), rng.normal(0, 1, 80)
    same = auroc_difference((known, unknown), (known, unknown))
    assert (same.value, same.low, same.high) == (0, 0, 0)
    near = auroc_difference((known + 0.01 * rng.normal(size=80), unknown), (known, unknown))
    assert near.high - near.low < 0.02  # far less than either's own interval
    far = auroc_difference((known + 2, unknown), (known, unknown))
    assert far.low > 0


def test_draws_are_paired_and_centred() -> None:
    rng = np.random.default_rng(0)
    correct, score = rng.random(300) < 0.7, rng.random(300)
    assert np.array_equal(aurc_draws(score, correct, 20), aurc_draws(3 * score, correct, 20))
    assert abs(aurc_draws(score, correct, 400).mean() - aurc(score, correct)) < 0.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: risk_coverage(np.array([np.nan]), np.array([True])), "score has NaN"),
        (lambda: risk_coverage(np.zeros(0), np.zeros(0, np.bool_)), "score is empty"),
        (lambda: threshold_for_coverage(np.zeros(1), np.ones(1, np.bool_), 0.0), "coverage=0.0 is not possible"),
        (
            lambda: threshold_for_risk(np.zeros(1), np.ones(1, np.bool_), 1.5),
            "invalid risk 1.5: must be between 0 and 1",
        ),
        (lambda: auroc(np.zeros(1), np.zeros(0)), "AUROC of 1 known and 0 unknown images is not possible; give both"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
