"""Options that several commands share: reading them, checking them early, and creating what they name."""

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import tyro

from faircontext.datasets.folder import class_names
from faircontext.errors import ArgumentError, check_minimum, one_line
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image

if TYPE_CHECKING:
    from faircontext.bench.plan import Model, Setup

__all__ = ["ModelOptions", "RunOptions", "note", "parse_options"]

T = TypeVar("T")


def note(line: str) -> None:
    """Tell a person something besides the results, on standard error."""
    print(f"note: {one_line(line)}", file=sys.stderr, flush=True)


def parse_options(options: type[T], arguments: Sequence[str], command: str) -> T:
    """Read a command's options.

    Raises:
        ArgumentError: an option is unknown or its value cannot be read.
    """
    shown = io.StringIO()
    try:
        with redirect_stderr(shown):
            return tyro.cli(options, args=arguments, prog=f"faircontext {command}")
    except SystemExit as stop:
        if not stop.code:  # help was asked for, and shown
            raise
        raise ArgumentError(f"{_message(shown.getvalue())}; see faircontext {command} --help") from None


def _message(box: str) -> str:
    """Return, as one line, what the parser says in the first part of its box.

    On a terminal without Unicode the box is a title over a rule; else the title is in the frame.
    """
    lines = box.splitlines()
    lines = lines[1:] if box.startswith("╭") else lines[2:]
    words = [line.strip(" │╰╯") for line in lines]
    ends = [number for number, line in enumerate(words) if set(line) <= set("─-")]
    return " ".join(words[: ends[0]] if ends else words).rstrip(".")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of backbone, methods and images."""

    truncate: bool = False
    """Cut class names that are too long for the text model, instead of refusing them."""
    backbone: str = "lite0"
    """See: faircontext list backbones; or hf-hub:ORG/NAME, or local-dir:FOLDER."""
    pretrained: str | None = None
    """Tag or checkpoint file of an open_clip architecture's weights; see: faircontext list pretrained."""
    resize_positions: bool = False
    """Resize positions of weights for pictures or prompts of another size, instead of refusing them."""
    preset: str = "recommended"
    """Settings to start from: paper, recommended (for the backbone) or official."""
    set: tuple[str, ...] = ()
    """Settings over the preset's: --set masks=50 steps=1; with several methods, --set fcl.masks=50 tpt.steps=2."""
    augmix: Literal["off", "on", "auto"] = "off"
    """AugMix on the views: off, on, or auto (where the methods' repositories have it, by the kind of data)."""
    views: tuple[str, ...] = ()
    """Of the views, over the preset's: --views number=32 scale=0.5,1."""
    seed: int = 0
    """Seed of views and masks."""
    device: str = "cpu"
    """Torch device of the backbone."""
    precision: str = "auto"
    """Of the image tower: auto (bf16 where the processor computes in it), fp32, bf16 or fp16."""
    batch_size: int = 16
    """Rows of an image encoder batch, a multiple of 16; on a CPU always 16."""
    exif: bool = True
    """Apply the EXIF orientation of photos (published numbers are often measured without)."""
    max_pixels: int = MAX_PIXELS
    """Larger images are refused."""

    def reader(self) -> Callable[[Path | str], DecodedImage]:
        """Return what reads an image file."""
        check_minimum("max_pixels", self.max_pixels, 1)
        return partial(read_image, max_pixels=self.max_pixels, exif=self.exif)

    def load(self, methods: Sequence[str]) -> "Model":
        """Load the backbone and create the methods; what can be wrong otherwise is checked before.

        Args:
            methods: names; a method runs several times, with other settings, under names with a suffix such as
                `fcl-50`. `all` stands for those that the backbone can run.

        Raises:
            FairContextError: an option has a value that cannot be used.
        """
        from faircontext.backbones import create_backbone
        from faircontext.bench.plan import Model
        from faircontext.methods import create_method, list_methods
        from faircontext.methods.base import METHODS

        everything = [*methods] == ["all"]
        asked = {label: label.partition("-")[0] for label in (list_methods() if everything else methods)}
        settings = self._settings(asked)
        for label, name in asked.items():
            create_method(name, **settings[label])
        recipe = {**self._view_settings(), "augmix": self.augmix}
        check_minimum("seed", self.seed, 0)
        backbone = create_backbone(
            self.backbone,
            self.pretrained,
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
            resize_positions=self.resize_positions,
        )
        created = {
            label: create_method(name, preset=self.preset, backbone=backbone, **settings[label])
            for label, name in asked.items()
            if not everything or METHODS[name].needs <= backbone.capabilities
        }
        return Model(backbone, created, replace(backbone.view_recipe(self.preset), **recipe))

    def _view_settings(self) -> dict[str, Any]:
        from faircontext.methods.base import parse_fields
        from faircontext.views import ViewRecipe

        found = parse_fields(ViewRecipe, "--views", self.views, "number=32")
        for name in ("augmix", "regime"):
            if name in found:
                raise ArgumentError(
                    f"{name} is not set with --views: --augmix is an option, the data set has the regime"
                )
        ViewRecipe(**found)  # type: ignore[arg-type]  # checks the values, before a model is loaded
        return found

    def _settings(self, asked: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the settings that are given, by what the methods are called."""
        from faircontext.methods import parse_settings

        words: dict[str, list[str]] = {label: [] for label in asked}
        alone = [label for label, name in asked.items() if name != "zero_shot"] or [*asked]  # zero-shot has no settings
        for word in self.set:
            label, dot, _ = word.partition("=")[0].partition(".")
            if dot and label in words:
                words[label].append(word[len(label) + 1 :])
            elif len(alone) == 1:
                words[alone[0]].append(word)
            else:
                raise ArgumentError(
                    f"{word!r} is of no method of this run; write METHOD.NAME=VALUE, with one of {', '.join(asked)}"
                )
        return {label: parse_settings(name, tuple(words[label])) for label, name in asked.items()}


@dataclass(frozen=True, kw_only=True)
class ModelOptions(RunOptions):
    """Options of class names, backbone, methods and images."""

    labels: str | None = None
    """Class names with commas between."""
    labels_file: Path | None = None
    """File with a class name a line."""
    regime: Literal["natural", "fine-grained"] = "natural"
    """Kind of data, for --augmix auto: natural or fine-grained."""

    def names(self) -> tuple[str, ...]:
        """Return the class names that the options give."""
        if self.labels_file == Path():
            raise ArgumentError("--labels-file is empty; name a file with a class name a line")
        return class_names(self.labels, self.labels_file)

    def create(self, names: Sequence[str], methods: str, prompts: str = "single") -> "Setup":
        """Load the backbone and create the methods; what can be wrong otherwise is checked before.

        Args:
            names: class names.
            methods: a name, several with commas between, or `all` for those that the backbone can run.
            prompts: name of a prompt set.

        Raises:
            FairContextError: an option has a value that cannot be used.
        """
        from faircontext.backbones.prompts import prompt_set

        templates = prompt_set(prompts)
        return self.load(list(dict.fromkeys(methods.split(",")))).on(names, templates, self.regime, self.truncate)
