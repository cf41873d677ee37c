"""Contexts that were learnt before, in files of CoOp's prompt learner, and saving one in the same form.

A file of CoOp (Zhou et al., IJCV 2022) holds `ctx`, the learnt token embeddings: (tokens, width), or (classes, tokens,
width) where each class has its own. It also holds the embeddings around them, which CoOp does not read again:
`token_prefix`, of the start token, and `token_suffix`, of the class names and what follows. Here these two show whether
the context was learnt for this model, and for these classes.

Such a file does not say where the tokens stand: for CoOp that is a setting, and before the class name unless another is
chosen. Files that are written here say it beside `state_dict`, under `placement`, which CoOp does not look at.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.base import Backbone
from faircontext.backbones.prompts import Placement, Prompts
from faircontext.backbones.weights import check_weights, read_content, weights_in
from faircontext.cache import hash_of_tensor
from faircontext.errors import ArgumentError, LabelError, LongPromptError
from faircontext.files import Rules, check_values, replacing

_PLACEMENT = "placement"
_POSITION = re.compile(r"(?:^|_)ctp(middle|front)(?:_|$)")
"""In the names of folders to which CoOp's scripts write, where the class name does not come last."""

_SHAPES = "tokens x width, or classes x tokens x width, and not all zero"
_TENSORS: Rules = {"ctx": (lambda ctx: ctx.ndim in (2, 3) and bool(ctx.any()), _SHAPES)}
_SAID: Rules = {_PLACEMENT: (lambda value: value in get_args(Placement), "replace or prepend, or left out")}
"""What is read of a file: whether a value can be used, and which can."""

_SAME = 0.01
"""Embeddings that differ by less, relative to their length, are the same: files hold them in half precision."""


@dataclass(frozen=True)
class LearntContext:
    """Token embeddings that were learnt, in place of the words before a class name.

    Attributes:
        tokens: shared by all classes, or of each class its own.
        source: where they are from, for messages.
        prefix: embedding of the start token of the model that they were learnt for, where it is known.
        suffix: of each class that they were learnt for, the embeddings of its name and what follows, where known.
        placement: where they stand; None where the file does not say, and they then replace the words.
        doubts: what is odd about the file, a line each, without its name.
    """

    tokens: Float[Tensor, "*classes tokens width"]
    source: str
    prefix: Tensor | None = None
    suffix: Tensor | None = None
    placement: Placement | None = None
    doubts: tuple[str, ...] = ()

    @property
    def prepended(self) -> bool:
        """Whether they stand before the whole prompt (CL-HP), and not in place of the words before the class name."""
        return self.placement == "prepend"

    @property
    def per_class(self) -> bool:
        """Whether each class has its own."""
        return self.tokens.ndim == 3

    @property
    def digest(self) -> str:
        """SHA-256 of the tokens, in hexadecimal, and `-prepend` where they stand before the prompt."""
        return hash_of_tensor(self.tokens) + ("-prepend" if self.prepended else "")

    def why_not(self, learner: str) -> str | None:
        """Return why a learner of the words before the class name cannot start from it, or None where it can."""
        if not self.prepended:
            return None
        reason = f"{learner} learns the words before the class name: it takes a context of CL or of CoOp"
        return f"{self.source}: learnt before the whole prompt, as with context='cl-hp', and {reason}"

    def check(
        self, backbone: Backbone, templates: Sequence[Prompts], names: Sequence[str], described: bool
    ) -> list[str]:
        """Check that it is of a model and of some classes, and return what cannot be known of it, a line each.

        Args:
            backbone: the model.
            templates: prompts of each template.
            names: class names.
            described: whether the classes have descriptions.

        Raises:
            ArgumentError: it was learnt for another model.
            LabelError: it was learnt for other classes, or the prompts have no place for it.
        """
        self._check_place(templates, described)
        prompts = templates[0]
        embeddings = backbone.token_embeddings(prompts.ids).float().cpu()
        self._check_model(backbone, embeddings[0, 0], len(names))
        for each in templates:
            try:
                backbone.check_length(each, self.tokens.shape[-2] - (0 if self.prepended else each.length))
            except LongPromptError as error:
                raise LabelError(f"{self.source}: {error}") from None
        lines = [*self.doubts]
        if self.prefix is None and backbone.start:
            lines.append(f"has no token_prefix, by which to see that it was learnt for {backbone.name}")
        lines += self._doubt_classes(backbone, prompts, names, embeddings)
        return [f"{self.source}: {line}" for line in lines]

    def _check_place(self, templates: Sequence[Prompts], described: bool) -> None:
        """Raise `LabelError` unless the prompts have words before the class name that it can replace."""
        fused = templates[0].fused
        problems = {
            "descriptions have none; leave one of the two out": described,
            f"there are {len(templates)} templates; give one, as with the prompt set single": len(templates) > 1,
            f"in {(fused or '')[:60]!r} these are no tokens of their own; put a blank between": fused is not None,
        }
        if problem := next((words for words, holds in problems.items() if holds and not self.prepended), None):
            rule = "a context takes the place of the words of one template before the class name"
            raise LabelError(f"{self.source}: {rule}, and {problem}")

    def _check_model(self, backbone: Backbone, begin: Float[Tensor, " width"], classes: int) -> None:
        """Raise an error unless it is of a model and of so many classes; `begin` is the model's first token."""
        width, wanted, fix = self.tokens.shape[-1], len(begin), "give one that was learnt for this model"
        if width != wanted:
            has = f"tokens of {backbone.name} have {wanted}"
            raise ArgumentError(f"{self.source}: a context of width {width}, and {has}; {fix}")
        if self.per_class and len(self.tokens) != classes:
            problem = f"has contexts of {len(self.tokens)} classes of their own, and there are {classes} class names"
            raise LabelError(f"{self.source}: {problem}; give the names that it was learnt for, in their order")
        if self.prefix is not None and self.prefix.shape[-1] != width:
            own = self.prefix.shape[-1]
            raise ArgumentError(f"{self.source}: its token_prefix is {own} wide and its context {width}; {fix}")
        if self.prefix is not None and backbone.start and not _alike(self.prefix.reshape(-1, width)[0], begin):
            other = f"learnt for another model than {backbone.name}, whose start token is another"
            raise ArgumentError(f"{self.source}: {other}; {fix}")

    def _doubt_classes(
        self, backbone: Backbone, prompts: Prompts, names: Sequence[str], embeddings: Tensor
    ) -> list[str]:
        """Compare the names that the contexts of single classes were learnt for with those that are given."""
        if not self.per_class or self.prepended or self.suffix is None or len(self.suffix) != len(names):
            return []
        begin = prompts.start + prompts.length
        lengths = [len(backbone._token_ids(name.replace("_", " "))) - backbone.start - 1 for name in names]
        own, theirs = (some[:, first : first + max(lengths)] for some, first in ((embeddings, begin), (self.suffix, 0)))

        def matches(place: int, row: int) -> bool:
            return _alike(theirs[place, : lengths[row]], own[row, : lengths[row]])

        others = [place for place in range(len(names)) if not matches(place, place)]
        if not others:
            return []
        first = others[0]
        number, name = first + 1, names[first]
        if (moved := next((row for row in range(len(names)) if matches(first, row)), None)) is not None:
            problem = f"its context number {number} is of class {names[moved]!r}, and class number {number} is {name!r}"
            raise LabelError(f"{self.source}: {problem}; give the class names in the order of the file")
        several = f"{len(others)} of the {len(names)} contexts were learnt for classes of other names"
        return [f"{several} (the first: number {number}, now {name!r})"]


