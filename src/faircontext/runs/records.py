"""What is stored of a run: rows of images and methods, their columns, and rows of analyses."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ANALYSES",
    "FORMER_COLUMNS",
    "LATER_COLUMNS",
    "METHOD_TITLES",
    "MULTI_LABEL_SCHEMA",
    "SCHEMA",
    "SCHEMA_VERSION",
    "SCORED_SCHEMA",
    "AnalysisRow",
    "MultiLabelRecord",
    "Record",
    "Row",
    "ScoredRecord",
    "is_analysis",
    "method_of",
    "method_title",
    "row_name",
    "shift_of",
    "split_methods",
    "to_numpy",
    "to_table",
    "variant_of",
    "with_zero_shot",
]

SCHEMA_VERSION = 2

FORMER_COLUMNS: Mapping[str, str] = {"warnings": "notes"}
"""What columns are called in runs of schema version 1."""

LATER_COLUMNS = frozenset({"shared_seconds"})
"""Columns that runs of earlier versions lack; they are null there."""

ANALYSES = frozenset(
    {"ambiguity", "decomposition", "entropy", "evidence", "gallery", "margin", "pointing", "stability"}
)
"""Names of `faircontext.analysis`, known here without importing it: tables need no model."""

ROWS_AS: Mapping[str, str] = {f"{name}_variants": name for name in ("fcl", "tda", "dmn")}
"""Hidden methods, whose rows are those of the method that they extend: it had their settings in earlier versions."""

METHOD_TITLES = {
    "zero_shot": "Zero-shot",
    "tpt": "TPT",
    "ctpt": "C-TPT",
    "rlcf": "RLCF",
    "mta": "MTA",
    "zero": "ZERO",
    "ttl": "TTL",
    "tps": "TPS",
    "rtpt": "R-TPT",
    "fcl": "FCL",
    "tda": "TDA",
    "dmn": "DMN-ZS",
    "onzeta": "OnZeta",
    "boostadapter": "BoostAdapter",
    "dpe": "DPE",
    "ecalp": "ECALP",
}
"""Methods in the order of the paper's rows, then those with a memory."""


def method_of(label: str) -> str:
    """Return the method of a label: `fcl-50` is a variant of `fcl`."""
    return label.partition("-")[0]


def variant_of(label: str) -> str:
    """Return the variant of a label, `50` of `fcl-50`; empty for the method itself."""
    return label.partition("-")[2]


def row_name(label: str) -> str:
    """Return what rows call a method that is asked for: `fcl_variants-mean` is there the variant `mean` of `fcl`."""
    name = method_of(label)
    return ROWS_AS.get(name, name) + label[len(name) :]


def split_methods(word: str) -> list[str]:
    """Return the methods that a word names, commas between, each once."""
    return list(dict.fromkeys(word.split(",")))


def with_zero_shot(words: Sequence[str]) -> list[str]:
    """Return the methods that words name, commas between, zero-shot first; or `all` alone."""
    labels = split_methods(",".join(words))
    return labels if labels == ["all"] else list(dict.fromkeys(["zero_shot", *labels]))


def method_title(label: str) -> str:
    """Return what the paper calls a method; `fcl-50` becomes `FCL-50`."""
    name = method_of(label)
    return METHOD_TITLES[name] + label[len(name) :] if name in METHOD_TITLES else label


def is_analysis(label: str) -> bool:
    """Return whether rows of this label are of an analysis, or a variant of one, and not of a method."""
    return method_of(label) in ANALYSES


def shift_of(config: Mapping[str, Any]) -> str:
    """Return how a run's shift is written, `fog:3` or `pgd:4`; empty where there is none."""
    facts = config.get("shift")
    return "" if facts is None else f"{facts['name']}:{facts['severity' if facts['kind'] == 'corruption' else 'eps']}"


@dataclass(frozen=True)
class Row:
    """One image and method; classes are given by name.

    Attributes:
        path: the image, as it was given or found.
        label: the true class, or empty.
        zero_shot: zero-shot's answer from the same prompts.
        prediction: the method's answer.
        votes: votes for the prediction, None where the method does not vote.
        confidence: probability of the prediction.
        method: the method's name.
        fallback: why the method answered with less than its full procedure, or empty.
        error: why the file is unreadable, or empty; then there is no prediction.
        seconds: time that the method took itself, without what methods of a run share.
        shared_seconds: time of the shared work that it uses, whichever method came first: reading, views, features,
            masked images. None in rows of earlier versions, whose `seconds` of the first method have it.
    """

    path: str
    label: str = ""
    zero_shot: str = ""
    prediction: str = ""
    votes: int | None = None
    confidence: float | None = None
    method: str = ""
    fallback: str = ""
    error: str = ""
    seconds: float = 0.0
    shared_seconds: float | None = None

    def cells(self) -> dict[str, Any]:
        """Return the row as a CSV file has it: six decimals of a probability, three of seconds, nothing for None.

        `shared_seconds` is in runs and JSON alone: the columns of the file are fixed.
        """
        cells = {name: value for name, value in asdict(self).items() if name not in LATER_COLUMNS}
        cells["votes"] = "" if self.votes is None else self.votes
        cells["confidence"] = "" if self.confidence is None else f"{self.confidence:.6f}"
        cells["seconds"] = f"{self.seconds:.3f}"
        return cells


