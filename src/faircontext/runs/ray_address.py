"""The address of a Ray cluster: whether a server of gRPC answers there; Ray itself tries for minutes without a word."""

import os
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from faircontext.errors import ArgumentError, FairContextError, first_reason

ADDRESS = "RAY_ADDRESS"
"""Variable of the environment that names a cluster."""

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
    for one in (host, *_own_address(host)):
        try:
            _greet(one, port, seconds)
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
