"""Models of transformers as backbones; all that depends on the inner layout of the library's models is in this file.

The text encoder runs from token embeddings, so that a context can be learnt. There are three kinds: causal with the
feature at the end token (CLIP); not causal, over padding as well, with the feature at the last position (SigLIP and
SigLIP 2); and an encoder as BERT or RoBERTa with the feature at the first token (AltCLIP and Chinese-CLIP). With an
untouched context its features are those of the model's own `get_text_features`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.base import ADAPTABLE_BLOCKS
from faircontext.backbones.loaded import Loaded, LoadedBackbone, TextEncoder
from faircontext.backbones.split import Blocks, run_block
from faircontext.cache import hash_of
from faircontext.errors import ArgumentError, silence
from faircontext.files import digest

Pool = Literal["end", "last", "first"]
"""Where the feature of a prompt is taken: at the end token, the last position or the first token."""


@dataclass(frozen=True)
class Kind:
    """What is known of the models of a `model_type`.

    Attributes:
        model: the library's class.
        pool: where a prompt's feature is taken, see `TextEncoder`.
        pixels: mean and deviation of each channel, where a folder does not say.
        clean: what is done to a prompt before the tokenizer reads it. Tokenizers of SigLIP 2 are Gemma's, which know
            nothing of what SigLIP was trained on.
    """

    model: str
    pool: Pool
    pixels: tuple[tuple[float, float, float], tuple[float, float, float]]
    clean: Callable[[str], str] = str


def _canonicalize(text: str) -> str:
    """Return a prompt in small letters and without punctuation, as the same weights get it by their open_clip name."""
    from open_clip.tokenizer import get_clean_fn  # takes seconds to import

    return str(get_clean_fn("canonicalize")(text))


_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
KINDS = {
    "clip": Kind("CLIPModel", "end", _CLIP),
    "siglip": Kind("SiglipModel", "last", _HALF, _canonicalize),
    "siglip2": Kind("Siglip2Model", "last", _HALF, str.lower),
    "altclip": Kind("AltCLIPModel", "first", _CLIP),
    "chinese_clip": Kind("ChineseCLIPModel", "first", _CLIP),
}
"""By `model_type` of `config.json`."""


class TransformersText(TextEncoder):
    """The text encoder of a model of transformers.

    Args:
        model: the model.
        pool: where the feature is taken; with `"last"` every prompt is padded to full length.
        length: longest prompt.
        pad: token id of the padding.
        left: whether padding comes before the prompt.
    """

    def __init__(self, model: Any, pool: Pool, length: int, pad: int, left: bool = False) -> None:
        super().__init__(length, pad, pool, pool == "last")
        self.text, self.left = model.text_model, left
        self.projection = None if pool == "last" else model.text_projection

    @property
    def embedding(self) -> Any:
        """The embedding of tokens."""
        embeddings = getattr(self.text, "roberta", self.text).embeddings  # AltCLIP's encoder is one level below
        return embeddings.word_embeddings if self.pool == "first" else embeddings.token_embedding

    def _run(self, embeddings: Tensor, mask: Tensor, shared: int) -> Tensor:  # noqa: ARG002 (all tokens are run)
        hidden: Tensor
        if self.pool == "first":
            hidden = self.text(inputs_embeds=embeddings, attention_mask=mask.long()).last_hidden_state
            return hidden
        length, causal = embeddings.shape[1], None
        if self.left:
            order = (torch.arange(length, device=mask.device) + mask.sum(1, keepdim=True)) % length
            embeddings = embeddings.gather(1, order[..., None].expand_as(embeddings))
        if self.pool == "end":  # padding comes after the feature and changes nothing
            hidden = torch.full((length, length), -torch.inf, dtype=embeddings.dtype, device=embeddings.device)
            causal = hidden.triu(1)[None, None]
        embedded = self.text.embeddings(inputs_embeds=embeddings)  # with positions
        encoded = self.text.encoder(inputs_embeds=embedded, attention_mask=causal).last_hidden_state
        hidden = self.text.final_layer_norm(encoded)
        return hidden

    def _project(self, pooled: Tensor) -> Tensor:
        features: Tensor = self.text.head(pooled) if self.projection is None else self.projection(pooled)
        return features


class ImageEncoder(torch.nn.Module):
    """The image encoder of a model of transformers, with its projection.

    Args:
        model: the model; its layers are shared, not copied.
        name: its name, for messages.

    Raises:
        ArgumentError: the encoder gives no feature of a whole picture.
    """

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.vision = model.vision_model
        self.projection = getattr(model, "visual_projection", None)
        if self.projection is None and not hasattr(self.vision, "head"):
            raise ArgumentError(f"{name}: its image tower has no head (vision_use_head), so no feature of a picture")
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
            hidden = run_block(layer, hidden)
        return self.pool(hidden)


_QKV = tuple(f"self_attn.{part}_proj.weight" for part in "qkv")
_VIT = Blocks(lambda encoder: encoder.layers, ImageEncoder.embed, ImageEncoder.pool, _QKV)

_ACTIVATIONS = {"quick_gelu": "QuickGELU", "gelu": "GELU"}


class TransformersClip(LoadedBackbone):
    """A model of transformers.

    Args:
        name: what it is called in tables and records.
        loaded: a model of one of the library's classes, and its tokenizer.
        kind: what is known of models of its class.
        **options: `device`, `precision`, `batch_size` and `engine`, see `LoadedBackbone`.

    Raises:
        ArgumentError: the weights or the tokenizer cannot be used.
    """

    blocks = _VIT
    image_parts = ("vision_model.", "visual_projection.")

    def __init__(self, name: str, loaded: Loaded, kind: Kind, **options: Any) -> None:
        super().__init__(name, loaded, **options)
        model, tokenizer, config, self._kind = loaded.model, loaded.tokenizer, loaded.model.config, kind
        self._read_tokenizer()
        before = int(config.text_config.pad_token_id) + 1 if hasattr(model.text_model, "roberta") else 0
        length = min(int(config.text_config.max_position_embeddings) - before, tokenizer.model_max_length)
        text_encoder = TransformersText(model, kind.pool, length, self.pad, tokenizer.padding_side == "left")
        self._take(model, text_encoder, ImageEncoder(model, name))
        parts = {config.text_config.hidden_act, config.vision_config.hidden_act}
        self.facts = {"activation": " and ".join(sorted(_ACTIVATIONS.get(part, part) for part in parts))}

    def _read_tokenizer(self) -> None:
        """Find out from an empty text what the tokenizer puts around the words, and with what it fills rows."""
        tokenizer, last = self._tokenizer, self._kind.pool == "last"
        pad = tokenizer.pad_token_id
        if pad is None and last:
            raise ArgumentError(f"{self.name}: its tokenizer has no padding token, with which prompts are filled up")
        self.pad = int(pad or 0)
        empty = tokenizer("")["input_ids"]
        ends = [one for one in (tokenizer.eos_token_id, tokenizer.sep_token_id) if one is not None]
        self._adds_end = bool(empty) and empty[-1] in ends
        self.start = len(empty) - self._adds_end
        if self.start > 1 or not (self._adds_end or last):
            wanted = "not a start token, if any, and an end token"
            raise ArgumentError(f"{self.name}: its tokenizer makes of an empty text the tokens {empty}, and {wanted}")

    def _tokens(self, text: str) -> list[int]:
        with silence():  # of prompts that are too long, which are refused with all that is wrong
            ids: list[int] = [*self._tokenizer(self._kind.clean(text), truncation=False)["input_ids"]]
        return ids if self._adds_end else [*ids, self.pad]  # prompts are filled up with it anyway

    @property
    def capabilities(self) -> frozenset[str]:
        """What some methods need beyond features; see `Backbone.capabilities`."""
        return super().capabilities | {ADAPTABLE_BLOCKS}

    @cached_property
    def text_hash(self) -> str:
        """SHA-256 of the text encoder's weights and of how prompts are filled up, in hexadecimal."""
        text = self.text_encoder
        return digest(f"{hash_of(text)} {text.context_length} {text.pad} {text.left}")
