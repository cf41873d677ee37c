"""What a run on disk has measured: results of methods as arrays over images.

Reading needs no model. Classes are known by index, never by name: ImageNet has two classes called "missile".
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from faircontext.errors import counted
from faircontext.metrics.scores import Comparison, expected_calibration_error
from faircontext.metrics.stats import Accuracy
from faircontext.runs.records import ABSTAINED, is_analysis, is_correct, to_numpy
from faircontext.runs.store import Run

TUNED = "settings tuned per data set by its authors"
"""What stands beside every number that was made with such settings."""

DEPENDENT = "as if answers were independent of each other, which those of a memory are not"
"""What stands beside a test, of images in one order, of a method with a memory."""


@dataclass(frozen=True, eq=False)
class Result:
    """A method's predictions on the labelled images of one run, unreadable files left out.

    Attributes:
        run: where it comes from.
        method: what the method is called there.
        positions: of the images in the data set.
        labels: true classes.
        index: predictions, those that are withheld too.
        correct: whether the prediction is correct.
        in_top5: whether the true class is among the five best.
        confidence: probability of the prediction.
        label_probability: probability of the true class.
        probability_norm: sum of the squared probabilities.
        seconds: that the method took itself.
        shared_seconds: of what it shares with others; NaN in runs of earlier versions, see `Row`.
        fallbacks: how many predictions were made with less than the method's full procedure.
        unreadable: how many files have no prediction.
        unlabelled: how many images have a prediction and no label.
        withheld: which predictions are withheld ("none of these"); `correct` counts them as if they were given.
        zero_shot: zero-shot's result on the same images, None for zero-shot itself.
        predictions_only: whether only `correct` is known, not the five best nor probabilities.
    """

    run: Run = field(repr=False)
    method: str
    positions: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    index: Int[np.ndarray, " images"]
    correct: Bool[np.ndarray, " images"]
    in_top5: Bool[np.ndarray, " images"]
    confidence: Float[np.ndarray, " images"]
    label_probability: Float[np.ndarray, " images"]
    probability_norm: Float[np.ndarray, " images"]
    seconds: Float[np.ndarray, " images"]
    shared_seconds: Float[np.ndarray, " images"]
    fallbacks: int = 0
    unreadable: int = 0
    unlabelled: int = 0
    withheld: Bool[np.ndarray, " images"] | None = None
    zero_shot: "Result | None" = None
    predictions_only: bool = False

    @property
    def n(self) -> int:
        """How many images have a prediction and a label."""
        return len(self.correct)

    @property
    def seen(self) -> int:
        """How many images have been answered or unreadable, those without a label included."""
        return self.n + self.unreadable + self.unlabelled

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
    def tuned(self) -> bool:
        """Whether the method has settings that its authors chose for this very data set; see `TUNED`."""
        return self.method in self.config.get("stream", {}).get("tuned", ())

    @property
    def has_memory(self) -> bool:
        """Whether the method has a memory, so that its predictions depend on the order of the images."""
        return self.method in self.config.get("stream", {}).get("methods", ())

    @cached_property
    def seen_before(self) -> Int[np.ndarray, " images"]:
        """From how many images a memory had learnt before each; -1 for an image that left no trace, or without one."""
        rows = self.run.rows.select(["method", "position", "diagnostics"])
        rows = rows.filter(pc.equal(rows["method"], self.method))
        counts = pc.extract_regex(rows["diagnostics"], r'"t": ?(?P<t>[0-9]+)')
        learnt = to_numpy(pc.cast(pc.struct_field(counts, "t"), pa.int64()), 0)
        order = np.argsort(positions := to_numpy(rows["position"]), kind="stable")
        seen: Int[np.ndarray, " images"] = learnt[order[np.searchsorted(positions, self.positions, sorter=order)]] - 1
        return seen

    @property
    def state(self) -> Mapping[str, Any]:
        """Of a memory at the end of a complete run: its size in `megabytes`, and `backward_passes` an image."""
        state: Mapping[str, Any] = self.run.document.get("states", {}).get(self.method, {})
        return state

    @property
    def hash(self) -> str:
        """Hash of all that the predictions depend on besides the images."""
        return str(self.run.document["hashes"][self.method])

    @property
    def expected(self) -> int:
        """How many images the run is to answer."""
        config = self.config
        count = min(config["dataset"]["images"], config["limit"] or config["dataset"]["images"])
        if config["shard"] is None:
            return int(count)
        part, parts = config["shard"]
        return len(range(part, count, parts))

    @cached_property
    def comparison(self) -> Comparison | None:
        """The method against zero-shot on the same images; None for zero-shot itself, or without an image."""
        return None if self.zero_shot is None or not self.n else Comparison.of(self.correct, self.zero_shot.correct)

    def same_images(self, other: "Result") -> bool:
        """Return whether two results are of the same images, so that they can be compared."""
        same_set = self.config["dataset"].get("hash") == other.config["dataset"].get("hash")
        return same_set and np.array_equal(self.positions, other.positions)


def class_names(run: Run) -> list[str]:
    """Return what a run's classes are called; where two have one name, the index tells them apart."""
    classes, names = run.document["config"]["dataset"]["classes"], run.document["config"].get("names", ())
    known = dict(enumerate(names))
    if not names:  # a run without them still has those that occur
        for column, title in (("label_index", "label"), ("zero_shot_index", "zero_shot"), ("index", "prediction")):
            pairs = zip(run.rows[column].to_pylist(), run.rows[title].to_pylist(), strict=True)
            known |= {index: name for index, name in pairs if index is not None}
    counts = Counter(known.values())
    titles = {index: name if counts[name] == 1 else f"{name} (class {index})" for index, name in known.items()}
    return [titles.get(index, f"class {index}") for index in range(classes)]


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


