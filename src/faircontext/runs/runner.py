"""Carry out a plan: an engine answers its images, and a store keeps every row; rows are not held in memory."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int

from faircontext.datasets.spec import Dataset
from faircontext.errors import counted
from faircontext.imageio import DecodedImage
from faircontext.runs.answer import answer_images
from faircontext.runs.options import RunnerOptions, Say
from faircontext.runs.plan import Plan, plan_of
from faircontext.runs.processes import answer_in_processes, processes_for
from faircontext.runs.records import SCHEMA_VERSION, Record
from faircontext.runs.sessions import start_session
from faircontext.runs.setup import Model
from faircontext.runs.store import Run, RunStore
from faircontext.runs.streams import Streams
from faircontext.runs.watch import Watch
from faircontext.sources import Source
from faircontext.system import lifetime_peak_mb, usable_processors

__all__ = ["Engine", "answer_here", "carry_out", "carry_out_in", "describe_engine", "engine_of", "rebuild"]


@runtime_checkable
class Engine(Protocol):
    """Answers the images at some positions of a plan's data set, in any order; where there are streams, in this one."""

    def __call__(
        self, plan: Plan, positions: Sequence[int], *, streams: Streams | None = None
    ) -> Iterator[list[Record]]:
        """Yield the rows of each image."""


def engine_of(options: RunnerOptions, model: Model) -> tuple[Engine, dict[str, Any]]:
    """Return what answers images as options ask, and what `run.json` says of it."""
    build = partial(rebuild, replace(options, engine_image=model.backbone.engine))
    workers = options.count_of_workers
    if options.engine == "ray":
        from faircontext.runs.ray import answer_on_ray

        return partial(answer_on_ray, build=build, workers=workers), {"engine": "ray"}
    if workers is None:  # on a CPU, reading ahead only takes processors from the encoder
        workers = 0 if model.backbone.device.type == "cpu" else min(8, max(1, usable_processors() - 1))
    engine: Engine = partial(answer_here, read=options.reader(), workers=workers, features=options.features)
    if not options.several_models:
        return engine, {"engine": "local", "workers": workers}
    processes = processes_for(usable_processors(), torch.get_num_threads())
    return partial(answer_in_processes, build=build, here=engine, processes=processes), {
        "engine": "local",
        "processes": processes,
    }


def describe_engine(facts: Mapping[str, Any]) -> Iterator[str]:
    """Say what was chosen where the choice was left to the command; `facts` as of `engine_of`."""
    if (processes := facts.get("processes")) is not None:
        threads = torch.get_num_threads()
        model = f"with a model and {counted(threads, 'thread')}"
        several = f"up to {processes} processes {model} each answer images"
        yield several if processes > 1 else f"1 process {model} answers images"


def rebuild(options: RunnerOptions, dataset: Dataset, shard: tuple[int, int] | None) -> tuple[Plan, Engine]:
    """Make a plan anew in another process, with an engine that carries it out there."""
    plan = plan_of(options, dataset, options.load(options.labels_of_methods), shard)
    return plan, partial(answer_here, read=options.reader(), workers=0, features=options.features)


def answer_here(
    plan: Plan,
    positions: Sequence[int],
    read: Callable[[Source], DecodedImage],
    workers: int,
    features: Path | None = None,
    streams: Streams | None = None,
) -> Iterator[list[Record]]:
    """Answer images in this process; see `answer_images`."""
    setup = plan.setup
    items = map(plan.item, positions)
    how = (setup.labels, setup.methods, setup.recipe, plan.seed, read, workers, features, plan.shift)
    answers = answer_images(items, *how, streams or plan.start_streams())
    for position, answered in zip(positions, setup.judge(answers), strict=True):
        yield plan.records(answered, position)


def carry_out(
    plan: Plan,
    out: Path,
    engine: Engine,
    resume: bool,
    facts: Mapping[str, Any],
    warn: Say,
    keep_state: bool = False,
) -> Run:
    """Answer a plan's images and return the run, earlier rows included; see `carry_out_in`.

    Args:
        plan: what to do.
        out: folder of the run's folder.
        engine: what answers images.
        resume: whether to go on with a run that is there.
        facts: of the engine, for `run.json`.
        warn: takes warnings, a line each.
        keep_state: whether the last states of methods with a memory stay.
    """
    run, _ = carry_out_in(out / plan.folder_name, plan, engine, resume, facts, warn, keep_state)
    return run


def carry_out_in(
    folder: Path,
    plan: Plan,
    engine: Engine,
    resume: bool,
    facts: Mapping[str, Any],
    warn: Say,
    keep_state: bool = False,
) -> tuple[Run, Watch]:
    """Answer a plan's images and return the run, and what was counted of it; rows are not held in memory.

    Args:
        folder: of the run.
        plan: what to do.
        engine: what answers images.
        resume: whether to go on with a run that is there.
        facts: of the engine, for `run.json`.
        warn: takes warnings, a line each.
        keep_state: whether the last states of methods with a memory stay.

    Raises:
        ArgumentError: see `RunStore` and `Streams.check`.
        KeyboardInterrupt: the run was stopped; what was answered is stored.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "config": plan.config,
        "hashes": plan.hashes,
        "folder": str(plan.dataset.folder),
        "working_directory": str(Path.cwd()),
        "layout": plan.dataset.layout,
        **({} if plan.dataset.image_column is None else {"image_column": plan.dataset.image_column}),
        "model": dict(plan.setup.labels.backbone.facts),
    }
    streams = plan.start_streams(warn)
    with RunStore(folder, document, [*plan.setup.methods], resume, streams, keep_state) as store:
        run, watch, learnt = Run(folder, store.document), Watch(plan, warn), Counter[str]()
        for rows in run.tables():
            watch.take(rows)
            learnt.update({} if streams is None else streams.learnt(rows))
        answered = store.is_answered(plan.positions)
        rest = plan.positions[~answered]
        if len(rest) or store.document["status"] != "complete":
            if streams is not None:
                streams.check(folder, answered, learnt)
            _answer_rest(plan, rest, store, watch, partial(engine, streams=streams) if streams else engine, facts)
            store.update(**({} if streams is None else {"states": streams.facts()}))
            store.finish()
        return run, watch


def _answer_rest(
    plan: Plan,
    rest: Int[np.ndarray, " images"],
    store: RunStore,
    watch: Watch,
    engine: Engine,
    facts: Mapping[str, Any],
) -> None:
    session, begin = start_session(plan, facts), time.perf_counter()
    earlier, n = store.document["sessions"], 0
    store.update(sessions=[*earlier, session])
    try:
        for records in watch.follow(engine(plan, _Positions(rest)), len(rest)):
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


class _Positions(Sequence[int]):
    """Positions as integers, eight bytes each."""

    def __init__(self, values: Int[np.ndarray, " images"]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return _Positions(self._values[index]) if isinstance(index, slice) else int(self._values[index])


def _peaks(plan: Plan) -> dict[str, float | None]:
    """Return the largest resident size of this process so far and of device memory, in MB."""
    device = plan.setup.labels.backbone.device
    on_device = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    return {"peak_memory_mb": lifetime_peak_mb(), "peak_device_memory_mb": on_device}
