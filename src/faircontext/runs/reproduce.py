"""Run what a table or figure of the paper needs: find data sets, estimate the time, run what is left, measure costs."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import faircontext.analysis  # noqa: F401 (registers the analyses)
from faircontext.backbones import create_backbone
from faircontext.backbones.prompts import prompt_set
from faircontext.datasets.load import check_present, load_dataset
from faircontext.datasets.spec import CATALOGUE, Dataset
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FairContextError, check_minimum
from faircontext.files import to_json, write_whole
from faircontext.imageio import load_image
from faircontext.methods import create_method, parse_settings
from faircontext.methods.base import METHODS
from faircontext.runs.costs import measure
from faircontext.runs.evaluate import evaluate, plan_of
from faircontext.runs.experiments import PaperExperiment, PaperRun, read_paper_experiment
from faircontext.runs.options import EvaluateOptions, ExperimentOptions
from faircontext.runs.plan import Setup, data_hash
from faircontext.runs.records import method_of
from faircontext.runs.session import Say, start_session
from faircontext.runs.store import Run, check_same, load_run

__all__ = ["Reproduced", "Scheduled", "estimate", "interpolate", "reproduce", "seconds_per_image", "settings_of"]


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
    """Runs that are asked of `evaluate`, with their data sets."""

    options: EvaluateOptions
    datasets: Sequence[Dataset]

    @cached_property
    def left(self) -> dict[str, int]:
        """How many images of each data set are to be answered; none of a run that is complete."""
        return {dataset.name: self._left(dataset) for dataset in self.datasets}

    def _left(self, dataset: Dataset) -> int:
        wanted = min(len(dataset.samples), self.options.limit or len(dataset.samples))
        run = self.run(dataset.name)
        if run is None:
            return wanted
        config = run.document["config"]
        now = {
            "limit": self.options.limit,
            "seed": self.options.seed,
            "dataset": {"images": len(dataset.samples), "hash": data_hash(dataset)},
            "methods": settings_of(self.options.labels_of_methods, self.options.set),
        }
        earlier = {**config, "dataset": {key: config["dataset"].get(key) for key in ("images", "hash")}}
        check_same(run.folder, {key: earlier.get(key) for key in now}, json.loads(json.dumps(now)))
        return 0 if run.complete else max(1, wanted - len(set(run.rows["path"].to_pylist())))

    def run(self, name: str) -> Run | None:
        """Return the run on a data set that is there."""
        folder = self.options.out / name
        return load_run(folder) if (folder / "run.json").exists() else None

    @property
    def folders(self) -> list[Path]:
        """Where the runs are."""
        return [self.options.out / dataset.name for dataset in self.datasets]

    def carry_out(self, say: Say, warn: Say) -> int:
        """Run what is left, and return the exit code for all of it."""
        if unfinished := tuple(name for name, left in self.left.items() if left):
            try:
                evaluate(replace(self.options, datasets=unfinished), say, warn)
            except KeyboardInterrupt as stop:
                raise type(stop)(str(stop).replace("go on with --resume", "the same command goes on")) from None
        runs = [self.run(dataset.name) for dataset in self.datasets]
        return int(any(run is not None and run.document["counts"]["refused"] for run in runs))


def reproduce(
    name: str,
    out: Path,
    options: ExperimentOptions,
    say: Say,
    warn: Say,
    *,
    partial: bool = False,
    available: bool = False,
    trials: int = 30,
    dry_run: bool = False,
) -> Reproduced:
    """Run what a table or figure of the paper needs; what is there is not run again.

    Args:
        name: see `paper_experiments`.
        out: folder for the runs; tables that need the same runs share them.
        options: what is asked.
        say: takes what is printed.
        warn: takes warnings.
        partial: whether data sets are taken of which some images are missing.
        available: whether data sets that are not there or not complete are left out, instead of stopping.
        trials: of each method, where time is measured.
        dry_run: whether nothing is run.

    Raises:
        FairContextError: an option has a value that cannot be used, or a data set or a model cannot be loaded.
    """
    wanted = read_paper_experiment(name)
    if options.root is None:
        raise ArgumentError("reproduce needs --root, the folder that holds the data sets")
    check_minimum("trials", trials, 2)
    check_minimum("limit", 1 if options.limit is None else options.limit, 1)
    check_minimum("workers", options.workers or 0, 0)
    datasets = _present(wanted, options.root, partial or bool(wanted.counted), available or bool(wanted.counted), warn)
    say(f"{name}: {wanted.title}")
    if wanted.counted:
        for line in _counts(list(datasets.values())):
            say(line)
        return Reproduced(0)
    runs = [replace(run, datasets=tuple(name for name in run.datasets if name in datasets)) for run in wanted.runs]
    runs = [run for run in runs if run.datasets]
    if options.backbone is not None:
        runs = _on_backbone(options, options.backbone, runs, warn)
    schedule = [
        Scheduled(_evaluation(run, out, options, partial), [datasets[name] for name in run.datasets]) for run in runs
    ]
    estimate(schedule, say)
    if dry_run:
        return Reproduced(0)
    code = max([one.carry_out(say, warn) for one in schedule], default=0)
    for backbone in dict.fromkeys(options.backbone or name for name in wanted.costs):
        _measure_costs(next(one for one in schedule if one.options.backbone == backbone), trials, say)
    tables = [path for one, run in zip(schedule, runs, strict=True) if not run.analysis for path in one.folders]
    costs = [path for one in schedule if (path := one.options.out / "costs.json").exists()]
    sources = dict.fromkeys([*(path for one in schedule for path in one.folders), *costs])
    return Reproduced(code, tuple(dict.fromkeys(tables)), wanted.figures, tuple(sources))


def _present(wanted: PaperExperiment, root: Path, partial: bool, available: bool, warn: Say) -> dict[str, Dataset]:
    """Find the data sets; say which cannot be taken, and stop unless that is allowed."""
    found: dict[str, Dataset] = {}
    for name in wanted.datasets:
        try:
            dataset = load_dataset(name, root)
            check_present(dataset, partial)
            found[name] = dataset
        except FairContextError as error:
            warn(str(error))
    if not found:
        raise ArgumentError(f"{wanted.name}: none of its data sets can be taken from {root}")
    absent = [name for name in wanted.datasets if name not in found]
    if absent and not available:
        raise ArgumentError(
            f"{wanted.name} needs {len(absent)} data sets that cannot be taken from {root}: {', '.join(absent)}; "
            "complete them, or leave them out with --available"
        )
    return found


def _counts(datasets: Sequence[Dataset]) -> list[str]:
    """Return the numbers of classes and images that were found beside the paper's."""
    lines = [f"{'data set':16} {'classes':>8} {'paper':>8} {'images':>8} {'listed':>8} {'paper':>8}"]
    for dataset in datasets:
        entry = CATALOGUE[dataset.name]
        numbers = (len(dataset.names), entry.classes, len(dataset.samples), dataset.listed, entry.paper)
        why = f"  the paper's are {entry.paper_is}" if entry.paper_is else ""
        lines.append(f"{dataset.name:16} {' '.join(f'{number:>8,}' for number in numbers)}{why}")
    return lines


