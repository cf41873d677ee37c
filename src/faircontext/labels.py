"""A label space: class names and prompts for one backbone, with all about them that does not depend on an image."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones import Backbone, create_backbone
from faircontext.backbones.contexts import LearntContext, save_context
from faircontext.backbones.prompts import CONTEXT, PROMPT_SETS, Placement, Prompts, find_alike
from faircontext.cache import cache_folder, cached_features
from faircontext.errors import ArgumentError, LabelError, and_more, check_type
from faircontext.files import digest_of_json
from faircontext.names import check_name, normalise
from faircontext.prompt_files import arrange_descriptions, fill_template

T = TypeVar("T")

Learner = Literal["cl", "cl-hp"]
"""What learns a context: in place of the words before the class name, or before the whole prompt."""

Start: TypeAlias = tuple[Float[Tensor, "*classes tokens width"], Placement, Float[Tensor, "classes dim"]]
"""A context `delta_0`, where it stands, and the base text features of all classes; see `LabelSpace.start`."""


class LabelSpace:
    """Class names and a prompt set for one backbone; constants are computed once and shared by all images and methods.

    Classes are known by their index: two classes may have the same name (they then tie, and the first wins).

    Args:
        names: class names; underscores become spaces in the prompts.
        backbone: whose text encoder encodes them.
        templates: prompt templates with `{}` for the name. With several, zero-shot uses the mean of their features and
            FCL is run once per template and votes (paper, "Prompt Ensemble with Generic Templates"). None for "a photo
            of a {}.", or, where there are descriptions, for none.
        descriptions: prompts of each class, by class name or in the order of the classes, see `arrange_descriptions`.
            They and the templates, if there are any, are one ensemble: the features of a class are the unit mean over
            all its prompts, and FCL learns one context for all of them.
        truncate: whether prompts that are too long are cut, with their end token kept, instead of refused.
        context: a context that was learnt before, in place of the words before the class name; None for these words.
            Methods start from it, and zero-shot is then that of the context.
        stored: whether text features are read from and written to the cache on disk.

    Attributes:
        names: as given.
        templates: as given.
        descriptions: of each class, None where there are none.
        context: as given.
        prompts: tokenised prompts, one entry per template; a single one where there are descriptions.
        others: the same classes on other backbones, by name, see `on`.

    Raises:
        LabelError: there are no names, a name is blank, a class lacks descriptions, or a prompt is too long.
        ArgumentError: `backbone` is no backbone, or `context` was learnt for another.
    """

    def __init__(
        self,
        names: Sequence[str],
        backbone: Backbone,
        templates: Sequence[str] | None = None,
        *,
        descriptions: Mapping[str, Sequence[str]] | Sequence[Sequence[str]] | None = None,
        truncate: bool = False,
        context: LearntContext | None = None,
        stored: bool = True,
    ) -> None:
        if templates is None:
            templates = PROMPT_SETS["single"] if descriptions is None else ()
        for strings in (names, templates):
            if isinstance(strings, str | bytes | Set) or not isinstance(strings, Iterable):
                given = type(strings).__name__
                raise LabelError(f"names and templates are lists of strings in their order, not {given}")
        check_type("backbone", backbone, Backbone, "create one with create_backbone")
        self.names = tuple(names)
        if not self.names:
            raise LabelError("there are no class names; give at least one")
        for count, name in enumerate(self.names, 1):
            check_name(count, name)
        if not templates and descriptions is None:
            raise LabelError("there is no prompt template; give at least one, for example 'a photo of a {}.'")
        self.backbone = backbone
        check_type("context", context, (LearntContext, type(None)), "read one with read_context")
        self.context = context
        self._truncate = truncate
        self._stored = stored
        self._known: dict[Hashable, object] = {}
        self.others: dict[str, LabelSpace] = {}
        self.templates = tuple(templates)
        self.descriptions = None if descriptions is None else arrange_descriptions(descriptions, self.names)
        self.prompts: tuple[Prompts, ...] = tuple(self._fit(prompts, truncate) for prompts in self._tokenize())
        described = self.descriptions is not None
        self._context_warnings = [] if context is None else context.check(backbone, self.prompts, self.names, described)

    def __len__(self) -> int:
        return len(self.names)

    def _tokenize(self) -> Iterator[Prompts]:
        """Yield what stands side by side: the prompts of each template, or all prompts of each class together."""
        if self.descriptions is None:
            yield from (self.backbone.tokenize(self.names, template) for template in self.templates)
            return
        filled = ([fill_template(template, name) for template in self.templates] for name in self.names)
        both = zip(filled, self.descriptions, strict=True)
        yield self.backbone.describe([list(dict.fromkeys([*made, *described])) for made, described in both])

    def _fit(self, prompts: Prompts, truncate: bool) -> Prompts:
        if truncate:
            # One prompt for all methods: CL-HP's learnable tokens must find room as well.
            prompts = prompts.cut(self.backbone.context_length - len(self.initial_tokens))
        self.backbone.check_length(prompts, names=self.names)
        return prompts

    def warnings(self) -> list[str]:
        """Return what a person should know about the prompts before a run, a line each."""
        return [*self._context_warnings, *self._prompt_warnings()]

    def _prompt_warnings(self) -> list[str]:
        shortened = [(prompts.rows, {*prompts.cut_rows}) for prompts in self.prompts if prompts.cut_rows]
        cut = sorted({self.names[index] for rows, some in shortened for index, own in enumerate(rows) if some & {*own}})
        lines = [f"cut to what {self.backbone.name} reads: {name[:60]} ..." for name in cut]
        groups = [[self.names[index] for index in group] for group in find_alike(self.prompts)]
        alike = [names for names in groups if len({*map(normalise, names)}) > 1]
        if alike:
            listed = and_more([and_more(names) for names in alike], 3, "; ")
            lines.append(f"{self.backbone.name} reads these class names alike: {listed}; they tie, and the first wins")
        return lines

    @property
    def summary(self) -> str:
        """The prompts in short, for a person: the first templates, and how many descriptions a class has."""
        words = [*self.templates[:7], *["..."] * (len(self.templates) > 7)]
        if self.descriptions is not None:
            counts = {len(own) for own in self.descriptions}
            many = f"{min(counts)}{f' to {max(counts)}' if len(counts) > 1 else ''}"
            words.append(f"{many} description{'s' * (counts != {1})} of each class")
        source = "" if self.context is None else f", from the context {self.context.source}"
        return " | ".join(words).replace(" | ...", " ...") + source

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Everything that text features and scores depend on, in short: long lists are given by their digest."""
        backbone, context = self.backbone, self.context
        return {
            "classes": f"{len(self)} ({digest_of_json(self.names)[:12]})",
            "templates": list(self.templates),
            "descriptions": None if self.descriptions is None else digest_of_json(self.descriptions)[:12],
            "context": None if context is None else context.digest,
            "cut": [*map(len, (prompts.cut_rows for prompts in self.prompts))],
            "backbone": backbone.name,
            "weights": backbone.weights_hash,
            "precision": backbone.precision,
            **backbone.engine_facts,
        }

    def missing_context(self, template: int, learner: str) -> str | None:
        """Return why a template has no context to learn, or None where it has one.

        Args:
            template: its position.
            learner: what would learn it, for the message.
        """
        if self.context is not None:
            return self.context.why_not(learner)
        if self.descriptions is not None:
            return f"descriptions of the classes have no words before the class name in common for {learner} to learn"
        prompts, title = self.prompts[template], f"prompt template {self.templates[template]!r}"
        if prompts.fused is not None:
            fused = f"runs into the class name, as in {prompts.fused[:60]!r} (put a blank between)"
            return f"{title} {fused}, and leaves no tokens for {learner} to learn"
        return None if prompts.length else f"{title} has no words before the class name for {learner} to learn"

    def check_start(self, template: int, kind: Learner) -> None:
        """Raise `LabelError` where nothing can be learnt with a template; see `start`."""
        if kind == "cl" and (reason := self.missing_context(template, "context='cl'")):
            raise LabelError(f"{reason}; use context='cl-hp'")
        if kind == "cl-hp" and self.context is not None and self.context.per_class:
            rule = "the tokens of context='cl-hp' stand before the prompts of all classes alike"
            problem = f"each class has a context of its own, and {rule}"
            raise LabelError(f"{self.context.source}: {problem}; use context='cl', or a context that classes share")
        if kind == "cl-hp":
            self.backbone.check_length(self.prompts[template], len(self.initial_tokens))

    def start(self, template: int, kind: Learner) -> Start:
        """Return what is learnt from: a context, where it stands, and the text features of all classes without it.

        Args:
            template: its position.
            kind: `"cl"`: the learnt context, or the words before the class name, in their place, with `tau_c(delta_0)`;
                `"cl-hp"`: `initial_tokens` before the prompt, with the features of the prompt as it is written.

        Raises:
            LabelError: there are no such words, or a prompt with the tokens before it is too long.
        """
        # All classes, not the candidates alone: what is too long is found whatever an image shows.
        self.remember(("start", template, kind), lambda: self.check_start(template, kind))
        if kind == "cl-hp":
            return self.initial_tokens, "prepend", self.hard_text[template]
        if self.context is None:
            return self.backbone.context(self.prompts[template]), "replace", self.text[template]
        return self.context.tokens.to(self.backbone.device), "replace", self.text[template]

    def start_warnings(self, kind: Learner) -> list[str]:
        """Return what a person should know about `start` before a run, a line each."""
        if kind == "cl" or self.context is None or self.context.prepended:
            return []
        start = "context='cl-hp' starts from it before the whole prompt, and zero-shot has it in place of the words"
        return [f"{self.context.source}: learnt in place of the words before the class name; {start}"]

    def save_context(
        self,
        path: Path,
        tokens: Float[Tensor, "*classes tokens width"],
        classes: Int[Tensor, " classes"] | None = None,
        placement: Placement = "replace",
        template: int = 0,
    ) -> None:
        """Write a context that was learnt here, in the form of CoOp's prompt learner; see `read_context`.

        Args:
            path: of the file; one that is there is replaced.
            tokens: shared by all classes, or of some classes their own.
            classes: which, where they have their own; the others keep the context that they started from.
            placement: whether the tokens replace the words before the name (CL), or stand before the prompt (CL-HP).
            template: position of the template that they were learnt with.

        Raises:
            ArgumentError: the file cannot be written.
        """
        if tokens.ndim == 3 and classes is not None:
            tokens = self.start(template, "cl")[0].index_copy(0, classes, tokens)
        save_context(path, tokens, self.backbone, self.prompts[template], placement)

    @cached_property
    def text(self) -> Float[Tensor, "templates classes dim"]:
        """Text features `tau_c(delta_0)` of every template."""
        if self.context is None:
            return self.hard_text
        return torch.stack([self._cached(prompts, self.context) for prompts in self.prompts])

    @cached_property
    def hard_text(self) -> Float[Tensor, "templates classes dim"]:
        """Text features of every template with the words that are written in it, also where there is a context."""
        return torch.stack([self._cached(prompts) for prompts in self.prompts])

    @cached_property
    def zero_shot_text(self) -> Float[Tensor, "classes dim"]:
        """Unit-norm mean over templates of the text features."""
        return merge_templates(self.text)

    @cached_property
    def initial_tokens(self) -> Float[Tensor, "tokens width"]:
        """What CL-HP's learnable tokens start from: the learnt context that all classes share, or "a photo of a"."""
        if self.context is not None and not self.context.per_class:
            return self.context.tokens.to(self.backbone.device)
        return self.backbone.context_of(CONTEXT)

    def prepend(self, template: int, tokens: Float[Tensor, "tokens width"]) -> Float[Tensor, "classes dim"]:
        """Return the text features of one template with some tokens before the prompt."""
        return self._encode(self.prompts[template], tokens, "prepend")

    def on(self, name: str) -> "LabelSpace":
        """Return the same classes and templates on another backbone, for example one that gives rewards.

        Args:
            name: `ARCHITECTURE:TAG`, or any name of `create_backbone`; it is loaded once. A backbone that is in memory
                is filed before under a name of its own: `labels.others["teacher"] = LabelSpace(names, backbone)`.
        """
        if name not in self.others:
            scheme = name.startswith(("local-dir:", "hf-hub:", "transformers:"))
            architecture, _, tag = (name, "", "") if scheme else name.partition(":")
            try:
                backbone = create_backbone(
                    architecture,
                    tag or None,
                    device=str(self.backbone.device),
                    precision=self.backbone.precision,
                    engine=self.backbone.requested_engine,
                )
            except ArgumentError as error:
                raise ArgumentError(f"the other backbone {name!r} (a name, or ARCHITECTURE:TAG): {error}") from None
            self.others[name] = LabelSpace(
                self.names,
                backbone,
                self.templates,
                descriptions=self.descriptions,
                truncate=True,
                stored=self._stored,
            )
        return self.others[name]

    def of(self, names: Sequence[str], descriptions: Sequence[Sequence[str]] | None = None) -> "LabelSpace":
        """Return other classes on the same backbone, with the same templates and from the same context.

        Args:
            names: of the classes.
            descriptions: theirs, where they have any; without templates and descriptions, "a photo of a {}." is taken.

        Raises:
            LabelError: see `LabelSpace`.
        """
        return LabelSpace(
            names,
            self.backbone,
            self.templates or (None if descriptions is None else ()),
            descriptions=descriptions,
            truncate=self._truncate,
            context=self.context,
        )

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return something that is computed once for all images and shared by methods; what raises is not kept.

        Args:
            key: all that it depends on, besides the classes, their prompts and the backbone.
            compute: makes it.
        """
        if key not in self._known:
            self._known[key] = compute()
        return cast(T, self._known[key])

    def _cached(self, prompts: Prompts, context: LearntContext | None = None) -> Float[Tensor, "classes dim"]:
        """Encode prompts, with a learnt context or as they are, or take their features from the cache on disk."""
        backbone = self.backbone
        tokens = None if context is None else context.tokens.to(backbone.device)
        placement: Placement = (context and context.placement) or "replace"
        key = {
            "backbone": backbone.name,
            "weights": backbone.text_hash,
            "activation": backbone.facts.get("activation"),
            "precision": str(backbone.text_dtype),
            "prompts": prompts.texts,
            "ids": prompts.ids.tolist(),
            "prepended": None,
            **({} if prompts.counts is None else {"counts": prompts.counts}),
        }
        if context is not None:
            key[placement] = context.digest
        folder = cache_folder() if self._stored else None
        folder = None if folder is None else folder / "text"
        return cached_features(folder, key, backbone.device, lambda: self._encode(prompts, tokens, placement))

    def _encode(self, prompts: Prompts, tokens: Tensor | None, placement: Placement) -> Float[Tensor, "classes dim"]:
        with torch.no_grad():
            return self.backbone.encode_text(prompts, tokens, placement)


def merge_templates(features: Float[Tensor, "templates classes dim"]) -> Float[Tensor, "classes dim"]:
    """Return the unit-norm mean over templates of unit-norm text features; one template is left as it is."""
    return features[0] if len(features) == 1 else F.normalize(features.mean(0), dim=-1)
