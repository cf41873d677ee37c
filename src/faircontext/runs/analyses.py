"""Rows of analyses in runs on disk, and what the analyses have found; reading needs no model."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, get_args

import numpy as np
import pyarrow.compute as pc

from faircontext.datasets.collages import cells_of
from faircontext.errors import ArgumentError, counted
from faircontext.metrics.bootstrap import CorrelationKind, PooledMean, bootstrap_mean, clustered_correlation, pool
from faircontext.metrics.scores import reconstruction_bound
from faircontext.metrics.stats import Interval
from faircontext.runs.records import AnalysisRow
from faircontext.runs.store import Run
from faircontext.types import read_diagnostics

T = TypeVar("T")


def analysis_rows(run: Run, label: str) -> Iterator[AnalysisRow]:
    """Yield the rows of an analysis in one run, those of readable files.

    Args:
        run: where they are.
        label: what the analysis is called there.

    Raises:
        ArgumentError: a row's diagnostics cannot be read.
    """
    rows = run.rows.filter(pc.and_(pc.equal(run.rows["method"], label), pc.equal(run.rows["error"], "")))
    names = tuple(run.document["config"].get("names", ()))
    columns = ("dataset", "path", "label_index", "index", "candidates", "diagnostics")
    for row in rows.select(columns).to_pylist():
        label_index, index = (-1 if row[name] is None else row[name] for name in ("label_index", "index"))
        try:
            diagnostics = read_diagnostics(row["diagnostics"])
        except (ValueError, AttributeError, RecursionError) as error:
            raise _unreadable(run, label, row["path"], error) from None
        yield AnalysisRow(row["dataset"], row["path"], label_index, index, tuple(row["candidates"]), names, diagnostics)


def read_analysis(runs: tuple[Run, ...], label: str, take: Callable[[AnalysisRow], T]) -> list[tuple[AnalysisRow, T]]:
    """Return the rows of an analysis in several runs, each image once, with what is taken from each.

    Args:
        runs: of one model, some of which may have the analysis.
        label: see `list_analyses`.
        take: reads a row's diagnostics; rows without any are left out, as of a set of one class.

    Raises:
        ArgumentError: a row lacks what is taken, or two runs of a data set have other settings.
    """
    taken: dict[tuple[str, str], tuple[AnalysisRow, T]] = {}
    first: dict[str, Run] = {}
    for run in (run for run in runs if label in run.document["config"]["methods"]):
        dataset = str(run.document["config"]["dataset"]["name"])
        other = first.setdefault(dataset, run)
        hashes = [one.document["hashes"][label] for one in (other, run)]
        if hashes[0] != hashes[1]:
            raise ArgumentError(
                f"{other.folder} and {run.folder}: both are {label} on {dataset}, with other settings; name one, or "
                f"call a variant {label}-SUFFIX"
            )
        for row in (row for row in analysis_rows(run, label) if row.diagnostics):
            try:
                taken.setdefault((row.dataset, row.path), (row, take(row)))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise _unreadable(run, label, row.path, error) from None
    return list(taken.values())


def _unreadable(run: Run, label: str, path: str, error: Exception) -> ArgumentError:
    return ArgumentError(f"{run.folder}: the row {label} of {path} cannot be read ({error!r}); make the run again")


def view_correlation(rows: Sequence[AnalysisRow]) -> dict[CorrelationKind, Interval]:
    """Return the correlations of entropy and EUEC over views, those that are defined; see `clustered_correlation`.

    Args:
        rows: of the analysis `entropy`.
    """
    pairs = [
        np.array([row.diagnostics[name] for name in ("entropy", "euec")]) for row in rows if "euec" in row.diagnostics
    ]
    images = [pair[:, np.isfinite(pair).all(0)] for pair in pairs]
    if not sum(image.shape[1] for image in images):
        return {}
    views = np.concatenate(images, axis=1)
    clusters = np.repeat(np.arange(len(images)), [image.shape[1] for image in images])
    kinds: tuple[CorrelationKind, ...] = get_args(CorrelationKind)
    values = {kind: clustered_correlation(views[0], views[1], clusters, kind) for kind in kinds}
    return {kind: value for kind, value in values.items() if value is not None}


def describe_analysis(rows: Sequence[AnalysisRow], label: str) -> list[str]:
    """Return the lines of one analysis: means with intervals, for all, correct and incorrect zero-shot predictions.

    Args:
        rows: its rows, of one data set or several; of five or more, a mean has an interval over sets like these too.
        label: what it is called.
    """
    lines = [f"{label}: {counted(len(rows), 'image')}, {sum(row.correct for row in rows)} of them right"]
    names = dict.fromkeys(name for row in rows for name, value in row.diagnostics.items() if isinstance(value, float))
    means = {}
    for name in names:
        parts = []
        for title, chosen in (("all", (True, False)), ("right", (True,)), ("wrong", (False,))):
            those = (row for row in rows if row.correct in chosen and name in row.diagnostics)
            if mean := _mean((row.dataset, row.diagnostics[name]) for row in those):
                means[name, title] = mean.value
                parts.append(f"{title} {_show(mean)})")
        lines.append(f"  {name}: {'; '.join(parts) or 'no finite value'}")
    lines += _convergence(rows) + _localisation(rows)
    if ("cos_composed", "all") in means:
        cosines = [means[name, "all"] for name in ("cos_common", "cos_unique_1", "cos_unique_2")]
        lines.append(
            f"  cos_composed: at most {reconstruction_bound(*cosines):.4f} with these three means; the paper reports "
            f"0.8705, where its three means allow at most {reconstruction_bound(0.7283, 0.6390, 0.6516):.4f}"
        )
    views = sum(len(row.diagnostics.get("euec", ())) for row in rows)
    for kind, value in view_correlation(rows).items():
        known = not math.isnan(value.low)
        interval = f"({value.low:+.3f} to {value.high:+.3f})" if known else "(no interval: too few images)"
        lines.append(f"  entropy and EUEC over {counted(views, 'view')}: {kind} {value.value:+.3f} {interval}")
    return lines


def _mean(values: Iterable[tuple[str, float]]) -> PooledMean | None:
    """Return the mean of values, each beside its data set; None without a finite one: half precision may have none."""
    sets: dict[str, list[float]] = {}
    for name, value in values:
        if math.isfinite(value):
            sets.setdefault(name, []).append(value)
    if not sets:
        return None
    return pool([np.array(own) for own in sets.values()], images=bootstrap_mean(np.concatenate([*sets.values()])))


def _show(mean: PooledMean) -> str:
    """Return a mean with its intervals and number of images, without the closing bracket."""
    sets = "" if mean.sets is None else f"; over sets like these {mean.sets.low:.4f} to {mean.sets.high:.4f}"
    return f"{mean.value:.4f} ({mean.images.low:.4f} to {mean.images.high:.4f}{sets}, n = {mean.n}"


def _convergence(rows: Sequence[AnalysisRow]) -> list[str]:
    """Return a line for each number of masks at which maps were compared with those of all masks."""
    correlations: dict[float, list[tuple[str, float]]] = {}
    for row in rows:
        compared = zip(row.diagnostics.get("masks", ()), row.diagnostics.get("convergence", ()), strict=True)
        for masks, value in list(compared)[:-1]:  # the last compares all masks with themselves
            correlations.setdefault(masks, []).append((row.dataset, value))
    means = {masks: _mean(values) for masks, values in sorted(correlations.items())}
    return [
        f"  convergence with {counted(round(masks), 'mask')}: {_show(mean)})" for masks, mean in means.items() if mean
    ]


def pointed(row: AnalysisRow) -> tuple[int, dict[str, float]] | None:
    """Compare what the analysis `pointing` found with where the classes are, which a collage's file name says.

    Args:
        row: of the analysis `pointing`.

    Returns:
        How many cells show a candidate, and so have a map; and the means over these of `auc`, `pointing` and `energy`,
        each in the class's own cell. None where the file's name is not that of a collage with as many cells as were
        measured, or no class that it shows is a candidate.
    """
    cells, n = cells_of(row.path), int(row.diagnostics.get("side", 0)) ** 2
    if cells is None or cells.size != n:
        return None
    shown = [(cell, label) for cell, label in enumerate(cells.ravel().tolist()) if label in row.candidates]
    own = [row.candidates.index(label) * n + cell for cell, label in shown]
    names = ("auc", "pointing", "energy")
    means = {name: float(np.mean([row.diagnostics[name][index] for index in own])) for name in names if own}
    return (len(own), means) if own else None


def _localisation(rows: Sequence[AnalysisRow]) -> list[str]:
    """Return lines on how well maps point at the cells of collages; intervals draw collages again, not cells."""
    measured = [row for row in rows if "side" in row.diagnostics]
    known = [
        (int(row.diagnostics["side"]), *truth, row.dataset) for row in measured if (truth := pointed(row)) is not None
    ]
    lines = []
    if len(known) < len(measured):
        side = measured[0].diagnostics["side"]
        lines.append(
            f"  {len(measured) - len(known)} of {counted(len(measured), 'image')} left out: not named as "
            f"collages of {side} x {side} cells are (--set side=3 for 3 x 3; faircontext data collage makes them)"
        )
    if not known:
        return lines
    cells, all_cells = sum(n for _, n, *_ in known), sum(side**2 for side, *_ in known)
    by_cell = float(np.mean([side**-2.0 for side, *_ in known]))
    for name, chance in (("auc", 0.5), ("pointing", by_cell), ("energy", by_cell)):
        if mean := _mean([(dataset, means[name]) for *_, means, dataset in known]):
            shown = f"{_show(mean)} collages, {counted(cells, 'cell')}; by chance {chance:.4f})"
            lines.append(f"  {name} in the class's own cell: {shown}")
    if cells < all_cells:
        lines.append(f"  {counted(all_cells - cells, 'cell')} left out, of classes that are no candidates; raise k")
    return lines
