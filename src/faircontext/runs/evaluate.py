"""Evaluate methods or analyses on data sets: find them, plan, run with progress, resume, describe the results."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from tqdm import tqdm

from faircontext.datasets.spec import Dataset
from faircontext.errors import lines_and_more
from faircontext.files import check_folder
from faircontext.imageio import DecodedImage
from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.stats import Accuracy, chance_p_value
from faircontext.runs.answer import answer_images
from faircontext.runs.checks import check_same
from faircontext.runs.options import EvaluateOptions, Say
from faircontext.runs.plan import (
    Model,
    Plan,
    find_datasets,
    parse_shard,
    plan_of,
    run_name,
    start_session,
    templates_of,
)
from faircontext.runs.records import SCHEMA_VERSION, Record
from faircontext.runs.results import Result, analysis_rows, describe_analysis, read_results
from faircontext.runs.store import Run, RunStore, load_run
from faircontext.system import lifetime_peak_mb, usable_processors
from faircontext.types import describe_flat, is_flat, read_diagnostics

__all__ = [
    "CHECKED",
    "Engine",
    "Watch",
    "answer_here",
    "carry_out",
    "check_asked",
    "describe_result",
    "evaluate",
    "evaluate_missing",
    "rebuild",
]

CHECKED = 100
"""After this many images zero-shot must be better than chance."""

LEVEL = 0.05
"""Of that test."""

LINE_SECONDS = 30.0
"""Where there is no terminal, a line of progress is printed this often."""

Engine = Callable[[Plan, Sequence[int]], Iterator[list[Record]]]
"""Answers the images at some positions of a plan's data set, in any order."""


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
    datasets = find_datasets(options)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.features is not None:
        check_folder(options.features)
    for dataset in datasets:  # what is wrong with these is told before the model is loaded
        templates_of(options, dataset)
        check_folder(options.out / run_name(dataset.name, shard))
    model = options.load(options.labels_of_methods)
    plans = [plan_of(options, dataset, model, shard) for dataset in datasets]
    engine, facts = _engine(options, model)
    unreadable = False
    for plan in plans:
        for line in plan.describe():
            say(line)
        for warning in plan.warnings():
            warn(f"{plan.dataset.name}: {warning}")
        run = carry_out(plan, options.out, engine, options.resume, facts, warn)
        unreadable |= _warn_of_unreadable(run, warn)
        for line in _describe_analyses(run, options) if options.analyses else _describe_results(run, warn):
            say(line)
    return int(unreadable)


def evaluate_missing(options: EvaluateOptions, say: Say, warn: Say) -> list[Run]:
    """Evaluate on the data sets whose runs are not complete, and return the runs of all, by path; see `evaluate`.

    Raises:
        ArgumentError: a run that is there is not what is asked for.
    """
    folders = {name: options.out / Path(name).name for name in options.datasets}
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


def check_asked(run: Run, options: EvaluateOptions, **more: Any) -> None:
    """Raise `ArgumentError` where a run that is there is another than options ask for, or has not what `more` names."""
    names = ("limit", "seed", "preset", "pretrained", "prompts")
    asked = {name: getattr(options, name) for name in names} | json.loads(json.dumps(more))
    config = run.document["config"]
    dataset = {name: config["dataset"].get(name) for name in more.get("dataset", ())}
    check_same(run.folder, {name: {**config, "dataset": dataset}.get(name) for name in asked}, asked)


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


def _describe_results(run: Run, warn: Say) -> Iterator[str]:
    """Say what a run has measured, and where common evidence is flat."""
    yield from (f"  {result.method:14} {describe_result(result)}" for result in read_results(run) if result.n)
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
    if (compared := result.comparison) is not None:
        change = compared.difference
        value, low, high = (100 * end for end in (change.value, change.low, change.high))
        parts.append(
            f"{value:+.1f} over zero-shot (95% interval {low:+.1f} to {high:+.1f}; alone right on {compared.gained}, "
            f"zero-shot alone on {compared.lost}; exact McNemar p = {compared.p_value:.3g})"
        )
    top5 = Accuracy(int(result.in_top5.sum()), result.n)
    error = expected_calibration_error(result.confidence, result.correct)
    parts.append(f"top-5 {100 * top5.value:.1f}%, ECE {error:.3f}, {result.seconds.mean():.2f} s per image")
    return "; ".join(parts)


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


def answer_here(
    plan: Plan,
    positions: Sequence[int],
    read: Callable[[Path], DecodedImage],
    workers: int,
    features: Path | None = None,
) -> Iterator[list[Record]]:
    """Answer images in this process; see `answer_images`."""
    setup = plan.setup
    items = [plan.item(position) for position in positions]
    answers = answer_images(items, setup.labels, setup.methods, setup.recipe, plan.seed, read, workers, features)
    for position, answered in zip(positions, answers, strict=True):
        yield plan.records(answered, position)


