"""A Ray cluster: whether one answers at its address, which Ray itself tries for minutes without a word; connecting."""

import logging
import os
import socket
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from faircontext.errors import ArgumentError, FairContextError, first_reason

ADDRESS = "RAY_ADDRESS"
"""Variable of the environment that names a cluster."""

_FOLDER = "RAY_TMPDIR"
"""Variable of the environment that names the folder for Ray's sockets and logs, in place of TMPDIR."""

_SECONDS = 10.0
_CLIENT_PORT = 10_001
"""Of Ray's client server, where `ray://` names none."""

_LOOPBACK = ("127.", "localhost", "::1")


def check_address(seconds: float = _SECONDS) -> None:
    """Raise `FairContextError` where the environment names a cluster, and no server answers at its address.

    Args:
        seconds: for a connection, and for an answer.

    Raises:
        ArgumentError: what it names is no address.
        FairContextError: nothing listens there, or what is no server of gRPC, or no host is called so.
    """
    address = os.environ.get(ADDRESS, "")
    scheme, _, place = address.rpartition("://")
    if address in ("", "auto", "local") or scheme not in ("", "ray"):
        return  # Ray looks on this machine, or somebody else's code looks for the cluster
    host, port = None, None
    with suppress(ValueError):  # of a port that is no number
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port or (_CLIENT_PORT if scheme else None)
    if not host or port is None:
        raise ArgumentError(f"invalid {ADDRESS} {address!r}: must be HOST:PORT, ray://HOST:PORT, auto or local")
    problem: Exception = OSError("no such host")
    for candidate in (host, *_own_address(host)):
        try:
            _greet(candidate, port, seconds)
        except (OSError, UnicodeError) as error:
            problem = error
        else:
            return
    raise FairContextError(
        f"{ADDRESS} {address}: no Ray cluster can be reached there: {first_reason(problem)}; start it, correct the "
        f"address, or unset {ADDRESS} for a cluster on this machine"
    )


def _greet(host: str, port: int, seconds: float) -> None:
    """Open a connection as a client of gRPC does; raise `OSError` where no server of gRPC answers."""
    with socket.create_connection((host, port), seconds):
        pass  # what refuses a connection does so at once, and says why
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("", "0", "false"):
        return  # its certificates are Ray's business
    try:
        import grpc
    except ImportError:  # and so is Ray, which is told later
        return
    with grpc.insecure_channel(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(seconds)
        except grpc.FutureTimeoutError:
            raise OSError("no answer, or something else listens there") from None


def _own_address(host: str) -> list[str]:
    """Return the address of this machine that Ray takes in place of the loopback, where a host is that."""
    if not host.startswith(_LOOPBACK):
        return []
    with suppress(ImportError):
        import ray

        return [ray.util.get_node_ip_address()]
    return []


def connect(ray: Any, processors: int, store_mb: int) -> bool:
    """Connect to the cluster that the environment names, or start one here; return whether one was started.

    Args:
        ray: the module.
        processors: of a cluster that is started.
        store_mb: memory of its object store, in MB.

    Raises:
        FairContextError: neither can be done; see `check_address`.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    check_address()
    start_here = not os.environ.get(ADDRESS)
    here = {
        "address": "local",  # else Ray would take a cluster of somebody else's that runs on this machine
        "num_cpus": processors,
        "include_dashboard": False,
        "object_store_memory": store_mb * 2**20,
    }
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **(here if start_here else {}))
    except Exception as error:  # Ray has no class of its own for all that can be wrong
        cause = cause_of(error)
        if "AF_UNIX path length" in cause:  # of its sockets, which lie in the folder for temporary files
            cause += f"; set {_FOLDER} to a folder with a short path, such as /tmp"
        raise FairContextError(f"Ray cannot be started or reached: {cause}") from None
    return start_here


def cause_of(error: Exception) -> str:
    """Return the last line of what Ray says, which is the cause."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1]
