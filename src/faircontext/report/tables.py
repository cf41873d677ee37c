"""All tables of runs: the paper's and longer ones, over orders of a stream, under perturbations, of several labels.

A table is its records and columns; they are written as Markdown, LaTeX, for a terminal, as HTML and, unrounded and with
one quantity a column, as CSV. A difference from what the paper reports is information, never a verdict: its interval is
that of the measured accuracy. Orders of the same images are not more images: an accuracy of a method with a memory is
the mean over orders, with Wilson's interval of the images, and the standard deviation of the orders stands beside it.
Under corruptions and attacks everything is on images that a method answered under all the perturbations of a row,
paired image by image.

Sources in the paper: tables `tab:tta_imagenet_vitb16`, `tab:tta_vitb16_fg`, `tab:tta_imagenet_rn50` and
`tab:delta_clip_merged`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from math import isnan, nan
from typing import Any

import numpy as np
from jaxtyping import Bool

from faircontext.datasets.spec import CATALOGUE
from faircontext.errors import ArgumentError, counted
from faircontext.metrics.bootstrap import PooledMean, bootstrap_mean, pool
from faircontext.metrics.orders import Outcomes, accuracy_over_orders, difference_over_orders, mean_corruption_error
from faircontext.metrics.scores import Comparison, compare_sets, expected_calibration_error
from faircontext.metrics.stats import Accuracy, Interval, holm
from faircontext.perturbations import KINDS
from faircontext.report import class_tables
from faircontext.report.benchmarks import (
    ALL_SETS,
    METRICS,
    MISSING,
    NO_GAIN,
    SETS,
    TOP1,
    UNKNOWN,
    Metric,
    Published,
    Scope,
    StreamBlock,
    TableGroup,
    coverage,
    dataset_title,
    known_or_missing,
    marked_title,
    memory_notes,
    paper_scopes,
    pooled_answers,
    published_accuracies,
    read_reported,
    reported_accuracies,
    scopes_of,
    settings_record,
    shortfalls,
    split_by_benchmark,
    stream_blocks,
    tuned_note,
)
from faircontext.report.render import (
    Cell,
    Column,
    MissingError,
    Rank,
    Table,
    flat,
    to_csv,
    to_latex,
    to_markdown,
    to_terminal,
)
from faircontext.runs.groups import (
    RunGroup,
    RunSettings,
    describe_stream,
    group_runs,
    incomplete,
    shared_positions,
    values_at,
)
from faircontext.runs.label_results import LabelResult, is_multi_label, read_label_result
from faircontext.runs.records import method_of, method_title
from faircontext.runs.results import TUNED, Result
from faircontext.runs.store import Run
from faircontext.runs.stream_results import StreamResult, split_streams

Record = dict[str, Any]


def paper_table(group: TableGroup, metric_name: str = "top1") -> Table:
    """Return a table as the paper has it, with counts of images, intervals and gains beneath.

    The best value of a column is bold and the second underlined, by what is printed; where methods answered different
    images they are not compared.

    Args:
        group: the results.
        metric_name: one of `METRICS`.
    """
    metric, scopes, methods = METRICS[metric_name], paper_scopes(group), group.methods
    compared = scopes if len(scopes) == 1 else scopes[len(group.results) :]
    apart = [scope.heading for scope in scopes if not scope.comparable(group)]
    columns = []
    for scope in scopes:
        by_method = [scope.results(group, method) for method in methods]
        counts = {sum(r.n for r in results) for results in by_method if results}
        measured = [metric.measure(results) for results in by_method]
        columns.append(Pivoted(scope.heading, measured, counts, None if scope.heading in apart else metric.higher))
        if scope in compared:  # beside its mean
            heading = "Δ" if len(scopes) == 1 else f"Δ {scope.heading}"
            columns.append(Pivoted(heading, [metric.gain(results) for results in by_method], counts, signed=True))
    gains = {method: metric.gain([*group.row(method).values()]) for method in methods}
    notes = (
        _explanation(group, scopes, metric),
        *([f"Not ranked, as methods answered different images: {', '.join(apart)}."] if apart else []),
        *coverage(group),
        *_unreadable(group, metric),
        *_gains(group, metric, gains),
        *sets_notes(gains.values()),
        *memory_notes(_held(group)),
    )
    table = _pivot(
        f"{metric.title[0].upper()}{metric.title[1:]} of {group.title}",
        [marked_title(_held(group, method), method) for method in methods],
        columns,
        metric,
        notes,
    )
    return replace(table, rules=frozenset(_rules(methods)), bars=frozenset({0, len(group.results)}))


@dataclass(frozen=True)
class Pivoted:
    """A column of a table of methods by columns.

    Attributes:
        heading: of the column.
        measured: of each method, None where it is not known.
        counts: of images, over methods.
        higher: whether the largest value is the best, None where values are not ranked.
        signed: whether values have a sign.
        texts: of each method, in place of what was measured.
    """

    heading: str
    measured: Sequence[Interval | PooledMean | None]
    counts: Collection[int]
    higher: bool | None = None
    signed: bool = False
    texts: Sequence[str] | None = None

    def cells(self, metric: Metric) -> list[Cell]:
        """Return the cells; of those that are printed alike all are the best, or all the second."""
        texts = self.texts or [MISSING if v is None else metric.format(v.value, self.signed) for v in self.measured]
        known = {*texts} - {MISSING}
        several = self.higher is not None and sum(text != MISSING for text in texts) > 1
        best = sorted(known, key=float, reverse=bool(self.higher)) if several else []
        ranks: dict[str, Rank] = dict(zip(best, ("best", "second"), strict=False))
        return [Cell(text, ranks.get(text, "")) for text in texts]

    def half_widths(self, metric: Metric) -> tuple[str, str]:
        """Return the largest half-width of the intervals over these images, and of those over sets like these."""
        pooled = [value for value in self.measured if isinstance(value, PooledMean)]
        single = [value for value in self.measured if isinstance(value, Interval)]
        kinds = ([*single, *(value.images for value in pooled)], [value.sets for value in pooled if value.sets])
        halves = ([max(v.value - v.low, v.high - v.value) for v in kind if not isnan(v.low)] for kind in kinds)
        images, sets = (f"±{metric.format(max(known))}" if known else MISSING for known in halves)
        return images, sets


def _pivot(title: str, rows: Sequence[str], columns: Sequence[Pivoted], metric: Metric, notes: Iterable[str]) -> Table:
    """Return a table of methods by columns; below it images, and the largest half-widths of a column's intervals."""
    foot = [("n", *(range_of(column.counts or [0]) for column in columns))]
    if metric.has_interval:
        images, sets = zip(*(column.half_widths(metric) for column in columns), strict=True)
        foot += [("±95%", *images), *([(f"±{SETS_MARK}", *sets)] if {*sets} != {MISSING} else [])]
    body = zip(map(Cell, rows), *(column.cells(metric) for column in columns), strict=True)
    headings, lines = ("Method", *(column.heading for column in columns)), (tuple(map(Cell, line)) for line in foot)
    return Table(title, headings, tuple(body), tuple(lines), tuple(notes), bars=frozenset({0}))


def range_of(counts: Iterable[int]) -> str:
    """Return the least and the most of some counts, or the one that all are."""
    known = [*counts]
    return " to ".join(f"{n:,}" for n in dict.fromkeys((min(known), max(known))))


