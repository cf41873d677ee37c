"""ECALP: labels spread from class names over a graph of all images so far."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import FeatureError
from faircontext.explore import scores
from faircontext.labels import LabelSpace
from faircontext.methods.base import Limits, register_method
from faircontext.methods.predict import fall_back, predict_by_probabilities
from faircontext.methods.stream import StateUpdate, StreamMethod, StreamState, on_cpu, text_on_cpu
from faircontext.types import Prediction

_TINY = 1e-6
"""What the root of a node's degree is raised by."""
_DECAY = 5.0
"""What an image's label is divided by before the next image's propagation starts from it."""


class Neighbours(NamedTuple):
    """Of each image its most similar ones, the most similar first, equal ones by age; what is unused is -1 and -inf."""

    indices: Int[Tensor, "images neighbours"]
    similarities: Float[Tensor, "images neighbours"]

    def append(self, indices: Int[Tensor, " some"], similarities: Float[Tensor, " some"]) -> "Neighbours":
        """Return them with those of a further image, of which there may be fewer."""
        unused = (0, self.indices.shape[1] - len(indices))
        own = F.pad(indices, unused, value=-1), F.pad(similarities, unused, value=-torch.inf)
        return Neighbours(*(torch.cat([rows, row[None]]) for rows, row in zip(self, own, strict=True)))


def class_variance(text: Float[Tensor, "classes dim"]) -> Float[Tensor, " dim"]:
    """Return the unit-norm variance of the text features over the classes, by which dimensions are weighted.

    Raises:
        FeatureError: all classes have the same text features.
    """
    variance = text.var(0)
    if not variance.any():
        raise FeatureError("all classes have the same text features")
    return F.normalize(variance, dim=-1)


def insert_node(neighbours: Neighbours, similarities: Float[Tensor, " nodes"]) -> Neighbours:
    """Add a node to the graph: to the lists of the nodes before it, and with a list of its own.

    Args:
        neighbours: of the nodes before it.
        similarities: to the nodes before it and, last, to itself.
    """
    count, width = neighbours.indices.shape
    values = torch.cat([neighbours.similarities, similarities[:count, None]], 1)
    indices = torch.cat([neighbours.indices, torch.full((count, 1), count)], 1)
    order = values.sort(dim=1, descending=True, stable=True).indices[:, :width]
    first = similarities.sort(descending=True, stable=True).indices[:width]
    return Neighbours(indices.gather(1, order), values.gather(1, order)).append(first, similarities[first])


def propagate(
    neighbours: Neighbours,
    texts: Neighbours,
    start: Float[Tensor, "images classes"],
    gamma: float,
    iterations: int,
) -> Float[Tensor, "images classes"]:
    """Spread labels over images; those of the classes' texts are fixed (paper, label propagation with alpha = 1).

    Args:
        neighbours: edges from images to images.
        texts: edges from images to classes.
        start: labels of the images.
        gamma: power of similarities that gives weights of edges.
        iterations: how often labels move along the edges.
    """
    nodes, classes = start.shape
    used = neighbours.indices >= 0
    source, target = used.nonzero()[:, 0], neighbours.indices[used]
    weights = neighbours.similarities[used].double() ** gamma
    to_text = texts.similarities.double() ** gamma
    source, target, weights = torch.cat([source, target]), torch.cat([target, source]), torch.cat([weights, weights])
    degrees = to_text.sum(1).index_add(0, source, weights)
    text_degrees = torch.zeros(classes, dtype=torch.float64).index_add(0, texts.indices.flatten(), to_text.flatten())
    roots, text_roots = (1.0 / (of.sqrt() + _TINY) for of in (degrees, text_degrees))
    order = source.sort(stable=True).indices
    source, target, weights = source[order], target[order], (weights * roots[source] * roots[target])[order]
    offsets = torch.bincount(source, minlength=nodes).cumsum(0).roll(1)
    offsets[0] = 0
    from_text = torch.zeros(nodes, classes, dtype=torch.float64)
    from_text.scatter_(1, texts.indices, to_text * roots[:, None] * text_roots[texts.indices])
    labels = start.double()
    for _ in range(iterations):
        labels = from_text + F.embedding_bag(target, labels, offsets, mode="sum", per_sample_weights=weights)
    return labels