_NUMBERS = ("confidence", "label_probability", "probability_norm", "seconds", "shared_seconds")

_TEXTS = ("method", "error", "prediction", "fallback")
_COLUMNS = [*_TEXTS, "position", "label_index", "index", "zero_shot_index", "top5", *_NUMBERS]


def _result(run: Run, method: str, rows: pa.Table, zero_shot: Result | None) -> Result:
    readable = rows.filter(pc.equal(rows["error"], ""))
    answered = readable.filter(pc.is_valid(readable["label_index"]))
    labels = to_numpy(answered["label_index"])
    shared: dict[str, Any] = {"run": run, "positions": to_numpy(answered["position"]), "labels": labels}
    if method != "zero_shot" and zero_shot is None:  # its predictions are on every row, its probabilities are not
        correct = is_correct(answered, "zero_shot_index")
        of_zero_shot: dict[str, Any] = shared | dict.fromkeys(_NUMBERS, np.full(len(labels), np.nan))
        of_zero_shot |= {"index": to_numpy(answered["zero_shot_index"]), "correct": correct, "in_top5": correct}
        zero_shot = Result(**of_zero_shot, method="zero_shot", predictions_only=True)
    shared |= {name: to_numpy(answered[name], np.nan) for name in _NUMBERS}
    return Result(
        **shared,
        method=method,
        index=to_numpy(answered["index"]),
        correct=is_correct(answered),
        in_top5=_in_lists(pc.list_slice(answered["top5"], 0, 5), labels),  # a run may hold more
        fallbacks=sum(bool(text) and not text.startswith(ABSTAINED) for text in answered["fallback"].to_pylist()),
        unreadable=len(rows) - len(readable),
        unlabelled=len(readable) - len(answered),
        withheld=np.asarray(to_numpy(pc.equal(answered["prediction"], ""), True), np.bool_),
        zero_shot=None if method == "zero_shot" else zero_shot,
    )


def _in_lists(lists: pa.ChunkedArray, values: Int[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
    """Return, for each list and value, whether the value is in the list."""
    parents = to_numpy(pc.list_parent_indices(lists))
    hits = parents[to_numpy(pc.list_flatten(lists)) == values[parents]]
    return np.bincount(hits, minlength=len(values)) > 0


def describe_results(run: Run) -> Iterator[str]:
    """Yield what a run has measured, a line for each method, and how many images have no label."""
    results = read_results(run)
    for result in (result for result in results if result.n):
        yield f"{result.method:14} {describe_result(result)}{f'; {TUNED}' if result.tuned else ''}"
    if results and (count := results[0].unlabelled):
        verbs = ("has", "counts") if count == 1 else ("have", "count")
        yield f"{counted(count, 'image')} {verbs[0]} no label, and {verbs[1]} in no accuracy"


def describe_result(result: Result) -> str:
    """Return accuracy, comparison with zero-shot, top-5, ECE and cost in a line."""
    correct = int(result.correct.sum())
    parts = [str(Accuracy(correct, result.n))]
    if result.unreadable:
        share = 100 * correct / (result.n + result.unreadable)
        parts.append(f"{share:.1f}% with the {result.unreadable} unreadable counted as wrong")
    if result.withheld is not None and (withheld := int(result.withheld.sum())):
        correct, n = int(result.correct[~result.withheld].sum()), result.n - withheld
        others = f", {Accuracy(correct, n)} of the others are right" if n else ""
        parts.append(f"none of these on {withheld} of {result.n}{others}")
    if (compared := result.comparison) is not None:
        change = compared.difference
        value, low, high = (100 * end for end in (change.value, change.low, change.high))
        caveat = f", {DEPENDENT}" if result.has_memory else ""
        parts.append(
            f"{value:+.1f} over zero-shot (95% interval {low:+.1f} to {high:+.1f}; alone right on {compared.gained}, "
            f"zero-shot alone on {compared.lost}; exact McNemar p = {compared.p_value:.3g}{caveat})"
        )
    top5 = Accuracy(int(result.in_top5.sum()), result.n)
    error = expected_calibration_error(result.confidence, result.correct)
    parts.append(f"top-5 {100 * top5.value:.1f}%, ECE {error:.3f}, {_time_of(result)}")
    return "; ".join(parts)


def _time_of(result: Result) -> str:
    shared = result.shared_seconds.mean()
    return f"{result.seconds.mean():.2f} s per image" + ("" if isnan(shared) else f" and {shared:.2f} s shared")
