"""A backbone: untrained towers, a convolution for images and a mean of embedded bytes for prompts."""

from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from faircontext import Backbone, FairContextError


class Toy(Backbone):
    """A model of random weights, the same ones in every process."""

    name = "toy"
    image_size = 32
    mean = std = (0.5, 0.5, 0.5)
    interpolation = "bicubic"
    logit_scale = 100.0
    context_length = 256
    start = 1  # number of start tokens of a prompt

    def __init__(self, device: str = "cpu", precision: str = "auto", batch_size: int = 16) -> None:
        super().__init__(device, precision, batch_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encoder = nn.Sequential(nn.Conv2d(3, 64, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            embedding = nn.Embedding(258, 64)
        self._embedding = self._moved(embedding)
        self._take_image_encoder(encoder)

    def _token_ids(self, text: str) -> list[int]:
        return [256, *text.encode(), 257]

    def token_embeddings(self, ids: Tensor) -> Tensor:
        """Return the embedding of each token."""
        return self._embedding(ids)

    def _encode_embeddings(self, embeddings: Tensor, mask: Tensor, shared: int) -> Tensor:
        return (embeddings * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    @property
    def text_hash(self) -> str:
        """Hash of the weights of the text tower."""
        return sha256(self._embedding.weight.detach().cpu().numpy().tobytes()).hexdigest()


def create(pretrained: str | None, **options: Any) -> Toy:
    """Create the model; `options` are `device`, `precision` and `batch_size`."""
    if pretrained is not None:
        raise FairContextError(f"toy has its own weights; leave pretrained={pretrained!r} out")
    return Toy(**options)
