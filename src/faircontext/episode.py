"""An episode: everything that one test image needs, computed at most once and shared by all methods."""

from functools import cached_property
from types import NoneType

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from faircontext.errors import ArgumentError, check_minimum, check_type
from faircontext.evidence import Masks, Occluder, occlude, sample_masks
from faircontext.labels import LabelSpace
from faircontext.seeding import Purpose
from faircontext.types import Image
from faircontext.views import ViewRecipe, Views

__all__ = ["Episode"]


class Episode:
    """One image, its views and features, and its own random streams; nothing in it outlives the image.

    Everything is lazy: zero-shot alone builds no views.

    Args:
        image: decoded RGB pixels, see `load_image`.
        labels: the label space, and with it the backbone.
        recipe: how views are made; None for the paper's.
        seed: the run's seed.
    """

    def __init__(self, image: Image, labels: LabelSpace, recipe: ViewRecipe | None = None, seed: int = 0) -> None:
        check_type("seed", seed, (int, np.integer))
        check_minimum("seed", seed, 0)
        check_type("labels", labels, LabelSpace)
        check_type("recipe", recipe, (ViewRecipe, NoneType))
        check_type("image", image, np.ndarray, "use load_image")
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise ArgumentError(
                f"image of shape {image.shape} and type {image.dtype} is not possible; use load_image, or an array of "
                "shape (height, width, 3) and type uint8"
            )
        pixels = np.array(image, order="C")  # a copy: the caller may go on with the array
        self._take(Views(pixels, labels.backbone.geometry, recipe or ViewRecipe(), seed), labels)

    @classmethod
    def of(cls, views: Views, labels: LabelSpace) -> "Episode":
        """Return the episode of an image whose views are made elsewhere, for this backbone's geometry."""
        episode = cls.__new__(cls)
        episode._take(views, labels)
        return episode

    def _take(self, views: Views, labels: LabelSpace) -> None:
        self.labels = labels
        self.backbone = labels.backbone
        self.recipe = views.recipe
        self.seed = views.seed
        self._views = views
        self._others: dict[str, Episode] = {}
        self._masked: dict[tuple[object, ...], tuple[Masks, Tensor]] = {}

    @property
    def id(self) -> str:
        """SHA-256 of the pixels; with the seed it determines all random numbers."""
        return self._views.id

    def stream(self, purpose: Purpose) -> np.random.Generator:
        """Return a fresh generator of the image's stream for a purpose."""
        return self._views.stream(purpose)

    @property
    def plain(self) -> UInt8[Tensor, "3 size size"]:
        """The plain view `u_1`."""
        return self._views.plain

    @cached_property
    def x(self) -> Float[Tensor, "3 size size"]:
        """The test image as masks see it: `u_1` with values in [0, 1], on the backbone's device."""
        return self.plain.to(self.backbone.device) / 255.0

    @property
    def views(self) -> UInt8[Tensor, "views 3 size size"]:
        """All views, the plain one first."""
        return self._views.all

    @cached_property
    def view_features(self) -> Float[Tensor, "views dim"]:
        """Unit-norm image features of the views."""
        chunks = self.views.split(self.backbone.batch_size)
        return torch.cat([self.backbone.encode_image(chunk.to(self.backbone.device) / 255.0) for chunk in chunks])

    @cached_property
    def z(self) -> Float[Tensor, " dim"]:
        """The embedding of the plain view: the first of the views' features where they are known."""
        if "view_features" in self.__dict__:
            return self.view_features[0]
        return self.backbone.encode_image(self.x[None])[0]

    def take_z(self, z: Float[Tensor, " dim"]) -> None:
        """Take the embedding of the plain view, encoded in one batch with those of other images."""
        self.__dict__["z"] = z

    @property
    def augmented(self) -> "Episode":
        """The same image with AugMix on its crops: a second set of views, which shares the plain one."""
        if "augmix" not in self._others:
            other = Episode.of(self._views.augmented, self.labels)
            other.take_z(self.z)
            self._others["augmix"] = other
        return self._others["augmix"]

    def on(self, name: str) -> "Episode":
        """Return the same image, with the same crops, on another backbone: in its own size and normalisation.

        Args:
            name: see `LabelSpace.on`.
        """
        if name not in self._others:
            labels = self.labels.on(name)
            self._others[name] = Episode.of(self._views.on(labels.backbone.geometry), labels)
        return self._others[name]

    def masked_features(
        self, count: int, grids: tuple[int, ...], fraction: float | tuple[float, float], occluder: Occluder
    ) -> tuple[Masks, Float[Tensor, "masks dim"]]:
        """Return the image's masks and the features of its masked copies (paper, "Class Evidence Map Estimation").

        Masked images are made and encoded batch by batch, so memory does not grow with their number.

        Args:
            count: number of masks.
            grids: grid sizes that a mask is drawn from.
            fraction: of the cells that is occluded, or a range.
            occluder: what occluded pixels become.
        """
        key = (grids, fraction, occluder)
        if key not in self._masked or len(self._masked[key][0]) < count:
            masks = sample_masks(count, self.stream("masks"), grids, fraction)
            height, width = self.x.shape[1:]
            features = []
            for start in range(0, count, self.backbone.batch_size):
                pixels = masks.pixels(start, start + self.backbone.batch_size, height, width).to(self.x.device)
                features.append(self.backbone.encode_image(occlude(self.x, pixels, occluder)))
            self._masked[key] = masks, torch.cat(features)
        masks, encoded = self._masked[key]  # the first masks of a longer run are the shorter run
        return Masks(masks.cells[:count]), encoded[:count]
