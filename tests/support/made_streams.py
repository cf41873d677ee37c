"""Streams that are made: features of images with ties, duplicates and NaN, and episodes that have them."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from faircontext import Backbone, Episode, LabelSpace, Prediction, StreamMethod, StreamState, ViewRecipe
from faircontext.errors import FeatureError

__all__ = ["DIM", "episode_of", "labels_of", "make_stream", "take_steps"]

DIM = 32
"""Of the tiny model's features."""


def make_stream(classes: int, n: int = 300, views: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return features (images, views, dim) and texts (classes, dim), unit norm but for some images that are NaN.

    A fifth are copies of earlier images, some lie between two classes, and with ten classes two have one text.
    """
    draw = torch.Generator().manual_seed(seed)
    text = F.normalize(torch.randn(classes, DIM, generator=draw) + 2.0 * torch.ones(DIM), dim=-1)
    if classes >= 10:
        text[7] = text[3]
    truth = torch.randint(0, classes, (n,), generator=draw)
    mean = text[truth] + 0.10 * torch.randn(n, DIM, generator=draw)
    mean[::11] = text[0] + text[1]  # ties
    features = F.normalize(mean[:, None] + 0.05 * torch.randn(n, views, DIM, generator=draw), dim=-1)
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
    vars(episode)["view_features"] = features
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
