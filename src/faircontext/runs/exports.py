"""Files of answers: rows in CSV, a document in JSON; both take images one by one, as they come or from a stored run."""

import csv
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from faircontext import __version__
from faircontext.datasets.label_encoder import SEPARATOR
from faircontext.files import to_json, write_whole, writing
from faircontext.imageio import MAX_PIXELS
from faircontext.labels import LabelSpace
from faircontext.runs.answer import AnsweredImage
from faircontext.runs.classify_options import ClassifyOptions
from faircontext.runs.multi_label import given_labels
from faircontext.runs.records import Row
from faircontext.runs.setup import Setup
from faircontext.runs.shift_options import facts_of_shift
from faircontext.types import read_diagnostics

__all__ = ["SCHEMA_VERSION", "EntrySpool", "Export", "RowWriter", "describe_run", "exports_of", "exports_of_rows"]

SCHEMA_VERSION = 2
"""Of the JSON document."""


@dataclass(frozen=True)
class Export:
    """One image and method, as files of answers hold it.

    Attributes:
        row: the columns of the CSV file.
        entry: the entry of the JSON file.
        top: classes that rank highest, best first, with their probabilities.
        probabilities: per class, where they are asked for; see `ScoredRecord`.
        cosines: the same.
        embedding: the same, with the image's first method alone.
        cells: further columns of the CSV file.
    """

    row: Row
    entry: Mapping[str, Any]
    top: Sequence[tuple[str, float]] = ()
    probabilities: np.ndarray | None = None
    cosines: np.ndarray | None = None
    embedding: np.ndarray | None = None
    cells: Mapping[str, str] = field(default_factory=dict)


def exports_of(
    answered: AnsweredImage,
    labels: LabelSpace,
    most: int = 5,
    stored: Sequence[str] = (),
    threshold: float | None = None,
) -> Iterator[Export]:
    """Yield what files hold of an answered image, one method after the other.

    Args:
        answered: the image.
        labels: the label space.
        most: of the best classes.
        stored: what is asked for of `scores` and `embeddings`.
        threshold: of labels, where an image may have several.
    """
    for index, row in enumerate(answered.rows):
        entry = {**asdict(row), "label_index": answered.label, "warnings": answered.warnings}
        top, arrays = list[tuple[str, float]](), dict[str, np.ndarray]()
        if answered.reference is not None:
            prediction = answered.predictions[index]
            best = prediction.ranking[: max(5, most)].tolist()
            top = [(labels.names[index], float(prediction.probabilities[index])) for index in best]
            entry["zero_shot_index"] = answered.reference.index
            entry["index"] = prediction.index
            entry["top5"] = [[*pair] for pair in top[:5]]
            entry["candidates"] = [labels.names[index] for index in prediction.candidates]
            entry["diagnostics"] = dict(prediction.diagnostics)
            if "scores" in stored:
                arrays = {
                    "probabilities": prediction.probabilities.float().numpy(),
                    "cosines": answered.cosines(labels),
                }
            if "embeddings" in stored and index == 0:
                arrays["embedding"] = answered.embedding
        several = {}
        if threshold is not None:
            several = _several(entry, labels.names, answered.labels, answered.label_logits, threshold)
        yield Export(row, entry, top[:most], **arrays, cells=several)


def _several(
    entry: dict[str, Any],
    names: Sequence[str],
    targets: Sequence[int] | None,
    logits: np.ndarray | None,
    threshold: float,
) -> dict[str, str]:
    """Add to an entry the labels of an image that may have several, and return the further columns."""
    for key in ("label", "label_index", "zero_shot", "zero_shot_index", "prediction", "votes"):
        entry.pop(key, None)
    given = [] if logits is None or not len(logits) else given_labels(logits, threshold)
    entry["labels"] = None if targets is None else [names[index] for index in targets]
    entry["predictions"] = [[names[index], score] for index, score in given]
    return {"scores": SEPARATOR.join(f"{score:.6f}" for _, score in given)}


