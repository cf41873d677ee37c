"""`faircontext evaluate`: methods on labelled data sets, resumable, in shards where that is asked for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from faircontext.cli.options import note, parse_options
from faircontext.errors import ArgumentError, check_minimum
from faircontext.imageio import MAX_PIXELS
from faircontext.names import list_remarks
from faircontext.runs.options import RunOptions
from faircontext.system import usable_processors

if TYPE_CHECKING:
    import pyarrow as pa

    from faircontext.datasets.spec import Dataset
    from faircontext.runs.plan import Model, Plan
    from faircontext.runs.session import Engine

__all__ = ["Evaluate", "evaluate", "method_names", "plan_of", "rebuild", "run"]


@dataclass(frozen=True, kw_only=True)
class Evaluate(RunOptions):
    """Measure methods on labelled data sets; zero-shot is measured beside them, on the same prompts.

    A run is a folder below --out, one per data set. Stopped at any moment, even by kill -9, it goes on with --resume.
    Exit code 0: all answered; 1: some files were refused; 2: a wrong argument.
    """

    datasets: tuple[str, ...]
    """See: faircontext data list; or folders below --root: class folders, or labels.csv with classnames.txt."""
    methods: tuple[str, ...] = ("fcl",)
    """See: faircontext list methods; or all. A suffix makes a variant: fcl-50, with --set fcl-50.masks=50."""
    root: Path
    """Folder that holds the data sets."""
    out: Path = Path("runs")
    """Folder for the runs."""
    prompts: str = "single"
    """Prompt set: single, generic7, imagenet80, or dataset (one template made for each data set)."""
    split: Literal["test", "val", "official"] = "test"
    """Which images: CoOp's test or val, or the data set's official test set where that is another."""
    limit: int | None = None
    """At most this many images of each data set, drawn by the seed."""
    shard: str | None = None
    """i/n: only the i-th of n parts, counted from 0; faircontext merge joins them."""
    workers: int | None = None
    """Processes that read images ahead (default: none on a CPU); with --engine ray, models that answer."""
    threads: int | None = None
    """Of a model, on a CPU; default: PyTorch's own."""
    engine: Literal["local", "ray"] = "local"
    """local, or ray: models on a Ray cluster, the one that RAY_ADDRESS names or this machine."""
    features: Path | None = None
    """Folder to keep image features in: runs with other settings on the same images then encode only what is new."""
    resume: bool = field(default=False)
    """Go on with runs that are there; those that are complete are left alone."""
    partial: bool = False
    """Measure on the images that are there, where some that a split file lists are missing."""

    def print_results(self, plan: "Plan", rows: "pa.Table") -> None:
        """Print what one run has measured."""
        from faircontext.bench.summary import summarise

        for name, summary in summarise(rows, len(plan.dataset.names)).items():
            print(f"  {name:14} {summary.describe(name)}", flush=True)
        for line in _flat_notes(rows):
            note(line)


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    return evaluate(parse_options(Evaluate, arguments, "evaluate"))


def evaluate(options: Evaluate) -> int:
    """Evaluate as the options ask, and return the exit code."""
    from faircontext.files import check_folder
    from faircontext.runs.plan import parse_shard, run_name

    shard = None if options.shard is None else parse_shard(options.shard)
    for name, words in (("datasets", options.datasets), ("methods", options.methods)):
        if not "".join(words).strip(","):
            raise ArgumentError(f"--{name} is empty; give at least one name")
    if options.out == Path():
        raise ArgumentError("--out is empty; name a folder for the runs")
    if options.features == Path():
        raise ArgumentError("--features is empty; name a folder for image features")
    for name in ("limit", "threads"):
        if getattr(options, name) is not None:
            check_minimum(name, getattr(options, name), 1)
    check_minimum("workers", options.workers or 0, 0)
    usable = usable_processors()
    if options.engine == "local" and (options.workers or 0) > usable:
        number = f"{usable} processor{'s' * (usable != 1)}"
        raise ArgumentError(f"workers={options.workers} is not possible; this process may use {number}")
    options.reader()  # checks its options
    datasets = _find(options)
    if options.threads is not None:
        import torch

        torch.set_num_threads(options.threads)
    if options.features is not None:
        check_folder(options.features)
    for dataset in datasets:  # what is wrong with these is found before the model is loaded
        _templates(options, dataset)
        check_folder(options.out / run_name(dataset.name, shard))
    model = options.load(method_names(options.methods))
    plans = [plan_of(options, dataset, model, shard) for dataset in datasets]
    engine, facts = _engine(options, model)
    refused = False
    from faircontext.cli.evaluate import evaluate as carry_out

    for plan in plans:
        _print_plan(plan)
        rows = carry_out(plan, options.out, engine, options.resume, facts, note)
        _print_refused(rows)
        options.print_results(plan, rows)
        refused = refused or any(rows["error"].to_pylist())
    return 1 if refused else 0


