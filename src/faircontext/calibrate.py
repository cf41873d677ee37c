"""Fair context adaptation: learn the context for one image (paper, Sec. "Fair Context Adaptation")."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.losses import PairWeight, alignment_loss, calibration_loss, pair_weights

__all__ = ["Calibration", "calibrate_context", "total_loss"]


@dataclass(frozen=True)
class Calibration:
    """A learnt context, or why there is none.

    Attributes:
        context: `delta*`.
        text: `tau_c(delta*)` of the candidates.
        losses: total loss before each step.
        failure: None, or what was not finite; then `context` and `text` must not be used.
    """

    context: Float[Tensor, "tokens width"]
    text: Float[Tensor, "candidates dim"]
    losses: tuple[float, ...]
    failure: str | None = None


def total_loss(
    text: Float[Tensor, "candidates dim"],
    reference: Float[Tensor, "candidates dim"],
    image: Float[Tensor, " dim"],
    common: Float[Tensor, "pairs dim"],
    pairs: Int[Tensor, "2 pairs"],
    *,
    beta: float,
    lambda_cal: float = 1.0,
    lambda_align: float = 1.0,
    pair_weight: PairWeight = "paper",
) -> Float[Tensor, ""]:
    """Return `lambda_cal L_cal + lambda_align L_align` (paper, Eq. "total_loss_fcl").

    Args:
        text: `tau_c(delta)`, unit norm, of the candidates.
        reference: `tau_c(delta_0)`, detached.
        image: `z`, the embedding of the full image, for the pair weights.
        common: `z_com_ij`, one per pair.
        pairs: candidate positions `i`, `j` of each pair.
        beta: inverse temperature of the scores.
        lambda_cal: weight of the calibration loss.
        lambda_align: weight of the alignment loss.
        pair_weight: which `w_ij`.
    """
    weights = pair_weights((beta * text.detach() @ image).softmax(-1), pairs, pair_weight)
    return lambda_cal * calibration_loss(text, common, pairs, weights, beta) + lambda_align * alignment_loss(
        text, reference
    )


def calibrate_context(
    encode: Callable[[Tensor], Tensor],
    context: Float[Tensor, "tokens width"],
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    reference: Float[Tensor, "candidates dim"] | None = None,
    lr: float = 0.002,
    steps: int = 2,
) -> Calibration:
    """Minimise a loss of the candidates' text features over the context, from a fresh AdamW without weight decay.

    Args:
        encode: text features of the candidates, (candidates, dim) and unit norm, for a context.
        context: `delta_0`; it is copied, so nothing is carried from one image to the next.
        loss: total loss of (text features, reference).
        reference: `tau_c(delta_0)`; None for the detached first forward pass, with which the alignment loss has a
            first gradient of exactly zero.
        lr: AdamW's learning rate.
        steps: number of steps.
    """
    delta = context.detach().clone().requires_grad_()
    optimizer = torch.optim.AdamW([delta], lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, foreach=False)
    losses: list[float] = []
    for _ in range(steps):
        with torch.enable_grad():  # also where the caller has switched gradients off
            text = encode(delta)
            if reference is None:
                reference = text.detach()
            value = loss(text, reference)
        losses.append(value.item())
        if not value.isfinite():
            return Calibration(context, text.detach(), tuple(losses), "the loss was not finite")
        (delta.grad,) = torch.autograd.grad(value, delta)
        optimizer.step()
    with torch.no_grad():
        text = encode(delta)
    finite = bool(delta.isfinite().all() and text.isfinite().all())
    return Calibration(delta.detach(), text, tuple(losses), None if finite else "the context was not finite")
