"""Several labels for an image: the options, and rows whose prediction is every label with a score from a threshold on.

Labels are scored with zero-shot's features: the other methods choose one class against the others, by votes or by a
softmax over all of them, and an answer so found says nothing of a label by itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from faircontext.datasets.label_encoder import SEPARATOR
from faircontext.errors import ArgumentError, LabelError, counted
from faircontext.metrics.multi_label import score_of
from faircontext.names import read_labels

if TYPE_CHECKING:
    from jaxtyping import Float

    from faircontext.label_scores import LabelScorer
    from faircontext.labels import LabelSpace
    from faircontext.runs.answer import AnsweredImage
    from faircontext.types import Prediction

__all__ = ["DEFAULT_THRESHOLD", "LabelRule", "MultiLabelOptions", "given_labels"]

DEFAULT_THRESHOLD = 0.5
"""From which score on a label is given: more likely than not, or than all negatives together."""


@dataclass(frozen=True)
class LabelRule:
    """Gives every label whose score is at least a threshold.

    Attributes:
        scorer: scores labels.
        threshold: least score, between 0 and 1.
    """

    scorer: "LabelScorer"
    threshold: float

    @property
    def facts(self) -> dict[str, Any]:
        """What `run.json` says of it."""
        facts: dict[str, Any] = {"threshold": self.threshold, "scores": self.scorer.rule}
        if self.scorer.negatives:
            return {**facts, "negatives": [*self.scorer.negatives]}
        return {**facts, "logit_bias": self.scorer.labels.backbone.logit_bias}

    @property
    def summary(self) -> str:
        """The same in words."""
        count = len(self.scorer.negatives)
        bias = self.scorer.labels.backbone.logit_bias
        how = f"against {counted(count, 'negative')}" if count else f"by the model's sigmoid, bias {bias:.4g}"
        return f"several labels for an image, each scored {how}; given from a score of {self.threshold:g} on"

    def given(self, answered: "AnsweredImage") -> list[tuple[str, float]]:
        """Return the labels that are given to an image, best first, with their scores."""
        if answered.label_logits is None:
            return []
        names = self.scorer.labels.names
        return [(names[index], score) for index, score in given_labels(answered.label_logits, self.threshold)]

    def over(self, answers: "Iterable[AnsweredImage]") -> "Iterator[AnsweredImage]":
        """Yield answers with log-odds of every label, and with the labels that are given as the prediction."""
        for answered in answers:
            if answered.features is None:
                yield answered
                continue
            logits = self.scorer.logits(answered.features)
            order = np.argsort(-logits, kind="stable")
            names = self.scorer.labels.names
            given = SEPARATOR.join(names[index] for index, _ in given_labels(logits, self.threshold))
            best = float(score_of(logits[order[:1]])[0])
            yield replace(
                answered,
                rows=tuple(replace(row, zero_shot=given, prediction=given, confidence=best) for row in answered.rows),
                predictions=tuple(_scored(prediction, logits, order) for prediction in answered.predictions),
                reference=None if answered.reference is None else _scored(answered.reference, logits, order),
                label_logits=logits,
            )


def given_labels(logits: "Float[np.ndarray, ' classes']", threshold: float) -> list[tuple[int, float]]:
    """Return the labels with a score from a threshold on, best first, with their scores; one owner of the rule."""
    scores = score_of(logits)
    order = np.argsort(-logits, kind="stable")
    return [(int(index), float(scores[index])) for index in order if scores[index] >= threshold]


def _scored(prediction: "Prediction", logits: "Float[np.ndarray, ' classes']", order: np.ndarray) -> "Prediction":
    """Return a prediction with scores of labels in place of probabilities."""
    import torch

    ranking, scores = torch.from_numpy(order), torch.from_numpy(score_of(logits))
    return replace(prediction, index=int(order[0]), ranking=ranking, probabilities=scores)


@dataclass(frozen=True, kw_only=True)
class MultiLabelOptions:
    """The options of several labels for an image."""

    multi_label: bool = False
    """Give an image every label whose own score reaches the threshold, with --method zero_shot; tables have labels
    with ; between."""
    threshold: float | None = None
    """With --multi-label: least score of a label, between 0 and 1 (default 0.5)."""
    negatives: Path | None = None
    """With --multi-label: file of words, one a line, that a label stands against; default: the model's own bias where
    it was trained with a sigmoid, as SigLIP, else words that come with the package."""

    def check_multi_label(self, methods: Sequence[str], unknown: str | None) -> None:
        """Check what can be checked before a model is loaded.

        Args:
            methods: what they are called.
            unknown: the option of "none of these".

        Raises:
            ArgumentError: a value cannot be used, or an option goes with none of the others.
        """
        if not self.multi_label:
            if given := [name for name in ("threshold", "negatives") if getattr(self, name) is not None]:
                raise ArgumentError(f"--{given[0]} is of --multi-label; add it, or leave --{given[0]} out")
            return
        if [*methods] != ["zero_shot"]:
            raise ArgumentError(
                "--multi-label answers with zero_shot alone, since the other methods choose one class against the "
                "others; add --method zero_shot (of evaluate: --methods zero_shot)"
            )
        if unknown is not None:
            raise ArgumentError(
                "--unknown is not possible with --multi-label: an image of which no label reaches the threshold has an "
                "empty prediction already"
            )
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ArgumentError(f"invalid threshold {self.threshold!r}: must be between 0 and 1")
        self._read_negatives()

    def label_rule(self, labels: "LabelSpace") -> LabelRule:
        """Return what gives labels.

        Raises:
            LabelError: a class name or a negative cannot be used.
        """
        from faircontext.label_scores import LabelScorer

        if odd := next((name for name in labels.names if SEPARATOR in name), None):
            raise LabelError(
                f"class name {odd!r} has {SEPARATOR!r} in it, which stands between the labels of an image; rename it"
            )
        threshold = DEFAULT_THRESHOLD if self.threshold is None else self.threshold
        return LabelRule(LabelScorer(labels, self._read_negatives()), threshold)

    def _read_negatives(self) -> tuple[str, ...] | None:
        return None if self.negatives is None else read_labels(self.negatives, "negatives")
