"""What a run is asked to do: options composed of parts, and the checks of them; they are data, and build nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from faircontext.datasets.class_folders import class_folders
from faircontext.errors import ArgumentError, check_minimum
from faircontext.runs.decisions import DecisionOptions
from faircontext.runs.multi_label import MultiLabelOptions
from faircontext.runs.option_parts import (
    BackboneOptions,
    LabelOptions,
    MethodOptions,
    PerturbationOptions,
    ProcessOptions,
    PromptOptions,
    ReadingOptions,
    StoreOptions,
    StreamOptions,
    stream_labels,
)
from faircontext.runs.records import split_methods, with_zero_shot
from faircontext.runs.unknown import UnknownOptions


@dataclass(frozen=True, kw_only=True)
class RunOptions(DecisionOptions, ReadingOptions, MethodOptions, PromptOptions, BackboneOptions):
    """Options of model, prompts, methods and images."""

    analyses: ClassVar[bool] = False
    """Whether the methods are analyses."""

    @property
    def stored(self) -> tuple[str, ...]:
        """What rows hold besides: `scores` and `embeddings`."""
        return ()

    @property
    def top_stored(self) -> int:
        """How many of the best classes rows hold."""
        return 5

    def files_read(self) -> Iterator[Path]:
        """Yield the files that options name and that are read, with those in the folders of a model."""
        named = [getattr(self, name) for part in type(self).__mro__ for name in vars(part).get("files", ())]
        for value in [*named, self.backbone.partition(":")[2]]:
            if value:
                yield (path := Path(value))
                yield from path.rglob("*") if path.is_dir() else ()

    def facts_of_weights(self) -> dict[str, Any]:
        """Return what records say of the choice of weights and of the context, where there was one."""
        return super().facts_of_weights() | ({} if self.context is None else {"context": str(self.context)})


@dataclass(frozen=True, kw_only=True)
class ModelOptions(LabelOptions, RunOptions):
    """Options of class names, model, prompts, methods and images."""

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called; unless others can be chosen, FCL alone."""
        return ["fcl"]


