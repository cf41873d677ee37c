import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import log_loss
from test_errors import unchecked
from torchmetrics.functional.classification import binary_calibration_error

from faircontext.errors import ArgumentError
from faircontext.metrics.scores import (
    LEAST_PROBABILITY,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    reliability,
)


def answers(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.random(number)
    return confidence, rng.random(number) < confidence**2


def by_definition(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    """Go through the bins one by one."""
    error = 0.0
    for i in range(bins):
        low, high = i / bins, (i + 1) / bins
        inside = (confidence > low) & (confidence <= high) | (confidence == 0) & (i == 0)
        if inside.any():
            error += abs(correct[inside].mean() - confidence[inside].mean()) * inside.mean()
    return float(error)


def test_a_closed_form():
    # One bin each: 3 of 4 right at 0.9, 1 of 6 right at 0.33.
    confidence = np.array([0.9] * 4 + [0.33] * 6)
    correct = np.array([True] * 3 + [False] + [True] + [False] * 5)
    expected = (4 * abs(3 / 4 - 0.9) + 6 * abs(1 / 6 - 0.33)) / 10
    assert expected_calibration_error(confidence, correct, 20) == pytest.approx(expected, abs=1e-12)


def test_many_answers_of_a_known_law_approach_its_error():
    # Confidence uniform on [0, 1], right with its square: the error is the integral of c - c^2, which is 1/6.
    number = 200_000
    confidence = (np.arange(number) + 0.5) / number
    correct = np.random.default_rng(0).random(number) < confidence**2
    assert expected_calibration_error(confidence, correct, 20) == pytest.approx(1 / 6, abs=0.005)


@given(st.data(), st.integers(1, 40), st.integers(1, 25))
def test_every_bin_has_what_its_definition_says(data, number, bins):
    edges = [i / bins for i in range(bins + 1)]
    values = st.one_of(st.sampled_from(edges), st.floats(0, 1))
    confidence = data.draw(arrays(np.float64, number, elements=values))
    correct = data.draw(arrays(np.bool_, number))
    found = reliability(confidence, correct, bins)
    assert found.n.sum() == number
    filled = found.n > 0
    assert np.isnan(found.accuracy[~filled]).all()
    assert np.isnan(found.confidence[~filled]).all()
    assert (found.accuracy * found.n)[filled].sum() == pytest.approx(correct.sum())
    assert (found.confidence * found.n)[filled].sum() == pytest.approx(confidence.sum())
    assert (found.confidence[filled] >= found.edges[:-1][filled] - 1e-12).all()
    assert (found.confidence[filled] <= found.edges[1:][filled] + 1e-12).all()
    error = expected_calibration_error(confidence, correct, bins)
    assert error == found.expected_calibration_error
    assert error == pytest.approx(by_definition(confidence, correct, bins), abs=1e-12)
    assert 0 <= error <= 1


@pytest.mark.parametrize("bins", [1, 10, 15, 20])
def test_torchmetrics_agrees_away_from_the_edges(bins):
    confidence, correct = answers(2000)
    theirs = binary_calibration_error(torch.tensor(confidence), torch.tensor(correct).int(), n_bins=bins)
    assert expected_calibration_error(confidence, correct, bins) == pytest.approx(float(theirs), abs=1e-9)


def test_no_confidence_is_lost():
    found = reliability(np.array([0.0, 1.0, 1.0 + 1e-7]), np.array([False, True, True]), 20)
    assert found.n[[0, -1]].tolist() == [1, 2]
    assert found.expected_calibration_error == 0


def test_an_edge_is_the_nearest_number_to_its_fraction():
    # linspace(0, 1, 21)[3] is one step above 0.15, so that a value between the two would fall into the bin below.
    found = reliability(np.array([np.nextafter(0.15, 1)]), np.array([True]), 20)
    assert found.n.argmax() == 3
    assert found.edges.tolist() == [i / 20 for i in range(21)]


def probabilities(number: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.dirichlet(np.ones(classes), number), rng.integers(classes, size=number)


def test_brier_score_is_the_squared_distance_to_the_truth():
    table, labels = probabilities(50, 7)
    expected = ((table - np.eye(7)[labels]) ** 2).sum(1).mean()
    found = brier_score(table[np.arange(50), labels], (table**2).sum(1))
    assert found == pytest.approx(expected, abs=1e-12)


def test_negative_log_likelihood_is_scikit_learns():
    table, labels = probabilities(50, 7)
    found = negative_log_likelihood(table[np.arange(50), labels])
    assert found == pytest.approx(log_loss(labels, table, labels=range(7)), rel=1e-9)


def test_an_impossible_class_costs_no_more_than_the_least_probability():
    assert LEAST_PROBABILITY == 2.0**-126
    assert negative_log_likelihood(np.array([0.0])) == pytest.approx(126 * math.log(2), rel=1e-12)
    assert negative_log_likelihood(np.array([1.0])) == 0


HALF, TRUE = np.array([0.5, 0.5]), np.array([True, True])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reliability(HALF, TRUE[:1]), "correct has 1 entries and confidence has 2; both are per image"),
        (lambda: reliability(HALF[:0], TRUE[:0]), "confidence is empty"),
        (lambda: reliability(HALF + 1, TRUE), r"confidence\[0\]=1.5 is not possible; it must lie between 0 and 1"),
        (lambda: reliability(HALF * [1, np.nan], TRUE), r"confidence\[1\]=nan is not possible"),
        (lambda: reliability(HALF, HALF), "correct is of type float64; it holds truth values"),
        (lambda: reliability(HALF, TRUE, 0), "bins=0 is not possible"),
        (lambda: expected_calibration_error(-HALF, TRUE), r"confidence\[0\]=-0.5 is not possible"),
        (lambda: brier_score(HALF, HALF[:1]), "probability_norm has 1 entries and label_probability has 2"),
        (lambda: brier_score(HALF, HALF * 4), r"probability_norm\[0\]=2.0 is not possible"),
        (lambda: negative_log_likelihood(HALF - 1), r"label_probability\[0\]=-0.5 is not possible"),
        (lambda: negative_log_likelihood(HALF[:0]), "label_probability is empty"),
    ],
)
def test_what_is_no_probability_is_refused_by_name(call, message):
    with unchecked(), pytest.raises(ArgumentError, match=message):
        call()
