"""Prompts: named sets of templates, tokens with the position of the context, and gradients group by group."""

import unicodedata
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from faircontext.errors import unknown_name
from faircontext.prompt_files import as_template, fill_template

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


@runtime_checkable
class Tokenizes(Protocol):
    """What prompts need of a backbone, see `Backbone`."""

    start: int
    pad: int

    def _token_ids(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class Prompts:
    """Tokenised prompts of one template, one for each class; or all prompts of each class, which count as one.

    Attributes:
        texts: the prompts as words.
        ids: token ids, padded on the right to the longest prompt.
        mask: True for tokens, False for padding.
        start: position of the first context token (1 where the encoder has a start token, else 0).
        length: number of context tokens, those before the class name; 0 where they are not the same in all prompts.
        cut_rows: which prompts have lost tokens.
        fused: the first prompt in which the words before the class name are no tokens of their own, if there is one:
            then there is no context.
        counts: how many prompts each class has, in the order of the rows; None where each has one, of a template.
    """

    texts: tuple[str, ...]
    ids: Int[Tensor, "prompts tokens"]
    mask: Bool[Tensor, "prompts tokens"]
    start: int
    length: int
    cut_rows: tuple[int, ...] = ()
    fused: str | None = None
    counts: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens each prompt has; read from the device once, and no more for prompts that are selected."""
        return tuple(self.mask.sum(1).tolist())

    @property
    def rows(self) -> list[range]:
        """The rows of each class."""
        counts = self.counts or (1,) * len(self)
        ends = [0, *accumulate(counts)]
        return [range(begin, end) for begin, end in pairwise(ends)]

    def of_classes(self, classes: Sequence[int]) -> "Prompts":
        """Return the prompts of some classes, cut to the longest of them."""
        if self.counts is None:
            return self.select(classes)
        rows, counts = self.rows, tuple(self.counts[index] for index in classes)
        return replace(self.select([row for index in classes for row in rows[index]]), counts=counts)

    def pool(self, features: Float[Tensor, "prompts dim"]) -> Float[Tensor, "classes dim"]:
        """Return the unit-norm mean over each class's prompts of unit-norm features; one prompt is left as it is."""
        if self.counts is None:
            return features
        means = [own[0] if len(own) == 1 else F.normalize(own.mean(0), dim=-1) for own in features.split(self.counts)]
        return torch.stack(means)

    def select(self, rows: Sequence[int]) -> "Prompts":
        """Return some of the prompts, cut to the longest of them; each then stands for itself."""
        index = torch.as_tensor(rows, device=self.ids.device)
        lengths = tuple(self.lengths[row] for row in rows)
        longest = max(lengths)
        texts = tuple(self.texts[row] for row in rows)
        ids, mask = self.ids[index, :longest], self.mask[index, :longest]
        selected = replace(self, texts=texts, ids=ids, mask=mask, cut_rows=(), counts=None)
        selected.__dict__["lengths"] = lengths  # known, without waiting for the device
        return selected

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
    def build(cls, template: str, names: Sequence[str], backbone: Tokenizes) -> "Prompts":
        """Tokenise a template filled with class names, in full.

        Args:
            template: prompt template.
            names: class names.
            backbone: whose tokens they are.

        Raises:
            LabelError: the template has no `{}` for a name.
        """
        texts = tuple(fill_template(template, name) for name in names)
        prompts = cls._tokenize(texts, backbone)
        rows = [row[:length] for row, length in zip(prompts.ids.tolist(), prompts.lengths, strict=True)]
        words = as_template(template).partition("{}")[0]
        length, fused = _find_context(words, texts, rows, backbone)
        return replace(prompts, length=0 if fused is not None else length - backbone.start, fused=fused)

    @classmethod
    def describe(cls, prompts: Sequence[Sequence[str]], backbone: Tokenizes) -> "Prompts":
        """Tokenise several prompts for each class, at least one, in full; they have no context in common."""
        tokenised = cls._tokenize(tuple(text for own in prompts for text in own), backbone)
        return replace(tokenised, counts=tuple(map(len, prompts)))

    @classmethod
    def _tokenize(cls, texts: tuple[str, ...], backbone: Tokenizes) -> "Prompts":
        rows = [backbone._token_ids(text) for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [backbone.pad] * (longest - len(row)) for row in rows])
        mask = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
        return cls(texts, ids, mask, backbone.start, 0)

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


_UNSPACED = (*"CJK |IDEOGRAPHIC |HIRAGANA |KATAKANA|HALFWIDTH KATAKANA|THAI |LAO |KHMER |MYANMAR |TIBETAN ".split("|"),)
"""What Unicode's names of letters begin with in scripts that put no blanks between words."""


def _find_context(
    words: str, texts: Sequence[str], rows: Sequence[list[int]], backbone: Tokenizes
) -> tuple[int, str | None]:
    """Return how many first tokens are those before the class name, and the first prompt that has none of its own.

    The words are tokens of their own where a prompt begins with theirs, and a blank after them, if there is none,
    changes nothing. Letters cannot tell, since tokenizers differ. In scripts that put no blanks between words it is
    enough that a prompt begins with the words' tokens, or that the tokens of all that follows the words are its last
    ones: byte-pair encodings mark the end of a word, so that the words alone end in another token.

    Args:
        words: of the template, before the name.
        texts: the prompts.
        rows: their tokens.
        backbone: whose tokens they are.
    """
    start, token_ids = backbone.start, backbone._token_ids
    alone = tuple(token_ids(words.rstrip())[:-1])  # Gemma's tokenizer has a token for a blank at the end
    apart = not words or words[-1].isspace()

    def beginnings(text: str, row: list[int]) -> set[tuple[int, ...]]:
        begins, rest = tuple(row[: len(alone)]) == alone, text[len(words) :]
        if begins and (apart or token_ids(f"{words} {rest}") == row):
            return {alone}
        if apart or not _is_unspaced(words[-1], rest[:1]):
            return set()
        last = token_ids(rest)[start:]
        inside = {tuple(row[: -len(last)])} if row[-len(last) :] == last and len(row) > start + len(last) else set()
        return inside | ({alone} if begins else set())

    shared = beginnings(texts[0], rows[0])
    for text, row in zip(texts, rows, strict=True):
        shared &= beginnings(text, row)
        if not shared:
            return 0, text
    return len(alone if alone in shared else shared.pop()), None


def _is_unspaced(*letters: str) -> bool:
    """Return whether one of some letters is of a script that puts no blanks between words."""
    return any(unicodedata.name(letter, "").startswith(_UNSPACED) for letter in letters if letter)


def find_alike(templates: Sequence[Prompts]) -> list[list[int]]:
    """Return the groups of classes, by index, whose prompts are the same tokens in every template."""
    tokens = [(prompts.rows, [tuple(row) for row in prompts.ids.tolist()]) for prompts in templates]
    groups: dict[Hashable, list[int]] = {}
    for index in range(len(tokens[0][0])):
        read = tuple(frozenset(ids[row] for row in rows[index]) for rows, ids in tokens)
        groups.setdefault(read, []).append(index)
    return [group for group in groups.values() if len(group) > 1]


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
