import torch

from faircontext.types import Prediction


def test_confidence_is_the_probability_of_the_answer_not_the_largest_one():
    prediction = Prediction(2, torch.tensor([2, 0, 1]), torch.tensor([0.5, 0.25, 0.25]))
    assert prediction.confidence == 0.25


def test_a_prediction_has_no_votes_candidates_or_fallback_unless_given():
    prediction = Prediction(0, torch.tensor([0]), torch.tensor([1.0]))
    assert (prediction.votes, prediction.candidates, prediction.fallback) == (None, (), None)
    assert dict(prediction.diagnostics) == {}
