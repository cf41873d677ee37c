"""Fair context adaptation (paper, Sec. "Fair Context Adaptation"): losses, and the one loop of all methods that tune.

Losses keep the dtype that they are given (float32 in use, float64 in the gradient tests).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim.adamw import adamw

_LOG2 = math.log(2.0)
_OF_ADAMW = "params", "grads", "exp_avgs", "exp_avg_sqs", "state_steps"


def js_to_uniform(difference: Float[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
    """Return `JS((p, 1 - p) || (1/2, 1/2))` in nats for `p = sigmoid(difference)`.

    It is 0 at a difference of 0 and tends to `(3/4) ln(4/3)` at both ends. It is computed from log-sigmoids, so that it
    stays finite, with finite gradient, where `p` rounds to 0 or 1.

    Args:
        difference: score of the pair's first class minus that of its second.
    """
    log_p, log_q = F.logsigmoid(difference), F.logsigmoid(-difference)
    log_half = difference.new_tensor(-_LOG2)
    log_mid_p, log_mid_q = log_p.logaddexp(log_half) - _LOG2, log_q.logaddexp(log_half) - _LOG2
    from_pair = log_p.exp() * (log_p - log_mid_p) + log_q.exp() * (log_q - log_mid_q)
    from_uniform = -_LOG2 - 0.5 * (log_mid_p + log_mid_q)
    return 0.5 * (from_pair + from_uniform)


Weigh: TypeAlias = Callable[[Float[Tensor, " candidates"], Int[Tensor, "2 pairs"]], Float[Tensor, " pairs"]]
"""What gives each pair its weight from the candidates' posterior on the image."""


def pair_weights(posterior: Float[Tensor, " candidates"], pairs: Int[Tensor, "2 pairs"]) -> Float[Tensor, " pairs"]:
    """Return `w_ij = 1 - |pi(i | x) - pi(j | x)|`, detached.

    The paper's text says that this "downweights pairs already balanced"; its formula, which is this one, does the
    reverse.

    Args:
        posterior: softmax over the candidates of the plain view's scores.
        pairs: candidate positions `i` (first row) and `j` (second row).
    """
    posterior = posterior.detach()
    return 1.0 - (posterior[pairs[0]] - posterior[pairs[1]]).abs()


def calibration_loss(
    text: Float[Tensor, "candidates dim"],
    common: Float[Tensor, "pairs dim"],
    pairs: Int[Tensor, "2 pairs"],
    weights: Float[Tensor, " pairs"],
    beta: float,
) -> Float[Tensor, ""]:
    """Return `L_cal`: the mean over pairs of `w_ij` times JS of the prediction on common evidence to uniform.

    Args:
        text: unit-norm text embeddings `tau_c(delta)` of the candidates.
        common: unit-norm image embeddings `z_com_ij`, one per pair.
        pairs: candidate positions `i`, `j` of each pair.
        weights: `w_ij`, see `pair_weights`.
        beta: inverse temperature of the scores.
    """
    difference = beta * (common * (text[pairs[0]] - text[pairs[1]])).sum(-1)
    return (weights * js_to_uniform(difference)).mean()


def alignment_loss(
    text: Float[Tensor, "candidates dim"], reference: Float[Tensor, "candidates dim"]
) -> Float[Tensor, ""]:
    """Return `L_align = 1 - mean_c cos(tau_c(delta), tau_c(delta_0))` for unit vectors.

    It is computed as half the mean squared distance, which is the same number but has a gradient of exactly zero where
    the two coincide: the rounding noise of `1 - cos` would be blown up to a full step by AdamW's normalisation.
    """
    return 0.5 * (text - reference).square().sum(-1).mean()


Align: TypeAlias = Callable[[Float[Tensor, "candidates dim"], Float[Tensor, "candidates dim"]], Float[Tensor, ""]]
"""What holds the text features near those of the base context, from both."""


@dataclass(frozen=True)
class Descent:
    """How an optimisation went.

    Attributes:
        losses: before each step.
        failure: None, or what was not finite.
    """

    losses: tuple[float, ...]
    failure: str | None = None


