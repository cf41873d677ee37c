"""The paper's tables from runs, and what the paper leaves out: counts of images, intervals, tests, unreadable files.

Sources: tables `tab:tta_imagenet_vitb16`, `tab:tta_vitb16_fg`, `tab:tta_imagenet_rn50` and `tab:delta_clip_merged`. A
difference from what the paper reports is information, never a verdict: its interval is that of the measured accuracy.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any

from faircontext.datasets.spec import CATALOGUE
from faircontext.errors import counted
from faircontext.metrics.bootstrap import PooledMean, pool
from faircontext.metrics.scores import Comparison, compare_sets, expected_calibration_error
from faircontext.metrics.stats import Accuracy, Interval, holm
from faircontext.report.benchmarks import (
    METRICS,
    MISSING,
    NO_GAIN,
    SETS,
    TOP1,
    UNKNOWN,
    Metric,
    Scope,
    TableGroup,
    coverage,
    dataset_title,
    marked_title,
    memory_notes,
    paper_scopes,
    pooled_answers,
    reported_accuracies,
    settings_record,
)
from faircontext.report.render import Cell, Column, MissingError, Rank, Table, flat
from faircontext.runs.records import method_of, method_title
from faircontext.runs.results import Result

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
    shown = [(scope, scope.heading, metric.measure, False) for scope in scopes]
    compared = scopes if len(scopes) == 1 else scopes[len(group.results) :]
    for scope in reversed(compared):  # beside its mean
        heading = "Δ" if len(scopes) == 1 else f"Δ {scope.heading}"
        shown.insert(scopes.index(scope) + 1, (scope, heading, metric.gain, True))
    held = [[scope.results(group, method) for method in methods] for scope, *_ in shown]
    values = [[value(results) for results in column] for (*_, value, _), column in zip(shown, held, strict=True)]
    gains = {method: metric.gain([*group.row(method).values()]) for method in methods}
    apart = [scope.heading for scope in scopes if not scope.comparable(group)]
    ranked = [not gained and scope.heading not in apart for scope, *_, gained in shown]
    return pivot(
        f"{metric.title[0].upper()}{metric.title[1:]} of {group.title}",
        [heading for _, heading, *_ in shown],
        [marked_title(_held(group, method), method) for method in methods],
        [
            _cells([MISSING if v is None else metric.format(v.value, gained) for v in column], metric if rank else None)
            for (*_, gained), column, rank in zip(shown, values, ranked, strict=True)
        ],
        [{sum(r.n for r in results) for results in column if results} or {0} for column in held],
        values,
        metric,
        (
            _explanation(group, scopes, metric),
            *([f"Not ranked, as methods answered different images: {', '.join(apart)}."] if apart else []),
            *coverage(group),
            *_unreadable(group, metric),
            *_gains(group, metric, gains),
            *sets_notes(gains.values()),
            *memory_notes(_held(group)),
        ),
        rules=frozenset(_rules(methods)),
        bars=frozenset({0, len(group.results)}),
    )


def pivot(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    counts: Iterable[Iterable[int]],
    intervals: Iterable[Iterable[Interval | PooledMean | None]],
    metric: Metric,
    footnotes: tuple[str, ...],
    bars: frozenset[int],
    rules: frozenset[int] = frozenset(),
) -> Table:
    """Return a table of methods by columns; below it images, and the largest half-widths of a column's intervals."""
    held = [[value for value in column if value is not None] for column in intervals]
    foot = [("n", *map(range_of, counts))]
    if metric.has_interval:
        of_images = [[v.images if isinstance(v, PooledMean) else v for v in column] for column in held]
        over_sets = [[v.sets for v in column if isinstance(v, PooledMean) and v.sets is not None] for column in held]
        foot.append(("±95%", *(_half_width(column, metric) for column in of_images)))
        foot += [(f"±{SETS_MARK}", *(_half_width(column, metric) for column in over_sets))] if any(over_sets) else []
    body = tuple(zip(map(Cell, rows), *cells, strict=True))
    lines = tuple(tuple(map(Cell, line)) for line in foot)
    return Table(title, ("Method", *columns), body, lines, footnotes, 1, rules, bars)


def _half_width(intervals: Iterable[Interval], metric: Metric) -> str:
    """Return the largest half-width of those that are known, as it is printed."""
    halves = [max(one.value - one.low, one.high - one.value) for one in intervals if not isnan(one.low)]
    return f"±{metric.format(max(halves))}" if halves else MISSING


def range_of(counts: Iterable[int]) -> str:
    """Return the least and the most of some counts, or the one that all are."""
    known = [*counts]
    return " to ".join(f"{n:,}" for n in dict.fromkeys((min(known), max(known))))


def _held(group: TableGroup, *methods: str) -> list[Result]:
    """Return a group's results, of all methods or of some."""
    return [r for held in group.results.values() for name, r in held.items() if name in (methods or held)]


def _rules(methods: Sequence[str]) -> Iterator[int]:
    """Yield where the paper draws lines: after zero-shot, and before FCL."""
    kinds = [name if name == "zero_shot" else "ours" if name.startswith("fcl") else "others" for name in methods]
    yield from (row for row in range(len(kinds) - 1) if kinds[row] != kinds[row + 1])


