"""The one record: the answer of a method for an image, its columns, and how it is written; and rows of analyses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool

from faircontext.types import read_diagnostics

SCHEMA_VERSION = 2

ABSTAINED = "none of these: "
"""What `fallback` begins with, or goes on with, where a method abstains."""

UNKNOWN = "(unknown)"
"""What is shown to a person in place of a class's name, where a method abstains."""

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


def perturbation_of(config: Mapping[str, Any]) -> str:
    """Return how a run's perturbation is written, `fog:3` or `pgd:4`; empty where there is none."""
    made = config.get("shift")
    return "" if made is None else f"{made['name']}:{made['severity' if made['kind'] == 'corruption' else 'eps']}"


@dataclass(frozen=True)
class Answer:
    """The answer of one method for one image: what runs store, and what all files of answers are written from.

    Attributes:
        path: the image, as it was given or found.
        label: the true class, or empty; of an image with several, their names with `;` between.
        zero_shot: zero-shot's prediction from the same prompts.
        prediction: the method's prediction; empty where it abstains.
        votes: votes for the prediction, None where the method does not vote.
        confidence: probability of the prediction.
        method: the method's name.
        fallback: why the method answered with less than its full procedure, or abstained; or empty.
        error: why the file is unreadable, or empty; then there is no prediction.
        seconds: time that the method took itself, without what methods of a run share.
        shared_seconds: time of the shared work that it uses, whichever method came first: reading, views, features,
            masked images. None in rows of earlier versions, whose `seconds` of the first method have it.
        dataset: name of the data set, in a stored run.
        config: hash of all that the answer depends on besides the image, in a stored run; see `Plan.hashes`.
        position: of the image in the data set.
        label_index: the true class.
        zero_shot_index: zero-shot's prediction.
        index: the method's prediction, also where it abstains; None where the file is unreadable.
        top5: the best classes, best first: five, or as many as were asked for.
        top5_probabilities: theirs.
        label_probability: probability of the true class.
        probability_norm: sum over classes of the squared probabilities, which the Brier score needs.
        candidates: classes that the method decided between.
        diagnostics: how the answer came about, as JSON.
        warnings: what was decided when the file was read.
        probabilities: of the method, per class, in float32; stored where scores are asked for.
        cosines: between the plain view's features and zero-shot's text features, per class; the same.
        embedding: the plain view's unit-norm features, with the image's first method, where they are asked for.
        targets: all true classes, None where they are not known; stored where an image may have several.
        label_logits: log-odds of every class, where an image may have several. Then `index` is the class with the
            highest score, and `confidence`, `top5_probabilities` and `probabilities` are scores, which do not sum to
            one.
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
    _: KW_ONLY
    dataset: str = ""
    config: str = ""
    position: int = 0
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
    probabilities: np.ndarray | None = None
    cosines: np.ndarray | None = None
    embedding: np.ndarray | None = None
    targets: tuple[int, ...] | None = None
    label_logits: np.ndarray | None = None

    def cells(self) -> dict[str, Any]:
        """Return the answer as a CSV file has it: six decimals of a probability, three of seconds, nothing for None."""
        cells = {name: getattr(self, name) for name in CSV_COLUMNS}
        cells["votes"] = "" if self.votes is None else self.votes
        cells["confidence"] = "" if self.confidence is None else f"{self.confidence:.6f}"
        cells["seconds"] = f"{self.seconds:.3f}"
        return cells

    def best(self, n: int) -> list[tuple[int, float]]:
        """Return the `n` best classes with their probabilities."""
        return [*zip(self.top5[:n], self.top5_probabilities, strict=False)]

    def entry(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the answer as JSON documents have it; `names` are those of the classes."""
        shown = (*CSV_COLUMNS, "shared_seconds", "label_index", "warnings")
        entry = {name: getattr(self, name) for name in shown}
        if self.index is not None:
            entry |= {"zero_shot_index": self.zero_shot_index, "index": self.index}
            entry["top5"] = [[names[index], probability] for index, probability in self.best(5)]
            entry["candidates"] = [names[index] for index in self.candidates]
            entry["diagnostics"] = read_diagnostics(self.diagnostics)
        return entry


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


CSV_COLUMNS = tuple(column.name for column in fields(Answer))[:10]
"""Columns of a CSV file of answers, which are fixed; `shared_seconds` is in runs and JSON alone."""

SCORES_COLUMNS = ("probabilities", "cosines", "embedding")
"""Columns that runs have where scores or embeddings are asked for."""

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
    np.ndarray | None: pa.list_(pa.float32()),
}

_COLUMNS: Mapping[str, pa.Field] = {
    column.name: pa.field(column.name, _TYPES[column.type]) for column in fields(Answer)
}


def schema_of(further: Sequence[str] = ()) -> pa.Schema:
    """Return the columns of a run's rows, with some further ones: those from `probabilities` on."""
    return pa.schema([*(_COLUMNS[name] for name in _ALWAYS), *(_COLUMNS[name] for name in further)])


_ALWAYS = tuple(_COLUMNS)[: [*_COLUMNS].index("probabilities")]

SCHEMA = schema_of()
"""Columns that the rows of every run have."""


def to_table(answers: Sequence[Answer], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return answers as a table; see `readable` for texts."""
    columns: dict[str, list[Any]] = {}
    for column in schema:
        values = [getattr(answer, column.name) for answer in answers]
        if pa.types.is_string(column.type):
            values = [*map(readable, values)]
        elif column.type == pa.list_(pa.float32()):
            values = [() if value is None else value for value in values]
        columns[column.name] = values
    return pa.table(columns, schema=schema)


def readable(text: str) -> str:
    """Return a text with escapes in place of bytes of a file name that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def answers_of(rows: pa.Table, methods: Sequence[str] | None = None) -> Iterator[list[Answer]]:
    """Yield the answers of a table image by image.

    Args:
        rows: of runs; those of an image stand together.
        methods: which, in the order in which an image's answers stand; None for all as they are. The first has the
            image's features, where one has.
    """
    known_columns = rows.select([name for name in rows.column_names if name in _COLUMNS])
    for _, image in groupby(known_columns.to_pylist(), key=itemgetter("position")):
        answers = [Answer(**{name: _value(_COLUMNS[name].type, value) for name, value in row.items()}) for row in image]
        if methods is not None:
            by_method = {answer.method: answer for answer in answers}
            embedding = next((answer.embedding for answer in answers if answer.embedding is not None), None)
            answers = [by_method[method] for method in methods if method in by_method]
            answers[:1] = [replace(answer, embedding=embedding) for answer in answers[:1]]
        yield answers


def _value(kind: pa.DataType, value: Any) -> Any:
    if kind == pa.list_(pa.float32()):
        return np.array(value, np.float32) if value else None
    return tuple(value) if isinstance(value, list) else value


def is_correct(rows: pa.Table, column: str = "index") -> Bool[np.ndarray, " rows"]:
    """Return which predictions are those of the true class; by index, as two classes may have one name.

    Args:
        rows: of images whose class is known.
        column: of the predictions: `index`, or `zero_shot_index`.
    """
    return np.asarray(to_numpy(rows[column]) == to_numpy(rows["label_index"]), np.bool_)


def to_numpy(column: pa.Array | pa.ChunkedArray, null: float = -1) -> np.ndarray:
    """Return a column of numbers, with another number in place of null."""
    return np.asarray(pc.fill_null(column, null))
