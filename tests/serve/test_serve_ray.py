"""The model on Ray Serve: the same answers, the same refusals; a replica that is killed loses no request."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from faircontext.client import Client, ServiceError
from helpers import descendants
from services import NAMES, Running, running

pytest.importorskip("ray.serve")

from faircontext.serve.options import ServeOptions
from faircontext.serve.ray import Replica

pytestmark = pytest.mark.ray
METHODS = ("zero_shot", "fcl", "mta")


@pytest.fixture(scope="module")
def cluster(model_words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    words = (
        *model_words,
        "--engine",
        "ray",
        "--replicas",
        "1",
        "--labels",
        "cup,glass",
        "--queue",
        "25",
        "--timeout",
        "900",
    )
    with running(tmp_path_factory.mktemp("ray"), *words, "--set", "masks=8") as started:
        yield started


def assert_close(first: Any, second: Any) -> None:
    """Assert that two answers are the same, numbers with a point within 1e-4, seconds apart."""
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first.keys() - {"seconds", "shared_seconds"}:
            assert_close(first[key], second[key])
    elif isinstance(first, list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_close(one, other)
    elif isinstance(first, float):
        assert first == pytest.approx(second, abs=1e-4)
    else:
        assert first == second


@pytest.fixture(scope="module")
def expected(service: Running, sent: list[Path]) -> list[dict[str, Any]]:
    with Client(service.url, timeout=900) as client:
        return client.classify(sent, NAMES, method=",".join(METHODS), settings=["fcl.masks=8"])


def test_answers_are_the_same_however_they_come(
    cluster: Running, service: Running, sent: list[Path], expected: list[dict[str, Any]]
) -> None:
    with Client(cluster.url, timeout=900) as client:
        assert_close(client.classify(sent, NAMES, method=",".join(METHODS), settings=["fcl.masks=8"]), expected)

        def ask(path: Path) -> list[dict[str, Any]]:
            return client.classify([path], NAMES, method="zero_shot")

        with ThreadPoolExecutor(8) as pool:
            assert_close([entry for found in pool.map(ask, sent) for entry in found], expected[::3])
        with Client(service.url, timeout=900) as here:
            assert_close(client.explain(sent[0], label_set="default"), here.explain(sent[0], ["cup", "glass"]))


def test_what_is_told_and_refused_is_the_same(cluster: Running, service: Running, sent: list[Path]) -> None:
    with cluster.http() as http, service.http() as here:
        for path in ("/v1/methods", "/readyz", "/healthz"):
            assert http.get(path).json() == here.get(path).json()
        assert http.get("/v1/models").json()["model"] == here.get("/v1/models").json()["model"]
        assert http.get("/v1/labels").json() == {"label_sets": {"default": ["cup", "glass"]}}
        photo = sent[0].read_bytes()
        for path, form, field, content in (
            ("/v1/classify", {"labels": "a,b", "method": "fc"}, "images", photo),
            ("/v1/classify", {"labels": "a,b", "settings": "maks=3"}, "images", photo),
            ("/v1/explain", {"labels": "a,b"}, "image", b"no picture"),
        ):
            pair = [one.post(path, data=form, files=[(field, ("a.jpg", content))]) for one in (http, here)]
            assert [response.status_code for response in pair] == [422, 422]
            assert pair[0].json() == pair[1].json()


def test_what_finds_no_room_comes_again(cluster: Running, sent: list[Path]) -> None:
    with Client(cluster.url, timeout=900, retries=0, batch=20) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.classify, sent, NAMES, method="fcl")
        cluster.wait_for("faircontext_queue_images", 20)
        with pytest.raises(ServiceError, match="20 images wait, at most 25 may"):
            client.classify(sent, NAMES, method="zero_shot")
        assert len(first.result()) == 20
    assert cluster.metric("faircontext_queue_images") == 0


def test_a_replica_that_is_killed_loses_no_request(
    cluster: Running, sent: list[Path], expected: list[dict[str, Any]]
) -> None:
    with Client(cluster.url, timeout=900, retries=0, batch=20) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.classify, sent, NAMES, method="fcl", settings=["masks=8"])
        cluster.wait_for("faircontext_queue_images", 20)
        (replica,) = replicas(cluster)
        os.kill(replica, signal.SIGKILL)
        assert_close(asked.result(), expected[1::3])
    assert replicas(cluster) != [replica]


def replicas(cluster: Running) -> list[int]:
    """Return the processes that have the model."""
    return [process for process in descendants(cluster.process.pid) if "ServeReplica" in title(process)]


def title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    options = ServeOptions(backbone=f"local-dir:{tmp_path}/nowhere", engine="ray")
    assert [*Replica(options, {}, 1).describe()] == ["problem"]
    assert "nowhere" in Replica(options, {}, 1).describe()["problem"]


def test_what_was_accepted_is_finished_at_the_end(cluster: Running, sent: list[Path]) -> None:
    with Client(cluster.url, timeout=900, retries=0) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.classify, sent[:4], NAMES, method="fcl")
        cluster.wait_for("faircontext_queue_images", 4)
        processes = descendants(cluster.process.pid)
        assert cluster.end() == 0
        assert len(asked.result()) == 4
    ours = [line for line in cluster.log.read_text().splitlines() if line.startswith(("faircontext", "note"))]
    assert not ours  # Ray itself may complain where a machine is busy
    end = time.monotonic() + 30
    while any("ray" in title(process) for process in processes):
        assert time.monotonic() < end
        time.sleep(0.2)
