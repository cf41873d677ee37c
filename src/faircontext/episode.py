"""An episode: everything that one test image needs, computed at most once and shared by all methods."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict
from functools import cache, cached_property, partial
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from faircontext.backbones.base import DROPPABLE_PATCHES, require
from faircontext.cache import cached_features
from faircontext.errors import ArgumentError, check_minimum, check_type
from faircontext.evidence import Masks, importance, sample_masks
from faircontext.files import digest
from faircontext.labels import LabelSpace
from faircontext.ledger import Ledger
from faircontext.occlusion import Filling, Occluder, occlude, on_patches
from faircontext.types import Image
from faircontext.views import Geometry, Purpose, ViewRecipe, Views

T = TypeVar("T")


class Episode:
    """One image, its views and features, and its own random streams; nothing in it outlives the image.

    Everything is lazy: zero-shot alone builds no views.

    Args:
        image: decoded RGB pixels, see `load_image`.
        labels: the label space, and with it the backbone.
        recipe: how views are made; None for the paper's.
        seed: the run's seed.

    Attributes:
        known: what has been computed, by key, see `remember`.
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
    def of(cls, views: Views, labels: LabelSpace, features: Path | None = None) -> "Episode":
        """Return the episode of an image whose views are made elsewhere, for this backbone's geometry.

        Args:
            views: of the image.
            labels: the label space.
            features: folder where image features are stored, for other runs on the same image; None stores none.
        """
        episode = cls.__new__(cls)
        episode._take(views, labels, features)
        return episode

    def _take(self, views: Views, labels: LabelSpace, features: Path | None = None) -> None:
        self.labels = labels
        self.backbone = labels.backbone
        self.recipe = views.recipe
        self.seed = views.seed
        self._views = views
        self._features = features
        self.known: dict[Hashable, Any] = {}
        self.ledger = Ledger(self.backbone.wait)

    def _related(self, views: Views, labels: LabelSpace) -> "Episode":
        """Return the episode of other views of this image, whose seconds are in the same ledger."""
        other = Episode.of(views, labels, self._features)
        other.ledger = self.ledger
        return other

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return something that is computed once for this image and shared by methods; its seconds are in the ledger.

        Args:
            key: all that it depends on, besides the image and its views.
            compute: makes it.
        """
        if key not in self.known:
            with self.ledger.computing((id(self), key)):
                self.known[key] = compute()
        self.ledger.use((id(self), key))
        return cast(T, self.known[key])

    def _encode(
        self,
        kind: str,
        key: Mapping[str, object],
        rows: int,
        encode: Callable[[int], Tensor],
        known: Tensor | None = None,
    ) -> Float[Tensor, "rows dim"]:
        """Encode pictures made from this image, or take their features from the folder of features.

        Args:
            kind: what the pictures are.
            key: what they depend on besides image, seed and backbone, other than their number.
            rows: how many; the first ones of more are these.
            encode: gives the features of those from an index to the last.
            known: features of the first ones, where some have been encoded.
        """

        def compute() -> Tensor:
            return encode(0) if known is None else torch.cat([known, encode(len(known))])

        if self._features is None:
            return compute()
        backbone = self.backbone
        entry = {
            **key,
            "kind": kind,
            "image": self.id,
            "seed": self.seed,
            "backbone": backbone.name,
            "geometry": asdict(self.geometry),
            "normalisation": [*backbone.mean, *backbone.std],
            "weights": backbone.weights_hash,
            "activation": backbone.facts.get("activation"),
            "precision": backbone.precision,
            "batch_size": backbone.batch_size,
            **backbone.engine_facts,
        }
        return cached_features(self._features, entry, backbone.device, compute, rows, asked=True)[:rows]

    def _encode_made(self, make: Callable[[int, int], Tensor], begin: int, end: int) -> Float[Tensor, "rows dim"]:
        """Encode pictures that are made batch by batch, so that memory does not grow with their number.

        Args:
            make: gives the pixels of those from one index to another.
            begin: the first.
            end: the one after the last.
        """
        size = self.backbone.batch_size
        return self.backbone.encode_parts(make(start, min(start + size, end)) for start in range(begin, end, size))

    @property
    def id(self) -> str:
        """SHA-256 of the pixels; with the seed it determines all random numbers."""
        return self._views.id

    @property
    def geometry(self) -> Geometry:
        """The backbone's input, and how the plain view is made."""
        return self._views.geometry

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
        return self.remember("views", lambda: self._views.all)

    def count_views(self, seconds: float) -> None:
        """Count seconds in which the views were cut elsewhere, for the methods that use them."""
        self.ledger.add((id(self), "views"), seconds)

    @property
    def view_features(self) -> Float[Tensor, "views dim"]:
        """Unit-norm image features of the views."""
        return self.remember("view_features", self._encode_views)

    def _encode_views(self) -> Float[Tensor, "views dim"]:
        recipe = {**self.recipe.facts, "count": None, "regime": None}  # neither changes the first views
        views = cache(lambda: self.views.to(self.backbone.device))  # made where features are not stored, copied once

        def make(start: int, stop: int) -> Tensor:
            return views()[start:stop] / 255.0

        count = self.recipe.count
        return self._encode("views", recipe, count, lambda begin: self._encode_made(make, begin, count))

    @property
    def z(self) -> Float[Tensor, " dim"]:
        """The embedding of the plain view: the first of the views' features where they are known."""
        return self.remember("z", self._encode_plain)

    def _encode_plain(self) -> Float[Tensor, " dim"]:
        if (features := self.known.get("view_features")) is not None:
            self.ledger.use((id(self), "view_features"), 1 / len(features))  # its own share of the batch
            return cast(Tensor, features[0])
        return self._encode("plain", {}, 1, lambda _: self.backbone.encode_image(self.x[None]))[0]

    def encode_z(self, encode: Callable[[], Float[Tensor, "1 dim"]]) -> None:
        """Take the embedding of the plain view from the folder of features, or from a batch of several images.

        Args:
            encode: gives it; where it is stored, it is not called.
        """
        self.take_z(self._encode("plain", {}, 1, lambda _: encode())[0])

    def take_z(self, z: Float[Tensor, " dim"]) -> None:
        """Take the embedding of the plain view, encoded in one batch with those of other images."""
        self.known["z"] = z

    @property
    def augmented(self) -> "Episode":
        """The same image with AugMix on its crops: a second set of views, which shares the plain one."""

        def make() -> Episode:
            other = self._related(self._views.augmented, self.labels)
            other.take_z(self.z)
            return other

        return self.remember("augmix", make)

    def on(self, name: str) -> "Episode":
        """Return the same image, with the same crops, on another backbone: in its own size and normalisation.

        Args:
            name: see `LabelSpace.on`.
        """

        def make() -> Episode:
            labels = self.labels.on(name)
            return self._related(self._views.on(labels.backbone.geometry), labels)

        return self.remember(("on", name), make)

    def with_seed(self, seed: int) -> "Episode":
        """Return the same image with other random numbers: its plain view is shared, views and masks are not."""
        other = self._related(self._views.with_seed(seed), self.labels)
        other.take_z(self.z)
        return other

    def masked_features(
        self, count: int, grids: tuple[int, ...], gamma: float | tuple[float, float], occluder: Occluder = "black"
    ) -> tuple[Masks, Float[Tensor, "masks dim"]]:
        """Return the image's masks and the features of its masked copies (paper, "Class Evidence Map Estimation").

        Masked images are made and encoded batch by batch, so memory does not grow with their number.

        Args:
            count: number of masks `N_m`.
            grids: grid sizes that a mask is drawn from.
            gamma: the fraction of cells that is occluded, or a range.
            occluder: what occluded pixels become.
        """
        key = ("masked", grids, gamma, occluder)
        cost = (id(self), key)
        masks, encoded = self.known.get(key, (Masks(()), None))
        if encoded is None or len(masks) < count:
            with self.ledger.computing(cost):
                masks = sample_masks(count, self.stream("masks"), grids, gamma)
                if occluder == "drop":
                    masks = on_patches(masks, require(self.backbone, DROPPABLE_PATCHES).patches, gamma)
                facts = {"grids": grids, "fraction": gamma, "occluder": occluder}  # by its name in stored features
                encode = partial(self._encode_masked, masks.to(self.backbone.device), occluder, count)
                encoded = self._encode("masked", facts, count, encode, encoded)
                self.known[key] = masks, encoded
        self.ledger.use(cost, count / max(1, len(encoded)))  # the first masks of a longer run are the shorter run
        return masks.first(count), encoded[:count]

    def _encode_masked(self, masks: Masks, occluder: Occluder, count: int, begin: int) -> Float[Tensor, "masks dim"]:
        """Encode the copies of the image that masks from `begin` on give, made where the image is."""
        if occluder == "drop":  # the picture's patches are embedded once
            cells = torch.stack(masks.cells[begin:count])
            return require(self.backbone, DROPPABLE_PATCHES).encode_without(self.x, cells)
        filling: Filling = occluder

        def make(start: int, stop: int) -> Tensor:
            return occlude(self.x, masks.pixels(start, stop, *self.x.shape[1:]), filling)

        return self._encode_made(make, begin, count)

    def importance(
        self,
        text: Float[Tensor, "classes dim"],
        beta: float,
        count: int,
        grids: tuple[int, ...],
        gamma: float | tuple[float, float],
        occluder: Occluder = "black",
    ) -> tuple[Float[Tensor, "masks classes"], Masks]:
        """Return `dl_c(M)` of some classes, and the masks (paper, "Class Evidence Map Estimation").

        Args:
            text: unit-norm text features of the classes; the posterior is a softmax over them alone.
            beta: inverse temperature.
            count: number of masks `N_m`.
            grids: see `masked_features`.
            gamma: see there.
            occluder: see there.
        """
        masks, features = self.masked_features(count, grids, gamma, occluder)
        return importance(self.z, features, text, beta), masks

    def weighted_features(self, maps: Float[Tensor, "maps height width"]) -> Float[Tensor, "maps dim"]:
        """Return the features of the image weighted by maps, `x * map`: in float, never quantised to 8 bits.

        Maps that are the same are encoded once.
        """
        firsts, likes = distinct_maps(maps)
        if len(firsts) < len(maps):
            return self.weighted_features(maps[firsts])[likes]
        # Known by their content: maps depend on all of text, beta, masks and scaling.
        key = {"maps": digest(maps.cpu().contiguous().numpy().data)} if self._features is not None else {}

        def make(start: int, stop: int) -> Tensor:
            return self.x * maps[start:stop, None]

        return self._encode("weighted", key, len(maps), lambda begin: self._encode_made(make, begin, len(maps)))


def distinct_maps(maps: Float[Tensor, "maps height width"]) -> tuple[list[int], list[int]]:
    """Return which maps are no copies of an earlier one, and for each map the position of its like among those."""
    firsts: list[int] = []
    likes: list[int] = []
    sums = maps.flatten(1).sum(1, dtype=torch.float64).tolist()
    for row, total in enumerate(sums):
        equal = (at for at, first in enumerate(firsts) if sums[first] == total and torch.equal(maps[first], maps[row]))
        likes.append(next(equal, len(firsts)))
        if likes[-1] == len(firsts):
            firsts.append(row)
    return firsts, likes
