"""Attacks on zero-shot: images changed as little as `Attack` allows, so that the true class is answered less.

Projected gradient descent in the maximum norm, from a random start (Madry et al., 2018, Sec. 2.1), by the protocol of
R-TPT (Sheng et al., 2025): on the plain view in [0, 1] before normalisation, at the model's input size, on the
cross-entropy of zero-shot and the true class; the attacked image is rounded to 8 bits, and views are cut from it.
Methods that adapt are measured on images that were made against zero-shot: they are not attacked themselves.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from faircontext.backbones import Backbone
from faircontext.backbones.base import TRAINABLE_ENCODER
from faircontext.errors import ArgumentError, FeatureError
from faircontext.labels import LabelSpace
from faircontext.perturbations import Attack
from faircontext.views import Views

Picture = Float[Tensor, "3 height width"]


def pgd(
    loss: Callable[[Picture], Float[Tensor, ""]],
    pixels: Picture,
    eps: float,
    steps: int,
    step: float,
    rng: np.random.Generator,
) -> Picture:
    """Climb a loss by the sign of its gradient, within `eps` of an image and within [0, 1].

    The last point is returned, as in the protocol, whether or not its loss is the largest.

    Args:
        loss: of an image, differentiable.
        pixels: in [0, 1].
        eps: by how much a value may change.
        steps: how many.
        step: their length.
        rng: draws the start, uniform within `eps`.

    Raises:
        FeatureError: a gradient is NaN or infinite.
    """
    low, high = (pixels - eps).clamp(min=0), (pixels + eps).clamp(max=1)
    drawn = torch.from_numpy(rng.random(tuple(pixels.shape), np.float32)).to(pixels.device)
    point = (pixels + eps * (2 * drawn - 1)).clamp(low, high)
    for _ in range(steps):
        point.requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(loss(point), point)
        if not gradient.isfinite().all():
            raise FeatureError("the gradient of an attack is NaN or infinite")
        point = (point.detach() + step * gradient.sign()).clamp(low, high)
    return point.detach()


def check_attackable(backbone: Backbone) -> None:
    """Raise `ArgumentError` unless a backbone's image encoder has a gradient in full precision."""
    if backbone.engine != "torch" or TRAINABLE_ENCODER not in backbone.capabilities:
        raise ArgumentError(
            f"{backbone.name} cannot be attacked: its image tower runs in {backbone.arithmetic}, which gives no exact "
            "gradient; add --engine-image torch --precision fp32"
        )


def attacked(
    plain: UInt8[Tensor, "3 size size"], label: int, labels: LabelSpace, attack: Attack, rng: np.random.Generator
) -> UInt8[Tensor, "3 size size"]:
    """Return an attacked image, rounded to 8 bits; no value changes by more than `attack.eps`.

    Args:
        plain: the plain view.
        label: index of the true class.
        labels: the label space; its zero-shot is attacked.
        attack: how.
        rng: draws the start.

    Raises:
        ArgumentError: the backbone's image encoder has no gradient.
        FeatureError: the model's features of the image, or a gradient, are not finite.
    """
    backbone = labels.backbone
    check_attackable(backbone)
    text, target = labels.zero_shot_text.detach(), torch.tensor(label, device=backbone.device)

    def loss(pixels: Picture) -> Float[Tensor, ""]:
        features = backbone.encode_with({}, pixels[None])[0]
        if not features.requires_grad:
            raise ArgumentError(f"{backbone.name} cannot be attacked: its image tower gives no gradient")
        return F.cross_entropy(backbone.logit_scale * text @ features, target)

    pixels = plain.to(backbone.device) / 255.0
    point = pgd(loss, pixels, attack.eps / 255, attack.steps, attack.eps / 4 / 255, rng)
    return (point * 255).round().to(torch.uint8).cpu()


def attacked_views(views: Views, label: int | None, labels: LabelSpace, attack: Attack) -> Views:
    """Return views of an attacked image: of the plain view, attacked; crops are cut from it.

    Args:
        views: of the image.
        label: index of the true class.
        labels: the label space; its zero-shot is attacked.
        attack: how.

    Raises:
        ArgumentError: the true class is not known, or the image encoder has no gradient.
        FeatureError: see `attacked`.
    """
    if label is None:
        raise ArgumentError("an attack needs the true class of every picture; leave pictures without a label out")
    made = attacked(views.plain, label, labels, attack, views.stream("attack"))
    return views.of(np.ascontiguousarray(made.permute(1, 2, 0).numpy()))
