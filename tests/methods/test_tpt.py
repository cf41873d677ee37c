"""TPT, C-TPT and R-TPT against a reimplementation with numerical slopes, and what each adds to TPT."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import CTPT, RTPT, TPT, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot
from faircontext.methods.rtpt import reliability_weights
from faircontext.methods.tpt import text_dispersion
from faircontext.methods.tuning import tune_context
from helpers import assert_identical, assert_same_answer, assert_valid
from oracles import losses_of_baselines as oracle

NAMES = ("dog", "fire truck", "three-toed sloth", "cat", "rocket")
TEMPLATE = "a photo of a {}."
SEEDS = st.integers(0, 2**32 - 1)


def unit(rows: int, dim: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, dim, generator=generator, dtype=torch.float64), dim=-1)


@pytest.fixture(scope="module")
def episode(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> Episode:
    return Episode(make_image(0), LabelSpace(NAMES, tiny("clip")), ViewRecipe(count=64))


def loss_by_hand(method: TPT | CTPT | RTPT, logits: np.ndarray, text: np.ndarray) -> float:
    if isinstance(method, RTPT):
        return oracle.mean_entropy(logits)
    dispersion = method.dispersion * oracle.text_dispersion(text) if isinstance(method, CTPT) else 0.0
    return oracle.marginal_entropy(logits) - dispersion


def weights_by_hand(method: TPT | CTPT | RTPT, views: np.ndarray) -> np.ndarray:
    """Weights of the views in the answer: R-TPT averages all, the others take the plain one."""
    if isinstance(method, RTPT):
        return oracle.reliability(views, method.neighbours, method.temperature)
    return np.eye(len(views))[0]


@pytest.mark.parametrize(
    "method",
    [
        *(TPT(), TPT(steps=3), TPT(rho=0.3, lr=0.02, weight_decay=0.5)),
        *(CTPT(), CTPT(dispersion=1.0, steps=3), CTPT(dispersion=20.0, rho=0.3)),
        *(RTPT(), RTPT(steps=3, neighbours=5, temperature=0.1), RTPT(rho=0.3, neighbours=100)),
    ],
    ids=repr,
)
def test_answers_agree_with_the_slow_reimplementation(
    method: TPT | CTPT | RTPT, episode: Episode, tiny_double: Backbone
) -> None:
    scale = episode.backbone.logit_scale
    views, start = episode.view_features.double().numpy(), episode.labels.zero_shot_text.double().numpy()
    kept = oracle.kept_views(scale * views @ start.T, method.rho)

    def loss(text: np.ndarray) -> float:
        return loss_by_hand(method, scale * views[kept] @ text.T, text)

    options = {"lr": method.lr, "weight_decay": method.weight_decay, "steps": method.steps}
    text = oracle.tuned_text(tiny_double, NAMES, TEMPLATE, loss, **options)
    weights, prediction = weights_by_hand(method, views), method(episode)
    expected = oracle.softmax(oracle.weighted_logits(weights, views, text, scale))
    np.testing.assert_allclose(prediction.probabilities, expected, rtol=0, atol=1e-4)
    plain = ZeroShot()(episode) if isinstance(method, TPT) else TPT(rho=method.rho, steps=method.steps)(episode)
    assert (prediction.probabilities - plain.probabilities).abs().max() > 0.01  # a hundred times the tolerance
    diagnostics = prediction.diagnostics
    assert (diagnostics["views"], diagnostics["steps"]) == (tuple(kept), method.steps)
    assert diagnostics["loss_0"] == pytest.approx(loss(start), rel=1e-5, abs=1e-5)
    assert diagnostics["loss_after"] == pytest.approx(loss(text), rel=1e-4, abs=1e-4)
    assert {name for name in diagnostics if name[5:].isdecimal()} == {f"loss_{step}" for step in range(method.steps)}
    moved = np.linalg.norm(text - start, axis=1).mean()
    assert diagnostics["text_shift"] == pytest.approx(moved, abs=2e-4)
    if isinstance(method, RTPT):
        np.testing.assert_allclose(diagnostics["weights"], weights, rtol=0, atol=1e-4)
    assert prediction.fallback is None


def test_tpt_answers_by_the_plain_view_alone(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray], episode: Episode
) -> None:
    other = Episode(make_image(0), LabelSpace(NAMES, tiny("clip")), ViewRecipe(count=64))
    vars(other)["view_features"] = episode.view_features.clone()
    dropped = [view for view in range(1, 64) if view not in TPT()(episode).diagnostics["views"]]
    vars(other)["view_features"][dropped[0]] = episode.view_features[dropped[1]]
    assert_same_answer(TPT()(other), TPT()(episode))


# Dispersion


@given(SEEDS, st.integers(1, 12), st.integers(2, 32))
def test_dispersion_agrees_with_its_definition_and_with_a_rotation(seed: int, classes: int, dim: int) -> None:
    text = unit(classes, dim, seed)
    rotation = torch.linalg.qr(unit(dim, dim, seed + 1)).Q
    expected = oracle.text_dispersion(text.numpy())
    assert text_dispersion(text).item() == pytest.approx(expected, abs=1e-12)
    assert text_dispersion(text @ rotation).item() == pytest.approx(expected, abs=1e-12)


def test_the_gradient_of_dispersion_flows_through_the_mean_as_well() -> None:
    assert torch.autograd.gradcheck(text_dispersion, unit(4, 3, 0).requires_grad_())


def test_without_dispersion_it_is_tpt_to_the_bit(episode: Episode) -> None:
    settings = {"steps": 3, "rho": 0.3}
    assert_identical(CTPT(dispersion=0.0, **settings)(episode), TPT(**settings)(episode))


def test_dispersion_drives_text_features_apart(episode: Episode) -> None:
    tuned = tune_context(episode.labels, lambda text: -text_dispersion(text), lr=1e-3, weight_decay=0.0, steps=2)
    assert text_dispersion(tuned.text) > text_dispersion(episode.labels.zero_shot_text) + 0.01


@pytest.mark.parametrize("names", [("cat",), ("cat", "cat", "cat")])
def test_equal_text_features_have_a_gradient_of_zero(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray], names: tuple[str, ...]
) -> None:
    prediction = CTPT()(Episode(make_image(0), LabelSpace(names, tiny("clip")), ViewRecipe(count=8)))
    assert_valid(prediction, len(names))
    assert prediction.fallback is None
    assert prediction.probabilities.tolist() == pytest.approx([1 / len(names)] * len(names))


# Reliability of views


@given(SEEDS, st.integers(2, 30), st.integers(1, 40), st.sampled_from([0.01, 0.1, 10.0]))
def test_weights_agree_with_their_definition(seed: int, number: int, neighbours: int, temperature: float) -> None:
    views = unit(number, 6, seed)
    weights = reliability_weights(views, neighbours, temperature)
    np.testing.assert_allclose(weights, oracle.reliability(views.numpy(), neighbours, temperature), rtol=0, atol=1e-10)


def test_a_view_is_no_neighbour_of_itself() -> None:
    # Two equal views have each other; the third has none, though it is as similar to itself as any.
    views = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    expected = oracle.softmax(np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(reliability_weights(views, 1, 1.0), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("number", [1, 2, 64])
def test_identical_views_have_equal_weights(number: int) -> None:
    views = unit(1, 32, 0).float().expand(number, 32)
    np.testing.assert_allclose(reliability_weights(views, 20, 0.01), np.full(number, 1 / number), rtol=1e-3)


@pytest.mark.parametrize("method", [RTPT(lr=0.0), RTPT(steps=0)], ids=repr)
def test_without_a_step_rtpt_is_a_weighted_mean_of_untuned_logits(method: RTPT, episode: Episode) -> None:
    views, text = episode.view_features.double().numpy(), episode.labels.zero_shot_text.double().numpy()
    scale, weights = episode.backbone.logit_scale, oracle.reliability(views, 20, 0.01)
    expected = oracle.softmax(oracle.weighted_logits(weights, views, text, scale))
    np.testing.assert_allclose(method(episode).probabilities, expected, rtol=0, atol=1e-5)
    posteriors = sum(w * oracle.softmax(scale * text @ view) for w, view in zip(weights, views, strict=True))
    assert np.abs(posteriors - expected).max() > 1e-4  # the mean is of logits, not of posteriors
