"""The paper's tables from runs, with what the paper leaves out: counts of images, intervals, unreadable files.

Sources: tables `tab:tta_imagenet_vitb16`, `tab:tta_vitb16_fg`, `tab:tta_imagenet_rn50` and `tab:delta_clip_merged`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import isnan
from typing import Any, TypeVar

import numpy as np

from faircontext.metrics.calibration import Reliability, reliability
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Accuracy, Interval, holm
from faircontext.report.benchmarks import (
    METRICS,
    MISSING,
    TOP1,
    UNKNOWN,
    Column,
    Metric,
    TableGroup,
    columns_of,
    coverage,
    dataset_title,
    marked_title,
    memory_notes,
    settings_record,
)
from faircontext.report.reference import PaperComparison, compare_with_paper
from faircontext.report.render import Cell, Field, MissingError, Rank, Table, flat, record_of
from faircontext.runs.groups import method_title
from faircontext.runs.results import Result

__all__ = [
    "adjusted_p_values",
    "comparison_fields",
    "foot_of",
    "long_records",
    "long_table",
    "paper_records",
    "paper_table",
    "pooled_bins",
    "pooled_comparison",
    "pooled_table",
    "range_of",
]

R = TypeVar("R")
Record = dict[str, Any]


def paper_table(group: TableGroup, metric_name: str = "top1") -> Table:
    """Return a table as the paper has it, with counts of images, intervals and gains beneath.

    The best value of a column is bold and the second underlined, by what is printed; where methods answered different
    images they are not compared.

    Args:
        group: the results.
        metric_name: one of `METRICS`.
    """
    metric, columns = METRICS[metric_name], columns_of(group)
    values = [column.values(group, metric) for column in columns]
    cells = [_cells(group, column, row, metric) for column, row in zip(columns, values, strict=True)]
    names = [Cell(marked_title(_held(group, name), name)) for name in group.methods]
    rows = [[column.results(group, method) for method in group.methods] for column in columns]
    counts = [{sum(r.n for r in results) for results in row if results} or {0} for row in rows]
    return Table(
        title=f"{metric.title[0].upper()}{metric.title[1:]} of {group.title}",
        columns=("Method", *(column.heading for column in columns)),
        rows=tuple(zip(names, *cells, strict=True)),
        foot=foot_of(counts, values, metric),
        footnotes=(
            *_explanations(group, columns, metric),
            *coverage(group),
            *_unreadable(group, metric),
            *_gains(group, metric),
            *memory_notes(_held(group)),
        ),
        rules=frozenset(_rules(group.methods)),
        bars=frozenset({0, len(group.results)}),
    )


def _held(group: TableGroup, *methods: str) -> list[Result]:
    """Return a group's results, of all methods or of some."""
    return [r for held in group.results.values() for name, r in held.items() if name in (methods or held)]


def _rules(methods: Sequence[str]) -> Iterator[int]:
    """Yield where the paper draws lines: after zero-shot, and before FCL."""
    kinds = [name if name == "zero_shot" else "ours" if name.startswith("fcl") else "others" for name in methods]
    yield from (row for row in range(len(kinds) - 1) if kinds[row] != kinds[row + 1])


def _cells(group: TableGroup, column: Column, values: Sequence[Interval | None], metric: Metric) -> list[Cell]:
    """Return a column's cells; of those that are printed alike all are the best, or all the second."""
    texts = [MISSING if value is None else metric.format(value.value, column.gained) for value in values]
    known = [text for text in texts if text != MISSING]
    ranks: dict[str, Rank] = {}
    if len(known) > 1 and not column.gained and column.comparable(group):
        best = sorted({*known}, key=float, reverse=metric.higher)
        ranks = dict(zip(best, ("best", "second"), strict=False))
    return [Cell(text, ranks.get(text, "")) for text in texts]


def range_of(counts: Iterable[int]) -> str:
    """Return the least and the most of some counts, or the one that all are."""
    known = [*counts]
    return " to ".join(f"{n:,}" for n in dict.fromkeys((min(known), max(known))))


def foot_of(
    counts: Iterable[Iterable[int]], intervals: Iterable[Iterable[Interval | None]], metric: Metric
) -> tuple[tuple[Cell, ...], ...]:
    """Return the number of images of each column, and the largest half-width of its intervals if there are any."""
    widths = []
    for column in intervals:
        halves = [max(v.value - v.low, v.high - v.value) for v in column if v is not None and not isnan(v.low)]
        widths.append(f"±{metric.format(max(halves))}" if halves else MISSING)
    foot = (tuple(map(Cell, ("n", *map(range_of, counts)))), tuple(map(Cell, ("±95%", *widths))))
    return foot if metric.has_interval else foot[:1]


