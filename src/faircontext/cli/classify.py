"""`faircontext classify`, `explain`, `demo` and `serve`: predictions for photos, and the evidence that they rest on."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import tyro

from faircontext.cli.options import parse_options, say, warn
from faircontext.errors import ArgumentError
from faircontext.runs.options import ClassifyOptions, ModelOptions
from faircontext.serve.options import ServeOptions


@dataclass(frozen=True)
class Classify(ClassifyOptions):
    """Classify photos with a test-time adaptation method and with zero-shot.

    If images are in folders named after classes, these are the true classes, and both accuracies are printed. Exit code
    0: all classified; 1: some files were unreadable; 2: an invalid argument.
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Image files, folders (searched recursively), patterns, tar archives, Parquet and other tables, URLs of fsspec; -
    reads paths from standard input."""


def classify(arguments: Sequence[str]) -> int:
    """Run `faircontext classify`."""
    options = parse_options(Classify, arguments, "classify")
    options.check()  # before the model's libraries are loaded, which takes seconds
    options.names_for(options.paths)
    if options.out is not None:
        # Arrow's own allocator keeps what it has had, in each thread: with the system's, memory does not grow.
        pa.set_memory_pool(pa.system_memory_pool())
    from faircontext.runs import classify as runs

    return runs.classify(options, options.paths, sys.stdin or (), warn)


@dataclass(frozen=True)
class Unsort:
    """Undo classify --sort-into.

    Removes the copies and links listed in sorted.jsonl of the folder, and folders that are then empty. A copy is kept
    if it was changed, or if its source is gone; then the exit code is 1.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder of --sort-into."""


def unsort(arguments: Sequence[str]) -> int:
    """Run `faircontext unsort`."""
    options = parse_options(Unsort, arguments, "unsort")
    from faircontext.runs.sorting import unsort as run

    removed, kept = run(options.folder)
    stay = f", {kept:,} stay, as they were changed or the photo is gone" if kept else ""
    print(f"{options.folder}: {removed:,} removed{stay}")
    return 1 if kept else 0


@dataclass(frozen=True)
class Explain(ModelOptions):
    """Explain the prediction of FCL for one photo.

    Writes index.html, its figures and arrays to pieces/, and manifest.json.
    """

    image: Annotated[str, tyro.conf.Positional]
    """The image file."""
    out: Path = field(default=Path("explanation"), kw_only=True)
    """Folder for the page, created if it does not exist."""
    save_context: Path | None = field(default=None, kw_only=True)
    """Write the context that FCL learns to this file, which --context reads."""


def explain(arguments: Sequence[str]) -> int:
    """Run `faircontext explain`."""
    options = parse_options(Explain, arguments, "explain")
    if not options.image:
        raise ArgumentError("image is empty; name an image file")
    names, image = options.names(), options.reader()(options.image)
    options.choose_prompts(names)  # before a model is loaded
    from faircontext.report.explain import explain_image as run

    page = run(options, options.image, image, names, options.out, print, warn, options.save_context)
    print(page)
    return 0


@dataclass(frozen=True)
class Demo:
    """Run FCL on sample photos, clean and strongly corrupted, and write evidence maps of each.

    Needs scikit-image for the photos: pip install "faircontext[demo]".
    """

    out: Path = Path("demo")
    """Folder for the pictures."""
    backbone: str = "lite0"
    """See: faircontext list backbones."""
    masks: int = 100
    """Number of masks per image."""
    seed: int = 0
    """Seed of views, masks and noise."""


def demo(arguments: Sequence[str]) -> int:
    """Run `faircontext demo`."""
    options = parse_options(Demo, arguments, "demo")
    say(f"FCL on sample photos, into {options.out}: loading PyTorch takes a few seconds ...")
    from faircontext.report.demo import run_demo, sample_photos

    sample_photos()  # before a model is loaded: it says what to install
    run_demo(options.out, options.backbone, options.masks, options.seed)
    return 0


_NEEDED = ("fastapi", "fastapi_offline", "uvicorn", "python_multipart", "prometheus_client")


@dataclass(frozen=True)
class Serve(ServeOptions):
    """Serve a web page for photos and an HTTP API.

    The page is at /, the API under /v1, its documentation at /docs. The model is loaded once; requests are not stored.
    On SIGTERM or Ctrl-C accepted requests are finished, and the exit code is 0.
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
