"""Run what a table or figure of the paper needs: find data sets, estimate the time, run what is left, measure costs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

import faircontext.analysis  # noqa: F401 (registers the analyses)
from faircontext.datasets.check import check_present
from faircontext.datasets.listing import data_hash
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import CATALOGUE, Dataset
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FairContextError, check_minimum, counted
from faircontext.files import to_json, write_whole
from faircontext.imageio import load_image
from faircontext.methods.base import METHODS
from faircontext.runs.answer import Predictor
from faircontext.runs.build import build, load, load_backbone
from faircontext.runs.checks import check_same
from faircontext.runs.costs import measure
from faircontext.runs.evaluate import check_asked, evaluate_missing
from faircontext.runs.experiments import Experiment, ExperimentRun, read_experiment
from faircontext.runs.option_parts import Say
from faircontext.runs.options import EvaluateOptions, ExperimentOptions, ReproduceOptions
from faircontext.runs.plan import plan_of
from faircontext.runs.records import method_of
from faircontext.runs.run import start_session
from faircontext.runs.store import Run, load_run


@dataclass(frozen=True)
class Reproduced:
    """What came of it.

    Attributes:
        exit_code: 1 where a file could not be read, else 0.
        tables: folders of the runs that belong to the experiment's tables, and of no others.
        figures: names of figures.
        sources: what the figures are drawn from.
    """

    exit_code: int
    tables: tuple[Path, ...] = ()
    figures: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Scheduled:
    """Runs of an experiment with their data sets, and what `evaluate` is asked for."""

    run: ExperimentRun
    options: EvaluateOptions
    datasets: Sequence[Dataset]

    @property
    def folders(self) -> list[Path]:
        """Where the runs are."""
        return [self.options.out / dataset.name for dataset in self.datasets]

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The runs that are there, by data set."""
        return {folder.name: load_run(folder) for folder in self.folders if (folder / "run.json").exists()}

    @cached_property
    def left(self) -> dict[str, int]:
        """How many images of each data set are to be answered; none of a run that is complete."""
        return {dataset.name: self._left(dataset) for dataset in self.datasets}

    def _left(self, dataset: Dataset) -> int:
        wanted, run = min(len(dataset.samples), self.options.limit or len(dataset.samples)), self.runs.get(dataset.name)
        if run is None:
            return wanted
        settings = replace(self.run, methods={"zero_shot": (), **self.run.methods}).settings()
        identity = {"images": len(dataset.samples), "hash": data_hash(dataset)}
        check_asked(run, self.options, dataset=identity, methods=settings)
        return 0 if run.complete else max(1, wanted - len(run.rows["path"].unique()))


def reproduce(name: str, out: Path, options: ReproduceOptions, say: Say, warn: Say) -> Reproduced:
    """Run what a table or figure of the paper needs; what is there is not run again.

    Args:
        name: one of `experiment_names`, of the paper's.
        out: folder for the runs; tables that need the same runs share them.
        options: what is asked.
        say: takes what is printed.
        warn: takes warnings.

    Raises:
        FairContextError: an option has a value that cannot be used, or a data set or a model cannot be loaded.
    """
    wanted = read_experiment(name, paper=True)
    if options.root is None:
        raise ArgumentError("reproduce needs --root, the folder that holds the data sets")
    check_minimum("trials", options.trials, 2)
    check_minimum("limit", 1 if options.limit is None else options.limit, 1)
    options.check_processes()
    counting = bool(wanted.counted)
    datasets = _present(wanted, options.root, options.partial or counting, options.available or counting, warn)
    say(f"{name}: {wanted.title}")
    if counting:
        for line in _counts(list(datasets.values())):
            say(line)
        return Reproduced(0)
    runs = [replace(run, datasets=tuple(name for name in run.datasets if name in datasets)) for run in wanted.runs]
    runs = _changed([run for run in runs if run.datasets], options, warn)
    schedule = [
        Scheduled(
            run,
            run.evaluation(options, out / run.folder),
            [datasets[name] for name in run.datasets],
        )
        for run in runs
    ]
    estimate(schedule, say)
    if options.dry_run:
        return Reproduced(0)
    evaluated = [run for job in schedule for run in evaluate_missing(job.options, say, warn)]
    for backbone in dict.fromkeys(options.backbone or name for name in wanted.facts.get("costs", ())):
        _measure_costs(next(job for job in schedule if job.run.backbone == backbone), options.trials, say)
    tables = [path for job in schedule if not job.run.analysis for path in job.folders]
    costs = [path for job in schedule if (path := job.options.out / "costs.json").exists()]
    sources = dict.fromkeys([*(path for job in schedule for path in job.folders), *costs])
    code = int(any(run.unreadable for run in evaluated))
    return Reproduced(code, tuple(dict.fromkeys(tables)), tuple(wanted.facts.get("figures", ())), tuple(sources))


def _present(wanted: Experiment, root: Path, partial: bool, available: bool, warn: Say) -> dict[str, Dataset]:
    """Find the data sets; say which cannot be taken, and stop unless that is allowed."""
    present: dict[str, Dataset] = {}
    for name in wanted.datasets:
        try:
            dataset = load_dataset(name, root)
            check_present(dataset, partial)
            present[name] = dataset
        except FairContextError as error:
            warn(str(error))
    if not present:
        raise ArgumentError(f"{wanted.name}: none of its data sets can be taken from {root}")
    absent = [name for name in wanted.datasets if name not in present]
    if absent and not available:
        raise ArgumentError(
            f"{wanted.name} needs {len(absent)} data sets that cannot be taken from {root}: {', '.join(absent)}; "
            "complete them, or leave them out with --available"
        )
    return present


