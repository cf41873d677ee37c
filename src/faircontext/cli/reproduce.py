"""`faircontext reproduce`: run what a table or figure of the paper needs, and print or draw it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from faircontext.cli.analyze import Analyze
from faircontext.cli.evaluate import Evaluate
from faircontext.cli.options import note, parse_options
from faircontext.cli.planned import Planned, carry_out, estimate
from faircontext.errors import ArgumentError, FairContextError, check_minimum

if TYPE_CHECKING:
    from faircontext.bench.reproduce import Experiment, Job
    from faircontext.datasets.spec import Dataset

__all__ = ["Reproduce", "run"]


@dataclass(frozen=True)
class Reproduce:
    """Run what a table or figure of the paper needs, with its settings, and print it beside the paper or draw it.

    What is there is not run again, and a run that was stopped goes on. The time it will take is estimated first.
    """

    name: Annotated[str, tyro.conf.Positional]
    """Name of a table or figure, or list."""
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
    """Leave out data sets that are not there or not complete, instead of stopping."""
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
    check_minimum("limit", 1 if options.limit is None else options.limit, 1)
    check_minimum("workers", options.workers or 0, 0)
    datasets = _present(options, wanted)
    print(f"{options.name}: {wanted.title}")
    if wanted.counted:
        return _print_counts([*datasets.values()])
    jobs = [replace(job, datasets=tuple(name for name in job.datasets if name in datasets)) for job in wanted.jobs]
    jobs = [job for job in jobs if job.datasets]
    if options.backbone is not None:
        jobs = _on(options, options.backbone, jobs)
    plans = [Planned(_evaluation(options, job), [datasets[name] for name in job.datasets]) for job in jobs]
    estimate(plans)
    if options.dry_run:
        return 0
    code = max([carry_out(plan) for plan in plans], default=0)
    _print_tables([plan for plan, job in zip(plans, jobs, strict=True) if not job.analysis])
    for backbone in dict.fromkeys(options.backbone or name for name in wanted.costs):
        _measure_costs(options, next(plan for plan in plans if plan.options.backbone == backbone))
    if wanted.figures:
        _draw(options, wanted.figures, plans)
    return code


def _present(options: Reproduce, wanted: "Experiment") -> "dict[str, Dataset]":
    """Find the data sets; say which cannot be taken, and stop unless that is allowed."""
    from faircontext.datasets.load import check_present, load_dataset

    assert options.root is not None
    names = dict.fromkeys([*wanted.counted, *(name for job in wanted.jobs for name in job.datasets)])
    found: dict[str, Dataset] = {}
    for name in names:
        try:
            dataset = load_dataset(name, options.root)
            check_present(dataset, options.partial or bool(wanted.counted))
            found[name] = dataset
        except FairContextError as error:
            note(str(error))
    if not found:
        raise ArgumentError(f"{options.name}: none of its data sets can be taken from {options.root}")
    absent_names = [name for name in names if name not in found]
    if absent_names and not (options.available or wanted.counted):
        raise ArgumentError(
            f"{options.name} needs {len(absent_names)} data sets that cannot be taken from {options.root}: "
            f"{', '.join(absent_names)}; complete them, or leave them out with --available"
        )
    return found


def _print_counts(datasets: "Sequence[Dataset]") -> int:
    """Print the numbers of classes and images that were found beside the paper's."""
    from faircontext.datasets.spec import CATALOGUE

    print(f"{'data set':16} {'classes':>8} {'paper':>8} {'images':>8} {'listed':>8} {'paper':>8}")
    for found in datasets:
        entry = CATALOGUE[found.name]
        numbers = (len(found.names), entry.classes, len(found.samples), found.listed, entry.paper)
        why = f"  the paper's are {entry.paper_is}" if entry.paper_is else ""
        print(f"{found.name:16} {' '.join(f'{number:>8,}' for number in numbers)}{why}")
    return 0


def _on(options: Reproduce, name: str, jobs: "Sequence[Job]") -> "list[Job]":
    """Return the jobs, each once, on another backbone, without methods that it cannot run."""
    from faircontext.backbones import create_backbone
    from faircontext.methods.base import METHODS

    backbone = create_backbone(name, options.pretrained, device=options.device, precision=options.precision)
    able, left_out = [], dict[str, None]()
    for job in dict.fromkeys(job.on(name) for job in jobs):
        methods = tuple(
            label for label in job.methods if METHODS[label.partition("-")[0]].needs <= backbone.capabilities
        )
        left_out |= dict.fromkeys(label for label in job.methods if label not in methods)
        if methods:
            able.append(replace(job, methods=methods))
    if left_out:
        note(f"{name} cannot run {', '.join(left_out)}: left out")
    return able


def _evaluation(options: Reproduce, job: "Job") -> Evaluate:
    own = options.pretrained is None and options.backbone is None
    pretrained = "openai" if own else options.pretrained
    assert options.root is not None
    kind = Analyze if job.analysis else Evaluate
    limits = [limit for limit in (options.limit, job.limit) if limit is not None]
    return kind(
        datasets=job.datasets,
        methods=job.methods,
        root=options.root,
        out=options.out / job.folder(pretrained),
        prompts=job.prompts,
        limit=min(limits, default=None),
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


def _print_tables(plans: Sequence[Planned]) -> None:
    """Print the tables of the runs that belong to the experiment, and of no others."""
    from faircontext.cli.tables import Tables, tables

    if plans:
        tables(Tables(_folders(plans), compare="paper"))


def _draw(options: Reproduce, names: tuple[str, ...], plans: Sequence[Planned]) -> None:
    """Draw the figures of the experiment from its runs."""
    from faircontext.cli.figures import Figures, figures

    costs = [plan.options.out / "costs.json" for plan in plans]
    there = tuple(dict.fromkeys(place for place in costs if place.exists()))
    figures(Figures((*_folders(plans), *there), out=options.out / "figures", only=names))


def _folders(plans: Sequence[Planned]) -> tuple[Path, ...]:
    """Return the folders of the runs that belong to an experiment, and of no others."""
    return tuple(dict.fromkeys(plan.options.out / dataset.name for plan in plans for dataset in plan.datasets))


def _measure_costs(options: Reproduce, plan: Planned) -> None:
    """Measure, print and keep seconds and memory of one answer (paper, "Computational Cost Analysis").

    They are kept in `costs.json` beside the backbone's runs, where `faircontext figures` finds them.
    """
    from faircontext.analysis.efficiency import measure
    from faircontext.backbones.prompts import prompt_set
    from faircontext.files import to_json, write_whole
    from faircontext.imageio import load_image

    names = ("tpt", "fcl-200", "fcl", "fcl-800")  # as in the runs, where FCL itself has 400 masks
    costs = replace(plan.options, methods=names, set=("fcl-200.masks=200", "fcl-800.masks=800"))
    dataset = next(dataset for dataset in plan.datasets if dataset.name == "imagenet")
    model = costs.load(list(costs.methods))
    setup = model.on(dataset.names, prompt_set("single"), dataset.regime)
    images = [load_image(sample.path) for sample in dataset.samples[: options.trials]]
    print(f"{costs.backbone} ({model.backbone.precision}, {model.backbone.device})")
    found = []
    for name, method in setup.methods.items():
        cost = measure(method, images, setup.labels, setup.recipe, options.trials)
        found.append({"method": name, "backbone": model.backbone.name, **cost.as_record()})
        print(f"  {name:10} {cost}", flush=True)
    write_whole(plan.options.out / "costs.json", to_json({"costs": found}))
