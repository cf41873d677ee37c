"""What a run on disk has measured: a result for each method, as arrays over images.

Reading needs NumPy and Arrow, no model. Classes are known by index, never by name: ImageNet has two classes called
"missile".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Accuracy
from faircontext.runs.records import is_analysis
from faircontext.runs.store import Run

__all__ = ["Result", "has_analyses", "read_results"]


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
    def planned(self) -> int:
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

    def describe(self) -> str:
        """Return accuracy, comparison with zero-shot, top-5, ECE and cost in a line."""
        correct = int(self.correct.sum())
        parts = [str(Accuracy(correct, self.n))]
        if self.unreadable:
            share = 100 * correct / (self.n + self.unreadable)
            parts.append(f"{share:.1f}% with the {self.unreadable} refused counted as wrong")
        if (found := self.comparison) is not None:
            value, low, high = (
                100 * end for end in (found.difference.value, found.difference.low, found.difference.high)
            )
            parts.append(
                f"{value:+.1f} over zero-shot (95% interval {low:+.1f} to {high:+.1f}; alone right on {found.gained}, "
                f"zero-shot alone on {found.lost}; exact McNemar p = {found.p_value:.3g})"
            )
        top5 = Accuracy(int(self.in_top5.sum()), self.n)
        error = expected_calibration_error(self.confidence, self.correct)
        parts.append(f"top-5 {100 * top5.value:.1f}%, ECE {error:.3f}, {self.seconds.mean():.2f} s per image")
        return "; ".join(parts)


def has_analyses(run: Run) -> bool:
    """Return whether a run has analysed images, in place of answering them."""
    return any(map(is_analysis, run.document["config"]["methods"]))


def read_results(run: Run) -> list[Result]:
    """Return the results of a run's methods, in their order; analyses have none."""
    everything = list(run.document["config"]["methods"])
    methods = [method for method in everything if not is_analysis(method)]
    if methods == ["zero_shot"] and len(everything) > 1:
        return []  # zero-shot beside an analysis, often of a few images: it would be another run of the same set
    names = run.rows["method"].combine_chunks()
    zero_shot: Result | None = None
    results = []
    for name in sorted(methods, key=lambda method: method != "zero_shot"):
        rows = run.rows.filter(pc.equal(names, name))
        if len(rows) or not len(run.rows):
            result = _result(run, name, rows, zero_shot)
            zero_shot = result if name == "zero_shot" else zero_shot
            results.append(result)
    return sorted(results, key=lambda result: methods.index(result.method))


def _result(run: Run, method: str, rows: pa.Table, zero_shot: Result | None) -> Result:
    answered = rows.filter(pc.equal(rows["error"], ""))
    labels, index = _integers(answered["label_index"]), _integers(answered["index"])
    names = ("confidence", "label_probability", "probability_norm", "seconds")
    shared: dict[str, Any] = {"run": run, "positions": _integers(answered["position"]), "labels": labels}
    if method != "zero_shot" and zero_shot is None:  # its predictions are on every row, its probabilities are not
        unknown, correct = np.full(len(labels), np.nan), _integers(answered["zero_shot_index"]) == labels
        unknowns: dict[str, Any] = dict.fromkeys(
            ("confidence", "label_probability", "probability_norm", "seconds"), unknown
        )
        zero_shot = Result(
            **shared, **unknowns, method="zero_shot", correct=correct, in_top5=correct, predictions_only=True
        )
    measured: dict[str, Any] = {name: _floats(answered[name]) for name in names}
    return Result(
        **shared,
        **measured,
        method=method,
        correct=index == labels,
        in_top5=_in_lists(answered["top5"], labels),
        fallbacks=int(pc.sum(pc.not_equal(answered["fallback"], "")).as_py() or 0),
        unreadable=len(rows) - len(answered),
        zero_shot=None if method == "zero_shot" else zero_shot,
    )


def _integers(column: pa.ChunkedArray) -> Int[np.ndarray, " images"]:
    return np.asarray(pc.fill_null(column, -1).to_numpy(), np.int64)


def _floats(column: pa.ChunkedArray) -> Float[np.ndarray, " images"]:
    return np.asarray(pc.fill_null(column, np.nan).to_numpy(), np.float64)


def _in_lists(lists: pa.ChunkedArray, values: Int[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
    """Return, for each list and value, whether the value is in the list."""
    parents = np.asarray(pc.list_parent_indices(lists).to_numpy(), np.int64)
    hits = parents[np.asarray(pc.list_flatten(lists).to_numpy(), np.int64) == values[parents]]
    return np.bincount(hits, minlength=len(values)) > 0
