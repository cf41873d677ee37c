"""`faircontext classify`: a method's answers beside zero-shot's, for a person's own photos and class names."""

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from faircontext import __version__
from faircontext.datasets.folder import class_names, find_images, remarks
from faircontext.errors import check_minimum
from faircontext.imageio import MAX_PIXELS, read_image

if TYPE_CHECKING:
    from faircontext.bench.records import RowWriter
    from faircontext.bench.run import Answer, Comparison
    from faircontext.labels import LabelSpace
    from faircontext.methods import Method
    from faircontext.views import ViewRecipe

__all__ = ["Classify", "run"]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Classify:
    """Answer photos with a test-time adaptation method, beside zero-shot.

    Where images lie in folders that are named after classes, the folder is taken as the truth and both accuracies are
    printed. Exit code 0: all answered; 1: some files were refused; 2: a wrong argument.
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Image files and folders (searched recursively); - reads file names from standard input."""
    labels: str | None = None
    """Class names with commas between."""
    labels_file: Path | None = None
    """File with a class name a line."""
    backbone: str = "lite0"
    """See: faircontext list backbones."""
    method: str = "fcl"
    """See: faircontext list methods."""
    preset: str = "recommended"
    """Settings to start from: paper, recommended (for the backbone) or official."""
    set: tuple[str, ...] = ()
    """Settings of the method, as name=value, over the preset's: --set masks=50 steps=1."""
    prompts: str = "single"
    """Prompt set: single ("a photo of a {}.") or generic7 (FCL then votes over seven templates)."""
    seed: int = 0
    """Seed of views and masks."""
    device: str = "cpu"
    """Torch device of the backbone."""
    precision: str = "auto"
    """Of the image tower: auto (bf16 where the processor computes in it), fp32, bf16 or fp16."""
    batch_size: int = 16
    """Rows of an image encoder batch, a multiple of 16; on a CPU always 16."""
    exif: bool = True
    """Apply the EXIF orientation of photos (published numbers are often measured without)."""
    max_pixels: int = MAX_PIXELS
    """Larger images are refused."""
    strict: bool = False
    """Stop at the first file that is refused."""
    csv: Path | None = None
    """Write a row per image to this file, as they come."""
    json: Path | None = None
    """Write the run, its settings and all answers to this file, at the end."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = tyro.cli(Classify, args=arguments, prog="faircontext classify")
    names = class_names(options.labels, options.labels_file)
    paths = find_images(options.paths, sys.stdin or ())

    from faircontext.backbones import create_backbone
    from faircontext.backbones.prompts import prompt_set
    from faircontext.bench.records import RowWriter, check_outputs, write_whole
    from faircontext.bench.run import answer_images
    from faircontext.labels import LabelSpace
    from faircontext.methods import create_method, parse_settings

    settings: dict[str, Any] = parse_settings(options.method, options.set)
    templates = prompt_set(options.prompts)
    create_method(options.method, **settings)  # a wrong setting is found before the model is loaded
    check_minimum("seed", options.seed, 0)
    check_minimum("max_pixels", options.max_pixels, 1)
    read = partial(read_image, max_pixels=options.max_pixels, exif=options.exif)
    backbone = create_backbone(
        options.backbone, device=options.device, precision=options.precision, batch_size=options.batch_size
    )
    method = create_method(options.method, preset=options.preset, backbone=backbone, **settings)
    recipe = backbone.view_recipe(options.preset)
    labels = LabelSpace(names, backbone, templates)
    check_outputs(filter(None, (options.csv, options.json)), [*paths, *filter(None, [options.labels_file])])
    with ExitStack() as stack:
        # Opened last, so that a wrong argument leaves an earlier file as it was.
        writer = stack.enter_context(RowWriter(options.csv)) if options.csv else None
        _print_run(options, method, recipe, labels, len(paths))
        for remark in remarks(names, paths):
            print(f"note: {remark}", file=sys.stderr)
        answers: list[Answer] = []
        stream = answer_images(paths, labels, method, recipe, options.seed, read)
        try:
            interrupted = _collect(_with_progress(stream, len(paths)), answers, writer, options.strict)
        finally:
            if options.json:
                document = _report(options, method, recipe, labels, answers)
                write_whole(options.json, json.dumps(document, indent=1, ensure_ascii=False))
        _print_summary(answers, method.name)
    if interrupted:
        print(f"interrupted after {len(answers)} of {len(paths)} images", file=sys.stderr)
        return 130
    return 1 if any(answer.row.error for answer in answers) else 0


def _collect(stream: "Iterator[Answer]", answers: "list[Answer]", writer: "RowWriter | None", strict: bool) -> bool:
    """Append answers as they come, write their rows, and return whether Ctrl-C ended it."""
    try:
        for answer in stream:
            answers.append(answer)
            if writer:
                writer.write(answer.row)
            if strict and answer.row.error:
                print(f"stopped at {answer.row.path}, as --strict asks: {answer.row.error}", file=sys.stderr)
                break
    except KeyboardInterrupt:
        return True
    return False


def _with_progress(answers: "Iterator[Answer]", total: int) -> "Iterator[Answer]":
    """Print a line per image, with a progress bar below on a terminal and none in a pipe."""
    from tqdm import tqdm

    print(f"{'zero-shot':24} {'prediction':24} {'votes':>5} {'prob.':>6}  image")
    for answer in tqdm(answers, total=total, unit="image", disable=not sys.stderr.isatty(), leave=False):
        row = answer.row
        votes = "" if row.votes is None else str(row.votes)
        line = (
            f"{'refused: ' + row.error:62}  {row.path}"
            if row.error
            else f"{row.zero_shot:24.24} {row.prediction:24.24} {votes:>5} {row.confidence:6.3f}  {row.path}"
        )
        yield answer  # first, so that a row is in its file before anything can go wrong with showing it
        tqdm.write(line.encode(errors="replace").decode())


def _print_run(options: Classify, method: "Method", recipe: "ViewRecipe", labels: "LabelSpace", images: int) -> None:
    """Say what is about to run, with every setting that differs from the paper's."""
    default = type(method)().settings()
    changed = [f"{name}={value}" for name, value in method.settings().items() if value != default[name]]
    print(
        f"{options.backbone} ({labels.backbone.precision}, {labels.backbone.device}), {method.name}, "
        f"preset {options.preset}{': ' + ', '.join(changed) if changed else ''}; "
        f"{recipe.number} views of scale {recipe.scale[0]:g} to {recipe.scale[1]:g}; seed {options.seed}\n"
        f"{images} image{'s' * (images != 1)}, {len(labels)} class{'es' * (len(labels) != 1)}, "
        f"prompts: {' | '.join(labels.templates)}"
    )


