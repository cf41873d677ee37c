"""What a method does with each class of a data set: accuracy, precision, recall, F1, and the confusion matrix.

A withheld prediction is no class: it stands in a column of its own, and counts against recall, not against precision.
Accuracy is that of other tables, which count it as if it were given.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from faircontext.errors import ArgumentError
from faircontext.metrics.stats import Accuracy, Interval
from faircontext.report import benchmarks
from faircontext.report.benchmarks import TOP1, dataset_title, known_or_missing, marked_title
from faircontext.report.render import Column, Table
from faircontext.runs.records import UNKNOWN
from faircontext.runs.results import Result, class_names

Record = dict[str, Any]

_MOST = 100
"""Columns of a matrix that is printed."""

_CLASSES = (
    Column("Class", "class"),
    Column("n", "n", "{:,}".format),
    *(Column(f"{name} [95%]", name.lower(), TOP1.show) for name in ("Accuracy", "Precision", "Recall", "F1")),
    Column("Most often taken for", "confused_with", known_or_missing()),
    Column("Images", "confused", "{:,}".format),
)
_NOTES = (
    "Percent, with Wilson's 95% interval: of accuracy and recall over the images of a class, of precision over those "
    "that are taken for it, of F1 over both. Unreadable files are left out.",
    "Images by class (rows) and answer (columns). Unreadable files are left out.",
)


def confusion_matrix(result: Result) -> tuple[Int[np.ndarray, "classes answers"], list[str]]:
    """Count images by class and answer, and name the answers; the last is `UNKNOWN`, if any answer is withheld."""
    names, answers = class_names(result.run), result.index
    if result.withheld is not None and result.withheld.any():
        names, answers = [*names, UNKNOWN], np.where(result.withheld, len(names), answers)
    matrix = np.zeros((result.config["dataset"]["classes"], len(names)), np.int64)
    np.add.at(matrix, (result.labels, answers), 1)
    return matrix, names


def class_records(result: Result) -> Iterator[Record]:
    """Yield a record for each class; shares are proportions, with Wilson's interval.

    F1 is `2 J / (1 + J)`, where J is the share of correct ones among the images that are of the class or are taken for
    it: it rises with J, so that the ends of the interval of J are those of F1.
    """
    matrix, names = confusion_matrix(result)
    for index, row in enumerate(matrix):
        n, answered, right = int(row.sum()), int(matrix[:, index].sum()), int(row[index])
        others, jaccard = np.where(np.arange(len(row)) == index, 0, row), _share(right, n + answered - right)
        yield {
            "class": names[index],
            "n": n,
            "accuracy": _share(int(result.correct[result.labels == index].sum()), n),
            "precision": _share(right, answered),
            "recall": _share(right, n),
            "f1": Interval(*(2 * end / (1 + end) for end in vars(jaccard).values())),
            "confused_with": names[others.argmax()] if others.any() else None,
            "confused": int(others.max()),
        }


def _share(correct: int, n: int) -> Interval:
    return Accuracy(correct, n).estimate if n else benchmarks.UNKNOWN


def cell_records(result: Result) -> Iterator[Record]:
    """Yield a record for each class and answer that some image has: of many classes, few pairs occur."""
    matrix, names = confusion_matrix(result)
    for index, answer in np.argwhere(matrix).tolist():
        yield {"class": names[index], "answer": names[answer], "n": int(matrix[index, answer])}


RECORDS = {"classes": class_records, "confusion": cell_records}
"""By style of a table: what CSV files have of a result."""


def table_of(result: Result, style: str, subtitle: str) -> Table:
    """Return a table of one of these styles, the matrix as such; the subtitle says what the model is.

    Raises:
        ArgumentError: a matrix has too many columns to be printed.
    """
    of = f"{marked_title([result], result.method)} on {dataset_title(result.dataset)}, {subtitle}"
    if style == "classes":
        return Table.of(f"Classes: {of}", _CLASSES, class_records(result), _NOTES[:1])
    matrix, names = confusion_matrix(result)
    if len(names) > _MOST:
        raise ArgumentError(f"{result.run.folder}: too many classes for a printed matrix; give --format csv")
    counts = (dict(zip(map(str, range(len(row))), row.tolist(), strict=True)) for row in matrix)
    rows = ({"class": name, "n": sum(row.values()), **row} for name, row in zip(names, counts, strict=False))
    columns = (*_CLASSES[:2], *(Column(name, str(index), "{:,}".format) for index, name in enumerate(names)))
    return Table.of(f"Confusion: {of}", columns, rows, _NOTES[1:])
