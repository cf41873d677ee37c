"""ECALP from its formulas, in plain NumPy: the whole graph as one dense matrix, made anew for each image."""

import numpy as np

from oracles.losses_of_baselines import unit
from oracles.streams import Array


def nearest(similarities: Array, count: int) -> list[int]:
    """The most similar, the first of equal ones first."""
    return np.argsort(-np.asarray(similarities), kind="stable")[:count].tolist()


class ECALP:
    """All images of one stream, and the label and value that each has from the last propagation."""

    def __init__(
        self, text: Array, k_text: int = 3, k_image: int = 8, gamma: float = 10.0, iterations: int = 3
    ) -> None:
        self.text, self.gamma, self.iterations = np.float64(text), gamma, iterations
        self.k_text, self.k_image = k_text, k_image
        variance = np.var(self.text, axis=0, ddof=1)
        self.weights = variance / np.sqrt((variance**2).sum())
        self.images: list[Array] = []
        self.labels: list[tuple[int, float]] = []

    def graph(self, images: Array) -> Array:
        """Directed edges from images; the first nodes are the classes."""
        classes, n = len(self.text), len(images)
        weighted = unit(images * self.weights)
        similarities = np.float64(np.float32(weighted @ images.T))  # the weight is on the rows
        to_text = np.float64(np.float32(images @ self.text.T))
        edges = np.zeros((classes + n, classes + n))
        for i in range(n):
            row = [similarities[min(i, j), max(i, j)] for j in range(n)]  # the weight is on the older one
            for j in nearest(row, self.k_image):
                edges[classes + i, classes + j] = row[j] ** self.gamma
            for c in nearest(to_text[i], self.k_text):
                edges[classes + i, c] = to_text[i, c] ** self.gamma
        return edges

    def answer(self, z: Array) -> Array | None:
        """Answer an image by the labels that reach its copy; None where none does."""
        self.images.append(np.float64(z))
        classes = len(self.text)
        edges = self.graph(np.array([*self.images, self.images[-1]]))
        edges = edges + edges.T
        roots = 1 / (np.sqrt(edges.sum(1)) + 1e-6)
        normed = (roots[:, None] * edges * roots)[classes:]
        labels = np.zeros((len(self.images) + 1, classes))
        for i, (label, value) in enumerate(self.labels):
            labels[i, label] = value
        for _ in range(self.iterations):
            labels = normed @ np.vstack([np.eye(classes), labels])
        rounded = np.float32(labels)
        self.labels = [(int(row.argmax()), float(np.float32(row.max() / 5))) for row in rounded[:-1]]
        return labels[-1] / labels[-1].sum() if labels[-1].any() else None