def _held(group: TableGroup, *methods: str) -> list[Result]:
    """Return a group's results, of all methods or of some."""
    return [
        r for by_method in group.results.values() for name, r in by_method.items() if name in (methods or by_method)
    ]


def _rules(methods: Sequence[str]) -> Iterator[int]:
    """Yield where the paper draws lines: after zero-shot, and before FCL."""
    kinds = [name if name == "zero_shot" else "ours" if name.startswith("fcl") else "others" for name in methods]
    yield from (row for row in range(len(kinds) - 1) if kinds[row] != kinds[row + 1])


def comparison_record(comparisons: Iterable[Comparison | None]) -> Record:
    """Return what a record has of comparisons on data sets: the difference, and images that were gained and lost."""
    known = [one for one in comparisons if one is not None]
    if not known:
        return {"delta": NO_GAIN, "gained": None, "lost": None, "_counts": None}
    gained, lost = sum(one.gained for one in known), sum(one.lost for one in known)
    return {"delta": compare_sets(known), "gained": gained, "lost": lost, "_counts": f"+{gained:,} -{lost:,}"}


SETS_MARK = "95% sets"
"""Heads intervals over sets like these; others are over these images."""

SIGNED = partial(TOP1.show, sign=True)
"""Writes a difference of accuracies."""


def difference_columns(heading: str, key: str, missing: str = MISSING) -> tuple[Column, Column]:
    """Return the columns of a difference of accuracies, a `PooledMean`: each interval has one.

    Args:
        heading: what the difference is called.
        key: of the difference in a record.
        missing: what stands for one that is not known.
    """

    def show(gain: PooledMean) -> str:
        return missing if isnan(gain.value) else SIGNED(gain.images)

    def ends(gain: PooledMean) -> str:
        return TOP1.ends(gain.sets, sign=True)

    return Column(f"{heading} [95%]", key, show), Column(f"{heading} [{SETS_MARK}]", key, ends, MISSING)


def sets_notes(gains: Iterable[PooledMean | None]) -> Iterator[str]:
    """Yield what the two intervals of differences over several data sets are, or why there is one."""
    several = [gain for gain in gains if gain is not None and gain.datasets > 1 and not isnan(gain.value)]
    if any(gain.sets is not None for gain in several):
        yield (
            f"Two intervals answer two questions: [95%] what other images of these very sets would give, [{SETS_MARK}] "
            "what is to be expected on other sets like these (sets are drawn again, then their images)."
        )
    for reason in dict.fromkeys(gain.reason for gain in several if gain.reason):
        yield f"Without an interval over sets like these: {reason}."


DATASET = Column("Data set", "dataset", dataset_title)
METHOD = Column("Method", "_method")
N = Column("n", "n", "{:,}".format)
TOP1_COLUMN = Column("Top-1 [95%]", "top1", TOP1.show)


def _tests(missing: str) -> tuple[Column, ...]:
    """Return the columns of a comparison with zero-shot; `missing` stands for what is not there."""
    p_values = (
        Column(name, key, known_or_missing("{:.2g}", missing)) for name, key in (("p", "p"), ("p (Holm)", "p_holm"))
    )
    delta = difference_columns("Δ", "delta", missing)
    return *delta, Column("Gained/lost", "_counts", known_or_missing(missing=missing)), *p_values


_ECE = Column("ECE", "_ece", known_or_missing("{:.2f}"))


def pooled_accuracy(results: Sequence[Result]) -> Interval:
    """Return the accuracy on several data sets, each image weighing the same."""
    n = sum(result.n for result in results)
    return Accuracy(sum(int(result.correct.sum()) for result in results), n).estimate if n else UNKNOWN


def _record(results: Sequence[Result], method: str) -> Record:
    """Return a method on some data sets, each image weighing the same, without p-values."""
    known = pooled_answers(results)
    return {
        "_method": marked_title(results, method),
        "method": method,
        "n": sum(result.n for result in results),
        "top1": pooled_accuracy(results),
        **comparison_record(result.comparison for result in results),
        "p": None,
        "p_holm": None,
        "_ece": None if known is None else 100 * expected_calibration_error(*known),
    }


def _long_records(group: TableGroup) -> Iterator[Record]:
    """Yield a record per data set and method; p-values are adjusted over the data sets."""
    p_values = {method: adjusted_p_values(group, method) for method in group.methods}
    for name, results in group.results.items():
        for method, result in ((method, results[method]) for method in group.methods if method in results):
            shared, config = _record([result], method) | p_values[method].get(name, {}), result.config
            correct, seen = int(result.correct.sum()), result.seen
            known = [METRICS[key] if METRICS[key].known(result) else None for key in ("ece", "brier", "nll")]
            yield (
                {"dataset": name, "_method": None, "method": method, "split": config["dataset"]["split"], "n": result.n}
                | {"unreadable": result.unreadable, "listed": config["dataset"]["listed"]}
                | {"complete": result.run.complete, "config": result.hash, "top1": shared["top1"]}
                | {key: METRICS[key].measure([result]) or UNKNOWN for key in ("top5", "mean_per_class")}
                | {"top1_unreadable_wrong": correct / seen if seen else None}
                | {key: one and one.value(result) for key, one in zip(("ece", "brier", "nll"), known, strict=True)}
                | shared
            )


_LONG = (DATASET, METHOD, N, TOP1_COLUMN, Column("Top-5 [95%]", "top5", TOP1.show), *_tests(""), _ECE)


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
    return Table.of(group.title, _LONG, _long_records(group), notes, text_columns=2, by=(0,))


def adjusted_p_values(group: TableGroup, method: str) -> dict[str, Record]:
    """Return a method's p-values by data set: McNemar's exact test, and adjusted by Holm's method over the sets."""
    comparisons = {name: result.comparison for name, result in group.row(method).items()}
    return _adjusted({name: None if one is None else one.p_value for name, one in comparisons.items()})


def _adjusted(p_values: Mapping[str, float | None]) -> dict[str, Record]:
    """Return the p-values that are known, as records have them, each beside the one that Holm's method makes of it."""
    known = {name: p for name, p in p_values.items() if p is not None}
    adjusted = holm([*known.values()]) if known else ()
    return {name: {"p": p, "p_holm": p_holm} for (name, p), p_holm in zip(known.items(), adjusted, strict=True)}


_MEAN_GAIN = difference_columns("Mean Δ of sets", "_gain")
_POOLED = (METHOD, Column("Sets", "_sets"), N, TOP1_COLUMN, *_tests(MISSING), *_MEAN_GAIN, _ECE)


