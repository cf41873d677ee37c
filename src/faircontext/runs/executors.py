"""Executors, which answer the images of a plan: this process, several of this machine, or actors of a Ray cluster.

Each process has a model and its share of the processors; it makes the plan anew, and what it makes is checked to be the
same plan. Answers of this machine's processes come in order, those of a cluster in any. An actor that dies is started
again, and what it was at work on is given out anew; it computes with as many threads as the process that asks, so its
features are the same.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import torch

from faircontext.backbones.engines import ROW_MULTIPLE
from faircontext.datasets.spec import Dataset
from faircontext.errors import ArgumentError, FairContextError, counted
from faircontext.imageio import DecodedImage
from faircontext.runs.ahead import map_ahead
from faircontext.runs.answer import answer_images
from faircontext.runs.build import load
from faircontext.runs.checks import check_same
from faircontext.runs.options import RunnerOptions
from faircontext.runs.plan import Plan, plan_of
from faircontext.runs.ray import cause_of, connect
from faircontext.runs.records import Answer, answers_of, schema_of, to_table
from faircontext.runs.streams import Streams
from faircontext.sources import Source
from faircontext.system import available_mb, resident_mb, usable_processors


@runtime_checkable
class Executor(Protocol):
    """Answers the images at some positions of a plan's data set, in any order; where there are streams, in this one."""

    def __call__(
        self, plan: Plan, positions: Sequence[int], *, streams: Streams | None = None
    ) -> Iterator[list[Answer]]:
        """Yield the answers for each image."""


Build = Callable[[Dataset], tuple[Plan, Executor]]
"""Makes a plan and its executor anew, in another process."""

WORTH_IT = {True: 4, False: 1000}
"""Images for each process from which on it is started, where methods use views and where they do not. The start takes
as long as a few images of FCL, or as some hundred of zero-shot."""


def rebuild(options: RunnerOptions, dataset: Dataset) -> tuple[Plan, Executor]:
    """Make a plan anew in another process, with an executor there."""
    plan = plan_of(options, dataset, load(options))
    return plan, partial(answer_here, read=options.reader(), workers=0, features=options.features)


def answer_here(
    plan: Plan,
    positions: Sequence[int],
    read: Callable[[Source], DecodedImage],
    workers: int,
    features: Path | None = None,
    streams: Streams | None = None,
) -> Iterator[list[Answer]]:
    """Answer images in this process; see `answer_images`."""
    predictor, samples = plan.predictor, plan.dataset.samples
    streams = streams or Streams(predictor.methods, predictor.labels, max(1, len(positions)))
    chosen = (samples[position] for position in positions)
    images = answer_images(chosen, predictor, plan.seed, read, workers, features, plan.perturbation, streams)
    for position, image in zip(positions, images, strict=True):
        yield [replace(answer, position=position) for answer in image.answers]


class Answerer:
    """A plan and a model of a process of its own, made when they are first needed there.

    Args:
        plan: what to do.
        build: makes the plan anew.
        threads: of the model.
        name: of the process, for messages.
    """

    def __init__(self, plan: Plan, build: Build, threads: int, name: str) -> None:
        self._build, self._threads, self._name = build, threads, name
        self._dataset, self._config = plan.dataset, plan.config

    def __call__(self, positions: Sequence[int]) -> list[list[Answer]]:
        """Return the answers for the images at some positions."""
        plan, execute = self.made
        return [*execute(plan, positions)]

    @cached_property
    def made(self) -> tuple[Plan, Executor]:
        """The plan and its executor, made when first asked for.

        Raises:
            ArgumentError: the plan made here is another one.
        """
        torch.set_num_threads(self._threads)
        plan, execute = self._build(self._dataset)
        check_same(self._name, self._config, plan.config)
        return plan, execute


