"""Which prompts a run uses: a named set, templates and descriptions of classes that a person gives, or all of these."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from faircontext.errors import LabelError, reason_of
from faircontext.files import digest
from faircontext.prompt_files import Descriptions, as_template, read_descriptions, read_templates


@dataclass(frozen=True)
class PromptChoice:
    """The prompts of a label set; see `LabelSpace`.

    Attributes:
        templates: with `{}` for the class name.
        descriptions: prompts of each class, None where there are none.
        source: the file that gives them, if one does.
    """

    templates: tuple[str, ...]
    descriptions: tuple[tuple[str, ...], ...] | None = None
    source: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """Options of prompts. What is given is used together; where nothing is, "a photo of a {}."."""

    group: ClassVar[str] = "prompts"
    files: ClassVar[tuple[str, ...]] = ("templates", "descriptions", "context")

    prompts: str | None = None
    """Prompt set: single ("a photo of a {}."), generic7, imagenet80 (FCL votes over the templates), or, for a data set,
    dataset (its own template)."""
    template: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A prompt template with {} for the class name, in any language; may be given several times."""
    templates: Path | None = None
    """File of prompt templates, one a line; or a JSON list, or CLIP_benchmark's JSON of data sets and lists."""
    descriptions: Path | None = None
    """JSON file of class names and lists of prompts, as of CuPL, or of data sets and such objects, as of
    CLIP_benchmark; a class is the mean of all its prompts."""
    truncate: bool = False
    """Cut class names that are too long for the text model, instead of refusing them."""
    context: Path | None = None
    """Learnt context to start from, a checkpoint of CoOp's prompt learner; zero-shot is then that of the context."""

    @property
    def given_prompts(self) -> bool:
        """Whether any prompts are given."""
        return any((self.prompts is not None, self.template, self.templates, self.descriptions))

    @property
    def prompts_name(self) -> str:
        """What runs call the prompts; other prompts, and those of a learnt context, have another name.

        Raises:
            LabelError: a file cannot be read.
        """
        names = [] if self.prompts is None else [self.prompts]
        if self.template:
            alone = len(self.template) == 1
            names.append(self.template[0] if alone else f"templates-{digest(chr(10).join(self.template))[:8]}")
        files = {"templates": self.templates, "descriptions": self.descriptions}
        names += [f"{kind}-{digest_of_file(path)[:8]}" for kind, path in files.items() if path is not None]
        context = "" if self.context is None else f"+context-{digest_of_file(self.context)[:8]}"
        return ("+".join(names) or "single") + context

    def choose_prompts(
        self,
        names: Sequence[str],
        dataset: str | None = None,
        template: str | None = None,
        described: Descriptions | None = None,
    ) -> PromptChoice:
        """Return the prompts of some classes.

        Args:
            names: class names.
            dataset: name of the data set, None for images that are of none.
            template: the data set's own template.
            described: descriptions that have been read, in place of those of the file.

        Raises:
            FairContextError: there is no such prompt set, a file cannot be read, a template has no place for the class
                name, or a class lacks descriptions.
        """
        templates = [as_template(text) for text in self.template]
        if self.templates is not None:
            templates += read_templates(self.templates, dataset)
        source = self.descriptions if described is None else None
        if source is not None:
            described = read_descriptions(source, names, dataset)
        if self.prompts is not None or (not templates and described is None):
            templates = [*self._named(template), *templates]
        return PromptChoice(tuple(dict.fromkeys(templates)), described, source)

    def _named(self, template: str | None) -> tuple[str, ...]:
        if self.prompts == "dataset" and template is not None:
            return (template,)
        from faircontext.backbones.prompts import prompt_set  # takes a second to import

        return prompt_set(self.prompts or "single", () if template is None else ("dataset",))


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file; raise `LabelError` where it cannot be read."""
    try:
        return digest(path.read_bytes())
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {reason_of(error)}") from None
