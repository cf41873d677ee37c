"""Tables as CSV files for programs: a row per method and column, each number in a column of its own, none rounded."""

import csv
import io
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from faircontext.errors import ArgumentError, one_line
from faircontext.metrics.stats import Interval
from faircontext.report.columns import Column, columns_of
from faircontext.report.compare import Comparison, compare
from faircontext.report.groups import Group
from faircontext.report.measures import METRICS, figure, gain, known, measure
from faircontext.report.results import Result
from faircontext.report.tables import adjusted, changes

__all__ = ["long_records", "paper_records", "to_csv"]

Record = dict[str, Any]


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Write records as CSV; all have the same columns, and nothing stands for what is not known."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({key: one_line(v) if isinstance(v, str) else v for key, v in record.items()})
    return stream.getvalue()


def paper_records(groups: Sequence[Group], metric_name: str = "top1", compared: bool = False) -> list[Record]:
    """Return a record per method and column (data set or mean) of the paper's tables.

    Accuracies are proportions, not percent.

    Args:
        groups: the results.
        metric_name: one of `METRICS`.
        compared: whether to add what the paper reports.
    """
    metric = METRICS[metric_name]
    records = []
    for group in groups:
        theirs = _reported(group) if compared else {}
        for column in (column for column in columns_of(group) if not column.gained):
            values = column.values(group, metric)
            for method, value in zip(group.methods, values, strict=True):
                results = column.results(group, method)
                if results:
                    record = _shared(group) | {"column": _name(column), "method": method, "metric": metric_name}
                    record |= {"n": sum(r.number for r in results), "refused": sum(r.refused for r in results)}
                    record |= _interval("value", value) | _interval("delta", gain(results, metric))
                    records.append(record | (_difference(theirs.get((column, method))) if compared else {}))
    return records


def long_records(groups: Sequence[Group], compared: bool = False) -> list[Record]:
    """Return a record per data set and method, with all metrics and the comparison with zero-shot.

    Accuracies are proportions, not percent.

    Args:
        groups: the results.
        compared: whether to add what the paper reports.
    """
    records = []
    for group in groups:
        theirs = _reported(group) if compared else {}
        p_values = {method: adjusted(group, method) for method in group.methods}
        columns = {column.sets: column for column in columns_of(group) if not column.gained}
        for name, results in group.results.items():
            for method in (method for method in group.methods if method in results):
                record = _shared(group) | {"dataset": name, "method": method} | _facts(results[method])
                raw, corrected = p_values[method].get(name, ("", ""))
                record |= {"p": raw, "p_holm": corrected}
                records.append(record | (_difference(theirs.get((columns[name,], method))) if compared else {}))
    return records


def _shared(group: Group) -> Record:
    names = ("backbone", "pretrained", "precision", "preset", "prompts", "seed", "family")
    return {name: "" if getattr(group, name) is None else getattr(group, name) for name in names}


def _name(column: Column) -> str:
    """Return a data set's name, or `avg` or `ood_avg`, as the files of reported numbers have it."""
    return column.sets[0] if len(column.sets) == 1 else "ood_avg" if column.heading == "OOD Avg." else "avg"


def _facts(result: Result) -> Record:
    dataset, whole = result.config["dataset"], result.number + result.refused
    record: Record = {
        "split": dataset["split"],
        "n": result.number,
        "refused": result.refused,
        "listed": dataset["listed"],
        "complete": result.run.complete,
        "config": result.hash,
    }
    for name in ("top1", "top5", "mean_per_class"):
        record |= _interval(name, measure(result, METRICS[name]))
    record["top1_refused_wrong"] = int(result.correct.sum()) / whole if whole else ""
    for name in ("ece", "brier", "nll"):
        record[name] = figure(result, METRICS[name]) if known(result, METRICS[name]) else ""
    found = changes(result)
    record |= _interval("delta", gain([result], METRICS["top1"]))
    return record | {"gained": "" if found is None else found[0], "lost": "" if found is None else found[1]}


def _interval(name: str, interval: Interval | None) -> Record:
    ends = (None,) * 3 if interval is None else (interval.value, interval.low, interval.high)
    values = ("" if end is None or isnan(end) else end for end in ends)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _reported(group: Group) -> dict[tuple[Column, str], Comparison]:
    try:
        return {(one.column, one.method): one for one in compare(group)}
    except ArgumentError:  # the paper has no such table: its columns stay empty
        return {}


def _difference(one: Comparison | None) -> Record:
    return {"reported": "" if one is None else one.reported} | _interval(
        "difference", None if one is None else one.difference
    )
