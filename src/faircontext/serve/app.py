"""The application: the page, and the API under /v1."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from faircontext import __version__
from faircontext.files import to_json
from faircontext.serve.engines import Engine
from faircontext.serve.forms import ClassifyForm, ExplainForm, form_body, read_form
from faircontext.serve.guard import Guard
from faircontext.serve.metrics import Metrics
from faircontext.serve.options import ServeOptions
from faircontext.serve.refusals import Refusal, Refused, closing, refusal_response
from faircontext.serve.schemas import Answers, Health, Labels, Methods, Models, WhyAnswer
from faircontext.serve.service import MAX_LABELS, MAX_LETTERS

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        400: "The body is no form, or ended early.",
        401: "The service asks for a token.",
        403: "The request comes from a page of another site.",
        408: "The request was not sent within its time.",
        413: "A file, a field, the request or the number of images is too large.",
        415: "The request is not multipart/form-data.",
        421: "The service is called by a name that it does not know.",
        422: "A field has a value that cannot be used.",
        429: "Too many images wait; Retry-After says when to come again.",
        500: "A defect of the service.",
        503: "The service is about to end.",
        504: "There was no answer within the time limit.",
    }.items()
}

_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("page", "api", "labels", "photo", "batch")
    },
}
"""Files of the page by address, with their kinds; nothing else is read when the service is asked."""

_STYLES = {"/report.css": ("report.css", "text/css; charset=utf-8")}
"""The styles of the report, which the page has as well."""

_SWAGGER = {
    "/docs/swagger-ui-bundle.js": ("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
    "/docs/swagger-ui.css": ("swagger-ui.css", "text/css; charset=utf-8"),
}
"""What shows the OpenAPI document, from the package fastapi-offline."""


class Application:
    """What the routes share: the engine, the options and the metrics; see `create_app`."""

    def __init__(self, engine: Engine, options: ServeOptions, metrics: Metrics) -> None:
        self.engine, self.options, self.metrics = engine, options, metrics

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Compute while the application runs."""
        self.engine.start()
        yield
        await asyncio.to_thread(self.engine.close)

    async def answer(self, request: Request, form: type[ClassifyForm] | type[ExplainForm]) -> dict[str, Any]:
        """Read a request, compute it when its turn comes, and return the answer.

        Raises:
            Refused: it is not answered.
        """
        options = self.options
        fields, data = await read_form(request, form, options.max_images, options.max_file_mb)
        try:
            return await self._wait(request, fields)
        finally:
            await data.close()  # with it goes all that was sent

    async def _wait(self, request: Request, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
        """Wait for an answer as long as the client does, and no longer than the time limit."""
        done = asyncio.create_task(self.engine.answer(form))
        left = asyncio.create_task(_until_left(request))
        try:
            await asyncio.wait((done, left), timeout=self.options.timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                if left.done():
                    raise Refused(499, "left", "", "the client left")
                seconds = self.options.timeout
                raise Refused(504, "timeout", "images", f"no answer within {seconds:g} seconds; send fewer images")
            if done.cancelled():
                raise closing()
            return done.result()
        finally:
            left.cancel()
            done.cancel()  # also where the server gives up at its end
            await asyncio.gather(done, left, return_exceptions=True)


async def _until_left(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def create_app(engine: Engine, options: ServeOptions, metrics: Metrics) -> FastAPI:
    """Return the application, with what stands before it.

    Args:
        engine: answers forms.
        options: of the service.
        metrics: that are kept.
    """
    shared = Application(engine, options, metrics)
    app = FastAPI(
        title="faircontext",
        version=__version__,
        summary="Fair Context Learning: what a model answers, what adaptation changed, and on what evidence.",
        docs_url=None,
        redoc_url=None,
        lifespan=shared.lifespan,
    )
    _add_answers(app, shared)
    _add_lists(app, shared)
    _add_state(app, shared)
    _add_files(app)
    _add_refusals(app, shared)
    paths = [*app.openapi()["paths"], *_PAGE, *_STYLES, *_SWAGGER, "/openapi.json", "/metrics"]
    app.add_middleware(Guard, options=options, token=options.read_token(), metrics=metrics, paths=paths)
    return app


def _add_answers(app: FastAPI, shared: Application) -> None:
    """Add what computes."""

    @app.post("/v1/classify", response_model=Answers, responses=_REFUSALS, openapi_extra=form_body(ClassifyForm))
    async def classify(request: Request) -> Response:
        """Answer images with one or several methods, zero-shot beside them."""
        return _json(await shared.answer(request, ClassifyForm))

    html: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}

    @app.post("/v1/explain", response_model=WhyAnswer, responses=_REFUSALS | html, openapi_extra=form_body(ExplainForm))
    async def explain(request: Request) -> Response:
        """Show why FCL answers an image as it does: votes, shares before and after, and maps of evidence."""
        document = await shared.answer(request, ExplainForm)
        return HTMLResponse(document["html"]) if "html" in document else _json(document)


def _add_lists(app: FastAPI, shared: Application) -> None:
    """Add what a request may name."""
    options, facts = shared.options, shared.engine.facts
    few: dict[int | str, dict[str, Any]] = {status: _REFUSALS[status] for status in (401, 403, 421)}

    @app.get("/v1/methods", response_model=Methods, responses=few)
    async def methods() -> Response:
        """List the methods that the model can run, with their settings."""
        return _json({"methods": facts["methods"]})

    @app.get("/v1/models", response_model=Models, responses=few)
    async def models() -> Response:
        """Tell which model answers, and what a request may hold."""
        limits = {
            "images": options.max_images,
            "file_mb": options.max_file_mb,
            "request_mb": options.max_request_mb,
            "labels": MAX_LABELS,
            "letters": MAX_LETTERS,
            "seconds": options.timeout,
            "queue": options.queue,
        }
        return _json({"model": facts["model"], "limits": limits, "version": __version__})

    @app.get("/v1/labels", response_model=Labels, responses=few)
    async def labels() -> Response:
        """List the label sets that the service was started with."""
        return _json({"label_sets": facts["label_sets"]})


def _add_state(app: FastAPI, shared: Application) -> None:
    """Add what watches the service."""

    @app.get("/healthz", response_model=Health)
    async def alive() -> Response:
        """Tell that the process is alive."""
        return _json({"status": "alive"})

    @app.get("/readyz", response_model=Health, responses={503: {"model": Refusal}})
    async def ready() -> Response:
        """Tell whether the model is loaded and requests are taken."""
        if not shared.engine.ready:
            raise Refused(503, "closing", "", "the service takes no requests", 10)
        return _json({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(shared.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _add_files(app: FastAPI) -> None:
    """Add the page and the documentation of the API: files of packages, read once."""
    sources = (
        (files("faircontext.serve") / "page", _PAGE),
        (files("faircontext.report") / "templates", _STYLES),
        (files("fastapi_offline") / "static", _SWAGGER),
    )
    for folder, addresses in sources:
        for address, (name, kind) in addresses.items():
            response = partial(Response, (folder / name).read_bytes(), media_type=kind)
            app.add_route(address, partial(_send, response), include_in_schema=False)


async def _send(response: Callable[[], Response], _: Request) -> Response:
    return response()


def _add_refusals(app: FastAPI, shared: Application) -> None:
    """Answer whatever is refused with JSON of one form."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        if not isinstance(error, Refused):
            reason = {404: "unknown_path", 405: "method"}.get(error.status_code, "invalid")
            refusal = Refused(error.status_code, reason, "path", str(error.detail).lower())
            refusal.headers = {**(refusal.headers or {}), **(error.headers or {})}
            error = refusal
        shared.metrics.refusals.labels(error.reason).inc()
        return refusal_response(error)


def _json(document: Any) -> Response:
    return Response(to_json(document, indent=None), media_type="application/json")
