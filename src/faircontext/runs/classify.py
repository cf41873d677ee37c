"""Classify a user's photos, beside zero-shot: CSV rows and JSON as predictions come, accuracies at the end."""

import csv
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, fields
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from faircontext import __version__
from faircontext.datasets.class_folders import depth_warnings, keys_below
from faircontext.datasets.folder import find_images
from faircontext.errors import one_line
from faircontext.files import check_outputs, to_json, write_whole, writing
from faircontext.imageio import MAX_PIXELS
from faircontext.labels import LabelSpace
from faircontext.metrics.scores import Comparison, Tally
from faircontext.names import FolderTruth, name_warnings
from faircontext.runs.answer import AnsweredImage, Item, answer_images
from faircontext.runs.options import ClassifyOptions, Say
from faircontext.runs.plan import Setup
from faircontext.runs.records import Row
from faircontext.types import describe_flat, is_flat

__all__ = ["SCHEMA_VERSION", "EntrySpool", "RowWriter", "classify", "describe_run", "json_entries"]

SCHEMA_VERSION = 2


def classify(options: ClassifyOptions, inputs: Sequence[str], listed: Iterable[str], warn: Say) -> int:
    """Answer images, print and write as the options ask, and return the exit code.

    Args:
        options: what is asked.
        inputs: image files and folders, or `-` for `listed`.
        listed: lines of file names that stand for `-`.
        warn: takes warnings.

    Raises:
        FairContextError: an option has a value that cannot be used.
        KeyboardInterrupt: the run was stopped; what was answered is written.
    """
    names = options.names_for(inputs)
    warnings: list[str] = []
    paths = find_images(inputs, listed, warnings.append)
    read = options.reader()
    setup = options.create(names, options.method, options.prompts)
    roots = inputs if options.labels_from_folders else ()
    truth = FolderTruth(setup.labels.names, paths, roots)
    warnings += depth_warnings(keys_below(paths, roots))
    check_outputs(filter(None, (options.csv, options.json)), [*paths, *filter(None, [options.labels_file])])
    with ExitStack() as stack:
        # Opened last, so that a wrong argument leaves an earlier file as it was.
        writer = stack.enter_context(RowWriter(options.csv)) if options.csv else None
        spool = stack.enter_context(EntrySpool(options.json)) if options.json else None
        _print_run(options, setup, len(paths))
        for warning in [*warnings, *name_warnings(names), *setup.labels.warnings(), *truth.warnings()]:
            warn(warning)
        totals = _Totals(setup)
        items = [Item(str(path), path, truth(path)) for path in paths]
        stream = answer_images(items, setup.labels, setup.methods, setup.recipe, options.seed, read)
        interruption: KeyboardInterrupt | None = None
        try:
            for answered in _until_unreadable(_with_progress(stream, len(paths), setup), options.strict):
                totals.add(answered)
                if writer:
                    for row in answered.rows:
                        writer.write(row)
                if spool:
                    spool.add(json_entries(answered, setup.labels))
        except KeyboardInterrupt as caught:
            interruption = caught
        finally:
            totals.print()
            for warning in totals.warnings():
                warn(warning)
            if spool:
                spool.write(describe_run(options, setup, totals.comparisons()), "answers")
    if interruption is not None:
        raise type(interruption)(f"interrupted after {totals.images} of {len(paths)} images")
    return 1 if totals.unreadable else 0


