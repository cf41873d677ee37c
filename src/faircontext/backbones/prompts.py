"""Prompts: named sets of templates, tokens with the position of the context, and gradients group by group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from faircontext.errors import LabelError, unknown_name

__all__ = [
    "CONTEXT",
    "PROMPT_SETS",
    "CheckpointedFeatures",
    "Placement",
    "Prompts",
    "contexts_of",
    "encode_groups",
    "fill_template",
    "prompt_set",
]

Placement = Literal["replace", "prepend"]
"""Where learnable tokens go: they replace the prompt's context tokens (CL), or stand before the prompt (CL-HP)."""

CONTEXT = "a photo of a"
"""The base context of the paper; its token embeddings are what CL learns and what CL-HP starts from."""

PROMPT_SETS = {
    "single": ("a photo of a {}.",),
    # Chosen by the authors of CLIP by forward selection over their 80 templates ("a origami" is theirs).
    "generic7": (
        "itap of a {}.",
        "a bad photo of the {}.",
        "a origami {}.",
        "a photo of the large {}.",
        "a {} in a video game.",
        "art of the {}.",
        "a photo of the small {}.",
    ),
}


def prompt_set(name: str, others: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the templates of a named prompt set: one of `PROMPT_SETS`, or `imagenet80`, all 80 of CLIP's authors.

    Args:
        name: of the set.
        others: names that the caller knows besides, which the error lists as well.

    Raises:
        ArgumentError: there is no such set.
    """
    if name == "imagenet80":
        from open_clip.zero_shot_metadata import OPENAI_IMAGENET_TEMPLATES  # takes seconds to import

        return tuple(template("{}") for template in OPENAI_IMAGENET_TEMPLATES)
    if name not in PROMPT_SETS:
        raise unknown_name("prompt set", name, [*PROMPT_SETS, "imagenet80", *others])
    return PROMPT_SETS[name]


def fill_template(template: str, name: str) -> str:
    """Put a class name into a template; underscores become spaces.

    Raises:
        LabelError: the template does not have exactly one `{}` for the name.
    """
    if template.count("{}") != 1:
        raise LabelError(f"prompt template {template!r} needs exactly one {{}} for the class name")
    return template.replace("{}", name.replace("_", " "))


@dataclass(frozen=True)
class Prompts:
    """Tokenised prompts of one template.

    Attributes:
        texts: the prompts as words.
        ids: token ids, padded on the right to the longest prompt.
        mask: True for tokens, False for padding.
        start: position of the first context token (1 where the tower has a start token, else 0).
        length: number of context tokens, those before the class name; 0 where they are not the same in all prompts.
        cut_rows: which prompts have lost tokens.
        fused: the first prompt in which the words before the class name are no tokens of their own, if there is one:
            then there is no context.
    """

    texts: tuple[str, ...]
    ids: Int[Tensor, "prompts tokens"]
    mask: Bool[Tensor, "prompts tokens"]
    start: int
    length: int
    cut_rows: tuple[int, ...] = ()
    fused: str | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Sequence[int]) -> "Prompts":
        """Return some of the prompts, cut to the longest of them."""
        index = torch.as_tensor(rows, device=self.ids.device)
        mask = self.mask[index]
        longest = int(mask.sum(1).max())
        texts = tuple(self.texts[row] for row in rows)
        return replace(self, texts=texts, ids=self.ids[index, :longest], mask=mask[:, :longest], cut_rows=())

    def cut(self, limit: int) -> "Prompts":
        """Return the prompts with at most `limit` tokens each; the last one, which ends a prompt, stays."""
        lengths = self.mask.sum(1)
        long = lengths > limit
        if not long.any():
            return self
        ids, mask = self.ids[:, :limit].clone(), self.mask[:, :limit]
        ids[long, limit - 1] = self.ids[long, lengths[long] - 1]
        return replace(self, ids=ids, mask=mask, cut_rows=tuple(long.nonzero()[:, 0].tolist()))

    @classmethod
    def build(
        cls, template: str, names: Sequence[str], token_ids: Callable[[str], list[int]], start: int, pad: int = 0
    ) -> "Prompts":
        """Tokenise a template filled with class names, in full.

        Args:
            template: prompt template.
            names: class names.
            token_ids: ids of a text, with the start token, if there is one, and the end token.
            start: number of start tokens.
            pad: id that fills rows on the right.

        Raises:
            LabelError: the template has no `{}` for a name.
        """
        texts = tuple(fill_template(template, name) for name in names)
        rows = [token_ids(text) for text in texts]
        words = template.partition("{}")[0]
        context = token_ids(words.rstrip())[:-1]  # Gemma's tokenizer has a token for a blank at the end
        apart = not words or words[-1].isspace()

        def fuses(text: str, row: list[int]) -> bool:
            # The words are tokens of their own where the prompt begins with theirs and a blank after them changes
            # nothing. Letters cannot tell: languages without blanks need none, and tokenizers differ.
            return row[: len(context)] != context or (not apart and token_ids(f"{words} {text[len(words) :]}") != row)

        fused = next((text for text, row in zip(texts, rows, strict=True) if fuses(text, row)), None)
        longest = max(map(len, rows))
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        mask = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
        return cls(texts, ids, mask, start, 0 if fused is not None else len(context) - start, fused=fused)

    def to(self, device: torch.device) -> "Prompts":
        """Return the prompts on a device."""
        return replace(self, ids=self.ids.to(device), mask=self.mask.to(device))

    def insert(
        self,
        embeddings: Float[Tensor, "prompts tokens width"],
        context: Float[Tensor, "*classes length width"],
        placement: Placement,
    ) -> tuple[Float[Tensor, "prompts more width"], Bool[Tensor, "prompts more"]]:
        """Return embeddings and mask with learnable tokens instead of the context tokens, or before the prompts.

        A context of three dimensions has tokens for each prompt.
        """
        before, after = self.start, self.start + (self.length if placement == "replace" else 0)
        rows = context if context.ndim == 3 else context.expand(len(embeddings), *context.shape)
        ones = self.mask.new_ones(len(self), context.shape[-2])
        return (
            torch.cat([embeddings[:, :before], rows, embeddings[:, after:]], dim=1),
            torch.cat([self.mask[:, :before], ones, self.mask[:, after:]], dim=1),
        )

    def split(self, size: int) -> list["Prompts"]:
        """Return the prompts in groups of `size`, in order."""
        return [self.select(range(begin, min(begin + size, len(self)))) for begin in range(0, len(self), size)]


def contexts_of(context: Tensor, groups: Sequence[Prompts]) -> Sequence[Tensor]:
    """Return the context of each group of prompts: the same, or its rows where each prompt has its own."""
    if context.ndim == 2:
        return [context] * len(groups)
    rows: Sequence[Tensor] = context.split([len(group) for group in groups])
    return rows


def encode_groups(
    groups: Sequence[Prompts], context: Tensor | None, encode: Callable[[Prompts, Tensor | None], Tensor]
) -> Tensor:
    """Return the features of groups of prompts, one group after another."""
    contexts = [None] * len(groups) if context is None else contexts_of(context, groups)
    return torch.cat([encode(group, own) for group, own in zip(groups, contexts, strict=True)])


class CheckpointedFeatures(torch.autograd.Function):
    """Text features of groups of prompts with gradient checkpointing: each group is encoded again for its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        context: Tensor,
        groups: list[Prompts],
        encode: Callable[[Prompts, Tensor | None], Tensor],
        known: Tensor | None,
    ) -> Tensor:
        """Return the features of all groups, which are encoded unless they are known."""
        ctx.save_for_backward(context)
        ctx.groups, ctx.encode = groups, encode
        return encode_groups(groups, context, encode) if known is None else known.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient for the context, summed group by group."""
        (context,) = ctx.saved_tensors
        total = torch.zeros_like(context)
        parts = zip(
            ctx.groups,
            upstream[0].split([len(group) for group in ctx.groups]),
            contexts_of(context, ctx.groups),
            contexts_of(total, ctx.groups),
            strict=True,
        )
        for group, rows, part, sum_ in parts:
            leaf = part.detach().requires_grad_()
            with torch.enable_grad():
                features = ctx.encode(group, leaf)
            sum_ += torch.autograd.grad(features, leaf, rows)[0]
        return total, None, None, None
