"""Views of one image: the plain view `u_1`, random crops with flips, AugMix, and the random streams behind them all.

Streams depend on (seed, image, purpose) alone, so that a prediction does too: no global generator is used anywhere in
the core, and two images, methods or threads never share a stream. (Paper, Sec. "View Generation and Filtering".)

The paper names only crops and flips; the values are those that TPT, MTA, ZERO and R-TPT share. Crops are cut from the
full-resolution image. The recipe belongs to a run, never to a method: methods are compared on the same views.
"""

import math
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

from faircontext.errors import ArgumentError, check_choice, check_interval, check_minimum
from faircontext.files import digest
from faircontext.types import Image

_MODES = {
    "shortest": "its central square",
    "longest": "the whole of it, made smaller, with black beside it where it is not square",
    "squash": "the whole of it, with its sides made equal",
}
"""How a plain view is made square, and what a model then sees of a picture; the names are open_clip's."""

_SQUARES = {"crop": "shortest", "pad": "longest", "squash": "squash"}
"""The same as `ViewRecipe.plain` names them."""

_MAX_ASPECT_RATIO = 5
"""Longer images than this, side to side, are cropped before they are resized."""

Purpose = Literal["views", "masks", "augmix", "context", "lora", "order", "corruption", "attack"]
# A purpose's position is its key, so that results stay reproducible: append, never reorder.
_PURPOSES = get_args(Purpose)


