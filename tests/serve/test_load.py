"""The queue under load: who is turned away, who leaves, and what happens at the end of the process."""

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from faircontext.errors import FairContextError
from faircontext.serve.metrics import Metrics
from faircontext.serve.queue import Job, Room, Unit, WorkQueue
from faircontext.serve.refusals import Refused
from services import Running, running

SLOW = {"labels": "a,b,c,d", "method": "fcl", "settings": "masks=1000 steps=100"}
QUICK = {"labels": "a,b", "method": "zero_shot"}


class Images(Job):
    """Images that are done when they have been handed out."""

    def __init__(self, name: str, images: int, batched: bool = True) -> None:
        super().__init__(images, batched)
        self.name = name

    def document(self) -> dict[str, Any]:
        return {"name": self.name}


class Recorder:
    """Computes nothing, and remembers what it was given; it waits where it is told to."""

    def __init__(self) -> None:
        self.given: list[list[str]] = []
        self.go = threading.Event()

    def __call__(self, units: Sequence[Unit]) -> None:
        assert self.go.wait(20)
        self.given.append([f"{unit.job.name}{unit.index}" for unit in units])  # type: ignore[attr-defined]
        if any("broken" in name for name in self.given[-1]):
            raise FairContextError("broken")
        if any("defect" in name for name in self.given[-1]):
            raise ZeroDivisionError("a defect")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def queue(recorder: Recorder) -> Any:
    metrics = Metrics()
    queue = WorkQueue(recorder, Room(20, metrics), metrics)
    queue.start()
    yield queue
    recorder.go.set()
    queue.close()
    assert not queue.ready


def test_requests_take_turns_and_fill_batches(queue: WorkQueue, recorder: Recorder) -> None:
    first = Images("first", 1, batched=False)
    jobs = [Images("a", 3, batched=False), Images("b", 2), Images("c", 1, batched=False), Images("d", 10)]
    for job in (first, *jobs):
        queue.submit(job)
    recorder.go.set()
    assert [job.done.result(20) for job in jobs] == [{"name": name} for name in "abcd"]
    adapted = [given[0] for given in recorder.given if given[0][0] in "ac"]
    assert adapted == ["a0", "c0", "a1", "a2"]
    batches = [given for given in recorder.given if given[0][0] in "bd"]
    assert batches == [["b0", "d0", "b1", *(f"d{index}" for index in range(1, 10))]]


def test_a_batch_holds_sixteen(queue: WorkQueue, recorder: Recorder) -> None:
    job = Images("a", 40)  # larger than the queue, which is empty
    queue.submit(job)
    recorder.go.set()
    job.done.result(20)
    assert [len(given) for given in recorder.given] == [16, 16, 8]


def test_beyond_its_size_the_queue_refuses_and_says_when_to_come(queue: WorkQueue, recorder: Recorder) -> None:
    queue.submit(waiting := Images("a", 15))
    queue.submit(Images("b", 5))
    with pytest.raises(Refused) as refused:
        queue.submit(Images("c", 1))
    assert (refused.value.status_code, refused.value.reason) == (429, "busy")
    assert refused.value.headers is not None
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
    queue.leave(waiting)  # some of it may be at work; the others' places are free
    queue.submit(last := Images("d", 4))
    recorder.go.set()
    assert last.done.result(20) == {"name": "d"}
    assert waiting.done.cancelled()


def test_what_fails_fails_alone(queue: WorkQueue, recorder: Recorder) -> None:
    jobs = [Images("a", 2), Images("broken", 3), Images("defect", 1), Images("b", 2)]
    queue.submit(Images("first", 1, batched=False))
    for job in jobs:
        queue.submit(job)
    recorder.go.set()
    assert jobs[0].done.result(20) == {"name": "a"}
    assert jobs[3].done.result(20) == {"name": "b"}
    assert isinstance(jobs[1].done.exception(20), FairContextError)
    assert isinstance(jobs[2].done.exception(20), ZeroDivisionError)
    queue.submit(after := Images("after", 17))  # all places are free again
    assert after.done.result(20) == {"name": "after"}


def test_at_the_end_what_waits_is_given_up(queue: WorkQueue, recorder: Recorder) -> None:
    queue.submit(working := Images("a", 1, batched=False))
    queue.submit(waiting := Images("b", 3, batched=False))
    threading.Timer(0.2, recorder.go.set).start()
    queue.close()
    assert working.done.cancelled() or working.done.result(20) == {"name": "a"}
    assert waiting.done.cancelled()
    with pytest.raises(Refused, match="the service ends"):
        queue.submit(Images("c", 1))


Post = Callable[..., Any]


