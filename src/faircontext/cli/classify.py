"""`faircontext classify`: a method's answers beside zero-shot's, for a person's own photos and class names."""

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from faircontext import __version__
from faircontext.cli.options import ModelOptions, Setup, parse_options
from faircontext.datasets.folder import FolderTruth, class_folders, find_images, name_remarks
from faircontext.errors import ArgumentError, one_line

if TYPE_CHECKING:
    from faircontext.bench.records import RowWriter
    from faircontext.bench.run import Answer, Comparison
    from faircontext.labels import LabelSpace

__all__ = ["Classify", "run"]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Classify(ModelOptions):
    """Answer photos with a test-time adaptation method, beside zero-shot.

    Where images lie in folders that are named after classes, the folder is taken as the truth and both accuracies are
    printed. Exit code 0: all answered; 1: some files were refused; 2: a wrong argument.
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Image files and folders (searched recursively); - reads file names from standard input."""
    labels_from_folders: bool = field(default=False, kw_only=True)
    """Take the names of the folders right below PATHS as class names."""
    method: str = field(default="fcl", kw_only=True)
    """See: faircontext list methods."""
    prompts: str = field(default="single", kw_only=True)
    """Prompt set: single ("a photo of a {}.") or generic7, imagenet80 (FCL then votes over the templates)."""
    strict: bool = field(default=False, kw_only=True)
    """Stop at the first file that is refused."""
    csv: Path | None = field(default=None, kw_only=True)
    """Write a row per image to this file, as they come."""
    json: Path | None = field(default=None, kw_only=True)
    """Write the run, its settings and all answers to this file, at the end."""

    def names(self) -> tuple[str, ...]:
        """Return the class names, of folders where that is asked for."""
        if not self.labels_from_folders:
            return super().names()
        if self.labels is not None or self.labels_file is not None:
            raise ArgumentError("--labels-from-folders leaves no place for --labels or --labels-file; give one of them")
        return class_folders(self.paths)


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Classify, arguments, "classify")
    names = options.names()
    paths = find_images(options.paths, sys.stdin or ())
    read = options.reader()

    from faircontext.bench.records import RowWriter, check_outputs, write_whole
    from faircontext.bench.run import answer_images

    setup = options.create(names, options.method, options.prompts)
    truth = FolderTruth(setup.labels.names, paths, options.paths if options.labels_from_folders else ())
    check_outputs(filter(None, (options.csv, options.json)), [*paths, *filter(None, [options.labels_file])])
    with ExitStack() as stack:
        # Opened last, so that a wrong argument leaves an earlier file as it was.
        writer = stack.enter_context(RowWriter(options.csv)) if options.csv else None
        _print_run(options, setup, len(paths))
        for remark in [*name_remarks(names), *setup.labels.remarks(), *truth.remarks()]:
            print(f"note: {one_line(remark)}", file=sys.stderr)
        answers: list[Answer] = []
        stream = answer_images(paths, setup.labels, setup.method, setup.recipe, options.seed, read, truth)
        interruption: KeyboardInterrupt | None = None
        try:
            _collect(_with_progress(stream, len(paths)), answers, writer, options.strict)
        except KeyboardInterrupt as caught:
            interruption = caught
        finally:
            if options.json:
                document = _report(options, setup, answers)
                write_whole(options.json, json.dumps(document, indent=1, ensure_ascii=False))
        _print_summary(answers, setup.method.name)
    if interruption is not None:
        raise type(interruption)(f"interrupted after {len(answers)} of {len(paths)} images")
    return 1 if any(answer.row.error for answer in answers) else 0


def _collect(stream: "Iterator[Answer]", answers: "list[Answer]", writer: "RowWriter | None", strict: bool) -> None:
    """Append answers as they come and write their rows."""
    for answer in stream:
        answers.append(answer)
        if writer:
            writer.write(answer.row)
        if strict and answer.row.error:
            print(f"stopped at {one_line(answer.row.path)}, as --strict asks: {answer.row.error}", file=sys.stderr)
            break


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
        tqdm.write(one_line(line))


def _print_run(options: Classify, setup: Setup, images: int) -> None:
    """Say what is about to run, with every setting that differs from the paper's."""
    method, recipe, labels = setup.method, setup.recipe, setup.labels
    default = type(method)().settings()
    changed = [f"{name}={value}" for name, value in method.settings().items() if value != default[name]]
    print(
        f"{labels.backbone.name} ({labels.backbone.precision}, {labels.backbone.device}), {method.name}, "
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


def _report(options: Classify, setup: Setup, answers: "Sequence[Answer]") -> dict[str, Any]:
    """Return everything about the run: resolved settings, versions, answers with top-5 and diagnostics."""
    import torch

    from faircontext.bench.run import compare

    comparison: Comparison | None = compare([answer.row for answer in answers])
    method, labels = setup.method, setup.labels
    return {
        "schema_version": SCHEMA_VERSION,
        "run": {
            "backbone": options.backbone,
            "pretrained": options.pretrained,
            "precision": labels.backbone.precision,
            "device": str(labels.backbone.device),
            "batch_size": options.batch_size,
            "threads": torch.get_num_threads(),
            "logit_scale": labels.backbone.logit_scale,
            "method": method.name,
            "preset": options.preset,
            "settings": method.settings(),
            "views": asdict(setup.recipe),
            "templates": labels.templates,
            "labels": labels.names,
            "truncate": options.truncate,
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
