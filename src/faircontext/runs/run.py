"""Carry out a plan: an executor answers its images, and sinks take the answers; rows are not held in memory.

What stops a run, Ctrl-C or `--strict`, going on with one that was stopped, and what is shown meanwhile stand here, for
all commands.
"""

import platform
import shutil
import socket
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from tqdm import tqdm

from faircontext.errors import counted, one_line
from faircontext.metrics.stats import chance_p_value
from faircontext.runs.answer import Predictor
from faircontext.runs.build import Model
from faircontext.runs.executors import (
    Executor,
    answer_here,
    answer_in_processes,
    answer_on_ray,
    processes_for,
    rebuild,
)
from faircontext.runs.option_parts import Say
from faircontext.runs.options import RunnerOptions
from faircontext.runs.plan import Plan
from faircontext.runs.records import SCHEMA_VERSION, Answer, schema_of
from faircontext.runs.store import Run, RunStore
from faircontext.runs.summary import Summary
from faircontext.system import lifetime_peak_mb, processor_name, usable_processors


def executor_of(options: RunnerOptions, model: Model) -> tuple[Executor, dict[str, Any]]:
    """Return what answers images as options ask, and what `run.json` says of it."""
    build = partial(rebuild, replace(options, engine_image=model.backbone.engine))
    workers = options.count_of_workers
    if options.engine == "ray":
        return partial(answer_on_ray, build=build, workers=workers), {"engine": "ray"}
    if workers is None:  # on a CPU, reading ahead only takes processors from the encoder
        workers = 0 if model.backbone.device.type == "cpu" else min(8, max(1, usable_processors() - 1))
    here: Executor = partial(answer_here, read=options.reader(), workers=workers, features=options.features)
    if not options.several_models:
        return here, {"engine": "local", "workers": workers}
    processes = processes_for(usable_processors(), torch.get_num_threads())
    metadata = {"engine": "local", "processes": processes}
    return partial(answer_in_processes, build=build, here=here, processes=processes), metadata