@dataclass(frozen=True)
class _Row:
    """A method on some data sets, each image weighing the same, and its p-values if it is compared with zero-shot."""

    method: str
    results: Sequence[Result]
    p_values: tuple[float, float] | None

    @property
    def n(self) -> int:
        return sum(result.n for result in self.results)

    @property
    def top1(self) -> Interval:
        return Accuracy(sum(int(r.correct.sum()) for r in self.results), self.n).estimate if self.n else UNKNOWN

    @cached_property
    def comparison(self) -> Comparison | None:
        return pooled_comparison(result.comparison for result in self.results)

    @property
    def ece(self) -> float | None:
        bins = pooled_bins(self.results)
        return None if bins is None else bins.expected_calibration_error

    def measured(self, name: str) -> Interval:
        return METRICS[name].measure(self.results) or UNKNOWN


def comparison_fields(
    comparison: Callable[[R], Comparison | None], heading: str = "Δ [95%]", missing: str = MISSING
) -> tuple[Field[R], ...]:
    """Return the fields of a comparison: the difference, and images that were gained and lost.

    Args:
        comparison: of a record, None where there is none.
        heading: of the difference.
        missing: stands for a comparison that is not there.
    """

    def part(name: str, otherwise: Any = None) -> Callable[[R], Any]:
        return lambda record: otherwise if (one := comparison(record)) is None else getattr(one, name)

    def counts(one: Comparison | None) -> str:
        return missing if one is None else f"+{one.gained:,} -{one.lost:,}"

    def difference(delta: Interval) -> str:
        return missing if isnan(delta.value) else TOP1.show(delta, sign=True)

    return (
        Field(heading, "delta", part("difference", UNKNOWN), difference),
        Field("", "gained", part("gained")),
        Field("", "lost", part("lost")),
        Field("Gained/lost", "", comparison, counts),
    )


def _tests(missing: str) -> tuple[Field[_Row], ...]:
    """Return the fields of a comparison with zero-shot."""

    def p_value(index: int) -> Callable[[_Row], float | None]:
        return lambda row: None if row.p_values is None else row.p_values[index]

    def show(p: float | None) -> str:
        return missing if p is None else f"{p:.2g}"

    tests = (Field("p", "p", p_value(0), show), Field("p (Holm)", "p_holm", p_value(1), show))
    return *comparison_fields(lambda row: row.comparison, missing=missing), *tests


_METHOD: Field[_Row] = Field("Method", "", lambda row: marked_title(row.results, row.method))
_N: Field[_Row] = Field("n", "n", lambda row: row.n, "{:,}".format)
_TOP1: Field[_Row] = Field("Top-1 [95%]", "top1", lambda row: row.top1, TOP1.show)
_ECE: Field[_Row] = Field("ECE", "", lambda row: row.ece, lambda ece: MISSING if ece is None else TOP1.format(ece))


def _of(row: _Row) -> Result:
    """Return the result of a row of one data set."""
    return row.results[0]


def _value(name: str) -> Callable[[_Row], float | None]:
    return lambda row: METRICS[name].value(_of(row)) if METRICS[name].known(_of(row)) else None


_LONG: tuple[Field[_Row], ...] = (
    Field("Data set", "dataset", lambda row: _of(row).dataset, dataset_title),
    _METHOD,
    Field("", "method", lambda row: row.method),
    Field("", "split", lambda row: _of(row).config["dataset"]["split"]),
    _N,
    Field("", "unreadable", lambda row: _of(row).unreadable),
    Field("", "listed", lambda row: _of(row).config["dataset"]["listed"]),
    Field("", "complete", lambda row: _of(row).run.complete),
    Field("", "config", lambda row: _of(row).hash),
    _TOP1,
    Field("Top-5 [95%]", "top5", lambda row: row.measured("top5"), TOP1.show),
    Field("", "mean_per_class", lambda row: row.measured("mean_per_class")),
    Field(
        "", "top1_unreadable_wrong", lambda row: int(_of(row).correct.sum()) / seen if (seen := _of(row).seen) else ""
    ),
    *(Field("", name, _value(name)) for name in ("ece", "brier", "nll")),
    *_tests(missing=""),
    _ECE,
)