def pooled_table(group: TableGroup, title: str = "All data sets together") -> Table:
    """Return a table with a row per method: all images of all data sets, each weighing the same.

    p is McNemar's exact test, by itself and by Holm's method over the methods.

    Args:
        group: the results.
        title: of the table.
    """
    by_method = {method: results for method in group.methods if (results := list(group.row(method).values()))}
    records = {
        name: _record(results, name) | {"_sets": len(results), "_gain": TOP1.gain(results) or NO_GAIN}
        for name, results in by_method.items()
    }
    p_values = _adjusted({name: record["delta"].p_value for name, record in records.items()})
    notes = (
        "Percent. Every image weighs the same, but in the mean over data sets, where each set does. Top-1 has "
        "Wilson's interval. Δ is over zero-shot on the same images, with a paired bootstrap interval; gained and "
        "lost are images; p is McNemar's exact test, then by Holm's method over the methods. ECE has 20 bins.",
        *sets_notes(record[key] for record in records.values() for key in ("delta", "_gain")),
        *_apart(list(by_method.values())),
        *memory_notes(result for results in by_method.values() for result in results),
    )
    return Table.of(title, _POOLED, (record | p_values.get(name, {}) for name, record in records.items()), notes)


def _apart(rows: Sequence[Sequence[Result]]) -> Iterator[str]:
    """Yield that methods answered different images, where they did."""
    images = [[(result.dataset, result.positions.tolist()) for result in row] for row in rows]
    if any(other != images[0] for other in images):
        yield "Methods answered different images: compare them by Δ, which is on each one's own images."


def _explanation(group: TableGroup, scopes: Sequence[Scope], metric: Metric) -> str:
    """Return what the columns are."""
    parts = [f"{'More' if metric.higher else 'Less'} is better."]
    if len(scopes) > 1:
        parts.append(f"{scopes[len(group.results)].heading} is the mean over these data sets.")
    if scopes[-1].name == "ood_avg":
        parts.append("OOD Avg. is the mean over ImageNet-A, -K, -R and -V.")
    parts.append("Δ is over zero-shot on the same images.")
    width = "±95% is the largest half-width of a column's 95% intervals."
    none = "No intervals: resampled, the error is larger than on the images themselves."
    return " ".join([*parts, width if metric.has_interval else none])


def _unreadable(group: TableGroup, metric: Metric) -> Iterator[str]:
    """Yield, for each data set, how many files were unreadable and the accuracies with them counted as wrong."""
    for name, results in group.results.items():
        some = [results[method] for method in group.methods if method in results and results[method].unreadable]
        for unreadable, total in sorted({(result.unreadable, result.unreadable + result.n) for result in some}):
            line = f"{dataset_title(name)}: {unreadable:,} of {counted(total, 'file')} unreadable and left out"
            if metric.counts and metric.score is not None:
                same = [r for r in some if (r.unreadable, r.unreadable + r.n) == (unreadable, total)]
                correct = {r.method: int(metric.score(r).sum()) if r.n else 0 for r in same}
                worse = (f"{method_title(m)} {TOP1.show(Accuracy(k, total).estimate)}" for m, k in correct.items())
                line += f"; counted as wrong: {', '.join(worse)}"
            yield f"{line}."


def _gains(group: TableGroup, metric: Metric, gains: Mapping[str, PooledMean | None]) -> Iterator[str]:
    """Yield, for each method, its mean gain over zero-shot with the intervals."""
    for method, gain in ((method, gain) for method, gain in gains.items() if gain is not None):
        sets, total = gain.datasets, len(group.results)
        part = f" over {sets} of {total} data sets" if sets < total else ""
        over_sets = "" if gain.sets is None else f", [{SETS_MARK}] {metric.ends(gain.sets, sign=True)}"
        images = counted(gain.n, "image")
        intervals = "95% interval" if gain.sets is None else "95% intervals"
        note = f"paired on {images}, {intervals}" if metric.has_interval else images
        yield f"Δ {method_title(method)}: {metric.show(gain.images, sign=True)}{over_sets}{part} ({note})."


def paper_records(groups: Sequence[TableGroup], metric_name: str = "top1", compared: bool = False) -> list[Record]:
    """Return a record per method and column (data set or mean) of the paper's tables.

    Accuracies are proportions, not percent.

    Args:
        groups: the results.
        metric_name: one of `METRICS`.
        compared: whether to add what the paper reports.
    """
    metric, records = METRICS[metric_name], []
    for group in groups:
        shared, reported = _shared(group, groups), _reported(group, compared)
        for scope, method in ((scope, method) for scope in paper_scopes(group) for method in group.methods):
            if results := scope.results(group, method):
                record = shared | {"column": scope.name, "method": method, "metric": metric_name}
                record |= {"n": sum(r.n for r in results), "unreadable": sum(r.unreadable for r in results)}
                record |= {"value": metric.measure(results) or UNKNOWN, "delta": metric.gain(results) or NO_GAIN}
                records.append(flat(record | reported[scope.sets, method]))
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
        shared, reported = _shared(group, groups), _reported(group, compared)
        records += [flat(shared | r | reported[(r["dataset"],), r["method"]]) for r in _long_records(group)]
    return records


def _shared(group: TableGroup, groups: Sequence[TableGroup]) -> Record:
    return {**settings_record(group.settings, [other.settings for other in groups]), "benchmark": group.benchmark}


def _reported(group: TableGroup, compared: bool) -> Mapping[tuple[tuple[str, ...], str], Record]:
    """Return what the paper reports, by data sets and method, if it is asked for; nothing stands for what it lacks."""
    empty = {"reported": None, "difference": NO_GAIN} if compared else {}
    accuracies: dict[tuple[tuple[str, ...], str], Record] = defaultdict(lambda: empty)
    with suppress(MissingError):  # the paper has no such table: its columns stay empty
        for one in compare_with_paper(group) if compared else ():
            accuracies[one.scope.sets, one.method] = {"reported": one.reported, "difference": one.difference}
    return accuracies


def _less(measured: Interval, reported: float) -> Interval:
    """Return what was measured less what is reported."""
    return Interval(*(end - reported for end in vars(measured).values()))


@dataclass(frozen=True)
class PaperComparison:
    """A column of the table, a method, its accuracy as measured and as reported, and the difference, as proportions."""

    scope: Scope
    method: str
    measured: Interval
    reported: float
    difference: PooledMean

    @property
    def n(self) -> int:
        """Its images."""
        return self.difference.n


def _reported_method(group: TableGroup, name: str) -> str | None:
    """Return what the paper calls a method of a group's runs, None for a variant that the paper's tables lack."""
    base = method_of(name)
    settings = next(results[name].settings for results in group.results.values() if name in results)
    if base == "fcl" and settings.get("context") == "cl-hp":
        return "FCL-HP"
    return {"zero_shot": "CLIP"}.get(name, method_title(name)) if base == name else None


def compare_with_paper(group: TableGroup) -> Iterator[PaperComparison]:
    """Yield comparisons by column and method, the means where the group has all of the paper's columns.

    Raises:
        ArgumentError: the paper has no table of the group's backbone and data sets.
    """
    reported = reported_accuracies(group.settings.backbone, group.benchmark)
    complete = len(group.results) == len(SETS.get(group.benchmark, ()))
    for scope in (scope for scope in paper_scopes(group) if scope.name != "avg" or complete):
        for method in group.methods:
            results, theirs = scope.results(group, method), reported.get(_reported_method(group, method) or "", {})
            if scope.name in theirs and (ours := TOP1.measure(results)) is not None:
                known = theirs[scope.name] / 100
                shifted = [result.correct - theirs[result.dataset] / 100 for result in results]
                difference = pool(shifted, "set", images=_less(ours, known))
                yield PaperComparison(scope, method, ours, known, difference)


