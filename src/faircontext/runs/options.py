"""What a run is asked to do: options of model, methods, images and data sets, and the checks of their values.

The commands' options are these classes; their help is the docstrings of the fields.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from faircontext.datasets.class_folders import class_folders
from faircontext.errors import ArgumentError, check_minimum
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image
from faircontext.names import class_names
from faircontext.runs.records import method_of, variant_of
from faircontext.system import usable_processors

if TYPE_CHECKING:
    from faircontext.backbones import Backbone
    from faircontext.runs.plan import Model, Setup

__all__ = [
    "AnalysisOptions",
    "ClassifyOptions",
    "EvaluateOptions",
    "ExperimentOptions",
    "ModelOptions",
    "ReproduceOptions",
    "RunOptions",
    "Say",
    "split_methods",
]


Say = Callable[[str], None]
"""Takes a line."""


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
    """Of the views, over the preset's: --views count=32 scale=0.5,1."""
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
    """Larger images are unreadable."""

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

        self._check_methods(methods)
        self._view_settings()
        check_minimum("seed", self.seed, 0)
        backbone = create_backbone(
            self.backbone,
            self.pretrained,
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
            resize_positions=self.resize_positions,
        )
        return self.on(backbone, methods)

    def on(self, backbone: "Backbone", methods: Sequence[str]) -> "Model":
        """Create the methods on a backbone that is loaded; see `load`."""
        from faircontext.methods import create_method
        from faircontext.methods.base import METHODS
        from faircontext.runs.plan import Model

        everything = [*methods] == ["all"]
        created = {
            label: create_method(method_of(label), preset=self.preset, backbone=backbone, **settings)
            for label, settings in self._check_methods(methods).items()
            if not everything or METHODS[method_of(label)].needs <= backbone.capabilities
        }
        recipe = {**self._view_settings(), "augmix": self.augmix}
        return Model(backbone, created, replace(backbone.view_recipe(self.preset), **recipe))

    def _check_methods(self, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Check methods and their settings without a backbone; return the settings by what the methods are called."""
        from faircontext.methods import create_method, list_methods

        if cut := next((label for label in methods if label.endswith("-") and not variant_of(label)), None):
            raise ArgumentError(f"invalid method {cut!r}: must be {cut[:-1]}, or {cut}SUFFIX for a variant of it")
        asked = {label: method_of(label) for label in (list_methods() if [*methods] == ["all"] else methods)}
        settings = self._settings(asked)
        for label, name in asked.items():
            create_method(name, **settings[label])
        return settings

    def _view_settings(self) -> dict[str, Any]:
        from faircontext.methods.base import parse_fields
        from faircontext.views import ViewRecipe

        settings = parse_fields(ViewRecipe, "--views", self.views, "count=32")
        if name := next((name for name in ("augmix", "regime") if name in settings), None):
            raise ArgumentError(f"{name} is not set with --views: --augmix is an option, the data set has the regime")
        ViewRecipe(**settings)  # type: ignore[arg-type]  # checks the values, before a model is loaded
        return settings

    def _settings(self, asked: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the settings that are given, by what the methods are called."""
        from faircontext.methods import parse_settings

        overrides: dict[str, list[str]] = {label: [] for label in asked}
        alone = [label for label, name in asked.items() if name != "zero_shot"] or [*asked]  # zero-shot has no settings
        for word in self.set:
            label, dot, _ = word.partition("=")[0].partition(".")
            if dot and label in overrides:
                overrides[label].append(word[len(label) + 1 :])
            elif len(alone) == 1:
                overrides[alone[0]].append(word)
            else:
                raise ArgumentError(
                    f"{word!r} is of no method of this run; write METHOD.NAME=VALUE, with one of {', '.join(asked)}"
                )
        return {label: parse_settings(name, tuple(overrides[label])) for label, name in asked.items()}


def split_methods(methods: str) -> list[str]:
    """Return the names in a list with commas between, each once."""
    return list(dict.fromkeys(methods.split(",")))


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
        return self.load(split_methods(methods)).on(names, templates, self.regime, self.truncate)


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(ModelOptions):
    """Options of `classify` besides the images."""

    labels_from_folders: bool = False
    """Take the names of the folders right below PATHS as class names."""
    method: str = "fcl"
    """See: faircontext list methods; several with commas between, or all."""
    prompts: str = "single"
    """Prompt set: single ("a photo of a {}.") or generic7, imagenet80 (FCL then votes over the templates)."""
    strict: bool = False
    """Stop at the first file that is unreadable."""
    csv: Path | None = None
    """Write a row per image to this file, as they come."""
    json: Path | None = None
    """Write the run, its settings and all answers to this file, at the end."""

    def names_for(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return the class names, of the folders right below some paths where that is asked for."""
        if not self.labels_from_folders:
            return self.names()
        if self.labels is not None or self.labels_file is not None:
            raise ArgumentError("--labels-from-folders leaves no place for --labels or --labels-file; give one of them")
        return class_folders(paths)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(RunOptions):
    """Options of a run on labelled data sets."""

    analyses: ClassVar[bool] = False
    """Whether the methods are analyses."""

    datasets: tuple[str, ...]
    """See: faircontext data list; or folders below --root: class folders, or labels.csv with classnames.txt."""
    methods: tuple[str, ...] = ("fcl",)
    """See: faircontext list methods; or all. A suffix makes a variant: fcl-50, with --set fcl-50.masks=50."""
    root: Path
    """Folder that holds the data sets."""
    out: Path = Path("runs")
    """Folder for the runs."""
    prompts: str = "single"
    """Prompt set: single, generic7, imagenet80, or dataset (one template made for each data set)."""
    split: Literal["test", "val", "official"] = "test"
    """Which images: CoOp's test or val, or the data set's official test set where that is another."""
    limit: int | None = None
    """At most this many images of each data set, drawn by the seed."""
    shard: str | None = None
    """i/n: only the i-th of n parts, counted from 0; faircontext merge joins them."""
    workers: int | None = None
    """Processes that read images ahead (default: none on a CPU); with --engine ray, models that answer."""
    threads: int | None = None
    """Of a model, on a CPU; default: PyTorch's own."""
    engine: Literal["local", "ray"] = "local"
    """local, or ray: models on a Ray cluster, the one that RAY_ADDRESS names or this machine."""
    features: Path | None = None
    """Folder to keep image features in: runs with other settings on the same images then encode only what is new."""
    resume: bool = False
    """Go on with runs that are there; those that are complete are left alone."""
    partial: bool = False
    """Measure on the images that are there, where some that a split file lists are missing."""

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called, zero-shot first, as it is measured in every run; or `all` alone."""
        labels = [label for word in self.methods for label in word.split(",")]
        return labels if labels == ["all"] else list(dict.fromkeys(["zero_shot", *labels]))

    def check(self) -> None:
        """Check what can be checked before anything is read.

        Raises:
            ArgumentError: an option has a value that cannot be used.
        """
        for name, names in (("datasets", self.datasets), ("methods", self.methods)):
            if not "".join(names).strip(","):
                raise ArgumentError(f"--{name} is empty; give at least one name")
        for name in ("limit", "threads"):
            if getattr(self, name) is not None:
                check_minimum(name, getattr(self, name), 1)
        check_minimum("workers", self.workers or 0, 0)
        usable = usable_processors()
        if self.engine == "local" and (self.workers or 0) > usable:
            allowed = f"{usable} processor{'s' * (usable != 1)}"
            raise ArgumentError(f"workers={self.workers} is not possible; this process may use {allowed}")
        self.reader()  # checks its options

    def load(self, methods: Sequence[str]) -> "Model":
        """Load the backbone and create the methods; see `RunOptions.load`. Analyses are registered first."""
        if self.analyses:
            import faircontext.analysis  # noqa: F401

        return super().load(methods)


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions(EvaluateOptions):
    """Options of a run of analyses."""

    analyses: ClassVar[bool] = True

    out: Path = Path("analyses")
    """Folder for the runs."""


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Options of an experiment, which may consist of many runs."""

    root: Path | None = None
    """Folder that holds the data sets."""
    limit: int | None = None
    """At most this many images of each data set, in place of what the experiment says."""
    backbone: str | None = None
    """In place of the experiment's."""
    pretrained: str | None = None
    """Weights, in place of the experiment's: a tag or a checkpoint file."""
    device: str = "cpu"
    """Torch device of the backbone."""
    precision: str = "auto"
    """Of the image tower: auto, fp32, bf16 or fp16."""
    workers: int | None = None
    """Processes that read images ahead (default: none on a CPU); with --engine ray, models that answer."""
    threads: int | None = None
    """Of a model, on a CPU; default: PyTorch's own."""
    engine: Literal["local", "ray"] = "local"
    """local, or ray: models on a Ray cluster, the one that RAY_ADDRESS names or this machine."""


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(ExperimentOptions):
    """Options of an experiment of the paper."""

    partial: bool = False
    """Take data sets of which some images are missing."""
    available: bool = False
    """Leave out data sets that are not there or not complete, instead of stopping."""
    trials: int = 30
    """Of each method, where time is measured."""
    dry_run: bool = False
    """Print the plan and the estimate, and run nothing."""
