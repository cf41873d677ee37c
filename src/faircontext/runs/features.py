"""Numbers of images and classes as files: scores of every class, image features with a manifest, text features.

What is written here is read here: each kind has a function that reads it back.
"""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float
from numpy.lib import format as npy

from faircontext.errors import ArgumentError, reason_of
from faircontext.files import replacing, to_json, writing
from faircontext.labels import LabelSpace
from faircontext.runs.exports import EntrySpool
from faircontext.runs.records import Answer

__all__ = [
    "Classifier",
    "EmbeddingsWriter",
    "ScoresWriter",
    "manifest_of",
    "read_classifier",
    "read_embeddings",
    "write_classifier",
]

SCHEMA_VERSION = 1
_AT_ONCE = 256

_SCORES = [
    ("path", pa.string()),
    ("label", pa.string()),
    ("method", pa.string()),
    ("probabilities", pa.list_(pa.float32())),
    ("cosines", pa.list_(pa.float32())),
]
_EMBEDDINGS = [("path", pa.string()), ("label", pa.string()), ("embedding", pa.list_(pa.float32()))]


def manifest_of(labels: LabelSpace) -> dict[str, Any]:
    """Return, for those who read files of numbers, what they were computed with."""
    backbone = labels.backbone
    return {
        "schema_version": SCHEMA_VERSION,
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


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


class _Table:
    """A Parquet file that takes its name when it is closed, whatever has happened before.

    Args:
        path: of the file.
        columns: names and types.
        facts: stored in the schema, as JSON under `faircontext`.
    """

    def __init__(self, path: Path, columns: list[tuple[str, pa.DataType]], facts: Mapping[str, Any]) -> None:
        schema = pa.schema(columns, metadata={"faircontext": to_json(dict(facts), indent=None)})
        self._path, self._schema, self._rows = path, schema, list[Mapping[str, Any]]()
        with ExitStack() as stack:
            made = stack.enter_context(replacing(path))
            with writing(path):
                self._writer = stack.enter_context(pq.ParquetWriter(made, schema, compression="zstd"))
            self._stack = stack.pop_all()

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        columns = {name: [row[name] for row in self._rows] for name in self._schema.names}
        with writing(self._path):
            self._writer.write_table(pa.table(columns, schema=self._schema))
        self._rows = []

    def close(self) -> None:
        with self._stack:  # where the rest cannot be written, nothing stays of the file
            self._flush()


class ScoresWriter(AbstractContextManager["ScoresWriter"]):
    """Writes every class's probability and cosine, a row for each image and method, in Parquet.

    A row has the columns `path`, `label`, `method`, `probabilities` (the method's) and `cosines` (of the plain view
    with zero-shot's text features), in the order of `names` in the file's metadata. Unreadable files have none.

    Args:
        path: of the file.
        facts: see `manifest_of`.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self._table = _Table(path, _SCORES, facts)

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answers for an image."""
        for answer in (answer for answer in answers if answer.probabilities is not None):
            cells = {"path": _text(answer.path), "label": answer.label, "method": answer.method}
            self._table.add({**cells, "probabilities": answer.probabilities, "cosines": answer.cosines})

    def __exit__(self, *_: object) -> None:
        self._table.close()


class EmbeddingsWriter(AbstractContextManager["EmbeddingsWriter"]):
    """Writes the plain views' unit-norm features, a row for each image that could be read, in `.npy` or `.parquet`.

    Beside `FILE.npy` a manifest `FILE.npy.json` says with what they were computed, and names the images in the order of
    rows; a Parquet file has both in it.

    Args:
        path: of the file.
        facts: see `manifest_of`.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self._facts, self._n, self._dim = dict(facts), 0, 0
        self._table: _Table | None = None
        if path.suffix.lower() == ".parquet":
            self._table = _Table(path, _EMBEDDINGS, facts)
            return
        self._path = path
        with ExitStack() as stack:
            self._names = stack.enter_context(EntrySpool(manifest_path(path)))
            made = stack.enter_context(replacing(path))
            with writing(path):
                self._file = stack.enter_context(made.open("wb"))
                self._file.write(_npy_header(0, 0))
            self._stack = stack.pop_all()

    def add(self, answers: Sequence[Answer]) -> None:
        """Take the answers for an image, the first of which has its features."""
        if (embedding := answers[0].embedding) is None:
            return
        facts = {"path": _text(answers[0].path), "label": answers[0].label}
        if self._table is not None:
            self._table.add({**facts, "embedding": embedding})
            return
        with writing(self._path):
            self._file.write(embedding.astype("<f4").tobytes())
        self._names.add([facts])
        self._n, self._dim = self._n + 1, len(embedding)

    def __exit__(self, *_: object) -> None:
        if self._table is not None:
            self._table.close()
            return
        document = {**self._facts, "shape": [self._n, self._dim], "type": "float32", "unit_norm": True}
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
    """Read what `EmbeddingsWriter` has written: features, paths of the images, and the manifest.

    Raises:
        ArgumentError: it cannot be read.
    """
    try:
        if path.suffix.lower() == ".parquet":
            with pq.ParquetFile(path) as file:
                table = file.read()
            values = [np.asarray(row, np.float32) for row in table["embedding"].to_pylist()]
            facts = json.loads(table.schema.metadata[b"faircontext"])
            return np.stack(values) if values else np.zeros((0, 0), np.float32), table["path"].to_pylist(), facts
        facts = json.loads(manifest_path(path).read_text(encoding="utf-8"))
        return np.load(path), [image["path"] for image in facts.pop("images")], facts
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
    with replacing(path) as made:
        # Written here, as the library's own writing says of a full disk what is no OSError.
        made.write_bytes(save({"weight": weight}, {"faircontext": to_json(manifest_of(labels), indent=None)}))


def read_classifier(path: Path) -> Classifier:
    """Read what `write_classifier` has written.

    Raises:
        ArgumentError: it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            facts = json.loads((file.metadata() or {})["faircontext"])
            return Classifier(file.get_tensor("weight"), facts["names"], facts)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ArgumentError(f"{path}: is no classifier of this package: {reason_of(error)}") from None
