"""Any open_clip model as a backbone; all that depends on the inner layout of the library's models is in this file.

The text encoder runs from token embeddings, so that a context can be learnt: in the layouts `CLIP` and
`CustomTextCLIP`, causal with the feature at the end token (CLIP), and not causal with the feature at the last position
(SigLIP). With an untouched context its features are those of the model's own `encode_text`.
"""

from collections.abc import Callable
from typing import Any, cast

import open_clip
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from open_clip.transformer import QuickGELU, ResidualAttentionBlock, VisionTransformer
from torch import Tensor

from faircontext.backbones.base import ADAPTABLE_BLOCKS, DROPPABLE_PATCHES, require
from faircontext.backbones.engines import pad_rows
from faircontext.backbones.loaded import Loaded, LoadedBackbone, TextEncoder
from faircontext.backbones.split import Blocks
from faircontext.errors import ArgumentError

_LONG = 1024
"""Prompts are tokenised with room for this many tokens: one that is too long for the model must be seen to be."""


class OpenClipText(TextEncoder):
    """The text encoder of an open_clip model.

    Args:
        model: the model.
        name: its name, for messages.
        pad: token id that fills prompts on the right.

    Raises:
        ArgumentError: the layout is another one.
    """

    causal: Tensor | None
    projection: Any  # None, a linear layer, or a matrix

    def __init__(self, model: torch.nn.Module, name: str, pad: int) -> None:
        source: Any = getattr(model, "text", model)
        pool = getattr(source, "pool_type", None) or getattr(source, "text_pool_type", None)
        if not hasattr(source, "token_embedding") or pool not in ("argmax", "eos", "first", "last"):
            other = f"its text tower, {type(source).__name__}, does not have open_clip's layout"
            raise ArgumentError(f"{name}: {other}, so its context cannot be learnt here")
        class_token = getattr(source, "cls_emb", None)  # CoCa, whose feature is that of its last token
        pool = "last" if class_token is not None else pool
        super().__init__(int(source.context_length), pad, pool, source.attn_mask is None or pool == "last")
        self.embedding, self.positions = source.token_embedding, source.positional_embedding
        self.transformer, self.norm = source.transformer, source.ln_final
        self.projection, self.class_token = source.text_projection, class_token
        self.register_buffer("causal", source.attn_mask, persistent=False)
        self._heads = getattr(source, "heads", 1)
        self._correct_mask = bool(getattr(source, "correct_cls_mask", False))
        shares = not self.full_length and pool != "first"
        self._shares = shares and all(type(block) is ResidualAttentionBlock for block in self.transformer.resblocks)

    def _run(self, embeddings: Tensor, mask: Tensor, shared: int) -> Tensor:
        if shared > 0 and self._shares:
            hidden = self._run_shared(embeddings, shared)
        else:
            if self.class_token is not None:
                embeddings = torch.cat([embeddings, self.class_token.expand(len(embeddings), 1, -1)], 1)
            length = embeddings.shape[1]
            hidden = self.transformer(embeddings + self.positions[:length], attn_mask=self._attention(mask, length))
        normed: Tensor = self.norm(hidden)
        return normed

    def _project(self, pooled: Tensor) -> Tensor:
        if self.projection is None:
            return pooled
        linear = isinstance(self.projection, torch.nn.Linear)
        projected: Tensor = self.projection(pooled) if linear else pooled @ self.projection
        return projected

    def _run_shared(self, embeddings: Tensor, shared: int) -> Tensor:
        """Run all blocks, the shared tokens once, and return the hidden states of the tokens after them.

        Where attention is causal, what comes after cannot change the shared tokens, so that this is exact.
        """
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


def _pool(encoder: Any, hidden: Float[Tensor, "images tokens width"]) -> Float[Tensor, "images dim"]:
    pooled: Tensor = encoder._pool(hidden)[0]
    return pooled if encoder.proj is None else pooled @ encoder.proj


def _embed(encoder: Any, pixels: Tensor) -> Tensor:
    return cast(Tensor, encoder._embeds(pixels))


_VIT = Blocks(lambda encoder: encoder.transformer.resblocks, _embed, _pool, ("attn.in_proj_weight",))


class OpenClip(LoadedBackbone):
    """An open_clip model.

    Args:
        name: what it is called in tables and records.
        model: made by `open_clip.create_model`, in float32.
        tokenizer: made by `open_clip.get_tokenizer`.
        **options: `device`, `precision`, `batch_size` and `engine`, see `LoadedBackbone`.

    Raises:
        ArgumentError: the model has a layout that cannot be used.
    """

    blocks = _VIT
    image_parts = ("visual.",)

    def __init__(self, name: str, model: Any, tokenizer: Callable[..., Tensor], **options: Any) -> None:
        super().__init__(name, Loaded(model, tokenizer, open_clip.get_model_preprocess_cfg(model)), **options)
        empty = tokenizer([""], context_length=_LONG)[0]  # shows what is put around the words, and after them
        self.pad = int(empty[-1])
        around = int((empty != self.pad).sum())
        self.start = 1 if around > 1 else 0
        self._ends_with_padding = around == 0  # as in SigLIP, whose end token is its padding
        self._take(model, OpenClipText(model, name, self.pad), model.visual)
        # GELU or QuickGELU, or both where the encoders differ; a ResNet's own are not among them.
        names = {type(module).__name__ for module in model.modules() if isinstance(module, QuickGELU | torch.nn.GELU)}
        self.facts = {"activation": " and ".join(sorted(names))}

    @property
    def capabilities(self) -> frozenset[str]:
        """What some methods need beyond features; see `Backbone.capabilities`."""
        encoder: Any = self.image_encoder
        if not isinstance(encoder, VisionTransformer):
            return super().capabilities
        splits = hasattr(encoder.transformer.resblocks[-1], "attn")
        return super().capabilities | {DROPPABLE_PATCHES} | ({ADAPTABLE_BLOCKS} if splits else set())

    def _tokens(self, text: str) -> list[int]:
        ids = self._tokenizer([text], context_length=_LONG)[0]
        tokens = (ids != self.pad).nonzero()
        length = (int(tokens[-1]) + 1 if len(tokens) else 0) + self._ends_with_padding
        prompt: list[int] = ids[:length].tolist()
        return prompt

    @property
    def patches(self) -> int:
        """Patches along a side of a picture; see `Backbone.patches`."""
        require(self, DROPPABLE_PATCHES)
        return int(cast(Any, self.image_encoder).grid_size[0])

    def encode_without(
        self, image: Float[Tensor, "3 height width"], hidden: Bool[Tensor, "masks patches patches"]
    ) -> Float[Tensor, "masks dim"]:
        """Return features of an image without its hidden patches, which are embedded once; see `Backbone`."""
        encoder, side = cast(Any, self.image_encoder), self.patches
        seen = F.pad(~hidden.flatten(1), (1, 0), value=True)  # the class token comes first
        if hidden.shape[-1] != side or len(counts := seen.sum(1).unique()) != 1 or int(counts[0]) < 2:
            raise ArgumentError(f"invalid hidden: each mask must hide as many of {side} x {side} patches, and not all")
        places = seen.nonzero()[:, 1].view(len(seen), -1).to(self.device)
        features = []
        with torch.inference_mode():
            tokens = encoder._embeds(self._normalise(image[None]).to(self.dtype))[0]
            for rows in places.split(self.batch_size):
                pooled = _pool(encoder, encoder.transformer(tokens[pad_rows(rows)]))
                features.append(F.normalize(pooled.float(), dim=-1)[: len(rows)])
        return self._joined(features)
