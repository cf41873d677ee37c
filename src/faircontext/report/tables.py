"""All tables of runs as text: Markdown, LaTeX and for a terminal; as CSV, unrounded and with one quantity a column."""

from collections.abc import Callable, Iterator, Sequence
from math import isnan
from operator import itemgetter
from typing import Any

from faircontext.errors import ArgumentError
from faircontext.metrics.stats import Interval
from faircontext.report.accuracy_tables import long_records, long_table, paper_records, paper_table
from faircontext.report.axis_tables import shift_records, shift_tables, stream_records, stream_tables
from faircontext.report.benchmarks import (
    METRICS,
    TOP1,
    UNKNOWN,
    StreamBlock,
    TableGroup,
    dataset_title,
    split_by_benchmark,
    stream_blocks,
)
from faircontext.report.reference import comparison_table, published_table
from faircontext.report.render import Field, MissingError, Table, record_of, to_csv, to_latex, to_markdown, to_terminal
from faircontext.runs.groups import RunSettings, group_runs, incomplete
from faircontext.runs.label_results import LabelResult, is_multi_label, read_label_result
from faircontext.runs.store import Run
from faircontext.runs.stream_results import split_streams

__all__ = ["class_table", "label_records", "label_table", "write_tables"]


def _mean(name: str, otherwise: Any) -> Callable[[LabelResult], Any]:
    """Return what gives a part of the mean average precision, something else where that is not known."""
    return lambda result: otherwise if (mean := _precision(result)) is None else getattr(mean, name)


def _precision(result: LabelResult) -> Any:
    return result.metrics.precision if result.metrics.n else None


def _decision(name: str) -> Callable[[LabelResult], Interval]:
    return lambda result: getattr(result.metrics.decisions, name) if result.metrics.n else UNKNOWN


_HEAD: tuple[Field[LabelResult], ...] = (
    Field("Data set", "", lambda result: result.config["dataset"]["name"], dataset_title),
    Field("Backbone", "", lambda result: result.config["backbone"]["name"]),
    Field("Scores", "scores", lambda result: result.config["multi_label"]["scores"]),
    Field("", "dataset", lambda result: result.config["dataset"]["name"]),
    Field("n", "n", lambda result: result.metrics.n, "{:,}".format),
)
_FIELDS: tuple[Field[LabelResult], ...] = (
    *_HEAD,
    Field("", "unreadable", lambda result: result.unreadable),
    Field("", "unlabelled", lambda result: result.unlabelled),
    Field("", "classes", lambda result: len(result.names)),
    Field("", "classes_with_images", _mean("classes", 0)),
    Field("Classes", "", lambda result: f"{_mean('classes', 0)(result)} of {len(result.names)}"),
    Field("mAP [95%]", "map", _mean("mean", UNKNOWN), TOP1.show),
    Field("Threshold", "threshold", lambda result: result.metrics.threshold, "{:.4g}".format),
    Field("Precision [95%]", "precision", _decision("precision"), TOP1.show),
    Field("Recall [95%]", "recall", _decision("recall"), TOP1.show),
    Field("F1 [95%]", "f1", _decision("f1"), TOP1.show),
    Field("", "complete", lambda result: result.run.complete),
)

_CLASS: tuple[Field[tuple[str, int, Interval]], ...] = (
    Field("Class", "class", itemgetter(0)),
    Field("Images with it", "positives", itemgetter(1), "{:,}".format),
    Field("AP [95%]", "average_precision", itemgetter(2), TOP1.show),
)


def _classes(result: LabelResult) -> list[tuple[str, int, Interval]]:
    """Return the name of each class, how many images have it, and its average precision."""
    n = len(result.names)
    positives, values = _mean("positives", [0] * n)(result), _mean("per_class", [None] * n)(result)
    return [(name, int(k), one or UNKNOWN) for name, k, one in zip(result.names, positives, values, strict=True)]


def label_table(results: Sequence[LabelResult]) -> Table:
    """Return a table with a row per run."""
    notes = (
        "Percent, with bootstrap intervals over images. mAP is the mean of the average precision of the classes of "
        "which there is an image, so many of all. Precision, recall and F1 are over all images and classes, "
        "for labels from the threshold on.",
        *_without_interval(results),
        *_left_out(results),
    )
    return Table.of("Several labels for an image", _FIELDS, results, notes, text_columns=3)


