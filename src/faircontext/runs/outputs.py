"""Files of answers, which are sinks of a run: CSV, JSON, scores of every class, image features; and text features.

All take images one by one, as they come or from a stored run. Numbers that are written have a function that reads them.
"""

import csv
import io
import json
import platform
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float
from numpy.lib import format as npy

from faircontext import __version__
from faircontext.errors import ArgumentError, reason_of
from faircontext.files import replacing, to_json, write_whole, writing
from faircontext.imageio import MAX_PIXELS
from faircontext.labels import LabelSpace
from faircontext.runs.answer import Predictor
from faircontext.runs.decisions import Decision
from faircontext.runs.option_parts import Say, metadata_of_perturbation
from faircontext.runs.options import ClassifyOptions
from faircontext.runs.plan import Plan
from faircontext.runs.records import CSV_COLUMNS, SCORES_COLUMNS, Answer, readable, schema_of, to_table
from faircontext.runs.sorting import Sorter
from faircontext.runs.summary import Summary

SCHEMA_VERSION = 2
"""Of the JSON document."""

_MANIFEST_VERSION = 1
_AT_ONCE = 256

SCORES = ("path", "label", "method", "probabilities", "cosines")
"""Columns of the file of scores: every class's probability, and the plain view's cosine with its text features."""

EMBEDDINGS = ("path", "label", "embedding")
"""Columns of the file of features: those of the plain view, unit norm."""


class Outputs:
    """The files that options ask for; opened together, so that a wrong argument leaves earlier files as they were."""

    def __init__(self, options: ClassifyOptions, plan: Plan, stack: ExitStack) -> None:
        perturbation, predictor, self._spool = options.perturbation, plan.predictor, None
        self._predictor = predictor
        metadata = {**manifest_of(predictor.labels), **metadata_of_perturbation(perturbation)} if options.stored else {}
        names, decision = predictor.labels.names, predictor.decision
        cells = {} if perturbation is None else {"shift": str(perturbation)}
        self._files: list[RowWriter | TableWriter | ArrayWriter | Sorter] = []
        if options.csv:
            self._files.append(stack.enter_context(RowWriter(options.csv, names, options.top, decision, cells)))
        if options.json:
            self._spool = stack.enter_context(EntrySpool(options.json))
        if options.scores:
            self._files.append(stack.enter_context(TableWriter(options.scores, SCORES, metadata)))
        if path := options.embeddings:
            in_table = path.suffix.lower() == ".parquet"
            self._files.append(
                stack.enter_context(TableWriter(path, EMBEDDINGS, metadata))
                if in_table
                else stack.enter_context(ArrayWriter(path, metadata))
            )
        if folder := options.sort_into:
            sorter = Sorter(folder, plan.dataset.samples, names, options.sort_by == "link")
            self._files.append(stack.enter_context(sorter))

    def __bool__(self) -> bool:
        return bool(self._files or self._spool)

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answers for an image."""
        if self._spool:
            names, decision = self._predictor.labels.names, self._predictor.decision
            self._spool.add([decision.entry(answer, names) for answer in answers])
        for file in self._files:
            file.add(answers)

    def finish(self, options: ClassifyOptions, counts: Summary, warn: Say) -> None:
        """Say what was counted, and write what is written at the end."""
        for line in counts.lines():
            print(line)
        for warning in counts.warnings():
            warn(warning)
        if self._spool:
            document = describe_run(options, self._predictor, counts.document(), counts.images)
            self._spool.write(document, "answers")


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


def manifest_of(labels: LabelSpace) -> dict[str, Any]:
    """Return, for those who read files of numbers, what they were computed with."""
    backbone = labels.backbone
    return {
        "schema_version": _MANIFEST_VERSION,
        "backbone": backbone.name,
        "weights": backbone.weights_hash,
        "precision": backbone.precision,
        "image_size": backbone.image_size,
        "mean": [*backbone.mean],
        "std": [*backbone.std],
        "interpolation": backbone.interpolation,
        "logit_scale": backbone.logit_scale,
        "templates": [*labels.templates],
        "names": [*labels.names],
    }


class TableWriter(AbstractContextManager["TableWriter"]):
    """Writes columns of answers in Parquet, a row for each answer that has the last of them.

    The file takes its name when it is closed, whatever has happened before.

    Args:
        path: of the file.
        columns: their names.
        facts: stored in the schema, as JSON under `faircontext`; see `manifest_of`.
    """

    def __init__(self, path: Path, columns: Sequence[str], facts: Mapping[str, Any]) -> None:
        every = schema_of(SCORES_COLUMNS)
        schema = pa.schema([every.field(name) for name in columns], {"faircontext": to_json(dict(facts), indent=None)})
        self._path, self._schema, self._last, self._rows = path, schema, columns[-1], list[Answer]()
        with ExitStack() as stack:
            partial = stack.enter_context(replacing(path))
            with writing(path):
                self._writer = stack.enter_context(pq.ParquetWriter(partial, schema, compression="zstd"))
            self._stack = stack.pop_all()

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answers for an image."""
        self._rows += [answer for answer in answers if getattr(answer, self._last) is not None]
        if len(self._rows) >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        with writing(self._path):
            self._writer.write_table(to_table(self._rows, self._schema))
        self._rows = []

    def __exit__(self, *_: object) -> None:
        with self._stack:  # where the rest cannot be written, nothing stays of the file
            self._flush()


