"""Options that several commands share: reading them, checking them early, and creating what they name."""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tyro

from faircontext.datasets.folder import class_names
from faircontext.errors import ArgumentError, check_minimum
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image

if TYPE_CHECKING:
    from faircontext.labels import LabelSpace
    from faircontext.methods import Method
    from faircontext.views import ViewRecipe

__all__ = ["ModelOptions", "Setup", "parse_options"]

T = TypeVar("T")


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


@dataclass(frozen=True)
class Setup:
    """What a run needs, as its options ask."""

    labels: "LabelSpace"
    method: "Method"
    recipe: "ViewRecipe"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of model, method and images."""

    labels: str | None = None
    """Class names with commas between."""
    labels_file: Path | None = None
    """File with a class name a line."""
    truncate: bool = False
    """Cut class names that are too long for the text model, instead of refusing them."""
    backbone: str = "lite0"
    """See: faircontext list backbones; or hf-hub:ORG/NAME, or local-dir:FOLDER."""
    pretrained: str | None = None
    """Tag or checkpoint file of an open_clip architecture's weights; see: faircontext list pretrained."""
    preset: str = "recommended"
    """Settings to start from: paper, recommended (for the backbone) or official."""
    set: tuple[str, ...] = ()
    """Settings of the method, as name=value, over the preset's: --set masks=50 steps=1."""
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

    def names(self) -> tuple[str, ...]:
        """Return the class names that the options give."""
        return class_names(self.labels, self.labels_file)

    def reader(self) -> Callable[[Path | str], DecodedImage]:
        """Return what reads an image file."""
        check_minimum("max_pixels", self.max_pixels, 1)
        return partial(read_image, max_pixels=self.max_pixels, exif=self.exif)

    def create(self, names: Sequence[str], method: str, prompts: str = "single") -> Setup:
        """Load the backbone and create the method; what can be wrong otherwise is checked before.

        Raises:
            FairContextError: an option has a value that cannot be used.
        """
        from faircontext.backbones import create_backbone
        from faircontext.backbones.prompts import prompt_set
        from faircontext.labels import LabelSpace
        from faircontext.methods import create_method, parse_settings

        settings: dict[str, Any] = parse_settings(method, self.set)
        templates = prompt_set(prompts)
        create_method(method, **settings)
        check_minimum("seed", self.seed, 0)
        backbone = create_backbone(
            self.backbone,
            self.pretrained,
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
        )
        return Setup(
            LabelSpace(names, backbone, templates, truncate=self.truncate),
            create_method(method, preset=self.preset, backbone=backbone, **settings),
            backbone.view_recipe(self.preset),
        )
