"""OnZeta against plain NumPy, its log form, what it keeps true of its state, and the length of its stream."""

import numpy as np
import pytest
import torch

from faircontext import Backbone, OnZeta, ZeroShot
from faircontext.errors import ArgumentError
from made_streams import answers, assert_agrees, episode_of, labels_of, make_stream, same_views
from oracles import onzeta as oracle


@pytest.mark.parametrize("options", [{}, {"beta": 0.4, "alpha": 0.0}, {"c_w": 2.0, "c_rho": 1.0}], ids=str)
@pytest.mark.parametrize(
    "classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_stream_is_answered_as_by_plain_numpy(backbone: Backbone, classes: int, options: dict) -> None:
    stream = make_stream(classes)
    names = {"c_w": "cw", "c_rho": "cr"}
    slow = oracle.OnZeta(
        stream[1].numpy(), backbone.logit_scale, 120, **{names.get(key, key): value for key, value in options.items()}
    )
    state = assert_agrees(OnZeta(**options), stream, backbone, lambda views: slow.answer(views[0]))
    np.testing.assert_allclose(state.tensors["rho"], slow.rho, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state.tensors["proxies"], slow.proxies, rtol=0, atol=1e-5)
    assert state.seen == 118


@pytest.mark.parametrize("classes", [2, 10])
def test_the_balance_is_never_negative_and_proxies_keep_unit_length(backbone: Backbone, classes: int) -> None:
    largest = 0.0
    for _, _, state in answers(OnZeta(), make_stream(classes, 80), backbone):
        assert (state.tensors["rho"] >= 0).all()
        largest = max(largest, float(state.tensors["rho"].max()))
        torch.testing.assert_close(state.tensors["proxies"].norm(dim=1), torch.ones(classes), rtol=0, atol=1e-6)
    assert largest > 1.0


def test_the_first_image_is_answered_before_anything_is_learnt(backbone: Backbone) -> None:
    features, text = same_views([[0.8, 0.6, 0.1, 0.0]], 3)
    labels = labels_of(text, backbone)
    episode = episode_of(features[0], labels)
    scale, z = backbone.logit_scale, features[0, 0]
    soft = [(factor * text @ z).softmax(-1) for factor in (scale, scale / 4)]
    expected = 0.8 * 0.1 * soft[1] + (1 - 0.8 * 0.1) * soft[0]  # sqrt(1 / 100) of beta
    prediction, _ = OnZeta().step(episode, OnZeta().start(labels, 100))
    torch.testing.assert_close(prediction.probabilities, expected, rtol=0, atol=1e-6)
    plain = OnZeta(beta=0.0).step(episode, OnZeta(beta=0.0).start(labels, 100))[0]
    torch.testing.assert_close(plain.probabilities, ZeroShot()(episode).probabilities, rtol=0, atol=1e-6)


def test_without_a_balance_the_classes_keep_their_logits(backbone: Backbone) -> None:
    stream = make_stream(3, 40)
    for number, prediction, state in answers(OnZeta(alpha=0.0, beta=0.0), stream, backbone):
        assert not state.tensors["rho"].any()
        expected = ZeroShot()(episode_of(stream[0][number], labels_of(stream[1], backbone)))
        torch.testing.assert_close(prediction.probabilities, expected.probabilities, rtol=0, atol=1e-6)


def test_an_answer_depends_on_the_length_of_the_stream(backbone: Backbone) -> None:
    stream = make_stream(4, 20)
    short, same, long = (
        [prediction.probabilities for _, prediction, _ in answers(OnZeta(), stream, backbone, horizon)]
        for horizon in (20, 20, 40)
    )
    assert all(torch.equal(*pair) for pair in zip(short, same, strict=True))
    assert not any(torch.equal(*pair) for pair in zip(short[2:], long[2:], strict=True))


def test_a_stream_longer_than_its_horizon_is_refused_and_no_length_as_well(backbone: Backbone) -> None:
    features, text = make_stream(3, 20)
    labels = labels_of(text, backbone)
    state = OnZeta().start(labels, 1)
    OnZeta().step(episode_of(features[0], labels), state)
    with pytest.raises(
        ArgumentError, match=r"^invalid horizon 1: the stream has more images; start one with its length$"
    ):
        OnZeta().step(episode_of(features[2], labels), state)
    assert state.seen == 1
    with pytest.raises(ArgumentError, match=r"^onzeta needs the number of images of its stream; give horizon=$"):
        OnZeta().start(labels)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_beta_is_a_share(value: float) -> None:
    with pytest.raises(ArgumentError, match=r"^beta=.* is not possible; it must be a number from 0 to 1$"):
        OnZeta(beta=value)
