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
    """Evaluate methods and zero-shot on labelled data sets, with the same prompts.

    Each data set has a run, a folder below --out, which --resume continues after an interruption, even kill -9. Exit
    code 0: all classified; 1: some files were unreadable; 2: an invalid argument.
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
    """Compute the quantities of the paper's analysis on labelled data sets.

    Each data set has a run, a folder below --out, which --resume continues after an interruption. faircontext figures
    draws the results. Exit code 0: all measured; 1: some files were unreadable; 2: an invalid argument.
    """

    methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(name="names")]
    """Analyses (see: faircontext list analyses). A suffix makes a variant: margin-50, with --set margin-50.masks=50."""


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
    """Merge shards of evaluate --shard i/n into complete runs; missing and duplicate images are errors."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with the shards, searched recursively."""
    out: Path
    """Folder for the merged runs, different from those of the shards."""


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
    """Run the variants of an experiment file, and compare them on the same images.

    Existing results are reused: a variant that is added to the file is run alone. Image features are cached, so that
    each image is encoded once. Results are written to OUT/NAME/NAME.results.json.
    """

    experiment: Annotated[str, tyro.conf.Positional]
    """JSON file, or the name of an experiment of the package, or list."""
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
    """Run the experiments of a table or figure of the paper, and print it with the paper's numbers or draw it.

    Existing runs are reused, and interrupted ones continued. The time is estimated first.
    """

    name: Annotated[str, tyro.conf.Positional]
    """Name of a table or figure, or list."""
    out: Path = field(default=Path("reproduced"), kw_only=True)
    """Folder for the runs, which tables share."""


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
