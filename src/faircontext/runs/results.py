"""What a run on disk has measured: results of methods as arrays over images, rows of analyses, what analyses found.

Reading needs NumPy and Arrow, no model. Classes are known by index, never by name: ImageNet has two classes called
"missile".
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from faircontext.datasets.collages import cells_of
from faircontext.errors import ArgumentError
from faircontext.metrics.scores import Comparison, reconstruction_bound
from faircontext.metrics.stats import CorrelationKind, Interval, bootstrap_mean, clustered_correlation
from faircontext.runs.records import AnalysisRow, is_analysis, to_numpy
from faircontext.runs.store import Run
from faircontext.types import read_diagnostics

__all__ = [
    "Result",
    "analysis_rows",
    "describe_analysis",
    "has_analyses",
    "pointed",
    "read_analysis",
    "read_results",
    "view_correlation",
]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Result:
    """A method's predictions on the images of one run, unreadable files left out.

    Attributes:
        run: where it comes from.
        method: what the method is called there.
        positions: of the images in the data set.
        labels: true classes.
        correct: whether the prediction is correct.
        in_top5: whether the true class is among the five best.
        confidence: probability of the prediction.
        label_probability: probability of the true class.
        probability_norm: sum of the squared probabilities.
        seconds: that the method took.
        fallbacks: how many predictions were made with less than the method's full procedure.
        unreadable: how many files have no prediction.
        zero_shot: zero-shot's result on the same images, None for zero-shot itself.
        predictions_only: whether only `correct` is known, not the five best nor probabilities.
    """

    run: Run = field(repr=False)
    method: str
    positions: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    correct: Bool[np.ndarray, " images"]
    in_top5: Bool[np.ndarray, " images"]
    confidence: Float[np.ndarray, " images"]
    label_probability: Float[np.ndarray, " images"]
    probability_norm: Float[np.ndarray, " images"]
    seconds: Float[np.ndarray, " images"]
    fallbacks: int = 0
    unreadable: int = 0
    zero_shot: "Result | None" = None
    predictions_only: bool = False

    @property
    def n(self) -> int:
        """How many images have a prediction."""
        return len(self.correct)

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return str(self.config["dataset"]["name"])

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's configuration."""
        config: Mapping[str, Any] = self.run.document["config"]
        return config

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of the method."""
        settings: Mapping[str, Any] = self.config["methods"][self.method]
        return settings

    @property
    def hash(self) -> str:
        """Hash of all that the predictions depend on besides the images."""
        return str(self.run.document["hashes"][self.method])

    @property
    def expected(self) -> int:
        """How many images the run is to answer."""
        config = self.config
        whole = min(config["dataset"]["images"], config["limit"] or config["dataset"]["images"])
        if config["shard"] is None:
            return int(whole)
        part, parts = config["shard"]
        return len(range(part, whole, parts))

    @cached_property
    def comparison(self) -> Comparison | None:
        """The method against zero-shot on the same images; None for zero-shot itself, or without an image."""
        return None if self.zero_shot is None or not self.n else Comparison.of(self.correct, self.zero_shot.correct)

    def same_images(self, other: "Result") -> bool:
        """Return whether two results are of the same images, so that they can be compared."""
        same_set = self.config["dataset"].get("hash") == other.config["dataset"].get("hash")
        return same_set and np.array_equal(self.positions, other.positions)


def has_analyses(run: Run) -> bool:
    """Return whether a run has analysed images, in place of answering them."""
    return any(map(is_analysis, run.document["config"]["methods"]))


def read_results(run: Run) -> list[Result]:
    """Return the results of a run's methods, in their order; analyses have none."""
    labels = list(run.document["config"]["methods"])
    methods = [label for label in labels if not is_analysis(label)]
    if methods == ["zero_shot"] and len(labels) > 1:
        return []  # zero-shot beside an analysis, often of a few images: it would be another run of the same set
    table = run.rows.select(_COLUMNS)
    results: dict[str, Result] = {}
    for method in sorted(methods, key=lambda method: method != "zero_shot"):
        rows = table.filter(pc.equal(table["method"], method))
        if len(rows) or not len(table):
            results[method] = _result(run, method, rows, results.get("zero_shot"))
    return [results[method] for method in methods if method in results]


_NUMBERS = ("confidence", "label_probability", "probability_norm", "seconds")

_COLUMNS = ["method", "error", "position", "label_index", "index", "zero_shot_index", "top5", "fallback", *_NUMBERS]
"""What a result is made from."""