def _reservations(group: TableGroup) -> Iterator[str]:
    """Yield in what a group's runs differ from the paper's, a line each."""
    counts = {name: entry.paper for name, entry in CATALOGUE.items()}
    for name, results in group.results.items():
        listed = next(iter(results.values())).config["dataset"]["listed"]
        if listed != counts.get(name, listed):
            images = counted(counts[name], "image")
            yield f"{dataset_title(name)}: the paper counts {images}; this split has {listed:,}."
    if group.settings.pretrained != "openai":
        yield f"The paper's weights are openai; these are {group.settings.pretrained or 'others'}."
    if group.settings.preset != "paper":
        yield f"The paper's settings are those of preset paper; these are of preset {group.settings.preset}."
    if group.settings.prompts != "single":
        prompts = group.settings.prompts
        yield f'The paper\'s prompt is "a photo of a {{}}." alone (prompts single); these runs have {prompts}.'


def comparison_table(group: TableGroup) -> Table:
    """Return a table of comparisons with the paper.

    Raises:
        MissingError: the paper has none of the accuracies.
    """
    comparisons = list(compare_with_paper(group))
    if not comparisons:
        raise MissingError(f"the paper reports none of the methods of {group.settings.backbone} that were run")
    records = [vars(one) | {"_scope": one.scope.heading, "n": one.n} for one in comparisons]
    title = f"Top-1 accuracy measured, and reported by the paper: {group.title}"
    intervals = "Percent, with 95% intervals of what was measured; the paper gives none of its own."
    notes = (f"{intervals} For information: a difference is no verdict.", *_reservations(group))
    heads = (Column("Data set", "_scope"), Column("Method", "method", method_title))
    return _beside_reported(title, heads, "Paper", records, notes)


def _beside_reported(
    title: str, heads: Sequence[Column], whose: str, records: Sequence[Record], notes: Iterable[str]
) -> Table:
    """Return a table of accuracies measured beside those reported by others, after the columns that say of what."""
    measured = Column("Measured [95%]", "measured", TOP1.show)
    reported = (measured, Column(whose, "reported", TOP1.format), *difference_columns("Difference", "difference"))
    several = sets_notes(record["difference"] for record in records)
    return Table.of(title, (*heads, N, *reported), records, (*notes, *several), text_columns=len(heads), by=(0,))


def stream_tables(block: StreamBlock, long: bool = False, metric: Metric = TOP1) -> list[Table]:
    """Return the tables of a block: accuracies and costs, and comparisons with methods without a memory.

    Args:
        block: the results.
        long: whether each data set has rows of its own in all tables.
        metric: what methods by data sets show; that table is left out for the accuracy on one data set.
    """
    shown = [*block.scopes] if long else [*block.scopes][-1:]
    by_set = not long and (len(block.datasets) > 1 or metric is not TOP1)
    tables = [*([_by_set(block, metric)] if by_set else []), _accuracies(block, shown), _comparisons(block, shown)]
    return [table for table in tables if table.rows]


def _notes(block: StreamBlock) -> Iterator[str]:
    """Yield what is to be known of methods with a memory, and where settings were tuned."""
    yield (
        "These methods have seen unlabelled test images before; the others have not. Early images meet an empty "
        "memory, so that accuracies of streams of other lengths do not compare."
    )
    yield from _other_orders(block)
    yield from tuned_note(_tuned(block))
    results = [result for method in block.runs.methods for result in _results(block, method)]
    missing = dict.fromkeys((result.dataset, ", ".join(shortfalls(result))) for result in results)
    yield from (f"{dataset_title(name)}: {parts}." for name, parts in missing if parts)
    unreadable = dict.fromkeys((r.dataset, r.unreadable, r.unreadable + r.n) for r in results if r.unreadable)
    for name, count, files in unreadable:
        yield f"{dataset_title(name)}: {count:,} of {counted(files, 'file')} unreadable and left out."
    if left := [name for name in block.runs.methods if ([*block.scopes][-1], name) not in block.results]:
        yield f"Not of all data sets in one order, and left out there: {', '.join(map(method_title, left))}."


def _other_orders(block: StreamBlock) -> Iterator[str]:
    """Yield which methods were run on which sets in other orders than most, if any were."""
    by_orders = dict[str, list[str]]()
    for (scope, method), result in block.results.items():
        if scope != ALL_SETS:
            orders = describe_stream(result.orders, "shuffled")
            by_orders.setdefault(orders, []).append(f"{method_title(method)} on {dataset_title(scope)}")
    if len(by_orders) > 1:
        most = max(by_orders, key=lambda orders: len(by_orders[orders]))
        others = (f"{', '.join(names)} in {orders}" for orders, names in by_orders.items() if orders != most)
        where = " All sets together are of the orders that each of them has." if len(block.scopes) > 1 else ""
        yield f"Not all are means of the same orders: most are in {most}, {'; '.join(others)}.{where}"


def _by_set(block: StreamBlock, metric: Metric) -> Table:
    """Return methods by data sets: the mean over orders and their standard deviation."""
    methods, columns = block.runs.methods, []
    for name in block.datasets:
        by_method = [_results(block, method, name) for method in methods]
        measured = [[metric.measure([result]) for result in results] for results in by_method]
        counts, texts = {r.n for results in by_method for r in results}, [_mean(values, metric) for values in measured]
        columns.append(Pivoted(dataset_title(name), [v for values in measured for v in values], counts, texts=texts))
    notes = (
        "After ± stands the standard deviation of the orders. ±95% is the largest half-width of an order's "
        "95% interval of the images.",
        *_other_orders(block),
        *tuned_note(_tuned(block)),
    )
    title = f"{metric.title[0].upper()}{metric.title[1:]} of methods with a memory, mean of orders: {block.title}"
    titles = [marked_title(_results(block, method), method) for method in methods]
    return _pivot(title, titles, columns, metric, notes)


def _results(block: StreamBlock, method: str, *datasets: str) -> list[Result]:
    """Return a method's results in all orders, on some data sets or on all."""
    names = datasets or block.datasets
    return [result for name in names if (stream := block.results.get((name, method))) for result in stream.all]


def _tuned(block: StreamBlock) -> Iterator[tuple[str, str]]:
    """Yield methods and data sets for which their authors chose settings, as they are called in tables."""
    results = (result for method in block.runs.methods for result in _results(block, method) if result.tuned)
    return ((method_title(result.method), dataset_title(result.dataset)) for result in results)


def _mean(measured: Sequence[Interval | None], metric: Metric) -> str:
    values = [interval.value for interval in measured if interval is not None]
    if not values or len(values) < len(measured):
        return MISSING
    sd = f" ± {metric.format(float(np.std(values, ddof=1)))}" if len(values) > 1 else ""
    return metric.format(float(np.mean(values))) + sd


