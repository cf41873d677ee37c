"""Tables of runs that differ in one thing more: the order of their images, or what was done to these.

Orders of the same images are not more images: an accuracy of a method with a memory is the mean over orders, with
Wilson's interval of the images, and the standard deviation of the orders stands beside it. Under corruptions and
attacks everything is on images that a method answered under all the perturbations of a row, paired image by image.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import isnan, nan
from typing import Any

import numpy as np
from jaxtyping import Bool

from faircontext.errors import counted
from faircontext.metrics.bootstrap import bootstrap_mean, pool
from faircontext.metrics.orders import Outcomes, accuracy_over_orders, difference_over_orders, mean_corruption_error
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Interval, holm
from faircontext.perturbations import KINDS
from faircontext.report.accuracy_tables import (
    DATASET,
    METHOD,
    SIGNED,
    TOP1_COLUMN,
    N,
    comparison_record,
    difference_columns,
    difference_from,
    pivot,
    pooled_accuracy,
    pooled_table,
    range_of,
    sets_notes,
)
from faircontext.report.benchmarks import (
    ALL_SETS,
    METRICS,
    MISSING,
    NO_GAIN,
    TOP1,
    UNKNOWN,
    Metric,
    Published,
    StreamBlock,
    TableGroup,
    coverage,
    dataset_title,
    known_or_missing,
    marked_title,
    memory_notes,
    published_accuracies,
    read_reported,
    scopes_of,
    settings_record,
    shortfalls,
    tuned_note,
)
from faircontext.report.render import Cell, Column, MissingError, Table, flat
from faircontext.runs.groups import RunSettings, describe_stream, shared_positions, values_at
from faircontext.runs.records import method_title
from faircontext.runs.results import TUNED, Result
from faircontext.runs.stream_results import StreamResult

Record = dict[str, Any]


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
    whole = dict.fromkeys((result.dataset, ", ".join(shortfalls(result))) for result in results)
    yield from (f"{dataset_title(name)}: {parts}." for name, parts in whole if parts)
    unreadable = dict.fromkeys((r.dataset, r.unreadable, r.unreadable + r.n) for r in results if r.unreadable)
    for name, count, files in unreadable:
        yield f"{dataset_title(name)}: {count:,} of {counted(files, 'file')} unreadable and left out."
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
    methods, columns = block.runs.methods, [dataset_title(name) for name in block.datasets]
    held = [[_results(block, method, name) for method in methods] for name in block.datasets]
    measured = [[[metric.measure([result]) for result in results] for results in column] for column in held]
    return pivot(
        f"{metric.title[0].upper()}{metric.title[1:]} of methods with a memory, mean of orders: {block.title}",
        columns,
        [marked_title(_results(block, method), method) for method in methods],
        [[Cell(_mean(values, metric)) for values in column] for column in measured],
        [[result.n for results in column for result in results] for column in held],
        [[value for values in column for value in values] for column in measured],
        metric,
        (
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
    results = (result for method in block.runs.methods for result in _results(block, method) if result.tuned)
    return ((method_title(result.method), dataset_title(result.dataset)) for result in results)


def _mean(measured: Sequence[Interval | None], metric: Metric) -> str:
    values = [interval.value for interval in measured if interval is not None]
    if not values or len(values) < len(measured):
        return MISSING
    sd = f" ± {metric.format(float(np.std(values, ddof=1)))}" if len(values) > 1 else ""
    return metric.format(float(np.mean(values))) + sd


def _record(scope: str, method: str, correct: Bool[np.ndarray, "orders n"], found: StreamResult | None) -> Record:
    """Return a method on a data set or all; `found` is None for zero-shot, which has no memory."""
    accuracy = accuracy_over_orders(correct)
    ends = f"{TOP1.format(accuracy.least)} to {TOP1.format(accuracy.most)}"
    orders = found and " ".join(map(str, found.orders))
    return {
        "_scope": scope,
        "_method": marked_title(found.all if found else (), method),
        "_orders": orders or MISSING,
        "orders": found and len(found.orders),
        "_n": accuracy.n,
        "_top1": accuracy.mean,
        "top1_sd": accuracy.sd,
        "top1_min": accuracy.least,
        "top1_max": accuracy.most,
        "_range": ends if found else MISSING,
        "seen_before": found.seen_before if found else 0,
        "state_mb": found and found.cost("megabytes"),
        "seconds": found and found.seconds,
        "shared_seconds": found and found.shared_seconds,
        "backward_passes": found.cost("backward_passes") if found else 0,
        "mark": TUNED if found and found.tuned else "",
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
        held = [found for (name, _), found in block.results.items() if name == scope]
        pairs = (found.paired(block.runs.baseline("zero_shot", found.results)) for found in held)
        zero_shot = next((pair[1] for pair in pairs if pair is not None), None)
        records += [] if zero_shot is None else [_record(scope, "zero_shot", zero_shot[:1], None)]
        records += [_record(scope, found.method, found.correct, found) for found in held]
    notes = (
        "Percent: the mean over orders of the same images, with Wilson's interval of the images, and the standard "
        "deviation, the least and the most of the orders. Images seen before are a mean; the state is the largest "
        "at the end of a stream; seconds are its own, without shared work such as encoding; backward "
        "passes are of an image.",
        *_notes(block),
    )
    return Table.of(f"Methods with a memory: {block.title}", _COLUMNS, records, notes, text_columns=2, by=(0,))


def pair_record(found: StreamResult, other: dict[str, Result]) -> Record | None:
    """Compare a method with a memory with one without, on the images that both have; None where there is none.

    In order 0 alone, nothing without that order, and over all orders.
    """
    if (pair := found.paired(other)) is None:
        return None
    ends = np.cumsum([len(positions) for positions in pair[0].positions.values()])[:-1]
    own, base = (np.split(correct, ends, axis=1) for correct in (pair[0].correct, pair[1]))

    def in_order(index: int) -> Record:
        return comparison_record(Comparison.of(mine[index], theirs[0]) for mine, theirs in zip(own, base, strict=True))

    first = in_order(found.orders.index(0)) if 0 in found.orders else comparison_record(())
    if len(found.orders) == 1:
        over = in_order(0)["delta"]
    else:
        means = [(mine.astype(np.float64) - theirs).mean(0) for mine, theirs in zip(own, base, strict=True)]
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
        held = [found for (where, _), found in block.results.items() if where == scope]
        pairs = [(found, pair_record(found, block.runs.baseline(base, found.results))) for found in held]
        known = [(found, pair) for found, pair in pairs if pair is not None]
        adjusted = holm([pair["_p_value"] for _, pair in known]) if known else ()
        for (found, pair), p in zip(known, adjusted, strict=True):
            names = {"_scope": scope, "_method": marked_title(found.all, found.method), "_base": base}
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
    for (scope, method), found in block.results.items():
        yield from ((found, one) for one in known if (one.dataset, one.method) == (scope, method_title(method)))


def published_table(block: StreamBlock) -> Table:
    """Return a table of accuracies that were measured and published.

    Raises:
        MissingError: none is known as published.
    """
    pairs = [(found, one, accuracy_over_orders(found.correct)) for found, one in compare_with_published(block)]
    if not pairs:
        backbone = block.runs.settings.backbone
        raise MissingError(f"no accuracy of these methods with a memory, on {backbone}, is known as published")
    records = [
        vars(one)
        | {"_method": marked_title(found.all, found.method), "n": measured.n, "measured": measured.mean}
        | {"difference": difference_from(measured.mean, one.accuracy)}
        for found, one, measured in pairs
    ]
    columns = (
        DATASET,
        METHOD,
        Column("Source", "source"),
        Column("Tuned per set", "tuned"),
        Column("Prompts", "prompts"),
        N,
        Column("Measured [95%]", "measured", TOP1.show),
        Column("Published", "accuracy", TOP1.format),
        Column("Difference [95%]", "difference", SIGNED),
    )
    sources = {row["source"]: f"{row['title']} ({row['kind']})" for row in read_reported("online_sources")}
    notes = (
        "Percent, with 95% intervals of what was measured; published numbers are of one order, mostly of settings "
        "chosen for each data set, and of the prompts that stand beside them. A difference is no verdict.",
        *(f"{name}: {sources[name]}." for name in dict.fromkeys(one.source for _, one, _ in pairs)),
        *tuned_note((method_title(f.method), dataset_title(name)) for f, *_ in pairs for name in f.tuned),
    )
    title = f"Top-1 accuracy measured, mean of orders, and published: {block.title}"
    return Table.of(title, columns, records, notes, text_columns=5, by=(0,))


def stream_records(
    blocks: Iterable[StreamBlock], held: Sequence[RunSettings], metric_name: str | None = None
) -> list[Record]:
    """Return a record per data set and method with a memory, and for all sets of a block together.

    Args:
        blocks: the results.
        held: settings of all groups of the file, see `settings_record`.
        metric_name: for style `paper`, what `value` is; else records have columns of style `long`.
    """
    records = []
    for block, (scope, method), found in ((b, *item) for b in blocks for item in b.results.items()):
        record = settings_record(block.runs.settings, held) | {"benchmark": block.benchmark}
        record["stream"] = describe_stream(found.orders, block.runs.arrangement)
        record |= {"dataset" if metric_name is None else "column": scope, "method": method}
        record |= {} if metric_name is None else {"metric": metric_name}
        record["n"] = found.correct.shape[1]
        record["unreadable"] = sum(max(r.unreadable for r in orders.values()) for orders in found.results.values())
        if metric_name is None:
            record |= {name: _over_orders(found, name) for name in ("top1", "top5", "mean_per_class")}
            record |= {name: _over_orders(found, name).value for name in ("ece", "brier", "nll")}
        else:
            record["value"] = _over_orders(found, metric_name)
        pair = pair_record(found, block.runs.baseline("zero_shot", found.results))
        if metric_name in (None, "top1") and pair is not None:
            record |= {"delta": pair["_difference"], "delta_p_orders": pair["_p_value"]}
        records.append(flat(record | _record(scope, method, found.correct, found)))
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
        held = self.results(method, datasets)
        if not all(len(held[perturbation]) == len(datasets) for perturbation in self.corruptions):
            return []
        columns = [_common([held[name][index] for name in self.corruptions]) for index in range(len(datasets))]
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
        PerturbedRuns({perturbation: held[perturbation] for perturbation in sorted(held, key=_rank)})
        for held in families.values()
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
        held = runs.results(method, datasets)
        whole = {
            perturbation: results if len(results) == len(datasets) else [] for perturbation, results in held.items()
        }
        found = [result for results in held.values() for result in results]
        known += found if len(datasets) == 1 else []
        if sizes := [sum(result.n for result in results) for results in whole.values() if results]:
            row = {"_scope": scope, "_method": marked_title(found, method), "n": range_of(sizes)}
            records.append(
                row | {f"shift {perturbation}": pooled_accuracy(results) for perturbation, results in whole.items()}
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
        own, other = runs.shared(datasets, method), runs.shared(datasets, "zero_shot")
        if not own:
            continue
        correct, base = ([np.mean([*answers.values()], axis=0) for answers in side] for side in (own, other))
        delta, error = NO_GAIN, UNKNOWN
        if [*map(len, base)] == [*map(len, correct)]:
            if method != "zero_shot":
                delta = pool([mine - theirs for mine, theirs in zip(correct, base, strict=True)])
            error = mean_corruption_error(_outcomes(own), _outcomes(other))
        results = [result for held in runs.results(method, datasets).values() for result in held]
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