def carry_out(plan: Plan, out: Path, engine: Engine, resume: bool, facts: Mapping[str, Any], warn: Say) -> Run:
    """Answer a plan's images and return the run, earlier rows included.

    Args:
        plan: what to do.
        out: folder of the run's folder.
        engine: what answers images.
        resume: whether to go on with a run that is there.
        facts: of the engine, for `run.json`.
        warn: takes warnings, a line each.

    Raises:
        ArgumentError: see `RunStore`.
        KeyboardInterrupt: the run was stopped; what was answered is stored.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "config": plan.config,
        "hashes": plan.hashes,
        "folder": str(plan.dataset.folder),
        "working_directory": str(Path.cwd()),
        "layout": plan.dataset.layout,
        "model": dict(plan.setup.labels.backbone.facts),
    }
    folder = out / plan.folder_name
    with RunStore(folder, document, [*plan.setup.methods], resume) as store:
        rest = [index for index in plan.positions if plan.dataset.samples[index].key not in store.done]
        if rest or store.document["status"] != "complete":
            _answer_rest(plan, rest, store, engine, facts, warn)
            store.finish()
        return Run(folder, store.document, store.rows)


def _answer_rest(
    plan: Plan, rest: Sequence[int], store: RunStore, engine: Engine, facts: Mapping[str, Any], warn: Say
) -> None:
    watch = Watch(plan, store.rows, warn)
    session, begin = start_session(plan, facts), time.perf_counter()
    earlier, n = store.document["sessions"], 0
    store.update(sessions=[*earlier, session])
    try:
        for records in watch.follow(engine(plan, rest), len(rest)):
            store.add(records)
            n += 1
    except KeyboardInterrupt as stop:
        left = f"interrupted after {n} of {len(rest)} images; go on with --resume"
        raise type(stop)(f"{store.folder}: {left}") from None
    finally:
        seconds = time.perf_counter() - begin
        session |= {"images": n, "seconds": seconds, "images_per_second": n / seconds, **_peaks(plan)}
        counts = {"images": watch.images, "unreadable": watch.unreadable}
        store.flush()
        store.update(sessions=[*earlier, session], counts=counts)


class Watch:
    """Accuracies so far, printed as the run goes, and a look at zero-shot after the first images.

    Args:
        plan: what is running.
        rows: that are there from before.
        warn: takes warnings, a line each.
    """

    def __init__(self, plan: Plan, rows: pa.Table, warn: Say) -> None:
        self._plan, self._warn = plan, warn
        first = rows.filter(pc.equal(rows["method"], next(iter(plan.setup.methods))))
        self.images, self._answered = len(first), _count(pc.equal(first["error"], ""))
        self.unreadable = self.images - self._answered
        self._zero_shot = _count(pc.equal(first["zero_shot_index"], first["label_index"]))
        correct = rows["method"].filter(pc.fill_null(pc.equal(rows["index"], rows["label_index"]), False))
        self._correct = {label: _count(pc.equal(correct, label)) for label in plan.setup.methods}

    def add(self, records: Sequence[Record]) -> None:
        """Count an image."""
        self.images += 1
        if records[0].error:
            self.unreadable += 1
            return
        self._answered += 1
        self._zero_shot += records[0].zero_shot_index == records[0].label_index
        for record in records:
            self._correct[record.method] += record.index == record.label_index
        if self._answered == CHECKED:
            self._check_chance()

    def _check_chance(self) -> None:
        classes = len(self._plan.dataset.names)
        p_value = chance_p_value(self._zero_shot, self._answered, classes)
        if p_value > LEVEL:
            name, accuracy = self._plan.dataset.name, Accuracy(self._zero_shot, self._answered)
            self._warn(
                f"{name}: zero-shot is not better than chance on the first images ({accuracy}; chance "
                f"{100 / classes:.1f}%, p = {p_value:.2g}); check the order of classes (faircontext data check {name})"
                ", the weights, and whether the model knows these classes"
            )

    def status(self, intervals: bool = True) -> str:
        """Return the accuracies so far."""
        if not self._answered:
            return "nothing answered yet"
        rates = {name: Accuracy(correct, self._answered) for name, correct in self._correct.items()}
        return ", ".join(f"{name} {rate if intervals else f'{100 * rate.value:.1f}%'}" for name, rate in rates.items())

    def follow(self, stream: Iterable[list[Record]], total: int) -> Iterator[list[Record]]:
        """Pass records on, with a bar on a terminal, or a line now and then where there is none."""
        shown = sys.stderr.isatty()
        name, printed, begin = self._plan.dataset.name, time.perf_counter(), time.perf_counter()
        with tqdm(total=total, desc=name, unit="image", disable=not shown, leave=False, dynamic_ncols=True) as bar:
            for n, records in enumerate(stream, 1):
                yield records
                self.add(records)
                bar.set_postfix_str(f"{self.status(intervals=False)}, n = {self._answered}", refresh=False)
                bar.update()
                now = time.perf_counter()
                if not shown and now - printed > LINE_SECONDS:
                    printed, rate = now, n / (now - begin)
                    speed = f"{n} of {total} images, {rate:.2f} images/s, {(total - n) / rate / 60:.0f} min left"
                    print(f"{name}: {speed}; {self.status()}", flush=True)


def _count(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _peaks(plan: Plan) -> dict[str, float | None]:
    """Return the largest resident size of this process so far and of device memory, in MB."""
    device = plan.setup.labels.backbone.device
    on_device = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    return {"peak_memory_mb": lifetime_peak_mb(), "peak_device_memory_mb": on_device}
