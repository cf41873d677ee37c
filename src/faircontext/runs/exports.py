"""Files of answers: rows in CSV, a document in JSON; both take images one by one, as they come or from a stored run."""

import csv
import platform
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from faircontext import __version__
from faircontext.files import to_json, write_whole, writing
from faircontext.imageio import MAX_PIXELS
from faircontext.runs.answer import Predictor
from faircontext.runs.classify_options import ClassifyOptions
from faircontext.runs.decisions import Decision
from faircontext.runs.records import CSV_COLUMNS, Answer
from faircontext.runs.shift_options import facts_of_shift

__all__ = ["SCHEMA_VERSION", "EntrySpool", "RowWriter", "describe_run"]

SCHEMA_VERSION = 2
"""Of the JSON document."""


class RowWriter(AbstractContextManager["RowWriter"]):
    """Writes answers to a CSV file as they come, so that an interrupted run keeps what it had.

    Args:
        path: of the file.
        names: of the classes.
        top: how many of the best classes have columns, each with its probability.
        decision: what was made of the answers.
        more: further cells of every row.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[str] = (),
        top: int = 0,
        decision: Decision | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self._path, self._names, self._top, self._more = path, names, top, more or {}
        self._new, self._n, self._decision = not path.exists(), 0, decision or Decision()
        columns = [*CSV_COLUMNS, *self._decision.cell_names, *self._more]
        columns += [f"top{rank}{end}" for rank in range(1, top + 1) for end in ("", "_probability")]
        with writing(path), ExitStack() as stack:
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
            stack.push(self)
            self._writer = csv.DictWriter(self._file, columns, lineterminator="\n")
            # The writer does not quote a lone carriage return, which a reader then takes for the end of the row.
            self._quoting_writer = csv.DictWriter(self._file, columns, lineterminator="\n", quoting=csv.QUOTE_ALL)
            self._writer.writeheader()
            self._file.flush()
            stack.pop_all()

    def add(self, answers: Sequence[Answer]) -> None:
        """Append the answers for an image, a row each, and hand each to the operating system."""
        for answer in answers:
            cells = {**answer.cells(), **self._decision.cells(answer), **self._more}
            for rank, (index, probability) in enumerate(answer.best(self._top), 1):
                cells |= {f"top{rank}": self._names[index], f"top{rank}_probability": f"{probability:.6f}"}
            special = any("\r" in str(cell) for cell in cells.values())
            with writing(self._path):
                (self._quoting_writer if special else self._writer).writerow(cells)
                self._file.flush()
            self._n += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(OSError):  # what could not be written has been said already
            self._file.close()
        if kind is not None and self._new and not self._n:
            self._path.unlink(missing_ok=True)


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


def describe_run(
    options: ClassifyOptions, predictor: Predictor, summary: Mapping[str, Any], images: int = 0
) -> dict[str, Any]:
    """Return everything that the JSON file says of a run but its answers: resolved settings, versions, accuracies.

    Args:
        options: what was asked.
        predictor: what answers.
        summary: of each method, see `Summary.document`.
        images: how many were answered.
    """
    labels = predictor.labels
    return {
        "schema_version": SCHEMA_VERSION,
        "run": {
            "backbone": options.backbone,
            "pretrained": options.pretrained,
            **options.facts_of_weights(),
            "model": dict(labels.backbone.facts),
            "precision": labels.backbone.precision,
            **labels.backbone.engine_facts,
            "device": str(labels.backbone.device),
            "batch_size": labels.backbone.batch_size,
            "threads": torch.get_num_threads(),
            "logit_scale": labels.backbone.logit_scale,
            "methods": {label: method.settings() for label, method in predictor.methods.items()},
            "preset": options.preset,
            "views": asdict(predictor.recipe),
            "templates": labels.templates,
            **({} if labels.descriptions is None else {"descriptions": labels.descriptions}),
            "labels": labels.names,
            "truncate": options.truncate,
            "seed": options.seed,
            **({"stream": {"images": images}} if options.stream else {}),
            **predictor.decision.facts,
            "exif": options.exif,
            "max_pixels": min(options.max_pixels, MAX_PIXELS),
            **facts_of_shift(options.shift),
        },
        "versions": {"faircontext": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "summary": summary,
    }