def _orders_record(
    scope: str, method: str, correct: Bool[np.ndarray, "orders n"], stream: StreamResult | None
) -> Record:
    """Return a method on a data set or all; `stream` is None for zero-shot, which has no memory."""
    accuracy = accuracy_over_orders(correct)
    ends = f"{TOP1.format(accuracy.least)} to {TOP1.format(accuracy.most)}"
    orders = stream and " ".join(map(str, stream.orders))
    return {
        "_scope": scope,
        "_method": marked_title(stream.all if stream else (), method),
        "_orders": orders or MISSING,
        "orders": stream and len(stream.orders),
        "_n": accuracy.n,
        "_top1": accuracy.mean,
        "top1_sd": accuracy.sd,
        "top1_min": accuracy.least,
        "top1_max": accuracy.most,
        "_range": ends if stream else MISSING,
        "seen_before": stream.seen_before if stream else 0,
        "state_mb": stream and stream.cost("megabytes"),
        "seconds": stream and stream.seconds,
        "shared_seconds": stream and stream.shared_seconds,
        "backward_passes": stream.cost("backward_passes") if stream else 0,
        "mark": TUNED if stream and stream.tuned else "",
    }


def _show_size(size: float | None) -> str:
    return MISSING if size is None else f"{size:,.1f}" if size >= 1 else f"{size:.2g}"


def _show_seen(seen: float) -> str:
    return f"{seen:,.1f}" if seen > 0 else "0" if seen == 0 else MISSING


_SCOPE = Column("Data set", "_scope", dataset_title)
_SECONDS, _P_VALUE = known_or_missing("{:.4f}"), known_or_missing("{:.2g}")
_COLUMNS = (
    _SCOPE,
    METHOD,
    Column("Orders", "_orders"),
    Column("n", "_n", "{:,}".format),
    Column("Mean top-1 [95%]", "_top1", TOP1.show),
    Column("SD of orders", "top1_sd", lambda sd: MISSING if isnan(sd) else TOP1.format(sd)),
    Column("Min to max", "_range"),
    Column("Images seen before", "seen_before", _show_seen),
    Column("State (MB)", "state_mb", _show_size),
    Column("s/image", "seconds", _SECONDS),
    Column("Shared s/image", "shared_seconds", _SECONDS),
    Column("Backward passes", "backward_passes", known_or_missing("{:g}")),
)


def _accuracies(block: StreamBlock, scopes: Iterable[str]) -> Table:
    """Return accuracies over orders with what they cost, and zero-shot on the same images first."""
    records: list[Record] = []
    for scope in scopes:
        streams = [stream for (name, _), stream in block.results.items() if name == scope]
        pairs = (stream.paired(block.runs.baseline("zero_shot", stream.results)) for stream in streams)
        zero_shot = next((pair[1] for pair in pairs if pair is not None), None)
        records += [] if zero_shot is None else [_orders_record(scope, "zero_shot", zero_shot[:1], None)]
        records += [_orders_record(scope, stream.method, stream.correct, stream) for stream in streams]
    notes = (
        "Percent: the mean over orders of the same images, with Wilson's interval of the images, and the standard "
        "deviation, the least and the most of the orders. Images seen before are a mean; the state is the largest "
        "at the end of a stream; seconds are its own, without shared work such as encoding; backward "
        "passes are of an image.",
        *_notes(block),
    )
    return Table.of(f"Methods with a memory: {block.title}", _COLUMNS, records, notes, text_columns=2, by=(0,))


def pair_record(stream: StreamResult, other: dict[str, Result]) -> Record | None:
    """Compare a method with a memory with one without, on the images that both have; None where there is none.

    In order 0 alone, nothing without that order, and over all orders.
    """
    if (pair := stream.paired(other)) is None:
        return None
    ends = np.cumsum([len(positions) for positions in pair[0].positions.values()])[:-1]
    method, base = (np.split(correct, ends, axis=1) for correct in (pair[0].correct, pair[1]))

    def in_order(index: int) -> Record:
        return comparison_record(
            Comparison.of(mine[index], theirs[0]) for mine, theirs in zip(method, base, strict=True)
        )

    first = in_order(stream.orders.index(0)) if 0 in stream.orders else comparison_record(())
    if len(stream.orders) == 1:
        over = in_order(0)["delta"]
    else:
        means = [(mine.astype(np.float64) - theirs).mean(0) for mine, theirs in zip(method, base, strict=True)]
        orders = difference_over_orders(pair[0].correct, pair[1])
        interval = Interval(orders.value, orders.low, orders.high)
        over = pool(means, images=interval, p_value=orders.p_value)
    return first | {"n": over.n, "_p": first["delta"].p_value, "_difference": over, "_p_value": over.p_value}


_PAIR_COLUMNS = (
    _SCOPE,
    METHOD,
    Column("Less", "_base", method_title),
    N,
    *difference_columns("Order 0: Δ", "delta"),
    Column("Gained/lost", "_counts", lambda counts: counts or MISSING),
    Column("p", "_p", _P_VALUE),
    *difference_columns("Mean of orders: Δ", "_difference"),
    Column("p of orders", "_p_value", _P_VALUE),
    Column("p (Holm)", "_adjusted", _P_VALUE),
)


def _comparisons(block: StreamBlock, scopes: Iterable[str]) -> Table:
    """Return differences from each method without a memory, on the same images."""
    records: list[Record] = []
    for scope, base in product(scopes, block.runs.baselines):
        streams = [stream for (where, _), stream in block.results.items() if where == scope]
        pairs = [(stream, pair_record(stream, block.runs.baseline(base, stream.results))) for stream in streams]
        known = [(stream, pair) for stream, pair in pairs if pair is not None]
        adjusted = holm([pair["_p_value"] for _, pair in known]) if known else ()
        for (stream, pair), p in zip(known, adjusted, strict=True):
            names = {"_scope": scope, "_method": marked_title(stream.all, stream.method), "_base": base}
            records.append(names | pair | {"_adjusted": p})
    title = f"Methods with a memory less those without, on the same images: {block.title}"
    notes = (
        "Points. In order 0: a paired bootstrap interval and McNemar's exact p, which takes answers for "
        "independent of each other; those of a memory are not. Over orders: correctness of each image is averaged "
        "over orders, images are drawn again, and the variance of the orders divided by their number is added; "
        "with one order, as in order 0. Holm's method is over the methods with a memory, for each that they are "
        "compared with.",
        *sets_notes(record["_difference"] for record in records),
        *tuned_note(_tuned(block)),
    )
    return Table.of(title, _PAIR_COLUMNS, records, notes, text_columns=3, by=(0, 2))


def compare_with_published(block: StreamBlock) -> Iterator[tuple[StreamResult, Published]]:
    """Yield results on a data set with each accuracy that was published of the method there; not of variants."""
    known = published_accuracies(block.runs.settings.backbone)
    for (scope, method), stream in block.results.items():
        yield from ((stream, one) for one in known if (one.dataset, one.method) == (scope, method_title(method)))


