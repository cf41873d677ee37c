"""The same evaluation in several processes of this machine, each with a model and its share of the processors.

Answers come in order. Each process makes the plan anew, and what it makes is checked to be the same plan.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from faircontext.backbones.base import ROW_MULTIPLE
from faircontext.datasets.spec import Dataset
from faircontext.runs.ahead import map_ahead
from faircontext.runs.checks import check_same
from faircontext.runs.plan import Plan
from faircontext.runs.records import Record
from faircontext.system import available_mb, resident_mb

if TYPE_CHECKING:
    from faircontext.runs.runner import Engine

__all__ = ["Answerer", "Build", "answer_in_processes", "processes_for", "uses_views"]

Build = Callable[[Dataset, tuple[int, int] | None], "tuple[Plan, Engine]"]
"""Makes a plan and its engine anew, in another process."""

WORTH_IT = {True: 4, False: 1000}
"""Images for each process from which on it is started, where methods use views and where they do not. The start takes
as long as a few images of FCL, or as some hundred of zero-shot."""


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
        self._dataset, self._shard, self._config = plan.dataset, plan.shard, json.dumps(plan.config)
        self._made: tuple[Plan, Engine] | None = None

    def __call__(self, positions: Sequence[int]) -> list[list[Record]]:
        """Return the rows of the images at some positions."""
        plan, engine = self.made
        return [*engine(plan, positions)]

    @property
    def made(self) -> tuple[Plan, "Engine"]:
        """The plan and its engine, made when first asked for.

        Raises:
            ArgumentError: the plan made here is another one.
        """
        if self._made is None:
            torch.set_num_threads(self._threads)
            self._made = self._build(self._dataset, self._shard)
            check_same(self._name, json.loads(self._config), json.loads(json.dumps(self._made[0].config)))
        return self._made


def uses_views(plan: Plan) -> bool:
    """Tell whether a method of the plan sees more of an image than its plain view."""
    return any(method.sees_views for method in plan.setup.methods.values())


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
    plan: Plan, positions: Sequence[int], build: Build, here: "Engine", processes: int
) -> Iterator[list[Record]]:
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
    views = uses_views(plan)
    processes = min(processes, len(positions) // WORTH_IT[views])
    if processes < 2:
        yield from here(plan, positions)
        return
    answer = Answerer(plan, build, torch.get_num_threads(), "worker process")
    size = 1 if views else ROW_MULTIPLE
    parts = (_Images(positions[start : start + size]) for start in range(0, len(positions), size))
    for answered in map_ahead(answer, parts, processes, does="answers", patient=True):
        yield from answered


class _Images(tuple[int, ...]):
    """Positions of some images, with a name for messages."""

    def __str__(self) -> str:
        return f"image {self[0]} of the data set"
