"""Options of `classify`: which images, which class names, and the files that are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from faircontext.datasets.class_folders import class_folders
from faircontext.errors import ArgumentError, check_minimum
from faircontext.runs.option_parts import stream_labels
from faircontext.runs.options import ModelOptions, RunnerOptions
from faircontext.runs.records import split_methods, with_zero_shot

__all__ = ["ClassifyOptions"]


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of which images and classes there are, besides those of class names."""

    group: ClassVar[str] = "images and labels"

    labels_from_folders: bool = False
    """Take the names of the folders right below PATHS as class names."""
    exclude: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Leave out what matches a pattern, such as '*_small.jpg' or 'old/*'; may be given several times."""
    image_column: str | None = None
    """Column of tables that holds images or their paths, where it has no usual name (image, path, file_name)."""
    label_column: str | None = None
    """Column of tables that holds labels, where it is not called label."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of the files that are written."""

    group: ClassVar[str] = "output"

    csv: Path | None = None
    """Write a row per image to this file, as they come; with --out at the end."""
    json: Path | None = None
    """Write the run, its settings and all answers to this file, at the end."""
    top: int = 0
    """With --csv: columns of the so many best classes and their probabilities."""
    scores: Path | None = None
    """Write every class's probability and cosine to this Parquet file."""
    embeddings: Path | None = None
    """Write the images' features to this file, which ends in .npy (with a manifest beside it) or .parquet."""
    classifier: Path | None = None
    """Write the text features of the classes to this file, which ends in .safetensors."""
    out: Path | None = None
    """Folder for a run as of evaluate: stored as it goes, it goes on with --resume after whatever stopped it."""


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(OutputOptions, ImageOptions, ModelOptions, RunnerOptions):
    """Options of `classify` besides the images."""

    group: ClassVar[str] = "run"

    method: str = "fcl"
    """See: faircontext list methods; several with commas between, or all."""
    strict: bool = False
    """Stop at the first file that is unreadable."""
    stream: bool = False
    """Let methods with a memory answer the images as one stream, in the order in which they are named and found."""

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called; of a stored run see `EvaluateOptions.labels_of_methods`."""
        return split_methods(self.method) if self.out is None else with_zero_shot([self.method])

    def check(self) -> None:
        """Check what can be checked before anything is read; see `RunnerOptions.check`."""
        self.check_one_process()  # which a stored run is no way out of
        stored = {"shard": self.shard, "resume": self.resume, "engine": self.engine != "local"}
        self.shift  # noqa: B018 (one, or it is an error)
        if self.out is None and (given := [name for name, value in stored.items() if value]):
            raise ArgumentError(f"--{given[0]} is of a stored run; give its folder with --out")
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
    def held(self) -> int:
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