def published_table(block: StreamBlock) -> Table:
    """Return a table of accuracies that were measured and published.

    Raises:
        MissingError: none is known as published.
    """
    pairs = [(stream, one, accuracy_over_orders(stream.correct)) for stream, one in compare_with_published(block)]
    if not pairs:
        backbone = block.runs.settings.backbone
        raise MissingError(f"no accuracy of these methods with a memory, on {backbone}, is known as published")
    records = [
        vars(one)
        | {"_method": marked_title(stream.all, stream.method), "n": measured.n, "measured": measured.mean}
        | {"reported": one.accuracy, "difference": PooledMean(_less(measured.mean, one.accuracy), None, measured.n, 1)}
        for stream, one, measured in pairs
    ]
    sources = {row["source"]: f"{row['title']} ({row['kind']})" for row in read_reported("online_sources")}
    notes = (
        "Percent, with 95% intervals of what was measured; published numbers are of one order, mostly of settings "
        "chosen for each data set, and of the prompts that stand beside them. A difference is no verdict.",
        *(f"{name}: {sources[name]}." for name in dict.fromkeys(one.source for _, one, _ in pairs)),
        *tuned_note((method_title(f.method), dataset_title(name)) for f, *_ in pairs for name in f.tuned),
    )
    title = f"Top-1 accuracy measured, mean of orders, and published: {block.title}"
    about = (("Source", "source"), ("Tuned per set", "tuned"), ("Prompts", "prompts"))
    heads = (DATASET, METHOD, *(Column(*names) for names in about))
    return _beside_reported(title, heads, "Published", records, notes)


def stream_records(
    blocks: Iterable[StreamBlock], others: Sequence[RunSettings], metric_name: str | None = None
) -> list[Record]:
    """Return a record per data set and method with a memory, and for all sets of a block together.

    Args:
        blocks: the results.
        others: settings of all groups of the file, see `settings_record`.
        metric_name: for style `paper`, what `value` is; else records have columns of style `long`.
    """
    records = []
    for block, (scope, method), stream in ((b, *item) for b in blocks for item in b.results.items()):
        record = settings_record(block.runs.settings, others) | {"benchmark": block.benchmark}
        record["stream"] = describe_stream(stream.orders, block.runs.arrangement)
        record |= {"dataset" if metric_name is None else "column": scope, "method": method}
        record |= {} if metric_name is None else {"metric": metric_name}
        record["n"] = stream.correct.shape[1]
        record["unreadable"] = sum(max(r.unreadable for r in orders.values()) for orders in stream.results.values())
        if metric_name is None:
            record |= {name: _over_orders(stream, name) for name in ("top1", "top5", "mean_per_class")}
            record |= {name: _over_orders(stream, name).value for name in ("ece", "brier", "nll")}
        else:
            record["value"] = _over_orders(stream, metric_name)
        pair = pair_record(stream, block.runs.baseline("zero_shot", stream.results))
        if metric_name in (None, "top1") and pair is not None:
            record |= {"delta": pair["_difference"], "delta_p_orders": pair["_p_value"]}
        records.append(flat(record | _orders_record(scope, method, stream.correct, stream)))
    return records


def _over_orders(stream: StreamResult, name: str) -> Interval:
    """Return a metric's mean over orders, data sets weighing as their images; of top-1 and top-5 with an interval."""
    if name in ("top1", "top5"):
        correct = stream.correct if name == "top1" else stream.scores(lambda result: result.in_top5)
        return accuracy_over_orders(np.asarray(correct, np.bool_)).mean
    values = [METRICS[name].value(r) if METRICS[name].known(r) else nan for r in stream.all]
    return Interval(float(np.average(values, weights=[result.n for result in stream.all])), nan, nan)


_CORRUPTIONS = [name for names in KINDS.values() for name in names]

Answers = Bool[np.ndarray, " _"]  # images of one data set or several


@dataclass(frozen=True)
class PerturbedRuns:
    """Groups of runs that differ in the perturbation alone.

    Attributes:
        groups: by perturbation as it is written, that of images as they are first, then corruptions, then attacks.
    """

    groups: Mapping[str, TableGroup]

    @cached_property
    def rows(self) -> list[tuple[str, Sequence[str], str]]:
        """What a row is of, each data set, then all together where there are several; the data sets; and a method."""
        groups = self.groups.values()
        methods = dict.fromkeys(method for group in groups for method in group.methods)
        scopes = scopes_of([*dict.fromkeys(name for group in groups for name in group.results)])
        return [(scope, datasets, method) for scope, datasets in scopes.items() for method in methods]

    @property
    def corruptions(self) -> list[str]:
        """Those of the perturbations that are corruptions."""
        return [perturbation for perturbation in self.groups if perturbation.partition(":")[0] in _CORRUPTIONS]

    def results(self, method: str, datasets: Sequence[str]) -> dict[str, list[Result]]:
        """Return a method's results with an answer on some data sets, by perturbation."""
        rows = {perturbation: group.row(method) for perturbation, group in self.groups.items()}
        return {perturbation: [row[name] for name in datasets if name in row] for perturbation, row in rows.items()}

    def shared(self, datasets: Sequence[str], method: str) -> list[dict[str, Answers]]:
        """Return for each data set by corruption which answers are correct, on the images that all corruptions have.

        Nothing where a corruption has no result of one of the data sets, or where labels of the same images differ.
        """
        by_perturbation = self.results(method, datasets)
        if not all(len(by_perturbation[perturbation]) == len(datasets) for perturbation in self.corruptions):
            return []
        columns = [
            _common([by_perturbation[name][index] for name in self.corruptions]) for index in range(len(datasets))
        ]
        return [dict(zip(self.corruptions, column, strict=True)) for column in columns] if all(columns) else []


def _common(results: Sequence[Result]) -> list[Answers]:
    """Return on which of the images that all results have each is correct; nothing where these are not the same.

    Corrupted images on disk have other bytes for each corruption: they are known by their positions and labels.
    """
    positions = shared_positions(results)
    labels = [values_at(result, result.labels, positions) for result in results]
    same = len(positions) > 0 and all(np.array_equal(labels[0], other) for other in labels)
    return [np.asarray(values_at(result, result.correct, positions)) for result in results] if same else []


def perturbed_runs(groups: Sequence[TableGroup]) -> list[PerturbedRuns]:
    """Put groups together that differ in the perturbation alone."""
    families: dict[tuple[Any, ...], dict[str, TableGroup]] = {}
    for group in groups:
        key = (*group.settings._replace(shift=""), group.benchmark)
        families.setdefault(key, {})[group.settings.shift] = group
    return [
        PerturbedRuns(dict(sorted(by_perturbation.items(), key=lambda item: _rank(item[0]))))
        for by_perturbation in families.values()
    ]


def _rank(perturbation: str) -> tuple[int, int]:
    name, _, strength = perturbation.partition(":")
    order = ["", *_CORRUPTIONS]
    return (order.index(name) if name in order else len(order), int(strength or 0))


def perturbation_tables(groups: Sequence[TableGroup]) -> list[Table]:
    """Return tables of accuracies by perturbation, of the mean over corruptions, and of each against zero-shot.

    Raises:
        MissingError: no run's images were corrupted or attacked.
    """
    tables = list[Table]()
    for runs in (runs for runs in perturbed_runs(groups) if [*runs.groups] != [""]):
        tables.append(_by_perturbation(runs))
        tables += [_corruption_table(runs)] if runs.corruptions else []
        for perturbation, group in runs.groups.items():
            tables.append(pooled_table(group, f"All data sets together, {perturbation or 'images as they are'}"))
    if not tables:
        raise MissingError("no run has corrupted or attacked images; make some with evaluate --corrupt or --attack")
    return tables


