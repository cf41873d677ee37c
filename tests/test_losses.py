import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy as scipy_entropy

from faircontext.calibrate import alignment_loss, calibration_loss, js_to_uniform
from faircontext.explore import entropy
from faircontext.methods.variants import PAIR_WEIGHTS
from oracles import calibration as oracle

LIMIT = 0.75 * math.log(4 / 3)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def unit(rows: int, dim: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=generator, dtype=torch.float64), dim=-1)


def test_entropy_of_a_certain_answer_is_zero_and_finite():
    assert entropy(double(1e4, 0.0, 0.0).log_softmax(0)).item() == 0.0


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=8))
def test_entropy_agrees_with_scipy(scores):
    log_probabilities = double(*scores).log_softmax(0)
    assert entropy(log_probabilities).item() == pytest.approx(scipy_entropy(log_probabilities.exp().numpy()), abs=1e-12)


def test_js_to_uniform_is_zero_for_a_balanced_pair():
    difference = double(0.0).requires_grad_()
    value = js_to_uniform(difference)
    assert value.item() == 0.0
    assert torch.autograd.grad(value.sum(), difference)[0].item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("difference", [-1e4, -200.0, 200.0, 1e4])
def test_js_to_uniform_reaches_its_limit_with_a_gradient_of_zero_at_both_ends(difference, dtype):
    point = torch.tensor([difference], dtype=dtype, requires_grad=True)
    value = js_to_uniform(point)
    assert value.item() == pytest.approx(LIMIT, abs=4 * torch.finfo(dtype).eps)
    assert torch.autograd.grad(value.sum(), point)[0].item() == pytest.approx(0.0, abs=1e-30)


@pytest.mark.parametrize("difference", [-30.0, -3.0, -0.7, -0.01, 0.01, 0.7, 3.0, 30.0])
def test_js_to_uniform_is_the_squared_jensen_shannon_distance_of_scipy(difference):
    p = 1 / (1 + math.exp(-difference))
    q = 1 / (1 + math.exp(difference))
    assert js_to_uniform(double(difference)).item() == pytest.approx(jensenshannon([p, q], [0.5, 0.5]) ** 2, rel=1e-9)


@given(st.floats(-50, 50))
def test_js_to_uniform_is_symmetric_bounded_and_agrees_with_its_definition(difference):
    value = js_to_uniform(double(difference)).item()
    pair = oracle.softmax(np.array([difference, 0.0]))
    assert value == pytest.approx(js_to_uniform(double(-difference)).item(), abs=1e-15)
    assert -1e-15 <= value <= LIMIT + 1e-15
    assert value == pytest.approx(oracle.jensen_shannon(pair, np.array([0.5, 0.5])), abs=1e-14)


@pytest.mark.parametrize("difference", [-20.0, -2.0, -0.1, 0.001, 0.3, 5.0])
def test_the_gradient_of_js_to_uniform_has_its_closed_form(difference):
    point = double(difference).requires_grad_()
    p = 1 / (1 + math.exp(-difference))
    q = 1 - p
    expected = 0.5 * p * q * (math.log(p / (p / 2 + 0.25)) - math.log(q / (q / 2 + 0.25)))
    assert torch.autograd.grad(js_to_uniform(point).sum(), point)[0].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("paper", [0.8, 0.7, 0.9]), ("inverse", [0.2, 0.3, 0.1]), ("uniform", [1.0, 1.0, 1.0])],
)
def test_pair_weights_by_hand(kind, expected):
    posterior = double(0.5, 0.3, 0.2).requires_grad_()
    weights = PAIR_WEIGHTS[kind](posterior, torch.tensor([[0, 0, 1], [1, 2, 2]]))
    assert weights.tolist() == pytest.approx(expected, abs=1e-15)
    assert not weights.requires_grad


def test_calibration_loss_by_hand():
    # Pair (0, 1): score difference 2 ln 3, so pi = (9/10, 1/10). Pair (0, 2): difference 0, balanced.
    text = double(1, 0, 0, 1, 1, 0).view(3, 2)
    common = double(1, 0, 0, 1).view(2, 2)
    loss = calibration_loss(text, common, torch.tensor([[0, 0], [1, 2]]), double(0.5, 0.25), 2 * math.log(3))
    p, q = (0.9, 0.1), (0.5, 0.5)
    middle = (0.7, 0.3)
    js = sum(0.5 * a * math.log(a / m) + 0.5 * b * math.log(b / m) for a, b, m in zip(p, q, middle, strict=True))
    assert loss.item() == pytest.approx((0.5 * js + 0.25 * 0.0) / 2, rel=1e-12)


def test_calibration_loss_agrees_with_the_definition():
    text, common = unit(4, 5, seed=0), unit(6, 5, seed=1)
    pairs = torch.triu_indices(4, 4, 1)
    weights = torch.rand(6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = oracle.calibration_loss(text.numpy(), common.numpy(), pairs.T.tolist(), weights.tolist(), 20.0)
    assert calibration_loss(text, common, pairs, weights, 20.0).item() == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 6))
def test_alignment_loss_is_one_minus_the_mean_cosine(seed, rows, dim):
    text, reference = unit(rows, dim, seed), unit(rows, dim, seed + 1)
    expected = oracle.alignment_loss(text.numpy(), reference.numpy())
    assert alignment_loss(text, reference).item() == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alignment_loss_and_its_gradient_are_exactly_zero_where_the_features_coincide(dtype):
    text = unit(10, 64, seed=0).to(dtype).requires_grad_()
    loss = alignment_loss(text, text.detach())
    (gradient,) = torch.autograd.grad(loss, text)
    assert loss.item() == 0.0
    assert torch.equal(gradient, torch.zeros_like(gradient))
