"""TDA: against lists and loops on streams with ties, duplicates and NaN, and what is known of it by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from faircontext import TDA, Backbone, create_method
from faircontext.methods import TDAVariants
from helpers import assert_valid
from made_streams import episode_of, labels_of, make_stream, take_steps
from oracles import tda as oracle


@pytest.mark.parametrize(("views", "label"), [(1, "zero-shot"), (12, "zero-shot"), (12, "fcl-vote"), (1, "fcl-vote")])
@pytest.mark.parametrize(
    "classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_stream_is_answered_as_by_lists_and_loops(
    tiny: Callable[[str], Backbone], classes: int, views: int, label: Literal["zero-shot", "fcl-vote"]
) -> None:
    backbone = tiny("clip")
    features, text = make_stream(classes, views=views)
    labels = labels_of(text, backbone)
    method = TDAVariants(views="plain" if views == 1 else "confident", rho=0.25, label=label)
    state, memory = method.start(labels), oracle.Memory()
    wrong = gap = answered = 0
    for views_of_image, prediction in zip(features, take_steps(method, features, labels, state), strict=True):
        expected = oracle.answer(
            memory, views_of_image.numpy(), text.numpy(), backbone.logit_scale, rho=0.25, voted=label == "fcl-vote"
        )
        assert (prediction is None) == (expected is None)
        if prediction is not None:
            answered += 1
            assert_valid(prediction, classes)
            assert prediction.diagnostics["t"] == answered
            wrong += prediction.index != expected[0]
            gap = max(gap, float(np.abs(prediction.probabilities.numpy() - expected[1]).max()))
    assert (wrong, state.seen) == (0, answered)
    assert gap < 1e-6
    assert answered == len(features) - 2
    stored = sum(map(len, memory.positive.values())), sum(map(len, memory.negative.values()))
    assert stored == (int(state.tensors["positive_count"].sum()), int(state.tensors["negative_count"].sum()))
    assert min(stored) > 0


@pytest.mark.slow
def test_two_classes_are_lowered_alike(tiny: Callable[[str], Backbone]) -> None:
    features, text = make_stream(2)
    labels = labels_of(text, tiny("clip"))
    with_it, without = TDA(), TDA(negative_capacity=0)
    answers = [
        [one.probabilities for one in take_steps(method, features, labels, method.start(labels)) if one is not None]
        for method in (with_it, without)
    ]
    torch.testing.assert_close(torch.stack(answers[0]), torch.stack(answers[1]), rtol=0, atol=1e-7)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_normalised_entropy_is_at_most_the_logarithm_of_two(tiny: Callable[[str], Backbone], classes: int) -> None:
    features, text = make_stream(classes, 40)
    labels = labels_of(text, tiny("clip"))
    even = text.new_zeros(1, 1, text.shape[1])  # all classes are equally probable
    seen = [*take_steps(TDA(), [*features, *even], labels, TDA().start(labels))]
    entropies = [one.diagnostics["entropy"] for one in seen if one is not None]
    assert max(entropies) == entropies[-1] == pytest.approx(math.log(2), abs=1e-6)


def test_the_authors_settings_are_of_data_sets() -> None:
    assert create_method("tda", preset="official") == TDA()
    assert create_method("tda", preset="official", dataset="my_photos") == TDA()
    assert create_method("tda", preset="paper", dataset="caltech101") == TDA()
    assert create_method("tda", preset="official", dataset="caltech101") == TDA(alpha=5.0, beta=5.0)
    sketch = create_method("tda", preset="official", dataset="imagenet_sketch", beta=4.0)
    assert sketch == TDA(alpha=2.363, beta=4.0, views="confident")
    assert sketch.sees_views
    assert not replace(sketch, views="plain").sees_views


def test_one_image_is_zero_shot_with_its_own_class_raised(tiny: Callable[[str], Backbone]) -> None:
    features, text = make_stream(3)
    labels = labels_of(text, tiny("clip"))
    prediction = TDA(alpha=1.5, negative_capacity=0)(episode_of(features[1], labels))
    logits = labels.backbone.logit_scale * text.double() @ features[1, 0].double()
    logits[logits.argmax()] += 1.5  # it meets itself, at a cosine of 1
    torch.testing.assert_close(prediction.probabilities, logits.softmax(-1).float(), rtol=0, atol=2e-6)
    assert prediction.diagnostics["memory"] == 1
