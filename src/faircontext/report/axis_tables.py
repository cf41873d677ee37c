"""Tables of runs that differ in one thing more: the order of their images, or what was done to these.

Orders of the same images are not more images: an accuracy of a method with a memory is the mean over orders, with
Wilson's interval of the images, and the standard deviation of the orders stands beside it. Under corruptions and
attacks everything is on images that a method answered under all the shifts of a row, paired image by image.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, product
from math import isnan, nan
from operator import itemgetter
from typing import Any

import numpy as np
from jaxtyping import Bool

from faircontext.metrics.bootstrap import bootstrap_mean, nan_if_constant
from faircontext.metrics.corruption import Outcomes, mean_corruption_error
from faircontext.metrics.orders import OrdersAccuracy, accuracy_over_orders, difference_over_orders
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Accuracy, Interval, holm
from faircontext.report.accuracy_tables import comparison_fields, foot_of, pooled_table, range_of
from faircontext.report.benchmarks import (
    ALL_SETS,
    METRICS,
    MISSING,
    TOP1,
    UNKNOWN,
    Metric,
    StreamBlock,
    TableGroup,
    coverage,
    dataset_title,
    known_or_missing,
    marked_title,
    memory_notes,
    scopes_of,
    settings_record,
    shortfalls,
    tuned_note,
)
from faircontext.report.render import Cell, Field, MissingError, Table, flat, record_of
from faircontext.runs.groups import RunSettings, describe_stream, method_title, shared_positions, values_at
from faircontext.runs.results import TUNED, Result
from faircontext.runs.stream_results import StreamResult
from faircontext.shifts import KINDS

__all__ = [
    "ShiftedRuns",
    "StreamPair",
    "pair_of",
    "shift_records",
    "shift_tables",
    "shifted_runs",
    "stream_records",
    "stream_tables",
]


def stream_tables(block: StreamBlock, long: bool = False, metric: Metric = TOP1) -> list[Table]:
    """Return the tables of a block: accuracies and costs, and comparisons with methods without a memory.

    Args:
        block: the results.
        long: whether each data set has rows of its own in all tables.
        metric: what methods by data sets show; that table is left out for the accuracy on one data set.
    """
    scopes = [*block.scopes]
    shown = scopes if long else scopes[-1:]
    tables = [_accuracies(block, shown), _comparisons(block, shown)]
    by_set = not long and (len(block.datasets) > 1 or metric is not TOP1)
    return [table for table in (*([_by_set(block, metric)] if by_set else []), *tables) if table.rows]


def _notes(block: StreamBlock) -> Iterator[str]:
    """Yield what is to be known of methods with a memory, and where settings were tuned."""
    yield (
        "These methods have seen unlabelled test images before; the others have not. Early images meet an empty "
        "memory, so that accuracies of streams of other lengths do not compare."
    )
    yield from _other_orders(block)
    yield from tuned_note(_tuned(block))
    results = [result for method in block.runs.methods for result in _results(block, method)]
    whole = dict.fromkeys((result.dataset, ", ".join(shortfalls(result))) for result in results)
    yield from (f"{dataset_title(name)}: {parts}." for name, parts in whole if parts)
    unreadable = dict.fromkeys((r.dataset, r.unreadable, r.unreadable + r.n) for r in results if r.unreadable)
    for name, count, files in unreadable:
        yield f"{dataset_title(name)}: {count:,} of {files:,} files unreadable and left out."
    if left := [name for name in block.runs.methods if ([*block.scopes][-1], name) not in block.results]:
        yield f"Not of all data sets in one order, and left out there: {', '.join(map(method_title, left))}."


def _other_orders(block: StreamBlock) -> Iterator[str]:
    """Yield which methods were run on which sets in other orders than most, if any were."""
    held = dict[str, list[str]]()
    for (scope, method), found in block.results.items():
        if scope != ALL_SETS:
            orders = describe_stream(found.orders, "shuffled")
            held.setdefault(orders, []).append(f"{method_title(method)} on {dataset_title(scope)}")
    if len(held) > 1:
        most = max(held, key=lambda orders: len(held[orders]))
        others = (f"{', '.join(names)} in {orders}" for orders, names in held.items() if orders != most)
        where = " All sets together are of the orders that each of them has." if len(block.scopes) > 1 else ""
        yield f"Not all are means of the same orders: most are in {most}, {'; '.join(others)}.{where}"


def _by_set(block: StreamBlock, metric: Metric) -> Table:
    """Return methods by data sets: the mean over orders and their standard deviation."""
    methods, datasets = block.runs.methods, block.datasets
    held = {name: {method: _results(block, method, name) for method in methods} for name in datasets}
    measured = {
        name: {method: [metric.measure([result]) for result in results] for method, results in row.items()}
        for name, row in held.items()
    }
    rows = [
        (marked_title(_results(block, method), method), *(_mean(measured[name][method], metric) for name in datasets))
        for method in methods
    ]
    counts = [[result.n for results in row.values() for result in results] for row in held.values()]
    return Table(
        title=f"{metric.title[0].upper()}{metric.title[1:]} of methods with a memory, mean of orders: {block.title}",
        columns=("Method", *map(dataset_title, datasets)),
        rows=tuple(tuple(map(Cell, row)) for row in rows),
        foot=foot_of(counts, ([*chain(*row.values())] for row in measured.values()), metric),
        footnotes=(
            "After ± stands the standard deviation of the orders. ±95% is the largest half-width of an order's "
            "95% interval of the images.",
            *_other_orders(block),
            *tuned_note(_tuned(block)),
        ),
        bars=frozenset({0}),
    )


def _results(block: StreamBlock, method: str, *datasets: str) -> list[Result]:
    """Return a method's results in all orders, on some data sets or on all."""
    names = datasets or block.datasets
    return [result for name in names if (found := block.results.get((name, method))) for result in found.all]


