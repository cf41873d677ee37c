"""TTL: the cut image encoder, low-rank updates and their gradients, and answers against an encoder that is changed."""

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import TTL, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot, create_backbone, create_method
from faircontext.calibrate import Descent, minimise
from faircontext.errors import ArgumentError
from faircontext.explore import entropy
from faircontext.methods.ttl import low_rank_update, weighted_entropy
from faircontext.methods.tuning import view_log_posteriors
from helpers import assert_valid, same_bits
from oracles import losses_of_baselines as oracle

NAMES = ("dog", "fire truck", "three-toed sloth", "cat", "rocket")
SEEDS = st.integers(0, 2**32 - 1)
MakeImage = Callable[..., np.ndarray]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def labels(tiny: Callable[[str], Backbone]) -> LabelSpace:
    return LabelSpace(NAMES, tiny("clip"))


@pytest.fixture(scope="module")
def episode(labels: LabelSpace, make_image: MakeImage) -> Episode:
    """Forty views, so that gradients are summed over two full groups and a smaller one."""
    return Episode(make_image(0), labels, ViewRecipe(count=40))


@pytest.fixture
def factors(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """`A` and `B` of every image, as they start and as they are learnt."""
    seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def spy(parameters: Sequence[Tensor], *rest: Any, **options: Any) -> Descent:
        a, b = parameters
        seen.append((a.detach().clone(), b.detach().clone(), a, b))
        return minimise(parameters, *rest, **options)

    monkeypatch.setattr("faircontext.methods.tuning.minimise", spy)
    return seen


def changed_encoder(backbone: Backbone, a: Tensor, b: Tensor, scale: float) -> torch.nn.Module:
    """A copy of the encoder in float64 with `W + scale B A` in the queries and values of its last blocks."""
    encoder = copy.deepcopy(backbone.image_encoder).double()
    for block, down, up in zip(encoder.transformer.resblocks[-len(a) :], a.double(), b.double(), strict=True):
        weight, width = block.attn.in_proj_weight, down.shape[-1]
        weight[:width] += scale * up[0] @ down[0]
        weight[2 * width :] += scale * up[1] @ down[1]
    return encoder


def features_of(encoder: torch.nn.Module, episode: Episode) -> Tensor:
    mean, std = (torch.tensor(row)[:, None, None] for row in (episode.backbone.mean, episode.backbone.std))
    with torch.no_grad():
        return F.normalize(encoder(((episode.views / 255.0 - mean) / std).double()), dim=-1)


# The loss and the updates


@given(SEEDS, st.integers(1, 12), st.integers(1, 8), st.sampled_from([0.0, 0.4, 3.0]))
def test_the_loss_agrees_with_its_definition(seed: int, views: int, classes: int, threshold: float) -> None:
    logits = 3.0 * normal(views, classes, seed=seed)
    terms = weighted_entropy(entropy(logits.log_softmax(-1)), threshold)
    expected = oracle.weighted_entropy(logits.double().numpy(), threshold)
    assert float(terms.mean()) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(SEEDS, st.floats(0.0, 3.0))
def test_weights_fall_with_the_entropy_and_have_no_gradient(seed: int, threshold: float) -> None:
    entropies = (normal(20, seed=seed).abs().double().sort().values + 0.01 * torch.arange(20)).requires_grad_()
    (gradient,) = torch.autograd.grad(weighted_entropy(entropies, threshold).sum(), entropies)
    expected = [math.exp(threshold - h) for h in entropies.tolist()]
    assert gradient.tolist() == pytest.approx(expected)
    assert (gradient.diff() < 0).all()


def test_updates_are_of_queries_and_values_alone() -> None:
    a, b = normal(2, 2, 3, 5, seed=0), normal(2, 2, 5, 3, seed=1)
    updates = low_rank_update(a, b, 2.0)
    assert updates.shape == (2, 15, 5)
    for block in range(2):
        torch.testing.assert_close(updates[block, :5], 2.0 * b[block, 0] @ a[block, 0])
        assert (updates[block, 5:10] == 0).all()
        torch.testing.assert_close(updates[block, 10:], 2.0 * b[block, 1] @ a[block, 1])


# The cut encoder


@pytest.mark.parametrize("layout", ["clip", "siglip", "coca"])
@pytest.mark.parametrize("blocks", [1, 4])
def test_without_updates_the_cut_tower_has_the_towers_own_features(
    tiny: Callable[[str], Backbone], make_image: MakeImage, layout: str, blocks: int
) -> None:
    backbone = tiny(layout)
    views = Episode(make_image(0), LabelSpace(NAMES, backbone), ViewRecipe(count=20)).views / 255.0
    encoder = backbone.split_encoder(blocks)
    features = encoder.above(encoder.below(views), torch.zeros(encoder.blocks, 3 * encoder.width, encoder.width))
    torch.testing.assert_close(features, backbone.encode_image(views), rtol=0, atol=1e-6)


@pytest.mark.parametrize("blocks", [1, 3])
def test_updates_change_features_as_they_would_change_the_tower(
    episode: Episode, labels: LabelSpace, blocks: int
) -> None:
    a, b = normal(blocks, 2, 4, 32, seed=0), 0.1 * normal(blocks, 2, 32, 4, seed=1)
    encoder = labels.backbone.split_encoder(blocks)
    features = encoder.above(encoder.below(episode.views / 255.0), low_rank_update(a, b, 2.0))
    expected = features_of(changed_encoder(labels.backbone, a, b, 2.0), episode)
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-5)
    assert (features - episode.view_features).abs().max() > 0.01


