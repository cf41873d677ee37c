"""Behind a proxy: a path that it takes off, the host and the request ids that it tells, and the log."""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from faircontext.client import Client
from faircontext.serve.app import create_app
from faircontext.serve.engines import Engine
from faircontext.serve.metrics import Metrics
from faircontext.serve.options import ServeOptions
from services import NAMES, Running, Sent, problem, running

TOKEN = "a-word-of-twenty-six-signs"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def proxied(
    model_words: tuple[str, ...], pets_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A service with a single label set that a proxy shows under /photos."""
    folder = tmp_path_factory.mktemp("proxied")
    (folder / "token").write_text(TOKEN)
    words = ("--root-path", "/photos", "--hosts", "photos.example.org", "--token", str(folder / "token"))
    with running(folder, *model_words, *words, "--access-log", "--label-sets", f"pets={pets_file}") as started:
        yield started


def test_addresses_are_those_that_the_proxy_shows(proxied: Running) -> None:
    told = {"Host": "photos.example.org", "X-Forwarded-Proto": "https", **BEARER}
    with proxied.http(headers=told) as http:
        assert http.get("/openapi.json").json()["servers"] == [{"url": "/photos"}]
        redirected = http.get("/v1/labels/")
        assert redirected.headers["location"] == "https://photos.example.org/photos/v1/labels"
        assert http.get("/v1/labels").json() == {"label_sets": {"pets": list(NAMES)}}
        assert http.get("/v1/labels").headers["cache-control"] == "no-store"
    with proxied.http() as http:
        assert [http.get(path).status_code for path in ("/", "/v1/labels", "/metrics")] == [200, 401, 401]
        assert http.get("/photos/v1/labels").status_code in (401, 404)


def test_the_only_label_set_need_not_be_named(proxied: Running, sent: list[Path]) -> None:
    with Client(proxied.url, TOKEN) as client:
        (answered,) = client.classify([sent[0]], method="zero_shot", top_k=9)
    assert {one["name"] for one in answered["top"]} == set(NAMES)


def test_each_request_is_a_line_of_the_log_with_the_id_of_its_answer(proxied: Running) -> None:
    with proxied.http(headers=BEARER) as http:
        given = http.get("/healthz", headers={"X-Request-ID": "from-the-proxy.1"})
        odd = http.get(
            "/v1/no%0Awhere?word=secret", headers={"X-Request-ID": "two words", "X-Forwarded-For": "192.0.2.7"}
        )
        ids = [answer.headers["x-request-id"] for answer in (given, odd, http.head("/v1/labels"))]
    assert ids[0] == "from-the-proxy.1"
    end = time.monotonic() + 30
    while ids[2] not in (log := proxied.log.read_text()) and time.monotonic() < end:  # written when all is sent
        time.sleep(0.02)
    lines = [line for line in log.splitlines() if any(request_id in line for request_id in ids)]
    wanted = ("127.0.0.1 GET /healthz 200", "192.0.2.7 GET /v1/no%0Awhere 404", "127.0.0.1 HEAD /v1/labels 200")
    for line, request_id, what in zip(lines, ids, wanted, strict=True):
        pattern = rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{{4}} {re.escape(f'{request_id} {what}')} \d+\.\d{{3}} s"
        assert re.fullmatch(pattern, line), line
    assert TOKEN not in log
    assert "secret" not in log


class Broken(Engine):
    """An engine with a defect."""

    facts = {"methods": [], "model": {}, "label_sets": {}}  # noqa: RUF012
    ready = True

    def start(self) -> None:
        """Begin."""

    def close(self) -> None:
        """End."""

    async def answer(self, form: Any) -> dict[str, Any]:  # noqa: ARG002
        """Fail as no engine should."""
        raise ZeroDivisionError("a defect\nof two lines")


def test_of_a_defect_the_log_says_more(photo: Sent, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    app = create_app(Broken(), ServeOptions(), metrics)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)  # an error that leaves the application is raised here
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.post("/v1/classify", data={"labels": "a,b"}, files=[photo])

    answer = asyncio.run(ask())
    request_id = answer.headers["x-request-id"]
    assert problem(answer)["message"] == f"ZeroDivisionError; the log of the service says more under {request_id}"
    assert answer.headers["x-content-type-options"] == "nosniff"
    (record,) = caplog.records
    assert record.message == f"{request_id} ZeroDivisionError: a defect\\nof two lines"
    assert "in answer" in caplog.text  # the traceback
    assert b'faircontext_requests_total{path="/v1/classify",status="500"} 1.0' in metrics.text()
