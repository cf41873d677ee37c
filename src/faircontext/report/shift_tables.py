"""Tables of robustness: runs that differ in what was done to their images, side by side.

Everything is on images that a method answered under all the shifts of a row, paired image by image.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan, nan
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import bootstrap_mean, nan_if_constant
from faircontext.metrics.corruption import Outcomes, mean_corruption_error
from faircontext.metrics.stats import Accuracy, Interval
from faircontext.report.paper import TableGroup, dataset_title, settings_record
from faircontext.report.render import Cell, Table
from faircontext.report.table_metrics import MISSING, TOP1
from faircontext.report.tables import coverage, marked_title, memory_notes, pooled_table
from faircontext.runs.results import Result
from faircontext.shifts import KINDS

__all__ = ["ShiftedRuns", "shift_records", "shift_tables", "shifted_runs"]

_ALL = "all sets"
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
    positions = results[0].positions
    for result in results[1:]:
        positions = np.intersect1d(positions, result.positions)
    orders: list[Int[np.ndarray, " images"]] = []
    for result in results:
        order = np.argsort(result.positions, kind="stable")
        orders.append(order[np.searchsorted(result.positions, positions, sorter=order)])
    labels = [result.labels[order] for result, order in zip(results, orders, strict=True)]
    same = len(positions) > 0 and all(np.array_equal(labels[0], other) for other in labels)
    return [result.correct[order] for result, order in zip(results, orders, strict=True)] if same else []


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
        ArgumentError: no run's images were corrupted or attacked.
    """
    tables = list[Table]()
    for runs in shifted_runs(groups):
        if [*runs.groups] == [""]:
            continue
        tables.append(_accuracies(runs))
        if runs.corruptions:
            tables.append(_corruption_table(runs))
        for shift, group in runs.groups.items():
            tables.append(
                replace(pooled_table(group), title=f"All data sets together, {shift or 'images as they are'}")
            )
    if not tables:
        raise ArgumentError("no run has corrupted or attacked images; make some with evaluate --corrupt or --attack")
    return tables


def _accuracies(runs: ShiftedRuns) -> Table:
    """Return a table with a row per data set and method, and a column per shift."""
    rows, ends = list[tuple[Cell, ...]](), list[int]()
    for title, datasets in _scopes(runs):
        for method in runs.methods:
            counts = {shift: _count(runs, shift, datasets, method) for shift in runs.groups}
            known = [count for count in counts.values() if count is not None]
            if not known:
                continue
            sizes = sorted({accuracy.n for accuracy in known})
            n = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
            shown = [MISSING if count is None else _show(count) for count in counts.values()]
            rows.append(tuple(map(Cell, (title, marked_title(runs.results(method, datasets), method), n, *shown))))
        ends.append(len(rows) - 1)
    return Table(
        title=f"Top-1 accuracy by shift of {replace(runs.first, settings=_plain(runs)).title}",
        columns=("Data set", "Method", "n", *(shift or "none" for shift in runs.groups)),
        rows=tuple(rows),
        footnotes=(
            "Percent, with Wilson's 95% interval. A corruption is followed by its severity, 1 to 5; pgd by the largest "
            "change of a pixel's value, in 1/255.",
            *coverage(runs.first),
            *memory_notes(result for method in runs.methods for result in runs.results(method, runs.datasets)),
        ),
        text_columns=2,
        rules=frozenset(ends),
        bars=frozenset({1}),
    )


def _plain(runs: ShiftedRuns) -> Any:
    return runs.first.settings._replace(shift="")


def _scopes(runs: ShiftedRuns) -> Iterator[tuple[str, list[str]]]:
    """Yield each data set, then all together where there are several."""
    yield from ((dataset_title(name), [name]) for name in runs.datasets)
    if len(runs.datasets) > 1:
        yield _ALL, runs.datasets


def _count(runs: ShiftedRuns, shift: str, datasets: Sequence[str], method: str) -> Accuracy | None:
    results = [runs.result(shift, name, method) for name in datasets]
    known = [result for result in results if result is not None]
    if len(known) < len(datasets):
        return None
    return Accuracy(sum(int(result.correct.sum()) for result in known), sum(result.n for result in known))


