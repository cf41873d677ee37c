"""What stands before the application: headers of safety, who may ask, how long sending may take; counting and log."""

import asyncio
import hmac
import logging
import re
import time
import uuid
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from faircontext.errors import one_line
from faircontext.serve.metrics import Metrics
from faircontext.serve.options import ServeOptions, without_brackets
from faircontext.serve.refusals import Refused, closing, refusal_response

LOG = logging.getLogger("faircontext.serve")
"""Takes defects with their tracebacks, and at the level INFO a line for each request."""

REQUEST_ID = "X-Request-ID"
"""Header that identifies a request; one that a proxy has given is kept."""

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ANSWER_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)
"""Of answers; a page of `explain` has its styles and pictures in it, and no script."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "geolocation=(), microphone=(), camera=(self)",
}

_MB = 10**6


class Guard:
    """Middleware around an ASGI application.

    Args:
        app: the other.
        options: of the service.
        token: that requests must bring; None for none.
        metrics: that are kept.
        paths: that are counted by their own names.
    """

    def __init__(
        self, app: ASGIApp, options: ServeOptions, token: str | None, metrics: Metrics, paths: Iterable[str]
    ) -> None:
        self._app, self._options, self._metrics = app, options, metrics
        self._token = None if token is None else token.encode()
        self._paths = frozenset(paths)
        names = ("localhost", "127.0.0.1", "::1", options.address, *options.hosts)
        self._hosts = {without_brackets(name).lower() for name in names}
        self._heeds_hosts = options.is_local or bool(options.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, path, request_id = time.perf_counter(), _path_of(scope), _id_of(scope)
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                _add_headers(path, headers)
                headers[REQUEST_ID] = request_id
            await send(message)

        # A server leaves out the body of the answer to HEAD, which is otherwise that to GET (RFC 9110, 9.3.2).
        as_get = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            self._check(scope)
            await self._app(as_get, _Bounded(receive, self._options), sending)
        except (Exception, asyncio.CancelledError) as error:
            refused = _refusal_of(error, request_id)
            if status:  # the answer is under way
                raise
            self._metrics.refusals.labels(refused.reason).inc()
            await refusal_response(refused)(scope, receive, sending)
        finally:
            seconds, counted = time.perf_counter() - began, path if path in self._paths else "other"
            self._metrics.requests.labels(counted, str(status)).inc()
            self._metrics.seconds.labels(counted).observe(seconds)
            client = one_line(str((scope.get("client") or ("-",))[0]))
            LOG.info("%s %s %s %s %d %.3f s", request_id, client, scope["method"], quote(path), status, seconds)

    def _check(self, scope: Scope) -> None:
        """Raise `Refused` where a request is not to be read at all."""
        headers = Headers(scope=scope)
        # A page of another site whose name is made to lead here must not ask in a visitor's place.
        if self._heeds_hosts and (host := _host_name(headers.get("host", ""))) not in self._hosts:
            message = f"invalid Host {host[:60]!r}: must be one of {', '.join(sorted(self._hosts))}; see --hosts"
            raise Refused(421, "host", "Host", message)
        path = _path_of(scope)
        cross_site = headers.get("sec-fetch-site") == "cross-site" and path.startswith("/v1/")
        if cross_site and headers.get("origin") not in self._options.allow_origin:
            raise Refused(403, "cross_site", "Sec-Fetch-Site", "invalid request: it comes from a page of another site")
        if self._token is not None and (path.startswith("/v1/") or path == "/metrics"):
            scheme, _, word = headers.get("authorization", "").partition(" ")
            token = word.strip().encode("latin-1", "replace")
            if not hmac.compare_digest(token, self._token) or scheme.lower() != "bearer":
                message = "invalid Authorization: must be Bearer and the token of the service"
                raise Refused(401, "token", "Authorization", message)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._options.max_request_mb * _MB:
            raise _too_large(self._options)


def _path_of(scope: Scope) -> str:
    """Return the path of a request, without the one under which a proxy shows the service."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _id_of(scope: Scope) -> str:
    """Return the id that a proxy has given a request, or a new one."""
    request_id = Headers(scope=scope).get(REQUEST_ID, "")
    return request_id if re.fullmatch(r"[A-Za-z0-9._-]{1,128}", request_id) else uuid.uuid4().hex


def _refusal_of(error: BaseException, request_id: str) -> Refused:
    """Return what is answered in place of an error; a defect goes to the log."""
    if isinstance(error, Refused):  # from before the application had the request
        return error
    if isinstance(error, asyncio.CancelledError):  # the server gives up at its end
        return closing()
    LOG.error("%s %s", request_id, one_line(f"{type(error).__name__}: {error}"), exc_info=error)
    what = f"{type(error).__name__}; the log of the service says more under {request_id}"
    return Refused(500, "defect", "", what)


class _Bounded:
    """Receives a request's body within its time and size."""

    def __init__(self, receive: Receive, options: ServeOptions) -> None:
        self._receive, self._options = receive, options
        self._end = time.monotonic() + options.upload_timeout
        self._size = 0
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:  # what comes now is that the client leaves
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._end - time.monotonic()))
        except TimeoutError:
            seconds = self._options.upload_timeout
            raise Refused(408, "slow", "body", f"the request was not sent within {seconds:g} seconds") from None
        self._size += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._size > self._options.max_request_mb * _MB:
            raise _too_large(self._options)
        return message


def _too_large(options: ServeOptions) -> Refused:
    return Refused(413, "too_large", "body", f"invalid body: a request is larger than {options.max_request_mb:g} MB")


def _host_name(host: str) -> str:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host
    return name.lower()


def _add_headers(path: str, headers: MutableHeaders) -> None:
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    answer = path.startswith("/v1/")
    headers.setdefault("Content-Security-Policy", _ANSWER_POLICY if answer else _PAGE_POLICY)
    headers.setdefault("Cache-Control", "no-store" if answer else "no-cache")