def image_id(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """Return the SHA-256 of the decoded pixels and their shape, in hexadecimal.

    A path would differ between a run on a file and one on its folder; pixels do not.
    """
    return digest(repr(pixels.shape), np.ascontiguousarray(pixels).data)


def stream(seed: int, image: str, purpose: Purpose) -> np.random.Generator:
    """Return the generator of one purpose for one image.

    Args:
        seed: the run's seed, not negative.
        image: the image's id (hexadecimal), see `image_id`.
        purpose: what the numbers are for; each purpose has a stream of its own.
    """
    check_minimum("seed", seed, 0)
    return np.random.default_rng(np.random.SeedSequence([seed, int(image, 16), _PURPOSES.index(purpose)]))


@dataclass(frozen=True)
class ViewRecipe:
    """How the views of an image are made; the defaults are the paper's.

    Attributes:
        count: N, all views, the plain one included.
        scale: range of the area of a crop, as a fraction of the image.
        ratio: range of the aspect ratio of a crop, width over height; drawn log-uniformly.
        flip: probability of a horizontal flip.
        augmix: whether crops go through AugMix: `"off"`, `"on"`, or `"auto"`, which follows the methods' repositories:
            on fine-grained data, a second set of views with AugMix for the methods that have it there.
        regime: `"fine-grained"` or `"natural"`, for `augmix="auto"`.
        plain: how the plain view of an image that is not square is made: `"own"`, as the model's own preprocessing does
            (a central square for most), `"crop"` (the central square), `"pad"` (the whole image on black) or `"squash"`
            (the whole image, its sides made equal). Crops are cut from the image as it is.
    """

    count: int = 64
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    augmix: Literal["off", "on", "auto"] = "off"
    regime: Literal["natural", "fine-grained"] = "natural"
    plain: Literal["own", "crop", "pad", "squash"] = "own"

    def __post_init__(self) -> None:
        check_minimum("count", self.count, 1)
        check_interval("scale", self.scale, 0.0, 1.0)
        check_interval("ratio", self.ratio, 0.0, 100.0)
        check_choice("augmix", self.augmix, ("off", "on", "auto"))
        check_choice("regime", self.regime, ("natural", "fine-grained"))
        check_choice("plain", self.plain, ("own", *_SQUARES))
        if not 0.0 <= self.flip <= 1.0:
            raise ArgumentError(f"flip={self.flip!r} is not possible; it is a probability")

    @property
    def remark(self) -> str:
        """What is said of the plain view before a run, where it is not the model's own."""
        return "" if self.plain == "own" else f", plain={self.plain}"

    @property
    def facts(self) -> dict[str, Any]:
        """What records say of it: nothing of a plain view that is the model's own, so that hashes of runs stay."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("plain", "own")}


@dataclass(frozen=True)
class Geometry:
    """What a backbone's input looks like, see `Backbone`; the part of it that views need, without its weights.

    Attributes:
        size: side of the square input, in pixels.
        interpolation: the filter of the plain view.
        resize_mode: how the plain view is made square, see `plain_view`.
    """

    size: int
    interpolation: str
    resize_mode: str = "shortest"

    @property
    def seen(self) -> str:
        """What the model sees of a picture, in words."""
        return _MODES[self.resize_mode]


class Views:
    """The pixels of one image and its views; lazy, without a model, so that another process can make them ahead.

    Args:
        image: decoded RGB pixels; the array is not copied, so it must not change.
        geometry: the backbone's input.
        recipe: how views are made.
        seed: the run's seed.

    Attributes:
        geometry: the backbone's input, the plain view made square as the recipe says.
    """

    def __init__(self, image: Image, geometry: Geometry, recipe: ViewRecipe, seed: int) -> None:
        self.geometry = replace(geometry, resize_mode=_SQUARES.get(recipe.plain, geometry.resize_mode))
        self.recipe = recipe
        self.seed = seed
        self._image = image

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: tensors as arrays, since PyTorch hands tensors over in shared memory."""
        return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in self.__dict__.items()}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name in ("plain", "all"):
            if isinstance(array := state.get(name), np.ndarray):
                state[name] = torch.from_numpy(array)
        self.__dict__.update(state)

    @property
    def nbytes(self) -> int:
        """Bytes of the image's pixels."""
        return self._image.nbytes

    @property
    def _pixels(self) -> UInt8[Tensor, "3 height width"]:
        return torch.from_numpy(self._image).permute(2, 0, 1)

    @cached_property
    def id(self) -> str:
        """SHA-256 of the pixels; with the seed it determines all random numbers."""
        return image_id(self._image)

    def stream(self, purpose: Purpose) -> np.random.Generator:
        """Return a fresh generator of the image's stream for a purpose."""
        return stream(self.seed, self.id, purpose)

    @cached_property
    def plain(self) -> UInt8[Tensor, "3 size size"]:
        """The plain view `u_1`."""
        geometry = self.geometry
        return plain_view(self._pixels, geometry.size, geometry.interpolation, geometry.resize_mode)

    @cached_property
    def all(self) -> UInt8[Tensor, "views 3 size size"]:
        """All views, the plain one first."""
        crops = random_views(self._pixels, self.geometry.size, self.recipe, self.stream("views"))
        if self.recipe.augmix == "on":
            crops = augmix(crops, self.stream("augmix"))
        return torch.cat([self.plain[None], crops])

    @cached_property
    def augmented(self) -> "Views":
        """The same image with AugMix on its crops: a second set of views, which shares the plain one."""
        return self._sibling(recipe=replace(self.recipe, augmix="on"))

    def on(self, geometry: Geometry) -> "Views":
        """Return the same image, with the same crops, for another backbone."""
        return self._sibling(geometry=geometry)

    def with_seed(self, seed: int) -> "Views":
        """Return the same image with other random numbers."""
        return self._sibling(seed=seed)

    def of(self, image: Image) -> "Views":
        """Return views of another picture, for the same backbone, by the same recipe and seed."""
        return Views(image, self.geometry, self.recipe, self.seed)

    def _sibling(self, **changes: Any) -> "Views":
        """Return the same image with something else changed; what stays as it is, is shared."""
        other = Views(self._image, **{name: getattr(self, name) for name in ("geometry", "recipe", "seed")} | changes)
        shared = [] if "geometry" in changes else ["plain"]
        vars(other).update({name: getattr(self, name) for name in [*shared, *["id"] * ("id" in vars(self))]})
        return other


