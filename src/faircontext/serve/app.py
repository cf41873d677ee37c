"""The application: the page, and the API under /v1."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from faircontext import __version__
from faircontext.files import to_json
from faircontext.serve.engines import Engine
from faircontext.serve.forms import ClassifyForm, ExplainForm, form_body, read_form
from faircontext.serve.guard import REQUEST_ID, Guard
from faircontext.serve.metrics import Metrics
from faircontext.serve.options import ServeOptions
from faircontext.serve.refusals import Refusal, Refused, closing, refusal_response
from faircontext.serve.schemas import Answers, Health, Labels, Methods, Models, WhyAnswer
from faircontext.serve.service import MAX_LABELS, MAX_LETTERS

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        400: "The body is no form and no JSON, or ended early.",
        401: "The service asks for a token.",
        403: "The request comes from a page of another site.",
        408: "The request was not sent within its time.",
        413: "A file, a field, the request or the number of images is too large.",
        415: "The request is neither multipart/form-data nor application/json.",
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


_FEW: dict[int | str, dict[str, Any]] = {status: _REFUSALS[status] for status in (401, 403, 421)}

_HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}

_ROUTES = APIRouter()


def create_app(engine: Engine, options: ServeOptions, metrics: Metrics) -> FastAPI:
    """Return the application, with what stands before it.

    Args:
        engine: answers forms.
        options: of the service.
        metrics: that are kept.
    """
    app = FastAPI(
        title="faircontext",
        version=__version__,
        summary="Fair Context Learning: what a model answers, what adaptation changed, and on what evidence.",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.engine, app.state.options, app.state.metrics = engine, options, metrics
    app.include_router(_ROUTES)
    app.add_exception_handler(HTTPException, _refuse)
    sources = (
        (files("faircontext.serve") / "page", _PAGE),
        (files("faircontext.report") / "templates", _STYLES),
        (files("fastapi_offline") / "static", _SWAGGER),
    )
    for folder, addresses in sources:
        for address, (name, kind) in addresses.items():
            response = partial(Response, (folder / name).read_bytes(), media_type=kind)
            app.add_route(address, partial(_send, response), include_in_schema=False)
    paths = [*app.openapi()["paths"], *_PAGE, *_STYLES, *_SWAGGER, "/openapi.json", "/metrics"]
    app.add_middleware(Guard, options=options, token=options.read_token(), metrics=metrics, paths=paths)
    if options.allow_origin:  # before all else: a browser asks without a token, and reads refusals too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.allow_origin,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", REQUEST_ID),
            expose_headers=(REQUEST_ID, "Retry-After"),
        )
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Compute while the application runs."""
    app.state.engine.start()
    yield
    await asyncio.to_thread(app.state.engine.close)


async def _send(response: Callable[[], Response], _: Request) -> Response:
    return response()


def _json(document: Any) -> Response:
    return Response(to_json(document, indent=None), media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer whatever is refused with JSON of one form."""
    assert isinstance(error, HTTPException)
    if not isinstance(error, Refused):
        reason = {404: "unknown_path", 405: "method"}.get(error.status_code, "invalid")
        refusal = Refused(error.status_code, reason, "path", str(error.detail).lower())
        refusal.headers = {**(refusal.headers or {}), **(error.headers or {})}
        error = refusal
    request.app.state.metrics.refusals.labels(error.reason).inc()
    return refusal_response(error)


# What computes


@_ROUTES.post("/v1/classify", response_model=Answers, responses=_REFUSALS, openapi_extra=form_body(ClassifyForm))
async def classify(request: Request) -> Response:
    """Answer images with one or several methods, zero-shot beside them."""
    return _json(await _answer(request, ClassifyForm))


@_ROUTES.post(
    "/v1/explain", response_model=WhyAnswer, responses=_REFUSALS | _HTML, openapi_extra=form_body(ExplainForm)
)
async def explain(request: Request) -> Response:
    """Show why FCL answers an image as it does: votes, shares before and after, and maps of evidence."""
    document = await _answer(request, ExplainForm)
    return HTMLResponse(document["html"]) if "html" in document else _json(document)


async def _answer(request: Request, form: type[ClassifyForm] | type[ExplainForm]) -> dict[str, Any]:
    """Read a request, compute it when its turn comes, and return the answer.

    Raises:
        Refused: it is not answered.
    """
    options = request.app.state.options
    fields, data = await read_form(request, form, options.max_images, options.max_file_mb)
    try:
        return await _wait(request, fields)
    finally:
        await data.close()  # with it goes all that was sent


async def _wait(request: Request, form: ClassifyForm | ExplainForm) -> dict[str, Any]:
    """Wait for an answer as long as the client does, and no longer than the time limit."""
    seconds = request.app.state.options.timeout
    done: asyncio.Task[dict[str, Any]] = asyncio.create_task(request.app.state.engine.answer(form))
    left = asyncio.create_task(_until_left(request))
    try:
        await asyncio.wait((done, left), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            if left.done():
                raise Refused(499, "left", "", "the client left")
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


# What a request may name


@_ROUTES.get("/v1/methods", response_model=Methods, responses=_FEW)
async def methods(request: Request) -> Response:
    """List the methods that the model can run, with their settings."""
    return _json({"methods": request.app.state.engine.facts["methods"]})


@_ROUTES.get("/v1/models", response_model=Models, responses=_FEW)
async def models(request: Request) -> Response:
    """Tell which model answers, and what a request may hold."""
    options: ServeOptions = request.app.state.options
    limits = {
        "images": options.max_images,
        "file_mb": options.max_file_mb,
        "request_mb": options.max_request_mb,
        "labels": MAX_LABELS,
        "letters": MAX_LETTERS,
        "seconds": options.timeout,
        "queue": options.queue,
    }
    return _json({"model": request.app.state.engine.facts["model"], "limits": limits, "version": __version__})


@_ROUTES.get("/v1/labels", response_model=Labels, responses=_FEW)
async def labels(request: Request) -> Response:
    """List the label sets that the service was started with."""
    return _json({"label_sets": request.app.state.engine.facts["label_sets"]})


# What watches the service


@_ROUTES.get("/healthz", response_model=Health)
async def alive() -> Response:
    """Tell that the process is alive."""
    return _json({"status": "alive"})


@_ROUTES.get("/readyz", response_model=Health, responses={503: {"model": Refusal}})
async def ready(request: Request) -> Response:
    """Tell whether the model is loaded and requests are taken."""
    if not request.app.state.engine.ready:
        raise Refused(503, "closing", "", "the service takes no requests", 10)
    return _json({"status": "ready"})


@_ROUTES.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Return the metrics for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
