"""Any open_clip model as a backbone; all that depends on the inner layout of the library's models is in this file.

The text tower runs from token embeddings, so that a context can be learnt: in the layouts `CLIP` and `CustomTextCLIP`,
causal with the feature at the end token (CLIP), and not causal with the feature at the last position (SigLIP). With an
untouched context its features are those of the model's own `encode_text`.
"""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, cast

import open_clip
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from open_clip.transformer import QuickGELU, ResidualAttentionBlock, VisionTransformer
from torch import Tensor

from faircontext.backbones.base import Backbone
from faircontext.backbones.split import SplitTower
from faircontext.backbones.towers import (
    ADAPTABLE_BLOCKS,
    DROPPABLE_PATCHES,
    USELESS,
    check_vocabulary,
    hash_of,
    pad_rows,
    refuse_features,
)
from faircontext.errors import ArgumentError, check_choice

__all__ = ["OpenClip", "SplitVisionTransformer", "TextTower"]

_LONG = 1024
"""Prompts are tokenised with room for this many tokens: one that is too long for the model must be seen to be."""


class TextTower(torch.nn.Module):
    """The text tower of an open_clip model, from token embeddings.

    Args:
        model: the model; its layers are shared, not copied.
        name: its name, for messages.
        pad: token id that fills prompts on the right.

    Attributes:
        full_length: whether padding counts: features then need the full context length. Otherwise, where attention is
            causal and the feature is taken at the end token, cutting the padding is exact.

    Raises:
        ArgumentError: the layout is another one.
    """

    causal: Tensor | None
    projection: Any  # None, a linear layer, or a matrix

    def __init__(self, model: torch.nn.Module, name: str, pad: int) -> None:
        super().__init__()
        source: Any = getattr(model, "text", model)
        pool = getattr(source, "pool_type", None) or getattr(source, "text_pool_type", None)
        if not hasattr(source, "token_embedding") or pool not in ("argmax", "eos", "first", "last"):
            raise ArgumentError(
                f"{name}: its text tower, {type(source).__name__}, does not have open_clip's layout, so its context "
                "cannot be learnt here"
            )
        self.embedding = source.token_embedding
        self.positions = source.positional_embedding
        self.transformer = source.transformer
        self.norm = source.ln_final
        self.projection = source.text_projection
        self.class_token = getattr(source, "cls_emb", None)  # CoCa
        self.register_buffer("causal", source.attn_mask, persistent=False)
        self.context_length = int(source.context_length)
        self.pool = pool
        self.pad = pad
        self._heads = getattr(source, "heads", 1)
        self._correct_mask = bool(getattr(source, "correct_cls_mask", False))
        self.full_length = self.causal is None or self.pool == "last" or self.class_token is not None
        shares = not self.full_length and pool != "first"
        self._shares = shares and all(type(block) is ResidualAttentionBlock for block in self.transformer.resblocks)

    def forward(
        self, embeddings: Float[Tensor, "prompts tokens width"], mask: Bool[Tensor, "prompts tokens"], shared: int = 0
    ) -> Float[Tensor, "prompts dim"]:
        """Encode prompts given by their token embeddings; the mask is True for tokens.

        The first `shared` tokens are the same in all prompts. Where attention is causal, what comes after cannot change
        them: they are run once, not once per prompt, which is exact.
        """
        if self.full_length:
            rest = self.context_length - embeddings.shape[1]
            padding = self.embedding.weight[self.pad].expand(len(embeddings), rest, -1)
            embeddings, mask = torch.cat([embeddings, padding], 1), F.pad(mask, (0, rest))
        ends = mask.sum(1) - 1
        if self.class_token is not None:
            embeddings = torch.cat([embeddings, self.class_token.expand(len(embeddings), 1, -1)], 1)
        length = embeddings.shape[1]
        if shared > 0 and self._shares:
            rest = self.norm(self._run_shared(embeddings, shared))
            return self._project(rest[torch.arange(len(ends), device=ends.device), ends - shared])
        hidden = self.transformer(embeddings + self.positions[:length], attn_mask=self._attention(mask, length))
        if self.class_token is not None:
            pooled = self.norm(hidden[:, -1])
        else:
            positions = {"first": torch.zeros_like(ends), "last": torch.full_like(ends, length - 1)}
            pooled = self.norm(hidden)[torch.arange(len(ends), device=ends.device), positions.get(self.pool, ends)]
        return self._project(pooled)

    def _project(self, pooled: Tensor) -> Tensor:
        if self.projection is None:
            return pooled
        linear = isinstance(self.projection, torch.nn.Linear)
        projected: Tensor = self.projection(pooled) if linear else pooled @ self.projection
        return projected

    def _run_shared(self, embeddings: Tensor, shared: int) -> Tensor:
        """Run all blocks, the shared tokens once, and return the hidden states of the tokens after them."""
        length = embeddings.shape[1]
        prefix = embeddings[:1, :shared] + self.positions[:shared]
        rest: Tensor = embeddings[:, shared:] + self.positions[shared:length]
        assert self.causal is not None
        mask = self.causal[shared:length, :length]
        for block in self.transformer.resblocks:
            query, key, value = _project_heads(block, prefix)
            prefix = _finish_block(block, prefix, F.scaled_dot_product_attention(query, key, value, is_causal=True))
            own_query, own_key, own_value = _project_heads(block, rest)
            keys = torch.cat([key.expand(len(rest), -1, -1, -1), own_key], dim=2)
            values = torch.cat([value.expand(len(rest), -1, -1, -1), own_value], dim=2)
            attended = F.scaled_dot_product_attention(own_query, keys, values, attn_mask=mask)
            rest = _finish_block(block, rest, attended)
        return rest

    def _attention(self, mask: Bool[Tensor, "prompts tokens"], length: int) -> Tensor | None:
        """Return the additive attention mask."""
        causal = None if self.causal is None else self.causal[:length, :length]
        if self.class_token is None:
            return causal
        one = mask.new_ones(len(mask), 1)
        # Released CoCa weights were trained with the class token at the wrong end of the mask.
        mask = torch.cat([mask, one] if self._correct_mask else [one, mask], 1)
        hidden = torch.zeros(mask.shape, dtype=self.positions.dtype, device=mask.device).masked_fill(~mask, -torch.inf)
        rows = hidden[:, None].expand(-1, length, -1).repeat_interleave(self._heads, 0)
        return rows if causal is None else causal + rows


