from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from faircontext.calibrate import calibrate_context, minimise, total_loss
from faircontext.methods.variants import PAIR_WEIGHTS
from oracles import calibration as oracle

CLASSES, TOKENS, WIDTH, DIM, BETA = 4, 2, 3, 6, 5.0
PAIRS = [(i, j) for i in range(CLASSES) for j in range(i + 1, CLASSES)]
KINDS = ["paper", "inverse", "uniform"]


@dataclass(frozen=True)
class Problem:
    """A small text tower, `normalise(tanh(delta A + b_c) B)`, with an image, in NumPy and in torch."""

    context: np.ndarray
    inward: np.ndarray
    offsets: np.ndarray
    outward: np.ndarray
    image: np.ndarray
    common: np.ndarray

    def encode(self, context: np.ndarray) -> np.ndarray:
        hidden = np.tanh(context.reshape(-1) @ self.inward + self.offsets) @ self.outward
        return hidden / np.linalg.norm(hidden, axis=1, keepdims=True)

    def tower(self, dtype: torch.dtype = torch.float64):
        inward, offsets, outward = (
            torch.from_numpy(array).to(dtype) for array in (self.inward, self.offsets, self.outward)
        )

        def encode(context: Tensor) -> Tensor:
            hidden = torch.tanh(context.flatten() @ inward + offsets) @ outward
            return hidden / hidden.norm(dim=-1, keepdim=True)

        return encode

    def delta0(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.from_numpy(self.context).to(dtype)

    def loss(self, dtype: torch.dtype = torch.float64, **settings):
        return partial(
            total_loss,
            image=torch.from_numpy(self.image).to(dtype),
            common=torch.from_numpy(self.common).to(dtype),
            pairs=torch.tensor(PAIRS).T,
            beta=BETA,
            **settings,
        )

    def weights(self, context: np.ndarray, kind: str) -> list:
        return oracle.pair_weights(self.encode(context), self.image, PAIRS, BETA, kind)

    def value(self, context, reference, weights, lambda_cal=1.0, lambda_align=1.0) -> float:
        text = self.encode(context)
        cal = oracle.calibration_loss(text, self.common, PAIRS, weights, BETA)
        return lambda_cal * cal + lambda_align * oracle.alignment_loss(text, reference)

    def slope(self, context, reference, kind, **lambdas) -> np.ndarray:
        """Return the gradient with the pair weights of this context held fixed."""
        weights = self.weights(context, kind)
        return oracle.gradient(lambda point: self.value(point, reference, weights, **lambdas), context)


def problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)

    def unit(*shape):
        rows = rng.normal(size=shape)
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    return Problem(
        context=0.3 * rng.normal(size=(TOKENS, WIDTH)),
        inward=rng.normal(size=(TOKENS * WIDTH, 8)),
        offsets=rng.normal(size=(CLASSES, 8)),
        outward=rng.normal(size=(8, DIM)),
        image=unit(DIM),
        common=unit(len(PAIRS), DIM),
    )