def _by_perturbation(runs: PerturbedRuns) -> Table:
    """Return a table with a row per data set and method, and a column per perturbation."""
    records, known = list[Record](), list[Result]()
    for scope, datasets, method in runs.rows:
        by_perturbation = runs.results(method, datasets)
        complete = {
            perturbation: results if len(results) == len(datasets) else []
            for perturbation, results in by_perturbation.items()
        }
        answered = [result for results in by_perturbation.values() for result in results]
        known += answered if len(datasets) == 1 else []
        if sizes := [sum(result.n for result in results) for results in complete.values() if results]:
            row = {"_scope": scope, "_method": marked_title(answered, method), "n": range_of(sizes)}
            records.append(
                row | {f"shift {perturbation}": pooled_accuracy(results) for perturbation, results in complete.items()}
            )
    columns = (
        *(_SCOPE, METHOD, Column("n", "n")),
        *(Column(perturbation or "none", f"shift {perturbation}", TOP1.show) for perturbation in runs.groups),
    )
    first = next(iter(runs.groups.values()))
    notes = (
        "Percent, with Wilson's 95% interval. A corruption is followed by its severity, 1 to 5; pgd by the largest "
        "change of a pixel's value, in 1/255.",
        *coverage(first),
        *memory_notes(known),
    )
    plain = replace(first, settings=first.settings._replace(shift=""))
    return Table.of(f"Top-1 accuracy by shift of {plain.title}", columns, records, notes, text_columns=2, by=(0,))


_MEAN_COLUMNS = (
    *(DATASET, METHOD, N, TOP1_COLUMN),
    *difference_columns("Δ", "delta"),
    Column("mCE [95%]", "mce", TOP1.show),
)


def _means(runs: PerturbedRuns) -> Iterator[Record]:
    """Yield a method's mean over all corruptions of a data set, or of all; Δ and mCE are against zero-shot."""
    for scope, datasets, method in runs.rows:
        ours, other = runs.shared(datasets, method), runs.shared(datasets, "zero_shot")
        if not ours:
            continue
        correct, base = ([np.mean([*answers.values()], axis=0) for answers in side] for side in (ours, other))
        delta, error = NO_GAIN, UNKNOWN
        if [*map(len, base)] == [*map(len, correct)]:
            if method != "zero_shot":
                delta = pool([mine - theirs for mine, theirs in zip(correct, base, strict=True)])
            error = mean_corruption_error(_outcomes(ours), _outcomes(other))
        results = [result for several in runs.results(method, datasets).values() for result in several]
        joined = np.concatenate(correct)
        names = {"dataset": scope, "_method": marked_title(results, method), "method": method, "n": len(joined)}
        yield names | {"top1": bootstrap_mean(joined), "delta": delta, "mce": error}


def _outcomes(sets: Sequence[Mapping[str, Answers]]) -> Outcomes:
    """Return the answers of all data sets by corruption and severity."""
    outcomes: dict[str, dict[int, Answers]] = {}
    for perturbation in sets[0]:
        name, _, severity = perturbation.partition(":")
        outcomes.setdefault(name, {})[int(severity)] = np.concatenate([answers[perturbation] for answers in sets])
    return outcomes


def _corruption_table(runs: PerturbedRuns) -> Table:
    """Return a table with a row per data set and method: the mean over all corruptions in all severities."""
    n = len(runs.corruptions)
    note = (
        "Percent, with 95% bootstrap intervals over images: an image is drawn with all its corruptions, which are "
        f"{', '.join(runs.corruptions)}. Δ is over zero-shot on the same images. mCE is the mean corruption error "
        "of Hendrycks & Dietterich. Its reference is zero-shot of the same runs, whose own is 100 by definition, "
        "not AlexNet; less is better."
    )
    records = [*_means(runs)]
    notes = (note, *sets_notes(record["delta"] for record in records))
    title = f"Mean over {counted(n, 'corruption')}"
    return Table.of(title, _MEAN_COLUMNS, records, notes, text_columns=2, by=(0,))


def perturbation_records(groups: Sequence[TableGroup]) -> list[Record]:
    """Return a record per data set and method: the mean over all corruptions, as proportions.

    Raises:
        MissingError: no run's images were corrupted.
    """
    records = []
    for runs in (runs for runs in perturbed_runs(groups) if runs.corruptions):
        settings = settings_record(next(iter(runs.groups.values())).settings, [group.settings for group in groups])
        settings["shift"] = " ".join(runs.corruptions)
        records += [flat(settings | mean) for mean in _means(runs)]
    if not records:
        raise MissingError("no run has corrupted images; make some with evaluate --corrupt")
    return records


def _labelled(groups: Sequence[TableGroup]) -> list[tuple[TableGroup, Result]]:
    """Return the results of groups that have labelled images, each with its group."""
    if not (found := [(group, result) for group in groups for result in _held(group) if result.n]):
        raise MissingError(f"{_folders([run for group in groups for run in group.runs])}: no answer has a label")
    return found


def _records_by_class(groups: Sequence[TableGroup], style: str) -> list[Record]:
    """Return the records of styles `classes` and `confusion`."""
    return [
        _shared(group, groups) | {"dataset": result.dataset, "method": result.method} | record
        for group, result in _labelled(groups)
        for record in class_tables.RECORDS[style](result)
    ]


def _tables_by_class(groups: Sequence[TableGroup], style: str) -> Iterator[Table]:
    """Yield the tables of styles `classes` and `confusion`."""
    for group, result in _labelled(groups):
        yield class_tables.table_of(result, style, group.title)


def _label_record(result: LabelResult) -> Record:
    metrics, config = result.metrics, result.config
    mean, decisions = (metrics.precision, metrics.decisions) if metrics.n else (None, None)
    classes, names = 0 if mean is None else mean.classes, len(result.names)
    return {
        "_backbone": config["backbone"]["name"],
        "scores": config["multi_label"]["scores"],
        "dataset": config["dataset"]["name"],
        "n": metrics.n,
        "unreadable": result.unreadable,
        "unlabelled": result.unlabelled,
        "classes": names,
        "classes_with_images": classes,
        "_classes": f"{classes} of {names}",
        "map": UNKNOWN if mean is None else mean.mean,
        "threshold": metrics.threshold,
        **{name: getattr(decisions, name, UNKNOWN) for name in ("precision", "recall", "f1")},
        "complete": result.run.complete,
    }


def _class_records(result: LabelResult) -> list[Record]:
    """Return the name of each class, how many images have it, and its average precision."""
    n, mean = len(result.names), result.metrics.precision if result.metrics.n else None
    positives, values = ([0] * n, [None] * n) if mean is None else (mean.positives, mean.per_class)
    return [
        {"class": name, "positives": int(k), "average_precision": one or UNKNOWN}
        for name, k, one in zip(result.names, positives, values, strict=True)
    ]


_LABELS = (
    DATASET,
    Column("Backbone", "_backbone"),
    Column("Scores", "scores"),
    N,
    Column("Classes", "_classes"),
    Column("mAP [95%]", "map", TOP1.show),
    Column("Threshold", "threshold", "{:.4g}".format),
    *(Column(f"{name} [95%]", name.lower(), TOP1.show) for name in ("Precision", "Recall", "F1")),
)
_CLASSES = (
    Column("Class", "class"),
    Column("Images with it", "positives", "{:,}".format),
    Column("AP [95%]", "average_precision", TOP1.show),
)