def _project_heads(block: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of a residual attention block, each (rows, heads, tokens, width of a head)."""
    attention = block.attn
    joint = F.linear(block.ln_1(hidden), attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = joint.unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    return query, key, value


def _finish_block(block: Any, hidden: Tensor, attended: Tensor) -> Tensor:
    """Add the output of the block's attention, and that of its MLP."""
    hidden = hidden + block.ls_1(block.attn.out_proj(attended.transpose(1, 2).flatten(2)))
    finished: Tensor = hidden + block.ls_2(block.mlp(block.ln_2(hidden)))
    return finished


class SplitVisionTransformer(SplitTower):
    """The vision transformer of an open_clip model, cut below its last attention blocks."""

    def __init__(self, backbone: "OpenClip", blocks: int) -> None:
        super().__init__(backbone, blocks)
        self.width = int(self._lower.transformer.width)

    @staticmethod
    def _layers(tower: Any) -> Any:
        return tower.transformer.resblocks

    def _embed(self, pixels: Tensor) -> Tensor:
        return cast(Tensor, self._lower._embeds(pixels))

    def _run(self, layer: Any, hidden: Tensor) -> Tensor:
        return cast(Tensor, layer(hidden))

    def _run_changed(self, layer: Any, update: Tensor, hidden: Tensor) -> Tensor:
        weight = {"attn.in_proj_weight": layer.attn.in_proj_weight + update}
        return cast(Tensor, torch.func.functional_call(layer, weight, (hidden,)))

    def _pool(self, hidden: Tensor) -> Tensor:
        return _pool(self._upper, hidden)


def _pool(tower: Any, hidden: Float[Tensor, "images tokens width"]) -> Float[Tensor, "images dim"]:
    pooled: Tensor = tower._pool(hidden)[0]
    return pooled if tower.proj is None else pooled @ tower.proj


def _activation(model: torch.nn.Module) -> str:
    """Return GELU or QuickGELU, or both where the towers differ; a ResNet's own are not among them."""
    names = {type(module).__name__ for module in model.modules() if isinstance(module, QuickGELU | torch.nn.GELU)}
    return " and ".join(sorted(names))


class OpenClip(Backbone):
    """An open_clip model.

    Args:
        name: what it is called in tables and records.
        model: made by `open_clip.create_model`, in float32.
        tokenizer: made by `open_clip.get_tokenizer`.
        device: a torch device.
        precision: of the image tower: `auto`, `fp32`, `bf16` or `fp16`.
        batch_size: rows of an image encoder batch on an accelerator; on a CPU they are always 16.
        engine: of the image tower: `auto`, `torch` or `openvino`.

    Raises:
        ArgumentError: the model has a layout that cannot be used.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Callable[..., Tensor],
        *,
        device: str = "cpu",
        precision: str = "auto",
        batch_size: int = 16,
        engine: str = "auto",
    ) -> None:
        super().__init__(device, precision, batch_size, engine)
        self.name = name
        self._read_preprocessing(open_clip.get_model_preprocess_cfg(model))
        self._read_scale(model)
        self._tokenizer = tokenizer
        self._read_tokenizer()
        weights = model.state_dict()
        image = {key: tensor for key, tensor in weights.items() if key.startswith("visual.")}
        text = {key: weights[key] for key in weights if key not in image and not key.startswith("text_decoder.")}
        self.text_tower = self._placed(TextTower(model, name, self.pad), text)
        check_vocabulary(name, getattr(tokenizer, "tokenizer", tokenizer), len(self.text_tower.embedding.weight))
        # The tower is not run to see this: where text features are in the cache, nothing needs it.
        parts = ("text_projection", "every prompt", USELESS), ("token_embedding", "all prompts", "the same")
        for part, whose, problem in parts:
            if zero := {key: text[key] for key in text if part in key and text[key].ndim > 1 and not text[key].any()}:
                raise refuse_features(name, whose, zero, problem)
        self.context_length = self.text_tower.context_length
        self._place_tower(model.visual, image)
        self.facts = {"activation": _activation(model)}
        self._splits: dict[int, SplitTower] = {}

    @property
    def capabilities(self) -> frozenset[str]:
        """What some methods need beyond features; see `Backbone.capabilities`."""
        tower: Any = self.tower
        if not isinstance(tower, VisionTransformer):
            return super().capabilities
        splits = hasattr(tower.transformer.resblocks[-1], "attn")
        return super().capabilities | {DROPPABLE_PATCHES} | ({ADAPTABLE_BLOCKS} if splits else set())

    def _read_preprocessing(self, config: Mapping[str, Any]) -> None:
        sides = config["size"] if isinstance(config["size"], tuple | list) else (config["size"],) * 2
        if sides[0] != sides[1] or config["resize_mode"] == "longest":
            raise ArgumentError(
                f"{self.name}: reads pictures of {sides[0]} x {sides[1]} pixels, resize mode "
                f"{config['resize_mode']!r}; only squares, and the modes 'shortest' and 'squash', can be used"
            )
        check_choice(f"{self.name}: resize_mode", config["resize_mode"], ("shortest", "squash"))
        check_choice(f"{self.name}: interpolation", config["interpolation"], ("nearest", "bilinear", "bicubic"))
        mean, std = tuple(config["mean"]), tuple(config["std"])
        good = all(0 <= value <= 1 for value in mean) and all(0 < value < math.inf for value in std)
        if not (len(mean) == len(std) == 3 and good):
            raise ArgumentError(
                f"{self.name}: mean {mean} and std {std} are not possible; give three each, std above 0 and mean "
                "from 0 to 1, as pixels are"
            )
        self.image_size, self.mean, self.std = int(sides[0]), mean, std
        self.interpolation, self.resize_mode = config["interpolation"], config["resize_mode"]

    def _read_tokenizer(self) -> None:
        """Find out from an empty text what the tokenizer puts around and after the words."""
        empty = self._tokenizer([""], context_length=_LONG)[0]
        self.pad = int(empty[-1])
        around = int((empty != self.pad).sum())
        self.start = 1 if around > 1 else 0
        self._ends_with_padding = around == 0  # as in SigLIP, whose end token is its padding

    def _token_ids(self, text: str) -> list[int]:
        ids = self._tokenizer([text], context_length=_LONG)[0]
        tokens = (ids != self.pad).nonzero()
        length = (int(tokens[-1]) + 1 if len(tokens) else 0) + self._ends_with_padding
        prompt: list[int] = ids[:length].tolist()
        known = len(self.text_tower.embedding.weight)
        if max(prompt, default=0) >= known:
            raise ArgumentError(
                f"{self.name}: its tokenizer gives {text[:40]!r} the token {max(prompt)}, and the weights have {known}"
                "; name the tokenizer that they were trained with (hf_tokenizer_name in open_clip_config.json)"
            )
        return prompt

    def split_tower(self, blocks: int) -> SplitTower:
        """Return the image tower cut below its last attention blocks; see `Backbone.split_tower`."""
        if ADAPTABLE_BLOCKS not in self.capabilities:
            super().split_tower(blocks)
        if blocks not in self._splits:
            self._splits[blocks] = SplitVisionTransformer(self, blocks)
        return self._splits[blocks]

    @property
    def patches(self) -> int:
        """Patches along a side of a picture; see `Backbone.patches`."""
        if DROPPABLE_PATCHES not in self.capabilities:
            return super().patches
        return int(cast(Any, self.tower).grid_size[0])

    def encode_without(
        self, image: Float[Tensor, "3 height width"], hidden: Bool[Tensor, "masks patches patches"]
    ) -> Float[Tensor, "masks dim"]:
        """Return features of an image without its hidden patches, which are embedded once; see `Backbone`."""
        tower, side = cast(Any, self.tower), self.patches
        seen = F.pad(~hidden.flatten(1), (1, 0), value=True)  # the class token comes first
        if hidden.shape[-1] != side or len(counts := seen.sum(1).unique()) != 1 or int(counts[0]) < 2:
            raise ArgumentError(f"invalid hidden: each mask must hide as many of {side} x {side} patches, and not all")
        places = seen.nonzero()[:, 1].view(len(seen), -1).to(self.device)
        features = []
        with torch.inference_mode():
            tokens = tower._embeds(self._normalise(image[None]).to(self.dtype))[0]
            for rows in places.split(self.batch_size):
                pooled = _pool(tower, tower.transformer(tokens[pad_rows(rows)]))
                features.append(F.normalize(pooled.float(), dim=-1)[: len(rows)])
        return self._joined(features)

    @cached_property
    def text_hash(self) -> str:
        """SHA-256 of the text tower's weights, in hexadecimal."""
        return hash_of(self.text_tower)
