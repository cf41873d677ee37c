"""What a run is asked to do, and the checks of it; commands' options are these classes, their help the docstrings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from faircontext.datasets.spec import Regime
from faircontext.errors import ArgumentError, check_minimum
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image
from faircontext.names import class_names
from faircontext.runs.backbone_options import BackboneOptions
from faircontext.runs.multi_label import MultiLabelOptions
from faircontext.runs.process_options import ProcessOptions
from faircontext.runs.prompt_options import PromptOptions, digest_of_file
from faircontext.runs.records import method_of, row_name, split_methods, variant_of, with_zero_shot
from faircontext.runs.shift_options import ShiftOptions
from faircontext.runs.stream_options import StreamOptions, check_one_process
from faircontext.runs.unknown import UnknownOptions
from faircontext.sources import Source
from faircontext.system import keep_freed_memory

if TYPE_CHECKING:
    from faircontext.backbones import Backbone
    from faircontext.backbones.contexts import LearntContext
    from faircontext.runs.answer import Predictor
    from faircontext.runs.setup import Model

__all__ = [
    "AnalysisOptions",
    "EvaluateOptions",
    "ModelOptions",
    "RunOptions",
    "RunnerOptions",
    "Say",
]


Say = Callable[[str], None]
"""Takes a line."""


_READ = ("labels_file", "templates", "descriptions", "negatives", "unknown", "context", "adapter", "pretrained")
"""Options of commands that may name a file which is read."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(BackboneOptions):
    """Options of backbone, methods and images."""

    truncate: bool = False
    """Cut class names that are too long for the text model, instead of refusing them."""
    context: Path | None = None
    """Learnt context to start from, a checkpoint of CoOp's prompt learner; zero-shot is then that of the context."""
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
    exif: bool = True
    """Apply the EXIF orientation of photos (published numbers are often measured without)."""
    max_pixels: int = MAX_PIXELS
    """Larger images are unreadable."""

    def files_read(self) -> Iterator[Path]:
        """Yield the files that options name and that are read, with those in the folders of a model."""
        named = [getattr(self, name, None) for name in _READ]
        for value in [*named, self.backbone.partition(":")[2]]:
            if value:
                yield (path := Path(value))
                yield from path.rglob("*") if path.is_dir() else ()

    def reader(self) -> Callable[[Source | str], DecodedImage]:
        """Return what reads an image file."""
        check_minimum("max_pixels", self.max_pixels, 1)
        return partial(read_image, max_pixels=self.max_pixels, exif=self.exif)

    def load(self, methods: Sequence[str]) -> "Model":
        """Load the backbone and create the methods; what can be wrong otherwise is checked before.

        Args:
            methods: names; a method runs several times, with other settings, under names with a suffix such as
                `fcl-50`. `all` stands for those without a memory that the backbone can run.

        Raises:
            FairContextError: an option has a value that cannot be used.
        """
        from faircontext.backbones.contexts import read_context

        self._check_methods(methods)
        self._view_settings()
        check_minimum("seed", self.seed, 0)
        context = None if self.context is None else read_context(self.context)
        backbone = self.create_backbone()
        keep_freed_memory()  # not before: what loading has freed is given back
        return self.on(backbone, methods, context)

    def on(self, backbone: "Backbone", methods: Sequence[str], context: "LearntContext | None" = None) -> "Model":
        """Create the methods on a backbone that is loaded, from a context that is read; see `load`."""
        from faircontext.methods import create_method
        from faircontext.methods.base import METHODS
        from faircontext.runs.setup import Model

        everything, checked = [*methods] == ["all"], self._check_methods(methods)
        created = {
            row_name(label): create_method(method_of(label), preset=self.preset, backbone=backbone, **settings)
            for label, settings in checked.items()
            if not everything or METHODS[method_of(label)].needs <= backbone.capabilities
        }
        recipe = replace(backbone.view_recipe(self.preset), **self._view_settings(), augmix=self.augmix)
        given = {row_name(label): settings for label, settings in checked.items()}
        return Model(backbone, created, recipe, context, self.preset, given, everything)

    def facts_of_weights(self) -> dict[str, Any]:
        """Return what records say of the choice of weights and of the context, where there was one."""
        return super().facts_of_weights() | ({} if self.context is None else {"context": str(self.context)})

    def _check_methods(self, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Check methods and their settings without a backbone; return the settings by what the methods are called."""
        from faircontext.methods import create_method, list_methods
        from faircontext.methods.stream import is_stream

        if cut := next((label for label in methods if label.endswith("-") and not variant_of(label)), None):
            raise ArgumentError(f"invalid method {cut!r}: must be {cut[:-1]}, or {cut}SUFFIX for a variant of it")
        labels = [name for name in list_methods() if not is_stream(name)] if [*methods] == ["all"] else methods
        if alike := next((label for label in labels if row_name(label) != label and row_name(label) in labels), None):
            raise ArgumentError(
                f"{alike} and {row_name(alike)} have the same name in rows; make one a variant: {alike}-SUFFIX"
            )
        asked = {label: method_of(label) for label in labels}
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


@dataclass(frozen=True, kw_only=True)
class RunnerOptions(MultiLabelOptions, ShiftOptions, UnknownOptions, PromptOptions, ProcessOptions, RunOptions):
    """Options of how a run is carried out and stored."""

    analyses: ClassVar[bool] = False
    """Whether the methods are analyses."""

    limit: int | None = None
    """At most this many images (of each data set), drawn by the seed."""
    shard: str | None = None
    """i/n: only the i-th of n parts, counted from 0; faircontext merge joins them."""
    features: Path | None = None
    """Folder to keep image features in: runs with other settings on the same images then encode only what is new."""
    resume: bool = False
    """Go on with runs that are there; those that are complete are left alone."""

    @property
    def prompts_name(self) -> str:
        """What runs call the prompts; see `PromptOptions.prompts_name`. With a learnt context they are others."""
        return super().prompts_name + ("" if self.context is None else f"+context-{digest_of_file(self.context)[:8]}")

    @property
    def stored(self) -> tuple[str, ...]:
        """What rows hold besides: `scores` and `embeddings`."""
        return ()

    @property
    def held(self) -> int:
        """How many of the best classes rows hold."""
        return 5

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called, zero-shot first, as it is measured in every run; or `all` alone."""
        raise NotImplementedError

    def check(self) -> None:
        """Check what can be checked before anything is read; raise `ArgumentError` where a value cannot be used."""
        check_minimum("limit", 1 if self.limit is None else self.limit, 1)
        check_one_process(self)  # before what several processes need
        self.check_processes()
        self.check_unknown()
        if self.analyses and self.multi_label:
            raise ArgumentError("--multi-label is of evaluate and classify: analyses measure what speaks for one class")
        self.check_multi_label(self.labels_of_methods, self.unknown)
        self.check_shifts()
        self.check_attack(self, self.multi_label)
        self.reader()  # checks its options

    @property
    def uses_views(self) -> bool:
        """Whether a method of the run sees more of an image than its plain view."""
        from faircontext.methods.base import METHODS

        self._register()
        labels = self.labels_of_methods
        return labels == ["all"] or any(METHODS[method_of(label)].uses_views for label in labels)

    def load(self, methods: Sequence[str]) -> "Model":
        """Load the backbone and create the methods; see `RunOptions.load`."""
        self._register()
        return super().load(methods)

    def _register(self) -> None:
        if self.analyses:
            import faircontext.analysis  # noqa: F401


@dataclass(frozen=True, kw_only=True)
class ModelOptions(RunOptions):
    """Options of class names, backbone, methods and images."""

    labels: str | None = None
    """Class names with commas between."""
    labels_file: Path | None = None
    """File with a class name a line."""
    regime: Regime = "natural"
    """Kind of data, for --augmix auto: natural or fine-grained."""

    def names(self) -> tuple[str, ...]:
        """Return the class names that the options give."""
        return class_names(self.labels, self.labels_file)

    def create(self, names: Sequence[str], methods: str) -> "Predictor":
        """Load the backbone and create the methods for the prompt "a photo of a {}."; the rest is checked before.

        Args:
            names: class names.
            methods: a name, several with commas between, or `all` for those that the backbone can run.

        Raises:
            FairContextError: an option has a value that cannot be used.
        """
        choice = PromptOptions().choose_prompts(names)
        return self.load(split_methods(methods)).on(names, choice, self.regime, self.truncate)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(StreamOptions, RunnerOptions):
    """Options of a run on labelled data sets."""

    datasets: tuple[str, ...]
    """See: faircontext data list; or folders below --root: class folders, or labels.csv with classnames.txt."""
    methods: tuple[str, ...] = ("fcl",)
    """See: faircontext list methods; or all. A suffix makes a variant: fcl-50, with --set fcl-50.masks=50."""
    root: Path
    """Folder that holds the data sets."""
    out: Path = Path("runs")
    """Folder for the runs."""
    split: Literal["test", "val", "official"] = "test"
    """Which images: CoOp's test or val, or the data set's official test set where that is another."""
    partial: bool = False
    """Measure on the images that are there, where some that a split file lists are missing."""

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called, zero-shot first, as it is measured in every run; or `all` alone."""
        return with_zero_shot(self.methods)

    def check(self) -> None:
        """Check what can be checked before anything is read; see `RunnerOptions.check`."""
        for name, names in (("datasets", self.datasets), ("methods", self.methods)):
            if not "".join(names).strip(","):
                raise ArgumentError(f"--{name} is empty; give at least one name")
        self.check_orders()
        super().check()


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions(EvaluateOptions):
    """Options of a run of analyses."""

    analyses: ClassVar[bool] = True

    out: Path = Path("analyses")
    """Folder for the runs."""
