"""What answers a form: here, by one worker behind a queue; `serve.ray` has one that asks replicas on a cluster."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from faircontext.errors import FairContextError, ImageError
from faircontext.serve.forms import ClassifyForm, ExplainForm
from faircontext.serve.jobs import ClassifyJob, Computer, ExplainJob
from faircontext.serve.metrics import Metrics
from faircontext.serve.queue import Job, Room, WorkQueue
from faircontext.serve.refusals import Refused
from faircontext.serve.service import Service
from faircontext.system import call_in_own_thread


class Engine(ABC):
    """Answers forms.

    Attributes:
        facts: what is told of the model: `methods`, `model` and `label_sets`.
    """

    facts: dict[str, Any]

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether forms are answered."""

    @property
    def ended(self) -> bool:
        """Whether no thread of this process computes."""
        return True

    @abstractmethod
    def start(self) -> None:
        """Begin to answer."""

    @abstractmethod
    def close(self) -> None:
        """Take no more forms, and wait for what is being computed."""

    @abstractmethod
    async def answer(self, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Return the answer to a form; where the caller is cancelled, what has not been begun is given up.

        Raises:
            Refused: a field has a value that cannot be used, there is no room, or the service ends.
        """


class LocalEngine(Engine):
    """A model in this process.

    Args:
        service: the loaded model.
        metrics: that are kept.
        room: for images that are accepted.
    """

    def __init__(self, service: Service, metrics: Metrics, room: Room) -> None:
        self._service = service
        self._queue = WorkQueue(Computer(metrics), room, metrics)
        self.facts = {
            "methods": service.describe_methods(),
            "model": service.describe_model(),
            "label_sets": service.sets,
        }

    @property
    def ready(self) -> bool:
        """Whether forms are answered."""
        return self._queue.ready

    @property
    def ended(self) -> bool:
        """Whether the worker has ended, or was never started."""
        return self._queue.ended

    def start(self) -> None:
        """Start the worker."""
        self._queue.start()

    def close(self) -> None:
        """End the worker; see `WorkQueue.close`."""
        self._queue.close()

    async def answer(self, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Compute a form when its turn comes; see `Engine.answer`."""
        asked = await asyncio.to_thread(call_in_own_thread, self._service.asked, form)
        job: Job
        if isinstance(form, ExplainForm):
            job = ExplainJob(asked, form.image, form.format == "html")
        else:
            job = ClassifyJob(asked, form.images, form.top_k)
        self._queue.submit(job)
        try:
            return await asyncio.wrap_future(job.done)
        except ImageError as error:
            raise Refused(422, "unreadable", "image", str(error)) from None
        except FairContextError as error:
            raise Refused(422, "invalid", "method", str(error)) from None
        finally:
            self._queue.leave(job)  # of a job that is done, nothing is left