def plain_view(
    image: UInt8[Tensor, "3 height width"], size: int, interpolation: str, resize_mode: str = "shortest"
) -> UInt8[Tensor, "3 size size"]:
    """Return `u_1`, as the backbone's own preprocessing makes it.

    Args:
        image: the full-resolution image.
        size: side of the backbone's input.
        interpolation: the backbone's own filter, for example `"bicubic"`.
        resize_mode: `"shortest"`: the shorter side is resized to `size`, and the central square taken (CLIP);
            `"squash"`: both sides are resized to `size` (SigLIP); `"longest"`: the longer side is resized to `size`,
            and the rest is black, so that a mask over it hides nothing.
    """
    check_choice("resize_mode", resize_mode, tuple(_MODES))
    height, width = image.shape[1:]
    if resize_mode == "longest":
        return _on_black(image, size, interpolation)
    if resize_mode == "squash":
        return _resize(image, size, size, interpolation)
    if max(height, width) > _MAX_ASPECT_RATIO * min(height, width):
        return _central_square_of_strip(image, size, interpolation)
    longer = int(size * max(height, width) / min(height, width))
    shape = (size, longer) if height <= width else (longer, size)
    top, left = (round((side - size) / 2) for side in shape)
    return _resize(image, *shape, interpolation)[:, top : top + size, left : left + size]


def _on_black(image: UInt8[Tensor, "3 height width"], size: int, interpolation: str) -> UInt8[Tensor, "3 size size"]:
    """Return the whole image in the middle of a black square."""
    height, width = (max(1, round(size * side / max(image.shape[1:]))) for side in image.shape[1:])
    top, left = (size - height) // 2, (size - width) // 2
    square = torch.zeros(3, size, size, dtype=torch.uint8)
    square[:, top : top + height, left : left + width] = _resize(image, height, width, interpolation)
    return square


def _resize(
    image: UInt8[Tensor, "3 height width"], height: int, width: int, interpolation: str
) -> UInt8[Tensor, "3 high wide"]:
    """Resize with antialiasing, as torchvision does, whose import takes longer than an image.

    Args:
        image: of any strides.
        height: wanted.
        width: wanted.
        interpolation: `"nearest"`, `"bilinear"` or `"bicubic"`.
    """
    if image.shape[1:] == (height, width):
        return image
    rows = image[None]
    if rows.is_contiguous(memory_format=torch.channels_last):
        # One image with its channels last counts as contiguous either way; with this stride PyTorch leaves them there.
        rows = rows.as_strided(rows.shape, (image.numel(), *rows.stride()[1:]))
    smooth = {} if interpolation == "nearest" else {"align_corners": False, "antialias": True}
    native = interpolation != "bilinear" or _has_8_bit_kernel()
    resized = F.interpolate(rows if native else rows.float(), (height, width), mode=interpolation, **smooth)
    return (resized if native else resized.round_().to(torch.uint8))[0]


def _has_8_bit_kernel() -> bool:
    """Return whether PyTorch resizes 8-bit pictures bilinearly faster than floats on this processor."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") or platform.machine() in ("aarch64", "arm64")


def _central_square_of_strip(
    image: UInt8[Tensor, "3 height width"], size: int, interpolation: str
) -> UInt8[Tensor, "3 size size"]:
    """Do as `plain_view` from the square alone: a strip of 1 x 20,000 pixels, resized as a whole, needs gigabytes."""
    height, width = image.shape[1:]
    short, long = min(height, width), max(height, width)
    resized = int(size * long / short)
    start = round((resized - size) / 2) * long / resized
    stop = start + size * long / resized
    box = (start, 0, stop, short) if width > height else (0, start, short, stop)
    strip = PIL.Image.fromarray(image.permute(1, 2, 0).numpy())
    square = strip.resize((size, size), PIL.Image.Resampling[interpolation.upper()], box=box)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def random_views(
    image: UInt8[Tensor, "3 height width"], size: int, recipe: ViewRecipe, rng: np.random.Generator
) -> UInt8[Tensor, "views 3 size size"]:
    """Return `recipe.count - 1` random resized crops (bilinear, antialiased), flipped with probability `recipe.flip`.

    Args:
        image: the full-resolution image.
        size: side of the backbone's input.
        recipe: ranges of the crops.
        rng: the image's stream for views.
    """
    views = torch.empty(recipe.count - 1, 3, size, size, dtype=torch.uint8)
    for view in views:
        top, left, height, width = _crop_box(image.shape[1], image.shape[2], recipe, rng)
        crop = _resize(image[:, top : top + height, left : left + width], size, size, "bilinear")
        view.copy_(crop.flip(-1) if rng.random() < recipe.flip else crop)
    return views


def _crop_box(height: int, width: int, recipe: ViewRecipe, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw (top, left, height, width) as torchvision's RandomResizedCrop does: ten tries, then a centred crop."""
    low, high = math.log(recipe.ratio[0]), math.log(recipe.ratio[1])
    for _ in range(10):
        area = height * width * rng.uniform(*recipe.scale)
        ratio = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    w, h = width, height
    if width / height < recipe.ratio[0]:
        h = max(1, min(height, round(width / recipe.ratio[0])))
    elif width / height > recipe.ratio[1]:
        w = max(1, min(width, round(height * recipe.ratio[1])))
    return (height - h) // 2, (width - w) // 2, h, w