def processes_for(processors: int, threads: int) -> int:
    """Return how many processes with a model of its own each this machine has room for, at least 1.

    Args:
        processors: that may be used.
        threads: of each process.
    """
    room = available_mb()
    fitting = processors if room is None else int(room // resident_mb())  # this one has loaded the model already
    return max(1, min(processors // threads, fitting))


def answer_in_processes(
    plan: Plan, positions: Sequence[int], build: Build, here: Executor, processes: int
) -> Iterator[list[Answer]]:
    """Answer images in some processes, with as many threads each as this one has; a few images are answered here.

    Args:
        plan: what to do.
        positions: which images of its data set.
        build: makes the plan anew in a process.
        here: answers images in this process.
        processes: how many at most.

    Raises:
        FairContextError: a process was killed, or cannot be started.
        ArgumentError: a process's plan is another one.
    """
    views = plan.predictor.sees_views
    processes = min(processes, len(positions) // WORTH_IT[views])
    if processes < 2:
        yield from here(plan, positions)
        return
    answer = Answerer(plan, build, torch.get_num_threads(), "worker process")
    size = 1 if views else ROW_MULTIPLE
    parts = (tuple(positions[start : start + size]) for start in range(0, len(positions), size))
    for answered in map_ahead(
        answer, parts, processes, "answers", True, lambda part: f"image {part[0]} of the data set"
    ):
        yield from answered


FEW = 4
"""Images that an actor takes at once where methods use views; what is lost with it."""


def answer_on_ray(plan: Plan, positions: Sequence[int], build: Build, workers: int | None) -> Iterator[list[Answer]]:
    """Answer images on a cluster: the one that RAY_ADDRESS names, or this machine; they come in any order.

    Args:
        plan: what to do.
        positions: which images of its data set.
        build: makes the plan anew in an actor.
        workers: actors at most; None for as many as the cluster has processors (or GPUs) for.

    Raises:
        ArgumentError: Ray is not installed, no machine has room for an actor, or an actor's plan is another one.
        FairContextError: the cluster failed.
    """
    try:
        import ray
        import ray.data
    except ImportError:
        raise ArgumentError("--engine ray needs Ray: pip install 'faircontext[ray]'") from None
    backbone = plan.predictor.labels.backbone
    threads, gpus = torch.get_num_threads(), int(backbone.device.type == "cuda")
    _start(ray)
    room = _room(ray, threads, gpus)
    actors = room if workers is None else max(1, min(room, workers))
    size = FEW if plan.predictor.sees_views else ROW_MULTIPLE
    rows = ray.data.from_items([{"position": position} for position in positions]).map_batches(
        _Actor,
        batch_size=size,
        batch_format="pyarrow",
        num_cpus=threads,
        num_gpus=gpus,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors),
        fn_constructor_args=(Answerer(plan, build, threads, "Ray actor"), schema_of(plan.predictor.columns)),
    )
    try:
        for table in rows.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from answers_of(table)
    except ray.exceptions.RayError as error:
        cause = error.__cause__ if isinstance(error.__cause__, FairContextError) else error
        raise FairContextError(f"Ray: {cause_of(cause)}; what was answered is kept, go on with --resume") from None


def _room(ray: Any, threads: int, gpus: int) -> int:
    """Return how many actors the cluster has room for; Ray would wait for ever for a machine that it does not have."""
    kind, needed, of = ("GPU", gpus, "device=cuda") if gpus else ("CPU", threads, f"threads={threads}")
    sizes = [int(node["Resources"].get(kind, 0)) for node in ray.nodes() if node["Alive"]]
    if (room := sum(size // needed for size in sizes)) < 1:
        most = counted(max(sizes, default=0), "GPU" if gpus else "processor")
        raise ArgumentError(f"{of} is not possible; the largest machine of the Ray cluster has {most}")
    return room


def _start(ray: Any) -> None:
    """Have a cluster, and keep Ray Data quiet."""
    if ray.is_initialized():
        return
    connect(ray, usable_processors(), 256)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


class _Actor:
    """Answers for Ray, which hands over tables."""

    def __init__(self, answer: Answerer, schema: pa.Schema) -> None:
        self._answer, self._schema = answer, schema
        answer.made  # noqa: B018 (here, so that what is wrong with it is wrong with the actor)

    def __call__(self, batch: pa.Table) -> pa.Table:
        answered = self._answer(batch["position"].to_pylist())
        return to_table([answer for answers in answered for answer in answers], self._schema)
