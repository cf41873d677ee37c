"""All tables of runs as text: Markdown, LaTeX and for a terminal; as CSV, unrounded and with one quantity a column."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan
from typing import Any

import numpy as np

from faircontext.errors import ArgumentError, counted
from faircontext.metrics.stats import Interval
from faircontext.report.accuracy_tables import (
    DATASET,
    N,
    comparison_table,
    long_records,
    long_table,
    paper_records,
    paper_table,
)
from faircontext.report.axis_tables import (
    perturbation_records,
    perturbation_tables,
    published_table,
    stream_records,
    stream_tables,
)
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
from faircontext.report.render import Column, MissingError, Table, to_csv, to_latex, to_markdown, to_terminal
from faircontext.runs.groups import RunSettings, group_runs, incomplete
from faircontext.runs.label_results import LabelResult, is_multi_label, read_label_result
from faircontext.runs.store import Run
from faircontext.runs.stream_results import split_streams

Record = dict[str, Any]


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
            return to_csv(
                perturbation_records(groups) if style == "shift" else _records(others, style, metric, compared)
            )
        tables += perturbation_tables(groups) if style == "shift" else _tables(others, style, metric, compared, warn)
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


def _records(runs: Sequence[Run], style: str, metric: str, compared: bool) -> list[Record]:
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
