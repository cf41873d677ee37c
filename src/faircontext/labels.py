"""A label space: class names and prompts for one backbone, with all about them that does not depend on an image."""

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones import Backbone, create_backbone
from faircontext.backbones.prompts import CONTEXT, PROMPT_SETS, Prompts
from faircontext.backbones.towers import cache_folder, cached_features
from faircontext.errors import ArgumentError, LabelError, and_more, check_type
from faircontext.names import check_name, normalise

__all__ = ["LabelSpace", "merge_templates"]


class LabelSpace:
    """Class names and a prompt set for one backbone; constants are computed once and shared by all images and methods.

    Classes are known by their index: two classes may have the same name (they then tie, and the first wins).

    Args:
        names: class names; underscores become spaces in the prompts.
        backbone: whose text tower encodes them.
        templates: prompt templates with `{}` for the name. With several, zero-shot uses the mean of their features and
            FCL is run once per template and votes (paper, "Prompt Ensemble with Generic Templates").
        truncate: whether prompts that are too long are cut, with their end token kept, instead of refused.
        stored: whether text features are read from and written to the cache on disk.

    Attributes:
        names: as given.
        prompts: tokenised prompts, one entry per template.
        others: the same classes on other backbones, by name, see `on`.

    Raises:
        LabelError: there are no names, a name is blank, or a prompt is too long.
        ArgumentError: `backbone` is no backbone.
    """

    def __init__(
        self,
        names: Sequence[str],
        backbone: Backbone,
        templates: Sequence[str] = PROMPT_SETS["single"],
        *,
        truncate: bool = False,
        stored: bool = True,
    ) -> None:
        for strings in (names, templates):
            if isinstance(strings, str | bytes | Set) or not isinstance(strings, Iterable):
                raise LabelError(
                    f"names and templates are lists of strings in their order, not {type(strings).__name__}"
                )
        check_type("backbone", backbone, Backbone, "create one with create_backbone")
        self.names = tuple(names)
        if not self.names:
            raise LabelError("there are no class names; give at least one")
        for count, name in enumerate(self.names, 1):
            check_name(count, name)
        if not templates:
            raise LabelError("there is no prompt template; give at least one, for example 'a photo of a {}.'")
        self.backbone = backbone
        self._stored = stored
        self._constants: dict[Hashable, Tensor] = {}
        self._checked: set[Hashable] = set()
        self.others: dict[str, LabelSpace] = {}
        self.templates = tuple(templates)
        self.prompts: tuple[Prompts, ...] = tuple(self._tokenize(template, truncate) for template in self.templates)

    def __len__(self) -> int:
        return len(self.names)

    def _tokenize(self, template: str, truncate: bool) -> Prompts:
        prompts = self.backbone.tokenize(self.names, template)
        if truncate:
            # One prompt for all methods: CL-HP's learnable tokens must find room as well.
            prompts = prompts.cut(self.backbone.context_length - len(self.initial_tokens))
        self.backbone.check_length(prompts)
        return prompts

    def warnings(self) -> list[str]:
        """Return what a person should know about the prompts before a run, a line each."""
        cut = sorted({self.names[row] for prompts in self.prompts for row in prompts.cut_rows})
        lines = [f"cut to what {self.backbone.name} reads: {name[:60]} ..." for name in cut]
        alike = [names for names in self._read_alike() if len({*map(normalise, names)}) > 1]
        if alike:
            groups = and_more([and_more(names) for names in alike], 3, "; ")
            lines.append(f"{self.backbone.name} reads these class names alike: {groups}; they tie, and the first wins")
        return lines

    def _read_alike(self) -> list[list[str]]:
        """Return the groups of classes whose prompts are the same tokens in every template."""
        tokens = [[tuple(row) for row in prompts.ids.tolist()] for prompts in self.prompts]
        groups: dict[Hashable, list[str]] = {}
        for name, rows in zip(self.names, zip(*tokens, strict=True), strict=True):
            groups.setdefault(rows, []).append(name)
        return [names for names in groups.values() if len(names) > 1]

    def missing_context(self, template: int, learner: str) -> str | None:
        """Return why a template has no context to learn, or None where it has one.

        Args:
            template: its position.
            learner: what would learn it, for the message.
        """
        prompts, title = self.prompts[template], f"prompt template {self.templates[template]!r}"
        if prompts.fused is not None:
            return (
                f"{title} runs into the class name, as in {prompts.fused[:60]!r} (put a blank between), and leaves no "
                f"tokens for {learner} to learn"
            )
        return None if prompts.length else f"{title} has no words before the class name for {learner} to learn"

    @cached_property
    def text(self) -> Float[Tensor, "templates classes dim"]:
        """Text features `tau_c(delta_0)` of every template."""
        return torch.stack([self._cached(prompts, None) for prompts in self.prompts])

    @cached_property
    def zero_shot_text(self) -> Float[Tensor, "classes dim"]:
        """Unit-norm mean over templates of the text features."""
        return merge_templates(self.text)

    @cached_property
    def initial_tokens(self) -> Float[Tensor, "tokens width"]:
        """The embeddings of "a photo of a", which CL-HP's learnable tokens start from."""
        return self.backbone.context_of(CONTEXT)

    @cached_property
    def prepended_text(self) -> Float[Tensor, "templates classes dim"]:
        """Text features of every template with `initial_tokens` before the prompt."""
        return torch.stack([self._cached(prompts, self.initial_tokens) for prompts in self.prompts])

    def prepend(self, template: int, tokens: Float[Tensor, "tokens width"]) -> Float[Tensor, "classes dim"]:
        """Return the text features of one template with some tokens before the prompt."""
        return self._encode(self.prompts[template], tokens)

    def on(self, name: str) -> "LabelSpace":
        """Return the same classes and templates on another backbone, for example one that gives rewards.

        Args:
            name: `ARCHITECTURE:TAG`, or any name of `create_backbone`; it is loaded once. A backbone that is in memory
                is filed before under a name of its own: `labels.others["teacher"] = LabelSpace(names, backbone)`.
        """
        if name not in self.others:
            scheme = name.startswith(("local-dir:", "hf-hub:"))
            architecture, _, tag = (name, "", "") if scheme else name.partition(":")
            try:
                backbone = create_backbone(
                    architecture, tag or None, device=str(self.backbone.device), precision=self.backbone.precision
                )
            except ArgumentError as error:
                raise ArgumentError(f"the other backbone {name!r} (a name, or ARCHITECTURE:TAG): {error}") from None
            self.others[name] = LabelSpace(self.names, backbone, self.templates, truncate=True)
        return self.others[name]

    def check_once(self, key: Hashable, check: Callable[[], None]) -> None:
        """Run a check of the label set that a method needs, for the first image only."""
        if key not in self._checked:
            check()
            self._checked.add(key)

    def constant(self, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        """Return a constant of the label set that a method needs, computed once for all images."""
        if key not in self._constants:
            self._constants[key] = compute()
        return self._constants[key]

    def _cached(self, prompts: Prompts, tokens: Tensor | None) -> Float[Tensor, "classes dim"]:
        """Encode prompts, or take their features from the cache on disk."""
        backbone = self.backbone
        key = {
            "backbone": backbone.name,
            "weights": backbone.text_hash,
            "activation": backbone.facts.get("activation"),
            "precision": str(backbone.token_embeddings(prompts.ids[:1]).dtype),
            "prompts": prompts.texts,
            "ids": prompts.ids.tolist(),
            "prepended": None if tokens is None else CONTEXT,
        }
        folder = cache_folder() if self._stored else None
        folder = None if folder is None else folder / "text"
        return cached_features(folder, key, backbone.device, lambda: self._encode(prompts, tokens))

    def _encode(self, prompts: Prompts, tokens: Tensor | None) -> Float[Tensor, "classes dim"]:
        with torch.no_grad():
            return self.backbone.encode_text(prompts, tokens, "prepend")


def merge_templates(features: Float[Tensor, "templates classes dim"]) -> Float[Tensor, "classes dim"]:
    """Return the unit-norm mean over templates of unit-norm text features; one template is left as it is."""
    return features[0] if len(features) == 1 else F.normalize(features.mean(0), dim=-1)
