"""Prompt sets, and prompts tokenised with the place of their context."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from faircontext.errors import LabelError, unknown_name

__all__ = ["CONTEXT", "PROMPT_SETS", "Prompts", "fill_template", "prompt_set"]

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


def prompt_set(name: str) -> tuple[str, ...]:
    """Return the templates of a named prompt set.

    Raises:
        ArgumentError: there is no such set.
    """
    if name not in PROMPT_SETS:
        raise unknown_name("prompt set", name, PROMPT_SETS)
    return PROMPT_SETS[name]


def fill_template(template: str, name: str) -> str:
    """Put a class name into a template; underscores become spaces.

    Raises:
        LabelError: the template does not have exactly one place `{}` for the name, or a word of it runs into the name.
    """
    if template.count("{}") != 1:
        raise LabelError(f"prompt template {template!r} needs exactly one {{}} for the class name")
    if template.partition("{}")[0][-1:].isalnum():
        raise LabelError(f"prompt template {template!r} runs into the class name; put a blank between")
    return template.replace("{}", name.replace("_", " "))


@dataclass(frozen=True)
class Prompts:
    """Tokenised prompts of one template.

    Attributes:
        texts: the prompts as words.
        ids: token ids, padded on the right to the longest prompt.
        mask: True for tokens, False for padding.
        start: position of the first context token (1 where the tower has a start token, else 0).
        length: number of context tokens, those before the class name.
        cut_rows: which prompts have lost tokens.
    """

    texts: tuple[str, ...]
    ids: Int[Tensor, "prompts tokens"]
    mask: Bool[Tensor, "prompts tokens"]
    start: int
    length: int
    cut_rows: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Sequence[int]) -> "Prompts":
        """Return some of the prompts, cut to the longest of them."""
        index = torch.as_tensor(rows, device=self.ids.device)
        mask = self.mask[index]
        longest = int(mask.sum(1).max())
        texts = tuple(self.texts[row] for row in rows)
        return Prompts(texts, self.ids[index, :longest], mask[:, :longest], self.start, self.length)

    def cut(self, limit: int) -> "Prompts":
        """Return the prompts with at most `limit` tokens each; the last one, which ends a prompt, is kept."""
        lengths = self.mask.sum(1)
        long = lengths > limit
        if not long.any():
            return self
        ids, mask = self.ids[:, :limit].clone(), self.mask[:, :limit]
        ids[long, limit - 1] = self.ids[long, lengths[long] - 1]
        return replace(self, ids=ids, mask=mask, cut_rows=tuple(long.nonzero()[:, 0].tolist()))

    def split(self, size: int) -> Iterator["Prompts"]:
        """Yield the prompts in groups of `size`, in order."""
        for begin in range(0, len(self), size):
            yield self.select(range(begin, min(begin + size, len(self))))