def _on_backbone(options: ExperimentOptions, name: str, runs: Sequence[PaperRun], warn: Say) -> list[PaperRun]:
    """Return the runs, each once, on another backbone, without methods that it cannot run."""
    backbone = create_backbone(name, options.pretrained, device=options.device, precision=options.precision)
    able, left_out = list[PaperRun](), dict[str, None]()
    for run in (replace(run, backbone=name) for run in runs):
        labels = [label for label in run.methods if METHODS[method_of(label)].needs <= backbone.capabilities]
        left_out |= dict.fromkeys(label for label in run.methods if label not in labels)
        if labels and run.only(labels) not in able:
            able.append(run.only(labels))
    if left_out:
        warn(f"{name} cannot run {', '.join(left_out)}: left out")
    return able


def _evaluation(run: PaperRun, out: Path, options: ExperimentOptions, partial: bool) -> EvaluateOptions:
    own = options.pretrained is None and options.backbone is None
    pretrained = "openai" if own else options.pretrained
    limits = [limit for limit in (options.limit, run.limit) if limit is not None]
    return options.evaluation(
        analyses=run.analysis,
        datasets=run.datasets,
        methods=tuple(run.methods),
        out=out / run.folder(pretrained),
        prompts=run.prompts,
        limit=min(limits, default=None),
        backbone=run.backbone,
        pretrained=pretrained,
        preset="paper",
        set=run.settings,
        partial=partial,
    )