def _cells(texts: Sequence[str], metric: Metric | None) -> list[Cell]:
    """Return a column's cells; of those that are printed alike all are the best by a metric, or all the second."""
    known = [text for text in texts if text != MISSING]
    best = sorted({*known}, key=float, reverse=metric.higher) if metric and len(known) > 1 else []
    ranks: dict[str, Rank] = dict(zip(best, ("best", "second"), strict=False))
    return [Cell(text, ranks.get(text, "")) for text in texts]


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


def _or(otherwise: str, form: str = "{}") -> Callable[[Any], str]:
    """Return what writes a value in a form, and a text for None."""
    return lambda value: otherwise if value is None else form.format(value)


DATASET = Column("Data set", "dataset", dataset_title)
METHOD = Column("Method", "_method")
N = Column("n", "n", "{:,}".format)
TOP1_COLUMN = Column("Top-1 [95%]", "top1", TOP1.show)


def _tests(missing: str) -> tuple[Column, ...]:
    """Return the columns of a comparison with zero-shot; `missing` stands for what is not there."""
    p_values = (Column(name, key, _or(missing, "{:.2g}")) for name, key in (("p", "p"), ("p (Holm)", "p_holm")))
    delta = difference_columns("Δ", "delta", missing)
    return *delta, Column("Gained/lost", "_counts", _or(missing)), *p_values


_ECE = Column("ECE", "_ece", _or(MISSING, "{:.2f}"))


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
    return _adjusted({name: one and one.p_value for name, one in comparisons.items()})


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
    held = {method: results for method in group.methods if (results := list(group.row(method).values()))}
    records = {
        name: _record(results, name) | {"_sets": len(results), "_gain": TOP1.gain(results) or NO_GAIN}
        for name, results in held.items()
    }
    p_values = _adjusted({name: record["delta"].p_value for name, record in records.items()})
    notes = (
        "Percent. Every image weighs the same, but in the mean over data sets, where each set does. Top-1 has "
        "Wilson's interval. Δ is over zero-shot on the same images, with a paired bootstrap interval; gained and "
        "lost are images; p is McNemar's exact test, then by Holm's method over the methods. ECE has 20 bins.",
        *sets_notes(record[key] for record in records.values() for key in ("delta", "_gain")),
        *_apart(list(held.values())),
        *memory_notes(result for results in held.values() for result in results),
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
        for unreadable, whole in sorted({(result.unreadable, result.unreadable + result.n) for result in some}):
            line = f"{dataset_title(name)}: {unreadable:,} of {counted(whole, 'file')} unreadable and left out"
            if metric.counts and metric.score is not None:
                same = [r for r in some if (r.unreadable, r.unreadable + r.n) == (unreadable, whole)]
                correct = {r.method: int(metric.score(r).sum()) if r.n else 0 for r in same}
                worse = (f"{method_title(m)} {TOP1.show(Accuracy(k, whole).estimate)}" for m, k in correct.items())
                line += f"; counted as wrong: {', '.join(worse)}"
            yield f"{line}."


def _gains(group: TableGroup, metric: Metric, gains: Mapping[str, PooledMean | None]) -> Iterator[str]:
    """Yield, for each method, its mean gain over zero-shot with the intervals."""
    for method, gain in ((method, gain) for method, gain in gains.items() if gain is not None):
        sets, whole = gain.datasets, len(group.results)
        part = f" over {sets} of {whole} data sets" if sets < whole else ""
        over_sets = "" if gain.sets is None else f", [{SETS_MARK}] {metric.ends(gain.sets, sign=True)}"
        images = counted(gain.n, "image")
        how = f"paired on {images}, 95% interval" if metric.has_interval else images
        yield f"Δ {method_title(method)}: {metric.show(gain.images, sign=True)}{over_sets}{part} ({how})."


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
    found: dict[tuple[tuple[str, ...], str], Record] = defaultdict(lambda: empty)
    with suppress(MissingError):  # the paper has no such table: its columns stay empty
        for one in compare_with_paper(group) if compared else ():
            found[one.scope.sets, one.method] = {"reported": one.reported, "difference": one.difference}
    return found


def difference_from(measured: Interval, reported: float) -> Interval:
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
    whole = len(group.results) == len(SETS.get(group.benchmark, ()))
    for scope in (scope for scope in paper_scopes(group) if scope.name != "avg" or whole):
        for method in group.methods:
            results, theirs = scope.results(group, method), reported.get(_reported_method(group, method) or "", {})
            if scope.name in theirs and (ours := TOP1.measure(results)) is not None:
                known = theirs[scope.name] / 100
                shifted = [result.correct - theirs[result.dataset] / 100 for result in results]
                difference = pool(shifted, "set", images=difference_from(ours, known))
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
    columns = (
        Column("Data set", "_scope"),
        Column("Method", "method", method_title),
        N,
        Column("Measured [95%]", "measured", TOP1.show),
        Column("Paper", "reported", TOP1.format),
        *difference_columns("Difference", "difference"),
    )
    title = f"Top-1 accuracy measured, and reported by the paper: {group.title}"
    intervals = "Percent, with 95% intervals of what was measured; the paper gives none of its own."
    notes = (f"{intervals} For information: a difference is no verdict.", *_reservations(group))
    notes += tuple(sets_notes(one.difference for one in comparisons))
    return Table.of(title, columns, records, notes, text_columns=2, by=(0,))
