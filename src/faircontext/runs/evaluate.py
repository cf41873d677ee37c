"""Evaluate methods or analyses on data sets: find them, plan, run, describe the results."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from faircontext.backbones.prompts import prompt_set
from faircontext.datasets.load import check_present, load_dataset
from faircontext.datasets.spec import Dataset
from faircontext.errors import ArgumentError
from faircontext.files import check_folder
from faircontext.imageio import MAX_PIXELS
from faircontext.names import list_warnings
from faircontext.runs.analyses import analysis_rows, describe_analysis
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.plan import Model, Plan, parse_shard, run_name
from faircontext.runs.results import read_results
from faircontext.runs.session import Engine, Say, answer_here, carry_out
from faircontext.runs.store import Run
from faircontext.system import usable_processors
from faircontext.types import describe_flat, is_flat, read_diagnostics

__all__ = ["evaluate", "plan_of", "rebuild"]


def evaluate(options: EvaluateOptions, say: Say, warn: Say) -> int:
    """Run methods or analyses on data sets, and return the exit code: 1 where a file could not be read, else 0.

    Args:
        options: what is asked.
        say: takes what is printed.
        warn: takes warnings.

    Raises:
        FairContextError: an option has a value that cannot be used, or a data set or a model cannot be loaded.
        KeyboardInterrupt: the run was stopped; what was answered is stored.
    """
    shard = None if options.shard is None else parse_shard(options.shard)
    options.check()
    datasets = _find(options)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.features is not None:
        check_folder(options.features)
    for dataset in datasets:  # what is wrong with these is found before the model is loaded
        _templates(options, dataset)
        check_folder(options.out / run_name(dataset.name, shard))
    model = options.load(options.labels_of_methods)
    plans = [plan_of(options, dataset, model, shard) for dataset in datasets]
    engine, facts = _engine(options, model)
    unreadable = False
    for plan in plans:
        for line in _describe_plan(plan):
            say(line)
        for remark in _plan_remarks(plan):
            warn(f"{plan.dataset.name}: {remark}")
        run = carry_out(plan, options.out, engine, options.resume, facts, warn)
        for line in _unreadable_files(run):
            warn(line)
        for line in _describe_analyses(run, options) if options.analyses else _describe_results(run, warn):
            say(line)
        unreadable = unreadable or any(run.rows["error"].to_pylist())
    return int(unreadable)


def _find(options: EvaluateOptions) -> list[Dataset]:
    """Find all data sets before anything is run on one."""
    datasets = [load_dataset(name, options.root, options.split) for name in dict.fromkeys(options.datasets)]
    folders: dict[str, Path] = {}
    for dataset in datasets:
        if dataset.name in folders:
            raise ArgumentError(
                f"--datasets names {dataset.name} twice: {folders[dataset.name]} and {dataset.folder}; measure them "
                "with another --out each"
            )
        folders[dataset.name] = dataset.folder
        for name, folder in (("out", options.out), ("features", options.features)):
            place = None if folder is None else folder.resolve()
            if place is not None and dataset.folder.resolve() in (place, *place.parents):
                raise ArgumentError(f"--{name} {folder}: lies in the data set {dataset.folder}; name another folder")
        check_present(dataset, options.partial)
    return datasets


def plan_of(options: EvaluateOptions, dataset: Dataset, model: Model, shard: tuple[int, int] | None) -> Plan:
    """Return what is to be done on one data set."""
    facts = {
        "pretrained": options.pretrained,
        "preset": options.preset,
        "prompts": options.prompts,
        "truncate": options.truncate,
        "exif": options.exif,
        "max_pixels": min(options.max_pixels, MAX_PIXELS),
        **({"resize_positions": True} if options.resize_positions else {}),  # only then: hashes of other runs stay
    }
    setup = model.on(dataset.names, _templates(options, dataset), dataset.regime, options.truncate)
    return Plan(dataset, setup, options.seed, options.limit, shard, facts)


def _templates(options: EvaluateOptions, dataset: Dataset) -> tuple[str, ...]:
    return (dataset.template,) if options.prompts == "dataset" else prompt_set(options.prompts, ("dataset",))


def _engine(options: EvaluateOptions, model: Model) -> tuple[Engine, dict[str, Any]]:
    if options.engine == "ray":
        from faircontext.runs.ray import answer_on_ray

        build = partial(rebuild, options)
        return partial(answer_on_ray, build=build, workers=options.workers), {"engine": "ray"}
    workers = options.workers
    if workers is None:  # on a CPU, reading ahead only takes processors from the encoder
        workers = 0 if model.backbone.device.type == "cpu" else min(8, max(1, usable_processors() - 1))
    engine = partial(answer_here, read=options.reader(), workers=workers, features=options.features)
    return engine, {"engine": "local", "workers": workers}


def rebuild(options: EvaluateOptions, dataset: Dataset, shard: tuple[int, int] | None) -> tuple[Plan, Engine]:
    """Make a plan anew in another process, with an engine that carries it out there."""
    plan = plan_of(options, dataset, options.load(options.labels_of_methods), shard)
    return plan, partial(answer_here, read=options.reader(), workers=0, features=options.features)


def _describe_plan(plan: Plan) -> Iterator[str]:
    """Say what is about to run."""
    dataset, labels = plan.dataset, plan.setup.labels
    n = len(plan.positions)
    of = f" of {dataset.listed:,}" if n < dataset.listed else ""
    part = "" if plan.shard is None else f", shard {plan.shard[0]}/{plan.shard[1]}"
    yield f"{dataset.name} ({dataset.split}): {dataset.layout}"
    yield (
        f"  {n:,}{of} images{part}, {len(labels)} classes; {labels.backbone.name} ({labels.backbone.precision}), "
        f"preset {plan.facts['preset']}, seed {plan.seed}; {', '.join(plan.setup.methods)}"
    )


def _plan_remarks(plan: Plan) -> Iterator[str]:
    dataset = plan.dataset
    if plan.shard is not None and not plan.positions:
        there = min(len(dataset.samples), plan.limit or len(dataset.samples))
        yield f"shard {plan.shard[0]}/{plan.shard[1]} has no image, since there are only {there:,}"
    yield from (*dataset.warnings, *list_warnings(dataset.names), *plan.setup.labels.warnings())


def _describe_results(run: Run, warn: Say) -> Iterator[str]:
    """Say what a run has measured, and where common evidence is flat."""
    yield from (f"  {result.method:14} {result.describe()}" for result in read_results(run) if result.n)
    localised, flat = Counter[str](), Counter[str]()
    for row in run.rows.select(["method", "diagnostics"]).to_pylist():
        found = read_diagnostics(row["diagnostics"])
        localised[row["method"]] += "common_mean" in found
        flat[row["method"]] += is_flat(found)
    for name in (name for name, count in flat.items() if count):
        warn(describe_flat(name, flat[name], localised[name]))


def _describe_analyses(run: Run, options: EvaluateOptions) -> Iterator[str]:
    for label in options.methods:
        yield from (f"  {line}" for line in describe_analysis(list(analysis_rows(run, label)), label))


def _unreadable_files(run: Run, shown: int = 5) -> Iterator[str]:
    """Say which files could not be read, and why."""
    found = {row["path"]: row["error"] for row in run.rows.select(["path", "error"]).to_pylist() if row["error"]}
    yield from (f"refused: {path}: {reason}" for path, reason in list(found.items())[:shown])
    if len(found) > shown:
        yield f"refused: {len(found) - shown} more; all are rows with an error"