def label_table(results: Sequence[LabelResult]) -> Table:
    """Return a table with a row per run."""
    records = [*map(_label_record, results)]
    notes = (
        "Percent, with bootstrap intervals over images. mAP is the mean of the average precision of the classes of "
        "which there is an image, so many of all. Precision, recall and F1 are over all images and classes, "
        "for labels from the threshold on.",
        *_without_interval([*records, *(record for result in results for record in _class_records(result))]),
        *_left_out(results),
    )
    return Table.of("Several labels for an image", _LABELS, records, notes, text_columns=3)


def _without_interval(records: Iterable[Record]) -> Iterator[str]:
    """Yield why some estimates have no interval, nothing where all have one."""
    shown = [value for record in records for value in record.values() if isinstance(value, Interval)]
    if any(isnan(share.low) and not isnan(share.value) for share in shown):
        yield "No interval: every resample of the images has the same value."


def _left_out(results: Sequence[LabelResult]) -> Iterator[str]:
    """Yield what a run's metrics leave out, a line each."""
    for result in results:
        parts = [f"{result.unreadable:,} unreadable and left out"] if result.unreadable else []
        if result.unlabelled:
            parts.append(f"{result.unlabelled:,} without known labels, which count in nothing")
        parts += [] if result.run.complete else ["not complete"]
        if parts:
            yield f"{result.run.folder}: {', '.join(parts)}."


def class_table(result: LabelResult) -> Table:
    """Return a table with a row per class of a run, the best first; classes without an image come last."""
    records = _class_records(result)
    best = sorted(records, key=lambda record: -np.nan_to_num(record["average_precision"].value, nan=-1.0))
    name, backbone = (result.config[key]["name"] for key in ("dataset", "backbone"))
    notes = (
        f"Percent, with bootstrap intervals over {counted(result.metrics.n, 'image')}. A class whose label no image "
        "has is left out of the mean. By chance a class has the share of images that have it.",
        *_without_interval([_label_record(result), *records]),
    )
    return Table.of(f"Average precision of each class: {backbone} on {dataset_title(name)}", _CLASSES, best, notes)


def label_records(results: Sequence[LabelResult], by_class: bool) -> list[Record]:
    """Return a record per run, or per run and class; shares are proportions, not percent."""
    records = []
    for result in results:
        record = RunSettings.of(result.run)._asdict() | _label_record(result)
        head = {key: record[key] for key in (*RunSettings._fields, "scores", "dataset", "n")}
        records += [head | one for one in _class_records(result)] if by_class else [record]
    return records


def write_tables(
    runs: Sequence[Run],
    style: str,
    layout: str,
    metric: str,
    warn: Callable[[str], None],
    *,
    compared: bool = False,
    width: int | None = None,
) -> str:
    """Return the tables of runs as text.

    Args:
        runs: what was measured.
        style: `paper` (methods by data sets), `long` (a row per data set and method), `shift` (runs whose images
            were corrupted or attacked, side by side), `classes` (a row per class) or `confusion` (a matrix).
        layout: `md`, `latex`, `csv`, or `rich` for a terminal.
        metric: what style `paper` shows, one of `METRICS`.
        warn: takes warnings.
        compared: whether to add what the paper reports.
        width: of the terminal, see `to_terminal`.

    Raises:
        ArgumentError: runs contradict each other, or hold no predictions of methods.
    """
    several = [run for run in runs if is_multi_label(run)]
    others = [run for run in runs if run not in several]
    if several:
        _check_several(several, others, layout, "--compare paper" if compared else f"--metric {metric}")
    labels = [*map(read_label_result, several)]
    if labels and layout == "csv":
        return to_csv(label_records(labels, by_class=style in ("long", "classes")))
    tables = [label_table(labels)] if labels else []
    tables += map(class_table, labels if style in ("long", "classes") else ())
    if others or not several:
        groups = group_runs(others)
        by_benchmark = _by_benchmark(groups, others, warn)
        usual = (
            partial(_records, groups, style, metric, compared),
            partial(_tables, groups, style, metric, compared, warn),
        )
        by_class = (partial(_records_by_class, by_benchmark, style), partial(_tables_by_class, by_benchmark, style))
        styles: dict[str, tuple[Callable[[], list[Record]], Callable[[], Iterable[Table]]]] = {
            "shift": (partial(perturbation_records, by_benchmark), partial(perturbation_tables, by_benchmark)),
            **dict.fromkeys(class_tables.RECORDS, by_class),
        }
        records_of, tables_of = styles.get(style, usual)
        if layout == "csv":
            if not (records := records_of()):
                raise ArgumentError(f"{_folders(others)}: no image has been answered yet")
            return to_csv(records)
        tables += tables_of()
    write = {"md": to_markdown, "latex": to_latex}.get(layout, lambda table: to_terminal(table, width))
    return "\n".join(map(write, tables))


def _check_several(several: Sequence[Run], others: Sequence[Run], layout: str, what: str) -> None:
    """Refuse what is not possible with runs whose images may have several labels."""
    if others and layout == "csv":
        raise ArgumentError(
            f"{several[0].folder} has several labels an image and {others[0].folder} one: a CSV has columns of one "
            "kind; name runs of one kind"
        )
    if not others and what != "--metric top1":
        raise ArgumentError(f"{several[0].folder}: {what} is of runs with one label an image; leave it out")


def _folders(runs: Sequence[Run]) -> str:
    return ", ".join(str(run.folder) for run in runs)


def _by_benchmark(groups: Sequence[RunGroup], runs: Sequence[Run], warn: Callable[[str], None]) -> list[TableGroup]:
    """Return groups of runs, which answer images, by benchmark, and warn of those that are not whole."""
    tables = split_by_benchmark(groups)
    if not tables:
        what = "hold analyses only, no answers of methods; draw them with faircontext figures"
        raise ArgumentError(f"{_folders(runs)}: {what}")
    for line in dict.fromkeys(line for group in tables for line in incomplete(group)):
        warn(line)
    return tables


def _records(groups: Sequence[RunGroup], style: str, metric: str, compared: bool) -> list[Record]:
    """Return the records of styles `paper` and `long`, those of methods with a memory last."""
    episodic, streams = split_streams(groups)
    tables = split_by_benchmark(episodic)
    records = long_records(tables, compared) if style == "long" else paper_records(tables, metric, compared)
    settings = [*(table.settings for table in tables), *(one.settings for one in streams)]
    return records + stream_records(stream_blocks(streams), settings, None if style == "long" else metric)


def _tables(
    groups: Sequence[RunGroup], style: str, metric: str, compared: bool, warn: Callable[[str], None]
) -> Iterator[Table]:
    """Yield the tables of styles `paper` and `long`, and warn of those that are asked for and are not there."""
    episodic, streams = split_streams(groups)
    blocks = stream_blocks(streams)

    def beside(table: Callable[[Any], Table], source: TableGroup | StreamBlock) -> Iterator[Table]:
        try:
            yield from [table(source)] if compared else ()
        except MissingError as missing:
            warn(str(missing))

    for group in split_by_benchmark(episodic):
        if group.memory or group.methods != ["zero_shot"] or not blocks:  # else it is the first row of a block
            yield long_table(group) if style == "long" else paper_table(group, metric)
        yield from beside(comparison_table, group)
    for block in blocks:
        yield from stream_tables(block, style == "long", METRICS[metric])
        yield from beside(published_table, block)