def _tuned(block: StreamBlock) -> Iterator[tuple[str, str]]:
    """Yield methods and data sets for which their authors chose settings, as they are called in tables."""
    for method in block.runs.methods:
        for name in dict.fromkeys(result.dataset for result in _results(block, method) if result.tuned):
            yield method_title(method), dataset_title(name)


def _mean(measured: Sequence[Interval | None], metric: Metric) -> str:
    values = [interval.value for interval in measured if interval is not None]
    if not values or len(values) < len(measured):
        return MISSING
    sd = f" ± {metric.format(float(np.std(values, ddof=1)))}" if len(values) > 1 else ""
    return metric.format(float(np.mean(values))) + sd


@dataclass(frozen=True)
class _Row:
    """A method on a data set or all; `found` is None for zero-shot, which has no memory."""

    scope: str
    method: str
    accuracy: OrdersAccuracy
    found: StreamResult | None

    @classmethod
    def of(cls, scope: str, found: StreamResult) -> "_Row":
        return cls(scope, found.method, accuracy_over_orders(found.correct), found)


def _of(value: Callable[[StreamResult], Any], otherwise: Any = None) -> Callable[[_Row], Any]:
    """Return what gives a value of a method with a memory, and another of zero-shot."""
    return lambda row: otherwise if row.found is None else value(row.found)


def _show_size(size: float | None) -> str:
    return MISSING if size is None else f"{size:,.1f}" if size >= 1 else f"{size:.2g}"


def _show_range(accuracy: OrdersAccuracy | None) -> str:
    return MISSING if accuracy is None else f"{TOP1.format(accuracy.least)} to {TOP1.format(accuracy.most)}"


def _show_seen(seen: float) -> str:
    return f"{seen:,.1f}" if seen > 0 else "0" if seen == 0 else MISSING


_SECONDS = known_or_missing("{:.4f}")

_FIELDS: tuple[Field[_Row], ...] = (
    Field("Data set", "", lambda row: row.scope, dataset_title),
    Field("Method", "", lambda row: marked_title(row.found.all if row.found else (), row.method)),
    Field("Orders", "", _of(lambda found: " ".join(map(str, found.orders)), MISSING)),
    Field("", "orders", _of(lambda found: len(found.orders))),
    Field("n", "", lambda row: row.accuracy.n, "{:,}".format),
    Field("Mean top-1 [95%]", "", lambda row: row.accuracy.mean, TOP1.show),
    Field("SD of orders", "top1_sd", lambda row: row.accuracy.sd, lambda sd: MISSING if isnan(sd) else TOP1.format(sd)),
    Field("", "top1_min", lambda row: row.accuracy.least),
    Field("", "top1_max", lambda row: row.accuracy.most),
    Field("Min to max", "", lambda row: row.accuracy if row.found else None, _show_range),
    Field("Images seen before", "seen_before", _of(lambda found: found.seen_before, 0), _show_seen),
    Field("State (MB)", "state_mb", _of(lambda found: found.cost("megabytes")), _show_size),
    Field("s/image", "seconds", _of(lambda found: found.seconds), _SECONDS),
    Field("Shared s/image", "shared_seconds", _of(lambda found: found.shared_seconds), _SECONDS),
    Field("Backward passes", "backward_passes", _of(lambda f: f.cost("backward_passes"), 0), known_or_missing("{:g}")),
    Field("", "mark", _of(lambda found: TUNED if found.tuned else "")),
)


