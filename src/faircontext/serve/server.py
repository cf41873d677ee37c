"""The server: binds its port, loads the model, answers until it is told to end, and finishes what it has accepted."""

import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import uvicorn

from faircontext.errors import ArgumentError, reason_of
from faircontext.runs.option_parts import Say
from faircontext.serve.app import create_app
from faircontext.serve.engines import Engine, LocalEngine
from faircontext.serve.guard import LOG
from faircontext.serve.metrics import Metrics
from faircontext.serve.options import ServeOptions
from faircontext.serve.queue import Room
from faircontext.serve.service import Service
from faircontext.system import call_in_own_thread

_GRACE = 30
"""Seconds for what has been accepted, when the server is told to end."""

_MAX_HEADERS = 64 * 2**10
"""Bytes of a request's headers that are kept while more of them come."""


def serve(options: ServeOptions, say: Say) -> int:
    """Answer requests until the process is told to end, and return the exit code.

    Args:
        options: of the service.
        say: takes lines of the log.

    Raises:
        FairContextError: an option has a value that cannot be used, or the port is taken.
    """
    options.check()
    if warning := options.token_warning():
        print(f"faircontext: {warning}", file=sys.stderr, flush=True)
    _open_log(options.access_log)
    with _bound(options) as listening:
        metrics = Metrics()
        with _engine(options, metrics) as engine:
            config = uvicorn.Config(
                create_app(engine, options, metrics),
                http="h11",  # httptools bounds no headers
                h11_max_incomplete_event_size=_MAX_HEADERS,
                log_config=None,
                access_log=False,  # `Guard` has one, with the request's id
                server_header=False,
                root_path=options.root_path,
                timeout_graceful_shutdown=_GRACE,
                lifespan="on",
            )
            with suppress(KeyboardInterrupt):  # uvicorn sends itself the signal again, once all is answered
                _Server(config, partial(say, _opened(options.address, listening.getsockname()[1]))).run([listening])
    say("faircontext: ended")
    if not engine.ended:
        # The worker is inside a library that does not return in time. Without the interpreter under it, it would take
        # the process down with an abort; nobody waits for what it computes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _open_log(access: bool) -> None:
    """Write the service's own log to standard error; the command keeps that of libraries to itself."""
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    LOG.addHandler(lines)
    LOG.setLevel(logging.INFO if access else logging.WARNING)


@contextmanager
def _engine(options: ServeOptions, metrics: Metrics) -> Iterator[Engine]:
    """Load the model, here or on a cluster."""
    sets = options.read_label_sets()
    if options.engine == "local":
        yield LocalEngine(call_in_own_thread(Service, options, sets), metrics, Room(options.queue, metrics))
        return
    from faircontext.serve.ray import engine_on_ray

    with engine_on_ray(options, sets, metrics) as engine:
        yield engine


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._say_started()


def _opened(host: str, port: int) -> str:
    """Return the line that says where a browser finds the service."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"faircontext: open http://{shown}:{port}/ in a browser; Ctrl-C ends it"


@contextmanager
def _bound(options: ServeOptions) -> Iterator[socket.socket]:
    """Take the port, so that it is known to be free before the model is loaded; nobody can connect yet."""
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((options.address, options.port))
        except (OSError, UnicodeError) as error:
            where = f"{options.host}:{options.port}"
            named = isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL
            cure = f"choose another {'--host' if named else '--port'}"
            raise ArgumentError(f"{where}: cannot listen there: {reason_of(error)}; {cure}") from None
        yield listening
