"""`faircontext reproduce`: run what a table of the paper needs, and print it."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from faircontext.cli.evaluate import Evaluate, evaluate, method_names
from faircontext.cli.options import parse_options
from faircontext.errors import ArgumentError, FairContextError, check_minimum, one_line

if TYPE_CHECKING:
    from faircontext.bench.reproduce import Job
    from faircontext.datasets.spec import Dataset

__all__ = ["Reproduce", "run"]


@dataclass(frozen=True)
class Reproduce:
    """Run what a table of the paper needs, with the paper's settings, and print it beside the paper's numbers.

    What is there is not run again, and a run that was stopped goes on. The time it will take is estimated first.
    """

    name: Annotated[str, tyro.conf.Positional]
    """Name of a table, or list."""
    root: Path | None = field(default=None, kw_only=True)
    """Folder that holds the data sets."""
    out: Path = field(default=Path("reproduced"), kw_only=True)
    """Folder for the runs; tables that need the same runs share them."""
    limit: int | None = field(default=None, kw_only=True)
    """At most this many images of each data set."""
    backbone: str | None = field(default=None, kw_only=True)
    """In place of the paper's."""
    pretrained: str | None = field(default=None, kw_only=True)
    """Weights, in place of OpenAI's: a tag or a checkpoint file."""
    device: str = field(default="cpu", kw_only=True)
    """Torch device of the backbone."""
    precision: str = field(default="auto", kw_only=True)
    """Of the image tower: auto, fp32, bf16 or fp16."""
    workers: int | None = field(default=None, kw_only=True)
    """As for evaluate."""
    engine: Literal["local", "ray"] = field(default="local", kw_only=True)
    """As for evaluate."""
    partial: bool = field(default=False, kw_only=True)
    """Take data sets of which some images are missing."""
    available: bool = field(default=False, kw_only=True)
    """Leave out data sets that are not there, instead of stopping."""
    trials: int = field(default=30, kw_only=True)
    """Of each method, where time is measured."""
    dry_run: bool = field(default=False, kw_only=True)
    """Print the plan and the estimate, and run nothing."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Reproduce, arguments, "reproduce")
    from faircontext.bench.reproduce import EXPERIMENTS, experiment

    if options.name == "list":
        for name, found in EXPERIMENTS.items():
            print(f"{name:22} {found.title}")
        return 0
    wanted = experiment(options.name)
    if options.root is None:
        raise ArgumentError("reproduce needs --root, the folder that holds the data sets")
    check_minimum("trials", options.trials, 2)
    jobs = _present(options, [_on(options, job) for job in wanted.jobs])
    plans = [_evaluation(options, job) for job in jobs]
    print(f"{options.name}: {wanted.title}")
    _estimate(plans)
    if options.dry_run:
        return 0
    code = max([evaluate(plan) for plan in plans], default=0)
    _print_tables(plans)
    for backbone in dict.fromkeys(options.backbone or name for name in wanted.costs):
        _print_costs(options, next(plan for plan in plans if plan.backbone == backbone))
    return code


def _on(options: Reproduce, job: "Job") -> "Job":
    return job if options.backbone is None else job.on(options.backbone)


def _present(options: Reproduce, jobs: "Sequence[Job]") -> "list[Job]":
    """Return the jobs with the data sets that are there; say which are not, and stop unless that is allowed."""
    from faircontext.datasets.load import load_dataset

    assert options.root is not None
    absent = []
    for name in dict.fromkeys(name for job in jobs for name in job.datasets):
        try:
            load_dataset(name, options.root)
        except FairContextError as error:
            print(f"note: {one_line(str(error))}", file=sys.stderr)
            absent.append(name)
    if absent and not options.available:
        raise ArgumentError(
            f"{options.name} needs {len(absent)} data sets that are not in {options.root}: {', '.join(absent)}; add "
            "them, or leave them out with --available"
        )
    left = [replace(job, datasets=tuple(name for name in job.datasets if name not in absent)) for job in jobs]
    unique = dict.fromkeys(job for job in left if job.datasets)
    if not unique:
        raise ArgumentError(f"{options.name}: none of its data sets is in {options.root}")
    return list(unique)


def _evaluation(options: Reproduce, job: "Job") -> Evaluate:
    own = options.pretrained is None and options.backbone is None
    pretrained = "openai" if own else options.pretrained
    assert options.root is not None
    return Evaluate(
        datasets=job.datasets,
        methods=job.methods,
        root=options.root,
        out=options.out / job.folder(pretrained),
        prompts=job.prompts,
        limit=options.limit,
        backbone=job.backbone,
        pretrained=pretrained,
        preset="paper",
        set=job.settings,
        device=options.device,
        precision=options.precision,
        workers=options.workers,
        engine=options.engine,
        partial=options.partial,
        resume=True,
    )


def _estimate(plans: Sequence[Evaluate]) -> None:
    """Print what is to be run and how long it will take here, from a pilot of each job on its largest label set."""
    from faircontext.backbones.prompts import prompt_set
    from faircontext.bench.reproduce import seconds_per_image
    from faircontext.datasets.load import load_dataset

    total = 0.0
    for plan in plans:
        datasets = [load_dataset(name, plan.root) for name in plan.datasets]
        open_ = [(dataset, _left(plan, dataset)) for dataset in datasets]
        images = sum(left for _, left in open_)
        print(f"  {plan.out}: {', '.join(method_names(plan.methods))} on {', '.join(plan.datasets)}")
        if not images:
            print("    all there")
            continue
        largest = max(datasets, key=lambda dataset: len(dataset.names))
        model = plan.load(method_names(plan.methods))
        setup = model.on(largest.names, prompt_set(plan.prompts), largest.regime)
        seconds = seconds_per_image(setup)
        total += seconds * images
        print(f"    {images:,} images, about {seconds:.2f} s each on this machine: {_hours(seconds * images)}")
    print(f"estimated: {_hours(total)} in all", flush=True)


def _left(plan: Evaluate, dataset: "Dataset") -> int:
    """Return how many images of a data set have not been answered."""
    wanted = min(len(dataset.samples), plan.limit or len(dataset.samples))
    place = plan.out / dataset.name / "run.json"
    try:
        document = json.loads(place.read_text(encoding="utf-8"))
        done = document["counts"]["images"] if document["status"] == "complete" else 0
    except (OSError, ValueError, KeyError):
        return wanted
    return max(0, wanted - int(done))


def _hours(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print_tables(plans: Sequence[Evaluate]) -> None:
    from faircontext.cli.tables import Tables, tables

    for out in dict.fromkeys(plan.out for plan in plans):
        tables(Tables((out,), compare="paper"))


def _print_costs(options: Reproduce, plan: Evaluate) -> None:
    """Measure and print seconds and memory of one answer (paper, "Computational Cost Analysis")."""
    from faircontext.analysis.efficiency import measure
    from faircontext.backbones.prompts import prompt_set
    from faircontext.datasets.load import load_dataset
    from faircontext.imageio import load_image

    numbers = (200, 400, 800)
    costs = replace(
        plan, methods=("tpt", *(f"fcl-{n}" for n in numbers)), set=tuple(f"fcl-{n}.masks={n}" for n in numbers)
    )
    dataset = load_dataset("imagenet", plan.root)
    model = costs.load(list(costs.methods))
    setup = model.on(dataset.names, prompt_set("single"), dataset.regime)
    images = [load_image(sample.path) for sample in dataset.samples[: options.trials]]
    print(f"{plan.backbone} ({model.backbone.precision}, {model.backbone.device})")
    for name, method in setup.methods.items():
        print(f"  {name:10} {measure(method, images, setup.labels, setup.recipe, options.trials)}", flush=True)
