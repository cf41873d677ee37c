"""The losses of fair context adaptation (paper, "Fair Context Adaptation"; `L_cal`, `L_align`, `w_ij`).

Everything here keeps the dtype it is given (float32 in use, float64 in the gradient tests).
"""

import math
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.errors import check_choice

__all__ = ["PairWeight", "alignment_loss", "calibration_loss", "entropy", "js_to_uniform", "pair_weights"]

PairWeight = Literal["paper", "inverse", "uniform"]
_LOG2 = math.log(2.0)


def entropy(log_probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """Return the entropy in nats of distributions given by their logarithms (paper, Eq. for `H_i`)."""
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


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


def pair_weights(
    posterior: Float[Tensor, " candidates"], pairs: Int[Tensor, "2 pairs"], kind: PairWeight = "paper"
) -> Float[Tensor, " pairs"]:
    """Return `w_ij = 1 - |pi(i | x) - pi(j | x)|`, detached.

    The paper's text says that this "downweights pairs already balanced"; its formula does the reverse. `"paper"` is the
    formula, `"inverse"` is `|pi(i) - pi(j)|`, `"uniform"` is 1.

    Args:
        posterior: softmax over the candidates on the full image embedding.
        pairs: candidate positions `i` (first row) and `j` (second row).
        kind: which weight.
    """
    check_choice("pair_weight", kind, ("paper", "inverse", "uniform"))
    posterior = posterior.detach()
    gap = (posterior[pairs[0]] - posterior[pairs[1]]).abs()
    if kind == "paper":
        return 1.0 - gap
    return gap if kind == "inverse" else gap.new_ones(gap.shape)


def calibration_loss(
    text: Float[Tensor, "candidates dim"],
    common: Float[Tensor, "pairs dim"],
    pairs: Int[Tensor, "2 pairs"],
    weights: Float[Tensor, " pairs"],
    beta: float,
) -> Float[Tensor, ""]:
    """Return `L_cal`: the weighted mean over pairs of JS of the prediction on common evidence to uniform.

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
