"""`Backbone`, the interface of a vision-language model: image features, and text features with a learnable context."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones.image_encoder import ImageEncoder
from faircontext.backbones.prompts import CheckpointedFeatures, Placement, Prompts, encode_groups
from faircontext.backbones.towers import (
    ADAPTABLE_BLOCKS,
    MINIMUM_COSINE,
    ROW_MULTIPLE,
    TRAINABLE_TOWER,
    hash_of,
    refuse_features,
    useless_rows,
)
from faircontext.errors import LongPromptError, check_choice
from faircontext.files import digest
from faircontext.views import ViewRecipe

__all__ = ["ADAPTABLE_BLOCKS", "MINIMUM_COSINE", "ROW_MULTIPLE", "TRAINABLE_TOWER", "Backbone", "hash_of"]

TEXT_BATCH = 64
"""Prompts are encoded in groups of this many, each cut to its longest."""


class Backbone(ImageEncoder):
    """A vision-language model with unit-norm image and text embeddings.

    Masks and evidence maps live in pixel space, so normalisation by mean and standard deviation happens in here.

    Attributes:
        name: the model's name.
        image_size: side of the square input, in pixels.
        mean: per channel, of pixels in [0, 1].
        std: per channel.
        interpolation: the filter of the plain view.
        resize_mode: how the plain view is made square, see `plain_view`.
        logit_scale: `exp(logit_scale)` of the model: what cosines are multiplied by for probabilities (100 for CLIP).
        logit_bias: of a model that was trained with a sigmoid over pairs (SigLIP): what is added to a logit before it;
            None where there is none.
        context_length: longest prompt, in tokens.
        start: number of start tokens of a prompt.
        pad: token id that fills prompts on the right.
        tower: the image tower in PyTorch, on its device in its precision; where another engine runs a copy of it, it is
            loaded when it is first asked for.
        text_tower: the text tower, with an `embedding` of tokens. It is called with embeddings of tokens and padding,
            a mask that is True for tokens, and how many first tokens are the same in all prompts.
        device: where the model is.
        precision: of the image tower: fp32, bf16 or fp16. The text tower, which is adapted, is always float32.
        dtype: the same, as a torch dtype.
        requested_engine: of the image tower: auto, torch or openvino.
        batch_size: rows that are prepared and encoded at once; 16 on a CPU.
    """

    start: int = 0
    pad: int = 0
    text_tower: Any
    context_length: int
    logit_bias: float | None = None
    recommended: Mapping[str, Mapping[str, object]] = {}
    """Overrides of the preset "recommended", by method, and of the view recipe, under "views"."""
    facts: Mapping[str, object] = {}
    """What records say of the model besides: things that neither its name nor its weights tell, as the activation."""

    def _read_scale(self, model: Any) -> None:
        """Take the scale and the bias of the logits; a bias of zero stands in for one that weights lack."""
        self.logit_scale = float(model.logit_scale.detach().exp())
        bias = getattr(model, "logit_bias", None)
        self.logit_bias = None if bias is None else float(bias.detach()) or None

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 of all weights, the image tower's in the precision in which they are used, in hexadecimal."""
        return digest(f"{self.text_hash} {self.tower_hash}")

    @property
    def text_dtype(self) -> torch.dtype:
        """What text features are computed in: float32, unless someone has changed the text tower."""
        return self.token_embeddings(torch.zeros(1, 1, dtype=torch.long, device=self.device)).dtype

    @abstractmethod
    def _token_ids(self, text: str) -> list[int]:
        """Tokenise a text in full, with start token (where there is one) and end token."""

    def token_embeddings(self, ids: Int[Tensor, "*batch tokens"]) -> Float[Tensor, "*batch tokens width"]:
        """Look up token embeddings, detached."""
        embedded: Tensor = self.text_tower.embedding(ids)
        return embedded.detach()

    def _encode_embeddings(self, embeddings: Tensor, mask: Tensor, shared: int) -> Tensor:
        """Encode prompts given by their token embeddings; need not be normalised to unit length."""
        features: Tensor = self.text_tower(embeddings, mask, shared)
        return features

    @property
    @abstractmethod
    def text_hash(self) -> str:
        """Hexadecimal hash of the text tower's weights: what text features depend on, besides the prompts."""

    def tokenize(self, names: Sequence[str], template: str) -> Prompts:
        """Tokenise a template filled with class names, in full; see `check_length`.

        Raises:
            LabelError: the template has no `{}` for a name.
        """
        return Prompts.build(template, names, self._token_ids, self.start, self.pad).to(self.device)

    def describe(self, prompts: Sequence[Sequence[str]]) -> Prompts:
        """Tokenise several prompts of each class, in full; their features are one for each class, the unit mean."""
        return Prompts.describe(prompts, self._token_ids, self.start, self.pad).to(self.device)

    def context_of(self, text: str) -> Float[Tensor, "tokens width"]:
        """Return the token embeddings of some words, without start and end tokens."""
        return self.token_embeddings(torch.tensor(self._token_ids(text)[self.start : -1], device=self.device))

    def _text_features(self, prompts: Prompts, context: Tensor | None, placement: Placement) -> Tensor:
        embeddings, mask = self.token_embeddings(prompts.ids), prompts.mask
        if context is not None:
            embeddings, mask = prompts.insert(embeddings, context, placement)
        shared = prompts.start
        if context is None or context.ndim == 2:
            shared += prompts.length + embeddings.shape[1] - prompts.ids.shape[1]
        return F.normalize(self._encode_embeddings(embeddings, mask, shared), dim=-1)

    def encode_text(
        self,
        prompts: Prompts,
        context: Float[Tensor, "*classes tokens width"] | None = None,
        placement: Placement = "replace",
        known: Float[Tensor, "prompts dim"] | None = None,
    ) -> Float[Tensor, "classes dim"]:
        """Return unit-norm text features of each class, in float32; gradients flow to the context.

        Where a class has several prompts, its features are the unit mean of theirs, see `Prompts.pool`.
        Prompts with the same words are encoded once, so that their features are equal to the bit. Many prompts are
        encoded without a graph, and group by group again when their gradient is asked for (two passes, exact):
        memory does not grow with their number.

        Args:
            prompts: tokenised prompts.
            context: token embeddings that replace the prompts' context tokens (`"replace"`, CL) or are put
                before the prompt, right after the start token (`"prepend"`, CL-HP); one for all prompts, or one each.
            placement: which of the two.
            known: the prompts' features, as at a context that has not moved: then only a gradient encodes anything.

        Raises:
            LabelError: a prompt, with the context, has more tokens than fit.
            ArgumentError: without a context, the features of a prompt are useless. Those of a context that is learnt
                are for whoever learns it to check.
        """
        own = context is not None and context.ndim == 3
        replaced = prompts.length if placement == "replace" else 0
        self.check_length(prompts, 0 if context is None else context.shape[-2] - replaced)
        # With a context of its own, a prompt is no other's, whatever its words.
        keys = [(text, row if own else 0) for row, text in enumerate(prompts.texts)]
        rows = {key: row for row, key in reversed(list(enumerate(keys)))}
        lengths = prompts.lengths
        firsts = sorted(rows.values(), key=lambda row: (lengths[row], row))  # like lengths together: little padding
        unique = prompts.select(firsts)
        groups = unique.split(TEXT_BATCH)
        context = context[firsts] if context is not None and own else context
        encode = partial(self._text_features, placement=placement)
        known = None if known is None else known[firsts]
        if context is None or not (context.requires_grad and torch.is_grad_enabled()):
            features = encode_groups(groups, context, encode) if known is None else known
        elif known is None and len(groups) == 1:
            features = encode(unique, context)
        else:
            features = CheckpointedFeatures.apply(context, groups, encode, known)
        if context is None and (useless := useless_rows(features)).any():
            raise refuse_features(self.name, f"the prompt {unique.texts[int(useless.nonzero()[0])][:60]!r}", {})
        index = {keys[first]: row for row, first in enumerate(firsts)}
        return prompts.pool(features[[index[key] for key in keys]])

    def check_length(self, prompts: Prompts, extra: int = 0, names: Sequence[str] = ()) -> None:
        """Raise `LongPromptError`, naming the longest prompt, unless all prompts fit.

        Args:
            prompts: tokenised prompts.
            extra: so many tokens more, or fewer.
            names: of the classes, for the message where a class has several prompts.
        """
        tokens = max(prompts.lengths) + extra
        if tokens > self.context_length:
            longest = prompts.lengths.index(max(prompts.lengths))
            text, described = prompts.texts[longest], prompts.counts is not None
            owners = [name for name, rows in zip(names, prompts.rows, strict=False) if longest in rows]
            cure = f"shorten {'it' if described else 'the class name'}, or truncate it (--truncate)"
            if extra > max(prompts.lengths):  # what is learnt is the longer part
                cure = "the context is too long, take a shorter one"
            raise LongPromptError(
                f"{f'class {owners[0]!r}: ' if described and owners else ''}prompt {text[:60]!r} has {tokens} tokens, "
                f"more than the {self.context_length} that {self.name} reads"
                f"{f' ({extra} of them learnable)' if extra > 0 else ''}; {cure}",
                text,
            )

    def context(self, prompts: Prompts) -> Float[Tensor, "tokens width"]:
        """Return `delta_0` of CL: the embeddings of the prompts' context tokens."""
        return self.token_embeddings(prompts.ids[0, prompts.start : prompts.start + prompts.length])

    def view_recipe(self, preset: str) -> ViewRecipe:
        """Return the view recipe of a preset: the paper's, or what is recommended for this backbone."""
        check_choice("preset", preset, ("paper", "recommended", "official"))
        overrides = self.recommended.get("views", {}) if preset == "recommended" else {}
        return ViewRecipe(**overrides)  # type: ignore[arg-type]
