"""What is the same for all methods with a memory: a call, beginnings, images without a trace, foreign states."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from faircontext import (
    Backbone,
    Episode,
    LabelSpace,
    Prediction,
    StreamMethod,
    StreamState,
    ViewRecipe,
    create_method,
    list_methods,
)
from faircontext.errors import ArgumentError, FeatureError
from faircontext.methods.predict import predict_by_logits
from faircontext.methods.stream import StateUpdate, is_stream, text_on_cpu
from helpers import assert_identical
from made_streams import episode_of, labels_of, make_stream, take_steps

STREAMS = [name for name in list_methods() if is_stream(name)]


@pytest.fixture(params=STREAMS)
def method(request: pytest.FixtureRequest) -> StreamMethod:
    created = create_method(request.param)
    assert isinstance(created, StreamMethod)
    return created


def snapshot(state: StreamState) -> tuple:
    return state.seen, state.chain, state.open, {name: tensor.clone() for name, tensor in state.tensors.items()}


def assert_untouched(state: StreamState, before: tuple) -> None:
    assert (state.seen, state.chain, state.open) == before[:3]
    assert state.tensors.keys() == before[3].keys()
    assert all(torch.equal(state.tensors[name], tensor) for name, tensor in before[3].items())


def test_a_call_is_the_first_answer_of_a_stream(
    method: StreamMethod, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog", "rocket"), tiny("clip"))
    episodes = [Episode(make_image(number), labels, ViewRecipe(count=12)) for number in range(3)]
    state, alone = method.start(labels, 1), [method(episode) for episode in episodes]
    first, state = method.step(episodes[0], state)
    assert_identical(alone[0], first)
    assert first.diagnostics["t"] == state.seen == 1
    assert [one.diagnostics["t"] for one in alone] == [1, 1, 1]


def test_a_stream_depends_on_the_images_before_and_on_nothing_else(
    method: StreamMethod, tiny: Callable[[str], Backbone]
) -> None:
    features, text = make_stream(3, n=20, views=4)
    labels = labels_of(text, tiny("clip"))

    def answer(order: list[int]) -> list[Prediction | None]:
        return [*take_steps(method, [features[k] for k in order], labels, method.start(labels, 20))]

    first, again = answer([*range(20)]), answer([*range(20)])
    for one, other in zip(first, again, strict=True):
        if one is not None and other is not None:
            assert_identical(one, other)
    backwards = answer([*range(19, -1, -1)])
    assert not torch.equal(first[19].probabilities, backwards[0].probabilities)


def test_what_has_no_features_leaves_no_trace(method: StreamMethod, tiny: Callable[[str], Backbone]) -> None:
    features, text = make_stream(3, n=12, views=4)
    labels = labels_of(text, tiny("clip"))
    state = method.start(labels, 100)
    assert len([*take_steps(method, features, labels, state)]) == 12
    before = snapshot(state)
    with pytest.raises(FeatureError):
        method.step(episode_of(torch.full_like(features[0], torch.nan), labels), state)
    assert_untouched(state, before)


def test_a_single_class_is_answered_and_leaves_no_trace(
    method: StreamMethod, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat",), tiny("clip"))
    state = method.start(labels, 5)
    before = snapshot(state)
    prediction, state = method.step(Episode(make_image(0), labels), state)
    assert (prediction.index, prediction.confidence) == (0, 1.0)
    assert prediction.fallback == "there is a single class: answered by zero-shot"
    assert "t" not in prediction.diagnostics
    assert_untouched(state, before)


def test_tensors_of_a_state_can_be_stored(method: StreamMethod, tiny: Callable[[str], Backbone]) -> None:
    features, text = make_stream(3, n=20, views=4)
    labels = labels_of(text, tiny("clip"))
    state = method.start(labels, 20)
    assert len([*take_steps(method, features, labels, state)]) == 20
    for tensor in state.tensors.values():
        assert tensor.dtype in (torch.float32, torch.int64, torch.bool)
        assert tensor.is_contiguous()
        assert tensor.device.type == "cpu"
        assert not tensor.requires_grad
        assert not tensor.is_inference()
    pointers = [tensor.data_ptr() for tensor in state.tensors.values() if tensor.numel()]
    assert len({*pointers}) == len(pointers)


def test_states_of_something_else_are_refused_by_name(
    method: StreamMethod, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels, backbone = LabelSpace(("cat", "dog"), tiny("clip")), tiny("clip")
    state = method.start(labels, 5)
    for other, named in [
        (LabelSpace(("cat", "rocket"), backbone), "classes 2"),
        (LabelSpace(("cat", "dog"), backbone, ["a {}."]), "templates"),
    ]:
        with pytest.raises(ArgumentError, match=rf"^invalid state: it is of {named} .*; start a stream anew$"):
            method.step(Episode(make_image(0), other), state)
    state.open = True
    with pytest.raises(ArgumentError, match="it was left half changed; start the stream anew"):
        method.step(Episode(make_image(0), labels), state)


def test_the_chain_names_the_images_their_order_and_their_views(tiny: Callable[[str], Backbone]) -> None:
    labels, method = LabelSpace(("cat", "dog"), tiny("clip")), create_method("tda")
    assert isinstance(method, StreamMethod)

    def chain(numbers: list[int], seed: int = 0) -> str:
        state = method.start(labels)
        for number in numbers:
            _, state = method.step(Episode(np.full((8, 8, 3), number, np.uint8), labels, seed=seed), state)
        return state.chain

    assert chain([1, 2, 3]) == chain([1, 2, 3])
    assert len({chain(one) for one in ([], [1], [1, 2], [2, 1], [1, 2, 2])} | {chain([1, 2], seed=1)}) == 6
    with pytest.raises(ArgumentError, match="horizon=0 is not possible"):
        method.start(labels, 0)


@dataclass(frozen=True)
class Running(StreamMethod):
    """Zero-shot with the mean of all logits so far taken off, which must know how many images come."""

    name = "running"
    needs_horizon = True

    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:
        assert horizon is not None
        return {"sum": torch.zeros(len(labels)), "left": torch.tensor([horizon])}

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        logits = text_on_cpu(episode.labels) @ episode.z.double()
        mean = state.tensors["sum"].double() / max(1, state.seen)

        def update() -> None:
            state.tensors["sum"] += logits.float()
            state.tensors["left"] -= 1

        return predict_by_logits(logits - mean, {}), update


def test_a_method_that_needs_the_length_of_its_stream_is_told(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog"), tiny("clip"))
    with pytest.raises(ArgumentError, match=r"^running needs the number of images of its stream; give horizon=$"):
        Running().start(labels)
    state = Running().start(labels, 3)
    assert state.origin["horizon"] == 3
    assert create_method("tda").origin(labels, 3)["horizon"] is None
    with torch.inference_mode():  # as a caller may have it
        for number in range(2):
            _, state = Running().step(Episode(make_image(number), labels), state)
    assert state.tensors["left"].tolist() == [1]
    assert state.megabytes == pytest.approx((2 * 4 + 8) / 1e6)
    assert Running()(Episode(make_image(0), labels)).index in (0, 1)