class ArrayWriter(AbstractContextManager["ArrayWriter"]):
    """Writes the plain views' unit-norm features to `FILE.npy`, a row for each image that could be read.

    Beside it a manifest `FILE.npy.json` says with what they were computed, and names the images in the order of rows.

    Args:
        path: of the file.
        metadata: see `manifest_of`.
    """

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self._path, self._metadata, self._n, self._dim = path, metadata, 0, 0
        with ExitStack() as stack:
            self._names = stack.enter_context(EntrySpool(manifest_path(path)))
            partial = stack.enter_context(replacing(path))
            with writing(path):
                self._file = stack.enter_context(partial.open("wb"))
                self._file.write(_npy_header(0, 0))
            self._stack = stack.pop_all()

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answers for an image, the first of which has its features."""
        if (embedding := answers[0].embedding) is None:
            return
        with writing(self._path):
            self._file.write(embedding.astype("<f4").tobytes())
        self._names.add([{"path": readable(answers[0].path), "label": answers[0].label}])
        self._n, self._dim = self._n + 1, len(embedding)

    def __exit__(self, *_: object) -> None:
        document = {**self._metadata, "shape": [self._n, self._dim], "type": "float32", "unit_norm": True}
        with self._stack:  # where the rest cannot be written, nothing stays of the file
            with writing(self._path):
                self._file.seek(0)
                self._file.write(_npy_header(self._n, self._dim))
                self._file.flush()
            self._names.write(document, "images")


def manifest_path(path: Path) -> Path:
    """Return where the manifest of a `.npy` file lies."""
    return path.with_name(f"{path.name}.json")


def _npy_header(n: int, dim: int) -> bytes:
    """Return the header of an array file; it has room for rows, so that its length does not depend on their number."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, dim)})
    text = file.getvalue()
    return text[:8] + (_HEADER - 10).to_bytes(2, "little") + text[10:-1].ljust(_HEADER - 11) + b"\n"


_HEADER = 256


def read_embeddings(path: Path) -> tuple[Float[np.ndarray, "images dim"], list[str], dict[str, Any]]:
    """Read what `classify --embeddings` has written: features, paths of the images, and the manifest.

    Raises:
        ArgumentError: it cannot be read.
    """
    try:
        if path.suffix.lower() == ".parquet":
            with pq.ParquetFile(path) as file:
                table = file.read()
            values = [np.asarray(row, np.float32) for row in table["embedding"].to_pylist()]
            metadata = json.loads(table.schema.metadata[b"faircontext"])
            return np.stack(values) if values else np.zeros((0, 0), np.float32), table["path"].to_pylist(), metadata
        metadata = json.loads(manifest_path(path).read_text(encoding="utf-8"))
        return np.load(path), [image["path"] for image in metadata.pop("images")], metadata
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise ArgumentError(f"{path}: is no file of embeddings with its manifest: {reason_of(error)}") from None


class Classifier(NamedTuple):
    """Text features of classes.

    Attributes:
        weight: unit norm, a row for each class; the softmax of `logit_scale * features @ weight.T` is zero-shot's.
        names: of the classes.
        facts: see `manifest_of`.
    """

    weight: Float[np.ndarray, "classes dim"]
    names: list[str]
    facts: dict[str, Any]


def write_classifier(path: Path, labels: LabelSpace) -> None:
    """Write zero-shot's text features to a file in safetensors' format, with what they were computed with.

    Raises:
        ArgumentError: it cannot be written.
    """
    from safetensors.numpy import save

    weight = np.ascontiguousarray(labels.zero_shot_text.float().cpu().numpy())
    with replacing(path) as partial:
        # Written here, as the library's own writing says of a full disk what is no OSError.
        partial.write_bytes(save({"weight": weight}, {"faircontext": to_json(manifest_of(labels), indent=None)}))


def read_classifier(path: Path) -> Classifier:
    """Read what `write_classifier` has written.

    Raises:
        ArgumentError: it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            metadata = json.loads((file.metadata() or {})["faircontext"])
            return Classifier(file.get_tensor("weight"), metadata["names"], metadata)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ArgumentError(f"{path}: is no classifier of this package: {reason_of(error)}") from None


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
            "views": predictor.recipe.facts,
            "templates": labels.templates,
            **({} if labels.descriptions is None else {"descriptions": labels.descriptions}),
            "labels": labels.names,
            "truncate": options.truncate,
            "seed": options.seed,
            **({"stream": {"images": images}} if options.stream else {}),
            **predictor.decision.facts,
            "exif": options.exif,
            "max_pixels": min(options.max_pixels, MAX_PIXELS),
            **metadata_of_perturbation(options.perturbation),
        },
        "versions": {"faircontext": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "summary": summary,
    }