def _print_summary(answers: "Sequence[Answer]", method: str) -> None:
    from faircontext.bench.run import compare

    rows = [answer.row for answer in answers]
    refused, fallbacks = sum(bool(row.error) for row in rows), sum(bool(row.fallback) for row in rows)
    seconds = sum(row.seconds for row in rows)
    print(f"\n{len(rows) - refused} answered, {refused} refused, {fallbacks} fell back; {seconds:.1f} s")
    comparison = compare(rows)
    if comparison is None:
        return
    print(f"zero-shot  {comparison.zero_shot}")
    if method != "zero_shot":
        print(f"{method:10} {comparison.method}")
        print(
            f"paired: {method} alone right on {comparison.gained}, zero-shot alone right on {comparison.lost}; "
            f"exact McNemar p = {comparison.p_value:.3g}"
        )


def _report(
    options: Classify, method: "Method", recipe: "ViewRecipe", labels: "LabelSpace", answers: "Sequence[Answer]"
) -> dict[str, Any]:
    """Return everything about the run: resolved settings, versions, answers with top-5 and diagnostics."""
    import torch

    from faircontext.bench.run import compare

    comparison: Comparison | None = compare([answer.row for answer in answers])
    return {
        "schema_version": SCHEMA_VERSION,
        "run": {
            "backbone": options.backbone,
            "precision": labels.backbone.precision,
            "device": str(labels.backbone.device),
            "batch_size": options.batch_size,
            "threads": torch.get_num_threads(),
            "logit_scale": labels.backbone.logit_scale,
            "method": method.name,
            "preset": options.preset,
            "settings": method.settings(),
            "views": asdict(recipe),
            "templates": labels.templates,
            "labels": labels.names,
            "seed": options.seed,
            "exif": options.exif,
            "max_pixels": options.max_pixels,
        },
        "versions": {"faircontext": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "summary": None if comparison is None else asdict(comparison),
        "answers": [_entry(answer, labels) for answer in answers],
    }


def _entry(answer: "Answer", labels: "LabelSpace") -> dict[str, Any]:
    entry = {**asdict(answer.row), "notes": answer.notes}
    prediction = answer.prediction
    if prediction is not None:
        top = prediction.ranking[:5].tolist()
        entry["index"] = prediction.index
        entry["top5"] = [[labels.names[index], float(prediction.probabilities[index])] for index in top]
        entry["candidates"] = [labels.names[index] for index in prediction.candidates]
        entry["diagnostics"] = dict(prediction.diagnostics)
    return entry
