"""`faircontext serve`: the page to drop a photo on, and the service."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from faircontext.cli.options import parse_options, say
from faircontext.errors import ArgumentError
from faircontext.serve.options import ServeOptions

_NEEDED = ("fastapi", "fastapi_offline", "uvicorn", "python_multipart", "prometheus_client")


@dataclass(frozen=True)
class Serve(ServeOptions):
    """Show a page to drop photos on, and answer programs over HTTP.

    The page is at /, the API under /v1, its documentation at /docs. The model is loaded once; what is sent is not kept.
    On SIGTERM or Ctrl-C what was accepted is finished, and the exit code is 0.
    """


def serve(arguments: Sequence[str]) -> int:
    """Run `faircontext serve`."""
    options = parse_options(Serve, arguments, "serve")
    options.check()  # before the model's libraries are loaded, which takes seconds
    for package in _NEEDED:
        if find_spec(package) is None:
            raise ArgumentError(f"serve needs {package}, which is not installed: pip install 'faircontext[serve]'")
    from faircontext.serve.server import serve as serve_here

    return serve_here(options, say)
