"""Tables of runs whose images may have several labels: mean average precision, decisions, and every class by itself."""

from collections.abc import Sequence
from math import isnan
from typing import Any

from faircontext.metrics.stats import Interval
from faircontext.report.paper import dataset_title
from faircontext.report.render import Cell, Table
from faircontext.report.table_metrics import MISSING
from faircontext.runs.groups import RunSettings
from faircontext.runs.label_results import LabelMetrics, LabelResult

__all__ = ["class_records", "class_table", "label_records", "label_table"]

Record = dict[str, Any]


def label_table(results: Sequence[LabelResult]) -> Table:
    """Return a table with a row per run."""
    rows = []
    for result in results:
        metrics, config = result.metrics, result.config
        mean = metrics.precision if metrics.n else None
        counts = f"{0 if mean is None else mean.classes} of {len(result.names)}"
        shares: list[Interval | None] = [None] * 3
        if metrics.n:
            shares = [metrics.decisions.precision, metrics.decisions.recall, metrics.decisions.f1]
        cells = (
            dataset_title(config["dataset"]["name"]),
            config["backbone"]["name"],
            config["multi_label"]["scores"],
            f"{metrics.n:,}",
            counts,
            _show(None if mean is None else mean.mean),
            f"{metrics.threshold:.4g}",
            *map(_show, shares),
        )
        rows.append(tuple(map(Cell, cells)))
    headings = ("n", "Classes", "mAP [95%]", "Threshold", "Precision [95%]", "Recall [95%]", "F1 [95%]")
    return Table(
        title="Several labels for an image",
        columns=("Data set", "Backbone", "Scores", *headings),
        rows=tuple(rows),
        footnotes=(
            "Percent, with bootstrap intervals over images. mAP is the mean of the average precision of the classes of "
            "which there is an image, so many of all. Precision, recall and F1 are over all images and classes, "
            "for labels from the threshold on.",
            *_without_interval([result.metrics for result in results]),
            *_left_out(results),
        ),
        text_columns=3,
    )


def _without_interval(metrics: Sequence[LabelMetrics]) -> list[str]:
    """Return why estimates of some runs have no interval, nothing where all have one."""
    shown: list[Interval] = []
    for one in (one for one in metrics if one.n):
        mean = one.precision
        shown += [] if mean is None else [mean.mean, *filter(None, mean.per_class)]
        shown += [one.decisions.precision, one.decisions.recall, one.decisions.f1]
    bare = any(isnan(share.low) and not isnan(share.value) for share in shown)
    return ["No interval: every resample of the images has the same value."] if bare else []


def _left_out(results: Sequence[LabelResult]) -> list[str]:
    lines = []
    for result in results:
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (result.unreadable, "unreadable and left out"),
                (result.unlabelled, "without known labels, which count in nothing"),
            )
            if count
        ]
        if not result.run.complete:
            parts.append("not complete")
        if parts:
            lines.append(f"{result.run.folder}: {', '.join(parts)}.")
    return lines


def class_table(result: LabelResult) -> Table:
    """Return a table with a row per class of a run, the best first; classes without an image come last."""
    mean = result.metrics.precision if result.metrics.n else None
    per_class = [None] * len(result.names) if mean is None else mean.per_class
    positives = [0] * len(result.names) if mean is None else mean.positives.tolist()
    order = sorted(range(len(per_class)), key=lambda index: 1.0 if (one := per_class[index]) is None else -one.value)
    rows = tuple(
        (Cell(result.names[index]), Cell(f"{positives[index]:,}"), Cell(_show(per_class[index]))) for index in order
    )
    name, backbone = (result.config[key]["name"] for key in ("dataset", "backbone"))
    return Table(
        title=f"Average precision of each class: {backbone} on {dataset_title(name)}",
        columns=("Class", "Images with it", "AP [95%]"),
        rows=rows,
        footnotes=(
            f"Percent, with bootstrap intervals over all {result.metrics.n:,} images. A class whose label no image has "
            "is left out of the mean. By chance a class has the share of images that have it.",
            *_without_interval([result.metrics]),
        ),
    )


def _show(share: Interval | None) -> str:
    if share is None or isnan(share.value):
        return MISSING
    value, low, high = (f"{100 * end:.2f}" for end in (share.value, share.low, share.high))
    return value if isnan(share.low) else f"{value} [{low}, {high}]"


def label_records(results: Sequence[LabelResult]) -> list[Record]:
    """Return a record per run; shares are proportions, not percent."""
    return [_facts(result) for result in results]


def class_records(results: Sequence[LabelResult]) -> list[Record]:
    """Return a record per run and class."""
    records = []
    for result in results:
        mean = result.metrics.precision if result.metrics.n else None
        for index, name in enumerate(result.names):
            own = None if mean is None else mean.per_class[index]
            count = 0 if mean is None else int(mean.positives[index])
            facts = {"class": name, "positives": count, **_interval("average_precision", own)}
            records.append({**_settings(result), "n": result.metrics.n, **facts})
    return records


def _facts(result: LabelResult) -> Record:
    metrics = result.metrics
    mean = metrics.precision if metrics.n else None
    record = {**_settings(result), "n": metrics.n, "unreadable": result.unreadable, "unlabelled": result.unlabelled}
    record |= {"classes": len(result.names), "classes_with_images": 0 if mean is None else mean.classes}
    record |= _interval("map", None if mean is None else mean.mean) | {"threshold": metrics.threshold}
    for name in ("precision", "recall", "f1"):
        record |= _interval(name, getattr(metrics.decisions, name) if metrics.n else None)
    return record | {"complete": result.run.complete}


def _settings(result: LabelResult) -> Record:
    settings = RunSettings.of(result.run)._asdict()
    config = result.config
    return {**settings, "scores": config["multi_label"]["scores"], "dataset": config["dataset"]["name"]}


def _interval(name: str, share: Interval | None) -> Record:
    ends: list[Any] = [""] * 3
    if share is not None:
        ends = ["" if isnan(end) else end for end in (share.value, share.low, share.high)]
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
