"""OnZeta: online label learning for text, and online proxy learning for images."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import ArgumentError
from faircontext.explore import scores
from faircontext.labels import LabelSpace
from faircontext.methods.base import Limits, register_method
from faircontext.methods.predict import predict_by_probabilities
from faircontext.methods.stream import StateUpdate, StreamMethod, StreamState, on_cpu, text_on_cpu
from faircontext.types import Prediction


@register_method(
    "onzeta", "mixes zero-shot, its labels balanced over the stream, with image proxies learnt online; in order"
)
@dataclass(frozen=True)
class OnZeta(StreamMethod):
    """OnZeta (Qian and Hu, ECCV 2024); it answers an image before it learns from it.

    The state is `proxies`, one vector for each class in place of its text features, `rho`, what is added to each
    class's logit so that the classes are predicted equally often, and `horizon`, the length of the stream.

    Attributes:
        beta: share of the proxies' posterior in the answer at the end of the stream; it grows with the root of t / n.
        alpha: how often each class is predicted at least, over 1 / C; 0 for no balance.
        c_w: learning rate of the proxies, over the root of t.
        c_rho: learning rate of the balance, over the root of t.
        tau_text: temperature of the text's posterior; None for 1 / scale, 0.01 on CLIP.
        tau_image: temperature of the proxies' posterior; None for 4 / scale, 0.04 on CLIP.
    """

    uses_views: ClassVar[bool] = False
    needs_horizon: ClassVar[bool] = True
    setting_limits: ClassVar[Limits] = {
        "alpha": 0,
        "c_w": 0,
        "c_rho": 0,
        "tau_text": (0.0, 1e6),
        "tau_image": (0.0, 1e6),
    }

    beta: float = 0.8
    alpha: float = 1.0
    c_w: float = 0.5
    c_rho: float = 20.0
    tau_text: float | None = None
    tau_image: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta <= 1:
            raise ArgumentError(f"beta={self.beta!r} is not possible; it must be a number from 0 to 1")

    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:
        """Return proxies that are the text features, and no balance."""
        proxies = text_on_cpu(labels).float()
        return {"proxies": proxies, "rho": torch.zeros(len(labels)), "horizon": torch.tensor(horizon)}

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        """Answer from the proxies and the balance as they are, then move both (Alg. 1).

        Raises:
            ArgumentError: the stream is longer than its horizon.
        """
        proxies, rho, horizon = (state.tensors[name] for name in ("proxies", "rho", "horizon"))
        t, n = state.seen + 1, int(horizon)
        if t > n:
            raise ArgumentError(f"invalid horizon {n}: the stream has more images; start one with its length")
        scale, classes = episode.backbone.logit_scale, len(rho)
        tau_text, tau_image = self.tau_text or 1 / scale, self.tau_image or 4 / scale
        z = on_cpu(episode.z).double()
        # Balanced in logits: a softmax times exp(rho) would overflow.
        q = (scores(z, text_on_cpu(episode.labels), 1 / tau_text) + rho).softmax(-1)
        v = scores(z, proxies, 1 / tau_image).softmax(-1)
        share = self.beta * math.sqrt(t / n)
        balance = (rho - self.c_rho / math.sqrt(t) * (q - self.alpha / classes)).clamp_min(0).float()
        rate = self.c_w / math.sqrt(t) / tau_image
        moved = F.normalize(torch.addr(proxies.double(), v - q, z, alpha=-rate), dim=-1).float()

        def update() -> None:
            proxies.copy_(moved)
            rho.copy_(balance)

        diagnostics = {"proxy_share": share, "rho_max": float(rho.max())}
        return predict_by_probabilities(share * v + (1 - share) * q, diagnostics), update
