"""MTA: the mode of an image's views, found by mean shift with learnt inlierness."""

from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from faircontext.episode import Episode
from faircontext.methods.base import Limits, Method, register_method
from faircontext.methods.predict import predict_by_scores
from faircontext.types import Prediction

_TINY = 1e-12
"""Least squared bandwidth: identical views would have none."""


class Mode(NamedTuple):
    """A mode of the views, and how much each view belongs to it; the weights sum to one."""

    mode: Float[Tensor, " dim"]
    weights: Float[Tensor, " views"]


def _squared_distances(points: Float[Tensor, "points dim"], centre: Float[Tensor, "*any dim"]) -> Tensor:
    return (points - centre).square().sum(-1)


def find_mode(
    views: Float[Tensor, "views dim"],
    affinity: Float[Tensor, "views views"],
    *,
    neighbours: float = 0.3,
    lambda_y: float = 0.2,
    lambda_q: float = 4.0,
    iterations: int = 5,
    tolerance: float = 1e-6,
) -> Mode:
    """Find mode and inlierness by block-coordinate ascent (Zanella and Ben Ayed, CVPR 2024).

    Args:
        views: unit-norm features, the plain view first: the search starts there.
        affinity: `W_pq = <p_p, p_q>` of the views' posteriors.
        neighbours: fraction of the other views, the nearest, that a view's bandwidth is of.
        lambda_y: weight of the inlierness' entropy.
        lambda_q: weight of the affinity.
        iterations: of the outer loop, and at most of each inner one.
        tolerance: an inner loop ends when a step is shorter.
    """
    count = len(views)
    if count == 1:
        return Mode(views[0], views.new_ones(1))
    distances = torch.stack([_squared_distances(views, view) for view in views])
    distances.fill_diagonal_(torch.inf)  # a view is no neighbour of itself
    nearest = distances.sort(dim=-1).values[:, : max(1, int(neighbours * (count - 1) + 1e-9))]
    bandwidth = (0.5 * nearest.mean(-1)).clamp_min(_TINY)
    weights, mode = views.new_full((count,), 1.0 / count), views[0]
    for _ in range(iterations):
        kernel = (-_squared_distances(views, mode) / (2.0 * bandwidth)).exp()
        for _ in range(iterations):
            earlier, weights = weights, ((kernel + lambda_q * affinity @ weights) / lambda_y).softmax(-1)
            if (weights - earlier).norm() < tolerance:
                break
        for _ in range(iterations):
            kernel = (-_squared_distances(views, mode) / (2.0 * bandwidth)).exp()
            shifted = F.normalize((kernel * weights) @ views, dim=-1)
            earlier, mode = mode, shifted if shifted.any() else mode
            if (mode - earlier).norm() < tolerance:
                break
    return Mode(mode, weights)


@register_method("mta", "mean-shift over the views with learnt inlierness; nothing is trained")
@dataclass(frozen=True)
class MTA(Method):
    """Mean-shift test-time augmentation (Zanella and Ben Ayed, CVPR 2024).

    The preset `official` differs in nothing; there, features come from a half-precision encoder.

    Attributes:
        neighbours: fraction of the other views, the nearest, that a view's bandwidth is of.
        lambda_y: weight of the inlierness' entropy.
        lambda_q: weight of the affinity between views.
        iterations: of the outer loop, and at most of each inner one.
    """

    setting_limits: ClassVar[Limits] = {
        "neighbours": (0.0, 1.0),
        "lambda_y": (1e-6, 1e6),
        "lambda_q": 0,
        "iterations": 1,
    }

    neighbours: float = 0.3
    lambda_y: float = 0.2
    lambda_q: float = 4.0
    iterations: int = 5

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image from the mode of its views."""
        views, text = episode.view_features, episode.labels.zero_shot_text
        posteriors = (episode.backbone.logit_scale * views @ text.T).log_softmax(-1).exp()
        mode = find_mode(views, posteriors @ posteriors.T, **asdict(self))
        return predict_by_scores(episode, mode.mode, text, {"weights": tuple(mode.weights.tolist())})