def post(started: Running, form: dict[str, Any], photo: Path, images: int) -> Any:
    content = photo.read_bytes()
    with started.http() as http:
        return http.post("/v1/classify", data=form, files=[("images", (photo.name, content))] * images)


@pytest.mark.process
def test_clients_that_leave_free_their_places(model_words: tuple[str, ...], sent: list[Path], tmp_path: Path) -> None:
    with running(tmp_path, *model_words, "--queue", "20") as started, ThreadPoolExecutor(1) as pool:
        host, port = started.url.removeprefix("http://").split(":")
        with started.http() as http:
            request = http.build_request(
                "POST", "/v1/classify", data=SLOW, files=[("images", ("a.jpg", sent[0].read_bytes()))] * 20
            )
            body = request.read()
        with socket.create_connection((host, int(port))) as leaving:
            head = f"POST /v1/classify HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
            leaving.sendall(f"{head}Content-Type: {request.headers['content-type']}\r\n\r\n".encode() + body)
            started.wait_for("faircontext_queue_images", 19)
            refused = post(started, QUICK, sent[0], 2)
            assert (refused.status_code, refused.json()["error"]["field"]) == (429, "images")
            assert int(refused.headers["retry-after"]) >= 1
        started.wait_for('faircontext_refusals_total{reason="left"}', 1)
        answered = pool.submit(post, started, QUICK, sent[0], 2).result(60)
        assert answered.status_code == 200
        assert started.metric('faircontext_images_total{outcome="answered"}') < 20


@pytest.mark.process
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_at_the_end_what_was_accepted_is_answered(
    how: signal.Signals, model_words: tuple[str, ...], sent: list[Path], tmp_path: Path
) -> None:
    with running(tmp_path, *model_words) as started, ThreadPoolExecutor(2) as pool:
        form = SLOW | {"settings": "masks=200"}
        jobs = [pool.submit(post, started, form, sent[0], 4), pool.submit(post, started, QUICK, sent[1], 3)]
        started.wait_for("faircontext_batch_images_count", 1)
        assert started.end(how) == 0
        answered = [job.result(60) for job in jobs]
        assert [response.status_code for response in answered] == [200, 200]
        assert [len(response.json()["answers"]) for response in answered] == [4, 3]
        assert started.process.stdout is not None
        assert started.process.stdout.read() == "faircontext: ended\n"
        assert started.log.read_text() == ""
        host, port = started.url.removeprefix("http://").split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


@pytest.mark.process
def test_beyond_the_grace_what_is_under_way_is_refused(
    model_words: tuple[str, ...], sent: list[Path], tmp_path: Path
) -> None:
    """The worker is at an image that takes longer than the server waits; the process ends with 0 all the same."""
    code = "; ".join(
        (
            "import sys, faircontext.serve.server as server",
            "server._GRACE = 1",
            "from faircontext.cli import main",
            "sys.exit(main())",
        )
    )
    # All methods of an image are one piece of work, which takes far longer than the server waits.
    settings = {f"fcl-{number}": number for number in range(980, 1000)}  # none of them the same, so none is shared
    words = [f"{label}.masks={number} {label}.steps={number}" for label, number in settings.items()]
    form = SLOW | {"method": ",".join(settings), "settings": " ".join(words)}
    with (
        running(tmp_path, *model_words, command=(sys.executable, "-c", code)) as started,
        ThreadPoolExecutor(1) as pool,
    ):
        job = pool.submit(post, started, form, sent[0], 1)
        started.wait_for("faircontext_queue_images", 1)
        time.sleep(0.5)
        assert started.end() == 0
        refused = job.result(60)
        assert (refused.status_code, refused.json()["error"]["reason"]) == (503, "closing")
        assert started.process.stdout is not None
        assert started.process.stdout.read() == "faircontext: ended\n"
        assert "terminate called" not in started.log.read_text()


@pytest.mark.process
def test_nothing_that_was_sent_stays(model_words: tuple[str, ...], sent: list[Path], tmp_path: Path) -> None:
    """Files above a megabyte lie on disk while they are read; no name leads to them, and then they are gone."""
    large = tmp_path / "large.ppm"
    large.write_bytes(b"P6 1000 1000 255\n" + bytes(3_000_000))
    with running(tmp_path, *model_words) as started:
        open_files = Path(f"/proc/{started.process.pid}/fd")
        if not open_files.exists():
            pytest.skip("there is no /proc")
        post(started, QUICK, sent[0], 1)
        before = len(list(open_files.iterdir()))
        for _ in range(3):
            assert post(started, QUICK, large, 2).status_code == 200
        end = time.monotonic() + 10
        while len(list(open_files.iterdir())) > before and time.monotonic() < end:
            time.sleep(0.05)
        assert len(list(open_files.iterdir())) <= before
