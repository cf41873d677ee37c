import pytest
import torch

from faircontext.types import Prediction, headline


def test_confidence_is_the_probability_of_the_answer_not_the_largest_one():
    prediction = Prediction(2, torch.tensor([2, 0, 1]), torch.tensor([0.5, 0.25, 0.25]))
    assert prediction.confidence == 0.25


@pytest.mark.parametrize(
    ("ranked", "expected"),
    [
        ([("elephant", 0.316), ("giraffe", 0.3), ("horse", 0.29)], "elephant, 32%, close to giraffe"),
        ([("elephant", 0.316), ("giraffe", 0.158)], "elephant, 32%, close to giraffe"),
        ([("elephant", 0.316), ("giraffe", 0.15)], "elephant, 32%"),
        ([("elephant", 0.3), ("giraffe", 0.35)], "elephant, 30%, close to giraffe"),  # votes choose, not probabilities
        ([("elephant", 0.3)], "elephant, 30%"),
        ([("elephant", 0.6), ("giraffe", 0.4)], "elephant"),
        ([], "none of these"),
    ],
)
def test_the_headline_of_an_answer_of_low_probability_says_how_low_and_what_is_close(ranked, expected):
    assert headline(ranked) == expected
