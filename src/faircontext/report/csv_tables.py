"""Tables as CSV, unrounded and with one quantity a column; and measured accuracies beside the paper's.

The paper gives neither intervals nor predictions per image, so the interval of a difference is that of the measured
accuracy alone; its own sampling error comes on top. It is information, never a verdict.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from faircontext.datasets.spec import CATALOGUE
from faircontext.errors import ArgumentError
from faircontext.metrics.stats import Interval
from faircontext.report import paper
from faircontext.report.label_tables import class_records, class_table, label_records, label_table
from faircontext.report.paper import Column, TableGroup, columns_of, dataset_title, settings_record
from faircontext.report.published import published_table
from faircontext.report.render import Cell, Table, to_csv, to_latex, to_markdown, to_terminal
from faircontext.report.shift_tables import shift_records, shift_tables
from faircontext.report.stream_records import stream_records
from faircontext.report.stream_tables import stream_blocks, stream_tables
from faircontext.report.table_metrics import METRICS, TOP1
from faircontext.report.tables import adjusted_p_values, long_table, paper_table
from faircontext.runs.groups import group_runs, incomplete, method_title
from faircontext.runs.label_results import is_multi_label, read_label_result
from faircontext.runs.records import method_of
from faircontext.runs.results import Result
from faircontext.runs.store import Run
from faircontext.runs.stream_results import split_streams

__all__ = ["PaperComparison", "compare_with_paper", "comparison_table", "long_records", "paper_records", "write_tables"]

Record = dict[str, Any]


@dataclass(frozen=True)
class PaperComparison:
    """A column of the table, a method, its images, and its accuracy as measured and as reported, as proportions."""

    column: Column
    method: str
    n: int
    measured: Interval
    reported: float

    @property
    def difference(self) -> Interval:
        """What was measured less what is reported."""
        return Interval(*(end - self.reported for end in vars(self.measured).values()))


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
    reported = paper.reported_accuracies(group.settings.backbone, group.benchmark)
    keys = {(name,): name for name in group.results} | {tuple(paper.SETS[group.benchmark]): "avg", paper.OOD: "ood_avg"}
    for column in columns_of(group):
        key = None if column.gained else keys.get(column.sets)
        for method in group.methods if key else ():
            results, theirs = column.results(group, method), reported.get(_reported_method(group, method) or "", {})
            if key in theirs and (ours := TOP1.measure(results)) is not None:
                yield PaperComparison(column, method, sum(result.n for result in results), ours, theirs[key] / 100)


def _reservations(group: TableGroup) -> Iterator[str]:
    """Yield in what a group's runs differ from the paper's, a line each."""
    counts = {name: entry.paper for name, entry in CATALOGUE.items()}
    for name, results in group.results.items():
        listed = next(iter(results.values())).config["dataset"]["listed"]
        if listed != counts.get(name, listed):
            yield f"{dataset_title(name)}: the paper counts {counts[name]:,} images; this split has {listed:,}."
    if group.settings.pretrained != "openai":
        yield f"The paper's weights are openai; these are {group.settings.pretrained or 'others'}."
    if group.settings.preset != "paper":
        yield f"The paper's settings are those of preset paper; these are of preset {group.settings.preset}."
    if group.settings.prompts != "single":
        prompts = group.settings.prompts
        yield f'The paper\'s prompt is "a photo of a {{}}." alone (prompts single); these runs have {prompts}.'


def comparison_table(group: TableGroup) -> Table | str:
    """Return a table of comparisons, or a line that says why there is none."""
    try:
        comparisons = list(compare_with_paper(group))
    except ArgumentError as error:
        return str(error)
    if not comparisons:
        return f"the paper reports none of the methods of {group.settings.backbone} that were run"
    rows = [
        (
            one.column.heading,
            method_title(one.method),
            f"{one.n:,}",
            TOP1.show(one.measured),
            f"{100 * one.reported:.2f}",
            TOP1.show(one.difference, sign=True),
        )
        for one in comparisons
    ]
    ends = [index for index in range(len(rows) - 1) if rows[index][0] != rows[index + 1][0]]
    intervals = "Percent, with 95% intervals of what was measured; the paper gives none of its own."
    return Table(
        title=f"Top-1 accuracy measured, and reported by the paper: {group.title}",
        columns=("Data set", "Method", "n", "Measured [95%]", "Paper", "Difference [95%]"),
        rows=tuple(tuple(map(Cell, row)) for row in rows),
        footnotes=(f"{intervals} For information: a difference is no verdict.", *_reservations(group)),
        text_columns=2,
        rules=frozenset(ends),
        bars=frozenset({1}),
    )


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
        comparisons = _comparisons(group) if compared else None
        for column in (column for column in columns_of(group) if not column.gained):
            name = column.sets[0] if len(column.sets) == 1 else "ood_avg" if column.heading == "OOD Avg." else "avg"
            for method in group.methods:
                if results := column.results(group, method):
                    record = _settings(group, groups) | {"column": name, "method": method, "metric": metric_name}
                    record |= {"n": sum(r.n for r in results), "unreadable": sum(r.unreadable for r in results)}
                    record |= _interval("value", metric.measure(results)) | _interval("delta", metric.gain(results))
                    records.append(record | _reported(comparisons, column, method))
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
        comparisons = _comparisons(group) if compared else None
        p_values = {method: adjusted_p_values(group, method) for method in group.methods}
        columns = {column.sets: column for column in columns_of(group) if not column.gained}
        for name, results in group.results.items():
            for method in (method for method in group.methods if method in results):
                record = _settings(group, groups) | {"dataset": name, "method": method} | _facts(results[method])
                record |= dict(zip(("p", "p_holm"), p_values[method].get(name, ("", "")), strict=True))
                records.append(record | _reported(comparisons, columns[name,], method))
    return records


def _settings(group: TableGroup, groups: Sequence[TableGroup]) -> Record:
    return {**settings_record(group.settings, [other.settings for other in groups]), "benchmark": group.benchmark}


def _facts(result: Result) -> Record:
    dataset, whole = result.config["dataset"], result.seen
    record: Record = {
        "split": dataset["split"],
        "n": result.n,
        "unreadable": result.unreadable,
        "listed": dataset["listed"],
        "complete": result.run.complete,
        "config": result.hash,
    }
    for name in ("top1", "top5", "mean_per_class"):
        record |= _interval(name, METRICS[name].measure([result]))
    record["top1_unreadable_wrong"] = int(result.correct.sum()) / whole if whole else ""
    for name in ("ece", "brier", "nll"):
        record[name] = METRICS[name].value(result) if METRICS[name].known(result) else ""
    if (comparison := result.comparison) is None:
        return record | _interval("delta", None) | {"gained": "", "lost": ""}
    counts = {"gained": comparison.gained, "lost": comparison.lost}
    return record | _interval("delta", comparison.difference) | counts


def _interval(name: str, interval: Interval | None) -> Record:
    ends = ("",) * 3 if interval is None else ("" if isnan(end) else end for end in vars(interval).values())
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


Comparisons = dict[tuple[Column, str], PaperComparison]


def _comparisons(group: TableGroup) -> Comparisons:
    try:
        return {(one.column, one.method): one for one in compare_with_paper(group)}
    except ArgumentError:  # the paper has no such table: its columns stay empty
        return {}


def _reported(comparisons: Comparisons | None, column: Column, method: str) -> Record:
    if comparisons is None:
        return {}
    one = comparisons.get((column, method))
    return {"reported": one.reported if one else ""} | _interval("difference", one.difference if one else None)


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
        style: `paper` (methods by data sets), `long` (a row per data set and method) or `shift` (runs whose images
            were corrupted or attacked, side by side).
        layout: `md`, `latex`, `csv`, or `rich` for a terminal.
        metric: what style `paper` shows, one of `METRICS`.
        warn: takes warnings.
        compared: whether to add what the paper reports.
        width: of the terminal, see `to_terminal`.

    Raises:
        ArgumentError: runs contradict each other, or hold no predictions of methods.
    """
    several = [run for run in runs if is_multi_label(run)]
    if several and layout == "csv" and len(several) < len(runs):
        others = next(run for run in runs if run not in several)
        raise ArgumentError(
            f"{several[0].folder} has several labels an image and {others.folder} one: a CSV has columns of one kind; "
            "name runs of one kind"
        )
    runs = [run for run in runs if run not in several]
    if several and not runs:
        if metric != "top1" or compared:
            what = "--compare paper" if compared else f"--metric {metric}"
            raise ArgumentError(f"{several[0].folder}: {what} is of runs with one label an image; leave it out")
        return _label_tables(several, style, layout, width)
    if several:
        return f"{_label_tables(several, style, layout, width)}\n" + write_tables(
            runs, style, layout, metric, warn, compared=compared, width=width
        )
    groups = paper.split_by_benchmark(group_runs(runs))
    folders = ", ".join(str(run.folder) for run in runs)
    if not groups:
        raise ArgumentError(f"{folders}: hold analyses only, no answers of methods; draw them with faircontext figures")
    for line in dict.fromkeys(line for group in groups for line in incomplete(group)):
        warn(line)
    if style == "shift":
        return to_csv(shift_records(groups)) if layout == "csv" else _laid_out(shift_tables(groups), layout, width)
    episodic, streams = split_streams(group_runs(runs))
    groups, blocks = paper.split_by_benchmark(episodic), stream_blocks(streams)
    if layout == "csv":
        records = long_records(groups, compared) if style == "long" else paper_records(groups, metric, compared)
        settings = [*(group.settings for group in groups), *(one.settings for one in streams)]
        records += stream_records(blocks, settings, None if style == "long" else metric)
        if not records:
            raise ArgumentError(f"{folders}: no image has been answered yet")
        return to_csv(_with_same_columns(records))
    tables = list[Table | str]()
    for group in groups:
        if group.memory or group.methods != ["zero_shot"] or not blocks:  # else it is the first row of a block
            tables.append(long_table(group) if style == "long" else paper_table(group, metric))
        tables += [comparison_table(group)] if compared else []
    for block in blocks:
        tables += stream_tables(block, style == "long", METRICS[metric])
        tables += [published_table(block)] if compared else []
    for line in (table for table in tables if isinstance(table, str)):
        warn(line)
    return _laid_out([table for table in tables if isinstance(table, Table)], layout, width)


def _with_same_columns(records: Sequence[Record]) -> list[Record]:
    """Return records that all have the columns of each, as they first come; empty where one has no such value."""
    columns = dict.fromkeys((column for record in records for column in record), "")
    return [columns | record for record in records]


def _laid_out(tables: Sequence[Table], layout: str, width: int | None) -> str:
    if layout == "rich":
        return "\n".join(to_terminal(table, width) for table in tables)
    return "\n".join(map(to_markdown if layout == "md" else to_latex, tables))


def _label_tables(runs: Sequence[Run], style: str, layout: str, width: int | None) -> str:
    """Return tables of runs whose images may have several labels; style `long` has a row per class."""
    results = [*map(read_label_result, runs)]
    if layout == "csv":
        return to_csv(class_records(results) if style == "long" else label_records(results))
    tables = [label_table(results)]
    if style == "long":
        tables += [class_table(result) for result in results]
    return _laid_out(tables, layout, width)
