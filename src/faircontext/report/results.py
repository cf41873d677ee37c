"""What a run on disk has measured: a result for each method, as arrays over images.

Classes are known by index, never by name: ImageNet has two classes called "missile".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from faircontext.bench.schema import is_analysis
from faircontext.bench.store import Run

__all__ = ["Result", "has_analyses", "read_results"]


@dataclass(frozen=True, eq=False)
class Result:
    """A method's answers on the images of one run, those of refused files left out.

    Attributes:
        run: where it comes from.
        method: what the method is called there.
        positions: of the images in the data set.
        labels: true classes.
        correct: whether the answer is right.
        in_top5: whether the true class is among the five best.
        confidence: probability of the answer.
        label_probability: probability of the true class.
        probability_norm: sum of the squared probabilities.
        refused: how many files had no answer.
        zero_shot: zero-shot's result on the same images, None for zero-shot itself.
        answers_only: whether only `correct` is known, not the five best nor probabilities.
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
    refused: int = 0
    zero_shot: "Result | None" = None
    answers_only: bool = False

    @property
    def number(self) -> int:
        """How many images have been answered."""
        return len(self.correct)

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's configuration."""
        config: Mapping[str, Any] = self.run.document["config"]
        return config

    @property
    def hash(self) -> str:
        """Hash of all that the answers depend on besides the images."""
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

    def same_images(self, other: "Result") -> bool:
        """Return whether two results are of the same images, so that they can be compared."""
        same_set = self.config["dataset"].get("hash") == other.config["dataset"].get("hash")
        return same_set and np.array_equal(self.positions, other.positions)


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
    reference = _integers(answered["zero_shot_index"])
    if method != "zero_shot" and zero_shot is None:  # its answers are on every row, its probabilities are not
        unknown, right = np.full(len(labels), np.nan), reference == labels
        zero_shot = Result(
            run=run,
            method="zero_shot",
            positions=_integers(answered["position"]),
            labels=labels,
            correct=right,
            in_top5=right,
            confidence=unknown,
            label_probability=unknown,
            probability_norm=unknown,
            answers_only=True,
        )
    return Result(
        run=run,
        method=method,
        positions=_integers(answered["position"]),
        labels=labels,
        correct=index == labels,
        in_top5=_in_lists(answered["top5"], labels),
        confidence=_floats(answered["confidence"]),
        label_probability=_floats(answered["label_probability"]),
        probability_norm=_floats(answered["probability_norm"]),
        refused=len(rows) - len(answered),
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