def settings_of(labels: Sequence[str], overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return all settings of some methods, by what they are called, with the preset `paper`.

    Args:
        labels: what the methods are called.
        overrides: as for `evaluate --set`.
    """
    found = {}
    for label in labels:
        own = tuple(word.removeprefix(f"{label}.") for word in overrides if word.startswith(f"{label}."))
        changed: dict[str, Any] = parse_settings(method_of(label), own)
        found[label] = create_method(method_of(label), **changed).settings()
    return found


def estimate(schedule: Sequence[Scheduled], say: Say) -> None:
    """Say what is to be run and how long it will take here."""
    total, machine = 0.0, ""
    for one in schedule:
        say(f"  {one.options.out}: {', '.join(one.options.labels_of_methods)}")
        states = [f"{name} {f'{left:,} images' if left else 'complete'}" for name, left in one.left.items()]
        say(f"    {', '.join(states)}")
    for one in schedule:
        if any(one.left.values()):
            seconds, machine = _pilot(one)
            total += seconds
            say(f"  {one.options.out}: about {_duration(seconds)}")
    say(f"estimated: {_duration(total)} in all" + (f", on {machine}" if machine else ": nothing is left to run"))


def _pilot(scheduled: Scheduled) -> tuple[float, str]:
    """Measure an image with the fewest and with the most classes; return the seconds of all, and on which machine."""
    options = scheduled.options
    model = options.load(options.labels_of_methods)
    plans = [plan_of(options, dataset, model, None) for dataset in scheduled.datasets if scheduled.left[dataset.name]]
    for plan in plans:  # what would be refused later is refused now
        if (run := scheduled.run(plan.dataset.name)) is not None:
            check_same(run.folder, run.document["config"], json.loads(json.dumps(plan.config)))
    plans.sort(key=lambda plan: len(plan.dataset.names))
    ends = {len(plan.dataset.names): plan.setup for plan in (plans[0], plans[-1])}
    costs = {classes: seconds_per_image(setup) for classes, setup in ends.items()}
    seconds = sum(scheduled.left[plan.dataset.name] * interpolate(costs, len(plan.dataset.names)) for plan in plans)
    session, backbone = start_session(plans[0], {}), model.backbone
    return seconds, f"{session['processor']} ({backbone.device}, {backbone.precision}, {session['threads']} threads)"


def seconds_per_image(setup: Setup, size: tuple[int, int] = (375, 500)) -> float:
    """Return what an image costs with all methods, measured on a made one after one that is not counted.

    Args:
        setup: what answers images.
        size: height and width of the image.
    """
    rng = np.random.default_rng(0)
    for _ in range(2):
        image = rng.integers(0, 256, (*size, 3), np.uint8)
        begin = time.perf_counter()
        episode = Episode(image, setup.labels, setup.recipe)
        for method in setup.methods.values():
            method(episode)
        seconds = time.perf_counter() - begin
    return seconds


def interpolate(costs: Mapping[int, float], classes: int) -> float:
    """Return the cost at a number of classes, on the line through the costs at the least and the greatest number.

    A method's cost grows with the classes by the prompts that it encodes, so the line is what it follows.
    """
    few, many = min(costs), max(costs)
    return costs[few] if few == many else costs[few] + (costs[many] - costs[few]) * (classes - few) / (many - few)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _measure_costs(scheduled: Scheduled, trials: int, say: Callable[[str], None]) -> None:
    """Measure, print and store seconds and memory of one prediction (paper, "Computational Cost Analysis").

    They are stored in `costs.json` beside the backbone's runs, where `faircontext figures` finds them.
    """
    labels = ("tpt", "fcl-200", "fcl", "fcl-800")  # as in the runs, where FCL itself has 400 masks
    options = replace(scheduled.options, methods=labels, set=("fcl-200.masks=200", "fcl-800.masks=800"))
    dataset = next(dataset for dataset in scheduled.datasets if dataset.name == "imagenet")
    model = options.load(list(labels))
    setup = model.on(dataset.names, prompt_set("single"), dataset.regime)
    images = [load_image(sample.path) for sample in dataset.samples[:trials]]
    say(f"{options.backbone} ({model.backbone.precision}, {model.backbone.device})")
    found = []
    for label, method in setup.methods.items():
        cost = measure(method, images, setup.labels, setup.recipe, trials)
        found.append({"method": label, "backbone": model.backbone.name, **cost.as_record()})
        say(f"  {label:10} {cost}")
    write_whole(options.out / "costs.json", to_json({"costs": found}))