def describe_executor(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Say what was chosen where the choice was left to the command; `metadata` as of `executor_of`."""
    if (processes := metadata.get("processes")) is not None:
        threads = torch.get_num_threads()
        model = f"with a model and {counted(threads, 'thread')}"
        several = f"up to {processes} processes {model} each answer images"
        yield several if processes > 1 else f"1 process {model} answers images"


CHECKED = 100
"""After this many images zero-shot must be better than chance."""

LEVEL = 0.05
"""Of that test."""

LINE_SECONDS = 30.0
"""Where there is no terminal, a line of progress is printed this often."""

_STATUS_SECONDS = 0.5
"""On a terminal, accuracies are shown anew this often."""


@runtime_checkable
class Sink(Protocol):
    """Takes answers as they come."""

    def add(self, answers: Sequence[Answer]) -> object:
        """Take the answers for an image, one for each method."""


def run(
    plan: Plan,
    execute: Executor,
    sinks: Sequence[Sink],
    positions: Int[np.ndarray, " images"] | None = None,
    strict: bool = False,
) -> Answer | None:
    """Have images answered, and hand on the answers for each; return the unreadable file that ended it, if one did.

    Args:
        plan: what to do.
        execute: answers the images.
        sinks: take the answers, one after the other; the first keeps them, and has as many as a stopped run says.
        positions: which images of the plan's; None for all.
        strict: whether the first file that is unreadable ends the run.

    Raises:
        KeyboardInterrupt: the run was stopped; the message says how far it came.
    """
    chosen, n = plan.positions if positions is None else positions, 0
    keep, *others = sinks
    wanted = array("q", chosen.astype(np.int64).tobytes())  # whole numbers, eight bytes each
    try:
        for answers in execute(plan, wanted):
            keep.add(answers)
            n += 1
            for sink in others:
                sink.add(answers)
            if strict and answers[0].error:
                return answers[0]
    except KeyboardInterrupt as stop:
        raise type(stop)(f"interrupted after {n} of {len(wanted)} images") from None
    return None


def run_stored(
    plan: Plan,
    folder: Path,
    execute: Executor,
    resume: bool,
    metadata: Mapping[str, Any],
    warn: Say,
    keep_state: bool = False,
    strict: bool = False,
) -> tuple[Run, Summary, Answer | None]:
    """Carry out a plan into a run on disk; return that, the counts of its rows, earlier ones too, and `run`'s answer.

    Args:
        plan: what to do.
        folder: of the run.
        execute: answers the images.
        resume: whether to go on with a run that is there.
        metadata: of the executor, for `run.json`.
        warn: takes warnings, a line each.
        keep_state: whether the last states of methods with a memory stay.
        strict: see `run`.

    Raises:
        ArgumentError: see `RunStore` and `Streams.check`.
        KeyboardInterrupt: the run was stopped; what was answered is stored.
    """
    streams, methods, unreadable = plan.start_streams(warn), [*plan.predictor.methods], None
    schema = schema_of(plan.predictor.columns)
    with RunStore(folder, _document(plan), methods, resume, streams, keep_state, schema) as store:
        stored, counts, learnt = Run(folder, store.document), plan.count(methods), Counter[str]()
        for rows in stored.tables():
            counts.add_rows(rows)
            learnt.update({} if streams is None else streams.learnt(rows))
        answered = store.is_answered(plan.positions)
        rest = plan.positions[~answered]
        if len(rest) or store.document["status"] != "complete":
            if streams is not None:
                streams.check(folder, answered, learnt)
                execute = partial(execute, streams=streams)
            with Progress(plan.dataset.name, len(plan.dataset.names), counts, len(rest), warn) as progress:
                unreadable = _run_rest(plan, execute, rest, store, progress, metadata, strict)
            if unreadable is None:
                store.update(**({} if streams is None else {"states": streams.facts()}))
                store.finish()
        return stored, counts, unreadable


def _run_rest(
    plan: Plan,
    execute: Executor,
    rest: Int[np.ndarray, " images"],
    store: RunStore,
    progress: "Progress",
    metadata: Mapping[str, Any],
    strict: bool,
) -> Answer | None:
    """Answer the images that are left, in a session of their own, and note what it took."""
    session, begin, counts = start_session(plan.predictor, metadata), time.perf_counter(), progress.counts
    earlier = store.document["sessions"]
    store.update(sessions=[*earlier, session])
    try:
        return run(plan, execute, [store, progress], rest, strict)
    except KeyboardInterrupt as stop:
        raise type(stop)(f"{store.folder}: {stop}; go on with --resume") from None
    finally:
        seconds, n = time.perf_counter() - begin, progress.images
        session |= {"images": n, "seconds": seconds, "images_per_second": n / seconds, **_peaks(plan)}
        store.flush()
        totals = {"images": counts.images, "unreadable": counts.unreadable}
        store.update(sessions=[*earlier, session], counts=totals)


def _document(plan: Plan) -> dict[str, Any]:
    """Return what `run.json` says of a plan."""
    return {
        "schema_version": SCHEMA_VERSION,
        "config": plan.config,
        "hashes": plan.hashes,
        "folder": str(plan.dataset.folder),
        "working_directory": str(Path.cwd()),
        "layout": plan.dataset.layout,
        **({} if plan.dataset.image_column is None else {"image_column": plan.dataset.image_column}),
        "model": dict(plan.predictor.labels.backbone.facts),
    }


class Progress(AbstractContextManager["Progress"]):
    """Shows how far a run has come: a bar on a terminal, or a line now and then where there is none.

    After the first images it looks whether zero-shot is better than chance.

    Args:
        name: of the data set.
        classes: how many there are.
        counts: of the answers, earlier ones included.
        total: how many images are to be answered.
        warn: takes warnings, a line each.

    Attributes:
        counts: of the answers.
        images: how many have been answered.
    """

    def __init__(self, name: str, classes: int, counts: Summary, total: int, warn: Say) -> None:
        self._name, self._classes, self.counts, self._total, self._warn = name, classes, counts, total, warn
        self.images, self._labelled = 0, counts.labelled
        self._shown = sys.stderr.isatty()
        self._begin = self._told = time.perf_counter()
        self._bar = tqdm(total=total, desc=name, unit="image", disable=not self._shown, leave=False, dynamic_ncols=True)

    def add(self, answers: Sequence[Answer]) -> None:
        """Count an image."""
        self.counts.add(answers)
        self.images += 1
        self._bar.update()
        counted = answers[0].index is not None and answers[0].label_index is not None
        self._labelled += counted
        if counted and self._labelled == CHECKED:
            self._check_chance()
        now = time.perf_counter()
        if now - self._told > (_STATUS_SECONDS if self._shown else LINE_SECONDS):
            self._told = now
            self._tell(now)

    def _tell(self, now: float) -> None:
        if self._shown:
            self._bar.set_postfix_str(self.counts.status(), refresh=False)
            return
        rate = self.images / (now - self._begin)
        left = f"{rate:.2f} images/s, {(self._total - self.images) / rate / 60:.0f} min left"
        print(f"{self._name}: {self.images} of {self._total} images, {left}; {self.counts.status()}", flush=True)

    def _check_chance(self) -> None:
        compared = next(iter(self.counts.comparisons().values()))
        if compared is None:
            return
        accuracy = compared.reference
        p_value = chance_p_value(accuracy.correct, accuracy.n, self._classes)
        if p_value > LEVEL:
            self._warn(
                f"{self._name}: zero-shot is not better than chance on the first images ({accuracy}; chance "
                f"{100 / self._classes:.1f}%, p = {p_value:.2g}); check the order of classes (faircontext data check "
                f"{self._name}), the weights, and whether the model knows these classes"
            )

    def __exit__(self, *_: object) -> None:
        self._bar.close()


class Lines(AbstractContextManager["Lines"]):
    """Prints a line for each image, with a progress bar below on a terminal and none in a pipe.

    Args:
        predictor: what answers.
        total: how many images are to be answered.
    """

    def __init__(self, predictor: Predictor, total: int) -> None:
        self._decision, self._names = predictor.decision, predictor.labels.names
        head = self._decision.heading([*predictor.methods])
        self._wide, self._columns = len(head), shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(f"{head}  image")
        self._bar = tqdm(total=total, unit="image", disable=not sys.stderr.isatty(), leave=False)

    def add(self, answers: Sequence[Answer]) -> None:
        """Print the line of an image."""
        error = answers[0].error
        cells = one_line(f"unreadable: {error}" if error else self._decision.line(answers, self._names))
        path = one_line(answers[0].path)
        if self._columns is not None:
            path = _within(path, max(_SHORTEST, self._columns - max(len(cells), self._wide) - 2))
        self._bar.update()
        tqdm.write(f"{cells:{self._wide}}  {path}")

    def __exit__(self, *_: object) -> None:
        self._bar.close()


_SHORTEST = 16


def _within(path: str, letters: int) -> str:
    """Return a path of so many letters, a piece before its end left out where it is longer: its end says most."""
    start = letters // 3
    return path if len(path) <= letters else f"{path[:start]}…{path[start + 1 - letters :]}"


def start_session(predictor: Predictor, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return where, with what and when a process works on a run."""
    device = predictor.labels.backbone.device
    packages = ("numpy", "pillow", "torchvision", "timm", "open-clip-torch", "transformers")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name(),
        "processors": usable_processors(),
        "threads": torch.get_num_threads(),
        **metadata,
        "images": 0,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _peaks(plan: Plan) -> dict[str, float | None]:
    """Return the largest resident size of this process so far and of device memory, in MB."""
    device = plan.predictor.labels.backbone.device
    on_device = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    return {"peak_memory_mb": lifetime_peak_mb(), "peak_device_memory_mb": on_device}
