"""DPE: against plain NumPy, its gradients against autograd, its step against AdamW, and where the answer is known."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import DPE, Backbone
from faircontext.methods.dpe import Prototypes, adamw_step, alignment_gradients, entropy_gradients, through_unit
from made_streams import answers, assert_agrees, make_stream, same_views
from oracles import caches as oracle

SEEDS = st.integers(0, 2**32 - 1)
REPOSITORY = {"formulas": "repository"}
OPTIONS = (
    {},
    REPOSITORY,
    {**REPOSITORY, "a": 3.0, "b": 8.0, "lr": 6e-3, "lam": 0.0},
    {"lr": 5e-2, "rho": 0.5},
    {**REPOSITORY, "lam": 2.5, "answer": "confident", "rho": 0.3},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_stream_is_answered_as_by_plain_numpy(backbone: Backbone, classes: int, options: dict) -> None:
    stream = make_stream(classes, 120 if len(options) < 2 else 60, 12, dim=12)
    others = {key: value for key, value in options.items() if key not in ("formulas", "answer")}
    slow = oracle.DPE(
        stream[1].numpy(),
        backbone.logit_scale,
        paper="formulas" not in options,
        views_in_answer="answer" in options,
        **others,
    )
    state = assert_agrees(DPE(**options), stream, backbone, slow.answer)
    np.testing.assert_allclose(state.tensors["prototypes"], slow.mean, rtol=0, atol=1e-6)
    assert int(state.tensors["updates"]) == slow.count > 0


def drawn(seed: int, classes: int, cached: int, views: int) -> tuple[Prototypes, Tensor, Tensor]:
    """Prototypes that are not of unit length, the classes that have a visual one, and views."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(count, 8, generator=generator, dtype=torch.float64) for count in (classes, cached, views)]
    chosen = torch.randperm(classes, generator=generator)[:cached].sort().values
    return Prototypes(rows[0], rows[1]), chosen, F.normalize(rows[2], dim=-1)


@given(SEEDS, st.integers(2, 12), st.integers(1, 12), st.integers(1, 6), st.sampled_from(OPTIONS))
def test_residuals_are_added_before_anything_is_brought_to_unit_length(
    seed: int, classes: int, cached: int, views: int, options: dict
) -> None:
    start, chosen, images = drawn(seed, classes, min(cached, classes), views)
    method = DPE(**{**options, "lr": 0.05})
    slow = oracle.DPE(
        start.text.numpy(), 10.0, paper=method.formulas == "paper", a=method.a, b=method.b, lr=0.05, lam=method.lam
    )
    expected = slow.adapted(start.visual.numpy(), chosen.tolist(), images.numpy())
    for found, rows in zip(method._adapt(start, chosen, images, 10.0), expected, strict=True):
        np.testing.assert_allclose(found, rows, rtol=0, atol=1e-11)  # AdamW divides by the size of gradients near zero


def loss_of(
    start: Prototypes, residuals: Prototypes, cached: Tensor, views: Tensor, formulas: str, lam: float
) -> Tensor:
    """The loss as it is written, for autograd."""
    text, visual = (F.normalize(a + b, dim=-1) for a, b in zip(start, residuals, strict=True))
    logits = 10.0 * views @ text.T
    logits = logits.index_add(1, cached, 6.0 * torch.exp(-5.0 * (1 - views @ visual.T)))
    mean = logits.softmax(-1).mean(0)
    between = visual @ text[cached].T
    own = torch.arange(len(cached))
    if formulas == "paper":
        align = F.cross_entropy(between, own) + F.cross_entropy(between.T, own)
    else:
        align = F.cross_entropy(between / 0.01, own)
    return -(mean * mean.log()).sum() + lam * align


@given(SEEDS, st.integers(2, 12), st.integers(1, 12), st.integers(1, 6), st.sampled_from(["paper", "repository"]))
def test_gradients_are_autograds(seed: int, classes: int, cached: int, views: int, formulas: str) -> None:
    start, chosen, images = drawn(seed, classes, min(cached, classes), views)
    residuals = Prototypes(*(torch.zeros_like(rows, requires_grad=True) for rows in start))
    expected = torch.autograd.grad(loss_of(start, residuals, chosen, images, formulas, 0.7), residuals)
    unit = start.unit()
    slopes = entropy_gradients(images, unit, chosen, 10.0, 6.0, 5.0)
    aligned = alignment_gradients(unit, chosen, formulas)
    slopes = slopes.text.index_add(0, chosen, 0.7 * aligned.text), slopes.visual + 0.7 * aligned.visual
    for found, slope in zip(map(through_unit, slopes, start, unit), expected, strict=True):
        torch.testing.assert_close(found, slope, rtol=0, atol=1e-12 * max(1.0, float(slope.abs().max())))


@given(SEEDS, st.sampled_from([5e-5, 5e-4, 0.1]))
def test_the_closed_step_is_adamws_first(seed: int, lr: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    gradient = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    gradient *= 10.0 ** torch.randint(-6, 2, (7, 1), generator=generator)
    gradient[0] = 0.0
    residual = torch.zeros_like(gradient, requires_grad=True)
    residual.grad = gradient.clone()
    torch.optim.AdamW([residual], lr=lr, eps=1e-3, weight_decay=0.1).step()
    torch.testing.assert_close(adamw_step(gradient, lr), residual.detach(), rtol=1e-9, atol=1e-12)


def test_one_cached_class_has_nothing_to_align() -> None:
    start, chosen, _ = drawn(0, 5, 1, 1)
    for formulas in ("paper", "repository"):
        assert not any(gradient.any() for gradient in alignment_gradients(start.unit(), chosen, formulas))


@pytest.mark.parametrize("formulas", ["paper", "repository"])
def test_without_a_step_the_first_answer_is_zero_shots_with_its_own_affinity(backbone: Backbone, formulas: str) -> None:
    stream = same_views([[1.0, 0.0, 0.0, 0.0]], 3)
    ((_, prediction, state),) = answers(DPE(lr=0.0, formulas=formulas), stream, backbone)
    logits = torch.tensor([backbone.logit_scale + 6.0, 0.0, 0.0])
    torch.testing.assert_close(prediction.probabilities, logits.softmax(-1))
    assert int(state.tensors["updates"]) == 1
    torch.testing.assert_close(state.tensors["prototypes"], stream[1])


def test_an_unsure_image_leaves_the_text_prototypes_as_they_are(backbone: Backbone) -> None:
    stream = make_stream(3, 60)
    before, updates, moved = stream[1], 0, set()
    for _, prediction, state in answers(DPE(), stream, backbone):
        probabilities = prediction.probabilities.double()
        surprise = -float((probabilities * probabilities.log()).sum()) / math.log2(3)
        assert prediction.diagnostics["entropy"] == pytest.approx(surprise, abs=1e-5)
        changed = not torch.equal(state.tensors["prototypes"], before)
        assert changed == (surprise < 0.1)
        assert int(state.tensors["updates"]) == updates + changed
        before, updates = state.tensors["prototypes"].clone(), updates + changed
        moved.add(changed)
    assert moved == {True, False}


def test_the_papers_text_prototypes_keep_unit_length_and_the_repositorys_do_not(backbone: Backbone) -> None:
    stream = make_stream(3, 60)
    for formulas, close in (("paper", True), ("repository", False)):
        *_, (_, _, state) = answers(DPE(lr=0.05, formulas=formulas), stream, backbone)
        lengths = state.tensors["prototypes"].norm(dim=1)
        assert bool(((lengths - 1).abs() < 1e-6).all()) == close
