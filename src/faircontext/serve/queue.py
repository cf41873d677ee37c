"""A bounded queue and the one worker that computes: images of requests in turn, zero-shot's in batches.

Requests take turns image by image, so that a long one does not hold up a short one. Whoever leaves or waits too long
gives up the places of those images that have not been begun.
"""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from faircontext.backbones.engines import ROW_MULTIPLE
from faircontext.serve.metrics import Metrics
from faircontext.serve.refusals import Refused, closing


class Job(ABC):
    """A request's images.

    Args:
        images: how many.
        batched: whether images of several requests are computed together.

    Attributes:
        done: gets the document of the answer, or why there is none.
    """

    def __init__(self, images: int, batched: bool) -> None:
        self.batched = batched
        self.left = deque(range(images))
        self.waiting = images
        self.done: Future[dict[str, Any]] = Future()

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return the answer, when all images are done."""


@dataclass(frozen=True)
class Unit:
    """One image of a request, handed out to be computed."""

    job: Job
    index: int


Compute = Callable[[Sequence[Unit]], None]
"""Computes units: several of batched jobs, or one of another. It leaves the results with the jobs."""


class Room:
    """How many images are accepted and not answered, and how many may be.

    Args:
        size: how many may be; None for any number.
        metrics: that are kept.
    """

    def __init__(self, size: int | None, metrics: Metrics) -> None:
        self._size, self._metrics = size, metrics
        self._images, self._seconds = 0, 0.1

    def take(self, images: int) -> None:
        """Accept images, where they find room; more than there is room for are accepted when there are no others.

        Raises:
            Refused: there is no room.
        """
        if self._size is not None and self._images and self._images + images > self._size:
            message = (
                f"{self._images} images wait, at most {self._size} may; come again after the seconds of Retry-After"
            )
            # There is likely to be room when half of what waits is done.
            after = min(60, max(1, math.ceil(self._images * self._seconds / 2)))
            raise Refused(429, "busy", "images", message, after)
        self._count(images)

    def leave(self, images: int) -> None:
        """Give the places of images up."""
        self._count(-images)

    def took(self, seconds: float) -> None:
        """Learn how long an image takes."""
        self._seconds += 0.1 * (seconds - self._seconds)

    def _count(self, change: int) -> None:
        self._images += change
        self._metrics.queue.set(self._images)


class WorkQueue:
    """Jobs that wait, and the thread that computes them.

    Args:
        compute: what computes.
        room: for images that are accepted.
        metrics: that are kept.
    """

    def __init__(self, compute: Compute, room: Room, metrics: Metrics) -> None:
        self._compute, self._room, self._metrics = compute, room, metrics
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="faircontext-worker", daemon=True)

    def start(self) -> None:
        """Start the worker."""
        self._worker.start()

    @property
    def ready(self) -> bool:
        """Whether requests are taken and computed."""
        return self._worker.is_alive() and not self._closed

    @property
    def ended(self) -> bool:
        """Whether nothing is computed, nor will be."""
        return not self._worker.is_alive()

    def close(self, seconds: float = 5.0) -> None:
        """Take no more jobs, give up those that wait, and wait for what is being computed."""
        with self._changed:
            self._closed = True
            for job in [*self._jobs]:
                self.leave(job)
            self._changed.notify_all()
        if self._worker.is_alive():
            self._worker.join(seconds)

    def submit(self, job: Job) -> None:
        """Take a job, where its images find room; one that is larger than the queue does when nothing else waits.

        Raises:
            Refused: there is no room, or the service ends.
        """
        with self._changed:
            if self._closed:
                raise closing()
            self._room.take(len(job.left))
            self._jobs.append(job)
            self._changed.notify()

    def leave(self, job: Job) -> None:
        """Give up what has not been begun of a job that nobody waits for."""
        job.done.cancel()
        self._leave_rest(job)

    def _leave_rest(self, job: Job) -> None:
        """Give up the images of a job that have not been begun, and keep the job itself."""
        with self._changed:
            self._room.leave(len(job.left))
            job.left.clear()
            if job in self._jobs:
                self._jobs.remove(job)

    def _take(self) -> list[Unit]:
        """Return what is computed next: an image, or as many as make a batch; nothing at the end."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            if not self._jobs:
                return []
            units = [self._next(self._jobs[0])]
            batched = units[0].job.batched
            while batched and len(units) < ROW_MULTIPLE:
                job = next((job for job in self._jobs if job.batched), None)
                if job is None:
                    break
                units.append(self._next(job))
            return units

    def _next(self, job: Job) -> Unit:
        """Return a job's next image, and let the other jobs have their turns before the one after it."""
        unit = Unit(job, job.left.popleft())
        self._jobs.remove(job)
        if job.left:
            self._jobs.append(job)
        return unit

    def _work(self) -> None:
        while units := self._take():
            begin = time.perf_counter()
            self._run(units)
            self._metrics.batches.observe(len(units))
            with self._changed:
                self._room.took((time.perf_counter() - begin) / len(units))
                self._room.leave(len(units))
            for unit in units:
                self._finish(unit.job)

    def _run(self, units: Sequence[Unit]) -> None:
        """Compute units; where a batch fails, each alone, so that the others do not pay for one."""
        try:
            self._compute(units)
        except Exception as error:
            if len(units) > 1:
                for unit in units:
                    self._run([unit])
                return
            self._fail(units[0].job, error)

    def _fail(self, job: Job, error: Exception) -> None:
        self._leave_rest(job)
        if not job.done.done() and job.done.set_running_or_notify_cancel():
            job.done.set_exception(error)

    def _finish(self, job: Job) -> None:
        """Hand over the answer where the last image of a job is done."""
        job.waiting -= 1
        if job.waiting or job.done.done() or not job.done.set_running_or_notify_cancel():
            return
        try:
            job.done.set_result(job.document())
        except Exception as error:
            job.done.set_exception(error)
