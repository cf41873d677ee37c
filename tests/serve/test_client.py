"""The client: what it sends and returns, and that it comes again when the service is busy."""

import email.utils
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from faircontext.client import Client, ServiceError
from faircontext.errors import ArgumentError, LabelError
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


def test_an_explanation_is_returned_as_a_page(service: Running, sent: list[Path]) -> None:
    with Client(service.url) as client:
        page = client.explain(sent[0], ["a, b", "c"], settings=["masks=4"], format="html")
        assert page.startswith("<!doctype html>")
        assert "a, b" in page
        with pytest.raises(ServiceError, match="unknown setting") as refused:
            client.explain(sent[0], NAMES, settings=["maks=4"], format="html")
    assert (refused.value.status, refused.value.field) == (422, "settings")


def test_answers_have_the_names_of_the_files_as_they_are_here(
    service: Running, sent: list[Path], tmp_path: Path
) -> None:
    names = ['a "b".jpg', "a %22b%22.jpg", "日本é.jpg", "back\\slash.jpg", "two\nlines.jpg"]
    for name in names:
        (tmp_path / name).write_bytes(sent[0].read_bytes())
    stray = tmp_path / os.fsdecode(b"stray\xff.jpg")
    stray.write_bytes(sent[3].read_bytes())  # which is broken
    paths = [*(tmp_path / name for name in names), stray]
    with Client(service.url, batch=4) as client:
        answers = client.classify(paths, NAMES, method="zero_shot,mta")
    assert [entry["path"] for entry in answers] == [
        name for name in [*names, r"stray\udcff.jpg"] for _ in ("zero_shot", "mta")
    ]
    assert [bool(entry["error"]) for entry in answers] == [False] * 10 + [True] * 2


def test_class_names_arrive_as_they_are_or_are_refused(service: Running, sent: list[Path]) -> None:
    names = ["a, b", "c#", 'a "quoted" name', "日本"]
    with Client(service.url) as client:
        assert client.explain(sent[0], names, settings=["masks=4"], seed=None)["labels"] == names
        for labels, message in [
            (["", "dog"], "class name number 1 is blank"),
            (["horse", "cat\ndog"], r"class name number 2, 'cat\\ndog', has control characters"),
            (["cat\rdog", "horse"], "class name number 1, .* has control characters"),
            (["#1 dog", "horse"], "class name number 1, '#1 dog', starts with #"),
        ]:
            with pytest.raises((ArgumentError, LabelError), match=message) as refused:
                client.classify(sent[:1], labels)
            assert "\n" not in str(refused.value)


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


class Strange(BaseHTTPRequestHandler):
    """Answers each request with the next of some replies: a status, headers and a body."""

    replies: list[tuple[int, dict[str, str], bytes]] = []  # noqa: RUF012 (of the class: each request has a handler)
    sizes: list[int] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.sizes.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
        status, headers, body = self.replies.pop(0)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def strange() -> Iterator[str]:
    """The address of a service that answers as `Strange.replies` say."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Strange) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


OTHERS = ("[1]", "{}", '{"a": 1}', '{"answers": 3}', '{"answers": []}', '{"answers": [1]}', "null", "<html>")
NO_PROBLEMS = ('{"error": "x"}', '{"error": {}}', '{"error": {"message": 5}}', '{"error": [1]}')


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("body", [*OTHERS, *NO_PROBLEMS])
def test_answers_that_are_none_are_one_error(strange: str, sent: list[Path], status: int, body: str) -> None:
    with Client(strange, retries=0) as client:
        Strange.replies[:] = [(status, {}, body.encode())] * 2
        with pytest.raises(ServiceError, match=f"^{strange}/v1/classify: status {status} with no") as refused:
            client.classify(sent[:1], NAMES)
        assert (refused.value.status, refused.value.field) == (status, "")
        with pytest.raises(ServiceError, match=f"^{strange}/v1/explain: status {status} with none of"):
            client.explain(sent[0], NAMES)


def test_a_busy_service_is_asked_again_with_the_whole_photo(strange: str, sent: list[Path]) -> None:
    busy = (429, {"Retry-After": "0"}, b'{"error": {"field": "images", "message": "busy"}}')
    Strange.sizes.clear()
    Strange.replies[:] = [busy, busy, (200, {}, b'{"answers": [{"path": "00.jpg"}]}')]
    with Client(strange) as client:
        assert client.classify(sent[:1], NAMES) == [{"path": "00.jpg"}]
    assert len(Strange.sizes) == 3
    assert len(set(Strange.sizes)) == 1
    assert Strange.sizes[0] > sent[0].stat().st_size
    Strange.replies[:] = [busy, busy]
    with Client(strange, retries=1) as client, pytest.raises(ServiceError, match="busy") as refused:
        client.classify(sent[:1], NAMES)
    assert refused.value.status == 429


def test_a_busy_service_may_say_until_when(strange: str, sent: list[Path]) -> None:
    good = (200, {}, b'{"answers": [{"path": "00.jpg"}]}')
    for after in ("Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 -0000", "-5", "0"):
        Strange.replies[:] = [(429, {"Retry-After": after}, b"busy"), good]
        with Client(strange, retries=1) as client:
            assert client.classify(sent[:1], NAMES) == [{"path": "00.jpg"}]
    until = int(time.time()) + 2
    Strange.replies[:] = [(429, {"Retry-After": email.utils.formatdate(until, usegmt=True)}, b"busy"), good]
    with Client(strange, retries=1) as client:
        assert client.classify(sent[:1], NAMES) == [{"path": "00.jpg"}]
    assert time.time() > until - 0.1


WRONG = {
    "classify(Path('cat.jpg'))": "invalid paths 'cat.jpg': must be a list of image files",
    "classify('cat.jpg')": "invalid paths 'cat.jpg': must be a list of image files",
    "classify([], labels=[1, 2])": "class name number 1 is 1, not a string",
    "classify([], labels='cat')": "invalid labels 'cat': must be a list of names",
    "classify([], labels={'cat', 'dog'})": "must be a list of names",
    "classify([], settings='masks=5')": "invalid settings 'masks=5': must be a list of texts, each name=value",
    "classify([], settings=[5])": "invalid settings [5]: must be a text",
    "classify([], seed=1.5)": "invalid seed 1.5: must be a text, a whole number",
    "classify([], template=[None])": "invalid template [None]: must be a text",
    "classify([], descriptions={'cat': {1}})": "invalid descriptions {'cat': {1}}: must be a text",
    "classify([], method='\\udcff')": "invalid method \\udcff: must be a text",
    "explain('cat.jpg', ['a', 'b'], format=3.5)": "invalid format 3.5: must be a text",
    "__init__('http://127.0.0.1:9', token='é' * 20)": "invalid token: must be of ASCII letters",
    "__init__('http://127.0.0.1:9', token='a' * 20 + '\\n')": "invalid token: must be of ASCII letters",
}


def test_arguments_of_other_kinds_are_refused_in_one_line() -> None:
    """In a process of its own, as a user runs it: the run-time type checker of the tests would refuse them first."""
    script = f"""
import json
from pathlib import Path
from faircontext.client import Client
from faircontext.errors import FairContextError
client, said = Client("http://127.0.0.1:9"), []
assert client.classify([], ["a", "b"], seed=None) == []
for call in {[*WRONG]!r}:
    try:
        eval("client." + call)
    except FairContextError as error:
        said.append(str(error))
print(json.dumps(said))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = json.loads(run.stdout)
    for message, wanted in zip(said, WRONG.values(), strict=True):
        assert wanted in message
        assert "\n" not in message
