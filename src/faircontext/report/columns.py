"""The columns of the paper's tables: data sets, means over them, and gains over zero-shot."""

from dataclasses import dataclass
from math import isnan

from faircontext.metrics.stats import Interval
from faircontext.report.groups import Group, set_title
from faircontext.report.measures import Metric, average, gain, measure
from faircontext.report.reported import OOD, SETS
from faircontext.report.results import Result

__all__ = ["MISSING", "Column", "columns_of", "show"]

MISSING = "-"
"""Stands for a value that is not known."""


def show(interval: Interval | None, metric: Metric, sign: bool = False) -> str:
    """Return a value with its interval, where it has one, as it is printed."""
    if interval is None:
        return MISSING
    value = metric.show(interval.value, sign)
    if isnan(interval.low):
        return value
    return f"{value} [{metric.show(interval.low, sign)}, {metric.show(interval.high, sign)}]"


@dataclass(frozen=True)
class Column:
    """What a column of the paper's tables shows: a mean over data sets, or its gain over zero-shot."""

    heading: str
    sets: tuple[str, ...]
    gained: bool = False

    def results(self, group: Group, method: str) -> list[Result]:
        """Return a method's results on the column's data sets, nothing where one is missing."""
        row = group.row(method)
        return [row[name] for name in self.sets] if all(name in row for name in self.sets) else []

    def values(self, group: Group, metric: Metric) -> list[Interval | None]:
        """Return the column's values, by method."""
        found = [self.results(group, method) for method in group.methods]
        if self.gained:
            return [gain(results, metric) for results in found]
        return [measure(results[0], metric) if len(results) == 1 else average(results, metric) for results in found]

    def comparable(self, group: Group) -> bool:
        """Return whether all methods that have results in this column have them on the same images."""
        found = [results for method in group.methods if (results := self.results(group, method))]
        return all(one.same_images(two) for other in found[1:] for one, two in zip(found[0], other, strict=True))


def columns_of(group: Group) -> list[Column]:
    """Return the columns of a group's table: its data sets, their mean, the paper's OOD Avg., and gains."""
    singles = [Column(set_title(name), (name,)) for name in group.results]
    if len(singles) == 1:
        return [*singles, Column("Δ", singles[0].sets, gained=True)]
    whole = len(SETS.get(group.family, ()))
    heading = f"Avg. ({len(singles)} of {whole})" if len(singles) < whole else "Avg."
    averages = [Column(heading, tuple(group.results))]
    if all(name in group.results for name in OOD):
        averages.append(Column("OOD Avg.", OOD))
    pairs = [(column, Column(f"Δ {column.heading}", column.sets, gained=True)) for column in averages]
    return [*singles, *(column for pair in pairs for column in pair)]
