import torch

from faircontext.types import Prediction


def test_confidence_is_the_probability_of_the_answer_not_the_largest_one():
    prediction = Prediction(2, torch.tensor([2, 0, 1]), torch.tensor([0.5, 0.25, 0.25]))
    assert prediction.confidence == 0.25
