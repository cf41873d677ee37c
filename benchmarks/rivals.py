"""What the package's evidence maps are compared with, as published or as a library has it.

Cost is counted in encoded images. A method that needs gradients counts a pass backward as two images.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from explainers import PORTION, SIDE, Subject
from torch import Tensor

from faircontext import Backbone
from faircontext.evidence import Masks

__all__ = ["GradCam", "Lime", "Rise", "Sliding"]


def _score(posterior: Tensor, log: bool) -> Tensor:
    return posterior.log() if log else posterior


@dataclass(frozen=True)
class Rise:
    """RISE as published (Petsiuk et al., 2018): `S = 1 / (N p) sum_n pi(x M_n) M_n`, M being what is kept.

    A mask is a binary grid, each cell kept with probability p, raised bilinearly to one cell more than the image, of
    which a window at a random place is cut.
    """

    title: str = "RISE"
    grid: int = 7
    p: float = 0.5

    def _draws(self, subject: Subject, count: int) -> tuple[np.ndarray, np.ndarray]:
        cell = math.ceil(subject.episode.x.shape[-1] / self.grid)
        cells = subject.random("rise cells").random((count, self.grid, self.grid)) < self.p
        return cells.astype(np.float32), subject.random("rise shifts").integers(0, cell, (count, 2))

    def masks(self, subject: Subject, count: int, start: int, stop: int) -> Tensor:
        """Return masks at the size of the image, as floats."""
        size = subject.episode.x.shape[-1]
        cells, shifts = (drawn[start:stop] for drawn in self._draws(subject, count))
        side = (self.grid + 1) * math.ceil(size / self.grid)
        raised = F.interpolate(torch.from_numpy(cells)[:, None], size=(side, side), mode="bilinear")[:, 0]
        return torch.stack(
            [mask[row : row + size, column : column + size] for mask, (row, column) in zip(raised, shifts, strict=True)]
        )

    def _posterior(self, subject: Subject, count: int) -> Tensor:
        known = subject.remember(self, dict)
        if len(known.get("posterior", ())) < count:
            features = subject.encode(
                {"kind": "rise", "grid": self.grid, "p": self.p},
                count,
                lambda start, stop: subject.episode.x * self.masks(subject, count, start, stop)[:, None],
            )
            known["posterior"] = subject.posterior(features).float()
        return known["posterior"][:count]

    def maps(self, subject: Subject, count: int) -> Tensor:
        """See `Explainer`."""
        posterior = self._posterior(subject, count)
        total = torch.zeros(posterior.shape[1], SIDE, SIDE)
        for start in range(0, count, PORTION):
            masks = self.masks(subject, count, start, min(start + PORTION, count))
            small = F.interpolate(masks[:, None], size=(SIDE, SIDE), mode="area")[:, 0]
            total += torch.einsum("nc,nhw->chw", posterior[start : start + PORTION], small)
        return total / (count * self.p)


@dataclass(frozen=True)
class Sliding:
    """Plain occlusion: a black square slides over the image; a pixel has the mean fall of the score under it.

    With n images encoded the square stops at `floor(sqrt(n))` places along each side, at equal steps, flush with the
    edges.

    Attributes:
        window: side of the square, as a fraction of the image's; None for twice the step.
        log: whether the score is the log-posterior, as in the package's maps, and not the posterior.
    """

    title: str = "sliding occlusion"
    window: float | None = None
    log: bool = False

    def _places(self, size: int, count: int) -> tuple[int, np.ndarray]:
        stops = math.isqrt(count)
        side = max(1, round(size * (2 / (stops + 1) if self.window is None else self.window)))
        return side, np.linspace(0, size - side, stops).round().astype(int)

    def maps(self, subject: Subject, count: int) -> Tensor:
        """See `Explainer`."""
        size = subject.episode.x.shape[-1]
        side, starts = self._places(size, count)
        places = [(row, column) for row in starts.tolist() for column in starts.tolist()]

        def pixels(start: int, stop: int) -> Tensor:
            copies = subject.episode.x.repeat(stop - start, 1, 1, 1)
            for copy, (row, column) in zip(copies, places[start:stop], strict=True):
                copy[:, row : row + side, column : column + side] = 0.0
            return copies

        features = subject.encode({"kind": "sliding", "side": side, "stops": len(starts)}, len(places), pixels)
        whole, scores = (_score(subject.posterior(found), self.log) for found in (subject.z, features))
        falls = (whole - scores).float()
        total, seen = torch.zeros(falls.shape[1], size, size), torch.zeros(size, size)
        for fall, (row, column) in zip(falls, places, strict=True):
            total[:, row : row + side, column : column + side] += fall[:, None, None]
            seen[row : row + side, column : column + side] += 1
        return F.interpolate((total / seen.clamp_min(1))[None], size=(SIDE, SIDE), mode="area")[0]


@dataclass(frozen=True)
class Lime:
    """LIME of the library captum: a lasso of the score on which squares of a grid are kept, others being black.

    Captum sees the squares, not the pixels, and asks for the posterior of its samples; similarity is that of the
    squares (exponential kernel of the cosine distance, width 0.25, as in LIME for images).

    Attributes:
        grid: squares along a side.
        alpha: of the lasso; captum's default is 0.01.
        log: see `Sliding`.
    """

    title: str = "LIME (captum)"
    grid: int = 7
    alpha: float = 0.01
    log: bool = False

    def _cells(self, subject: Subject, count: int) -> np.ndarray:
        return subject.random("lime").random((count, self.grid**2)) < 0.5

    def _posterior(self, subject: Subject, count: int) -> Tensor:
        known = subject.remember(("lime", self.grid), dict)
        if len(known.get("posterior", ())) < count:
            masks = Masks(tuple(torch.from_numpy(~self._cells(subject, count)).view(-1, self.grid, self.grid)))
            size = subject.episode.x.shape[-1]
            features = subject.encode(
                {"kind": "lime", "grid": self.grid},
                count,
                lambda start, stop: subject.episode.x * ~masks.pixels(start, stop, size, size)[:, None],
            )
            known["posterior"] = subject.posterior(features).float()
        return known["posterior"][:count]

    def maps(self, subject: Subject, count: int) -> Tensor:
        """See `Explainer`."""
        from captum._utils.models.linear_model import SkLearnLasso
        from captum.attr import Lime as CaptumLime
        from captum.attr._core.lime import get_exp_kernel_similarity_function

        posterior = self._posterior(subject, count)
        cells = torch.from_numpy(self._cells(subject, count)).long()

        def samples(*_: object, **__: object) -> Iterator[Tensor]:
            yield from cells[:, None]

        weights = []
        for scores in _score(posterior, self.log).T:
            lime = CaptumLime(
                lambda rows, scores=scores: scores[: len(rows)],  # samples come in their order, all at once
                SkLearnLasso(alpha=self.alpha, max_iter=20_000),
                get_exp_kernel_similarity_function("cosine", 0.25),
                samples,
            )
            ones = torch.ones(1, self.grid**2)
            weights.append(lime.attribute(ones, n_samples=count, perturbations_per_eval=count)[0])
        small = torch.stack(weights).view(1, -1, self.grid, self.grid)
        return F.interpolate(small, size=(SIDE, SIDE), mode="nearest-exact")[0]


class _Posterior(torch.nn.Module):
    """A backbone as a classifier that gradients go through."""

    def __init__(self, backbone: Backbone, text: Tensor, beta: float) -> None:
        super().__init__()
        self.image_encoder = backbone.image_encoder
        self._parts = backbone, text, beta

    def forward(self, pixels: Tensor) -> Tensor:
        """Return log-posteriors."""
        backbone, text, beta = self._parts
        return (beta * backbone.encode_with({}, pixels) @ text.T).log_softmax(-1)


@dataclass(frozen=True)
class GradCam:
    """Grad-CAM of the library torchcam, of the log-posterior; see `layer` for where.

    One pass forward, and one backward for each class: as much as `1 + 2 classes` encoded images, whatever is asked for.
    """

    title: str = "Grad-CAM (torchcam)"

    @staticmethod
    def layer(backbone: Backbone) -> torch.nn.Module:
        """Return the layer whose activations are weighted: a ViT's patches, else the last convolution."""
        encoder: Any = backbone.image_encoder
        if hasattr(encoder, "conv1"):
            return encoder.conv1
        return getattr(encoder, "trunk", encoder).conv_head

    @staticmethod
    def cost(classes: int) -> int:
        """Return the cost of maps of all classes, in encoded images."""
        return 1 + 2 * classes

    def maps(self, subject: Subject, count: int) -> Tensor:
        """See `Explainer`; the maps do not depend on `count`, which must be their cost at least."""
        from torchcam.methods import GradCAM

        if count < self.cost(len(subject.text)):
            raise ValueError(f"{self.title} costs {self.cost(len(subject.text))} encoded images, more than {count}")
        backbone = subject.episode.backbone
        model = _Posterior(backbone, subject.text, subject.beta)
        with GradCAM(model, target_layer=self.layer(backbone)) as extractor:
            scores = model(subject.episode.x[None].clone().requires_grad_())
            found = [extractor(label, scores, retain_graph=True)[0] for label in range(scores.shape[1])]
        return F.interpolate(torch.stack(found, 1).float(), size=(SIDE, SIDE), mode="bilinear").detach()[0]
