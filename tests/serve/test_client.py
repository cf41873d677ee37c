"""The client: what it sends and returns, and that it comes again when the service is busy."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from faircontext.client import Client, ServiceError
from faircontext.errors import ArgumentError
from services import NAMES, Running


def test_photos_are_answered_in_their_order(service: Running, sent: list[Path]) -> None:
    with Client(service.url, batch=3) as client:
        answers = client.classify(sent[:7], NAMES, method="zero_shot", top_k=2)
        other = client.classify(sent[:7], label_set="pets", method="zero_shot", settings=[])
    assert [entry["path"] for entry in answers] == [path.name for path in sent[:7]]
    assert [bool(entry["error"]) for entry in answers] == [index == 3 for index in range(7)]
    assert [entry["top5"] for entry in answers if not entry["error"]] == [
        entry["top5"] for entry in other if not entry["error"]
    ]
    assert len(answers[0]["top"]) == 2


def test_lists_and_objects_are_sent_as_fields(service: Running, sent: list[Path]) -> None:
    described = {name: [f"a small {name}", "{c}"] for name in NAMES}
    with Client(service.url) as client:
        (own,) = client.classify(sent[:1], NAMES, method="zero_shot", template=["ein {}.", "{}"], unknown="cosine=0.99")
        (other,) = client.classify(sent[:1], NAMES, method="zero_shot", descriptions=described, truncate=True)
    assert own["prediction"] == ""
    assert own["fallback"].startswith("none of these: cosine")
    assert own["top5"] != other["top5"]


def test_an_explanation_is_returned(service: Running, sent: list[Path]) -> None:
    with Client(service.url) as client:
        found = client.explain(sent[0], ["a, b", "c"], settings=["masks=4"])
    assert found["labels"] == ["a, b", "c"]
    assert found["settings"]["masks"] == 4


def test_what_is_refused_is_one_error_with_the_field(service: Running, sent: list[Path], tmp_path: Path) -> None:
    with Client(service.url) as client:
        with pytest.raises(ServiceError, match="unknown method 'fc'") as refused:
            client.classify(sent[:1], NAMES, method="fc")
        with pytest.raises(ArgumentError, match=r"gone\.png: no such file"):
            client.classify([tmp_path / "gone.png"], NAMES)
        with pytest.raises(ArgumentError, match="must be a list of names"):
            client.classify(sent[:1], "cat")
    assert (refused.value.status, refused.value.field) == (422, "method")
    with pytest.raises(ArgumentError, match="must start with http"):
        Client("localhost:8000")


def test_a_service_that_is_not_there_is_tried_again_and_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, retries=2) as client, pytest.raises(ServiceError, match=f"^{url}.*: cannot be reached"):
            client.classify([__file__], NAMES)


class Busy(BaseHTTPRequestHandler):
    """Is busy twice."""

    sizes: list[int] = []  # noqa: RUF012 (of the class: a handler is made for each request)

    def do_POST(self) -> None:
        self.sizes.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
        busy = len(self.sizes) < 3
        body = b'{"error": {"field": "images", "message": "busy"}}' if busy else b'{"answers": [{"path": "00.jpg"}]}'
        self.send_response(429 if busy else 200)
        if busy:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def busy() -> Iterator[str]:
    Busy.sizes.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_busy_service_is_asked_again_with_the_whole_photo(busy: str, sent: list[Path]) -> None:
    with Client(busy) as client:
        assert client.classify(sent[:1], NAMES) == [{"path": "00.jpg"}]
    assert len(Busy.sizes) == 3
    assert len(set(Busy.sizes)) == 1
    assert Busy.sizes[0] > sent[0].stat().st_size
    Busy.sizes.clear()
    with Client(busy, retries=1) as client, pytest.raises(ServiceError, match="busy") as refused:
        client.classify(sent[:1], NAMES)
    assert refused.value.status == 429
