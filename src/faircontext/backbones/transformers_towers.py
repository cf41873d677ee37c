"""Towers of models of transformers; all that depends on the inner layout of the library's models is in this file.

The text tower runs from token embeddings, so that a context can be learnt. There are three kinds: causal with the
feature at the end token (CLIP); not causal, over padding as well, with the feature at the last position (SigLIP and
SigLIP 2); and an encoder as BERT or RoBERTa with the feature at the first token (AltCLIP and Chinese-CLIP). With an
untouched context its features are those of the model's own `get_text_features`.
"""

import inspect
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from faircontext.backbones.split import SplitTower
from faircontext.errors import ArgumentError

if TYPE_CHECKING:
    from faircontext.backbones.base import Backbone

__all__ = ["ImageTower", "Pool", "SplitImageTower", "TextTower", "longest_prompt"]

Pool = Literal["end", "last", "first"]
"""Where the feature of a prompt is taken: at the end token, the last position or the first token."""


def longest_prompt(model: Any) -> int:
    """Return for how many tokens a model has positions; RoBERTa counts them from that of its padding."""
    config = model.config.text_config
    before = int(config.pad_token_id) + 1 if hasattr(model.text_model, "roberta") else 0
    return int(config.max_position_embeddings) - before


class TextTower(torch.nn.Module):
    """The text tower of a model of transformers, from token embeddings.

    Args:
        model: the model; its layers are shared, not copied.
        pool: where the feature is taken.
        length: longest prompt; with `"last"` every prompt is padded to it.
        pad: token id of the padding.
        left: whether padding comes before the prompt.
    """

    def __init__(self, model: Any, pool: Pool, length: int, pad: int, left: bool = False) -> None:
        super().__init__()
        self.text = model.text_model
        self.projection = None if pool == "last" else model.text_projection
        self.pool, self.context_length, self.pad, self.left = pool, length, pad, left

    @property
    def embedding(self) -> Any:
        """The embedding of tokens."""
        embeddings = getattr(self.text, "roberta", self.text).embeddings  # AltCLIP's encoder is one level below
        return embeddings.word_embeddings if self.pool == "first" else embeddings.token_embedding

    def forward(
        self,
        embeddings: Float[Tensor, "prompts tokens width"],
        mask: Bool[Tensor, "prompts tokens"],
        shared: int = 0,  # noqa: ARG002 (the library's layers run all tokens of each prompt)
    ) -> Float[Tensor, "prompts dim"]:
        """Encode prompts given by their token embeddings; the mask is True for tokens."""
        if self.pool == "first":
            encoded = self.text(inputs_embeds=embeddings, attention_mask=mask.long()).last_hidden_state[:, 0]
        elif self.pool == "last":
            encoded = self.text.head(self._run(self._fill(embeddings, mask), None)[:, -1])
        else:
            hidden = self._run(embeddings, self._causal(embeddings))
            encoded = hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
        features: Tensor = encoded if self.projection is None else self.projection(encoded)
        return features

    def _run(self, embeddings: Tensor, attention_mask: Tensor | None) -> Tensor:
        hidden = self.text.embeddings(inputs_embeds=embeddings)  # with positions
        encoded = self.text.encoder(inputs_embeds=hidden, attention_mask=attention_mask).last_hidden_state
        normed: Tensor = self.text.final_layer_norm(encoded)
        return normed

    def _causal(self, embeddings: Tensor) -> Tensor:
        """Return the additive mask of causal attention; padding comes after the feature and changes nothing."""
        length = embeddings.shape[1]
        hidden = torch.full((length, length), -torch.inf, dtype=embeddings.dtype, device=embeddings.device)
        return hidden.triu(1)[None, None]

    def _fill(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Return prompts at full length, with the embedding of the padding, which counts, where no token is."""
        rest = self.context_length - embeddings.shape[1]
        padding = self.embedding.weight[self.pad].to(embeddings.dtype)
        filled = torch.where(mask[..., None], embeddings, padding)
        filled = torch.cat([filled, padding.expand(len(filled), rest, -1)], 1)
        if not self.left:
            return filled
        shift = self.context_length - mask.sum(1, keepdim=True)
        order = (torch.arange(self.context_length, device=mask.device) - shift) % self.context_length
        return filled.gather(1, order[..., None].expand_as(filled))


class ImageTower(torch.nn.Module):
    """The image tower of a model of transformers, with its projection.

    Args:
        model: the model; its layers are shared, not copied.
        name: its name, for messages.

    Raises:
        ArgumentError: the tower gives no feature of a whole picture.
    """

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.vision = model.vision_model
        self.projection = getattr(model, "visual_projection", None)
        if self.projection is None and not hasattr(self.vision, "head"):
            raise ArgumentError(
                f"{name}: its image tower has no head (vision_use_head), and so no feature of a picture"
            )
        linear = isinstance(self.vision.embeddings.patch_embedding, torch.nn.Linear)  # SigLIP 2 takes patches
        self.patch = int(self.vision.embeddings.patch_size) if linear else 0

    @property
    def layers(self) -> Any:
        """The attention blocks."""
        return self.vision.encoder.layers

    def embed(self, pixels: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images tokens features"]:
        """Return the tokens that enter the first block."""
        if self.patch:
            rows, columns = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
            cut = pixels.unflatten(3, (columns, self.patch)).unflatten(2, (rows, self.patch))
            patches = cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)  # by row, column, and channel last
            shapes = torch.tensor([[rows, columns]], device=pixels.device).expand(len(pixels), -1)
            embedded: Tensor = self.vision.embeddings(patches, shapes)
            return embedded
        tokens: Tensor = self.vision.embeddings(pixels)
        return self.vision.pre_layrnorm(tokens) if hasattr(self.vision, "pre_layrnorm") else tokens

    def pool(self, hidden: Float[Tensor, "images tokens features"]) -> Float[Tensor, "images dim"]:
        """Return the features of what leaves the last block, not of unit length."""
        if self.projection is None:
            return self.vision.head(self.vision.post_layernorm(hidden))  # type: ignore[no-any-return]
        return self.projection(self.vision.post_layernorm(hidden[:, 0]))  # type: ignore[no-any-return]

    def forward(self, pixels: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images dim"]:
        """Return the features of normalised pixels, not of unit length."""
        hidden = self.embed(pixels)
        for layer in self.layers:
            hidden = _output(layer(hidden, **_masks(layer)))
        return self.pool(hidden)


def _masks(layer: torch.nn.Module) -> dict[str, None]:
    """Return the masks that a block must be given, none of which hides anything; versions of the library differ."""
    names = inspect.signature(layer.forward).parameters
    return {name: None for name in ("attention_mask", "causal_attention_mask") if name in names}


def _output(given: Any) -> Tensor:
    hidden: Tensor = given[0] if isinstance(given, tuple) else given
    return hidden


class SplitImageTower(SplitTower):
    """An image tower of a model of transformers, cut below its last attention blocks."""

    def __init__(self, backbone: "Backbone", blocks: int) -> None:
        super().__init__(backbone, blocks)
        self.width = int(self._lower.layers[-1].self_attn.q_proj.in_features)

    @staticmethod
    def _layers(tower: Any) -> Any:
        return tower.layers

    def _embed(self, pixels: Tensor) -> Tensor:
        return self._lower.embed(pixels)  # type: ignore[no-any-return]

    def _run(self, layer: Any, hidden: Tensor) -> Tensor:
        return _output(layer(hidden, **_masks(layer)))

    def _run_changed(self, layer: Any, update: Tensor, hidden: Tensor) -> Tensor:
        parts = zip(("q_proj", "k_proj", "v_proj"), update.split(self.width), strict=True)
        weights = {f"self_attn.{part}.weight": getattr(layer.self_attn, part).weight + change for part, change in parts}
        return _output(torch.func.functional_call(layer, weights, (hidden,), _masks(layer)))

    def _pool(self, hidden: Tensor) -> Tensor:
        return self._upper.pool(hidden)  # type: ignore[no-any-return]
