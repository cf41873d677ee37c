"""ECALP against a dense graph that is made anew for each image, its neighbours, and its first answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from faircontext import ECALP, Backbone, ZeroShot
from faircontext.methods.ecalp import Neighbours, class_variance, insert_node
from made_streams import answers, assert_agrees, episode_of, labels_of, make_stream, same_views
from oracles import ecalp as oracle


@pytest.mark.parametrize(
    "classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_stream_is_answered_as_by_a_dense_graph(backbone: Backbone, classes: int) -> None:
    stream = make_stream(classes, 100)
    slow = oracle.ECALP(stream[1].numpy())
    state = assert_agrees(ECALP(), stream, backbone, lambda views: slow.answer(views[0]))
    assert state.tensors["labels"].tolist() == [label for label, _ in slow.labels]
    np.testing.assert_allclose(state.tensors["values"], [value for _, value in slow.labels], rtol=1e-5)


@pytest.mark.parametrize("options", [{"k_image": 1, "k_text": 1}, {"k_image": 3, "gamma": 3, "iterations": 5}], ids=str)
def test_other_settings_agree_as_well(backbone: Backbone, options: dict) -> None:
    stream = make_stream(6, 60)
    slow = oracle.ECALP(stream[1].numpy(), **options)
    assert_agrees(ECALP(**options), stream, backbone, lambda views: slow.answer(views[0]))


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 9))
def test_neighbours_are_exact_and_of_equal_ones_the_older(seed: int, count: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, (count, count)) / 4  # many are equal
    values = np.float32(np.triu(values) + np.triu(values, 1).T)
    kept = Neighbours(torch.zeros(0, width, dtype=torch.long), torch.zeros(0, width))
    for node in range(count):
        kept = insert_node(kept, torch.from_numpy(values[: node + 1, node].copy()))
    for row, indices, similarities in zip(values, *kept, strict=True):
        expected = oracle.nearest(row, width)
        assert indices.tolist() == expected + [-1] * (width - len(expected))
        assert similarities[: len(expected)].tolist() == row[expected].tolist()


def test_the_first_image_is_answered_by_its_own_edges(backbone: Backbone) -> None:
    features, text = same_views([[0.8, 0.6, 0.0, 0.0]], 4)
    episode = episode_of(features[0], labels_of(text, backbone))
    prediction = ECALP(k_text=1)(episode)
    assert prediction.index == 0
    assert prediction.probabilities.tolist() == [1.0, 0.0, 0.0, 0.0]  # an edge to one class, and to its own copy
    assert prediction.ranking.tolist() == [0, 1, 2, 3]  # the rest as by zero-shot
    both = ECALP(k_text=2)(episode).probabilities
    assert both[0] > both[1] > 0
    assert both[2:].tolist() == [0.0, 0.0]


def test_where_no_label_reaches_an_image_zero_shot_answers(backbone: Backbone) -> None:
    features, text = same_views([[0.0, 0.0, 0.0, 1.0]], 3)
    episode = episode_of(features[0], labels_of(text, backbone))
    prediction = ECALP()(episode)  # orthogonal to all classes, and to the dimensions in which they differ
    assert "answered by zero-shot" in prediction.fallback
    assert torch.equal(prediction.probabilities, ZeroShot()(episode).probabilities)


def test_classes_of_equal_features_cannot_be_told_apart_by_dimensions(backbone: Backbone) -> None:
    features, text = make_stream(2, 20)
    method, labels = ECALP(), labels_of(text[:1].repeat(2, 1), backbone)
    state = method.start(labels)
    prediction, state = method.step(episode_of(features[1], labels), state)
    assert prediction.fallback == "all classes have the same text features: answered by zero-shot"
    assert prediction.index == 0
    assert state.seen == 0


def test_the_weights_of_dimensions_are_the_variance_over_classes() -> None:
    text = torch.tensor([[1.0, 2.0, 0.0], [3.0, 2.0, 4.0]], dtype=torch.float64)
    expected = torch.tensor([2.0, 0.0, 8.0], dtype=torch.float64) / 68**0.5
    torch.testing.assert_close(class_variance(text), expected)


def test_the_memory_grows_by_an_image_each(backbone: Backbone) -> None:
    for _, prediction, state in answers(ECALP(), make_stream(3, 30), backbone):
        assert {len(tensor) for tensor in state.tensors.values()} == {state.seen}
        assert prediction.diagnostics["memory"] == state.seen
        assert all(tensor.is_contiguous() for tensor in state.tensors.values())