def _accuracies(block: StreamBlock, scopes: Iterable[str]) -> Table:
    """Return accuracies over orders with what they cost, and zero-shot on the same images first."""
    rows: list[_Row] = []
    for scope in scopes:
        held = [found for (name, _), found in block.results.items() if name == scope]
        pairs = (found.paired(block.runs.baseline("zero_shot", found.results)) for found in held)
        zero_shot = next((pair[1] for pair in pairs if pair is not None), None)
        rows += [] if zero_shot is None else [_Row(scope, "zero_shot", accuracy_over_orders(zero_shot[:1]), None)]
        rows += [_Row.of(scope, found) for found in held]
    notes = (
        "Percent: the mean over orders of the same images, with Wilson's interval of the images, and the standard "
        "deviation, the least and the most of the orders. Images seen before are a mean; the state is the largest "
        "at the end of a stream; seconds are its own, without shared work such as encoding; backward "
        "passes are of an image.",
        *_notes(block),
    )
    return Table.of(f"Methods with a memory: {block.title}", _FIELDS, rows, notes, text_columns=2, by=(0,))


@dataclass(frozen=True)
class StreamPair:
    """A method with a memory less one without, on the same images.

    Attributes:
        n: images.
        first: in order 0 alone, None without that order.
        difference: over all orders, with its 95% interval.
        p_value: that it is 0.
    """

    n: int
    first: Comparison | None
    difference: Interval
    p_value: float


def pair_of(found: StreamResult, other: dict[str, Result]) -> StreamPair | None:
    """Compare a method with a memory with one without, on the images that both have; None where there is none.

    Args:
        found: of the former.
        other: of the latter, by data set.
    """
    pair = found.paired(other)
    if pair is None:
        return None
    own, base = pair[0].correct, pair[1]
    first = Comparison.of(own[found.orders.index(0)], base[0]) if 0 in found.orders else None
    if len(found.orders) == 1:
        one = first or Comparison.of(own[0], base[0])
        return StreamPair(one.n, first, one.difference, one.p_value)
    over = difference_over_orders(own, base)
    return StreamPair(own.shape[1], first, Interval(over.value, over.low, over.high), over.p_value)


@dataclass(frozen=True)
class _Less:
    """A method with a memory on a data set or all, less another; the p-value is adjusted."""

    scope: str
    found: StreamResult
    base: str
    pair: StreamPair
    adjusted: float


_P_VALUE = known_or_missing("{:.2g}")

_PAIR_FIELDS: tuple[Field[_Less], ...] = (
    Field("Data set", "", lambda less: less.scope, dataset_title),
    Field("Method", "", lambda less: marked_title(less.found.all, less.found.method)),
    Field("Less", "", lambda less: less.base, method_title),
    Field("n", "", lambda less: less.pair.n, "{:,}".format),
    *comparison_fields(lambda less: less.pair.first, "Order 0: Δ [95%]"),
    Field("p", "", lambda less: None if less.pair.first is None else less.pair.first.p_value, _P_VALUE),
    Field("Mean of orders: Δ [95%]", "", lambda less: less.pair.difference, partial(TOP1.show, sign=True)),
    Field("p of orders", "", lambda less: less.pair.p_value, _P_VALUE),
    Field("p (Holm)", "", lambda less: less.adjusted, _P_VALUE),
)