def _long_rows(group: TableGroup) -> Iterator[_Row]:
    """Yield a row per data set and method; p-values are adjusted over the data sets."""
    p_values = {method: adjusted_p_values(group, method) for method in group.methods}
    for name, results in group.results.items():
        for method in (method for method in group.methods if method in results):
            yield _Row(method, [results[method]], p_values[method].get(name))


def long_table(group: TableGroup) -> Table:
    """Return a table with a row per data set and method: accuracies with intervals, and the comparison with zero-shot.

    Δ is paired by image, with a bootstrap interval; p is McNemar's exact test, by itself and by Holm's method over the
    data sets.
    """
    footnote = (
        "Percent; accuracies with Wilson's interval. Δ is top-1 over zero-shot's on the same images, with a paired "
        "bootstrap interval; gained and lost are images; p is McNemar's exact test, then by Holm's method over the "
        "data sets; ECE has 20 bins."
    )
    notes = (footnote, *coverage(group), *_unreadable(group, TOP1), *memory_notes(_held(group)))
    return Table.of(group.title, _LONG, _long_rows(group), notes, text_columns=2, by=(0,))


def adjusted_p_values(group: TableGroup, method: str) -> dict[str, tuple[float, float]]:
    """Return a method's p-values by data set: McNemar's exact test, and adjusted by Holm's method over the sets."""
    return _adjusted({name: result.comparison for name, result in group.row(method).items()})


def _adjusted(comparisons: Mapping[str, Comparison | None]) -> dict[str, tuple[float, float]]:
    """Return the p-values of those that are known, beside those that are adjusted by Holm's method."""
    p_values = {name: one.p_value for name, one in comparisons.items() if one is not None}
    adjusted = holm(list(p_values.values())) if p_values else ()
    return {name: (p, adjusted_p) for (name, p), adjusted_p in zip(p_values.items(), adjusted, strict=True)}


def pooled_comparison(comparisons: Iterable[Comparison | None]) -> Comparison | None:
    """Return comparisons on several data sets as one, each image weighing the same; None where there is none."""
    known = [one for one in comparisons if one is not None]
    return Comparison.pooled(known) if len(known) > 1 else known[0] if known else None


def pooled_bins(results: Sequence[Result]) -> Reliability | None:
    """Return the reliability of all predictions; None where there are none, or not their probabilities."""
    known = [r for r in results if r.n and not r.predictions_only and np.isfinite(r.confidence).all()]
    if not known:
        return None
    return reliability(np.concatenate([r.confidence for r in known]), np.concatenate([r.correct for r in known]))


_POOLED: tuple[Field[_Row], ...] = (
    _METHOD,
    Field("Sets", "", lambda row: len(row.results)),
    _N,
    _TOP1,
    *_tests(missing=MISSING),
    Field("Mean Δ of sets [95%]", "", lambda row: TOP1.gain(row.results), partial(TOP1.show, sign=True)),
    _ECE,
)


def pooled_table(group: TableGroup, title: str = "All data sets together") -> Table:
    """Return a table with a row per method: all images of all data sets, each weighing the same.

    p is McNemar's exact test, by itself and by Holm's method over the methods.

    Args:
        group: the results.
        title: of the table.
    """
    held = {method: results for method in group.methods if (results := list(group.row(method).values()))}
    p_values = _adjusted({name: pooled_comparison(r.comparison for r in results) for name, results in held.items()})
    notes = (
        "Percent. Every image weighs the same, but in the mean over data sets, where each set does. Top-1 has "
        "Wilson's interval. Δ is over zero-shot on the same images, with a paired bootstrap interval; gained and "
        "lost are images; p is McNemar's exact test, then by Holm's method over the methods. ECE has 20 bins.",
        *_apart(list(held.values())),
        *memory_notes(result for results in held.values() for result in results),
    )
    return Table.of(title, _POOLED, [_Row(name, results, p_values.get(name)) for name, results in held.items()], notes)


def _apart(rows: Sequence[Sequence[Result]]) -> Iterator[str]:
    """Yield that methods answered different images, where they did."""
    images = [[(result.dataset, result.positions.tolist()) for result in row] for row in rows]
    if any(other != images[0] for other in images):
        yield "Methods answered different images: compare them by Δ, which is on each one's own images."


