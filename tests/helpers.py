"""What several test files assert."""

import torch
from torch import Tensor

from faircontext import Prediction


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors are equal to the bit."""
    return first.dtype == second.dtype and torch.equal(first, second)


def assert_same_answer(first: Prediction, second: Prediction) -> None:
    """Assert that two answers agree to the bit, votes and probabilities included; diagnostics may differ."""
    assert first.index == second.index
    assert same_bits(first.ranking, second.ranking)
    assert same_bits(first.probabilities, second.probabilities)
    assert (first.votes is None) == (second.votes is None)
    assert first.votes is None or same_bits(first.votes, second.votes)
    assert first.candidates == second.candidates


def assert_identical(first: Prediction, second: Prediction) -> None:
    """Assert that two predictions agree to the bit in everything."""
    assert_same_answer(first, second)
    assert first.fallback == second.fallback
    assert first.diagnostics == second.diagnostics


def assert_valid(prediction: Prediction, classes: int) -> None:
    """Assert what is true of every prediction."""
    assert prediction.probabilities.shape == (classes,)
    assert prediction.probabilities.isfinite().all()
    assert (prediction.probabilities >= 0).all()
    assert abs(float(prediction.probabilities.sum()) - 1) < 1e-5
    assert sorted(prediction.ranking.tolist()) == list(range(classes))
    assert int(prediction.ranking[0]) == prediction.index
    assert prediction.confidence == float(prediction.probabilities[prediction.index])
    first = prediction.ranking[: len(prediction.candidates)].tolist()
    assert sorted(first) == sorted(prediction.candidates)
    assert all(value == value for value in prediction.diagnostics.values())  # no NaN