_CHAINS, _DEPTHS = 3, (1, 2, 3)

Operation = Callable[[PIL.Image.Image, float, float], PIL.Image.Image]


def _shift(picture: PIL.Image.Image, *coefficients: float) -> PIL.Image.Image:
    return picture.transform(picture.size, PIL.Image.Transform.AFFINE, coefficients, PIL.Image.Resampling.BILINEAR)


def _pixels(picture: PIL.Image.Image, level: float) -> int:
    return int(picture.size[0] / 3 * level / 10)


# Each takes a level in [0.1, 1) and a sign; magnitudes are those of severity 1.
_OPERATIONS: tuple[Operation, ...] = (
    lambda picture, *_: PIL.ImageOps.autocontrast(picture),
    lambda picture, *_: PIL.ImageOps.equalize(picture),
    lambda picture, level, _: PIL.ImageOps.posterize(picture, 4 - int(4 * level / 10)),
    lambda picture, level, sign: picture.rotate(sign * int(30 * level / 10), PIL.Image.Resampling.BILINEAR),
    lambda picture, level, _: PIL.ImageOps.solarize(picture, 256 - int(25.6 * level)),
    lambda picture, level, sign: _shift(picture, 1, sign * 0.3 * level / 10, 0, 0, 1, 0),
    lambda picture, level, sign: _shift(picture, 1, 0, 0, sign * 0.3 * level / 10, 1, 0),
    lambda picture, level, sign: _shift(picture, 1, 0, sign * _pixels(picture, level), 0, 1, 0),
    lambda picture, level, sign: _shift(picture, 1, 0, 0, 0, 1, sign * _pixels(picture, level)),
)


def augmix(crops: UInt8[Tensor, "crops 3 size size"], rng: np.random.Generator) -> UInt8[Tensor, "crops 3 size size"]:
    """Mix each crop with three chains of one to three random operations.

    Args:
        crops: views after crop and flip.
        rng: the image's stream for AugMix.

    Returns:
        `m x + (1 - m) sum_j w_j chain_j(x)`, rounded to 8 bits, with `m` uniform and `w` from Dirichlet(1, 1, 1).
    """
    mixed = torch.empty_like(crops)
    for crop, out in zip(crops, mixed, strict=True):
        weights, share = rng.dirichlet(np.ones(_CHAINS)), rng.beta(1.0, 1.0)
        picture = PIL.Image.fromarray(crop.permute(1, 2, 0).numpy())
        total = share * np.asarray(picture, dtype=np.float64)
        for weight in weights:
            total += (1.0 - share) * weight * np.asarray(_chain(picture, rng), dtype=np.float64)
        out.copy_(torch.from_numpy(np.rint(total.clip(0.0, 255.0)).astype(np.uint8)).permute(2, 0, 1))
    return mixed


def _chain(picture: PIL.Image.Image, rng: np.random.Generator) -> PIL.Image.Image:
    for _ in range(_DEPTHS[math.floor(rng.random() * len(_DEPTHS))]):
        operation = _OPERATIONS[math.floor(rng.random() * len(_OPERATIONS))]
        picture = operation(picture, rng.uniform(0.1, 1.0), 1.0 if rng.random() < 0.5 else -1.0)
    return picture
