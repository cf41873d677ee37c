"""A cluster that cannot be reached is one line, before a model is loaded."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faircontext.cli import main
from faircontext.errors import FairContextError
from faircontext.runs.ray import check_address

FIX = "; start it, correct the address, or unset RAY_ADDRESS for a cluster on this machine"


Server = Callable[[bytes], int]


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a function that starts a server which answers every connection with some bytes, and returns its port."""
    started: list[socketserver.TCPServer] = []

    def start(answer: bytes) -> int:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.sendall(answer)
                while self.request.recv(100):
                    pass

        started.append(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=started[-1].serve_forever, args=(0.05,), daemon=True).start()
        port: int = started[-1].server_address[1]
        return port

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


@pytest.fixture
def grpc_port() -> Iterator[int]:
    """The port of a server of gRPC."""
    grpc = pytest.importorskip("grpc")
    running = grpc.server(ThreadPoolExecutor(1))
    port: int = running.add_insecure_port("127.0.0.1:0")
    running.start()
    yield port
    running.stop(None)


@pytest.fixture
def closed() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def said(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(FairContextError) as caught:
        check_address(2.0)
    return str(caught.value)


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}", "ray://127.0.0.1:{}"])
def test_a_port_at_which_nothing_listens_is_refused(form: str, closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    address = form.format(closed)
    line = said(address, monkeypatch)
    assert line.startswith(f"RAY_ADDRESS {address}: no Ray cluster can be reached there: ")
    assert line.endswith(FIX)
    assert "connection refused" in line


def test_a_host_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        held = []
        for _ in range(8):  # until the queue is full, and a further connection waits
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            held.append(one)
        monkeypatch.setattr("faircontext.runs.ray._own_address", lambda _: [])
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        begin = time.monotonic()
        with pytest.raises(FairContextError, match="no Ray cluster can be reached there: timed out"):
            check_address(0.5)
        assert time.monotonic() - begin < 5
        for one in held:
            one.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "host:port", "127.0.0.1:99999", "ray://", ":6379"])
def test_what_is_no_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(address, monkeypatch) == (
        f"invalid RAY_ADDRESS {address!r}: must be HOST:PORT, ray://HOST:PORT, auto or local"
    )


def test_what_answers_as_ray_or_is_not_named_is_left_to_ray(
    server: Server, grpc_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = grpc_port
    for address in ("", "auto", "local", "anyscale://x", f"127.0.0.1:{port}", f"ray://localhost:{port}"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        check_address(2.0)
    port = server(b"\x15\x03\x03\x00\x02\x02\x46")  # an alert of TLS
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    monkeypatch.setenv("RAY_USE_TLS", "1")
    check_address(2.0)


@pytest.mark.parametrize("answer", [b"-ERR unknown command\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b""])
def test_another_server_is_refused(answer: bytes, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr("faircontext.runs.ray._own_address", lambda _: [])
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server(answer)}")
    with pytest.raises(FairContextError, match="there: no answer, or something else listens there; "):
        check_address(0.5)


def test_commands_say_it_before_a_model_is_loaded(
    closed: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed}")
    monkeypatch.setattr("faircontext.backbones.create_backbone", None)
    evaluate = ["evaluate", "--datasets", "x", "--root", str(tmp_path), "--out", f"{tmp_path}/out", "--engine", "ray"]
    for words in (evaluate, ["serve", "--labels", "cat,dog", "--engine", "ray"]):
        pytest.importorskip("fastapi" if words[0] == "serve" else "torch", reason="needs the extra serve")
        begin = time.monotonic()
        assert main(words) == 2
        assert time.monotonic() - begin < 20
        err = capsys.readouterr().err
        assert err.startswith(f"faircontext: RAY_ADDRESS 127.0.0.1:{closed}: no Ray cluster can be reached there: ")
        assert err.endswith(f"{FIX}\n")


def test_a_folder_with_a_long_path_is_named_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    from faircontext.runs.ray import connect

    monkeypatch.setenv("TMPDIR", str(tmp_path / ("x" * 100)))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    cure = "; set RAY_TMPDIR to a folder with a short path, such as /tmp$"
    with pytest.raises(FairContextError, match=rf"^Ray cannot be started or reached: .*AF_UNIX path length .*{cure}"):
        connect(ray, 1, 128)
