"""The same evaluation on a Ray cluster: a pool of actors, each with the model, takes the images a few at a time.

An actor that dies is started again, and what it was at work on is given out anew. Each actor computes with as many
threads as the process that asks, so its features are the same.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import torch

from faircontext.backbones.engines import ROW_MULTIPLE
from faircontext.errors import ArgumentError, FairContextError, counted
from faircontext.runs.executors import Answerer, Build
from faircontext.runs.plan import Plan
from faircontext.runs.ray_address import ADDRESS, check_address
from faircontext.runs.records import Answer, answers_of, schema_of, to_table
from faircontext.system import usable_processors

FEW = 4
"""Images that an actor takes at once where methods use views; what is lost with it."""

_FOLDER = "RAY_TMPDIR"
"""Variable of the environment that names the folder for Ray's sockets and logs, in place of TMPDIR."""


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


def connect(ray: Any, processors: int, store_mb: int) -> bool:
    """Connect to the cluster that the environment names, or start one here; return whether one was started.

    Args:
        ray: the module.
        processors: of a cluster that is started.
        store_mb: memory of its object store, in MB.

    Raises:
        FairContextError: neither can be done; see `check_address`.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    check_address()
    own = not os.environ.get(ADDRESS)
    here = {
        "address": "local",  # else Ray would take a cluster of somebody else's that runs on this machine
        "num_cpus": processors,
        "include_dashboard": False,
        "object_store_memory": store_mb * 2**20,
    }
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **(here if own else {}))
    except Exception as error:  # Ray has no class of its own for all that can be wrong
        cause = cause_of(error)
        if "AF_UNIX path length" in cause:  # of its sockets, which lie in the folder for temporary files
            cause += f"; set {_FOLDER} to a folder with a short path, such as /tmp"
        raise FairContextError(f"Ray cannot be started or reached: {cause}") from None
    return own


def cause_of(error: Exception) -> str:
    """Return the last line of what Ray says, which is the cause."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


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