@pytest.fixture(params=[0, 1, 2])
def case(request) -> Problem:
    return problem(request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_the_total_loss_is_the_weighted_sum_of_its_definitions(case, kind):
    lambdas = {"lambda_cal": 0.7, "lambda_align": 1.9}
    elsewhere = case.encode(case.context + 0.1)
    expected = case.value(case.context, elsewhere, case.weights(case.context, kind), **lambdas)
    found = case.loss(weigh=PAIR_WEIGHTS[kind], **lambdas)(case.tower()(case.delta0()), torch.from_numpy(elsewhere))
    assert found.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_the_total_loss_is_the_finite_difference_with_fixed_pair_weights(case, kind):
    elsewhere = case.encode(case.context + 0.1)
    delta = case.delta0().requires_grad_()
    loss = case.loss(weigh=PAIR_WEIGHTS[kind])(case.tower()(delta), torch.from_numpy(elsewhere))
    (gradient,) = torch.autograd.grad(loss, delta)
    assert gradient.numpy() == pytest.approx(case.slope(case.context, elsewhere, kind), abs=1e-8)


def test_the_gradient_does_not_pass_through_the_pair_weights(case):
    elsewhere = case.encode(case.context + 0.1)
    moving = oracle.gradient(lambda point: case.value(point, elsewhere, case.weights(point, "paper")), case.context)
    delta = case.delta0().requires_grad_()
    loss = case.loss()(case.tower()(delta), torch.from_numpy(elsewhere))
    assert np.abs(torch.autograd.grad(loss, delta)[0].numpy() - moving).max() > 1e-5


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_context_moves_as_adamw_written_out(case, kind, steps, given):
    reference = case.encode(case.context + 0.1 if given else case.context)
    expected = oracle.adamw(case.context, lambda point: case.slope(point, reference, kind), 0.01, steps)
    found = calibrate_context(
        case.tower(),
        case.delta0(),
        case.loss(weigh=PAIR_WEIGHTS[kind]),
        reference=torch.from_numpy(reference) if given else None,
        lr=0.01,
        steps=steps,
    )
    assert found.failure is None
    assert found.context.numpy() == pytest.approx(expected, abs=1e-6)
    assert found.text.numpy() == pytest.approx(case.encode(found.context.numpy()), abs=1e-12)


def test_losses_are_those_before_each_step(case):
    reference = case.encode(case.context)
    found = calibrate_context(case.tower(), case.delta0(), case.loss(), lr=0.01, steps=2)
    after_one = calibrate_context(case.tower(), case.delta0(), case.loss(), lr=0.01, steps=1).context.numpy()
    expected = [case.value(point, reference, case.weights(point, "paper")) for point in (case.context, after_one)]
    assert found.losses == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_alignment_alone_leaves_the_context_bit_identical_in_single_precision(seed):
    case = problem(seed)
    delta0 = case.delta0(torch.float32)
    loss = case.loss(torch.float32, lambda_cal=0.0)
    found = calibrate_context(case.tower(torch.float32), delta0, loss, steps=2)
    assert torch.equal(found.context, delta0)
    assert found.losses == (0.0, 0.0)


def test_alignment_pulls_the_context_when_the_reference_lies_elsewhere(case):
    reference = torch.from_numpy(case.encode(case.context + 0.1))
    found = calibrate_context(case.tower(), case.delta0(), case.loss(lambda_cal=0.0), reference=reference, steps=1)
    assert not torch.equal(found.context, case.delta0())
    assert found.losses[0] == pytest.approx(oracle.alignment_loss(case.encode(case.context), reference.numpy()))


def test_the_given_context_is_neither_changed_nor_shared(case):
    delta0 = case.delta0()
    found = calibrate_context(case.tower(), delta0, case.loss(), lr=0.1)
    assert torch.equal(delta0, case.delta0())
    assert not delta0.requires_grad
    assert delta0.grad is None
    assert found.context.data_ptr() != delta0.data_ptr()
    assert not found.context.requires_grad
    assert not found.text.requires_grad


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("bad_step", [0, 1])
def test_a_loss_that_is_not_finite_is_a_failure_and_no_exception(case, value, bad_step):
    sound, seen = case.loss(), []

    def loss(text: Tensor, reference: Tensor) -> Tensor:
        seen.append(text)
        return sound(text, reference) * (value if len(seen) > bad_step else 1.0)

    found = calibrate_context(case.tower(), case.delta0(), loss)
    assert found.failure == "the loss was not finite"
    assert len(found.losses) == bad_step + 1
    assert np.isfinite(found.losses[:bad_step]).all()


def test_a_finite_loss_with_a_gradient_that_is_not_is_a_failure_and_no_exception(case):
    # The square root of the alignment loss at coincidence: zero, with a gradient of infinity times zero.
    found = calibrate_context(
        case.tower(), case.delta0(), lambda text, reference: (text - reference).square().sum().sqrt()
    )
    assert found.failure is not None
    assert found.losses[0] == 0.0


def test_features_that_are_not_finite_after_the_last_step_are_a_failure(case):
    sound, delta0 = case.tower(), case.delta0()

    def encode(context: Tensor) -> Tensor:
        return sound(context) if torch.equal(context, delta0) else sound(context) * float("nan")

    assert calibrate_context(encode, delta0, case.loss(), steps=1).failure == "the context was not finite"


def test_a_context_that_is_not_finite_is_a_failure_even_where_the_features_are(case):
    weight = torch.from_numpy(case.inward[:, :DIM])

    def encode(context: Tensor) -> Tensor:
        hidden = torch.tanh(context.flatten()) @ weight + torch.from_numpy(case.offsets[:, :DIM])
        return hidden / hidden.norm(dim=-1, keepdim=True)

    found = calibrate_context(encode, case.delta0(), case.loss(), lr=float("inf"), steps=1)
    assert found.text.isfinite().all()
    assert found.failure == "the context was not finite"


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_pytorchs_optimiser_to_the_bit(weight_decay):
    rng = torch.Generator().manual_seed(3)
    start, target, other = torch.randn(3, 4, 8, generator=rng)

    def make():
        leaves = [start.clone().requires_grad_(), other.clone().requires_grad_()]
        calls = iter(range(9))
        # Every other loss does not depend on the second leaf, which then stays, and whose count of steps does.
        return leaves, lambda: (leaves[0] - target).square().sum() + (leaves[1].sum() if next(calls) % 2 else 0.0)

    ours, loss = make()
    minimise(ours, loss, lr=0.01, steps=5, weight_decay=weight_decay)
    theirs, loss = make()
    optimizer = torch.optim.AdamW(theirs, lr=0.01, weight_decay=weight_decay, foreach=False)
    for _ in range(5):
        gradients = torch.autograd.grad(loss(), theirs, allow_unused=True)
        for leaf, gradient in zip(theirs, gradients, strict=True):
            leaf.grad = gradient
        optimizer.step()
    assert all(map(torch.equal, ours, theirs))
    assert not torch.equal(ours[1], other)