@dataclass(frozen=True, kw_only=True)
class RunnerOptions(StoreOptions, ProcessOptions, PerturbationOptions, MultiLabelOptions, UnknownOptions, RunOptions):
    """Options of how a run is carried out and stored; the decisions there are stand here, and nowhere else."""

    def check_one_process(self) -> None:
        """Check that methods with a memory are not shared out: one process answers their images, one after another.

        Raises:
            ArgumentError: there is such a method, and other processes would answer too.
        """
        shared = {
            "shard": self.shard is not None,
            "engine ray": self.engine == "ray",
            "workers auto": self.several_models,
        }
        names = [name for name, value in shared.items() if value]
        if names and (labels := stream_labels(self.labels_of_methods)):
            raise ArgumentError(
                f"--{names[0]} is not possible with {labels[0]}, which answers images one after another; leave it out, "
                f"or encode with other methods and --{names[0]} into a folder of --features, then give {labels[0]} "
                "that folder"
            )

    def check(self) -> None:
        """Check what can be checked before anything is read; raise `ArgumentError` where a value cannot be used."""
        check_minimum("limit", 1 if self.limit is None else self.limit, 1)
        self.part  # noqa: B018 (one, or it is an error)
        self.check_one_process()  # before what several processes need
        self.check_processes()
        self.check_decision(self.labels_of_methods)
        self.check_perturbations()
        self.check_attack(self, self.several)
        self.reader()  # checks its options


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of which images and classes there are, besides those of class names."""

    group: ClassVar[str] = "images and labels"

    labels_from_folders: bool = False
    """Use the names of the folders directly below PATHS as class names."""
    exclude: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Skip files that match a pattern, such as '*_small.jpg' or 'old/*'; may be given several times."""
    image_column: str | None = None
    """Column of tables with images or their paths, if it has no usual name (image, path, file_name)."""
    label_column: str | None = None
    """Column of tables with labels, if it is not called label."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of the files that are written."""

    group: ClassVar[str] = "output"

    csv: Path | None = None
    """Write a row per image and method to this file, during the run (with --out, at its end)."""
    json: Path | None = None
    """Write the run, its settings and all predictions to this file, at the end."""
    top: int = 0
    """With --csv: add columns for the top K classes and their probabilities."""
    scores: Path | None = None
    """Write the probability and cosine of every class to this Parquet file."""
    embeddings: Path | None = None
    """Write image features to this file, which ends in .npy (with a manifest in the same folder) or .parquet."""
    classifier: Path | None = None
    """Write the text features of the classes to this file, which ends in .safetensors."""
    out: Path | None = None
    """Folder for a stored run, as of evaluate, which --resume continues after an interruption."""
    sort_into: Path | None = None
    """Copy each photo into a folder named after its prediction, below this one; faircontext unsort undoes it."""
    sort_by: Literal["copy", "link"] = "copy"
    """With --sort-into: copy files, or make symbolic links."""


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(OutputOptions, ImageOptions, ModelOptions, RunnerOptions):
    """Options of `classify` besides the images."""

    group: ClassVar[str] = "run"

    method: str = "fcl"
    """Methods, separated by commas, or all; see: faircontext list methods."""
    strict: bool = False
    """Stop at the first unreadable file."""
    stream: bool = False
    """Run methods with a memory on the images as one stream, in the order of the input."""

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called; of a stored run see `EvaluateOptions.labels_of_methods`."""
        return split_methods(self.method) if self.out is None else with_zero_shot([self.method])

    def check(self) -> None:
        """Check what can be checked before anything is read; see `RunnerOptions.check`."""
        self.check_one_process()  # which a stored run is no way out of
        stored = {"shard": self.shard, "resume": self.resume, "engine": self.engine != "local"}
        self.perturbation  # noqa: B018 (one, or it is an error)
        if self.out is None and (names := [name for name, value in stored.items() if value]):
            raise ArgumentError(f"--{names[0]} is of a stored run; give its folder with --out")
        several = self.several or self.shard is not None or len(split_methods(self.method)) > 1 or self.method == "all"
        if self.sort_into is not None and several:
            raise ArgumentError("--sort-into takes one answer an image: one --method, no --multi-label and no --shard")
        if self.sort_into is None and self.sort_by != "copy":
            raise ArgumentError(f"--sort-by {self.sort_by} is of --sort-into; name its folder, or leave it out")
        suffixes = {"scores": (".parquet",), "embeddings": (".npy", ".parquet"), "classifier": (".safetensors",)}
        for name, allowed in suffixes.items():
            path = getattr(self, name)
            if path is not None and path.suffix.lower() not in allowed:
                raise ArgumentError(f"--{name} {path}: must end in {' or '.join(allowed)}")
        super().check()

    def check_one_stream(self) -> None:
        """Check that `classify` was asked for a stream if, and only if, a method has a memory.

        Raises:
            ArgumentError: it was not.
        """
        labels = stream_labels(self.labels_of_methods)
        if labels and not self.stream:
            raise ArgumentError(
                f"the answers of {labels[0]} depend on the images before; give --stream to answer the images as one "
                "stream"
            )
        if self.stream and not labels:
            raise ArgumentError(
                "--stream is of methods with a memory, such as tda; name one with --method, or leave it out"
            )

    def check_top(self, classes: int) -> None:
        """Check how many of the best classes are asked for, of so many classes."""
        check_minimum("top", self.top, 0)
        if self.top and self.csv is None:
            raise ArgumentError("--top adds columns to the CSV file; name it with --csv")
        if self.top > classes:
            raise ArgumentError(f"--top {self.top} is not possible: there are {classes} classes")

    @property
    def top_stored(self) -> int:
        """How many of the best classes rows hold."""
        return max(5, self.top)

    @property
    def stored(self) -> tuple[str, ...]:
        """What rows hold besides: `scores` and `embeddings`."""
        return tuple(name for name in ("scores", "embeddings") if getattr(self, name) is not None)

    def names_for(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return the class names, of the folders right below some paths where that is asked for."""
        if not self.labels_from_folders:
            return self.names()
        if self.labels is not None or self.labels_file is not None:
            raise ArgumentError("--labels-from-folders leaves no place for --labels or --labels-file; give one of them")
        return class_folders(paths)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(StreamOptions, RunnerOptions):
    """Options of a run on labelled data sets."""

    group: ClassVar[str] = "run"

    datasets: tuple[str, ...]
    """Data sets (see: faircontext data list), or folders below --root: class folders, or labels.csv with
    classnames.txt."""
    methods: tuple[str, ...] = ("fcl",)
    """Methods (see: faircontext list methods), or all. A suffix makes a variant: fcl-50, with --set fcl-50.masks=50."""
    root: Path
    """Folder that holds the data sets."""
    out: Path = Path("runs")
    """Folder for the runs."""
    split: Literal["test", "val", "official"] = "test"
    """Split: CoOp's test or val, or the data set's official test set where it differs."""
    partial: bool = False
    """Evaluate an incomplete data set, of which images listed in a split file are missing."""

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


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(ProcessOptions, BackboneOptions):
    """Options of an experiment, which may consist of many runs; `evaluate` takes those that it has too."""

    group: ClassVar[str] = "run"

    root: Path | None = None
    """Folder that holds the data sets."""
    limit: int | None = None
    """Maximum number of images of each data set, in place of the experiment's."""
    backbone: str = ""
    """Backbone, in place of the experiment's."""
    pretrained: str | None = None
    """Weights, in place of the experiment's: a tag or a checkpoint file."""


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(ExperimentOptions):
    """Options of an experiment of the paper."""

    group: ClassVar[str] = "run"

    partial: bool = False
    """Use data sets of which some images are missing."""
    available: bool = False
    """Skip missing or incomplete data sets, instead of stopping."""
    trials: int = 30
    """Number of trials of each method for measurements of time."""
    dry_run: bool = False
    """Print the plan and the estimate, and run nothing."""


@dataclass(frozen=True, kw_only=True)
class AblationOptions(ExperimentOptions, PromptOptions):
    """Options of an experiment of variants; prompts that are given replace those of the file."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(BackboneOptions):
    """What is to be looked at."""

    picture: Path | None = None
    """CLIP.png of OpenAI's repository, whose README gives the probabilities of ViT-B/32."""
    root: Path | None = None
    """Folder of data sets to check."""
