"""PGD reaches what is known on a linear model, stays where it may, and works on real encoders with what they allow."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import Backbone, Episode, FairContextError, LabelSpace, ViewRecipe, ZeroShot
from faircontext.attacks import attacked, attacked_views, check_attackable, pgd
from faircontext.perturbations import Attack
from faircontext.views import Views

NAMES = ("cat", "dog", "horse", "house")


def linear(seed: int, side: int = 6) -> tuple[Tensor, Tensor]:
    """Return a picture in [0, 1] and the weights of two classes, so small that no softmax is saturated."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(3, side, side, generator=generator), 0.1 * torch.randn(2, 3, side, side, generator=generator)


def cross_entropy(weights: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda pixels: F.cross_entropy((weights * pixels).sum((1, 2, 3)), torch.tensor(0))


@given(seed=st.integers(0, 2**31 - 1), eps=st.sampled_from([1 / 255, 4 / 255, 0.1, 0.7]))
def test_on_a_linear_model_it_ends_in_the_corner_of_the_gradients_sign(seed: int, eps: float) -> None:
    """The gradient's sign never changes there: enough steps from any start end in the corner, the best there is."""
    x, weights = linear(seed)
    point = pgd(cross_entropy(weights), x, eps, 12, eps / 4, np.random.default_rng(seed))
    corner = (x + eps * (weights[1] - weights[0]).sign()).clamp(0, 1)
    assert torch.allclose(point, corner, atol=1e-6)
    assert cross_entropy(weights)(point) >= cross_entropy(weights)(x)


@given(
    seed=st.integers(0, 2**31 - 1),
    eps=st.floats(0.001, 1.0),
    steps=st.integers(1, 5),
    step=st.floats(0.0, 2.0),
)
def test_it_never_leaves_what_it_may_change(seed: int, eps: float, steps: int, step: float) -> None:
    x, weights = linear(seed)
    point = pgd(lambda p: (torch.sin(9 * p) * weights[0]).sum(), x, eps, steps, step, np.random.default_rng(seed))
    assert point.min() >= 0
    assert point.max() <= 1
    assert (point - x).abs().max() <= eps + 1e-6
    assert not point.requires_grad


def test_the_start_is_drawn_and_the_rest_follows_from_it() -> None:
    x, weights = linear(0)
    flat = lambda p: (0 * p * weights[0]).sum()  # noqa: E731
    first, again, other = (pgd(flat, x, 0.1, 3, 0.025, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    inside = (x > 0.1) & (x < 0.9)
    assert ((first - x)[inside].abs() < 0.1).all()
    assert (first - x)[inside].std() == pytest.approx(0.1 / 3**0.5, rel=0.2)  # of a uniform distribution


def test_a_gradient_that_is_no_number_is_an_error() -> None:
    x, _ = linear(0)
    with pytest.raises(FairContextError, match="the gradient of an attack is NaN or infinite"):
        pgd(lambda p: (p * float("nan")).sum(), x, 0.1, 1, 0.1, np.random.default_rng(0))


@pytest.fixture(scope="module")
def labels(tiny: Callable[[str], Backbone]) -> LabelSpace:
    return LabelSpace(NAMES, tiny("clip"))


def loss_of(picture: Tensor, label: int, labels: LabelSpace) -> float:
    features = labels.backbone.encode_image(picture[None] / 255.0)[0]
    logits = labels.backbone.logit_scale * labels.zero_shot_text @ features
    return float(F.cross_entropy(logits, torch.tensor(label)))


@pytest.mark.parametrize("eps", [1, 4, 16])
def test_a_real_tower_is_fooled_within_eps_in_8_bits(
    eps: int, labels: LabelSpace, make_image: Callable[..., np.ndarray]
) -> None:
    rises = []
    for seed in range(4):
        views = Views(make_image(seed), labels.backbone.geometry, ViewRecipe(count=4), 0)
        made = attacked_views(views, seed, labels, Attack(eps))
        change = (made.plain.int() - views.plain.int()).abs()
        assert 1 <= change.max() <= eps
        rises.append(loss_of(made.plain, seed, labels) - loss_of(views.plain, seed, labels))
        again = attacked_views(views, seed, labels, Attack(eps))
        assert torch.equal(again.plain, made.plain)
        assert made.all.shape == views.all.shape
    assert min(rises) > 0


def test_more_steps_climb_higher_than_the_random_start(
    labels: LabelSpace, make_image: Callable[..., np.ndarray]
) -> None:
    plain = Views(make_image(5), labels.backbone.geometry, ViewRecipe(), 0).plain
    losses = [
        loss_of(attacked(plain, 1, labels, Attack(8, steps), np.random.default_rng(0)), 1, labels) for steps in (1, 7)
    ]
    assert losses[1] > losses[0] > loss_of(plain, 1, labels)


def test_what_is_attacked_is_zero_shot(labels: LabelSpace, make_image: Callable[..., np.ndarray]) -> None:
    views = Views(make_image(2), labels.backbone.geometry, ViewRecipe(count=4), 0)
    label = ZeroShot()(Episode.of(views, labels)).index
    before = ZeroShot()(Episode.of(views, labels)).probabilities[label]
    after = ZeroShot()(Episode.of(attacked_views(views, label, labels, Attack(16)), labels)).probabilities[label]
    assert after < before


def test_a_picture_without_a_label_is_refused(labels: LabelSpace, make_image: Callable[..., np.ndarray]) -> None:
    views = Views(make_image(2), labels.backbone.geometry, ViewRecipe(count=4), 0)
    with pytest.raises(FairContextError, match="an attack needs the true class of every picture"):
        attacked_views(views, None, labels, Attack(4))


def test_a_tower_in_half_precision_is_refused(lite0_bf16: Backbone) -> None:
    with pytest.raises(FairContextError) as refused:
        check_attackable(lite0_bf16)
    assert str(refused.value) == (
        f"lite0 cannot be attacked: its image tower runs in {lite0_bf16.arithmetic}, which gives no exact gradient; "
        "add --engine-image torch --precision fp32"
    )


def test_a_tower_without_a_gradient_is_refused(
    labels: LabelSpace, make_image: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = labels.backbone
    whole = type(backbone)._image_features
    monkeypatch.setattr(type(backbone), "_image_features", lambda self, *rows: whole(self, *rows).detach())
    plain = Views(make_image(5), backbone.geometry, ViewRecipe(), 0).plain
    with pytest.raises(FairContextError, match="cannot be attacked: its image tower gives no gradient"):
        attacked(plain, 0, labels, Attack(4), np.random.default_rng(0))
