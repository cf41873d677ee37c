"""Methods with a memory as records for CSV, over all orders that were run: unrounded, one quantity a column."""

from collections.abc import Sequence
from math import isnan, nan
from typing import Any

import numpy as np

from faircontext.metrics.orders import accuracy_over_orders
from faircontext.metrics.stats import Interval
from faircontext.report.paper import settings_record
from faircontext.report.stream_tables import StreamBlock, pair_of
from faircontext.report.table_metrics import METRICS
from faircontext.runs.groups import RunSettings, describe_stream
from faircontext.runs.results import TUNED
from faircontext.runs.stream_results import StreamResult

__all__ = ["stream_records"]


def stream_records(
    blocks: Sequence[StreamBlock], held: Sequence[RunSettings], metric_name: str | None = None
) -> list[dict[str, Any]]:
    """Return a record per data set and method with a memory, and for all sets of a block together.

    Args:
        blocks: the results.
        held: settings of all groups of the file, see `settings_record`.
        metric_name: for style `paper`, what `value` is; else records have columns of style `long`.
    """
    records = []
    for block in blocks:
        for (scope, method), found in block.results.items():
            record = settings_record(block.runs.settings, held) | {"benchmark": block.benchmark}
            record["stream"] = describe_stream(found.orders, block.runs.arrangement)
            if metric_name is None:
                record |= {"dataset": scope, "method": method} | _counts(found) | _metrics(found)
            else:
                record |= {"column": scope, "method": method, "metric": metric_name} | _counts(found)
                record |= _columns("value", _over_orders(found, metric_name))
            pair = pair_of(found, block.runs.baseline("zero_shot", found.results))
            if metric_name in (None, "top1") and pair is not None:
                record |= _columns("delta", pair.difference) | {"delta_p_orders": pair.p_value}
            records.append(record | _costs(found))
    return records


def _counts(found: StreamResult) -> dict[str, Any]:
    return {
        "n": found.correct.shape[1],
        "unreadable": sum(max(r.unreadable for r in held.values()) for held in found.results.values()),
    }


def _metrics(found: StreamResult) -> dict[str, Any]:
    """Return all metrics in the columns of style `long`."""
    record: dict[str, Any] = {}
    for name in ("top1", "top5", "mean_per_class"):
        record |= _columns(name, _over_orders(found, name))
    return record | {name: _over_orders(found, name).value for name in ("ece", "brier", "nll")}


def _over_orders(found: StreamResult, name: str) -> Interval:
    """Return a metric's mean over orders, data sets weighing as their images; of top-1 and top-5 with an interval."""
    if name in ("top1", "top5"):
        correct = found.correct if name == "top1" else found.scores(lambda result: result.in_top5)
        return accuracy_over_orders(np.asarray(correct, np.bool_)).mean
    values = [METRICS[name].value(r) if METRICS[name].known(r) else nan for r in found.all]
    return Interval(float(np.average(values, weights=[result.n for result in found.all])), nan, nan)


def _columns(name: str, interval: Interval) -> dict[str, Any]:
    ends = ("" if isnan(end) else end for end in vars(interval).values())
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def _costs(found: StreamResult) -> dict[str, Any]:
    """Return what only records of methods with a memory have."""
    accuracy = accuracy_over_orders(found.correct)
    size, passes = found.cost("megabytes"), found.cost("backward_passes")
    return {
        "orders": len(found.orders),
        "top1_sd": "" if isnan(accuracy.sd) else accuracy.sd,
        "top1_min": accuracy.least,
        "top1_max": accuracy.most,
        "seen_before": "" if isnan(found.seen_before) else found.seen_before,
        "state_mb": "" if size is None else size,
        "seconds": found.seconds,
        "shared_seconds": "" if isnan(found.shared_seconds) else found.shared_seconds,
        "backward_passes": "" if passes is None else passes,
        "mark": TUNED if found.tuned else "",
    }
