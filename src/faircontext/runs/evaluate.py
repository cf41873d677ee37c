"""Evaluate methods or analyses on data sets: find them, plan, run with progress, resume, describe the results."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from faircontext.datasets.spec import CORRUPTED, expand, known_name
from faircontext.errors import lines_and_more
from faircontext.files import check_folder
from faircontext.runs.analyses import analysis_rows, describe_analysis
from faircontext.runs.build import load, set_threads
from faircontext.runs.checks import check_same
from faircontext.runs.option_parts import Say
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.plan import find_datasets, plan_of
from faircontext.runs.run import describe_executor, executor_of, run_stored
from faircontext.runs.store import Run, load_run


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
    options.check()
    datasets = find_datasets(options)
    set_threads(options)
    if options.features is not None:
        check_folder(options.features)
    for dataset in datasets:  # what is wrong with these is told before the model is loaded
        options.choose_prompts(dataset.names, dataset.name, dataset.template)
        for perturbation in options.perturbations:
            for name in options.run_names(dataset.name, perturbation or dataset.corruption):
                check_folder(options.out / name)
    model = load(options)
    plans = [
        (perturbed, replace(plan, order=order, arrangement=options.arrangement))
        for perturbed in options.each_perturbation()
        for plan in [plan_of(perturbed, dataset, model) for dataset in datasets]
        for order in options.each_order
    ]
    unreadable, warned = False, set[str]()
    for perturbed, plan in plans:
        execute, metadata = executor_of(perturbed, model)
        for line in [*plan.describe(), *describe_executor(metadata)]:
            say(line)
        for line in (f"{plan.dataset.name}: {warning}" for warning in plan.warnings()):
            if line not in warned:  # once for all orders and perturbations
                warned.add(line)
                warn(line)
        folder = options.out / plan.folder_name
        run, counts, _ = run_stored(plan, folder, execute, options.resume, metadata, warn, options.keep_state)
        unreadable |= _warn_of_unreadable(run, warn)
        decision = plan.predictor.decision
        for line in _describe_analyses(run, options) if options.analyses else decision.describe(run):
            say(f"  {line}")
        for line in () if options.analyses else counts.flat_evidence():
            warn(line)
    return int(unreadable)


def evaluate_missing(options: EvaluateOptions, say: Say, warn: Say) -> list[Run]:
    """Evaluate on the data sets whose runs are not complete, and return the runs of all, by path; see `evaluate`.

    Raises:
        ArgumentError: a run that is there is not what is asked for.
    """
    folders = {word: options.out / _folder_name(options, word) for word in expand(options.datasets)}
    runs = {folder: load_run(folder) for folder in folders.values() if (folder / "run.json").exists()}
    for run in runs.values():
        check_asked(run, options)
    unfinished = {name: path for name, path in folders.items() if path not in runs or not runs[path].complete}
    if unfinished:
        try:
            evaluate(replace(options, datasets=tuple(unfinished)), say, warn)
        except KeyboardInterrupt as stop:
            raise type(stop)(str(stop).replace("go on with --resume", "the same command goes on")) from None
        runs |= {path: load_run(path) for path in unfinished.values()}
    return [runs[path] for path in sorted(runs)]


def _folder_name(options: EvaluateOptions, word: str) -> str:
    """Return the name of the folder of the first run on what a word names."""
    dataset = known_name(word) or ""
    name, perturbation = (dataset, word.partition(":")[2]) if dataset in CORRUPTED else (Path(word).name, "")
    return options.run_names(name, perturbation)[0]


def check_asked(run: Run, options: EvaluateOptions, **more: Any) -> None:
    """Raise `ArgumentError` where a run that is there is another than options ask for, or has not what `more` names."""
    names = ("limit", "seed", "preset", "pretrained")
    requested = {name: getattr(options, name) for name in names}
    requested |= {"prompts": options.prompts_name} | more
    config = run.document["config"]
    dataset = {name: config["dataset"].get(name) for name in more.get("dataset", ())}
    check_same(run.folder, {name: {**config, "dataset": dataset}.get(name) for name in requested}, requested)


def _describe_analyses(run: Run, options: EvaluateOptions) -> Iterator[str]:
    for label in options.methods:
        yield from describe_analysis(list(analysis_rows(run, label)), label)


def _warn_of_unreadable(run: Run, warn: Say, shown: int = 5) -> bool:
    """Say which files could not be read, and why; return whether there are any."""
    rows = run.rows.filter(pc.not_equal(run.rows["error"], "")).select(["path", "error"]).to_pylist()
    reasons = {row["path"]: row["error"] for row in rows}
    lines = [f"unreadable: {path}: {reason}" for path, reason in reasons.items()]
    for line in lines_and_more(lines, shown, str, "unreadable: {} more; all are rows with an error"):
        warn(line)
    return bool(lines)
