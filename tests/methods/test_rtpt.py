"""R-TPT: weights of the views, and an answer of all of them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import RTPT, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot
from faircontext.methods.rtpt import reliability_weights
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


@given(SEEDS, st.integers(2, 30), st.integers(1, 40), st.sampled_from([0.01, 0.1, 10.0]))
def test_weights_agree_with_their_definition_and_sum_to_one(
    seed: int, number: int, neighbours: int, temperature: float
) -> None:
    views = unit(number, 6, seed)
    weights = reliability_weights(views, neighbours, temperature)
    np.testing.assert_allclose(weights, oracle.reliability(views.numpy(), neighbours, temperature), rtol=0, atol=1e-10)
    assert float(weights.sum()) == pytest.approx(1.0)
    assert (weights >= 0).all()


def test_a_view_is_no_neighbour_of_itself() -> None:
    # Two equal views have each other; the third has none, though it is as similar to itself as any.
    views = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    expected = oracle.softmax(np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(reliability_weights(views, 1, 1.0), expected, rtol=0, atol=1e-6)


def test_the_mean_is_of_the_nearest_views_and_of_no_more_than_there_are() -> None:
    views = unit(7, 5, 0)
    assert torch.equal(reliability_weights(views, 6, 0.1), reliability_weights(views, 20, 0.1))
    assert not torch.allclose(reliability_weights(views, 6, 0.1), reliability_weights(views, 2, 0.1))


@pytest.mark.parametrize("number", [1, 2, 64])
def test_identical_views_have_equal_weights(number: int) -> None:
    views = unit(1, 32, 0).float().expand(number, 32)
    np.testing.assert_allclose(reliability_weights(views, 20, 0.01), np.full(number, 1 / number), rtol=1e-3)


def test_permuting_the_views_permutes_their_weights() -> None:
    views, order = unit(12, 5, 0), torch.from_numpy(np.random.default_rng(0).permutation(12))
    weights = reliability_weights(views, 4, 0.05)
    torch.testing.assert_close(reliability_weights(views[order], 4, 0.05), weights[order])


def test_at_a_learning_rate_of_zero_it_is_a_weighted_ensemble_of_untuned_logits(episode: Episode) -> None:
    views, text = episode.view_features.double().numpy(), episode.labels.zero_shot_text.double().numpy()
    scale, weights = episode.backbone.logit_scale, oracle.reliability(views, 20, 0.01)
    logits = oracle.weighted_logits(weights, views, text, scale)
    for method in (RTPT(lr=0.0), RTPT(steps=0)):
        prediction = method(episode)
        np.testing.assert_allclose(prediction.probabilities, oracle.softmax(logits), rtol=0, atol=1e-5)
        np.testing.assert_allclose(prediction.diagnostics["weights"], weights, rtol=0, atol=1e-4)
        assert prediction.ranking.tolist() == np.argsort(-logits).tolist()
    posteriors = sum(w * oracle.softmax(scale * text @ view) for w, view in zip(weights, views, strict=True))
    assert np.abs(posteriors - oracle.softmax(logits)).max() > 1e-4  # the mean is of logits, not of posteriors
    assert np.abs(oracle.softmax(logits) - ZeroShot()(episode).probabilities.numpy()).max() > 0.01


@pytest.mark.parametrize(
    "settings_", [{}, {"steps": 3, "neighbours": 5, "temperature": 0.1}, {"rho": 0.3, "neighbours": 100}], ids=str
)
def test_answers_agree_with_the_slow_reimplementation(episode: Episode, tiny_double: Backbone, settings_: dict) -> None:
    method, scale = RTPT(**settings_), episode.backbone.logit_scale
    views, start = episode.view_features.double().numpy(), episode.labels.zero_shot_text.double().numpy()
    kept = oracle.kept_views(scale * views @ start.T, method.rho)

    def loss(text: np.ndarray) -> float:
        return oracle.mean_entropy(scale * views[kept] @ text.T)

    options = {"lr": method.lr, "weight_decay": method.weight_decay, "steps": method.steps}
    text = oracle.tuned_text(tiny_double, NAMES, TEMPLATE, loss, **options)
    weights = oracle.reliability(views, method.neighbours, method.temperature)
    prediction = method(episode)
    expected = oracle.softmax(oracle.weighted_logits(weights, views, text, scale))
    np.testing.assert_allclose(prediction.probabilities, expected, rtol=0, atol=1e-4)
    assert prediction.diagnostics["views"] == tuple(kept)
    assert prediction.diagnostics["steps"] == method.steps
    assert prediction.diagnostics["loss_0"] == pytest.approx(loss(start), abs=1e-5)
    assert prediction.diagnostics["loss_after"] == pytest.approx(loss(text), abs=1e-4)
    np.testing.assert_allclose(prediction.diagnostics["weights"], weights, rtol=0, atol=1e-4)
    assert prediction.fallback is None


def test_weights_do_not_depend_on_the_prompt(episode: Episode) -> None:
    untuned, tuned = (RTPT(lr=lr)(episode).diagnostics["weights"] for lr in (0.0, 0.02))
    assert untuned == tuned
