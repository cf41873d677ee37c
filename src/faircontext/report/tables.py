"""The paper's tables from runs, with what the paper leaves out: counts of images, intervals, unreadable files.

Sources: tables `tab:tta_imagenet_vitb16`, `tab:tta_vitb16_fg`, `tab:tta_imagenet_rn50` and `tab:delta_clip_merged`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan

import numpy as np

from faircontext.metrics.calibration import Reliability, reliability
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Accuracy, Interval, holm
from faircontext.report.paper import Column, TableGroup, columns_of, dataset_title
from faircontext.report.render import Cell, Rank, Table
from faircontext.report.table_metrics import METRICS, MISSING, TOP1, Metric
from faircontext.runs.groups import method_title
from faircontext.runs.results import DEPENDENT, TUNED, Result

__all__ = [
    "adjusted_p_values",
    "coverage",
    "TUNED_MARK",
    "long_table",
    "marked_title",
    "memory_notes",
    "paper_table",
    "pooled_bins",
    "pooled_comparison",
    "pooled_table",
    "shortfalls",
    "tuned_note",
]


TUNED_MARK = "†"
"""Stands after the name of a method where settings were tuned, see `TUNED`."""


def marked_title(results: Iterable[Result], method: str) -> str:
    """Return what a method is called, with a mark where its settings were tuned for a data set."""
    return method_title(method) + (TUNED_MARK if any(result.tuned for result in results) else "")


def memory_notes(results: Iterable[Result]) -> Iterator[str]:
    """Yield which of some results are of methods with a memory, and which have settings tuned for their data set."""
    known = [*results]
    if memory := dict.fromkeys(method_title(result.method) for result in known if result.has_memory):
        orders = sorted({str(result.config["stream"]["order"]) for result in known if result.has_memory})
        yield (
            f"With a memory, in order {' and '.join(orders)}: {', '.join(memory)}. Answers depend on the order, and on "
            "images that were seen before; those of the others do not. Intervals and tests are "
            f"{DEPENDENT}."
        )
    yield from tuned_note((method_title(r.method), dataset_title(r.dataset)) for r in known if r.tuned)


def tuned_note(tuned: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what the mark means, with the methods and their data sets, where there are any."""
    sets: dict[str, dict[str, None]] = {}
    for method, dataset in tuned:
        sets.setdefault(method, {})[dataset] = None
    if sets:
        where = "; ".join(f"{method} on {', '.join(names)}" for method, names in sets.items())
        yield f"{TUNED_MARK} {TUNED}: {where}."


def paper_table(group: TableGroup, metric_name: str = "top1") -> Table:
    """Return a table as the paper has it, with counts of images, intervals and gains beneath.

    The best value of a column is bold and the second underlined, by what is printed; where methods answered different
    images they are not compared.

    Args:
        group: the results.
        metric_name: one of `METRICS`.
    """
    metric, columns = METRICS[metric_name], columns_of(group)
    values = [column.values(group, metric) for column in columns]
    cells = [_cells(group, column, row, metric) for column, row in zip(columns, values, strict=True)]
    names = [Cell(marked_title(_held(group, name), name)) for name in group.methods]
    return Table(
        title=f"{metric.title[0].upper()}{metric.title[1:]} of {group.title}",
        columns=("Method", *(column.heading for column in columns)),
        rows=tuple(zip(names, *cells, strict=True)),
        foot=_foot(group, columns, values, metric),
        footnotes=(
            *_explanations(group, columns, metric),
            *coverage(group),
            *_unreadable(group, metric),
            *_gains(group, metric),
            *memory_notes(_held(group)),
        ),
        rules=frozenset(_rules(group.methods)),
        bars=frozenset({0, len(group.results)}),
    )


def _held(group: TableGroup, *methods: str) -> list[Result]:
    """Return a group's results, of all methods or of some."""
    return [r for held in group.results.values() for name, r in held.items() if name in (methods or held)]


