"""The service as a process on a free port, as a user starts it."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from helpers import DEFAULT_SIGNALS

NAMES = ("cat", "dog", "rocket", "horse")
"""Class names that the services of tests are asked about."""

Sent = tuple[str, tuple[str, bytes]]
"""A file as a field of a form: the field, the file's name and its content."""


@dataclass
class Running:
    """A service that runs.

    Attributes:
        url: where it answers.
        process: that it is.
        log: its file of standard error.
    """

    url: str
    process: subprocess.Popen[str]
    log: Path

    def http(self, **options: object) -> httpx.Client:
        """Return an HTTP client of it."""
        return httpx.Client(base_url=self.url, timeout=900, trust_env=False, **options)

    def metric(self, name: str) -> float:
        """Return a metric; 0 where it is not there yet."""
        with self.http() as http:
            found = re.search(rf"^{re.escape(name)} (\S+)$", http.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def wait_for(self, name: str, least: float, seconds: float = 60) -> None:
        """Wait until a metric has a value."""
        end = time.monotonic() + seconds
        while self.metric(name) < least:
            assert time.monotonic() < end, f"{name} stays below {least}"
            time.sleep(0.02)

    def end(self, signal_: int = signal.SIGTERM) -> int:
        """Tell it to end, and return the exit code."""
        self.process.send_signal(signal_)
        return self.process.wait(60)


@contextmanager
def running(folder: Path, *words: str, command: tuple[str, ...] = DEFAULT_SIGNALS) -> Iterator[Running]:
    """Start a service, wait until it answers, and end it afterwards.

    Args:
        folder: for its log.
        words: of the command line.
        command: what is run with them.
    """
    log = folder / "log.txt"
    environment = {**os.environ, "FAIRCONTEXT_CACHE": "off"}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "serve", "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+(?=/ )", line)
        assert found is not None, line + log.read_text()
        yield Running(found[0], process, log)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
        assert process.stdout is not None
        process.stdout.close()


def problem(response: Any) -> dict[str, Any]:
    """Return what a refusal says, and check its form."""
    document = response.json()
    assert list(document) == ["error"]
    error: dict[str, Any] = document["error"]
    assert error["status"] == response.status_code
    assert error["message"]
    assert "\n" not in error["message"]
    assert response.headers["content-type"] == "application/json"
    return error
