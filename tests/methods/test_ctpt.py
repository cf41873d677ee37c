"""C-TPT: the dispersion of text features, and TPT with it or without."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import CTPT, TPT, Backbone, Episode, LabelSpace, ViewRecipe
from faircontext.methods.tpt import text_dispersion
from faircontext.methods.tuning import tune_context
from helpers import assert_identical, assert_valid
from oracles import losses_of_baselines as oracle

NAMES = ("dog", "fire truck", "three-toed sloth", "cat", "rocket")
TEMPLATE = "a photo of a {}."
SEEDS = st.integers(0, 2**32 - 1)


def normal(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def episode(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> Episode:
    return Episode(make_image(0), LabelSpace(NAMES, tiny("clip")), ViewRecipe(count=64))


@given(SEEDS, st.integers(1, 12), st.integers(2, 32))
def test_dispersion_agrees_with_its_definition_and_with_a_rotation(seed: int, classes: int, dim: int) -> None:
    text = F.normalize(normal(classes, dim, seed), dim=-1)
    rotation = torch.linalg.qr(normal(dim, dim, seed + 1)).Q
    expected = oracle.text_dispersion(text.numpy())
    assert text_dispersion(text).item() == pytest.approx(expected, abs=1e-12)
    assert text_dispersion(text @ rotation).item() == pytest.approx(expected, abs=1e-12)
    assert text_dispersion(text.float()).item() == pytest.approx(expected, abs=1e-5)


def test_dispersion_by_hand() -> None:
    # Opposite features have their mean at zero, which is not normalised; at a right angle it is at half their sum.
    assert text_dispersion(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).item() == pytest.approx(1.0)
    assert text_dispersion(torch.eye(2)).item() == pytest.approx(0.5**0.5)
    assert text_dispersion(torch.ones(3, 1)).item() == 0.0


def test_the_gradient_of_dispersion_flows_through_the_mean_as_well() -> None:
    text = F.normalize(normal(4, 3, 0), dim=-1).requires_grad_()
    assert torch.autograd.gradcheck(text_dispersion, text)


def test_without_dispersion_it_is_tpt_to_the_bit(episode: Episode) -> None:
    for settings_ in ({}, {"steps": 3, "rho": 0.3}):
        assert_identical(CTPT(dispersion=0.0, **settings_)(episode), TPT(**settings_)(episode))


@pytest.mark.parametrize("settings_", [{}, {"dispersion": 1.0, "steps": 3}, {"dispersion": 20.0, "rho": 0.3}], ids=str)
def test_answers_agree_with_the_slow_reimplementation(episode: Episode, tiny_double: Backbone, settings_: dict) -> None:
    method, scale = CTPT(**settings_), episode.backbone.logit_scale
    views, start = episode.view_features.double().numpy(), episode.labels.zero_shot_text.double().numpy()
    kept = oracle.kept_views(scale * views @ start.T, method.rho)

    def loss(text: np.ndarray) -> float:
        entropy = oracle.marginal_entropy(scale * views[kept] @ text.T)
        return entropy - method.dispersion * oracle.text_dispersion(text)

    options = {"lr": method.lr, "weight_decay": method.weight_decay, "steps": method.steps}
    text = oracle.tuned_text(tiny_double, NAMES, TEMPLATE, loss, **options)
    prediction = method(episode)
    np.testing.assert_allclose(prediction.probabilities, oracle.softmax(scale * text @ views[0]), rtol=0, atol=1e-4)
    plain = TPT(rho=method.rho, steps=method.steps)(episode).probabilities
    assert (prediction.probabilities - plain).abs().max() > 0.01  # a hundred times the tolerance
    assert prediction.diagnostics["views"] == tuple(kept)
    assert prediction.diagnostics["steps"] == method.steps
    assert prediction.diagnostics["loss_0"] == pytest.approx(loss(start), rel=1e-5, abs=1e-5)
    assert prediction.diagnostics["loss_after"] == pytest.approx(loss(text), rel=1e-4)
    assert prediction.fallback is None


def test_dispersion_drives_text_features_apart(episode: Episode) -> None:
    tuned = tune_context(episode.labels, lambda text: -text_dispersion(text), lr=1e-3, weight_decay=0.0, steps=2)
    assert text_dispersion(tuned.text) > text_dispersion(episode.labels.zero_shot_text) + 0.01


@pytest.mark.parametrize("names", [("cat",), ("cat", "cat", "cat")])
def test_equal_text_features_have_a_gradient_of_zero(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray], names: tuple[str, ...]
) -> None:
    episode = Episode(make_image(0), LabelSpace(names, tiny("clip")), ViewRecipe(count=8))
    prediction = CTPT()(episode)
    assert_valid(prediction, len(names))
    assert prediction.fallback is None
    assert prediction.probabilities.tolist() == pytest.approx([1 / len(names)] * len(names))