class _Totals:
    """What is printed at the end, counted as answers come: none of them is stored.

    Attributes:
        images: answered or unreadable.
        unreadable: files that have no prediction.
    """

    def __init__(self, setup: Setup) -> None:
        self._tallies = {label: Tally() for label in setup.methods}
        self._warnings: dict[str, tuple[str, int]] = {}
        self.images = self.unreadable = self._fallbacks = 0
        self._seconds = 0.0
        self._localised, self._flat = Counter[str](), Counter[str]()

    def add(self, answered: AnsweredImage) -> None:
        """Count an image."""
        self.images += 1
        self.unreadable += bool(answered.error)
        for warning in answered.warnings:
            first, n = self._warnings.get(warning, (answered.path, 0))
            self._warnings[warning] = first, n + 1
        for row in answered.rows:
            self._fallbacks += bool(row.fallback)
            self._seconds += row.seconds
        for label, prediction in zip(self._tallies, answered.predictions, strict=False):  # none of an unreadable file
            if answered.label is not None and answered.reference is not None:
                self._tallies[label].add(prediction.index == answered.label, answered.reference.index == answered.label)
            self._localised[label] += "common_mean" in prediction.diagnostics
            self._flat[label] += is_flat(prediction.diagnostics)

    def warnings(self) -> list[str]:
        """Return what was decided where files were read, a line for each kind, and where common evidence is flat."""
        return [
            *(
                f"{first}{f' and {n - 1:,} more' * (n > 1)}: {warning}"
                for warning, (first, n) in self._warnings.items()
            ),
            *(describe_flat(label, flat, self._localised[label]) for label, flat in self._flat.items() if flat),
        ]

    def comparisons(self) -> dict[str, Comparison | None]:
        """Compare each method with zero-shot; None where no image has a truth."""
        return {label: tally.comparison() for label, tally in self._tallies.items()}

    def print(self) -> None:
        """Print the counts, and the accuracies where images have a truth."""
        answered, fallbacks, seconds = self.images - self.unreadable, self._fallbacks, self._seconds
        print(f"\n{answered} answered, {self.unreadable} unreadable, {fallbacks} fell back; {seconds:.1f} s")
        for index, (name, comparison) in enumerate(self.comparisons().items()):
            if comparison is None:
                return
            if index == 0:
                print(f"{'zero-shot':12} {comparison.reference}")
            if name != "zero_shot":
                print(f"{name:12} {comparison.accuracy}")
                print(
                    f"  paired: {name} alone right on {comparison.gained}, zero-shot alone right on "
                    f"{comparison.lost}; exact McNemar p = {comparison.p_value:.3g}"
                )


def _until_unreadable(stream: Iterator[AnsweredImage], strict: bool) -> Iterator[AnsweredImage]:
    """Pass answers on, where --strict asks so up to the first unreadable file."""
    for answered in stream:
        yield answered
        if strict and answered.error:
            print(f"stopped at {one_line(answered.path)}, as --strict asks: {answered.error}", file=sys.stderr)
            break


def _with_progress(answers: Iterator[AnsweredImage], total: int, setup: Setup) -> Iterator[AnsweredImage]:
    """Print a line per image, with a progress bar below on a terminal and none in a pipe."""
    names = [*setup.methods]
    single = len(names) == 1
    head = f"{'zero-shot':24} {'prediction':24} {'votes':>5} {'prob.':>6}" if single else _columns(names)
    print(f"{head}  image")
    for answered in tqdm(answers, total=total, unit="image", disable=not sys.stderr.isatty(), leave=False):
        row = answered.rows[0]
        votes = "" if row.votes is None else str(row.votes)
        if answered.error:
            cells = f"{'unreadable: ' + answered.error:{len(head)}}"
        elif single:
            cells = f"{row.zero_shot:24.24} {row.prediction:24.24} {votes:>5} {row.confidence:6.3f}"
        else:
            cells = _columns([row.prediction for row in answered.rows])
        yield answered  # first, so that a row is in its file before anything can go wrong with showing it
        tqdm.write(one_line(f"{cells}  {answered.path}"))


def _columns(cells: Sequence[str], width: int = 14) -> str:
    return " ".join(f"{cell:{width}.{width}}" for cell in cells)


def _print_run(options: ClassifyOptions, setup: Setup, images: int) -> None:
    """Say what is about to run, with every setting that differs from the paper's."""
    recipe, labels = setup.recipe, setup.labels
    summaries = []
    for label, method in setup.methods.items():
        default = type(method)().settings()
        changed = [f"{name}={value}" for name, value in method.settings().items() if value != default[name]]
        summaries.append(f"{label}{' (' + ', '.join(changed) + ')' if changed else ''}")
    print(
        f"{labels.backbone.name} ({labels.backbone.precision}, {labels.backbone.device}), preset {options.preset}; "
        f"{recipe.count} views of scale {recipe.scale[0]:g} to {recipe.scale[1]:g}; seed {options.seed}\n"
        f"{', '.join(summaries)}\n"
        f"{images} image{'s' * (images != 1)}, {len(labels)} class{'es' * (len(labels) != 1)}, "
        f"prompts: {' | '.join(labels.templates[:7])}{' ...' if len(labels.templates) > 7 else ''}"
    )