def _counts(datasets: Sequence[Dataset]) -> list[str]:
    """Return the numbers of classes and images that were found beside the paper's."""
    lines = [f"{'data set':16} {'classes':>8} {'paper':>8} {'images':>8} {'listed':>8} {'paper':>8}"]
    for dataset in datasets:
        entry = CATALOGUE[dataset.name]
        cells = (len(dataset.names), entry.classes, len(dataset.samples), dataset.listed, entry.paper)
        why = f"  the paper's are {entry.paper_is}" if entry.paper_is else ""
        lines.append(f"{dataset.name:16} {' '.join(f'{cell:>8,}' for cell in cells)}{why}")
    return lines


def _changed(runs: Sequence[ExperimentRun], options: ExperimentOptions, warn: Say) -> list[ExperimentRun]:
    """Return the runs with what the options change; on another backbone each once, without what that cannot run."""
    limits = [min((n for n in (options.limit, run.limit) if n is not None), default=None) for run in runs]
    runs = [replace(run, limit=limit) for run, limit in zip(runs, limits, strict=True)]
    if not options.backbone:
        return [replace(run, pretrained=options.pretrained or run.pretrained) for run in runs]
    name, backbone = options.backbone, load_backbone(options)
    able, left_out = list[ExperimentRun](), dict[str, None]()
    for run in (replace(run, backbone=name, pretrained=options.pretrained) for run in runs):
        labels = [label for label in run.methods if METHODS[method_of(label)].needs <= backbone.capabilities]
        left_out |= dict.fromkeys(label for label in run.methods if label not in labels)
        if labels and run.only(labels) not in able:
            able.append(run.only(labels))
    if left_out:
        warn(f"{name} cannot run {', '.join(left_out)}: left out")
    return able


def estimate(schedule: Sequence[Scheduled], say: Say) -> None:
    """Say what is to be run and how long it will take here."""
    total, machine = 0.0, ""
    for job in schedule:
        say(f"  {job.options.out}: {', '.join(job.options.labels_of_methods)}")
        states = [f"{name} {counted(left, 'image') if left else 'complete'}" for name, left in job.left.items()]
        say(f"    {', '.join(states)}")
    for job in schedule:
        if any(job.left.values()):
            seconds, machine = _pilot(job)
            total += seconds
            say(f"  {job.options.out}: about {_duration(seconds)}")
    say(f"estimated: {_duration(total)} in all" + (f", on {machine}" if machine else ": nothing is left to run"))


def _pilot(scheduled: Scheduled) -> tuple[float, str]:
    """Measure an image with the fewest and with the most classes; return the seconds of all, and on which machine."""
    options = scheduled.options
    model = load(options)
    plans = [plan_of(options, dataset, model) for dataset in scheduled.datasets if scheduled.left[dataset.name]]
    for plan in plans:  # what would be refused later is refused now
        if (run := scheduled.runs.get(plan.dataset.name)) is not None:
            check_same(run.folder, run.document["config"], plan.config)
    plans.sort(key=lambda plan: len(plan.dataset.names))
    ends = {len(plan.dataset.names): plan.predictor for plan in (plans[0], plans[-1])}
    costs = {classes: seconds_per_image(predictor) for classes, predictor in ends.items()}
    seconds = sum(scheduled.left[plan.dataset.name] * interpolate(costs, len(plan.dataset.names)) for plan in plans)
    session, backbone = start_session(plans[0].predictor, {}), model.backbone
    return seconds, f"{session['processor']} ({backbone.device}, {backbone.arithmetic}, {session['threads']} threads)"


def seconds_per_image(predictor: Predictor, size: tuple[int, int] = (375, 500)) -> float:
    """Return what an image costs with all methods, measured on a made one after one that is not counted.

    Args:
        predictor: what answers images.
        size: height and width of the image.
    """
    rng = np.random.default_rng(0)
    for _ in range(2):
        image = rng.integers(0, 256, (*size, 3), np.uint8)
        begin = time.perf_counter()
        episode = Episode(image, predictor.labels, predictor.recipe)
        for method in predictor.methods.values():
            method(episode)
        seconds = time.perf_counter() - begin
    return seconds


def interpolate(costs: Mapping[int, float], classes: int) -> float:
    """Return the cost with some classes, on the line through the costs with the fewest and with the most.

    A method's cost grows with the classes by the prompts that it encodes, so the line is what it follows.
    """
    few, many = min(costs), max(costs)
    return costs[few] if few == many else costs[few] + (costs[many] - costs[few]) * (classes - few) / (many - few)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _measure_costs(scheduled: Scheduled, trials: int, say: Say) -> None:
    """Measure, print and store seconds and memory of one prediction (paper, "Computational Cost Analysis").

    They are stored in `costs.json` beside the backbone's runs, where `faircontext figures` finds them.
    """
    labels = ("tpt", "fcl-200", "fcl", "fcl-800")  # as in the runs, where FCL itself has 400 masks
    settings = ("fcl-200.masks=200", "fcl-800.masks=800")
    options = replace(scheduled.options, methods=labels, set=settings, prompts=None)
    dataset = next(dataset for dataset in scheduled.datasets if dataset.name == "imagenet")
    model = load(options)
    predictor = build(options, model, dataset.names, dataset.regime)
    images = [load_image(sample.path) for sample in dataset.samples[:trials]]
    say(f"{options.backbone} ({model.backbone.arithmetic}, {model.backbone.device})")
    costs = []
    for label in labels:
        cost = measure(predictor.methods[label], images, predictor.labels, predictor.recipe, trials)
        costs.append({"method": label, "backbone": model.backbone.name, **cost.as_record()})
        say(f"  {label:10} {cost}")
    write_whole(options.out / "costs.json", to_json({"costs": costs}))
