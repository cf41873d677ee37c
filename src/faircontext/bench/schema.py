"""The columns of a run's rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from faircontext.bench.records import Row

__all__ = ["ANALYSES", "SCHEMA", "SCHEMA_VERSION", "Record", "is_analysis", "to_table"]

SCHEMA_VERSION = 1

ANALYSES = frozenset(
    {"ambiguity", "decomposition", "entropy", "evidence", "gallery", "margin", "pointing", "stability"}
)
"""Names of `faircontext.analysis`, known here without importing it: tables need no model."""


def is_analysis(label: str) -> bool:
    """Return whether rows of this name are of an analysis, or a variant of one, and not of a method."""
    return label.partition("-")[0] in ANALYSES


@dataclass(frozen=True, kw_only=True)
class Record(Row):
    """A row of a run: the columns of `classify`, and what statistics need; classes are given by index as well.

    Attributes:
        dataset: name of the data set.
        config: hash of all that the answer depends on besides the image, see `Plan.hashes`.
        position: of the image in the data set.
        label_index: the true class.
        zero_shot_index: zero-shot's answer.
        index: the method's answer, None where the file was refused.
        top5: the five best classes, best first.
        top5_probabilities: theirs.
        label_probability: probability of the true class.
        probability_norm: sum over classes of the squared probabilities, which the Brier score needs.
        candidates: classes that the method decided between.
        diagnostics: how the answer came about, as JSON.
        notes: what was decided when the file was read.
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
    notes: tuple[str, ...] = ()


_TYPES: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    int | None: pa.int64(),
    float | None: pa.float64(),
    tuple[int, ...]: pa.list_(pa.int64()),
    tuple[float, ...]: pa.list_(pa.float64()),
    tuple[str, ...]: pa.list_(pa.string()),
}

SCHEMA = pa.schema([(field.name, _TYPES[field.type]) for field in fields(Record)])
"""Columns of a run's rows."""


def to_table(records: Sequence[Record]) -> pa.Table:
    """Return records as a table; bytes of file names that are no UTF-8 become escapes."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for record in records:
        for name, value in asdict(record).items():
            columns[name].append(value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value)
    return pa.table(columns, schema=SCHEMA)
