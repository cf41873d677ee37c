"""What the methods that tune share: selection, losses, the optimiser's step, contexts, and what they leave behind."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import (
    TPS,
    TTL,
    Backbone,
    Episode,
    LabelSpace,
    Method,
    RLCFEncoder,
    ViewRecipe,
    ZeroShot,
    create_method,
)
from faircontext.backbones.open_clip import OpenClip
from faircontext.errors import LabelError
from faircontext.explore import entropy
from faircontext.methods.rlcf import feedback_loss
from faircontext.methods.ttl import weighted_entropy
from faircontext.methods.tuning import marginal_entropy, mean_entropy, select_views, tune_context, view_log_posteriors
from helpers import assert_valid, same_bits
from oracles import losses_of_baselines as oracle

MakeImage = Callable[..., np.ndarray]
NAMES = ("dog", "fire truck", "three-toed sloth", "cat", "rocket")
TUNED = ("tpt", "ctpt", "rlcf", "rlcf_encoder", "ttl", "tps", "rtpt")
TEXT_TUNED = ("tpt", "ctpt", "rlcf")
TEMPLATES = ("a photo of a {}.", "art of the {}.", "{} texture.")
SEEDS = st.integers(0, 2**32 - 1)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(rows: int, dim: int, seed: int) -> Tensor:
    return F.normalize(normal(rows, dim, seed=seed), dim=-1)


@pytest.fixture(scope="module")
def labels(backbone: Backbone) -> LabelSpace:
    return LabelSpace(NAMES, backbone)


@pytest.fixture(scope="module")
def new_episode(labels: LabelSpace, make_image: MakeImage) -> Callable[..., Episode]:
    def make(image: int = 0, views: int = 20, space: LabelSpace = labels) -> Episode:
        return Episode(make_image(image), space, ViewRecipe(count=views))

    return make


@pytest.fixture(params=TUNED)
def method(request: pytest.FixtureRequest) -> Method:
    return create_method(request.param)


def with_features(episode: Episode, features: Tensor) -> Episode:
    episode.known["view_features"] = features.float()
    return episode


# Selection


@pytest.mark.parametrize(
    ("number", "rho", "size"), [(64, 0.1, 6), (64, 0.3, 19), (64, 1.0, 64), (10, 0.1, 1), (8, 0.1, 1), (1, 0.3, 1)]
)
def test_a_fraction_of_the_views_is_selected_and_never_none(
    new_episode: Callable[..., Episode], number: int, rho: float, size: int
) -> None:
    episode = with_features(new_episode(), unit(number, 32, seed=number))
    assert len(select_views(episode, episode.labels.zero_shot_text, rho)) == size


@given(SEEDS, st.integers(1, 40), st.floats(0.01, 1.0))
def test_the_views_of_lowest_entropy_are_selected(
    new_episode: Callable[..., Episode], seed: int, number: int, rho: float
) -> None:
    episode = with_features(new_episode(), unit(number, 32, seed=seed))
    text = episode.labels.zero_shot_text
    logits = (episode.backbone.logit_scale * episode.view_features @ text.T).double().numpy()
    assert select_views(episode, text, rho).tolist() == oracle.kept_views(logits, rho)


# Losses


@given(SEEDS, st.integers(1, 12), st.integers(1, 8), st.floats(0.1, 30.0))
def test_entropies_agree_with_their_definitions(seed: int, views: int, classes: int, spread: float) -> None:
    logits = spread * normal(views, classes, seed=seed)
    for log_posteriors in (logits.log_softmax(-1), logits.float().log_softmax(-1)):
        expected = oracle.marginal_entropy(logits.numpy()), oracle.mean_entropy(logits.numpy())
        assert marginal_entropy(log_posteriors).item() == pytest.approx(expected[0], abs=1e-5)
        assert mean_entropy(log_posteriors).item() == pytest.approx(expected[1], abs=1e-5)


@given(SEEDS, st.integers(1, 12), st.integers(2, 8))
def test_what_tpt_has_over_r_tpt_is_the_divergence_of_the_views(seed: int, views: int, classes: int) -> None:
    logits = 3.0 * normal(views, classes, seed=seed)
    difference = (marginal_entropy(logits.log_softmax(-1)) - mean_entropy(logits.log_softmax(-1))).item()
    assert difference == pytest.approx(oracle.divergence(logits.numpy()), abs=1e-6)
    assert difference >= -1e-6


@pytest.mark.parametrize("loss", [marginal_entropy, mean_entropy])
def test_the_gradient_of_an_entropy_is_its_slope(loss: Callable[[Tensor], Tensor]) -> None:
    def of_logits(logits: Tensor) -> Tensor:
        return loss(logits.log_softmax(-1))

    assert torch.autograd.gradcheck(of_logits, normal(4, 5).requires_grad_())


@pytest.mark.parametrize("loss", [marginal_entropy, mean_entropy])
def test_certain_views_have_a_finite_loss_and_gradient(loss: Callable[[Tensor], Tensor]) -> None:
    logits = torch.tensor([[1e4, 0.0, 0.0], [0.0, 1e4, 0.0]], requires_grad=True)
    value = loss(logits.log_softmax(-1))
    assert value.isfinite()
    assert torch.autograd.grad(value, logits)[0].isfinite().all()


K = 3
REWARDS = np.random.default_rng(0).uniform(0.0, 1.0, (6, 5))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (marginal_entropy, oracle.marginal_entropy),
        (mean_entropy, oracle.mean_entropy),
        (lambda rows: weighted_entropy(entropy(rows), 0.4).mean(), partial(oracle.weighted_entropy, threshold=0.4)),
        (
            lambda rows: feedback_loss(rows, torch.from_numpy(REWARDS).float(), K),
            lambda rows: oracle.feedback(rows, REWARDS, K),
        ),
    ],
    ids=["tpt", "rtpt", "ttl", "rlcf"],
)
@pytest.mark.parametrize("scale", [14.0, 30.0, 40.0, 60.0])  # marginal entropies of 7e-2, 1e-4, 3e-6 and 8e-10
def test_losses_of_nearly_certain_views_do_not_cancel(loss: Callable, expected: Callable, scale: float) -> None:
    text = F.normalize(torch.eye(5, 8) + 0.3, dim=-1)
    views = F.normalize(text[[1]] + 0.02 * normal(6, 8, seed=1).float(), dim=-1)
    logits = scale * views.double().numpy() @ text.double().numpy().T
    leaf = text.clone().requires_grad_()
    value = loss(view_log_posteriors(views, leaf, scale))
    assert value.item() == pytest.approx(expected(logits), rel=1e-6)
    (gradient,) = torch.autograd.grad(value, leaf)
    exact = text.double().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(view_log_posteriors(views.double(), exact, scale)), exact)
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-6, atol=0)


@given(SEEDS)
def test_log_posteriors_are_of_scaled_cosines(seed: int) -> None:
    views, text = unit(4, 8, seed=seed), unit(3, 8, seed=seed + 1)
    expected = [oracle.log_softmax(20.0 * text.numpy() @ view) for view in views.numpy()]
    np.testing.assert_allclose(view_log_posteriors(views, text, 20.0), expected, rtol=0, atol=1e-12)


# Contexts


def toward(target: Tensor, text: Tensor) -> Tensor:
    return -(text * target).sum()


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The contexts that text was encoded with, in their order."""
    seen: list[Tensor] = []
    encode = OpenClip.encode_text

    def spy(self: OpenClip, prompts: object, context: Tensor | None = None, *args: object, **options: object) -> Tensor:
        if context is not None:
            seen.append(context.detach().clone())
        return encode(self, prompts, context, *args, **options)

    monkeypatch.setattr(OpenClip, "encode_text", spy)
    return seen


