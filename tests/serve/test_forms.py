"""Bodies and headers that no ordinary client sends: cut, of other encodings, or without an end."""

import asyncio
import socket
import time
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from faircontext.serve.guard import Guard
from faircontext.serve.metrics import Metrics
from faircontext.serve.options import ServeOptions
from services import Running, Sent, problem

KIND = "multipart/form-data; boundary=b"


def part(name: str, content: bytes, file: bytes | None = None) -> bytes:
    """Return a part of a form, with the line break after it."""
    named = b"" if file is None else b'; filename="' + file + b'"'
    return (
        b'--b\r\nContent-Disposition: form-data; name="'
        + name.encode()
        + b'"'
        + named
        + b"\r\n\r\n"
        + content
        + b"\r\n"
    )


def send(service: Running, content: bytes, kind: str = KIND) -> Any:
    with service.http() as http:
        return http.post("/v1/classify", content=content, headers={"Content-Type": kind})


def test_a_form_that_ends_early_is_refused(service: Running, photo: Sent) -> None:
    """Its length is as was announced: only the last boundary tells that no part is missing."""
    head = part("labels", b"a,b") + part("method", b"zero_shot")
    first = part("images", photo[1][1], b"1.png")
    whole = head + first + part("images", photo[1][1], b"2.png")
    for cut in (whole, whole[:-2], whole[:-40], head + first + part("seed", b"1"), whole + b"--b", whole + b"--b-"):
        error = problem(send(service, cut))
        assert (error["status"], error["field"]) == (400, "body")
        assert error["message"].startswith("invalid body: ended early")
    for ended in (whole + b"--b--", whole + b"--b--\r\n"):
        answers = send(service, ended).json()["answers"]
        assert [entry["path"] for entry in answers] == ["1.png", "2.png"]


def test_text_is_utf_8(service: Running, photo: Sent) -> None:
    rest = part("method", b"zero_shot") + part("images", photo[1][1], b"1.png") + b"--b--\r\n"
    for field in ("labels", "settings", "strange"):
        error = problem(send(service, part(field, b"caf\xe9,b") + rest))
        expected = (422, field, f"invalid {field}: must be text in UTF-8")
        assert (error["status"], error["field"], error["message"]) == expected
    marked = send(service, part("labels", "\ufeffcat,dog".encode()) + rest).json()
    assert {entry["prediction"] for entry in marked["answers"]} <= {"cat", "dog"}
    assert [one["name"] for one in marked["answers"][0]["top"]] in (["cat", "dog"], ["dog", "cat"])


def test_what_a_form_may_not_have_is_said(service: Running, photo: Sent) -> None:
    form = part("labels", b"a,b") + part("method", b"zero_shot") + part("images", photo[1][1], b"1.png") + b"--b--\r\n"
    for kind, message in (
        ("multipart/form-data", "must be multipart/form-data with a boundary"),
        (f"multipart/form-data; boundary={'x' * 5000}", "the boundary must have at most 256 characters"),
        ("multipart/form-data; charset=utf-16; boundary=b", "charset must be UTF-8, or left out"),
    ):
        error = problem(send(service, form, kind))
        expected = (415, "Content-Type", f"invalid Content-Type: {message}")
        assert (error["status"], error["field"], error["message"]) == expected
    assert send(service, form, "multipart/form-data; charset=UTF-8; boundary=b").status_code == 200
    error = problem(send(service, form.replace(b"1.png", b"x" * 5000)))
    assert (error["status"], error["field"]) == (400, "body")
    assert error["message"].startswith("invalid body: the name of a file or of a field")


def test_names_of_hosts_are_heeded_on_every_address() -> None:
    async def status(options: ServeOptions, host: str) -> int:
        async def inner(scope: Any, receive: Any, send: Any) -> None:
            await Response("answered")(scope, receive, send)

        guard = Guard(inner, options, None, Metrics(), ())
        transport = httpx.ASGITransport(guard)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return (await http.get("/v1/labels", headers={"Host": host})).status_code

    def statuses(options: ServeOptions, *hosts: str) -> list[int]:
        return [asyncio.run(status(options, host)) for host in hosts]

    hosts = ("photos.example.org", "PHOTOS.example.org:443", "[2001:DB8::1]:80", "localhost", "evil.example")
    named = ("Photos.Example.org", "[2001:db8::1]")
    assert statuses(ServeOptions(hosts=named), *hosts) == [200, 200, 200, 200, 421]
    assert statuses(ServeOptions(host="0.0.0.0", insecure=True, hosts=named), *hosts) == [200, 200, 200, 200, 421]
    assert statuses(ServeOptions(host="0.0.0.0", insecure=True), *hosts) == [200] * 5


_BEGINNINGS = {
    "headers": "GET /healthz HTTP/1.1\r\nHost: {host}\r\n",
    "one header": "GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: ",
    "an address": "GET /",
    "trailers": "POST /v1/classify HTTP/1.1\r\nHost: {host}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    "Transfer-Encoding: chunked\r\n\r\n2\r\n--\r\n0\r\n",
}


@pytest.mark.parametrize("kind", _BEGINNINGS)
def test_endless_headers_are_not_kept(service: Running, kind: str) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as endless:
        endless.sendall(_BEGINNINGS[kind].format(host=host).encode())
        with pytest.raises(ConnectionError):  # noqa: PT012 - any of them finds the connection closed
            for number in range(60):
                name, end = ("", "") if kind in ("one header", "an address") else (f"X{number}: ", "\r\n")
                endless.sendall(f"{name}{'a' * 100_000}{end}".encode())
                time.sleep(0.01)


def test_long_headers_are_read(service: Running) -> None:
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        assert http.get("/healthz", headers={"X": "a" * 60_000}).status_code == 200
