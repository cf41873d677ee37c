"""Ways from some encoded images to a map for each class: what they share, and the package's own; see `rivals`.

All look at one image through the same posterior, a softmax over the same classes at the same temperature. What they
encode does not depend on how much of it is used: the first n masks are those of a run of n. Features are kept in a
folder in portions, so that a longer run goes on where a shorter one ended.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from faircontext import Episode, LabelSpace
from faircontext.backbones.towers import cached_features
from faircontext.evidence import Estimator, Evidence, Masks, importance, sample_masks

__all__ = ["PAPER_GRIDS", "PORTION", "SIDE", "Estimated", "Explainer", "Subject"]

SIDE = 112
"""Points along a side at which maps are compared, every second pixel of most models."""

PORTION = 200
"""Features that are kept in one file."""

PAPER_GRIDS = (7, 9, 11, 13)


class Subject:
    """An image that is explained.

    Args:
        pixels: RGB, of shape (height, width, 3).
        labels: the classes, and with them the backbone.
        beta: inverse temperature of the posterior.
        features: folder in which features are kept; None keeps none.
        seed: of the masks.
    """

    def __init__(
        self, pixels: np.ndarray, labels: LabelSpace, beta: float, features: Path | None = None, seed: int = 0
    ) -> None:
        self.episode = Episode(pixels, labels, seed=seed)
        self.text = labels.text[0]
        self.beta = beta
        self._features = features
        self._known: dict[object, object] = {}

    @cached_property
    def z(self) -> Tensor:
        """The embedding of the whole image."""
        return self.encode({"kind": "whole"}, 1, lambda _, __: self.episode.x[None])[0]

    def posterior(self, features: Tensor) -> Tensor:
        """Return the posterior of all classes, of shape (..., classes)."""
        return (self.beta * features.double() @ self.text.double().T).softmax(-1)

    def random(self, purpose: str) -> np.random.Generator:
        """Return the image's own random numbers for a purpose."""
        return np.random.default_rng([self.episode.seed, int(self.episode.id, 16), *purpose.encode()])

    def remember(self, key: object, compute: Callable[[], Any]) -> Any:
        """Return what is computed once for this image."""
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]

    def encode(self, facts: Mapping[str, object], count: int, pixels: Callable[[int, int], Tensor]) -> Tensor:
        """Return features of pictures made from the image.

        Args:
            facts: what the pictures depend on besides the image, the seed and the backbone.
            count: how many.
            pixels: makes those from a place to another.
        """
        backbone = self.episode.backbone
        key = {
            **facts,
            "image": self.episode.id,
            "seed": self.episode.seed,
            "geometry": asdict(backbone.geometry),
            "weights": backbone.weights_hash,
            "precision": backbone.precision,
        }
        portions = []
        for start in range(0, count, PORTION):
            stop = min(start + PORTION, count)
            portions.append(
                cached_features(
                    self._features,
                    {**key, "start": start},
                    backbone.device,
                    lambda start=start, stop=stop: torch.cat(
                        [backbone.encode_image(pixels(a, min(a + 16, stop))) for a in range(start, stop, 16)]
                    ),
                    stop - start,
                )[: stop - start]
            )
        return torch.cat(portions)


class Explainer(Protocol):
    """A way to maps.

    Attributes:
        title: what it is called in tables and figures.
    """

    title: str

    def maps(self, subject: Subject, count: int) -> Tensor:
        """Return a map for each class, of shape (classes, SIDE, SIDE), from at most `count` encoded images."""


@dataclass(frozen=True)
class Estimated:
    """The package's own maps: an estimator on masks of grids, see `faircontext.evidence.Evidence`."""

    title: str
    estimator: Estimator
    grids: tuple[int, ...]
    smoothing: float

    def _importance(self, subject: Subject, count: int) -> tuple[Masks, Tensor]:
        known = subject.remember(self.grids, dict)
        if len(known.get("masks", ())) < count:
            episode = subject.episode
            masks = sample_masks(count, episode.stream("masks"), self.grids, 0.5)
            size = episode.x.shape[-1]

            def pixels(start: int, stop: int) -> Tensor:
                return episode.x * ~masks.pixels(start, stop, size, size)[:, None]

            features = subject.encode({"kind": "grids", "grids": self.grids}, count, pixels)
            known["masks"], known["importance"] = masks, importance(subject.z, features, subject.text, subject.beta)
        return known["masks"].first(count), known["importance"][:count]

    def evidence(self, subject: Subject, count: int) -> Evidence:
        """Return the maps with what they were estimated from."""
        masks, found = self._importance(subject, count)
        return Evidence(found, masks, SIDE, SIDE, self.estimator, self.smoothing)

    def maps(self, subject: Subject, count: int) -> Tensor:
        """See `Explainer`."""
        return self.evidence(subject, count).maps
