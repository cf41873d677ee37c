"""What a run has measured of images that may have several labels: scores and true labels as arrays, and metrics.

Reading needs no model. The arrays hold every class of every labelled image: five bytes each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float

from faircontext.errors import ArgumentError
from faircontext.metrics.multi_label import (
    LabelDecisions,
    MeanAveragePrecision,
    label_decisions,
    mean_average_precision,
    score_of,
    threshold_for_f1,
    threshold_for_precision,
)
from faircontext.metrics.stats import Interval
from faircontext.runs.records import schema_of
from faircontext.runs.rows import batches_of, in_order, row_files
from faircontext.runs.store import Run


@dataclass(frozen=True, eq=False)
class LabelMetrics:
    """Metrics of labelled images that may have several labels.

    Attributes:
        logits: log-odds of every class.
        targets: whether the image has the label.
        threshold: from which score on a label is given.
    """

    logits: Float[np.ndarray, "images classes"]
    targets: Bool[np.ndarray, "images classes"]
    threshold: float

    @property
    def n(self) -> int:
        """How many images are labelled."""
        return len(self.logits)

    @cached_property
    def precision(self) -> MeanAveragePrecision | None:
        """Average precision of the classes and its mean; None where no image has a label."""
        return mean_average_precision(self.logits, self.targets) if self.targets.any() else None

    @cached_property
    def decisions(self) -> LabelDecisions:
        """How good the labels are that the threshold gives; there must be an image."""
        return label_decisions(score_of(self.logits) >= self.threshold, self.targets)

    def __str__(self) -> str:
        if not self.n:
            return "no labels are known"
        shown = self.decisions
        parts = [
            "no image has a label" if self.precision is None else str(self.precision),
            f"from a score of {self.threshold:g} on: precision {_percent(shown.precision)}, recall "
            f"{_percent(shown.recall)}, F1 {_percent(shown.f1)} ({self._intervals})",
            f"exactly the right labels {shown.exact}",
        ]
        return "; ".join(parts)

    @property
    def _intervals(self) -> str:
        """What is said of the intervals of decisions, and of those that have none."""
        shares = {name: getattr(self.decisions, name) for name in ("precision", "recall", "f1")}
        none = [name for name, share in shares.items() if np.isnan(share.low) and not np.isnan(share.value)]
        more = f"; {' and '.join(none)} the same in every resample, so without one" if none else ""
        return f"95% intervals over images{more}"

    def summary(self) -> dict[str, Any] | None:
        """Return the same as the JSON file holds it."""
        if not self.n:
            return None
        shown, mean = self.decisions, self.precision
        return {
            "n": self.n,
            "map": None if mean is None else {**(_finite(mean.mean) or {}), "classes": mean.classes},
            "average_precision": [] if mean is None else [estimate and estimate.value for estimate in mean.per_class],
            "threshold": self.threshold,
            **{name: _finite(getattr(shown, name)) for name in ("precision", "recall", "f1")},
            "exact": {"correct": shown.exact.correct, "n": shown.exact.n},
        }


def _percent(share: Interval) -> str:
    if np.isnan(share.value):
        return "-"
    interval = "" if np.isnan(share.low) else f" [{100 * share.low:.1f}, {100 * share.high:.1f}]"
    return f"{100 * share.value:.1f}%{interval}"


def _finite(share: Interval) -> dict[str, float | None] | None:
    """Return an estimate as JSON holds it, its ends null where there is no interval; null where there is none."""
    if np.isnan(share.value):
        return None
    return {name: None if np.isnan(value) else value for name, value in vars(share).items()}


@dataclass(frozen=True, eq=False)
class LabelResult:
    """The labels of one run.

    Attributes:
        run: where they come from.
        metrics: of the images whose true labels are known, unreadable files left out.
        unreadable: how many files have no prediction.
        unlabelled: how many images have a prediction and no true labels.
    """

    run: Run = field(repr=False)
    metrics: LabelMetrics
    unreadable: int
    unlabelled: int

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's configuration."""
        config: Mapping[str, Any] = self.run.document["config"]
        return config

    @property
    def names(self) -> list[str]:
        """Names of the classes."""
        return list(self.config["names"])

    def describe(self) -> str:
        """Return the metrics and what they leave out in a line."""
        parts = [str(self.metrics)]
        if self.unreadable:
            parts.append(f"{self.unreadable:,} unreadable left out")
        if self.unlabelled:
            have = "images have" if self.unlabelled > 1 else "image has"
            parts.append(f"{self.unlabelled:,} {have} no known labels, and count in nothing")
        return "; ".join(parts)