def _comparisons(block: StreamBlock, scopes: Iterable[str]) -> Table:
    """Return differences from each method without a memory, on the same images."""
    rows: list[_Less] = []
    for scope, base in product(scopes, block.runs.baselines):
        held = [found for (where, _), found in block.results.items() if where == scope]
        pairs = [(found, pair_of(found, block.runs.baseline(base, found.results))) for found in held]
        known = [(found, pair) for found, pair in pairs if pair is not None]
        adjusted = holm([pair.p_value for _, pair in known]) if known else ()
        rows += [_Less(scope, found, base, pair, p) for (found, pair), p in zip(known, adjusted, strict=True)]
    title = f"Methods with a memory less those without, on the same images: {block.title}"
    notes = (
        "Points. In order 0: a paired bootstrap interval and McNemar's exact p, which takes answers for "
        "independent of each other; those of a memory are not. Over orders: correctness of each image is averaged "
        "over orders, images are drawn again, and the variance of the orders divided by their number is added; "
        "with one order, as in order 0. Holm's method is over the methods with a memory, for each that they are "
        "compared with.",
        *tuned_note(_tuned(block)),
    )
    return Table.of(title, _PAIR_FIELDS, rows, notes, text_columns=3, by=(0, 2))


def stream_records(
    blocks: Iterable[StreamBlock], held: Sequence[RunSettings], metric_name: str | None = None
) -> list[dict[str, Any]]:
    """Return a record per data set and method with a memory, and for all sets of a block together.

    Args:
        blocks: the results.
        held: settings of all groups of the file, see `settings_record`.
        metric_name: for style `paper`, what `value` is; else records have columns of style `long`.
    """
    records = []
    items = ((block, *key, found) for block in blocks for key, found in block.results.items())
    for block, scope, method, found in items:
        record = settings_record(block.runs.settings, held) | {"benchmark": block.benchmark}
        record["stream"] = describe_stream(found.orders, block.runs.arrangement)
        record |= {"dataset" if metric_name is None else "column": scope, "method": method}
        record |= {} if metric_name is None else {"metric": metric_name}
        record["n"] = found.correct.shape[1]
        record["unreadable"] = sum(max(r.unreadable for r in orders.values()) for orders in found.results.values())
        names = ("top1", "top5", "mean_per_class") if metric_name is None else (metric_name,)
        record |= {"value" if metric_name else name: _over_orders(found, name) for name in names}
        if metric_name is None:
            record |= {name: _over_orders(found, name).value for name in ("ece", "brier", "nll")}
        pair = pair_of(found, block.runs.baseline("zero_shot", found.results))
        if metric_name in (None, "top1") and pair is not None:
            record |= {"delta": pair.difference, "delta_p_orders": pair.p_value}
        records.append(flat(record) | record_of(_FIELDS, _Row.of(scope, found)))
    return records


def _over_orders(found: StreamResult, name: str) -> Interval:
    """Return a metric's mean over orders, data sets weighing as their images; of top-1 and top-5 with an interval."""
    if name in ("top1", "top5"):
        correct = found.correct if name == "top1" else found.scores(lambda result: result.in_top5)
        return accuracy_over_orders(np.asarray(correct, np.bool_)).mean
    values = [METRICS[name].value(r) if METRICS[name].known(r) else nan for r in found.all]
    return Interval(float(np.average(values, weights=[result.n for result in found.all])), nan, nan)


_CORRUPTIONS = [name for names in KINDS.values() for name in names]

Answers = Bool[np.ndarray, " images"]