@register_method("ecalp", "spreads labels from class names over a graph of all images so far; in order")
@dataclass(frozen=True)
class ECALP(StreamMethod):
    """Efficient and context-aware label propagation (Li et al., ICLR 2025), without labelled images.

    The state is all images so far: their features, their edges in the graph, and of each the label and value that the
    last propagation gave it. It grows with the stream, and so does the time for an image.

    Attributes:
        k_text: edges of each image to classes.
        k_image: edges of each image to images, itself among them.
        gamma: power of similarities that gives weights of edges.
        iterations: how often labels move along the edges.
    """

    uses_views: ClassVar[bool] = False
    setting_limits: ClassVar[Limits] = dict.fromkeys(("k_text", "k_image", "gamma", "iterations"), (0, 1000))

    k_text: int = 3
    k_image: int = 8
    gamma: int = 10
    iterations: int = 3

    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:  # noqa: ARG002
        """Return a graph without images."""
        texts = min(self.k_text, len(labels))
        return {
            "features": torch.zeros(0, text_on_cpu(labels).shape[1]),
            "neighbours": torch.zeros(0, self.k_image, dtype=torch.long),
            "similarities": torch.zeros(0, self.k_image),
            "texts": torch.zeros(0, texts, dtype=torch.long),
            "text_similarities": torch.zeros(0, texts),
            "labels": torch.zeros(0, dtype=torch.long),
            "values": torch.zeros(0),
        }

    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        """Put the image into the graph, spread labels, and answer from a copy of it that is taken out again."""
        kept, space, z = state.tensors, episode.labels, on_cpu(episode.z)
        text = text_on_cpu(space)
        variance = space.remember("ecalp", lambda: class_variance(text))
        features = torch.cat([kept["features"], z[None]])
        # The weight is on the older image of a pair, and of the image with itself.
        weighted = features.double() * variance
        similarities = (weighted @ z.double() / weighted.norm(dim=1)).float()
        neighbours = insert_node(Neighbours(kept["neighbours"], kept["similarities"]), similarities)
        closeness = scores(z, text)
        closest = closeness.sort(descending=True, stable=True).indices[: kept["texts"].shape[1]]
        texts = Neighbours(kept["texts"], kept["text_similarities"]).append(closest, closeness[closest])
        start = torch.zeros(len(features) + 1, len(space), dtype=torch.float64)
        start[torch.arange(state.seen), kept["labels"]] = kept["values"].double()
        labels = propagate(
            insert_node(neighbours, torch.cat([similarities, similarities[-1:]])),
            texts.append(closest, closeness[closest]),
            start,
            self.gamma,
            self.iterations,
        )
        best = labels[:-1].float().max(1)

        def update() -> None:
            kept["features"] = features
            kept["neighbours"], kept["similarities"] = neighbours
            kept["texts"], kept["text_similarities"] = texts
            kept["labels"], kept["values"] = best.indices, best.values / _DECAY

        return self._predict(episode, labels[-1], len(features), closeness), update

    def _predict(
        self, episode: Episode, labels: Float[Tensor, " classes"], memory: int, closeness: Float[Tensor, " classes"]
    ) -> Prediction:
        """Answer by the labels that reached the image; classes that none did rank as by zero-shot."""
        total = labels.sum()
        if not total > 0:
            reason = "no label reached the image: answered by zero-shot"
            return fall_back(episode, episode.labels.zero_shot_text, reason)
        return predict_by_probabilities(labels / total, {"memory": memory}, closeness)