def _alike(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    return bool((first.float() - second.float()).norm() <= _SAME * second.float().norm())


def read_context(path: Path) -> LearntContext:
    """Read a context from a checkpoint of CoOp's prompt learner, or of a model that has one.

    Args:
        path: of a PyTorch file with tensors alone, as CoOp's `model.pth.tar-50`, or of safetensors.

    Raises:
        ArgumentError: it cannot be read, holds no context, one that depends on more than the class, or numbers that
            cannot be used.
    """
    if not path.is_file():
        raise ArgumentError(f"context {path}: no such file; give a checkpoint of CoOp's prompt learner")
    content = read_content(path)
    tensors, _ = weights_in(path, content, mark="ctx", encoders=())
    tokens = check_values(path, tensors, _TENSORS, ["ctx"])["ctx"].float()
    check_weights(str(path), {"ctx": tokens})
    if others := [name for name in tensors if name not in ("ctx", "token_prefix", "token_suffix")]:
        kind = "as of a method whose prompts depend on the image or have tokens in deeper layers"
        raise ArgumentError(f"{path}: beside the context there is {others[0]}, {kind}; use a context of CoOp")
    around = tensors.get("token_prefix"), tensors.get("token_suffix")
    said = check_values(path, content, _SAID)
    return LearntContext(tokens, str(path), *around, said.get(_PLACEMENT), _doubts(path))


def _doubts(path: Path) -> tuple[str, ...]:
    """Return what the names of its folders say against a file, which does not say it itself."""
    match = next(filter(None, map(_POSITION.search, path.resolve().parts)), None)
    if match is None:
        return ()
    where = {"front": "before it", "middle": "in the midst of it"}[match[1]]
    said = f"ctp{match[1]} in its folder's name says that it was learnt with the class name {where}"
    return (f"{said}; here the name comes after it, as with CoOp's setting end",)


def save_context(
    path: Path,
    tokens: Float[Tensor, "*classes tokens width"],
    backbone: Backbone,
    prompts: Prompts,
    placement: Placement = "replace",
) -> None:
    """Write a context in the form of CoOp's prompt learner, which `read_context` and CoOp read.

    Args:
        path: of the file; one that is there is replaced.
        tokens: shared by all classes, or of each class its own.
        backbone: the model that they were learnt for.
        prompts: of its classes.
        placement: whether they replace the words before the name, or stand before the prompt.

    Raises:
        ArgumentError: the file cannot be written, or there are contexts of other than these classes.
    """
    if tokens.ndim == 3 and len(tokens) != len(prompts):
        raise ArgumentError(f"{path}: {len(tokens)} contexts of classes of their own, and {len(prompts)} prompts")
    embeddings = backbone.token_embeddings(prompts.ids)
    after = prompts.start + (prompts.length if placement == "replace" else 0)
    around = {"token_prefix": embeddings[:, : prompts.start], "token_suffix": embeddings[:, after:]}
    learner = {"ctx": tokens, **around}
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in learner.items()}
    content = io.BytesIO()
    torch.save({"state_dict": state, "epoch": 0, _PLACEMENT: placement}, content)
    with replacing(path) as made:
        made.write_bytes(content.getvalue())  # PyTorch's own writing says of a full disk what is no OSError
