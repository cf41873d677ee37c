"""What answers a form: here, by one worker behind a queue; `serve.ray` has one that asks replicas on a cluster."""

import asyncio
from typing import Any, Protocol

from faircontext.errors import FairContextError, ImageError
from faircontext.serve.forms import ClassifyForm, ExplainForm
from faircontext.serve.jobs import ClassifyJob, Computer, ExplainJob
from faircontext.serve.metrics import Metrics
from faircontext.serve.queue import Job, Room, WorkQueue
from faircontext.serve.refusals import Refused
from faircontext.serve.service import Service
from faircontext.system import call_in_own_thread


class Engine(Protocol):
    """Answers forms.

    Attributes:
        facts: what is told of the model: `methods`, `model` and `label_sets`.
    """

    facts: dict[str, Any]

    @property
    def ready(self) -> bool:
        """Whether forms are answered."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no thread of this process computes."""
        ...

    def start(self) -> None:
        """Begin to answer."""
        ...

    def close(self) -> None:
        """Take no more forms, and wait for what is being computed."""
        ...

    async def answer(self, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Return the answer to a form; where the caller is cancelled, what has not been begun is given up.

        Raises:
            Refused: a field has a value that cannot be used, there is no room, or the service ends.
        """
        ...


class LocalEngine(WorkQueue):
    """A model in this process.

    Args:
        service: the loaded model.
        metrics: that are kept.
        room: for images that are accepted.
    """

    def __init__(self, service: Service, metrics: Metrics, room: Room) -> None:
        super().__init__(Computer(metrics), room, metrics)
        self._service = service
        self.facts = {
            "methods": service.describe_methods(),
            "model": service.describe_model(),
            "label_sets": service.sets,
        }

    async def answer(self, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Compute a form when its turn comes; see `Engine.answer`."""
        request = await asyncio.to_thread(call_in_own_thread, self._service.request, form)
        job: Job
        if isinstance(form, ExplainForm):
            job = ExplainJob(request, form.image, form.format == "html")
        else:
            job = ClassifyJob(request, form.images, form.top_k)
        self.submit(job)
        try:
            return await asyncio.wrap_future(job.done)
        except ImageError as error:
            raise Refused(422, "unreadable", "image", str(error)) from None
        except FairContextError as error:
            raise Refused(422, "invalid", "method", str(error)) from None
        finally:
            self.leave(job)  # of a job that is done, nothing is left