def test_a_lower_precision_is_below_the_cut_alone(tiny_folder: Callable[[str], Path], make_image: MakeImage) -> None:
    backbone = create_backbone(f"local-dir:{tiny_folder('clip')}", precision="bf16")
    episode = Episode(make_image(0), LabelSpace(NAMES, backbone), ViewRecipe(count=8))
    encoder = backbone.split_encoder(3)
    tokens = encoder.below(episode.views / 255.0)
    assert tokens.dtype == torch.float32
    features = encoder.above(tokens, torch.zeros(3, 96, 32))
    assert features.dtype == torch.float32
    assert (features * episode.view_features).sum(-1).min() > 0.999
    prediction = TTL()(episode)
    assert_valid(prediction, 5)
    assert prediction.fallback is None


# Gradients and steps


def test_the_first_step_decays_a_and_moves_b_by_the_sign_of_the_gradient_over_all_views(
    episode: Episode, labels: LabelSpace, factors: list
) -> None:
    TTL()(episode)
    ((start, zero, a, b),) = factors
    assert start.shape == (3, 2, 16, 32)
    assert (zero == 0).all()
    torch.testing.assert_close(a.detach(), start * (1 - 0.005 * 0.01), rtol=1e-6, atol=0)
    encoder, leaf = labels.backbone.split_encoder(3), zero.clone().requires_grad_()
    features = encoder.above(encoder.below(episode.views / 255.0), low_rank_update(start, leaf, 2.0))
    entropies = entropy(view_log_posteriors(features, labels.zero_shot_text, labels.backbone.logit_scale))
    (gradient,) = torch.autograd.grad(weighted_entropy(entropies, 0.4).mean(), leaf)
    clear = gradient.abs() > 1e-5
    assert clear.float().mean() > 0.9
    torch.testing.assert_close(b.detach()[clear], -0.005 * gradient.sign()[clear], rtol=0, atol=0.005 * 2e-3)


def test_b_moves_a_at_the_second_step(episode: Episode, factors: list) -> None:
    TTL(steps=2, weight_decay=0.0)(episode)
    ((start, _, a, _),) = factors
    expected = oracle.AdamW(0.005, 0.0)
    expected.step(np.zeros(1), np.zeros(1))  # at the first step A has no gradient
    step = abs(float(expected.step(np.zeros(1), np.ones(1))[0]))
    moved = (a.detach() - start).abs()
    assert float((moved - step).abs().median()) < 1e-5


def test_a_depends_on_the_seed_alone(labels: LabelSpace, make_image: MakeImage, factors: list) -> None:
    for image, seed in ((0, 0), (1, 0), (0, 1)):
        TTL(steps=0, rank=64)(Episode(make_image(image), labels, ViewRecipe(count=2), seed))
    first, other_image, other_seed = (start for start, *_ in factors)
    assert same_bits(first, other_image)
    assert not torch.equal(first, other_seed)
    assert float(first.std()) == pytest.approx(math.sqrt(2 / (32 + 64)), rel=0.05)
    assert abs(float(first.mean())) < 0.01


@pytest.mark.parametrize(
    "settings_",
    [{}, {"steps": 3}, {"blocks": 1, "rank": 2, "alpha": 8.0, "threshold": 1.0}, {"blocks": 4, "lr": 0.02}],
    ids=str,
)
def test_the_answer_is_of_a_tower_with_the_learnt_updates(episode: Episode, factors: list, settings_: dict) -> None:
    method = TTL(**settings_)
    prediction = method(episode)
    ((start, _, a, b),) = factors
    scale, text = episode.backbone.logit_scale, episode.labels.zero_shot_text.double().numpy()
    encoder = changed_encoder(episode.backbone, a.detach(), b.detach(), method.alpha / method.rank)
    features = features_of(encoder, episode).numpy()
    np.testing.assert_allclose(prediction.probabilities, oracle.softmax(scale * text @ features[0]), rtol=0, atol=1e-4)
    assert (prediction.probabilities - ZeroShot()(episode).probabilities).abs().max() > 0.005
    before = oracle.weighted_entropy(scale * episode.view_features.double().numpy() @ text.T, method.threshold)
    assert len(start) == method.blocks
    assert prediction.diagnostics["loss_0"] == pytest.approx(before, abs=1e-5)
    assert prediction.diagnostics["steps"] == method.steps
    assert f"loss_{method.steps - 1}" in prediction.diagnostics
    shift = np.linalg.norm(features[0] - episode.z.numpy())
    assert prediction.diagnostics["image_shift"] == pytest.approx(shift, abs=1e-4)
    assert prediction.fallback is None


# What is refused


def test_more_blocks_than_there_are_are_refused_by_name(episode: Episode) -> None:
    with pytest.raises(ArgumentError, match=r"^blocks=99 is not possible; the image tower of local-dir:\S* has 4$"):
        TTL(blocks=99)(episode)


def test_a_tower_without_attention_blocks_is_refused(
    tiny: Callable[[str], Backbone], make_image: MakeImage, lite: Backbone
) -> None:
    message = r"^ttl needs a backbone with attention blocks that can be adapted \(a vision .*\); .* has none$"
    for backbone in (tiny("resnet"), lite):
        with pytest.raises(ArgumentError, match=message):
            create_method("ttl", backbone=backbone)
        with pytest.raises(ArgumentError, match=message):
            TTL()(Episode(make_image(0), LabelSpace(NAMES, backbone), ViewRecipe(count=2)))