def describe_run(
    options: ClassifyOptions, setup: Setup, comparisons: Mapping[str, Comparison | None]
) -> dict[str, Any]:
    """Return what the JSON file says of a run besides its answers: resolved settings, versions, accuracies.

    Args:
        options: what was asked.
        setup: what answers.
        comparisons: of each method with zero-shot; None where no image has a truth.
    """
    labels = setup.labels
    return {
        "schema_version": SCHEMA_VERSION,
        "run": {
            "backbone": options.backbone,
            "pretrained": options.pretrained,
            "resize_positions": options.resize_positions,
            "model": dict(labels.backbone.facts),
            "precision": labels.backbone.precision,
            "device": str(labels.backbone.device),
            "batch_size": labels.backbone.batch_size,
            "threads": torch.get_num_threads(),
            "logit_scale": labels.backbone.logit_scale,
            "methods": {label: method.settings() for label, method in setup.methods.items()},
            "preset": options.preset,
            "views": asdict(setup.recipe),
            "templates": labels.templates,
            "labels": labels.names,
            "truncate": options.truncate,
            "seed": options.seed,
            "exif": options.exif,
            "max_pixels": min(options.max_pixels, MAX_PIXELS),
        },
        "versions": {"faircontext": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "summary": {name: _summary(compared) for name, compared in comparisons.items()},
    }


def _summary(compared: Comparison | None) -> dict[str, Any] | None:
    if compared is None:
        return None
    accuracies = {"zero_shot": compared.reference, "method": compared.accuracy}
    counts = {name: {"correct": one.correct, "n": one.n} for name, one in accuracies.items()}
    return {**counts, "gained": compared.gained, "lost": compared.lost, "p_value": compared.p_value}


def json_entries(answered: AnsweredImage, labels: LabelSpace) -> Iterator[dict[str, Any]]:
    """Return an image's entries of the JSON file, one per method, with top-5 and diagnostics."""
    for index, row in enumerate(answered.rows):
        entry = {**asdict(row), "label_index": answered.label, "warnings": answered.warnings}
        if answered.reference is not None:
            prediction = answered.predictions[index]
            top = prediction.ranking[:5].tolist()
            entry["zero_shot_index"] = answered.reference.index
            entry["index"] = prediction.index
            entry["top5"] = [[labels.names[index], float(prediction.probabilities[index])] for index in top]
            entry["candidates"] = [labels.names[index] for index in prediction.candidates]
            entry["diagnostics"] = dict(prediction.diagnostics)
        yield entry


class RowWriter(AbstractContextManager["RowWriter"]):
    """Writes rows to a CSV file as they come, so that an interrupted run keeps what it had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        columns = [field.name for field in fields(Row)]
        with writing(path), ExitStack() as stack:
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
            stack.callback(self.__exit__)
            self._writer = csv.DictWriter(self._file, columns, lineterminator="\n")
            # The writer does not quote a lone carriage return, which a reader then takes for the end of the row.
            self._quoting_writer = csv.DictWriter(self._file, columns, lineterminator="\n", quoting=csv.QUOTE_ALL)
            self._writer.writeheader()
            self._file.flush()
            stack.pop_all()

    def write(self, row: Row) -> None:
        """Append a row and hand it to the operating system."""
        cells = row.cells()
        special = any("\r" in str(cell) for cell in cells.values())
        with writing(self._path):
            (self._quoting_writer if special else self._writer).writerow(cells)
            self._file.flush()

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what could not be written has been said already
            self._file.close()


_SPOOLED_AT_ONCE = 64
"""Entries that are encoded together: each call of `json.dumps` with an indent leaves a reference cycle."""


class EntrySpool(AbstractContextManager["EntrySpool"]):
    """Keeps the entries of a JSON document's last list on disk as they come, until the document is written.

    They lie in a file without a name beside the document, which goes with the process.

    Args:
        path: of the document.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        folder = path.parent if path.is_file() or not path.exists() else None  # not beside a device
        with writing(path):
            self._file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="", dir=folder)  # noqa: SIM115
        self._buffer: list[Mapping[str, Any]] = []

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append entries in one step, so that an interruption leaves all of them or none.

        Raises:
            ArgumentError: it cannot be written, for example because the disk is full.
        """
        self._buffer = [*self._buffer, *entries]
        if len(self._buffer) >= _SPOOLED_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._buffer:
            # Line breaks within strings are escapes: every one here begins a line, indented as in a list of a document.
            lines = to_json(self._buffer).removeprefix("[").removesuffix("\n]").replace("\n", "\n ")
            with writing(self._path):
                self._file.write("," + lines)
            self._buffer = []

    def write(self, document: Mapping[str, Any], name: str) -> None:
        """Write the document in one step, with the entries as a list that comes last; see `write_whole`."""
        self._flush()
        head = to_json({**document, name: []}).removesuffix("[]\n}")
        with writing(self._path):
            self._file.seek(0)
            empty = not self._file.read(1)  # the first entry's comma
        write_whole(self._path, chain([head, "["], self._file, ["]\n}" if empty else "\n ]\n}"]))

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what could not be written has been said already
            self._file.close()