def _without_interval(results: Sequence[LabelResult]) -> Iterator[str]:
    """Yield why estimates of some runs have no interval, nothing where all have one."""
    shown: list[Interval] = []
    for result in (result for result in results if result.metrics.n):
        shown += [_mean("mean", UNKNOWN)(result), *(estimate for *_, estimate in _classes(result))]
        shown += [_decision(name)(result) for name in ("precision", "recall", "f1")]
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
    best = sorted(_classes(result), key=lambda row: 1.0 if isnan(row[2].value) else -row[2].value)
    name, backbone = (result.config[key]["name"] for key in ("dataset", "backbone"))
    notes = (
        f"Percent, with bootstrap intervals over all {result.metrics.n:,} images. A class whose label no image has "
        "is left out of the mean. By chance a class has the share of images that have it.",
        *_without_interval([result]),
    )
    title = f"Average precision of each class: {backbone} on {dataset_title(name)}"
    return Table.of(title, _CLASS, best, notes)


def label_records(results: Sequence[LabelResult], by_class: bool) -> list[dict[str, Any]]:
    """Return a record per run, or per run and class; shares are proportions, not percent."""
    records = []
    for result in results:
        settings = RunSettings.of(result.run)._asdict()
        if by_class:
            records += [settings | record_of(_HEAD, result) | record_of(_CLASS, row) for row in _classes(result)]
        else:
            records.append(settings | record_of(_FIELDS, result))
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
    others = [run for run in runs if run not in several]
    if several:
        _check_several(several, others, layout, "--compare paper" if compared else f"--metric {metric}")
    labels = [*map(read_label_result, several)]
    if labels and layout == "csv":
        return to_csv(label_records(labels, by_class=style == "long"))
    tables = [label_table(labels)] if labels else []
    tables += map(class_table, labels if style == "long" else ())
    if others or not several:
        groups = _grouped(others, warn)
        if layout == "csv":
            return to_csv(shift_records(groups) if style == "shift" else _records(others, style, metric, compared))
        tables += shift_tables(groups) if style == "shift" else _tables(others, style, metric, compared, warn)
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


def _grouped(runs: Sequence[Run], warn: Callable[[str], None]) -> list[TableGroup]:
    """Return groups of runs, which answer images, and warn of those that are not whole."""
    groups = split_by_benchmark(group_runs(runs))
    if not groups:
        what = "hold analyses only, no answers of methods; draw them with faircontext figures"
        raise ArgumentError(f"{_folders(runs)}: {what}")
    for line in dict.fromkeys(line for group in groups for line in incomplete(group)):
        warn(line)
    return groups


def _records(runs: Sequence[Run], style: str, metric: str, compared: bool) -> list[dict[str, Any]]:
    """Return the records of styles `paper` and `long`, those of methods with a memory last."""
    episodic, streams = split_streams(group_runs(runs))
    groups = split_by_benchmark(episodic)
    records = long_records(groups, compared) if style == "long" else paper_records(groups, metric, compared)
    settings = [*(group.settings for group in groups), *(one.settings for one in streams)]
    records += stream_records(stream_blocks(streams), settings, None if style == "long" else metric)
    if not records:
        raise ArgumentError(f"{_folders(runs)}: no image has been answered yet")
    return records


def _tables(
    runs: Sequence[Run], style: str, metric: str, compared: bool, warn: Callable[[str], None]
) -> Iterator[Table]:
    """Yield the tables of styles `paper` and `long`, and warn of those that are asked for and are not there."""
    episodic, streams = split_streams(group_runs(runs))
    groups, blocks = split_by_benchmark(episodic), stream_blocks(streams)

    def beside(table: Callable[[Any], Table], held: TableGroup | StreamBlock) -> Iterator[Table]:
        try:
            yield from [table(held)] if compared else ()
        except MissingError as missing:
            warn(str(missing))

    for group in groups:
        if group.memory or group.methods != ["zero_shot"] or not blocks:  # else it is the first row of a block
            yield long_table(group) if style == "long" else paper_table(group, metric)
        yield from beside(comparison_table, group)
    for block in blocks:
        yield from stream_tables(block, style == "long", METRICS[metric])
        yield from beside(published_table, block)