def test_the_first_step_of_a_context_does_not_depend_on_the_losss_scale(
    labels: LabelSpace, contexts: list[Tensor]
) -> None:
    backbone, target = labels.backbone, unit(5, 32, seed=1).float()
    start = backbone.context(labels.prompts[0])
    leaf = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(toward(target, backbone.encode_text(labels.prompts[0], leaf)), leaf)
    clear = gradient.abs() > 1e-4
    assert clear.float().mean() > 0.9
    learnt = []
    for scale in (1.0, 1e3):
        tune_context(labels, lambda text, s=scale: s * toward(target, text), lr=0.005, weight_decay=0.01, steps=1)
        learnt.append(contexts[-1])
    expected = start * (1 - 0.005 * 0.01) - 0.005 * gradient.sign()
    for context in learnt:
        torch.testing.assert_close(context[clear], expected[clear], rtol=0, atol=0.005 * 2e-4)
    torch.testing.assert_close(learnt[0][clear], learnt[1][clear], rtol=0, atol=0.005 * 2e-4)


@pytest.mark.parametrize("options", [{"lr": 0.0, "steps": 3}, {"lr": 0.005, "steps": 0}], ids=str)
def test_without_a_step_text_is_zero_shots(backbone: Backbone, options: dict) -> None:
    labels = LabelSpace(NAMES, backbone, TEMPLATES)
    tuned = tune_context(labels, partial(toward, unit(5, 32, seed=1).float()), weight_decay=0.01, **options)
    assert len(tuned.losses) == options["steps"]
    torch.testing.assert_close(tuned.text, labels.zero_shot_text, rtol=0, atol=1e-6)


