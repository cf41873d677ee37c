"""Evaluate methods or analyses on data sets: find them, plan, run with progress, resume, describe the results."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from faircontext.datasets.spec import CORRUPTED, expand, known_name
from faircontext.errors import counted, lines_and_more
from faircontext.files import check_folder
from faircontext.metrics.scores import expected_calibration_error
from faircontext.metrics.stats import Accuracy
from faircontext.runs.analyses import analysis_rows, describe_analysis
from faircontext.runs.build import load, set_threads
from faircontext.runs.checks import check_same
from faircontext.runs.label_results import is_multi_label, read_label_result
from faircontext.runs.option_parts import Say, stream_labels
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.orders import parse_shard
from faircontext.runs.plan import find_datasets, plan_of, prompts_of
from faircontext.runs.results import DEPENDENT, TUNED, Result, read_results
from faircontext.runs.run import describe_executor, executor_of, run_stored
from faircontext.runs.store import Run, load_run
from faircontext.types import describe_flat, is_flat, read_diagnostics


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
    streams = bool(stream_labels(options.labels_of_methods))
    datasets = find_datasets(options)
    set_threads(options)
    if options.features is not None:
        check_folder(options.features)
    for dataset in datasets:  # what is wrong with these is told before the model is loaded
        prompts_of(options, dataset)
        for perturbation in options.perturbations:
            for name in options.run_names(dataset.name, shard, perturbation or dataset.corruption, streams):
                check_folder(options.out / name)
    model = load(options, options.labels_of_methods)
    plans = [
        (one, replace(plan, order=order, arrangement=options.arrangement))
        for one in options.each_perturbation()
        for plan in [plan_of(one, dataset, model, shard) for dataset in datasets]
        for order in options.each_order(streams)
    ]
    unreadable, warned = False, set[str]()
    for one, plan in plans:
        execute, facts = executor_of(one, model)
        for line in [*plan.describe(), *describe_executor(facts)]:
            say(line)
        for line in (f"{plan.dataset.name}: {warning}" for warning in plan.warnings()):
            if line not in warned:  # once for all orders and perturbations
                warned.add(line)
                warn(line)
        folder = options.out / plan.folder_name
        run, _ = run_stored(plan, folder, execute, options.resume, facts, warn, options.keep_state)
        unreadable |= _warn_of_unreadable(run, warn)
        for line in _describe_analyses(run, options) if options.analyses else _describe_results(run, warn):
            say(line)
    return int(unreadable)


def evaluate_missing(options: EvaluateOptions, say: Say, warn: Say) -> list[Run]:
    """Evaluate on the data sets whose runs are not complete, and return the runs of all, by path; see `evaluate`.

    Raises:
        ArgumentError: a run that is there is not what is asked for.
    """
    streams = bool(stream_labels(options.labels_of_methods))
    folders = {word: options.out / _folder_name(options, word, streams) for word in expand(options.datasets)}
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


def _folder_name(options: EvaluateOptions, word: str, streams: bool) -> str:
    """Return the name of the folder of the first run on what a word names."""
    known = known_name(word) or ""
    name, perturbation = (known, word.partition(":")[2]) if known in CORRUPTED else (Path(word).name, "")
    return options.run_names(name, None, perturbation, streams)[0]


def check_asked(run: Run, options: EvaluateOptions, **more: Any) -> None:
    """Raise `ArgumentError` where a run that is there is another than options ask for, or has not what `more` names."""
    names = ("limit", "seed", "preset", "pretrained")
    asked = {name: getattr(options, name) for name in names}
    asked |= {"prompts": options.prompts_name} | json.loads(json.dumps(more))
    config = run.document["config"]
    dataset = {name: config["dataset"].get(name) for name in more.get("dataset", ())}
    check_same(run.folder, {name: {**config, "dataset": dataset}.get(name) for name in asked}, asked)


def _describe_results(run: Run, warn: Say) -> Iterator[str]:
    """Say what a run has measured, and where common evidence is flat."""
    if is_multi_label(run):
        yield f"  {'zero_shot':14} {read_label_result(run).describe()}"
        return
    results = read_results(run)
    for result in (result for result in results if result.n):
        yield f"  {result.method:14} {describe_result(result)}{f'; {TUNED}' if result.tuned else ''}"
    if results and (count := results[0].unlabelled):
        verbs = ("has", "counts") if count == 1 else ("have", "count")
        yield f"  {counted(count, 'image')} {verbs[0]} no label, and {verbs[1]} in no accuracy"
    localised, flat = Counter[str](), Counter[str]()
    for row in run.rows.filter(pc.match_substring(run.rows["diagnostics"], '"common_mean":')).to_pylist():
        localised[row["method"]] += 1
        flat[row["method"]] += is_flat(read_diagnostics(row["diagnostics"]))
    for name in (name for name, n in flat.items() if n):
        warn(describe_flat(name, flat[name], localised[name]))


def describe_result(result: Result) -> str:
    """Return accuracy, comparison with zero-shot, top-5, ECE and cost in a line."""
    correct = int(result.correct.sum())
    parts = [str(Accuracy(correct, result.n))]
    if result.unreadable:
        share = 100 * correct / (result.n + result.unreadable)
        parts.append(f"{share:.1f}% with the {result.unreadable} unreadable counted as wrong")
    if result.withheld is not None and (withheld := int(result.withheld.sum())):
        correct, given = int(result.correct[~result.withheld].sum()), result.n - withheld
        others = f", {Accuracy(correct, given)} of the others are right" if given else ""
        parts.append(f"none of these on {withheld} of {result.n}{others}")
    if (compared := result.comparison) is not None:
        change = compared.difference
        value, low, high = (100 * end for end in (change.value, change.low, change.high))
        how = f", {DEPENDENT}" if result.has_memory else ""
        parts.append(
            f"{value:+.1f} over zero-shot (95% interval {low:+.1f} to {high:+.1f}; alone right on {compared.gained}, "
            f"zero-shot alone on {compared.lost}; exact McNemar p = {compared.p_value:.3g}{how})"
        )
    top5 = Accuracy(int(result.in_top5.sum()), result.n)
    error = expected_calibration_error(result.confidence, result.correct)
    parts.append(f"top-5 {100 * top5.value:.1f}%, ECE {error:.3f}, {_time_of(result)}")
    return "; ".join(parts)


def _time_of(result: Result) -> str:
    shared = result.shared_seconds.mean()
    return f"{result.seconds.mean():.2f} s per image" + ("" if isnan(shared) else f" and {shared:.2f} s shared")


def _describe_analyses(run: Run, options: EvaluateOptions) -> Iterator[str]:
    for label in options.methods:
        yield from (f"  {line}" for line in describe_analysis(list(analysis_rows(run, label)), label))


def _warn_of_unreadable(run: Run, warn: Say, shown: int = 5) -> bool:
    """Say which files could not be read, and why; return whether there are any."""
    rows = run.rows.filter(pc.not_equal(run.rows["error"], "")).select(["path", "error"]).to_pylist()
    reasons = {row["path"]: row["error"] for row in rows}
    lines = [f"unreadable: {path}: {reason}" for path, reason in reasons.items()]
    for line in lines_and_more(lines, shown, str, "unreadable: {} more; all are rows with an error"):
        warn(line)
    return bool(lines)
