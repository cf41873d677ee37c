"""Accuracies from class indices: among the five best, per class, and the mean over classes."""

import numpy as np
from jaxtyping import Int

from faircontext.errors import ArgumentError, check_minimum
from faircontext.metrics.stats import Accuracy

__all__ = ["mean_per_class_accuracy", "per_class_accuracy", "top_k_accuracy"]


def top_k_accuracy(top: Int[np.ndarray, "images ranks"], labels: Int[np.ndarray, " images"], k: int) -> Accuracy:
    """Return on how many images the true class is among the k best.

    Args:
        top: classes, best first.
        labels: true classes.
        k: at most the number of ranks, or of classes where those are fewer.

    Raises:
        ArgumentError: the arrays do not fit each other, or k is less than 1.
    """
    check_minimum("k", k, 1)
    if len(top) != len(labels):
        raise ArgumentError(f"labels has {len(labels)} entries for {len(top)} images; give one for each")
    return Accuracy(int((top[:, :k] == labels[:, None]).any(1).sum()), len(labels))


def per_class_accuracy(
    index: Int[np.ndarray, " images"], labels: Int[np.ndarray, " images"], classes: int
) -> tuple[Accuracy | None, ...]:
    """Return the accuracy on each class's images; None for a class without an image.

    Args:
        index: answers.
        labels: true classes.
        classes: C.

    Raises:
        ArgumentError: the arrays do not fit each other, or a label is no class.
    """
    if len(index) != len(labels):
        raise ArgumentError(f"labels has {len(labels)} entries for {len(index)} answers; give one for each")
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        raise ArgumentError(f"labels has {labels.min()} to {labels.max()}, outside of {classes} classes")
    number = np.bincount(labels, minlength=classes)
    correct = np.bincount(labels[index == labels], minlength=classes)
    return tuple(Accuracy(int(c), int(n)) if n else None for c, n in zip(correct, number, strict=True))


def mean_per_class_accuracy(
    index: Int[np.ndarray, " images"], labels: Int[np.ndarray, " images"], classes: int
) -> float:
    """Return the mean of the classes' accuracies, over the classes that have an image; see `per_class_accuracy`."""
    return float(np.mean([found.value for found in per_class_accuracy(index, labels, classes) if found is not None]))