def test_each_template_has_a_context_of_its_own(backbone: Backbone, contexts: list[Tensor]) -> None:
    labels, target = LabelSpace(NAMES, backbone, TEMPLATES), unit(5, 32, seed=1).float()
    starts = [backbone.context(prompts).requires_grad_() for prompts in labels.prompts[:2]]
    features = [backbone.encode_text(prompts, start) for prompts, start in zip(labels.prompts, starts, strict=False)]
    mean = torch.stack([*features, backbone.encode_text(labels.prompts[2])]).mean(0)
    gradients = torch.autograd.grad(toward(target, mean / mean.norm(dim=-1, keepdim=True)), starts)
    contexts.clear()
    tuned = tune_context(labels, partial(toward, target), lr=0.005, weight_decay=0.0, steps=1)
    assert [len(context) for context in contexts] == [4, 3, 4, 3]  # for the gradient, and then the learnt ones
    for start, gradient, context in zip(starts, gradients, contexts[2:], strict=True):
        clear = gradient.abs() > 1e-4
        assert clear.float().mean() > 0.9
        expected = start.detach() - 0.005 * gradient.sign()
        torch.testing.assert_close(context[clear], expected[clear], rtol=0, atol=1e-6)
    learnt = [backbone.encode_text(p, context) for p, context in zip(labels.prompts, contexts[2:4], strict=False)]
    mean = torch.stack([*learnt, backbone.encode_text(labels.prompts[2])]).mean(0)
    torch.testing.assert_close(tuned.text, mean / mean.norm(dim=-1, keepdim=True), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", TEXT_TUNED)
def test_at_a_learning_rate_of_zero_several_templates_are_averaged(
    backbone: Backbone, new_episode: Callable[..., Episode], name: str
) -> None:
    episode = new_episode(space=LabelSpace(NAMES, backbone, TEMPLATES))
    features = [backbone.encode_text(p, backbone.context(p) if p.length else None) for p in episode.labels.prompts]
    text = oracle.unit(torch.stack(features).double().numpy().mean(0))
    expected = oracle.softmax(backbone.logit_scale * text @ episode.z.double().numpy())
    prediction = create_method(name, lr=0.0)(episode)
    np.testing.assert_allclose(prediction.probabilities, expected, rtol=0, atol=1e-6)
    assert prediction.fallback is None


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            "{} texture.",
            r"'\{\} texture.' has no words before the class name for \w+ to learn; use other prompts, or a .*",
        ),
        ("photo{}", r"'photo\{\}' runs into the class name, as in 'photodog' \(put a blank .*"),
    ],
)
def test_a_prompt_without_words_before_the_name_cannot_be_tuned(
    backbone: Backbone, new_episode: Callable[..., Episode], template: str, reason: str
) -> None:
    episode = new_episode(space=LabelSpace(NAMES, backbone, (template,)))
    for refuse in (lambda: create_method("tpt").check_labels(episode.labels), lambda: create_method("rlcf")(episode)):
        with pytest.raises(LabelError, match=f"^prompt template {reason}$"):
            refuse()
    assert_valid(create_method("tps")(episode), 5)  # it does not tune the prompt


@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_tuning(labels: LabelSpace, broken: int, value: float) -> None:
    calls: list[float] = []

    def loss(text: Tensor) -> Tensor:
        calls.append(float(text.detach().sum()))
        return text.sum() * (value if len(calls) == broken + 1 else 1.0)

    tuned = tune_context(labels, loss, lr=0.005, weight_decay=0.0, steps=3)
    assert tuned.failure == "the loss was not finite"
    assert len(tuned.losses) == len(calls) == broken + 1
    assert same_bits(tuned.text, labels.zero_shot_text)


def test_a_context_that_is_not_finite_leaves_the_text_as_it_was(labels: LabelSpace) -> None:
    tuned = tune_context(labels, lambda text: text.sum(), lr=float("inf"), weight_decay=0.0, steps=1)
    assert tuned.failure == "the learnt context was not finite"
    assert same_bits(tuned.text, labels.zero_shot_text)


# What tuning leaves behind


def test_tuning_leaves_the_model_and_the_features_as_they_were(
    method: Method, new_episode: Callable[..., Episode]
) -> None:
    episode = new_episode()
    encoders = episode.backbone.image_encoder, episode.backbone.text_encoder
    weights = [weight.clone() for encoder in encoders for weight in encoder.state_dict().values()]
    kept = [episode.view_features.clone(), episode.labels.zero_shot_text.clone()]
    method(episode)
    after = [weight for encoder in encoders for weight in encoder.state_dict().values()]
    assert all(map(torch.equal, weights, after))
    assert not any(parameter.requires_grad for encoder in encoders for parameter in encoder.parameters())
    assert torch.equal(kept[0], episode.view_features)
    assert torch.equal(kept[1], episode.labels.zero_shot_text)
    assert not any(tensor.requires_grad for tensor in (episode.view_features, episode.labels.zero_shot_text))


def test_tuning_changes_the_answers_probabilities(method: Method, new_episode: Callable[..., Episode]) -> None:
    untuned = create_method(method.name, lr=0.0)(new_episode())
    assert (method(new_episode()).probabilities - untuned.probabilities).abs().max() > 1e-3


# What is learnt and not finite


@pytest.mark.parametrize(
    "method",
    [
        TTL(lr=1e20),
        TTL(lr=1e10, steps=2),
        RLCFEncoder(lr=1e10, steps=1),
        TPS(lr=1e37, steps=2),
        TPS(lr=1e20),
        TPS(weight_decay=1e37, steps=2),
    ],
    ids=repr,
)
def test_an_overflow_is_answered_by_zero_shot_and_said(method: Method, new_episode: Callable[..., Episode]) -> None:
    prediction, expected = method(new_episode()), ZeroShot()(new_episode())
    assert "not finite" in prediction.fallback
    assert torch.equal(prediction.probabilities, expected.probabilities)
