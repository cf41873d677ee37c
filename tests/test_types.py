import pytest
import torch

from faircontext.types import Prediction, headline


def test_confidence_is_the_probability_of_the_answer_not_the_largest_one():
    prediction = Prediction(2, torch.tensor([2, 0, 1]), torch.tensor([0.5, 0.25, 0.25]))
    assert prediction.confidence == 0.25


@pytest.mark.parametrize(
    ("name", "probability", "expected"),
    [
        ("elephant", 0.316, "perhaps elephant (32%)"),
        ("elephant", 0.6, "elephant"),
        ("elephant", 0.99, "elephant"),
        ("", 0.99, "none of these"),
    ],
)
def test_an_answer_of_low_probability_is_headed_with_a_perhaps(name, probability, expected):
    assert headline(name, probability) == expected
