"""The model on Ray Serve: replicas, as many as the requests that wait ask for; what stands before them stays here.

Each replica has a model, a queue and a worker of its own, and computes with as many threads as this process, so its
answers are the same. The image tower's engine is PyTorch where none is named: each replica would measure which is the
faster one. A replica that dies is started again, and what it was computing is given to another.
"""

import asyncio
import logging
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from faircontext.errors import ArgumentError, FairContextError
from faircontext.runs.ray import cause_of, connect
from faircontext.serve.engines import LocalEngine
from faircontext.serve.forms import ClassifyForm, ExplainForm
from faircontext.serve.metrics import Metrics
from faircontext.serve.options import ServeOptions
from faircontext.serve.queue import Room
from faircontext.serve.refusals import Refused
from faircontext.serve.service import Service
from faircontext.system import call_in_own_thread, usable_processors

_TRIES = 3
"""How many replicas are asked, where one after the other dies."""

_HELD = 32
"""Requests that a replica holds, at most: two batches of one image each. The others wait here."""

_PER_REPLICA = 4
"""Requests under way for which there is one replica; more start others."""


@contextmanager
def engine_on_ray(
    options: ServeOptions, sets: Mapping[str, tuple[str, ...]], metrics: Metrics
) -> Iterator["RayEngine"]:
    """Start replicas, and end them afterwards.

    Args:
        options: of the service, checked.
        sets: class names of the label sets.
        metrics: that are kept.

    Raises:
        FairContextError: Ray Serve is not installed, an option has a value that cannot be used, or the cluster failed.
    """
    try:
        import ray
        from ray import serve
        from ray.exceptions import RayError
    except ImportError:
        raise ArgumentError("--engine ray needs Ray Serve: pip install 'faircontext[serve,ray]'") from None
    if options.engine_image == "auto":
        options = replace(options, engine_image="torch")
    threads, name = torch.get_num_threads(), f"faircontext-{uuid.uuid4().hex[:8]}"
    started = _start(ray, threads * options.replicas)
    try:
        try:
            serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
            deployment = _deployment(serve, options, threads).bind(options, dict(sets), threads)
            handle = serve.run(deployment, name=name, route_prefix=None)
            described = handle.describe.remote().result()
        except (RayError, RuntimeError) as error:
            raise FairContextError(f"Ray Serve: {cause_of(error)}") from None
        if problem := described.pop("problem", None):
            raise FairContextError(problem)
        yield RayEngine(handle, described, Room(options.queue * options.replicas, metrics), metrics)
    finally:
        if started:
            ray.shutdown()
        else:
            serve.delete(name)


class RayEngine:
    """A model on a cluster.

    Args:
        handle: of the deployment.
        facts: what is told of the model.
        room: for images that are accepted.
        metrics: that are kept.
    """

    def __init__(self, handle: Any, facts: dict[str, Any], room: Room, metrics: Metrics) -> None:
        self.facts = facts
        self._handle, self._room, self._metrics = handle, room, metrics
        self.ready, self.ended = False, True  # nothing computes here
        self._last = 0.0

    def start(self) -> None:
        """Begin to answer; the replicas run already."""
        self.ready = True

    def close(self) -> None:
        """Take no more forms."""
        self.ready = False

    async def answer(self, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Have a replica compute a form; see `Engine.answer`."""
        images = len(form.images) if isinstance(form, ClassifyForm) else 1
        self._room.take(images)
        began = time.perf_counter()
        try:
            outcome = await self._ask(form)
            now = time.perf_counter()
            self._room.took((now - max(began, self._last)) / images)
            self._last = now
        finally:
            self._room.leave(images)
        if "refused" in outcome:
            raise Refused(*outcome["refused"])
        kind = "explained" if isinstance(form, ExplainForm) else "answered"
        self._metrics.images.labels(kind).inc(images)
        answer: dict[str, Any] = outcome["answer"]
        return answer

    async def _ask(self, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Return what a replica answers; where one dies, another is asked."""
        from ray.exceptions import RayActorError, RayTaskError

        for left in reversed(range(_TRIES)):
            response = self._handle.answer.remote(form)
            try:
                outcome: dict[str, Any] = await response
                return outcome
            except asyncio.CancelledError:
                response.cancel()
                raise
            except RayActorError as error:
                if not left:
                    raise RuntimeError(f"{_TRIES} replicas died: {type(error).__name__}") from None
            except RayTaskError as error:
                raise RuntimeError(f"{type(error.cause).__name__} in a replica") from error
        raise AssertionError("the last try answers or raises")


class Replica:
    """A model in a process of its own.

    Args:
        options: of the service.
        sets: class names of the label sets.
        threads: with which it computes.
    """

    def __init__(self, options: ServeOptions, sets: dict[str, tuple[str, ...]], threads: int) -> None:
        torch.set_num_threads(threads)
        self._problem, metrics = "", Metrics()
        try:
            self._engine = LocalEngine(call_in_own_thread(Service, options, sets), metrics, Room(None, metrics))
            self._engine.start()
        except FairContextError as error:  # Ray would try again
            self._problem = str(error)

    def describe(self) -> dict[str, Any]:
        """Return what is told of the model, or as `problem` why there is none."""
        return {"problem": self._problem} if self._problem else self._engine.facts

    async def answer(self, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Return the answer to a form, or as `refused` why there is none."""
        try:
            return {"answer": await self._engine.answer(form)}
        except Refused as refused:
            return {"refused": refused.arguments}


def _deployment(serve: Any, options: ServeOptions, threads: int) -> Any:
    """Return the deployment, which grows with the requests that wait."""
    gpus = int(options.device.startswith("cuda"))
    return serve.deployment(
        Replica,
        name="model",
        ray_actor_options={"num_cpus": 0 if gpus else threads, "num_gpus": gpus},
        max_ongoing_requests=_HELD,
        graceful_shutdown_timeout_s=5,
        autoscaling_config={
            "min_replicas": 1,
            "max_replicas": options.replicas,
            "target_ongoing_requests": _PER_REPLICA,
            "upscale_delay_s": 5,
        },
    )


def _start(ray: Any, processors: int) -> bool:
    """Have a cluster, and leave this process's signals to it; return whether the cluster was started here."""
    kinds = (signal.SIGTERM, signal.SIGINT)
    handlers = [signal.getsignal(kind) for kind in kinds]
    started = connect(ray, max(usable_processors(), processors), 512)
    for kind, handler in zip(kinds, handlers, strict=True):  # Ray has its own, which exit at once
        signal.signal(kind, handler)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    return started
