"""RLCF in both variants: rewards, the loss in its two forms, and answers against a slow reimplementation."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import (
    RLCF,
    Backbone,
    Episode,
    LabelSpace,
    RLCFEncoder,
    ViewRecipe,
    ZeroShot,
    create_backbone,
    create_method,
)
from faircontext.errors import ArgumentError
from faircontext.methods.rlcf import feedback_loss, rewards_of_views
from faircontext.methods.tuning import select_views
from helpers import assert_valid, same_bits
from oracles import losses_of_baselines as oracle

NAMES = ("dog", "fire truck", "three-toed sloth", "cat", "rocket")
TEMPLATE = "a photo of a {}."
SEEDS = st.integers(0, 2**32 - 1)
VARIANTS = [RLCF, RLCFEncoder]


def normal(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def image(make_image: Callable[..., np.ndarray]) -> np.ndarray:
    return make_image(0)


@pytest.fixture(scope="module")
def teacher(tiny_folder: Callable[[str], Path]) -> Backbone:
    """A model with another architecture and image size than the policy; its text is turned to where its images are."""
    backbone = create_backbone(f"local-dir:{tiny_folder('resnet')}", precision="fp32")
    backbone.text_encoder.projection.neg_()
    assert backbone.image_size == 64
    return backbone


@pytest.fixture(scope="module")
def episode(tiny: Callable[[str], Backbone], image: np.ndarray, teacher: Backbone) -> Episode:
    labels = LabelSpace(NAMES, tiny("clip"))
    assert labels.backbone.image_size == 32
    labels.others["teacher"] = LabelSpace(NAMES, teacher)
    return Episode(image, labels, ViewRecipe(count=64))


def by_hand(features: Tensor, text: Tensor) -> np.ndarray:
    return np.maximum(2.5 * features.double().numpy() @ text.double().numpy().T, 0.0)


# The loss


@given(SEEDS, st.integers(1, 6), st.integers(1, 8), st.integers(1, 10))
def test_the_loss_agrees_with_its_definition(seed: int, views: int, classes: int, k: int) -> None:
    logits, rewards = 5.0 * normal(views, classes, seed), normal(views, classes, seed + 1).abs()
    expected = oracle.feedback(logits.numpy(), rewards.numpy(), k)
    assert feedback_loss(logits.log_softmax(-1), rewards, k).item() == pytest.approx(expected, abs=1e-10)
    single = feedback_loss(logits.float().log_softmax(-1), rewards.float(), k).item()
    assert single == pytest.approx(expected, abs=1e-5)


@given(SEEDS, st.integers(1, 6), st.integers(2, 8), st.integers(2, 8))
def test_the_gradient_of_the_cross_entropy_form_is_that_of_the_linear_form(
    seed: int, views: int, classes: int, k: int
) -> None:
    logits, rewards = (5.0 * normal(views, classes, seed)).requires_grad_(), normal(views, classes, seed + 1).abs()
    (gradient,) = torch.autograd.grad(feedback_loss(logits.log_softmax(-1), rewards, k), logits)
    linear = np.zeros((views, classes))
    sampled = oracle.sampled(logits.detach().numpy(), rewards.numpy(), k)
    for view, c, advantage in sampled:
        linear[view, c] = -advantage / len(sampled)
    np.testing.assert_allclose(gradient, linear, rtol=0, atol=1e-12)
    both = (form(logits.detach().numpy(), rewards.numpy(), k) for form in (oracle.feedback, oracle.linear_feedback))
    assert next(both) == pytest.approx(next(both), abs=1e-10)


def test_one_class_alone_keeps_its_reward_and_has_a_gradient() -> None:
    logits, rewards = normal(3, 4, 0).requires_grad_(), torch.full((3, 4), 0.5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(feedback_loss(logits.log_softmax(-1), rewards, 1), logits)
    chosen = F.one_hot(logits.argmax(-1), 4)
    expected = 0.5 * (logits.detach().softmax(-1) - chosen) / 3
    torch.testing.assert_close(gradient, expected)
    assert gradient.abs().max() > 0.01


# Rewards


def test_the_policys_own_rewards_are_scaled_cosines(episode: Episode) -> None:
    kept = select_views(episode, episode.labels.zero_shot_text, 0.1)
    expected = by_hand(episode.view_features[kept], episode.labels.zero_shot_text)
    np.testing.assert_allclose(rewards_of_views(episode, kept, None), expected, rtol=0, atol=1e-5)


def test_rewards_are_never_negative(episode: Episode, image: np.ndarray) -> None:
    other = Episode(image, LabelSpace(NAMES, episode.backbone), episode.recipe)
    vars(other)["view_features"] = F.normalize(normal(64, 32, 0), dim=-1).float()
    rewards = rewards_of_views(other, torch.arange(64), None)
    np.testing.assert_allclose(rewards, by_hand(other.view_features, other.labels.zero_shot_text), rtol=0, atol=1e-5)
    assert 0 < float((rewards == 0).float().mean()) < 1


def test_another_models_rewards_are_of_its_own_views(episode: Episode, image: np.ndarray, teacher: Backbone) -> None:
    kept = select_views(episode, episode.labels.zero_shot_text, 0.1)
    own = Episode(image, LabelSpace(NAMES, teacher), episode.recipe)
    assert own.views.shape == (64, 3, 64, 64)
    features = teacher.encode_image(own.views[kept] / 255.0)
    rewards = rewards_of_views(episode, kept, "teacher")
    np.testing.assert_allclose(rewards, by_hand(features, own.labels.zero_shot_text), rtol=0, atol=1e-5)
    assert (rewards > 0.01).all()
    assert (rewards - rewards_of_views(episode, kept, None)).abs().max() > 0.05


@pytest.mark.parametrize("classes", [4, 400])
def test_of_equally_probable_classes_the_first_are_sampled(classes: int) -> None:
    logits = torch.zeros(3, classes, dtype=torch.float64)
    logits[:, -1] = 1.0
    rewards = torch.rand(3, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = oracle.feedback(logits.numpy(), rewards.numpy(), 3)
    assert feedback_loss(logits.log_softmax(-1), rewards, 3).item() == pytest.approx(expected, abs=1e-12)
    assert feedback_loss(logits.float().log_softmax(-1), rewards.float(), 3).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_another_models_rewards_change_the_answer_and_the_kept_views_alone_are_encoded(
    variant: type, episode: Episode, teacher: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = teacher.encode_image
    monkeypatch.setattr(teacher, "encode_image", lambda pixels: encoded.append(len(pixels)) or encode(pixels))
    prediction = variant(reward="teacher", lr=0.001)(episode)
    assert encoded == [6]
    assert prediction.fallback is None
    assert (prediction.probabilities - variant(lr=0.001)(episode).probabilities).abs().max() > 0.01


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_unknown_reward_model_is_named(variant: type, episode: Episode) -> None:
    with pytest.raises(ArgumentError, match=r"^[^\n]*VIT-L-41[^\n]*$"):
        variant(reward="VIT-L-41:openai")(episode)


# The prompt variant


@pytest.mark.parametrize(
    ("settings_", "reward"),
    [({}, None), ({"k": 1}, "teacher"), ({"k": 2, "steps": 4, "rho": 0.3}, "teacher"), ({"k": 9, "steps": 1}, None)],
    ids=str,
)
def test_answers_agree_with_the_slow_reimplementation(
    episode: Episode, tiny_double: Backbone, settings_: dict, reward: str | None
) -> None:
    method, scale = RLCF(**settings_, reward=reward), episode.backbone.logit_scale
    views, start = episode.view_features.double().numpy(), episode.labels.zero_shot_text.double().numpy()
    kept = oracle.kept_views(scale * views @ start.T, method.rho)
    judge = episode if reward is None else episode.on(reward)
    rewards = by_hand(judge.view_features[kept], judge.labels.zero_shot_text)

    def loss(text: np.ndarray) -> float:
        return oracle.feedback(scale * views[kept] @ text.T, rewards, method.k)

    options = {"lr": method.lr, "weight_decay": method.weight_decay, "steps": method.steps}
    text = oracle.tuned_text(tiny_double, NAMES, TEMPLATE, loss, **options)
    prediction = method(episode)
    np.testing.assert_allclose(prediction.probabilities, oracle.softmax(scale * text @ views[0]), rtol=0, atol=1e-3)
    assert (prediction.probabilities - ZeroShot()(episode).probabilities).abs().max() > 0.05
    assert prediction.diagnostics["views"] == tuple(kept)
    assert prediction.diagnostics["steps"] == method.steps
    assert prediction.diagnostics["loss_0"] == pytest.approx(loss(start), abs=1e-5)
    assert prediction.diagnostics["loss_after"] == pytest.approx(loss(text), abs=1e-3)
    assert prediction.fallback is None


# The encoder variant


def tuned_encoder_by_hand(episode: Episode, method: RLCFEncoder) -> np.ndarray:
    """The plain view's probabilities after tuning a copy of the encoder by the linear form and AdamW by hand."""
    backbone, text, scale = episode.backbone, episode.labels.zero_shot_text, episode.backbone.logit_scale
    views, start = episode.view_features.double().numpy(), text.double().numpy()
    kept = oracle.kept_views(scale * views @ start.T, method.rho)
    rewards = by_hand(episode.view_features[kept], text)
    encoder = copy.deepcopy(backbone.image_encoder).double().requires_grad_()
    weights = list(encoder.parameters())
    optimizers = [oracle.AdamW(method.lr, method.weight_decay) for _ in weights]
    mean, std = (torch.tensor(values)[:, None, None] for values in (backbone.mean, backbone.std))
    pixels = ((episode.views / 255.0 - mean) / std).double()
    for _ in range(method.steps):
        logits = scale * F.normalize(encoder(pixels[kept]), dim=-1) @ text.double().T
        sampled = oracle.sampled(logits.detach().numpy(), rewards, method.k)
        loss = -sum(advantage * logits[view, c] for view, c, advantage in sampled) / len(sampled)
        gradients = torch.autograd.grad(loss, weights)
        for weight, gradient, optimizer in zip(weights, gradients, optimizers, strict=True):
            weight.data = torch.from_numpy(optimizer.step(weight.detach().numpy(), gradient.numpy()))
    with torch.no_grad():
        z = F.normalize(encoder(pixels[:1]), dim=-1)[0]
    return oracle.softmax(scale * start @ z.numpy())


