"""What a method does with each class of a data set: recall, precision, F1, and which classes it takes for which.

A withheld prediction is no class: it stands in a column of its own, and counts against recall, not against precision.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from faircontext.errors import ArgumentError
from faircontext.metrics.scores import confusion_matrix
from faircontext.metrics.stats import Accuracy, Interval
from faircontext.report import benchmarks
from faircontext.report.benchmarks import TOP1, dataset_title, known_or_missing, marked_title
from faircontext.report.render import Column, Table
from faircontext.runs.decisions import UNKNOWN
from faircontext.runs.results import Result

_MOST = 30
"""Classes of a matrix that is printed."""

_CLASSES = (
    Column("Class", "class"),
    Column("n", "n", "{:,}".format),
    Column("Recall [95%]", "recall", TOP1.show),
    Column("Precision [95%]", "precision", TOP1.show),
    Column("F1 [95%]", "f1", TOP1.show),
    Column("Most often taken for", "confused_with", known_or_missing()),
    Column("Images", "confused", "{:,}".format),
)


def matrix_of(result: Result) -> tuple[Int[np.ndarray, "classes answers"], list[str]]:
    """Return the counts of `confusion_matrix` with the names of columns; none of withheld ones where there are none."""
    matrix, names = confusion_matrix(result.given, result.labels, len(result.names)), [*result.names, UNKNOWN]
    return (matrix, names) if matrix[:, -1].any() else (matrix[:, :-1], names[:-1])


def class_records(result: Result) -> Iterator[dict[str, Any]]:
    """Yield a record for each class; shares are proportions, with Wilson's interval.

    F1 is `2 J / (1 + J)`, where J is the share of correct ones among the images that are of the class or are taken for
    it: it rises with J, so that the ends of the interval of J are those of F1.
    """
    matrix, names = matrix_of(result)
    answered = matrix.sum(0)
    for index, row in enumerate(matrix):
        n, correct = int(row.sum()), int(row[index])
        others = np.where(np.arange(len(row)) == index, 0, row)
        most, jaccard = int(others.argmax()), _share(correct, n + int(answered[index]) - correct)
        yield {
            "class_index": index,
            "class": names[index],
            "n": n,
            "predicted": int(answered[index]),
            "correct": correct,
            "recall": _share(correct, n),
            "precision": _share(correct, int(answered[index])),
            "f1": Interval(*(2 * end / (1 + end) for end in vars(jaccard).values())),
            "confused_with": names[most] if others[most] else None,
            "confused": int(others[most]),
        }


def _share(correct: int, n: int) -> Interval:
    return Accuracy(correct, n).estimate if n else benchmarks.UNKNOWN


def class_table(result: Result, subtitle: str) -> Table:
    """Return a table with a row for each class; the subtitle says what the model is."""
    notes = (
        "Percent, with Wilson's 95% interval: of recall over the images of a class, of precision over those that are "
        "taken for it, of F1 over both. Unreadable files are left out.",
        *_withheld(result),
    )
    return Table.of(_title("Classes", result, subtitle), _CLASSES, class_records(result), notes)


def confusion_records(result: Result) -> Iterator[dict[str, Any]]:
    """Yield a record for each class and answer that an image has."""
    matrix, names = matrix_of(result)
    for index, answer in np.argwhere(matrix).tolist():
        known = None if answer == len(matrix) else answer
        names_of = {"class_index": index, "class": names[index], "answer_index": known, "answer": names[answer]}
        yield names_of | {"n": int(matrix[index, answer])}


def confusion_table(result: Result, subtitle: str) -> Table:
    """Return the matrix: a row for each class, and a column for each answer.

    Raises:
        ArgumentError: there are too many classes for that.
    """
    matrix, names = matrix_of(result)
    if len(matrix) > _MOST:
        raise ArgumentError(
            f"{result.run.folder}: a matrix of {len(matrix):,} classes is too large to print, {_MOST} are possible; "
            "use --format csv, --style classes, or faircontext figures --only confusion"
        )
    shown = (Column(name, str(index), "{:,}".format) for index, name in enumerate(names))
    rows = [{"class": names[index], **{str(k): n for k, n in enumerate(row)}} for index, row in enumerate(matrix)]
    notes = ("Images of a class (row) by their answer (column).", *_withheld(result))
    return Table.of(_title("Confusion", result, subtitle), (Column("Class", "class"), *shown), rows, notes)


def _title(what: str, result: Result, subtitle: str) -> str:
    return f"{what}: {marked_title([result], result.method)} on {dataset_title(result.dataset)}, {subtitle}"


def _withheld(result: Result) -> Iterator[str]:
    if result.withheld is not None and result.withheld.any():
        yield (
            f"A withheld answer, {UNKNOWN}, is no class: it counts against recall and not against precision, while "
            "accuracies of other tables count it as if it were given."
        )