def _explanations(group: TableGroup, columns: Sequence[Column], metric: Metric) -> Iterator[str]:
    """Yield what the columns are, and which of them compare nothing."""
    headings = [column.heading for column in columns]
    yield (
        f"{'More' if metric.higher else 'Less'} is better."
        + (f" {headings[len(group.results)]} is the mean over these data sets." if len(group.results) > 1 else "")
        + (" OOD Avg. is the mean over ImageNet-A, -K, -R and -V." if "OOD Avg." in headings else "")
        + " Δ is over zero-shot on the same images. "
        + (
            "±95% is the largest half-width of a column's 95% intervals."
            if metric.has_interval
            else "No intervals: resampled, the error is larger than on the images themselves."
        )
    )
    apart = [column.heading for column in columns if not column.gained and not column.comparable(group)]
    if apart:
        yield f"Not ranked, as methods answered different images: {', '.join(apart)}."


def _unreadable(group: TableGroup, metric: Metric) -> Iterator[str]:
    """Yield, for each data set, how many files were unreadable and the accuracies with them counted as wrong."""
    for name, results in group.results.items():
        some = [results[method] for method in group.methods if method in results and results[method].unreadable]
        for unreadable, whole in sorted({(result.unreadable, result.unreadable + result.n) for result in some}):
            line = f"{dataset_title(name)}: {unreadable:,} of {whole:,} files unreadable and left out"
            if metric.counts and metric.score is not None:
                same = [r for r in some if (r.unreadable, r.unreadable + r.n) == (unreadable, whole)]
                correct = {r.method: int(metric.score(r).sum()) if r.n else 0 for r in same}
                worse = (f"{method_title(m)} {TOP1.show(Accuracy(k, whole).estimate)}" for m, k in correct.items())
                line += f"; counted as wrong: {', '.join(worse)}"
            yield f"{line}."


def _gains(group: TableGroup, metric: Metric) -> Iterator[str]:
    """Yield, for each method, its mean gain over zero-shot with the interval."""
    for method in group.methods:
        row = group.row(method)
        if (value := metric.gain(list(row.values()))) is not None:
            part = f" over {len(row)} of {len(group.results)} data sets" if len(row) < len(group.results) else ""
            images = f"{sum(result.n for result in row.values()):,} images"
            how = f"paired on {images}, 95% interval" if metric.has_interval else images
            yield f"Δ {method_title(method)}: {metric.show(value, sign=True)}{part} ({how})."


def paper_records(groups: Sequence[TableGroup], metric_name: str = "top1", compared: bool = False) -> list[Record]:
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
        reported = _reported(group, compared)
        for column in (column for column in columns_of(group) if not column.gained):
            name = column.sets[0] if len(column.sets) == 1 else "ood_avg" if column.heading == "OOD Avg." else "avg"
            for method in group.methods:
                if results := column.results(group, method):
                    record = _settings(group, groups) | {"column": name, "method": method, "metric": metric_name}
                    record |= {"n": sum(r.n for r in results), "unreadable": sum(r.unreadable for r in results)}
                    estimates = {"value": metric.measure(results), "delta": metric.gain(results)}
                    record |= {key: estimate or UNKNOWN for key, estimate in estimates.items()}
                    records.append(flat(record | reported(column.sets, method)))
    return records


def long_records(groups: Sequence[TableGroup], compared: bool = False) -> list[Record]:
    """Return a record per data set and method, with all metrics and the comparison with zero-shot.

    Accuracies are proportions, not percent.

    Args:
        groups: the results.
        compared: whether to add what the paper reports.
    """
    records = []
    for group in groups:
        reported = _reported(group, compared)
        for row in _long_rows(group):
            record = _settings(group, groups) | record_of(_LONG, row)
            records.append(flat(record | reported((_of(row).dataset,), row.method)))
    return records


def _settings(group: TableGroup, groups: Sequence[TableGroup]) -> Record:
    return {**settings_record(group.settings, [other.settings for other in groups]), "benchmark": group.benchmark}


def _reported(group: TableGroup, compared: bool) -> Callable[[tuple[str, ...], str], Record]:
    """Return what gives the entries of data sets and a method: what the paper reports, if it is asked for."""
    comparisons: dict[tuple[tuple[str, ...], str], PaperComparison] = {}
    with suppress(MissingError):  # the paper has no such table: its columns stay empty
        comparisons = {(one.column.sets, one.method): one for one in compare_with_paper(group)} if compared else {}

    def entries(sets: tuple[str, ...], method: str) -> Record:
        one = comparisons.get((sets, method))
        difference = one.difference if one else UNKNOWN
        return {"reported": one.reported if one else None, "difference": difference} if compared else {}

    return entries
