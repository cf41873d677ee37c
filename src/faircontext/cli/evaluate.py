"""`faircontext evaluate`, `analyze`, `merge`, `ablate` and `reproduce`: runs on labelled data sets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from faircontext.cli.options import parse_options, say, warn
from faircontext.errors import ArgumentError, unknown_name
from faircontext.runs.options import AblationOptions, AnalysisOptions, EvaluateOptions, ReproduceOptions
from faircontext.runs.records import ANALYSES, is_analysis


@dataclass(frozen=True, kw_only=True)
class Evaluate(EvaluateOptions):
    """Measure methods on labelled data sets; zero-shot is measured beside them, on the same prompts.

    A run is a folder below --out, one per data set. Stopped at any moment, even by kill -9, it goes on with --resume.
    Exit code 0: all answered; 1: some files were unreadable; 2: a wrong argument.
    """


def evaluate(arguments: Sequence[str]) -> int:
    """Run `faircontext evaluate`."""
    return _evaluate(parse_options(Evaluate, arguments, "evaluate"))


def _evaluate(options: EvaluateOptions) -> int:
    options.check()  # before PyTorch is loaded, which takes seconds
    from faircontext.runs import evaluate as runs

    return runs.evaluate(options, say, warn)


@dataclass(frozen=True, kw_only=True)
class Analyze(AnalysisOptions):
    """Measure quantities of the paper's analysis on labelled data sets; several share an image's features.

    A run is a folder below --out, one per data set. Stopped at any moment, it goes on with --resume. Figures are drawn
    from it by faircontext figures. Exit code 0: all measured; 1: some files were unreadable; 2: a wrong argument.
    """

    methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(name="names")]
    """See: faircontext list analyses. A suffix makes a variant: margin-50, with --set margin-50.masks=50."""


def analyze(arguments: Sequence[str]) -> int:
    """Run `faircontext analyze`."""
    options = parse_options(Analyze, arguments, "analyze")
    if not options.methods:
        raise ArgumentError(f"name at least one analysis: {', '.join(sorted(ANALYSES))}")
    for label in options.methods:
        if not is_analysis(label):
            raise unknown_name("analysis", label, ANALYSES)
    return _evaluate(options)


@dataclass(frozen=True)
class Merge:
    """Join shards, which were made with evaluate --shard i/n, to whole runs; a missing or doubled image is an error."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with the shards, searched with all folders below."""
    out: Path
    """Folder for the whole runs; another one."""


def merge(arguments: Sequence[str]) -> int:
    """Run `faircontext merge`, and print where each run is."""
    options = parse_options(Merge, arguments, "merge")
    from faircontext.runs.store import merge as join

    for folder in join(options.runs, options.out):
        print(folder)
    return 0


def _list_experiments(paper: bool = False) -> int:
    from faircontext.runs.experiments import experiment_names, read_experiment

    for name in experiment_names(paper):
        print(f"{name:22} {read_experiment(name, paper).title}")
    return 0


@dataclass(frozen=True)
class Ablate(AblationOptions):
    """Run variants of a method that an experiment file names, and compare them image by image.

    What is there is not run again: a variant that is added to the file is run alone. Image features are kept, so that
    only pictures that no earlier variant needed are encoded. Results are written to OUT/NAME/NAME.results.json.
    """

    experiment: Annotated[str, tyro.conf.Positional]
    """File that ends in .json, or the name of an experiment that comes with the package, or list."""
    out: Path = field(default=Path("ablations"), kw_only=True)
    """Folder for the runs."""


def ablate(arguments: Sequence[str]) -> int:
    """Run `faircontext ablate`."""
    options = parse_options(Ablate, arguments, "ablate")
    if options.experiment == "list":
        return _list_experiments()
    from faircontext.runs import ablate as runs

    return runs.ablate(options.experiment, options.out, options, say, warn)


@dataclass(frozen=True)
class Reproduce(ReproduceOptions):
    """Run what a table or figure of the paper needs, with its settings, and print it beside the paper or draw it.

    What is there is not run again, and a run that was stopped goes on. The time it will take is estimated first.
    """

    name: Annotated[str, tyro.conf.Positional]
    """Name of a table or figure, or list."""
    out: Path = field(default=Path("reproduced"), kw_only=True)
    """Folder for the runs; tables that need the same runs share them."""


def reproduce(arguments: Sequence[str]) -> int:
    """Run `faircontext reproduce`."""
    options = parse_options(Reproduce, arguments, "reproduce")
    if options.name == "list":
        return _list_experiments(paper=True)
    from faircontext.report.figures import draw_from
    from faircontext.report.tables import write_tables
    from faircontext.runs import reproduce as runs
    from faircontext.runs.groups import find_runs

    done = runs.reproduce(options.name, options.out, options, say, warn)
    if done.tables:
        print(write_tables(find_runs(done.tables), "paper", "rich", "top1", warn, compared=True), end="")
    if done.sources and done.figures:
        draw_from(done.sources, done.figures, options.out / "figures", say, warn)
    return done.exit_code
