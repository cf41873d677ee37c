"""Calibration in NumPy: the losses from their definitions, gradients by finite differences, AdamW from its paper."""

from collections.abc import Callable

import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def kullback_leibler(p: np.ndarray, q: np.ndarray) -> float:
    return float(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0))


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    middle = (p + q) / 2
    return (kullback_leibler(p, middle) + kullback_leibler(q, middle)) / 2


def pair_weights(text: np.ndarray, image: np.ndarray, pairs: list[tuple[int, int]], beta: float, kind: str) -> list:
    posterior = softmax(beta * text @ image)
    gaps = [abs(posterior[i] - posterior[j]) for i, j in pairs]
    return {"paper": [1 - gap for gap in gaps], "inverse": gaps, "uniform": [1.0 for _ in gaps]}[kind]


def calibration_loss(
    text: np.ndarray, common: np.ndarray, pairs: list[tuple[int, int]], weights: list, beta: float
) -> float:
    total = 0.0
    for (i, j), z, weight in zip(pairs, common, weights, strict=True):
        total += weight * jensen_shannon(softmax(beta * text[[i, j]] @ z), np.array([0.5, 0.5]))
    return total / len(pairs)


def alignment_loss(text: np.ndarray, reference: np.ndarray) -> float:
    cosines = [
        new @ old / (np.linalg.norm(new) * np.linalg.norm(old)) for new, old in zip(text, reference, strict=True)
    ]
    return 1 - sum(cosines) / len(cosines)


def gradient(function: Callable[[np.ndarray], float], point: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Return the gradient by central differences."""
    result = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        offset = np.zeros_like(point)
        offset[index] = step
        result[index] = (function(point + offset) - function(point - offset)) / (2 * step)
    return result


def adamw(
    point: np.ndarray, slope: Callable[[np.ndarray], np.ndarray], lr: float, steps: int, betas=(0.9, 0.999), eps=1e-8
) -> np.ndarray:
    """Return where AdamW without weight decay ends, from a state of zeros."""
    first, second = np.zeros_like(point), np.zeros_like(point)
    for step in range(1, steps + 1):
        g = slope(point)
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * g**2
        corrected = first / (1 - betas[0] ** step), second / (1 - betas[1] ** step)
        point = point - lr * corrected[0] / (np.sqrt(corrected[1]) + eps)
    return point