@dataclass(frozen=True, kw_only=True)
class Record(Row):
    """A row of a run: the columns of `classify`, and what statistics need; classes are given by index as well.

    Attributes:
        dataset: name of the data set.
        config: hash of all that the answer depends on besides the image, see `Plan.hashes`.
        position: of the image in the data set.
        label_index: the true class.
        zero_shot_index: zero-shot's answer.
        index: the method's answer, None where the file is unreadable.
        top5: the five best classes, best first.
        top5_probabilities: theirs.
        label_probability: probability of the true class.
        probability_norm: sum over classes of the squared probabilities, which the Brier score needs.
        candidates: classes that the method decided between.
        diagnostics: how the answer came about, as JSON.
        warnings: what was decided when the file was read.
    """

    dataset: str
    config: str
    position: int
    label_index: int | None = None
    zero_shot_index: int | None = None
    index: int | None = None
    top5: tuple[int, ...] = ()
    top5_probabilities: tuple[float, ...] = ()
    label_probability: float | None = None
    probability_norm: float | None = None
    candidates: tuple[int, ...] = ()
    diagnostics: str = "{}"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredRecord(Record):
    """A row with numbers for every class, which are stored where that is asked for; arrays are float32.

    Attributes:
        probabilities: of the method, per class.
        cosines: between the plain view's features and zero-shot's text features, per class.
        embedding: the plain view's unit-norm features.
    """

    probabilities: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    cosines: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    embedding: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True, kw_only=True, eq=False)
class MultiLabelRecord(ScoredRecord):
    """A row of an image that may have several labels; a score is the sigmoid of log-odds.

    In `label`, `zero_shot` and `prediction` stand names with `;` between; `index` is the label with the highest score,
    `confidence` that score, and `top5_probabilities` and `probabilities` are scores, which do not sum to one.

    Attributes:
        targets: the true classes, None where they are not known.
        label_logits: log-odds of every class, none where the file is unreadable.
    """

    targets: tuple[int, ...] | None = None
    label_logits: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True)
class AnalysisRow:
    """What an analysis measured on one image.

    Attributes:
        dataset: name of its data set.
        path: of the image.
        label: the true class, -1 where it is not known.
        index: zero-shot's prediction.
        candidates: classes that evidence was measured for, best first.
        names: of all classes.
        diagnostics: quantities of the analysis.
    """

    dataset: str
    path: str
    label: int
    index: int
    candidates: tuple[int, ...]
    names: tuple[str, ...]
    diagnostics: Mapping[str, Any]

    @property
    def correct(self) -> bool:
        """Whether zero-shot's prediction is correct."""
        return self.index == self.label

    def name(self, index: int) -> str:
        """Return a class's name, or its number where the run does not name it."""
        return self.names[index] if 0 <= index < len(self.names) else f"class {index}"


_TYPES: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    int | None: pa.int64(),
    float | None: pa.float64(),
    tuple[int, ...]: pa.list_(pa.int64()),
    tuple[int, ...] | None: pa.list_(pa.int64()),
    tuple[float, ...]: pa.list_(pa.float64()),
    tuple[str, ...]: pa.list_(pa.string()),
    np.ndarray: pa.list_(pa.float32()),
}

SCHEMA = pa.schema([(column.name, _TYPES[column.type]) for column in fields(Record)])
"""Columns of a run's rows."""

SCORED_SCHEMA = pa.schema([(column.name, _TYPES[column.type]) for column in fields(ScoredRecord)])
"""The same, of rows with numbers for every class."""

MULTI_LABEL_SCHEMA = pa.schema([(column.name, _TYPES[column.type]) for column in fields(MultiLabelRecord)])
"""The same, of rows of images that may have several labels."""

_SCHEMAS: dict[type[Record], pa.Schema] = {
    Record: SCHEMA,
    ScoredRecord: SCORED_SCHEMA,
    MultiLabelRecord: MULTI_LABEL_SCHEMA,
}


def to_table(records: Sequence[Record]) -> pa.Table:
    """Return records as a table; bytes of file names that are no UTF-8 become escapes."""
    kinds = {type(record) for record in records}
    schema = next((schema for kind, schema in reversed(_SCHEMAS.items()) if kind in kinds), SCHEMA)
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for record in records:
        for name in schema.names:
            value = getattr(record, name)
            columns[name].append(value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value)
    return pa.table(columns, schema=schema)


def to_numpy(column: pa.Array | pa.ChunkedArray, null: float = -1) -> np.ndarray:
    """Return a column of numbers, with another number in place of null."""
    return np.asarray(pc.fill_null(column, null))