@pytest.mark.parametrize("settings_", [{}, {"k": 2, "lr": 1e-4, "steps": 2, "weight_decay": 0.5}], ids=str)
def test_a_tuned_tower_answers_as_one_that_is_tuned_by_hand(episode: Episode, settings_: dict) -> None:
    method = RLCFEncoder(**settings_)
    prediction = method(episode)
    np.testing.assert_allclose(prediction.probabilities, tuned_encoder_by_hand(episode, method), rtol=0, atol=1e-4)
    assert (prediction.probabilities - ZeroShot()(episode).probabilities).abs().max() > 0.01
    assert len(prediction.diagnostics["views"]) == 6
    assert prediction.diagnostics["steps"] == method.steps
    assert {f"loss_{step}" for step in range(method.steps)} <= set(prediction.diagnostics)
    assert prediction.diagnostics["image_shift"] > 0.01
    assert prediction.fallback is None


def test_a_tower_with_batch_norms_is_tuned_and_their_statistics_are_kept(teacher: Backbone, image: np.ndarray) -> None:
    episode = Episode(image, LabelSpace(NAMES, teacher), ViewRecipe(count=20))
    before = {name: value.clone() for name, value in teacher.image_encoder.state_dict().items()}
    prediction = RLCFEncoder()(episode)
    assert_valid(prediction, 5)
    assert prediction.diagnostics["image_shift"] > 0
    assert any("running_mean" in name for name in before)
    assert all(same_bits(value, before[name]) for name, value in teacher.image_encoder.state_dict().items())


def test_a_tower_in_lower_precision_is_refused(tiny_folder: Callable[[str], Path], image: np.ndarray) -> None:
    backbone = create_backbone(f"local-dir:{tiny_folder('clip')}", precision="bf16")
    message = r"^rlcf_encoder needs a backbone with an image tower in float32 \(precision fp32\); .* in bf16, has none$"
    with pytest.raises(ArgumentError, match=message):
        create_method("rlcf_encoder", backbone=backbone)
    with pytest.raises(ArgumentError, match=message):
        RLCFEncoder()(Episode(image, LabelSpace(NAMES, backbone), ViewRecipe(count=8)))
    assert_valid(RLCF()(Episode(image, LabelSpace(NAMES, backbone), ViewRecipe(count=8))), 5)