@dataclass(frozen=True)
class ShiftedRuns:
    """Groups of runs that differ in the shift alone.

    Attributes:
        groups: by shift as it is written, that of images as they are first, then corruptions, then attacks.
    """

    groups: Mapping[str, TableGroup]

    @property
    def first(self) -> TableGroup:
        """The first group."""
        return next(iter(self.groups.values()))

    @cached_property
    def methods(self) -> list[str]:
        """What the methods are called."""
        return list(dict.fromkeys(method for group in self.groups.values() for method in group.methods))

    @cached_property
    def datasets(self) -> list[str]:
        """Names of the data sets."""
        return list(dict.fromkeys(name for group in self.groups.values() for name in group.results))

    @property
    def scopes(self) -> Iterator[tuple[str, Sequence[str], str]]:
        """Each data set, then all together where there are several: what the row is of, the data sets, and a method."""
        scopes = scopes_of(self.datasets).items()
        yield from ((scope, datasets, method) for scope, datasets in scopes for method in self.methods)

    @property
    def corruptions(self) -> list[str]:
        """Those of the shifts that are corruptions."""
        return [shift for shift in self.groups if shift.partition(":")[0] in _CORRUPTIONS]

    def result(self, shift: str, dataset: str, method: str) -> Result | None:
        """Return a method's result under a shift, None where there is none with an answer."""
        result = self.groups[shift].results.get(dataset, {}).get(method)
        return result if result is not None and result.n else None

    def results(self, method: str, datasets: Sequence[str]) -> list[Result]:
        """Return a method's results with an answer, of all shifts."""
        found = (self.result(shift, name, method) for shift in self.groups for name in datasets)
        return [result for result in found if result is not None]

    def pooled(self, shifts: Sequence[str], datasets: Iterable[str], method: str) -> dict[str, Answers]:
        """Return by shift which answers are correct, on the images of some data sets that all shifts have.

        Nothing where a shift has no result of one of the data sets, or where labels of the same images differ.
        """
        parts: dict[str, list[Answers]] = {shift: [] for shift in shifts}
        for dataset in datasets:
            results = [self.result(shift, dataset, method) for shift in shifts]
            known = [result for result in results if result is not None]
            if len(known) < len(shifts) or not (common := _common(known)):
                return {}
            for shift, answers in zip(shifts, common, strict=True):
                parts[shift].append(answers)
        return {shift: np.concatenate(own) for shift, own in parts.items() if own}


def _common(results: Sequence[Result]) -> list[Answers]:
    """Return on which of the images that all results have each is correct; nothing where these are not the same.

    Corrupted images on disk have other bytes for each corruption: they are known by their positions and labels.
    """
    positions = shared_positions(results)
    labels = [values_at(result, result.labels, positions) for result in results]
    same = len(positions) > 0 and all(np.array_equal(labels[0], other) for other in labels)
    return [np.asarray(values_at(result, result.correct, positions)) for result in results] if same else []


def shifted_runs(groups: Sequence[TableGroup]) -> list[ShiftedRuns]:
    """Put groups together that differ in the shift alone."""
    families: dict[tuple[Any, ...], dict[str, TableGroup]] = {}
    for group in groups:
        key = (*group.settings._replace(shift=""), group.benchmark)
        families.setdefault(key, {})[group.settings.shift] = group
    return [ShiftedRuns({shift: held[shift] for shift in sorted(held, key=_rank)}) for held in families.values()]


def _rank(shift: str) -> tuple[int, int]:
    name, _, strength = shift.partition(":")
    order = ["", *_CORRUPTIONS]
    return (order.index(name) if name in order else len(order), int(strength or 0))


def shift_tables(groups: Sequence[TableGroup]) -> list[Table]:
    """Return tables of accuracies by shift, of the mean over corruptions, and of each shift against zero-shot.

    Raises:
        MissingError: no run's images were corrupted or attacked.
    """
    tables = list[Table]()
    for runs in (runs for runs in shifted_runs(groups) if [*runs.groups] != [""]):
        tables.append(_by_shift(runs))
        tables += [_corruption_table(runs)] if runs.corruptions else []
        for shift, group in runs.groups.items():
            tables.append(pooled_table(group, f"All data sets together, {shift or 'images as they are'}"))
    if not tables:
        raise MissingError("no run has corrupted or attacked images; make some with evaluate --corrupt or --attack")
    return tables


def _by_shift(runs: ShiftedRuns) -> Table:
    """Return a table with a row per data set and method, and a column per shift."""
    rows = []
    for scope, datasets, method in runs.scopes:
        counts = {shift: _count(runs, shift, datasets, method) for shift in runs.groups}
        if sizes := [count.n for count in counts.values() if count is not None]:
            row = {shift: UNKNOWN if count is None else count.estimate for shift, count in counts.items()}
            title = marked_title(runs.results(method, datasets), method)
            rows.append({"scope": scope, "method": title, "n": range_of(sizes), **row})
    fields: list[Field[Mapping[str, Any]]] = [
        Field("Data set", "", itemgetter("scope"), dataset_title),
        Field("Method", "", itemgetter("method")),
        Field("n", "", itemgetter("n")),
    ]
    fields += [Field(shift or "none", "", itemgetter(shift), TOP1.show) for shift in runs.groups]
    notes = (
        "Percent, with Wilson's 95% interval. A corruption is followed by its severity, 1 to 5; pgd by the largest "
        "change of a pixel's value, in 1/255.",
        *coverage(runs.first),
        *memory_notes(result for method in runs.methods for result in runs.results(method, runs.datasets)),
    )
    plain = replace(runs.first, settings=runs.first.settings._replace(shift=""))
    return Table.of(f"Top-1 accuracy by shift of {plain.title}", fields, rows, notes, text_columns=2, by=(0,))


