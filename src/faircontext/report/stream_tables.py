"""Tables of methods with a memory, in a block of their own, over all orders that were run.

Orders of the same images are not more images: an accuracy is the mean over orders, with Wilson's interval of the
images, and the standard deviation of the orders stands beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan

import numpy as np
from jaxtyping import Bool

from faircontext.metrics.orders import accuracy_over_orders, difference_over_orders
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Interval, holm
from faircontext.report.paper import dataset_title, sets_by_benchmark, settings_title
from faircontext.report.render import Cell, Table
from faircontext.report.table_metrics import MISSING, TOP1, Metric
from faircontext.report.tables import marked_title, shortfalls, tuned_note
from faircontext.runs.groups import method_title
from faircontext.runs.results import Result
from faircontext.runs.stream_results import StreamResult, StreamRuns

__all__ = ["ALL_SETS", "StreamBlock", "StreamPair", "pair_of", "stream_blocks", "stream_tables"]

ALL_SETS = "all sets"
"""Stands for the images of all data sets of a table together, each weighing the same."""

Correct = Bool[np.ndarray, "orders images"]


@dataclass(frozen=True)
class StreamBlock:
    """Runs of methods with a memory on one benchmark.

    Attributes:
        runs: the runs.
        benchmark: see `TableGroup`.
        datasets: those of the benchmark, in the order of its table.
    """

    runs: StreamRuns
    benchmark: str
    datasets: tuple[str, ...]

    @property
    def title(self) -> str:
        """What all have in common, in words."""
        return settings_title(self.runs.settings, self.benchmark)

    @property
    def scopes(self) -> list[tuple[str, tuple[str, ...]]]:
        """Each data set, then all together where there are several, by name."""
        single: list[tuple[str, tuple[str, ...]]] = [(name, (name,)) for name in self.datasets]
        return [*single, (ALL_SETS, self.datasets)] if len(single) > 1 else single

    @cached_property
    def results(self) -> dict[tuple[str, str], StreamResult]:
        """Results by scope and method."""
        return {
            (scope, method): found
            for scope, datasets in self.scopes
            for method in self.runs.methods
            if (found := self.runs.result(method, datasets)) is not None
        }


def stream_blocks(streams: Sequence[StreamRuns]) -> list[StreamBlock]:
    """Return the blocks of runs, by benchmark."""
    return [
        StreamBlock(runs, benchmark, datasets)
        for runs in streams
        for benchmark, datasets in sets_by_benchmark(runs.datasets).items()
    ]


def stream_tables(block: StreamBlock, long: bool = False, metric: Metric = TOP1) -> list[Table]:
    """Return the tables of a block: accuracies and costs, and comparisons with methods without a memory.

    Args:
        block: the results.
        long: whether each data set has rows of its own in all tables.
        metric: what methods by data sets show; that table is left out for the accuracy on one data set.
    """
    scopes = [scope for scope, _ in block.scopes]
    shown = scopes if long else scopes[-1:]
    tables = [_accuracies(block, shown), _comparisons(block, shown)]
    by_set = not long and (len(block.datasets) > 1 or metric is not TOP1)
    return [table for table in (*([_by_set(block, metric)] if by_set else []), *tables) if table.rows]


def _scope_title(scope: str) -> str:
    return scope if scope == ALL_SETS else dataset_title(scope)


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
    if left := [name for name in block.runs.methods if (block.scopes[-1][0], name) not in block.results]:
        yield f"Not of all data sets in one order, and left out there: {', '.join(map(method_title, left))}."


def _other_orders(block: StreamBlock) -> Iterator[str]:
    """Yield which methods were run on which sets in other orders than most, if any were."""
    held = dict[tuple[int, ...], list[str]]()
    for (scope, method), found in block.results.items():
        if scope != ALL_SETS:
            held.setdefault(found.orders, []).append(f"{method_title(method)} on {dataset_title(scope)}")
    if len(held) > 1:
        most = max(held, key=lambda orders: len(held[orders]))
        others = (f"{', '.join(names)} in {_numbers(orders)}" for orders, names in held.items() if orders != most)
        where = " All sets together are of the orders that each of them has." if len(block.scopes) > 1 else ""
        yield f"Not all are means of the same orders: most are in {_numbers(most)}, {'; '.join(others)}.{where}"


def _numbers(orders: Sequence[int]) -> str:
    return f"order{'s' * (len(orders) > 1)} {' '.join(map(str, orders))}"


def _by_set(block: StreamBlock, metric: Metric) -> Table:
    """Return methods by data sets: the mean over orders and their standard deviation."""
    rows, widths, sizes = [], dict[str, list[float]](), dict[str, set[int]]()
    for method in block.runs.methods:
        cells = [marked_title(_results(block, method), method)]
        for name in block.datasets:
            found = block.results.get((name, method))
            measured = [] if found is None else [metric.measure([result]) for result in found.all]
            known = [interval for interval in measured if interval is not None]
            cells.append(_mean(known, metric) if known and len(known) == len(measured) else MISSING)
            widths.setdefault(name, []).extend(
                max(v.value - v.low, v.high - v.value) for v in known if not isnan(v.low)
            )
            sizes.setdefault(name, set()).update([] if found is None else [result.n for result in found.all])
        rows.append(tuple(map(Cell, cells)))
    n = [" to ".join(f"{size:,}" for size in dict.fromkeys((min(sizes[name]), max(sizes[name])))) for name in sizes]
    halves = [f"±{metric.format(max(widths[name]))}" if widths[name] else MISSING for name in widths]
    foot = (tuple(map(Cell, ("n", *n))), tuple(map(Cell, ("±95%", *halves))))
    return Table(
        title=f"{metric.title[0].upper()}{metric.title[1:]} of methods with a memory, mean of orders: {block.title}",
        columns=("Method", *map(dataset_title, block.datasets)),
        rows=tuple(rows),
        foot=foot if metric.has_interval else foot[:1],
        footnotes=(
            "After ± stands the standard deviation of the orders. ±95% is the largest half-width of an order's "
            "95% interval of the images.",
            *_other_orders(block),
            *tuned_note(_tuned(block)),
        ),
        bars=frozenset({0}),
    )


def _results(block: StreamBlock, method: str) -> list[Result]:
    return [result for name in block.datasets if (f := block.results.get((name, method))) for result in f.all]


def _tuned(block: StreamBlock) -> Iterator[tuple[str, str]]:
    """Yield methods and data sets for which their authors chose settings, as they are called in tables."""
    for method in block.runs.methods:
        for name in dict.fromkeys(result.dataset for result in _results(block, method) if result.tuned):
            yield method_title(method), dataset_title(name)


def _mean(measured: Sequence[Interval], metric: Metric) -> str:
    values = [interval.value for interval in measured]
    sd = f" ± {metric.format(float(np.std(values, ddof=1)))}" if len(values) > 1 else ""
    return metric.format(float(np.mean(values))) + sd


def _accuracies(block: StreamBlock, scopes: Sequence[str]) -> Table:
    """Return accuracies over orders with what they cost, and zero-shot on the same images first."""
    rows, ends = list[tuple[Cell, ...]](), list[int]()
    for scope in scopes:
        held = [found for (name, _), found in block.results.items() if name == scope]
        zero_shot = (row for found in held if (row := _zero_shot(block, scope, found)) is not None)
        rows += [*zero_shot][:1]
        rows += [tuple(map(Cell, (_scope_title(scope), *_facts(found)))) for found in held]
        ends.append(len(rows) - 1)
    return Table(
        title=f"Methods with a memory: {block.title}",
        columns=(
            *("Data set", "Method", "Orders", "n", "Mean top-1 [95%]", "SD of orders", "Min to max"),
            *("Images seen before", "State (MB)", "s/image", "Shared s/image", "Backward passes"),
        ),
        rows=tuple(rows),
        footnotes=(
            "Percent: the mean over orders of the same images, with Wilson's interval of the images, and the standard "
            "deviation, the least and the most of the orders. Images seen before are a mean; the state is the largest "
            "at the end of a stream; seconds are its own, without shared work such as encoding; backward "
            "passes are of an image.",
            *_notes(block),
        ),
        text_columns=2,
        rules=frozenset(ends),
        bars=frozenset({1}),
    )


def _zero_shot(block: StreamBlock, scope: str, found: StreamResult) -> tuple[Cell, ...] | None:
    pair = found.paired(block.runs.baseline("zero_shot", found.results))
    if pair is None:
        return None
    accuracy = accuracy_over_orders(pair[1][:1])
    cells = (_scope_title(scope), method_title("zero_shot"), MISSING, f"{accuracy.n:,}", TOP1.show(accuracy.mean))
    return tuple(map(Cell, (*cells, MISSING, MISSING, "0", MISSING, MISSING, MISSING, "0")))


def _facts(found: StreamResult) -> list[str]:
    """Return the cells of a method: its accuracy over orders, and its costs."""
    accuracy, size, passes = accuracy_over_orders(found.correct), found.cost("megabytes"), found.cost("backward_passes")
    return [
        marked_title(found.all, found.method),
        " ".join(map(str, found.orders)),
        f"{accuracy.n:,}",
        TOP1.show(accuracy.mean),
        MISSING if isnan(accuracy.sd) else TOP1.format(accuracy.sd),
        f"{TOP1.format(accuracy.least)} to {TOP1.format(accuracy.most)}",
        MISSING if isnan(found.seen_before) else f"{found.seen_before:,.1f}",
        MISSING if size is None else f"{size:,.1f}" if size >= 1 else f"{size:.2g}",
        f"{found.seconds:.4f}",
        MISSING if isnan(found.shared_seconds) else f"{found.shared_seconds:.4f}",
        MISSING if passes is None else f"{passes:g}",
    ]


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


def _comparisons(block: StreamBlock, scopes: Sequence[str]) -> Table:
    """Return differences from each method without a memory, on the same images."""
    rows, ends = list[tuple[Cell, ...]](), list[int]()
    for scope in scopes:
        for base in block.runs.baselines:
            held = {name: found for (where, name), found in block.results.items() if where == scope}
            pairs = {name: pair_of(found, block.runs.baseline(base, found.results)) for name, found in held.items()}
            known = {name: pair for name, pair in pairs.items() if pair is not None}
            adjusted = holm([pair.p_value for pair in known.values()]) if known else ()
            for (name, pair), p_value in zip(known.items(), adjusted, strict=True):
                cells = (_scope_title(scope), marked_title(held[name].all, name), method_title(base))
                rows.append(tuple(map(Cell, (*cells, *_pair_facts(pair, p_value)))))
            ends.append(len(rows) - 1)
    return Table(
        title=f"Methods with a memory less those without, on the same images: {block.title}",
        columns=(
            *("Data set", "Method", "Less", "n", "Order 0: Δ [95%]", "Gained/lost", "p"),
            *("Mean of orders: Δ [95%]", "p of orders", "p (Holm)"),
        ),
        rows=tuple(rows),
        footnotes=(
            "Points. In order 0: a paired bootstrap interval and McNemar's exact p, which takes answers for "
            "independent of each other; those of a memory are not. Over orders: correctness of each image is averaged "
            "over orders, images are drawn again, and the variance of the orders divided by their number is added; "
            "with one order, as in order 0. Holm's method is over the methods with a memory, for each that they are "
            "compared with.",
            *tuned_note(_tuned(block)),
        ),
        text_columns=3,
        rules=frozenset(ends),
        bars=frozenset({2}),
    )


def _pair_facts(pair: StreamPair, adjusted: float) -> list[str]:
    first = [MISSING] * 3
    if (one := pair.first) is not None:
        counts = f"+{one.gained:,} -{one.lost:,}"
        first = [TOP1.show(one.difference, sign=True), counts, f"{one.p_value:.2g}"]
    over = [TOP1.show(pair.difference, sign=True), f"{pair.p_value:.2g}", f"{adjusted:.2g}"]
    return [f"{pair.n:,}", *first, *over]