def minimise(
    parameters: Sequence[Tensor],
    loss: Callable[[], Tensor],
    *,
    lr: float,
    steps: int,
    weight_decay: float = 0.0,
    gradients: Callable[[], Sequence[Tensor | None]] | None = None,
) -> Descent:
    """Take steps of a fresh AdamW, which without weight decay is Adam; nothing is carried to the next image.

    Its first step is `lr sign(gradient)` wherever the gradient is much larger than eps, 1e-8.

    Args:
        parameters: leaves that are changed in place.
        loss: of their present values.
        lr: learning rate.
        steps: number of steps.
        weight_decay: of AdamW.
        gradients: returns those of the loss just computed, where the loss itself cannot be differentiated; else None.
    """
    # The optimiser's class imports PyTorch's compiler, which takes a second, when it is created; its function does not.
    means, squares = ([torch.zeros_like(parameter) for parameter in parameters] for _ in range(2))
    counts = [torch.tensor(0.0) for _ in parameters]
    settings: dict[str, Any] = {"lr": lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": weight_decay}
    settings |= {"foreach": False, "amsgrad": False, "maximize": False, "max_exp_avg_sqs": []}
    losses: list[float] = []
    for _ in range(steps):
        with torch.enable_grad():  # also where the caller has switched gradients off
            value = loss()
        losses.append(value.item())
        if not math.isfinite(losses[-1]):
            return Descent(tuple(losses), "the loss was not finite")
        slopes = torch.autograd.grad(value, parameters, allow_unused=True) if gradients is None else gradients()
        moved = [row for row, slope in enumerate(slopes) if slope is not None]
        values = zip(_OF_ADAMW, (parameters, slopes, means, squares, counts), strict=True)
        settings |= {name: [of[row] for row in moved] for name, of in values}
        with torch.no_grad():
            adamw(**settings)
    return Descent(tuple(losses))


@dataclass(frozen=True)
class Calibration:
    """A learnt context, or why there is none.

    Attributes:
        context: `delta*`.
        text: `tau_c(delta*)` of the candidates.
        losses: total loss before each step.
        failure: None, or what was not finite; then `context` and `text` must not be used.
    """

    context: Float[Tensor, "*classes tokens width"]
    text: Float[Tensor, "candidates dim"]
    losses: tuple[float, ...]
    failure: str | None = None


def total_loss(
    text: Float[Tensor, "candidates dim"],
    reference: Float[Tensor, "candidates dim"],
    image: Float[Tensor, " dim"],
    common: Float[Tensor, "pairs dim"],
    pairs: Int[Tensor, "2 pairs"],
    beta: float,
    lambda_cal: float = 1.0,
    lambda_align: float = 1.0,
    weigh: Weigh = pair_weights,
    align: Align = alignment_loss,
) -> Float[Tensor, ""]:
    """Return `lambda_cal L_cal + lambda_align L_align` (paper, Eq. "total_loss_fcl").

    Args:
        text: `tau_c(delta)`, unit norm, of the candidates.
        reference: text features that `text` is held near, detached: of the base context (CL), of the prompt without
            learnable tokens (CL-HP).
        image: `z`, the embedding of the plain view, for the pair weights.
        common: `z_com_ij`, one per pair.
        pairs: candidate positions `i`, `j` of each pair.
        beta: inverse temperature of the scores.
        lambda_cal: weight of the calibration loss.
        lambda_align: weight of the alignment loss.
        weigh: gives `w_ij`.
        align: gives `L_align`.
    """
    weights = weigh((beta * text.detach() @ image).softmax(-1), pairs)
    return lambda_cal * calibration_loss(text, common, pairs, weights, beta) + lambda_align * align(text, reference)


def calibrate_context(
    encode: Callable[[Tensor], Tensor],
    context: Float[Tensor, "*classes tokens width"],
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
        reference: see `total_loss`; None for the detached first forward pass, `tau_c(delta_0)`, at which the alignment
            loss has a gradient of exactly zero.
        lr: AdamW's learning rate.
        steps: number of steps.
    """
    delta, text = context.detach().clone().requires_grad_(), context.new_empty(0)

    def value() -> Tensor:
        nonlocal reference, text
        text = encode(delta)
        if reference is None:
            reference = text.detach()
        return loss(text, reference)

    descent = minimise([delta], value, lr=lr, steps=steps)
    if descent.failure is not None:
        return Calibration(context, text.detach(), descent.losses, descent.failure)
    with torch.no_grad():
        text = encode(delta)
    finite = bool(delta.isfinite().all() and text.isfinite().all())
    return Calibration(delta.detach(), text, descent.losses, None if finite else "the context was not finite")