def is_multi_label(run: Run) -> bool:
    """Return whether a run has given images several labels."""
    return "multi_label" in run.document["config"]


_COLUMNS = ("path", "method", "position", "error", "targets", "label_logits")


def read_label_result(run: Run) -> LabelResult:
    """Return the labels of a run that `is_multi_label`.

    Raises:
        ArgumentError: a file cannot be read, or its labels are impossible.
    """
    from faircontext.runs.documents import RuleEntries, check_entries

    config = run.document["config"]
    fault = f"{run.folder / 'run.json'}: is no description of a run"
    threshold = check_entries(RuleEntries, config["multi_label"], fault, "make the run again").threshold
    tables = [*batches_of(row_files(run.folder), _COLUMNS)]
    rows = pa.concat_tables(tables) if tables else schema_of(("targets", "label_logits")).empty_table()
    rows = in_order(rows, [*config["methods"]])
    answered = rows.filter(pc.equal(rows["error"], ""))
    labelled = answered.filter(pc.is_valid(answered["targets"]))
    logits, targets = label_arrays(labelled, len(config["names"]), str(run.folder))
    metrics = LabelMetrics(logits, targets, threshold)
    return LabelResult(run, metrics, len(rows) - len(answered), len(answered) - len(labelled))


def label_arrays(
    rows: pa.Table, classes: int, where: str
) -> tuple[Float[np.ndarray, "images classes"], Bool[np.ndarray, "images classes"]]:
    """Return log-odds and true labels of rows with both.

    Args:
        rows: of answered images whose labels are known.
        classes: how many there are.
        where: the rows lie, for the message.

    Raises:
        ArgumentError: a row has log-odds of another number of classes, or one that is no number, or an unknown class.
    """
    fix = f"{where}: is no run of {classes} classes with labels: delete it, and make the run again"
    flat = np.asarray(pc.list_flatten(rows["label_logits"]), np.float32)
    if (
        len(flat) != len(rows) * classes
        or pc.any(pc.not_equal(pc.list_value_length(rows["label_logits"]), classes)).as_py()
    ):
        raise ArgumentError(fix)
    of, which = (
        np.asarray(column) for column in (pc.list_parent_indices(rows["targets"]), pc.list_flatten(rows["targets"]))
    )
    if not np.isfinite(flat).all() or (len(which) and not (which.min() >= 0 and which.max() < classes)):
        raise ArgumentError(fix)
    targets = np.zeros((len(rows), classes), np.bool_)
    targets[of.astype(np.int64), which.astype(np.int64)] = True
    return flat.reshape(len(rows), classes), targets


def choose_label_threshold(run: Run, precision: float | None) -> LabelMetrics:
    """Choose from which score on labels are given, and return the metrics of the run with that threshold.

    Args:
        run: whose images may have several labels.
        precision: least share of correct labels among those given; None for the largest F1.

    Raises:
        ArgumentError: the run has no labels, or no threshold is so precise.
    """
    metrics = read_label_result(run).metrics
    if not metrics.targets.any():
        raise ArgumentError(f"{run.folder}: has no labelled image that was answered; choose on a labelled run")
    scores, targets = score_of(metrics.logits), metrics.targets
    if precision is None:
        return replace(metrics, threshold=threshold_for_f1(scores, targets).threshold)
    return replace(metrics, threshold=threshold_for_precision(scores, targets, precision).threshold)