def _rules(methods: Sequence[str]) -> Iterator[int]:
    """Yield where the paper draws lines: after zero-shot, and before FCL."""
    kinds = [name if name == "zero_shot" else "ours" if name.startswith("fcl") else "others" for name in methods]
    yield from (row for row in range(len(kinds) - 1) if kinds[row] != kinds[row + 1])


def _cells(group: TableGroup, column: Column, values: Sequence[Interval | None], metric: Metric) -> list[Cell]:
    """Return a column's cells; of those that are printed alike all are the best, or all the second."""
    texts = [MISSING if value is None else metric.format(value.value, column.gained) for value in values]
    known = [text for text in texts if text != MISSING]
    ranks: dict[str, Rank] = {}
    if len(known) > 1 and not column.gained and column.comparable(group):
        best = sorted({*known}, key=float, reverse=metric.higher)
        ranks = dict(zip(best, ("best", "second"), strict=False))
    return [Cell(text, ranks.get(text, "")) for text in texts]


def _foot(
    group: TableGroup, columns: Sequence[Column], values: Sequence[Sequence[Interval | None]], metric: Metric
) -> tuple[tuple[Cell, ...], ...]:
    """Return the number of images of each column, and the largest half-width of its intervals."""
    sizes, widths = [], []
    for column, intervals in zip(columns, values, strict=True):
        rows = [column.results(group, method) for method in group.methods]
        counts = {sum(result.n for result in results) for results in rows if results} or {0}
        sizes.append(Cell(" to ".join(f"{n:,}" for n in dict.fromkeys((min(counts), max(counts))))))
        halves = [max(v.value - v.low, v.high - v.value) for v in intervals if v is not None and not isnan(v.low)]
        widths.append(Cell(f"±{metric.format(max(halves))}" if halves else MISSING))
    foot = ((Cell("n"), *sizes), (Cell("±95%"), *widths))
    return foot if metric.has_interval else foot[:1]


def long_table(group: TableGroup) -> Table:
    """Return a table with a row per data set and method: accuracies with intervals, and the comparison with zero-shot.

    Δ is paired by image, with a bootstrap interval; p is McNemar's exact test, by itself and by Holm's method over the
    data sets.
    """
    p_values = {method: adjusted_p_values(group, method) for method in group.methods}
    rows, ends = [], []
    for name, results in group.results.items():
        for method in (method for method in group.methods if method in results):
            facts = _facts(results[method], p_values[method].get(name))
            shown = marked_title([results[method]], method)
            rows.append((Cell(dataset_title(name)), Cell(shown), *map(Cell, facts)))
        ends.append(len(rows) - 1)
    headings = ("n", "Top-1 [95%]", "Top-5 [95%]", "Δ [95%]", "Gained/lost", "p", "p (Holm)", "ECE")
    footnote = (
        "Percent; accuracies with Wilson's interval. Δ is top-1 over zero-shot's on the same images, with a paired "
        "bootstrap interval; gained and lost are images; p is McNemar's exact test, then by Holm's method over the "
        "data sets; ECE has 20 bins."
    )
    return Table(
        title=group.title,
        columns=("Data set", "Method", *headings),
        rows=tuple(rows),
        footnotes=(footnote, *coverage(group), *_unreadable(group, TOP1), *memory_notes(_held(group))),
        text_columns=2,
        rules=frozenset(ends),
        bars=frozenset({1}),
    )


def _facts(result: Result, p_values: tuple[float, float] | None) -> list[str]:
    """Return the cells of a row of numbers."""
    top1, top5, error = (METRICS[name].show(METRICS[name].measure([result])) for name in ("top1", "top5", "ece"))
    return [f"{result.n:,}", top1, top5, *_tests(result.comparison, p_values, ""), error]


