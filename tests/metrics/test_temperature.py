"""Temperature scaling: against closed forms, and against SciPy's minimiser of the same loss."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from faircontext.errors import ArgumentError
from faircontext.metrics.scores import (
    LEAST_PROBABILITY,
    calibration_error_interval,
    expected_calibration_error,
    fit_temperature,
    negative_log_likelihood,
    temper,
)
from helpers import refusal


def drawn(n: int, classes: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities that are too sure by a temperature, and labels that are drawn from those without it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes))
    labels = np.array([rng.choice(classes, p=row) for row in softmax(logits, 1)])
    return softmax(logits * temperature, 1).astype(np.float32), labels


@pytest.mark.parametrize(("right", "p"), [(70, 0.9), (70, 0.6), (55, 0.99)])
def test_two_classes_have_a_closed_form(right: int, p: float) -> None:
    """All images have one logit, z: the least loss is where sigmoid(z / T) is the share of right ones."""
    probabilities, labels = np.tile([p, 1 - p], (100, 1)), np.array([0] * right + [1] * (100 - right))
    expected = math.log(p / (1 - p)) / math.log(right / (100 - right))
    assert fit_temperature(probabilities, labels) == pytest.approx(expected, rel=1e-6)
    assert temper(probabilities, expected)[:, 0] == pytest.approx(np.full(100, right / 100))


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.2, 5))
def test_it_is_the_minimum_that_scipy_finds(seed: int, classes: int, temperature: float) -> None:
    probabilities, labels = drawn(200, classes, temperature, seed)

    def loss(log_t: float) -> float:
        return float(-log_softmax(np.log(probabilities.astype(np.float64)) / math.exp(log_t), 1)[rows, labels].mean())

    rows, ends = np.arange(200), (math.log(0.01), math.log(100))
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-9})
    try:
        fitted = fit_temperature(probabilities, labels)
    except ArgumentError:  # the minimum is at an end
        assert min(abs(found.x - end) for end in ends) < 0.01
        return
    assert loss(math.log(fitted)) <= found.fun + 1e-9
    assert negative_log_likelihood(temper(probabilities, fitted)[rows, labels]) == pytest.approx(found.fun, abs=1e-6)


def test_what_was_made_too_sure_is_found_again() -> None:
    probabilities, labels = drawn(20_000, 6, 3.0)
    fitted = fit_temperature(probabilities, labels)
    assert fitted == pytest.approx(3.0, abs=0.1)
    before, after = (values.max(1) for values in (probabilities, temper(probabilities, fitted)))
    correct = probabilities.argmax(1) == labels
    assert expected_calibration_error(after, correct) < 0.02 < expected_calibration_error(before, correct)


def test_tempering_is_a_softmax_of_divided_logits_also_where_nothing_is_left() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (5, 4))
    assert temper(softmax(logits, 1), 1.7) == pytest.approx(softmax(logits / 1.7, 1))
    assert temper(softmax(logits[0]), 0.5) == pytest.approx(softmax(logits[0] / 0.5))
    same = torch.tensor(logits).softmax(1)
    assert temper(same.numpy(), 1.0) == pytest.approx(same.numpy())
    assert temper(np.array([1.0, 0.0]), 2.0)[1] == pytest.approx(math.sqrt(LEAST_PROBABILITY))


def test_where_no_temperature_is_the_best_it_says_why() -> None:
    sure = np.tile([0.9, 0.1], (3, 1))
    for labels in (np.zeros(3, np.int64), np.ones(3, np.int64)):
        assert refusal(lambda labels=labels: fit_temperature(sure, labels)) == (
            "no temperature from 0.01 to 100 is best for 3 images: all are right, or right no more often than by "
            "chance; take more images"
        )
    assert "it needs an entry for at least one image" in refusal(
        lambda: fit_temperature(sure[:0], np.zeros(0, np.int64))
    )


def test_the_interval_of_the_calibration_error_holds_it_and_narrows() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for n in (100, 10_000):
        confidence = rng.uniform(0.5, 1, n)
        correct = rng.random(n) < confidence - 0.2
        found = calibration_error_interval(confidence, correct)
        assert found.value == expected_calibration_error(confidence, correct)
        assert found.low < found.value < found.high
        assert found == calibration_error_interval(confidence, correct)  # the draws are seeded
        widths.append(found.high - found.low)
    assert found.low - 0.01 < 0.2 < found.high + 0.01
    assert widths[1] < widths[0] / 5


def test_the_interval_is_that_of_resamples_one_by_one() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.random(50)
    correct = rng.random(50) < confidence
    draws = []
    counts = np.random.default_rng(0)
    for _ in range(999):
        drawn_again = np.repeat(np.arange(50), np.bincount(counts.integers(50, size=50), minlength=50))
        draws.append(expected_calibration_error(confidence[drawn_again], correct[drawn_again]))
    found = calibration_error_interval(confidence, correct)
    low, high = np.quantile(draws, (0.025, 0.975)) - np.mean(draws) + found.value
    assert (found.low, found.high) == pytest.approx((max(0.0, low), high), abs=1e-9)
