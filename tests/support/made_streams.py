"""Streams that are made: features of images with ties, duplicates and NaN, and episodes that have them."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from faircontext import Backbone, Episode, LabelSpace, Prediction, StreamMethod, StreamState, ViewRecipe
from faircontext.errors import FeatureError

__all__ = [
    "DIM",
    "Stream",
    "answers",
    "assert_agrees",
    "episode_of",
    "labels_of",
    "make_stream",
    "same_views",
    "take_steps",
]

Stream = tuple[Tensor, Tensor]
"""Features (images, views, dim) and texts (classes, dim)."""

DIM = 32
"""Of the tiny model's features."""


def make_stream(classes: int, n: int = 120, views: int = 1, seed: int = 0, dim: int = DIM) -> Stream:
    """Return features (images, views, dim) and texts (classes, dim), unit norm but for some images that are NaN.

    A fifth are copies of earlier images, some lie between two classes, and with ten classes two have one text.
    """
    draw = torch.Generator().manual_seed(seed)
    text = F.normalize(torch.randn(classes, dim, generator=draw) + 2.0 * torch.ones(dim), dim=-1)
    if classes >= 10:
        text[7] = text[3]
    truth = torch.randint(0, classes, (n,), generator=draw)
    mean = text[truth] + 0.10 * torch.randn(n, dim, generator=draw)
    mean[::11] = text[0] + text[1]  # ties
    features = F.normalize(mean[:, None] + 0.05 * torch.randn(n, views, dim, generator=draw), dim=-1)
    features[::11] = F.normalize(mean[::11, None], dim=-1)
    for index in range(5, n, 5):
        features[index] = features[int(torch.randint(0, index, (), generator=draw))]
    features[13 % n] = features[130 % n] = torch.nan
    return features, text


def labels_of(text: Tensor, backbone: Backbone) -> LabelSpace:
    """Return a label space with given text features."""
    labels = LabelSpace([f"class {number}" for number in range(len(text))], backbone)
    vars(labels)["zero_shot_text"] = text
    return labels


def episode_of(features: Tensor, labels: LabelSpace, number: int = 0) -> Episode:
    """Return the episode of an image with given features (views, dim); its pixels are its number."""
    pixels = np.full((4, 4, 3), number % 256, np.uint8)
    pixels[0, 0, 0] = number // 256
    episode = Episode(pixels, labels, ViewRecipe(count=len(features)))
    episode.known["view_features"] = features
    return episode


def take_steps(
    method: StreamMethod, features: Sequence[Tensor], labels: LabelSpace, state: StreamState, first: int = 0
) -> Iterator[Prediction | None]:
    """Yield the predictions of a stream, None where there is none; the state is changed in place."""
    for number, views in enumerate(features, first):
        try:
            prediction, after = method.step(episode_of(views, labels, number), state)
        except FeatureError:
            yield None
            continue
        assert after is state
        yield prediction


def same_views(rows: Sequence[Sequence[float]], classes: int) -> Stream:
    """Return images of a single view each, of unit length; the classes are the first dimensions."""
    features = F.normalize(torch.tensor(rows), dim=-1)[:, None]
    return features, torch.eye(classes, features.shape[-1])


def answers(
    method: StreamMethod, stream: Stream, backbone: Backbone, horizon: int | None = None
) -> Iterator[tuple[int, Prediction, StreamState]]:
    """Yield of each image that is answered its number, the prediction and the state after it."""
    features, text = stream
    labels = labels_of(text, backbone)
    state = method.start(labels, horizon or len(features))
    for number, prediction in enumerate(take_steps(method, features, labels, state)):
        if prediction is not None:
            yield number, prediction, state


def assert_agrees(
    method: StreamMethod, stream: Stream, backbone: Backbone, answer: Callable[[np.ndarray], np.ndarray]
) -> StreamState:
    """Assert that a method gives an oracle's class and probabilities for each image, and return its last state."""
    features, _ = stream
    for number, prediction, state in answers(method, stream, backbone):
        expected = answer(features[number].numpy())
        assert prediction.fallback is None
        np.testing.assert_allclose(prediction.probabilities, expected, rtol=0, atol=1e-6, err_msg=f"image {number}")
        assert prediction.index == int(np.argmax(np.float32(expected))), number
        assert prediction.diagnostics["t"] == state.seen
    assert state.seen == int(features[:, 0].isfinite().all(-1).sum())
    return state
