"""TPT against a reimplementation with numerical slopes, at its limits, and where it must fall back."""

from collections.abc import Callable

import numpy as np
import pytest

from faircontext import TPT, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot
from helpers import assert_same_answer
from oracles import losses_of_baselines as oracle

NAMES = ("dog", "fire truck", "three-toed sloth", "cat", "rocket")
TEMPLATE = "a photo of a {}."


@pytest.fixture(scope="module")
def episode(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> Episode:
    return Episode(make_image(0), LabelSpace(NAMES, tiny("clip")), ViewRecipe(count=64))


@pytest.mark.parametrize("settings", [{}, {"steps": 3}, {"rho": 0.3, "lr": 0.02, "weight_decay": 0.5}], ids=str)
def test_answers_agree_with_the_slow_reimplementation(episode: Episode, tiny_double: Backbone, settings: dict) -> None:
    method, scale = TPT(**settings), episode.backbone.logit_scale
    views = episode.view_features.double().numpy()
    kept = oracle.kept_views(scale * views @ episode.labels.zero_shot_text.double().numpy().T, method.rho)

    def loss(text: np.ndarray) -> float:
        return oracle.marginal_entropy(scale * views[kept] @ text.T)

    options = {"lr": method.lr, "weight_decay": method.weight_decay, "steps": method.steps}
    text = oracle.tuned_text(tiny_double, NAMES, TEMPLATE, loss, **options)
    prediction = method(episode)
    np.testing.assert_allclose(prediction.probabilities, oracle.softmax(scale * text @ views[0]), rtol=0, atol=1e-4)
    untuned = ZeroShot()(episode).probabilities
    assert (prediction.probabilities - untuned).abs().max() > 0.01  # a hundred times the tolerance
    diagnostics = prediction.diagnostics
    assert diagnostics["views"] == tuple(kept)
    assert diagnostics["steps"] == method.steps
    assert diagnostics["loss_0"] == pytest.approx(loss(episode.labels.zero_shot_text.double().numpy()), abs=1e-5)
    assert diagnostics["loss_after"] == pytest.approx(loss(text), abs=1e-4)
    assert f"loss_{method.steps - 1}" in diagnostics
    assert f"loss_{method.steps}" not in diagnostics
    moved = np.linalg.norm(text - episode.labels.zero_shot_text.numpy(), axis=1).mean()
    assert diagnostics["text_shift"] == pytest.approx(moved, abs=1e-4)


def test_the_answer_is_of_the_plain_view_alone(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray], episode: Episode
) -> None:
    other = Episode(make_image(0), LabelSpace(NAMES, tiny("clip")), ViewRecipe(count=64))
    vars(other)["view_features"] = episode.view_features.clone()
    dropped = [view for view in range(1, 64) if view not in TPT()(episode).diagnostics["views"]]
    vars(other)["view_features"][dropped[0]] = episode.view_features[dropped[1]]
    assert_same_answer(TPT()(other), TPT()(episode))
