"""The paper's tables from runs, with what the paper leaves out: numbers of images, intervals, refused files.

Sources: tables `tab:tta_imagenet_vitb16`, `tab:tta_vitb16_fg`, `tab:tta_imagenet_rn50` and `tab:delta_clip_merged`.
"""

from collections.abc import Iterator, Sequence
from math import isnan

from faircontext.metrics.stats import Interval, discordant, holm, mcnemar_exact
from faircontext.report.columns import MISSING, Column, columns_of, show
from faircontext.report.groups import Group, method_title, set_title
from faircontext.report.measures import METRICS, Metric, gain, measure
from faircontext.report.notes import coverage, explanations, gains, refused
from faircontext.report.results import Result
from faircontext.report.sheets import Cell, Rank, Sheet

__all__ = ["adjusted", "changes", "long_table", "paper_table"]


def paper_table(group: Group, metric_name: str = "top1") -> Sheet:
    """Return a table as the paper has it, with numbers of images, intervals and gains beneath.

    The best value of a column is bold and the second underlined, by what is printed; where methods answered different
    images they are not compared.

    Args:
        group: the results.
        metric_name: one of `METRICS`.
    """
    metric, columns = METRICS[metric_name], columns_of(group)
    values = [column.values(group, metric) for column in columns]
    cells = [_cells(group, column, found, metric) for column, found in zip(columns, values, strict=True)]
    names = [Cell(method_title(name)) for name in group.methods]
    return Sheet(
        title=f"{metric.title[0].upper()}{metric.title[1:]} of {group.title}",
        columns=("Method", *(column.heading for column in columns)),
        rows=tuple(zip(names, *cells, strict=True)),
        foot=_foot(group, columns, values, metric),
        notes=(
            *explanations(group, columns, metric),
            *coverage(group),
            *refused(group, metric),
            *gains(group, metric),
        ),
        rules=frozenset(_rules(group.methods)),
        bars=frozenset({0, len(group.results)}),
    )


def _rules(methods: Sequence[str]) -> Iterator[int]:
    """Yield where the paper draws lines: after zero-shot, and before FCL."""
    kinds = [name if name == "zero_shot" else "ours" if name.startswith("fcl") else "others" for name in methods]
    yield from (place for place in range(len(kinds) - 1) if kinds[place] != kinds[place + 1])


def _cells(group: Group, column: Column, values: Sequence[Interval | None], metric: Metric) -> list[Cell]:
    """Return a column's cells; of those that are printed alike all are the best, or all the second."""
    texts = [MISSING if value is None else metric.show(value.value, column.gained) for value in values]
    numbers = [float(text) for text in texts if text != MISSING]
    best: list[float] = []
    if len(numbers) > 1 and not column.gained and column.comparable(group):
        best = sorted(set(numbers), reverse=metric.higher)[:2]
    ranks: dict[float, Rank] = dict(zip(best, ("best", "second"), strict=False))
    return [Cell(text, "" if text == MISSING else ranks.get(float(text), "")) for text in texts]


def _foot(
    group: Group, columns: Sequence[Column], values: Sequence[Sequence[Interval | None]], metric: Metric
) -> tuple[tuple[Cell, ...], ...]:
    """Return the number of images of each column, and the largest half-width of its intervals."""
    sizes, widths = [], []
    for column, found in zip(columns, values, strict=True):
        rows = [column.results(group, method) for method in group.methods]
        numbers = sorted({sum(result.number for result in results) for results in rows if results}) or [0]
        sizes.append(Cell(" to ".join(f"{number:,}" for number in dict.fromkeys([*numbers[:1], *numbers[-1:]]))))
        halves = [max(v.value - v.low, v.high - v.value) for v in found if v is not None and not isnan(v.low)]
        widths.append(Cell(f"±{metric.show(max(halves))}" if halves else MISSING))
    rows_of_foot = ((Cell("n"), *sizes), (Cell("±95%"), *widths))
    return rows_of_foot if metric.score else rows_of_foot[:1]


def long_table(group: Group) -> Sheet:
    """Return a table with a row per data set and method: accuracies with intervals, and the comparison with zero-shot.

    Δ is paired by image, with a bootstrap interval; p is McNemar's exact test, by itself and by Holm's method over the
    data sets.
    """
    p_values = {method: adjusted(group, method) for method in group.methods}
    rows, ends = [], []
    for name, results in group.results.items():
        for method in (method for method in group.methods if method in results):
            facts = _facts(results[method], p_values[method].get(name))
            rows.append((Cell(set_title(name)), Cell(method_title(method)), *map(Cell, facts)))
        ends.append(len(rows) - 1)
    headings = ("n", "Top-1 [95%]", "Top-5 [95%]", "Δ [95%]", "Gained/lost", "p", "p (Holm)", "ECE")
    note = (
        "Percent; accuracies with Wilson's interval. Δ is top-1 over zero-shot's on the same images, with a paired "
        "bootstrap interval; gained and lost are images; p is McNemar's exact test, then by Holm's method over the "
        "data sets; ECE has 20 bins."
    )
    return Sheet(
        title=group.title,
        columns=("Data set", "Method", *headings),
        rows=tuple(rows),
        notes=(note, *coverage(group), *refused(group, METRICS["top1"])),
        words=2,
        rules=frozenset(ends),
        bars=frozenset({1}),
    )


def _facts(result: Result, p_values: tuple[float, float] | None) -> list[str]:
    """Return the cells of a row of numbers."""
    metric, found = METRICS["top1"], changes(result)
    return [
        f"{result.number:,}",
        show(measure(result, metric), metric),
        show(measure(result, METRICS["top5"]), METRICS["top5"]),
        show(gain([result], metric), metric, sign=True) if found else "",
        f"+{found[0]:,} -{found[1]:,}" if found else "",
        *([f"{p:.2g}" for p in p_values] if p_values else ["", ""]),
        show(measure(result, METRICS["ece"]), METRICS["ece"]),
    ]


def changes(result: Result) -> tuple[int, int] | None:
    """Return how many images a method has right that zero-shot has wrong, and the other way round."""
    if result.zero_shot is None:
        return None
    return discordant(result.correct, result.zero_shot.correct)


def adjusted(group: Group, method: str) -> dict[str, tuple[float, float]]:
    """Return the p-values of a method's changes by data set: McNemar's exact test, and by Holm's method over them."""
    counts = {name: found for name, result in group.row(method).items() if (found := changes(result)) is not None}
    raw = [mcnemar_exact(*found) for found in counts.values()]
    return dict(zip(counts, zip(raw, holm(raw), strict=True), strict=True)) if raw else {}
