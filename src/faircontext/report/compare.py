"""Measured accuracies beside those that the paper reports: information, never a verdict.

The paper gives neither intervals nor answers per image, so the difference's interval is that of the measured accuracy
alone; its own sampling error comes on top.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from faircontext.errors import ArgumentError
from faircontext.metrics.stats import Interval
from faircontext.report.columns import Column, columns_of, show
from faircontext.report.groups import Group, method_title, set_title
from faircontext.report.measures import METRICS, average, measure
from faircontext.report.reported import OOD, SETS, read_reported, reported_accuracies
from faircontext.report.sheets import Cell, Sheet

__all__ = ["Comparison", "compare", "comparison_table", "reported_method", "reservations"]


@dataclass(frozen=True)
class Comparison:
    """A measured accuracy and the one that the paper reports.

    Attributes:
        column: of the table.
        method: what the method is called in the run.
        number: of images that were answered.
        measured: as a proportion, with its 95% interval.
        reported: likewise.
    """

    column: Column
    method: str
    number: int
    measured: Interval
    reported: float

    @property
    def difference(self) -> Interval:
        """What was measured less what is reported."""
        measured = self.measured
        return Interval(*(end - self.reported for end in (measured.value, measured.low, measured.high)))


def reported_method(group: Group, name: str) -> str | None:
    """Return what the paper calls a method of a group's runs, None for a variant that the paper's tables lack."""
    base = name.partition("-")[0]
    found = next(results[name] for results in group.results.values() if name in results)
    if base == "fcl" and found.config["methods"][name].get("context") == "cl-hp":
        return "FCL-HP"
    return {"zero_shot": "CLIP"}.get(name, method_title(name)) if base == name else None


def compare(group: Group) -> Iterator[Comparison]:
    """Yield comparisons by column and method, the means where the group has all of the paper's columns.

    Raises:
        ArgumentError: the paper has no table of the group's backbone and data sets.
    """
    reported = reported_accuracies(group.backbone, group.family)
    keys = {(name,): name for name in group.results} | {tuple(SETS[group.family]): "avg", OOD: "ood_avg"}
    for column in columns_of(group):
        key = None if column.gained else keys.get(column.sets)
        for method in group.methods if key else ():
            results, theirs = column.results(group, method), reported.get(reported_method(group, method) or "", {})
            if results and key in theirs:
                metric, number = METRICS["top1"], sum(result.number for result in results)
                ours = measure(results[0], metric) if len(results) == 1 else average(results, metric)
                if ours is not None:
                    yield Comparison(column, method, number, ours, theirs[key] / 100)


def reservations(group: Group) -> Iterator[str]:
    """Yield in what a group's runs differ from the paper's, a line each."""
    counts = {row["dataset"]: int(row["eval_samples"]) for row in read_reported("datasets")}
    for name, results in group.results.items():
        listed = next(iter(results.values())).config["dataset"]["listed"]
        if listed != counts.get(name, listed):
            yield f"{set_title(name)}: the paper counts {counts[name]:,} images; this split has {listed:,}."
    if group.pretrained != "openai":
        yield f"The paper's weights are openai; these are {group.pretrained or 'others'}."
    if group.preset != "paper":
        yield f"The paper's settings are those of preset paper; these are of preset {group.preset}."
    if group.prompts != "single":
        yield f'The paper\'s prompt is "a photo of a {{}}." alone (prompts single); these runs have {group.prompts}.'


def comparison_table(group: Group) -> Sheet | str:
    """Return a table of comparisons, or a line that says why there is none."""
    try:
        found = list(compare(group))
    except ArgumentError as error:
        return str(error)
    if not found:
        return f"the paper reports none of the methods of {group.backbone} that were run"
    metric = METRICS["top1"]
    rows = [
        (
            one.column.heading,
            method_title(one.method),
            f"{one.number:,}",
            show(one.measured, metric),
            f"{100 * one.reported:.2f}",
            show(one.difference, metric, sign=True),
        )
        for one in found
    ]
    ends = [place for place in range(len(rows) - 1) if rows[place][0] != rows[place + 1][0]]
    note = (
        "Percent, with 95% intervals of what was measured; the paper gives none of its own. For information: a "
        "difference is no verdict."
    )
    return Sheet(
        title=f"Top-1 accuracy measured, and reported by the paper: {group.title}",
        columns=("Data set", "Method", "n", "Measured [95%]", "Paper", "Difference [95%]"),
        rows=tuple(tuple(map(Cell, row)) for row in rows),
        notes=(note, *reservations(group)),
        words=2,
        rules=frozenset(ends),
        bars=frozenset({1}),
    )
