"""MTA's solver against plain NumPy, at its limits, and as an answer."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import MTA, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot
from faircontext.methods.mta import find_mode
from helpers import assert_valid
from oracles import losses_of_baselines as losses, mta as oracle

NAMES = ("dog", "fire truck", "three-toed sloth", "cat", "rocket")
SEEDS = st.integers(0, 2**32 - 1)


def normal(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cluster(rows: int, seed: int, spread: float = 0.4) -> Tensor:
    """Unit vectors around a common direction, as an image's views are."""
    return F.normalize(normal(1, 12, seed) / 12**0.5 + spread * normal(rows, 12, seed + 1) / 12**0.5, dim=-1)


def posteriors_of(views: Tensor, seed: int = 7) -> Tensor:
    return (20.0 * views @ F.normalize(normal(5, views.shape[1], seed), dim=-1).T).softmax(-1)


def affinity_of(views: Tensor, seed: int = 7) -> Tensor:
    return posteriors_of(views, seed) @ posteriors_of(views, seed).T


@pytest.fixture(scope="module")
def labels(tiny: Callable[[str], Backbone]) -> LabelSpace:
    return LabelSpace(NAMES, tiny("clip"))


# The solver


@given(
    SEEDS,
    st.integers(2, 30),
    st.floats(0.05, 1.0),
    st.sampled_from([0.1, 0.2, 1.0]),
    st.sampled_from([0.0, 1.0, 4.0]),
    st.integers(1, 6),
)
def test_mode_and_weights_agree_with_plain_numpy(
    seed: int, number: int, neighbours: float, lambda_y: float, lambda_q: float, iterations: int
) -> None:
    views, options = cluster(number, seed), {"lambda_y": lambda_y, "lambda_q": lambda_q, "iterations": iterations}
    found = find_mode(views, affinity_of(views), neighbours=neighbours, **options)
    expected = oracle.find_mode(views.numpy(), posteriors_of(views).numpy(), neighbours, **options)
    np.testing.assert_allclose(found.mode, expected.mode, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-6)
    assert float(found.mode.norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("number", [1, 2, 3, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_views_have_themselves_as_their_mode(number: int, dtype: torch.dtype) -> None:
    views = cluster(1, seed=0).to(dtype).expand(number, 12)
    found = find_mode(views, affinity_of(views.double()).to(dtype))
    torch.testing.assert_close(found.mode, views[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(found.weights, torch.full((number,), 1 / number, dtype=dtype))


@given(SEEDS, st.integers(3, 20))
def test_copies_of_a_view_have_equal_weights(seed: int, number: int) -> None:
    views = cluster(number, seed)
    views = torch.cat([views, views[1:2], views[1:2]])
    weights = find_mode(views, affinity_of(views)).weights
    assert weights[[-2, -1]].tolist() == pytest.approx([float(weights[1])] * 2, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_far_outlier_moves_the_mode_less_than_the_mean(seed: int) -> None:
    views = cluster(16, seed, spread=0.2)
    outlier = F.normalize(normal(1, 12, seed + 100) - 3.0 * views[:1], dim=-1)
    more = torch.cat([views, outlier])
    before, after = find_mode(views, affinity_of(views)), find_mode(more, affinity_of(more))
    mean = [F.normalize(rows.mean(0), dim=-1) for rows in (views, more)]
    assert after.weights[-1] < 1e-3
    assert (after.mode - before.mode).norm() < 0.5 * (mean[1] - mean[0]).norm()


def test_outliers_that_change_the_means_class_do_not_change_the_modes() -> None:
    text = torch.eye(12, dtype=torch.float64)[:2]
    good = F.normalize(0.7 * text[0] + 0.6 * text[1] + 0.02 * normal(6, 12, 0), dim=-1)
    views = torch.cat([good, F.normalize(text[1] + 0.2 * normal(2, 12, 1), dim=-1)])
    posteriors = (20.0 * views @ text.T).softmax(-1)
    assert (text @ good.mean(0)).argmax() == 0
    assert (text @ views.mean(0)).argmax() == 1
    assert (text @ find_mode(views, posteriors @ posteriors.T).mode).argmax() == 0


# The method


@pytest.mark.parametrize(
    "settings_", [{}, {"neighbours": 0.1, "iterations": 2}, {"lambda_q": 0.0, "lambda_y": 1.0}], ids=str
)
@pytest.mark.parametrize("seed", range(2))
def test_answers_agree_with_the_slow_reimplementation(
    labels: LabelSpace, make_image: Callable[..., np.ndarray], settings_: dict, seed: int
) -> None:
    episode = Episode(make_image(seed), labels, ViewRecipe(count=64))
    prediction = MTA(**settings_)(episode)
    views, text = episode.view_features.double().numpy(), labels.zero_shot_text.double().numpy()
    scale = labels.backbone.logit_scale
    posteriors = np.array([losses.softmax(scale * text @ view) for view in views])
    expected = oracle.find_mode(views, posteriors, **settings_)
    logits = scale * text @ expected.mode
    np.testing.assert_allclose(prediction.probabilities, losses.softmax(logits), rtol=0, atol=1e-5)
    np.testing.assert_allclose(prediction.diagnostics["weights"], expected.weights, rtol=0, atol=1e-5)
    assert prediction.ranking.tolist() == np.argsort(-logits).tolist()
    assert (prediction.probabilities - ZeroShot()(episode).probabilities).abs().max() > 1e-3
    assert prediction.fallback is None
    assert_valid(prediction, 5)


@pytest.mark.parametrize("grey", [0, 200])
def test_an_image_of_one_colour_is_answered_as_by_zero_shot(labels: LabelSpace, grey: int) -> None:
    episode = Episode(np.full((40, 50, 3), grey, np.uint8), labels, ViewRecipe(count=16))
    expected = ZeroShot()(episode).probabilities
    torch.testing.assert_close(MTA()(episode).probabilities, expected, rtol=0, atol=1e-5)


def test_one_view_is_answered_as_by_zero_shot(labels: LabelSpace, make_image: Callable[..., np.ndarray]) -> None:
    episode = Episode(make_image(0), labels, ViewRecipe(count=1))
    assert torch.equal(MTA()(episode).probabilities, ZeroShot()(episode).probabilities)
