"""The image tower: device, precision and engine, checks on a test picture, and batches whose rows are independent."""

import copy
import math
import warnings
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from faircontext.backbones.engines import ENGINES, Choice, is_convolutional
from faircontext.backbones.openvino_tower import OpenVinoTower, openvino_version
from faircontext.backbones.towers import (
    ADAPTABLE_BLOCKS,
    DROPPABLE_PATCHES,
    DTYPES,
    ROW_MULTIPLE,
    TRAINABLE_TOWER,
    USELESS,
    check_weights,
    disagreement,
    hash_of,
    pad_rows,
    probe_picture,
    refuse_features,
    resolve_precision,
    usable_device,
    useless_rows,
)
from faircontext.errors import ArgumentError, FairContextWarning, FeatureError, check_choice, check_type
from faircontext.views import Geometry

if TYPE_CHECKING:
    from faircontext.backbones.split import SplitTower

__all__ = ["ImageEncoder"]

M = TypeVar("M", bound=torch.nn.Module)


class ImageEncoder(ABC):
    """The half of a `Backbone` that encodes images; its attributes are described there."""

    name: str
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str
    resize_mode: str = "shortest"
    logit_scale: float
    _choice: Choice | None = None
    _load_tower: Callable[[], torch.nn.Module]

    def __init__(self, device: str, precision: str, batch_size: int, engine: str = "torch") -> None:
        check_choice("engine", engine, ENGINES)
        check_type("batch_size", batch_size, int)
        if batch_size < ROW_MULTIPLE or batch_size % ROW_MULTIPLE:
            raise ArgumentError(f"batch_size={batch_size} is not possible; use a multiple of {ROW_MULTIPLE}")
        self.device = usable_device(device)
        self.precision = resolve_precision(precision, self.device)
        self.dtype = DTYPES[self.precision]
        self.batch_size = ROW_MULTIPLE if self.device.type == "cpu" else batch_size
        self.requested_engine = engine

    @cached_property
    def tower(self) -> torch.nn.Module:
        """The image tower in PyTorch; where another engine runs a copy of it, it is loaded when it is asked for."""
        self._place_tower(self._load_tower())
        tower: torch.nn.Module = self.__dict__["tower"]
        return tower

    @property
    def engine(self) -> Literal["torch", "openvino"]:
        """What runs the image tower: torch or openvino."""
        return "torch" if self._choice is None or self._choice.copy is None else "openvino"

    @property
    def engine_facts(self) -> dict[str, object]:
        """What records say of the engine; nothing of PyTorch, whose version they have."""
        return {} if self.engine == "torch" else {"engine": {"name": self.engine, "version": openvino_version()}}

    @property
    def arithmetic(self) -> str:
        """Engine, where it is not PyTorch, and precision, in words."""
        return self.precision if self.engine == "torch" else f"OpenVINO {openvino_version()}, {self.precision}"

    @property
    def tower_hash(self) -> str:
        """SHA-256 of the weights of PyTorch's image tower in the precision in which they are used, in hexadecimal."""
        return self._choice.tower_hash if self._choice and self._choice.copy else hash_of(self.tower)

    @property
    def capabilities(self) -> frozenset[str]:
        """What some methods and settings need beyond features: see `towers`."""
        return frozenset({TRAINABLE_TOWER} if self.dtype is torch.float32 else ())

    @property
    def geometry(self) -> Geometry:
        """What views must look like."""
        return Geometry(self.image_size, self.interpolation, self.resize_mode)

    def wait(self) -> None:
        """Wait until the device has done what it was asked for: calls return before."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def _placed(self, tower: M, weights: Mapping[str, Tensor] | None = None) -> M:
        """Check the weights of a tower, by the names in their file or in the module; return it on the device."""
        check_weights(self.name, tower.state_dict() if weights is None else weights)
        return tower.to(self.device).eval().requires_grad_(False)

    def _start_tower(self, load: Callable[[], torch.nn.Module], source: str) -> None:
        """Take a copy of the image tower for the engine that is asked for, or else the tower itself; see `Choice`.

        Args:
            load: makes the tower, in float32.
            source: a hash of all that it is made from.
        """
        self._load_tower = load
        self._choice = Choice(self, self.requested_engine, source)
        if self._choice.copy is None:
            self._place_tower(load())

    def _place_tower(self, tower: torch.nn.Module, weights: Mapping[str, Tensor] | None = None) -> None:
        """Take an image tower, bring it to the device and the precision, and check it there on a test picture.

        Where the device cannot compute in the precision, float32 is used, with a warning.

        Args:
            tower: in float32.
            weights: the tower's, by the names that their file has; None for those that the module has.

        Raises:
            ArgumentError: a weight or the model's scale is not finite, features are useless, or those in the precision
                are not those of float32.
        """
        weights = tower.state_dict() if weights is None else weights
        self.tower = self._placed(tower, weights)
        if not 0 < self.logit_scale < math.inf:
            raise ArgumentError(
                f"{self.name}: the weights cannot be used: cosines would be multiplied by {self.logit_scale} "
                "(exp of logit_scale); take another checkpoint"
            )
        probe = probe_picture(self.image_size).to(self.device)
        with torch.inference_mode():
            exact = self._image_features(probe).float()
            black = self._image_features(torch.zeros_like(probe)).float()
        if useless_rows(F.normalize(exact, dim=-1)).any():
            raise refuse_features(self.name, "a test picture", weights)
        if torch.equal(exact, black):
            raise refuse_features(self.name, "all pictures", weights, "the same")
        if self.dtype is not torch.float32:
            self._lower_tower(probe, exact)
        if self._choice is None and (self.requested_engine != "auto" or is_convolutional(tower)):
            source = "" if self.requested_engine == "torch" else hash_of(tower)
            self._choice = Choice(self, self.requested_engine, source)
        if self._choice is not None and self._choice.undecided:
            self._choice.make(tower, exact)

    def _lower_tower(self, probe: Tensor, exact: Tensor) -> None:
        """Bring the image tower to a lower precision, where its features of a test picture stay as they are."""
        tower = self.tower
        try:
            self.tower = copy.deepcopy(tower).to(self.dtype)
            with torch.inference_mode():
                lowered = self._image_features(probe.to(self.dtype)).float()
        except (RuntimeError, TypeError) as error:
            reason = f"{self.device} cannot compute {self.name} in {self.precision} ({str(error).splitlines()[0]})"
            warnings.warn(f"{reason}; float32 is used", FairContextWarning, stacklevel=2)
            self.tower, self.precision, self.dtype = tower, "fp32", torch.float32
            return
        if problem := disagreement(exact, lowered):
            raise ArgumentError(
                f"precision={self.precision!r} is not possible for {self.name} on {self.device}: a test picture's "
                f"features {problem}; use fp32"
            )

    def _image_features(self, pixels: Tensor, tower: Callable[[Tensor], Any] | None = None) -> Tensor:
        """Encode normalised pixels of the tower's dtype; need not be normalised to unit length.

        Args:
            pixels: as the tower reads them.
            tower: what to run instead, for example the tower with other weights.
        """
        return self._head((tower or self.tower)(pixels))

    def _head(self, output: Any) -> Tensor:
        """Return features from what the tower returned, which may be tokens beside them."""
        features: Tensor = output[0] if isinstance(output, tuple) else output
        return features

    def _features_in(self, copy: OpenVinoTower, chunks: Iterable[Tensor]) -> list[Tensor]:
        """Return the features of chunks of normalised pixels, of at most `copy.rows` rows, by the tower's copy."""
        counts: list[int] = []

        def padded() -> Iterator[Tensor]:
            for chunk in chunks:
                counts.append(len(chunk))
                yield pad_rows(chunk, copy.rows)

        outputs = copy.run(padded())
        with torch.inference_mode():
            return [self._head(output).float()[:count] for output, count in zip(outputs, counts, strict=True)]

    def split_tower(self, blocks: int) -> "SplitTower":
        """Return the image tower cut below its last attention blocks; see the capability `ADAPTABLE_BLOCKS`.

        Raises:
            ArgumentError: the tower has no such blocks, or fewer.
        """
        raise ArgumentError(f"{self.name} has no {ADAPTABLE_BLOCKS} ({blocks} of them are asked for)")

    @property
    def patches(self) -> int:
        """Patches along a side of a picture; see the capability `DROPPABLE_PATCHES`."""
        raise ArgumentError(f"{self.name} has no {DROPPABLE_PATCHES}")

    def encode_without(
        self,
        image: Float[Tensor, "3 height width"],
        hidden: Bool[Tensor, "masks patches patches"],
    ) -> Float[Tensor, "masks dim"]:
        """Return unit-norm features of an image without its hidden patches, equally many in each mask, in PyTorch.

        Args:
            image: values in [0, 1], of the backbone's image size.
            hidden: True for patches that are left out.
        """
        raise ArgumentError(f"{self.name} has no {DROPPABLE_PATCHES} ({len(hidden)} masks, {image.shape[1]} pixels)")

    def encode_with(
        self, weights: Mapping[str, Tensor], pixels: Float[Tensor, "images 3 height width"]
    ) -> Float[Tensor, "images dim"]:
        """Return unit-norm image features of the tower with other weights; gradients flow to them.

        Args:
            weights: by the names of the tower's parameters, float32.
            pixels: values in [0, 1], of the backbone's image size.
        """
        tower = partial(torch.func.functional_call, self.tower, dict(weights))
        return F.normalize(self._image_features(self._normalise(pixels), tower).float(), dim=-1)

    @cached_property
    @torch.inference_mode(False)  # they may meet what gradients flow through
    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the channels, brought to the device once."""
        mean, std = (torch.tensor(values, device=self.device)[:, None, None] for values in (self.mean, self.std))
        return mean, std

    def _normalise(self, pixels: Tensor) -> Tensor:
        mean, std = self._statistics
        return (pixels.to(self.device) - mean).div_(std)  # in place: fresh pages of memory cost more than the division

    def encode_image(self, pixels: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images dim"]:
        """Return unit-norm image features, in float32.

        Rows are encoded in batches of `batch_size` (of 16 on a CPU), the last one padded to a multiple of 16, so that
        an image's features do not depend on what is encoded beside it. Other engines have batches of their own.

        Args:
            pixels: values in [0, 1], of the backbone's image size.

        Raises:
            FeatureError: the features of a picture are NaN, infinite or all zero, as where they overflow in fp16.
        """
        return self.encode_parts([pixels])

    def encode_parts(self, parts: Iterable[Float[Tensor, "_ 3 height width"]]) -> Float[Tensor, "images dim"]:
        """Return the features of pictures that are made part by part, so that few of them are in memory.

        They are those of `encode_image`; an engine that runs beside Python encodes a part while the next one is made.

        Args:
            parts: pictures; all parts but the last have `batch_size` of them, or a multiple. Making one may not encode.

        Raises:
            FeatureError: see `encode_image`.
        """
        copy = None if self._choice is None else self._choice.copy
        if copy is not None:
            chunks = (self._normalise(chunk) for part in parts for chunk in part.detach().split(copy.rows))
            return self._joined([F.normalize(features, dim=-1) for features in self._features_in(copy, chunks)])
        features = []
        # On a CPU the tower takes 16 rows whatever the batch size: they fit its caches, and kernels that are chosen by
        # the number of rows (in bf16 with other rounding) stay the same.
        for chunk in (chunk for part in parts for chunk in part.split(self.batch_size)):
            with torch.inference_mode():  # not while a part is made, which may be of use where gradients are
                rows = self._image_features(pad_rows(self._normalise(chunk), ROW_MULTIPLE).to(self.dtype))
                features.append(F.normalize(rows.float(), dim=-1)[: len(chunk)])
        return self._joined(features)

    def _joined(self, features: Sequence[Tensor]) -> Float[Tensor, "images dim"]:
        """Join unit-norm features, fit for gradients, and check them once, as a check waits for the device."""
        encoded = torch.cat([*features]).clone()  # a copy made outside inference mode
        if count := int(useless_rows(encoded).sum()):
            whose = "the picture" if len(encoded) == 1 else f"{count} of {len(encoded)} pictures"
            lower = "" if self.dtype is torch.float32 else f" in {self.precision}; use fp32"
            raise FeatureError(f"{self.name}: the features of {whose} are {USELESS}{lower}")
        return encoded
