"""How many answers are right: among the best k, and class by class."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from faircontext.errors import ArgumentError, check_minimum
from faircontext.metrics.checks import check_classes, check_lengths
from faircontext.metrics.stats import Accuracy

__all__ = ["NO_ANSWER", "ClassAccuracies", "mean_per_class", "per_class_accuracy", "top_k_accuracy"]

NO_ANSWER = -1
"""Stands for an answer that is not there, of a refused file for example; it is never right."""


def top_k_accuracy(top: Int[np.ndarray, "images ranks"], labels: Int[np.ndarray, " images"], k: int) -> Accuracy:
    """Return on how many images the true class is among the k best answers.

    Args:
        top: classes by index, best first; `NO_ANSWER` fills up what is missing.
        labels: true classes by index.
        k: how many of the answers count.

    Raises:
        ArgumentError: the lengths differ, a label is negative, or there are fewer than k answers.
    """
    check_lengths(top=top, labels=labels)
    check_classes("labels", labels)
    check_classes("top", top, least=NO_ANSWER)
    if top.ndim != 2 or not 1 <= k <= top.shape[1]:
        raise ArgumentError(f"k={k} is not possible; top has the shape {top.shape}, images times ranked answers")
    right = (top[:, :k] == labels[:, None]).any(1)
    return Accuracy(int(right.sum()), len(labels))


@dataclass(frozen=True)
class ClassAccuracies:
    """Right answers and images of each class.

    Attributes:
        correct: right answers.
        number: images that are of the class, 0 where there are none.
    """

    correct: Int[np.ndarray, " classes"]
    number: Int[np.ndarray, " classes"]

    @property
    def values(self) -> Float[np.ndarray, " classes"]:
        """Accuracy of each class, NaN where it has no image."""
        values = np.full(len(self.number), np.nan)
        np.divide(self.correct, self.number, out=values, where=self.number > 0)
        return values

    @property
    def mean(self) -> float:
        """Mean accuracy over the classes that have images."""
        return float(np.nanmean(self.values))


def per_class_accuracy(
    index: Int[np.ndarray, " images"], labels: Int[np.ndarray, " images"], classes: int
) -> ClassAccuracies:
    """Count images and right answers of each class.

    Args:
        index: answers, as classes by index, or `NO_ANSWER`.
        labels: true classes by index.
        classes: C, how many classes there are.

    Raises:
        ArgumentError: the lengths differ, or a class is out of range.
    """
    check_minimum("classes", classes, 1)
    check_lengths(index=index, labels=labels)
    check_classes("labels", labels, classes)
    check_classes("index", index, classes, least=NO_ANSWER)
    return ClassAccuracies(
        np.bincount(labels[index == labels], minlength=classes), np.bincount(labels, minlength=classes)
    )


def mean_per_class(index: Int[np.ndarray, " images"], labels: Int[np.ndarray, " images"], classes: int) -> float:
    """Return the mean accuracy over the classes that have images: each class counts the same, however many it has.

    Args and errors as of `per_class_accuracy`.
    """
    return per_class_accuracy(index, labels, classes).mean