def _tests(comparison: Comparison | None, p_values: tuple[float, float] | None, missing: str) -> list[str]:
    """Return the cells of a comparison with zero-shot: the difference, gained and lost images, and p-values."""
    if comparison is None or p_values is None:
        return [missing] * 4
    counts = f"+{comparison.gained:,} -{comparison.lost:,}"
    return [TOP1.show(comparison.difference, sign=True), counts, *(f"{p:.2g}" for p in p_values)]


def adjusted_p_values(group: TableGroup, method: str) -> dict[str, tuple[float, float]]:
    """Return a method's p-values by data set: McNemar's exact test, and adjusted by Holm's method over the sets."""
    return _adjusted({name: r.comparison.p_value for name, r in group.row(method).items() if r.comparison is not None})


def _adjusted(p_values: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return p-values beside those that are adjusted by Holm's method."""
    adjusted = holm(list(p_values.values())) if p_values else ()
    return {name: (p, adjusted_p) for (name, p), adjusted_p in zip(p_values.items(), adjusted, strict=True)}


def pooled_comparison(comparisons: Iterable[Comparison | None]) -> Comparison | None:
    """Return comparisons on several data sets as one, each image weighing the same; None where there is none."""
    known = [one for one in comparisons if one is not None]
    return Comparison.pooled(known) if known else None


def pooled_bins(results: Sequence[Result]) -> Reliability | None:
    """Return the reliability of all predictions; None where there are none, or not their probabilities."""
    known = [r for r in results if not r.predictions_only and np.isfinite(r.confidence).all()]
    if not known:
        return None
    return reliability(np.concatenate([r.confidence for r in known]), np.concatenate([r.correct for r in known]))


def pooled_table(group: TableGroup) -> Table:
    """Return a table with a row per method: all images of all data sets, each weighing the same.

    p is McNemar's exact test, by itself and by Holm's method over the methods.
    """
    rows = {method: results for method in group.methods if (results := list(group.row(method).values()))}
    comparisons = {method: pooled_comparison(r.comparison for r in results) for method, results in rows.items()}
    p_values = _adjusted({method: one.p_value for method, one in comparisons.items() if one is not None})
    cells = []
    for method, results in rows.items():
        tests = _tests(comparisons[method], p_values.get(method), MISSING)
        top1 = _accuracy(sum(int(r.correct.sum()) for r in results), n := sum(r.n for r in results))
        bins = pooled_bins(results)
        error = MISSING if bins is None else METRICS["ece"].format(bins.expected_calibration_error)
        mean = TOP1.show(TOP1.gain(results), sign=True)
        row = [marked_title(results, method), f"{len(results)}", f"{n:,}", top1, *tests, mean, error]
        cells.append(tuple(map(Cell, row)))
    return Table(
        title="All data sets together",
        columns=(
            *("Method", "Sets", "n", "Top-1 [95%]", "Δ [95%]", "Gained/lost", "p", "p (Holm)"),
            *("Mean Δ of sets [95%]", "ECE"),
        ),
        rows=tuple(cells),
        footnotes=(
            "Percent. Every image weighs the same, but in the mean over data sets, where each set does. Top-1 has "
            "Wilson's interval. Δ is over zero-shot on the same images, with a paired bootstrap interval; gained and "
            "lost are images; p is McNemar's exact test, then by Holm's method over the methods. ECE has 20 bins.",
            *_apart(list(rows.values())),
            *memory_notes(result for results in rows.values() for result in results),
        ),
    )


def _apart(rows: Sequence[Sequence[Result]]) -> Iterator[str]:
    """Yield that methods answered different images, where they did."""
    images = [[(result.dataset, result.positions.tolist()) for result in row] for row in rows]
    if any(other != images[0] for other in images):
        yield "Methods answered different images: compare them by Δ, which is on each one's own images."


def _explanations(group: TableGroup, columns: Sequence[Column], metric: Metric) -> Iterator[str]:
    """Yield what the columns are, and which of them compare nothing."""
    headings = [column.heading for column in columns]
    yield (
        f"{'More' if metric.higher else 'Less'} is better."
        + (f" {headings[len(group.results)]} is the mean over these data sets." if len(group.results) > 1 else "")
        + (" OOD Avg. is the mean over ImageNet-A, -K, -R and -V." if "OOD Avg." in headings else "")
        + " Δ is over zero-shot on the same images. "
        + (
            "±95% is the largest half-width of a column's 95% intervals."
            if metric.has_interval
            else "No intervals: resampled, the error is larger than on the images themselves."
        )
    )
    apart = [column.heading for column in columns if not column.gained and not column.comparable(group)]
    if apart:
        yield f"Not ranked, as methods answered different images: {', '.join(apart)}."


def coverage(group: TableGroup) -> Iterator[str]:
    """Yield, for each data set that was not measured in full, how much of it was; or that the split is another."""
    for name, results in group.results.items():
        by_run = {id(result.run): result for result in results.values()}
        for result in by_run.values():
            if parts := ", ".join(shortfalls(result)):
                where = f" ({result.run.folder})" if len(by_run) > 1 else ""
                yield f"{dataset_title(name)}{where}: {parts}."


def shortfalls(result: Result) -> Iterator[str]:
    """Yield in what a result is not of a whole data set of the test split."""
    config, seen = result.config, result.seen
    listed, images = config["dataset"]["listed"], config["dataset"]["images"]
    if seen < listed:
        share = 100 * seen / listed
        yield f"{f'{share:.0f}' if share >= 1 else f'{share:.2g}'}% of {listed:,} images"
    if images < listed:
        yield f"{images:,} of them are there"
    if result.unlabelled:
        yield f"{result.unlabelled:,} without a label, which count in no accuracy"
    if config["limit"] is not None and config["limit"] < images:
        yield f"limit {config['limit']:,}"
    if config["shard"] is not None:
        yield f"shard {config['shard'][0]} of {config['shard'][1]}"
    if not result.run.complete:
        yield f"not complete ({seen:,} of {result.expected:,} so far)"
    if config["dataset"]["split"] not in ("test", "all"):
        yield f"split {config['dataset']['split']}"


def _unreadable(group: TableGroup, metric: Metric) -> Iterator[str]:
    """Yield, for each data set, how many files were unreadable and the accuracies with them counted as wrong."""
    for name, results in group.results.items():
        some = [results[method] for method in group.methods if method in results and results[method].unreadable]
        for unreadable, whole in sorted({(result.unreadable, result.unreadable + result.n) for result in some}):
            line = f"{dataset_title(name)}: {unreadable:,} of {whole:,} files unreadable and left out"
            if metric.counts and metric.score is not None:
                same = [r for r in some if (r.unreadable, r.unreadable + r.n) == (unreadable, whole)]
                correct = {r.method: int(metric.score(r).sum()) if r.n else 0 for r in same}
                worse = (f"{method_title(method)} {_accuracy(count, whole)}" for method, count in correct.items())
                line += f"; counted as wrong: {', '.join(worse)}"
            yield f"{line}."


def _accuracy(correct: int, n: int) -> str:
    """Return a share of images in percent, with Wilson's interval."""
    accuracy = Accuracy(correct, n)
    return TOP1.show(Interval(accuracy.value, *accuracy.interval))


def _gains(group: TableGroup, metric: Metric) -> Iterator[str]:
    """Yield, for each method, its mean gain over zero-shot with the interval."""
    for method in group.methods:
        row = group.row(method)
        if (value := metric.gain(list(row.values()))) is not None:
            part = f" over {len(row)} of {len(group.results)} data sets" if len(row) < len(group.results) else ""
            images = f"{sum(result.n for result in row.values()):,} images"
            how = f"paired on {images}, 95% interval" if metric.has_interval else images
            yield f"Δ {method_title(method)}: {metric.show(value, sign=True)}{part} ({how})."
