import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torchmetrics.functional.classification import multiclass_accuracy

from faircontext.errors import ArgumentError
from faircontext.metrics.classification import NO_ANSWER, mean_per_class, per_class_accuracy, top_k_accuracy
from faircontext.metrics.stats import Accuracy
from test_errors import unchecked

TOP = np.array([[2, 0, 1], [0, 1, 2], [1, 2, NO_ANSWER], [NO_ANSWER] * 3])
LABELS = np.array([0, 0, 0, 1])


@pytest.mark.parametrize(("k", "correct"), [(1, 1), (2, 2), (3, 2)])
def test_top_k_by_hand(k, correct):
    assert top_k_accuracy(TOP, LABELS, k) == Accuracy(correct, 4)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_k_agrees_with_torchmetrics(k):
    rng = np.random.default_rng(0)
    scores, labels = rng.random((200, 9)), rng.integers(9, size=200)
    top = np.argsort(-scores, axis=1)[:, :5]
    theirs = multiclass_accuracy(torch.tensor(scores), torch.tensor(labels), 9, average="micro", top_k=k)
    assert top_k_accuracy(top, labels, k).value == pytest.approx(float(theirs), abs=1e-6)


def test_per_class_by_hand():
    index, labels = np.array([0, 1, 1, NO_ANSWER, 3]), np.array([0, 0, 1, 1, 1])
    found = per_class_accuracy(index, labels, 4)
    assert found.correct.tolist() == [1, 1, 0, 0]
    assert found.number.tolist() == [2, 3, 0, 0]
    np.testing.assert_array_equal(found.values, [1 / 2, 1 / 3, np.nan, np.nan])
    assert mean_per_class(index, labels, 4) == pytest.approx((1 / 2 + 1 / 3) / 2)


@given(st.data(), st.integers(1, 30))
def test_classes_add_up_to_the_whole_and_weigh_the_same(data, number):
    index = data.draw(arrays(np.int64, number, elements=st.integers(NO_ANSWER, 4)))
    labels = data.draw(arrays(np.int64, number, elements=st.integers(0, 4)))
    found = per_class_accuracy(index, labels, 5)
    assert found.number.sum() == number
    assert found.correct.sum() == top_k_accuracy(index[:, None], labels, 1).correct
    by_class = [(index[labels == c] == c).mean() for c in sorted(set(labels.tolist()))]
    assert mean_per_class(index, labels, 5) == pytest.approx(np.mean(by_class))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_k_accuracy(TOP, LABELS[:3], 1), "labels has 3 entries and top has 4; both are per image"),
        (lambda: top_k_accuracy(TOP[:0], LABELS[:0], 1), "top is empty; it needs an entry for at least one image"),
        (lambda: top_k_accuracy(TOP, LABELS, 4), r"k=4 is not possible; top has the shape \(4, 3\)"),
        (lambda: top_k_accuracy(TOP, LABELS, 0), "k=0 is not possible"),
        (lambda: top_k_accuracy(TOP - 1, LABELS, 1), "top has the class -2; classes are known by index, from 0"),
        (lambda: top_k_accuracy(TOP, LABELS - 1, 1), "labels has the class -1"),
        (lambda: top_k_accuracy(TOP, LABELS / 2, 1), "labels is of type float64; it holds classes by index"),
        (lambda: mean_per_class(TOP[:, 0], LABELS + 2, 3), "labels has the class 3; .* from 0 to 2"),
        (lambda: mean_per_class(TOP[:, 0], LABELS, 2), "index has the class 2; .* from 0 to 1"),
        (lambda: mean_per_class(TOP[:, 0], LABELS, 0), "classes=0 is not possible"),
        (lambda: mean_per_class(TOP[:2, 0], LABELS, 3), "labels has 4 entries and index has 2"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(call, message):
    with unchecked(), pytest.raises(ArgumentError, match=message):
        call()
