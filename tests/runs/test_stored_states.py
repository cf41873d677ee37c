"""States of every method with a memory: stored and read between any two images, they go on to the bit."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from faircontext import Backbone, StreamMethod, create_method, list_methods
from faircontext.methods.stream import is_stream
from faircontext.runs.streams import read_state, write_state
from helpers import assert_identical
from made_streams import labels_of, make_stream, take_steps

STREAMS = [name for name in list_methods() if is_stream(name)]
SMALL = {"dmn": {"slots": 3}, "ecalp": {"k_image": 3}}
"""Settings with which memories are full, or have to choose, within few images."""


@pytest.fixture(params=STREAMS)
def method(request: pytest.FixtureRequest) -> StreamMethod:
    created = create_method(request.param, **SMALL.get(request.param, {}))
    assert isinstance(created, StreamMethod)
    return created


@pytest.mark.parametrize("cut", [1, 13, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (2, 3, 5, 8, 21, 34))])
def test_a_stream_goes_on_from_a_stored_state_to_the_bit(
    cut: int, method: StreamMethod, tiny: Callable[[str], Backbone], tmp_path: Path
) -> None:
    features, text = make_stream(3, 40, 4)
    labels, path = labels_of(text, tiny("clip")), tmp_path / "state.safetensors"
    state, again = method.start(labels, 40), method.start(labels, 40)
    whole = [*take_steps(method, features, labels, state)]
    parts = [*take_steps(method, features[:cut], labels, again)]
    write_state(path, again)
    read = read_state(path, method, labels, 40)
    parts += take_steps(method, features[cut:], labels, read, first=cut)
    for one, other in zip(whole, parts, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_identical(one, other)
    assert (read.seen, read.chain) == (state.seen, state.chain)
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in state.tensors.items())


def test_a_shorter_stream_is_the_beginning_of_a_longer_one_of_the_same_horizon(
    method: StreamMethod, tiny: Callable[[str], Backbone]
) -> None:
    features, text = make_stream(4, 40, 4)
    labels = labels_of(text, tiny("clip"))
    short, long = ([*take_steps(method, some, labels, method.start(labels, 40))] for some in (features[:25], features))
    for one, other in zip(short, long[:25], strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_identical(one, other)