def method_names(asked: Sequence[str]) -> list[str]:
    """Return what methods are called, zero-shot first: it is measured in every run."""
    words = [name for word in asked for name in word.split(",")]
    return ["all"] if words == ["all"] else list(dict.fromkeys(["zero_shot", *words]))


def _find(options: Evaluate) -> "list[Dataset]":
    """Find all data sets before anything is run on one."""
    from faircontext.datasets.load import check_present, load_dataset

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


def plan_of(options: Evaluate, dataset: "Dataset", model: "Model", shard: tuple[int, int] | None) -> "Plan":
    """Return what is to be done on one data set."""
    from faircontext.runs.plan import Plan

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


def _templates(options: Evaluate, dataset: "Dataset") -> tuple[str, ...]:
    from faircontext.backbones.prompts import prompt_set

    return (dataset.template,) if options.prompts == "dataset" else prompt_set(options.prompts, ("dataset",))


def _engine(options: Evaluate, model: "Model") -> "tuple[Engine, dict[str, Any]]":
    from faircontext.runs.session import answer_here

    if options.engine == "ray":
        from faircontext.runs.ray import answer_on_ray

        build = partial(rebuild, options)
        return partial(answer_on_ray, build=build, workers=options.workers), {"engine": "ray"}
    workers = options.workers
    if workers is None:  # on a CPU, reading ahead only takes processors from the encoder
        workers = 0 if model.backbone.device.type == "cpu" else min(8, max(1, usable_processors() - 1))
    engine = partial(answer_here, read=options.reader(), workers=workers, features=options.features)
    return engine, {"engine": "local", "workers": workers}


def rebuild(options: Evaluate, dataset: "Dataset", shard: tuple[int, int] | None) -> "tuple[Plan, Engine]":
    """Make a plan anew in another process, with an engine that carries it out there."""
    plan = plan_of(options, dataset, options.load(method_names(options.methods)), shard)
    from faircontext.runs.session import answer_here

    return plan, partial(answer_here, read=options.reader(), workers=0, features=options.features)


def _print_plan(plan: "Plan") -> None:
    """Say what is about to run."""
    dataset, labels = plan.dataset, plan.setup.labels
    number = len(plan.positions)
    of = f" of {dataset.listed:,}" if number < dataset.listed else ""
    part = "" if plan.shard is None else f", shard {plan.shard[0]}/{plan.shard[1]}"
    print(
        f"{dataset.name} ({dataset.split}): {dataset.layout}\n"
        f"  {number:,}{of} images{part}, {len(labels)} classes; {labels.backbone.name} ({labels.backbone.precision}), "
        f"preset {plan.facts['preset']}, seed {plan.seed}; {', '.join(plan.setup.methods)}",
        flush=True,
    )
    if plan.shard is not None and not number:
        there = min(len(dataset.samples), plan.limit or len(dataset.samples))
        note(f"{dataset.name}: shard {plan.shard[0]}/{plan.shard[1]} has no image, since there are only {there:,}")
    for remark in (*dataset.remarks, *list_remarks(dataset.names), *labels.remarks()):
        note(f"{dataset.name}: {remark}")


def _flat_notes(rows: "pa.Table") -> list[str]:
    """Say, a line a method, where common evidence is flat."""
    from faircontext.diagnostics import describe_flat, is_flat, read_diagnostics

    localised, flat = Counter[str](), Counter[str]()
    for row in rows.select(["method", "diagnostics"]).to_pylist():
        found = read_diagnostics(row["diagnostics"])
        localised[row["method"]] += "common_mean" in found
        flat[row["method"]] += is_flat(found)
    return [describe_flat(name, count, localised[name]) for name, count in flat.items() if count]


def _print_refused(rows: "pa.Table", shown: int = 5) -> None:
    """Say which files were refused, and why."""
    found = {row["path"]: row["error"] for row in rows.select(["path", "error"]).to_pylist() if row["error"]}
    for path, reason in list(found.items())[:shown]:
        note(f"refused: {path}: {reason}")
    if len(found) > shown:
        note(f"refused: {len(found) - shown} more; all are rows with an error")