def exports_of_rows(
    rows: pa.Table, names: Sequence[str], methods: Sequence[str], most: int = 5, threshold: float | None = None
) -> Iterator[Export]:
    """Yield what files hold of stored rows, those of some methods, with at most five of the best classes.

    Args:
        rows: see `Record`; an image's stand together.
        names: of the classes.
        methods: what they are called, in the order in which they are yielded.
        most: of the best classes.
        threshold: of labels, where an image may have several.
    """
    for _, image in groupby(rows.to_pylist(), key=itemgetter("position")):
        by_method = {values["method"]: values for values in image}
        embedding = next(filter(len, (values.get("embedding") or () for values in by_method.values())), None)
        for index, method in enumerate(method for method in methods if method in by_method):
            yield _export_of(by_method[method], names, most, embedding if index == 0 else None, threshold)


def _export_of(
    values: Mapping[str, Any],
    names: Sequence[str],
    most: int,
    embedding: Sequence[float] | None,
    threshold: float | None,
) -> Export:
    row = Row(**{column.name: values[column.name] for column in fields(Row)})
    entry: dict[str, Any] = {**asdict(row), "label_index": values["label_index"], "warnings": values["warnings"]}
    top = [(names[i], p) for i, p in zip(values["top5"], values["top5_probabilities"], strict=True)]
    if values["index"] is not None:
        entry |= {"zero_shot_index": values["zero_shot_index"], "index": values["index"]}
        entry["top5"] = [[*pair] for pair in top]
        entry["candidates"] = [names[index] for index in values["candidates"]]
        entry["diagnostics"] = read_diagnostics(values["diagnostics"])
    probabilities, cosines = (_array(values.get(name)) for name in ("probabilities", "cosines"))
    several: dict[str, str] = {}
    if threshold is not None:
        several = _several(entry, names, values["targets"], _array(values["label_logits"]), threshold)
    return Export(row, entry, top[:most], probabilities, cosines, _array(embedding), several)


def _array(values: Sequence[float] | None) -> np.ndarray | None:
    return np.array(values, np.float32) if values else None


class RowWriter(AbstractContextManager["RowWriter"]):
    """Writes rows to a CSV file as they come, so that an interrupted run keeps what it had.

    Args:
        path: of the file.
        top: how many of the best classes have columns, each with its probability.
        more: names of further columns.
    """

    def __init__(self, path: Path, top: int = 0, more: Sequence[str] = ()) -> None:
        self._path, self._top, self._new, self._n = path, top, not path.exists(), 0
        columns = [*Row("").cells(), *more]
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

    def write(self, row: Row, best: Sequence[tuple[str, float]] = (), more: Mapping[str, str] = {}) -> None:
        """Append a row, with the best classes and their probabilities, and hand it to the operating system."""
        cells = {**row.cells(), **more}
        for rank, (name, probability) in enumerate(best[: self._top], 1):
            cells |= {f"top{rank}": name, f"top{rank}_probability": f"{probability:.6f}"}
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


def describe_run(options: ClassifyOptions, setup: Setup, summary: Mapping[str, Any], images: int = 0) -> dict[str, Any]:
    """Return everything that the JSON file says of a run but its answers: resolved settings, versions, accuracies.

    Args:
        options: what was asked.
        setup: what answers.
        summary: of each method, see `Totals.summary`.
        images: how many were answered.
    """
    labels = setup.labels
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
            "methods": {label: method.settings() for label, method in setup.methods.items()},
            "preset": options.preset,
            "views": asdict(setup.recipe),
            "templates": labels.templates,
            **({} if labels.descriptions is None else {"descriptions": labels.descriptions}),
            "labels": labels.names,
            "truncate": options.truncate,
            "seed": options.seed,
            **({"stream": {"images": images}} if options.stream else {}),
            **({} if (rule := setup.rejection) is None else {"unknown": asdict(rule)}),
            **({} if setup.label_rule is None else {"multi_label": setup.label_rule.facts}),
            "exif": options.exif,
            "max_pixels": min(options.max_pixels, MAX_PIXELS),
            **facts_of_shift(options.shift),
        },
        "versions": {"faircontext": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "summary": summary,
    }