def _result(run: Run, method: str, rows: pa.Table, zero_shot: Result | None) -> Result:
    answered = rows.filter(pc.equal(rows["error"], ""))
    labels, index = to_numpy(answered["label_index"]), to_numpy(answered["index"])
    shared: dict[str, Any] = {"run": run, "positions": to_numpy(answered["position"]), "labels": labels}
    if method != "zero_shot" and zero_shot is None:  # its predictions are on every row, its probabilities are not
        correct = to_numpy(answered["zero_shot_index"]) == labels
        known: dict[str, Any] = shared | dict.fromkeys(_NUMBERS, np.full(len(labels), np.nan))
        zero_shot = Result(**known, method="zero_shot", correct=correct, in_top5=correct, predictions_only=True)
    shared |= {name: to_numpy(answered[name], np.nan) for name in _NUMBERS}
    return Result(
        **shared,
        method=method,
        correct=index == labels,
        in_top5=_in_lists(answered["top5"], labels),
        fallbacks=pc.sum(pc.not_equal(answered["fallback"], "")).as_py() or 0,
        unreadable=len(rows) - len(answered),
        zero_shot=None if method == "zero_shot" else zero_shot,
    )


def _in_lists(lists: pa.ChunkedArray, values: Int[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
    """Return, for each list and value, whether the value is in the list."""
    parents = to_numpy(pc.list_parent_indices(lists))
    hits = parents[to_numpy(pc.list_flatten(lists)) == values[parents]]
    return np.bincount(hits, minlength=len(values)) > 0


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
        rows: its rows.
        label: what it is called.
    """
    lines = [f"{label}: {len(rows)} images, {sum(row.correct for row in rows)} of them right"]
    names = dict.fromkeys(name for row in rows for name, value in row.diagnostics.items() if isinstance(value, float))
    means = {}
    for name in names:
        parts = []
        for title, chosen in (("all", (True, False)), ("right", (True,)), ("wrong", (False,))):
            values = [row.diagnostics[name] for row in rows if row.correct in chosen and name in row.diagnostics]
            values = [value for value in values if math.isfinite(value)]  # half precision may end in no number
            if values:
                mean = bootstrap_mean(np.array(values))
                means[name, title] = mean.value
                parts.append(f"{title} {_show(mean, len(values))})")
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
        lines.append(f"  entropy and EUEC over {views} views: {kind} {value.value:+.3f} {interval}")
    return lines


def _show(mean: Interval, n: int) -> str:
    """Return a mean of `n` values with its interval, without the closing bracket."""
    return f"{mean.value:.4f} ({mean.low:.4f} to {mean.high:.4f}, n = {n}"


def _convergence(rows: Sequence[AnalysisRow]) -> list[str]:
    """Return a line for each number of masks at which maps were compared with those of all masks."""
    correlations: dict[float, list[float]] = {}
    for row in rows:
        compared = zip(row.diagnostics.get("masks", ()), row.diagnostics.get("convergence", ()), strict=True)
        for masks, value in list(compared)[:-1]:  # the last compares all masks with themselves
            correlations.setdefault(masks, []).append(value)
    return [
        f"  convergence with {masks:.0f} masks: {_show(bootstrap_mean(np.array(values)), len(values))})"
        for masks, values in sorted(correlations.items())
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
    known = [(int(row.diagnostics["side"]), *truth) for row in measured if (truth := pointed(row))]
    lines = []
    if len(known) < len(measured):
        side = measured[0].diagnostics["side"]
        lines.append(
            f"  {len(measured) - len(known)} of {len(measured)} images are left out: their names are not those of "
            f"collages of {side} x {side} cells (--set side=3 for 3 x 3; faircontext data collage makes them)"
        )
    if not known:
        return lines
    cells, all_cells = sum(n for _, n, _ in known), sum(side**2 for side, _, _ in known)
    by_cell = float(np.mean([side**-2.0 for side, _, _ in known]))
    for name, chance in (("auc", 0.5), ("pointing", by_cell), ("energy", by_cell)):
        mean = _show(bootstrap_mean(np.array([means[name] for _, _, means in known])), len(known))
        lines.append(f"  {name} in the class's own cell: {mean} collages, {cells} cells; by chance {chance:.4f})")
    if cells < all_cells:
        lines.append(f"  {all_cells - cells} cells are left out: their classes are no candidates; raise k")
    return lines
