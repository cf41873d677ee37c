"""TDA: against lists and loops on streams with ties, duplicates and NaN, and what is known of it by hand."""

import math
from typing import Literal

import numpy as np
import pytest
import torch

from faircontext import TDA, Backbone
from faircontext.methods import TDAVariants
from made_streams import assert_agrees, episode_of, labels_of, make_stream, take_steps
from oracles import tda as oracle


@pytest.mark.parametrize(("views", "label"), [(1, "zero-shot"), (12, "zero-shot"), (12, "fcl-vote"), (1, "fcl-vote")])
@pytest.mark.parametrize(
    "classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_stream_is_answered_as_by_lists_and_loops(
    backbone: Backbone, classes: int, views: int, label: Literal["zero-shot", "fcl-vote"]
) -> None:
    features, text = make_stream(classes, views=views)
    memory, options = oracle.Memory(), {"rho": 0.25, "voted": label == "fcl-vote"}
    method = TDAVariants(views="plain" if views == 1 else "confident", rho=0.25, label=label)

    def answer(seen: np.ndarray) -> np.ndarray:
        return oracle.answer(memory, seen, text.numpy(), backbone.logit_scale, **options)[1]

    state = assert_agrees(method, (features, text), backbone, answer)
    stored = sum(map(len, memory.positive.values())), sum(map(len, memory.negative.values()))
    assert stored == (int(state.tensors["positive_count"].sum()), int(state.tensors["negative_count"].sum()))
    assert min(stored) > 0


@pytest.mark.slow
def test_two_classes_are_lowered_alike(backbone: Backbone) -> None:
    features, text = make_stream(2)
    labels = labels_of(text, backbone)
    with_it, without = TDA(), TDA(negative_capacity=0)
    answers = [
        [one.probabilities for one in take_steps(method, features, labels, method.start(labels)) if one is not None]
        for method in (with_it, without)
    ]
    torch.testing.assert_close(torch.stack(answers[0]), torch.stack(answers[1]), rtol=0, atol=1e-7)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_normalised_entropy_is_at_most_the_logarithm_of_two(backbone: Backbone, classes: int) -> None:
    features, text = make_stream(classes, 40)
    labels = labels_of(text, backbone)
    even = text.new_zeros(1, 1, text.shape[1])  # all classes are equally probable
    seen = [*take_steps(TDA(), [*features, *even], labels, TDA().start(labels))]
    entropies = [one.diagnostics["entropy"] for one in seen if one is not None]
    assert max(entropies) == entropies[-1] == pytest.approx(math.log(2), abs=1e-6)


def test_one_image_is_zero_shot_with_its_own_class_raised(backbone: Backbone) -> None:
    features, text = make_stream(3)
    labels = labels_of(text, backbone)
    prediction = TDA(alpha=1.5, negative_capacity=0)(episode_of(features[1], labels))
    logits = labels.backbone.logit_scale * text.double() @ features[1, 0].double()
    logits[logits.argmax()] += 1.5  # it meets itself, at a cosine of 1
    torch.testing.assert_close(prediction.probabilities, logits.softmax(-1).float(), rtol=0, atol=2e-6)
    assert prediction.diagnostics["memory"] == 1