def _count(runs: ShiftedRuns, shift: str, datasets: Sequence[str], method: str) -> Accuracy | None:
    results = [runs.result(shift, name, method) for name in datasets]
    known = [result for result in results if result is not None]
    if len(known) < len(datasets):
        return None
    return Accuracy(sum(int(result.correct.sum()) for result in known), sum(result.n for result in known))


_MEAN_FIELDS: tuple[Field[Mapping[str, Any]], ...] = (
    Field("Data set", "dataset", itemgetter("dataset"), dataset_title),
    Field("Method", "", itemgetter("title")),
    Field("", "method", itemgetter("method")),
    Field("n", "n", itemgetter("n"), "{:,}".format),
    Field("Top-1 [95%]", "top1", itemgetter("top1"), TOP1.show),
    Field("Δ [95%]", "delta", itemgetter("delta"), partial(TOP1.show, sign=True)),
    Field("mCE [95%]", "mce", itemgetter("mce"), TOP1.show),
)


def _means(runs: ShiftedRuns) -> Iterator[dict[str, Any]]:
    """Yield a method's mean over all corruptions of a data set, or of all; Δ and mCE are against zero-shot."""
    for scope, datasets, method in runs.scopes:
        if not (own := runs.pooled(runs.corruptions, datasets, method)):
            continue
        correct = np.mean([*own.values()], axis=0)
        other = runs.pooled(runs.corruptions, datasets, "zero_shot")
        delta = error = UNKNOWN
        if other and len(next(iter(other.values()))) == len(correct):
            if method != "zero_shot":
                delta = nan_if_constant(bootstrap_mean(correct - np.mean([*other.values()], axis=0)))
            error = mean_corruption_error(_outcomes(own), _outcomes(other))
        names = {"dataset": scope, "title": marked_title(runs.results(method, datasets), method), "method": method}
        yield {**names, "n": len(correct), "top1": bootstrap_mean(correct), "delta": delta, "mce": error}


def _outcomes(answers: Mapping[str, Answers]) -> Outcomes:
    outcomes: dict[str, dict[int, Answers]] = {}
    for shift, correct in answers.items():
        name, _, severity = shift.partition(":")
        outcomes.setdefault(name, {})[int(severity)] = correct
    return outcomes


def _corruption_table(runs: ShiftedRuns) -> Table:
    """Return a table with a row per data set and method: the mean over all corruptions in all severities."""
    n = len(runs.corruptions)
    note = (
        "Percent, with 95% bootstrap intervals over images: an image is drawn with all its corruptions, which are "
        f"{', '.join(runs.corruptions)}. Δ is over zero-shot on the same images. mCE is the mean corruption error "
        "of Hendrycks & Dietterich. Its reference is zero-shot of the same runs, whose own is 100 by definition, "
        "not AlexNet; less is better."
    )
    title = f"Mean over {n} corruption{'s' * (n != 1)}"
    return Table.of(title, _MEAN_FIELDS, _means(runs), (note,), text_columns=2, by=(0,))


def shift_records(groups: Sequence[TableGroup]) -> list[dict[str, Any]]:
    """Return a record per data set and method: the mean over all corruptions, as proportions.

    Raises:
        MissingError: no run's images were corrupted.
    """
    records = []
    for runs in (runs for runs in shifted_runs(groups) if runs.corruptions):
        settings = settings_record(runs.first.settings, [group.settings for group in groups])
        settings["shift"] = " ".join(runs.corruptions)
        records += [settings | record_of(_MEAN_FIELDS, mean) for mean in _means(runs)]
    if not records:
        raise MissingError("no run has corrupted images; make some with evaluate --corrupt")
    return records
