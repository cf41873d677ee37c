"""Several labels for an image: the options, and rows whose prediction is every label with a score from a threshold on.

Labels are scored with zero-shot's features: the other methods choose one class against the others, by votes or by a
softmax over all of them, and an answer so found says nothing of a label by itself.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.datasets.label_encoder import SEPARATOR
from faircontext.errors import ArgumentError, LabelError, counted
from faircontext.metrics.multi_label import score_of
from faircontext.names import read_labels
from faircontext.runs.decisions import AnsweredImage, Decision, DecisionOptions
from faircontext.runs.label_results import LabelMetrics, label_arrays, read_label_result
from faircontext.runs.records import SCORES_COLUMNS, Answer
from faircontext.runs.store import Run
from faircontext.runs.summary import Summary

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from faircontext.label_scores import LabelScorer
    from faircontext.labels import LabelSpace

DEFAULT_THRESHOLD = 0.5
"""From which score on a label is given: more likely than not, or than all negatives together."""


@dataclass(frozen=True)
class MultiLabel(Decision):
    """Takes every label whose score is at least a threshold.

    Attributes:
        scorer: scores labels.
        threshold: least score, between 0 and 1.
    """

    several: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = (*SCORES_COLUMNS, "targets", "label_logits")
    cell_names: ClassVar[tuple[str, ...]] = ("scores",)

    scorer: "LabelScorer"
    threshold: float

    @property
    def config(self) -> Mapping[str, Any]:
        """What the configuration of a run says of it."""
        rule: dict[str, Any] = {"threshold": self.threshold, "scores": self.scorer.rule}
        if self.scorer.negatives:
            return {"multi_label": {**rule, "negatives": [*self.scorer.negatives]}}
        return {"multi_label": {**rule, "logit_bias": self.scorer.labels.backbone.logit_bias}}

    @property
    def summary(self) -> str:
        """The same in words."""
        count = len(self.scorer.negatives)
        bias = self.scorer.labels.backbone.logit_bias
        basis = f"against {counted(count, 'negative')}" if count else f"by the model's sigmoid, bias {bias:.4g}"
        return f"several labels for an image, each scored {basis}; given from a score of {self.threshold:g} on"

    def decide(self, image: AnsweredImage) -> AnsweredImage:
        """Return an image with log-odds of every label in its answers, and the labels that are given as prediction."""
        if image.features is None:
            return replace(image, answers=tuple(replace(answer, label_index=None) for answer in image.answers))
        logits = self.scorer.logits(image.features)
        order, scores = _ranked(logits)
        best, top = int(order[0]), order[: len(image.answers[0].top5)]
        labels = SEPARATOR.join(self.scorer.labels.names[index] for index in order if scores[index] >= self.threshold)
        scores = scores.astype(np.float64)
        decided = partial(
            replace,
            label_index=None,
            zero_shot=labels,
            prediction=labels,
            zero_shot_index=best,
            index=best,
            confidence=float(scores[best]),
            label_probability=None,
            probability_norm=None,
            top5=tuple(top.tolist()),
            top5_probabilities=tuple(scores[top].tolist()),
            label_logits=logits,
        )
        stored = [None if answer.probabilities is None else scores.astype(np.float32) for answer in image.answers]
        answers = (decided(answer, probabilities=row) for answer, row in zip(image.answers, stored, strict=True))
        return replace(image, answers=tuple(answers))

    def _given(self, logits: "Float[np.ndarray, ' classes'] | None") -> list[tuple[int, float]]:
        """Return the labels with a score from the threshold on, best first, with their scores."""
        if logits is None:
            return []
        order, scores = _ranked(logits)
        return [(int(index), float(scores[index])) for index in order if scores[index] >= self.threshold]

    def entry(self, answer: Answer, names: Sequence[str]) -> dict[str, Any]:
        """Return an answer as JSON documents have it, with lists of labels in place of one."""
        of_one_label = ("label", "label_index", "zero_shot", "zero_shot_index", "prediction", "votes")
        entry = {name: value for name, value in answer.entry(names).items() if name not in of_one_label}
        entry["labels"] = None if answer.targets is None else [names[index] for index in answer.targets]
        entry["predictions"] = [[names[index], score] for index, score in self._given(answer.label_logits)]
        return entry

    def cells(self, answer: Answer) -> Mapping[str, str]:
        """Return the scores of the labels that are given."""
        return {"scores": SEPARATOR.join(f"{score:.6f}" for _, score in self._given(answer.label_logits))}

    def count(self, methods: Sequence[str], classes: int) -> Summary:
        """Return what counts answers; see `Decision.count`."""
        return LabelSummary(methods, classes, self.threshold)

    def describe(self, run: Run) -> Iterator[str]:
        """Yield what a run has measured, a line each."""
        yield f"{'zero_shot':14} {read_label_result(run).describe()}"

    def heading(self, methods: Sequence[str]) -> str:  # noqa: ARG002
        """Return the heading of the lines that are shown, one for each image."""
        return f"{'labels and their scores':62}"

    def line(self, answers: Sequence[Answer], names: Sequence[str]) -> str:
        """Return what is shown of the answers for an image that could be read."""
        labels = self._given(answers[0].label_logits)
        return ", ".join(f"{names[index]} {score:.2f}" for index, score in labels) or "(none)"


def _ranked(
    logits: "Float[np.ndarray, ' classes']",
) -> "tuple[Int[np.ndarray, ' classes'], Float[np.ndarray, ' classes']]":
    """Return the labels, best first, and the scores of all, in their own order."""
    return np.argsort(-logits, kind="stable"), score_of(logits)


class LabelSummary(Summary):
    """Counts images and the labels that they are given.

    For every labelled image the log-odds of all classes are held, since average precision ranks them: four bytes a
    class.

    Args:
        methods: what they are called in rows.
        classes: how many there are.
        threshold: from which score on a label is given.
    """

    def __init__(self, methods: Sequence[str], classes: int, threshold: float) -> None:
        super().__init__(methods, ("targets", "label_logits"))
        self._classes, self._threshold = classes, threshold
        self._logits, self._targets = array("f"), array("b")
        self._labels = self._empty = 0

    def _count(self, rows: pa.Table) -> None:
        answered = rows.filter(pc.equal(rows["error"], ""))
        logits = np.asarray(pc.list_flatten(answered["label_logits"]), np.float32).reshape(-1, self._classes)
        counts = (score_of(logits) >= self._threshold).sum(1)
        self._labels += int(counts.sum())
        self._empty += int((counts == 0).sum())
        labelled = answered.filter(pc.is_valid(answered["targets"]))
        logits, targets = label_arrays(labelled, self._classes, "these rows")
        self._logits.frombytes(np.ascontiguousarray(logits).tobytes())
        self._targets.frombytes(np.ascontiguousarray(targets).tobytes())

    @property
    def metrics(self) -> LabelMetrics:
        """Of the labelled images so far."""
        self.settle()
        logits = np.array(self._logits, np.float32).reshape(-1, self._classes)
        return LabelMetrics(logits, np.array(self._targets, np.bool_).reshape(-1, self._classes), self._threshold)

    def document(self) -> dict[str, Any]:
        """Return the metrics as the JSON file holds them."""
        return {"zero_shot": self.metrics.summary()}

    def status(self) -> str:
        """Return what is said while a run goes on."""
        return f"{self.images - self.unreadable} answered"

    def lines(self) -> Iterator[str]:
        """Yield the counts, and the metrics where labels are known."""
        answered, metrics = self.images - self.unreadable, self.metrics
        mean = f", {self._labels / answered:.2f} labels an image, {self._empty} with none" if answered else ""
        yield f"\n{answered} answered, {self.unreadable} unreadable{mean}; {self._seconds:.1f} s"
        if metrics.n:
            yield f"{'zero_shot':12} {metrics}"


@dataclass(frozen=True, kw_only=True)
class MultiLabelOptions(DecisionOptions):
    """The options of several labels for an image."""

    group: ClassVar[str] = "decision"
    files: ClassVar[tuple[str, ...]] = ("negatives",)

    multi_label: bool = False
    """Multi-label classification: predict every label whose score reaches the threshold; needs --method zero_shot; in
    tables, labels are separated by ;."""
    threshold: float | None = None
    """With --multi-label: minimum score of a predicted label, between 0 and 1 (default 0.5)."""
    negatives: Path | None = None
    """With --multi-label: file of negatives, one word per line; default: the bias of a model trained with a sigmoid
    loss, such as SigLIP, else the negatives of the package."""

    @property
    def several(self) -> bool:
        """See `DecisionOptions`."""
        return self.multi_label

    @property
    def decisions(self) -> tuple[str, ...]:
        """See `DecisionOptions`."""
        return (*(("--multi-label",) if self.multi_label else ()), *super().decisions)

    def check_decision(self, methods: Sequence[str]) -> None:
        """See `DecisionOptions`; negatives are read."""
        super().check_decision(methods)
        if not self.multi_label:
            if alone := [name for name in ("threshold", "negatives") if getattr(self, name) is not None]:
                raise ArgumentError(f"--{alone[0]} is of --multi-label; add it, or leave --{alone[0]} out")
            return
        if [*methods] != ["zero_shot"]:
            raise ArgumentError(
                "--multi-label answers with zero_shot alone, since the other methods choose one class against the "
                "others; add --method zero_shot (of evaluate: --methods zero_shot)"
            )
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ArgumentError(f"invalid threshold {self.threshold!r}: must be between 0 and 1")
        self._read_negatives()

    def decision_for(self, labels: "LabelSpace", methods: Sequence[str], prompts: str) -> Decision:
        """See `DecisionOptions`."""
        if not self.multi_label:
            return super().decision_for(labels, methods, prompts)
        from faircontext.label_scores import LabelScorer

        if odd := next((name for name in labels.names if SEPARATOR in name), None):
            raise LabelError(
                f"class name {odd!r} has {SEPARATOR!r} in it, which stands between the labels of an image; rename it"
            )
        threshold = DEFAULT_THRESHOLD if self.threshold is None else self.threshold
        return MultiLabel(LabelScorer(labels, self._read_negatives()), threshold)

    def _read_negatives(self) -> tuple[str, ...] | None:
        return None if self.negatives is None else read_labels(self.negatives, "negatives")