def _show(accuracy: Accuracy) -> str:
    return TOP1.show(Interval(accuracy.value, *accuracy.interval))


@dataclass(frozen=True)
class _Mean:
    """A method over all corruptions of some data sets; differences and mCE are against zero-shot."""

    n: int
    accuracy: Interval
    difference: Interval | None
    error: Interval | None


def _mean(runs: ShiftedRuns, datasets: Sequence[str], method: str) -> _Mean | None:
    own = runs.pooled(runs.corruptions, datasets, method)
    if not own:
        return None
    correct = np.mean([*own.values()], axis=0)
    other = runs.pooled(runs.corruptions, datasets, "zero_shot")
    difference = error = None
    if other and len(next(iter(other.values()))) == len(correct):
        if method != "zero_shot":
            difference = nan_if_constant(bootstrap_mean(correct - np.mean([*other.values()], axis=0)))
        error = mean_corruption_error(_outcomes(own), _outcomes(other))
    return _Mean(len(correct), bootstrap_mean(correct), difference, error)


def _outcomes(answers: Mapping[str, Answers]) -> Outcomes:
    outcomes: dict[str, dict[int, Answers]] = {}
    for shift, correct in answers.items():
        name, _, severity = shift.partition(":")
        outcomes.setdefault(name, {})[int(severity)] = correct
    return outcomes


def _corruption_table(runs: ShiftedRuns) -> Table:
    """Return a table with a row per data set and method: the mean over all corruptions in all severities."""
    n = len(runs.corruptions)
    rows, ends = list[tuple[Cell, ...]](), list[int]()
    for title, datasets in _scopes(runs):
        for method in runs.methods:
            if (mean := _mean(runs, datasets, method)) is not None:
                shown = (TOP1.show(mean.accuracy), TOP1.show(mean.difference, sign=True), TOP1.show(mean.error))
                name = marked_title(runs.results(method, datasets), method)
                rows.append(tuple(map(Cell, (title, name, f"{mean.n:,}", *shown))))
        ends.append(len(rows) - 1)
    return Table(
        title=f"Mean over {n} corruption{'s' * (n != 1)}",
        columns=("Data set", "Method", "n", "Top-1 [95%]", "Δ [95%]", "mCE [95%]"),
        rows=tuple(rows),
        footnotes=(
            "Percent, with 95% bootstrap intervals over images: an image is drawn with all its corruptions, which are "
            f"{', '.join(runs.corruptions)}. Δ is over zero-shot on the same images. mCE is the mean corruption error "
            "of Hendrycks & Dietterich. Its reference is zero-shot of the same runs, whose own is 100 by definition, "
            "not AlexNet; less is better.",
        ),
        text_columns=2,
        rules=frozenset(ends),
        bars=frozenset({1}),
    )


def shift_records(groups: Sequence[TableGroup]) -> list[dict[str, Any]]:
    """Return a record per data set and method: the mean over all corruptions, as proportions.

    Raises:
        ArgumentError: no run's images were corrupted.
    """
    records = []
    for runs in (runs for runs in shifted_runs(groups) if runs.corruptions):
        for title, datasets in _scopes(runs):
            name = datasets[0] if len(datasets) == 1 else title
            for method in runs.methods:
                if (mean := _mean(runs, datasets, method)) is not None:
                    settings = settings_record(runs.first.settings, [group.settings for group in groups]) | {
                        "shift": " ".join(runs.corruptions)
                    }
                    record = {**settings, "dataset": name, "method": method, "n": mean.n}
                    parts = {"top1": mean.accuracy, "delta": mean.difference, "mce": mean.error}
                    for part, interval in parts.items():
                        values = (nan,) * 3 if interval is None else vars(interval).values()
                        ends = ("" if isnan(value) else value for value in values)
                        record |= dict(zip((part, f"{part}_low", f"{part}_high"), ends, strict=True))
                    records.append(record)
    if not records:
        raise ArgumentError("no run has corrupted images; make some with evaluate --corrupt")
    return records
