"""`Backbone`, the interface of a vision-language model: image features, and text features with a learnable context."""

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from faircontext.backbones import engines
from faircontext.backbones.engines import ROW_MULTIPLE, Engine, TorchEngine, pad_rows
from faircontext.backbones.prompts import CheckpointedFeatures, Placement, Prompts, encode_groups
from faircontext.backbones.split import SplitEncoder
from faircontext.backbones.weights import USELESS, check_weights, refuse_features, unusable, useless_rows
from faircontext.cache import hash_of
from faircontext.errors import (
    ArgumentError,
    FairContextWarning,
    FeatureError,
    LongPromptError,
    check_choice,
    check_type,
)
from faircontext.files import digest
from faircontext.views import Geometry, ViewRecipe

TEXT_BATCH = 64
"""Prompts are encoded in groups of this many, each cut to its longest."""

A = TypeVar("A")


class Capability(str, Generic[A]):
    """What some backbones can do besides features, in words; one that has it is an `A` as well, see `require`."""


@runtime_checkable
class Splits(Protocol):
    """A backbone whose image encoder can be cut."""

    def split_encoder(self, blocks: int) -> SplitEncoder:
        """Return the image encoder cut below its last attention blocks.

        Raises:
            ArgumentError: the encoder has fewer.
        """


@runtime_checkable
class DropsPatches(Protocol):
    """A backbone whose image encoder runs on some of an image's patches.

    Attributes:
        patches: along a side of a picture.
    """

    patches: int

    def encode_without(
        self, image: Float[Tensor, "3 height width"], hidden: Bool[Tensor, "masks patches patches"]
    ) -> Float[Tensor, "masks dim"]:
        """Return unit-norm features of an image without its hidden patches, in PyTorch.

        Args:
            image: values in [0, 1], of the backbone's image size.
            hidden: True for patches that are left out, equally many in each mask.
        """


_BLOCKS = "attention blocks that can be adapted (a vision transformer, such as ViT-B-16)"
_PATCHES = "patches that can be left out (a vision transformer of open_clip, such as ViT-B-16)"
ADAPTABLE_BLOCKS: Capability[Splits] = Capability(_BLOCKS)
DROPPABLE_PATCHES: Capability[DropsPatches] = Capability(_PATCHES)
TRAINABLE_ENCODER = "an image tower in float32 (precision fp32)"
"""All weights of the image encoder can be trained."""


def require(backbone: "Backbone", capability: Capability[A]) -> A:
    """Return a backbone as one that has a capability, or raise `ArgumentError` where it has not."""
    if capability not in backbone.capabilities:
        raise ArgumentError(f"{backbone.name} has no {capability}")
    return cast(A, backbone)


M = TypeVar("M", bound=torch.nn.Module)


class Backbone(ABC):
    """A vision-language model with unit-norm image and text embeddings.

    Masks and evidence maps live in pixel space, so normalisation by mean and standard deviation happens in here.

    Attributes:
        name: the model's name.
        image_size: side of the square input, in pixels.
        mean: per channel, of pixels in [0, 1].
        std: per channel.
        interpolation: the filter of the plain view.
        resize_mode: how the plain view is made square, see `plain_view`.
        logit_scale: `exp(logit_scale)` of the model: what cosines are multiplied by for probabilities (100 for CLIP).
        logit_bias: of a model that was trained with a sigmoid over pairs (SigLIP): what is added to a logit before it;
            None where there is none.
        context_length: longest prompt, in tokens.
        start: number of start tokens of a prompt.
        pad: token id that fills prompts on the right.
        image_encoder: the image encoder in PyTorch, on its device in its precision; where another engine runs a copy of
            it, it is loaded when it is first asked for.
        text_encoder: the text encoder, with an `embedding` of tokens. It is called with embeddings of tokens and
            padding, a mask that is True for tokens, and how many first tokens are the same in all prompts.
        device: where the model is.
        precision: of the image encoder: fp32, bf16 or fp16. The text encoder, which is adapted, is always float32.
        dtype: the same, as a torch dtype.
        requested_engine: of the image encoder: auto, torch or openvino.
        batch_size: rows that are prepared and encoded at once; 16 on a CPU.
    """

    name: str
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str
    resize_mode: str = "shortest"
    logit_scale: float
    start: int = 0
    pad: int = 0
    text_encoder: Any
    context_length: int
    logit_bias: float | None = None
    recommended: Mapping[str, Mapping[str, object]] = {}
    """Overrides of the preset "recommended", by method, and of the view recipe, under "views"."""
    facts: Mapping[str, object] = {}
    """What records say of the model besides: things that neither its name nor its weights tell, as the activation."""
    _load_image_encoder: Callable[[], torch.nn.Module]

    def __init__(
        self, device: str = "cpu", precision: str = "auto", batch_size: int = 16, engine: str = "torch"
    ) -> None:
        check_choice("engine", engine, engines.ENGINES)
        check_type("batch_size", batch_size, int)
        if batch_size < ROW_MULTIPLE or batch_size % ROW_MULTIPLE:
            raise ArgumentError(f"batch_size={batch_size} is not possible; use a multiple of {ROW_MULTIPLE}")
        self.device = engines.usable_device(device)
        self.precision = engines.resolve_precision(precision, self.device)
        self.dtype = engines.DTYPES[self.precision]
        self.batch_size = ROW_MULTIPLE if self.device.type == "cpu" else batch_size
        self.requested_engine = engine
        self._engine: Engine = TorchEngine(self.batch_size)

    @cached_property
    def image_encoder(self) -> torch.nn.Module:
        """The image encoder in PyTorch; where another engine runs a copy of it, it is loaded when it is asked for."""
        self._move_image_encoder(self._load_image_encoder())
        encoder: torch.nn.Module = self.__dict__["image_encoder"]
        return encoder

    @property
    def engine(self) -> engines.Name:
        """What runs the image encoder: torch or openvino."""
        return self._engine.name

    @property
    def engine_facts(self) -> dict[str, object]:
        """What records say of the engine; nothing of PyTorch, whose version they have."""
        version = self._engine.version
        return {} if version is None else {"engine": {"name": self.engine, "version": version}}

    @property
    def arithmetic(self) -> str:
        """Engine, where it is not PyTorch, and precision, in words."""
        version = self._engine.version
        return self.precision if version is None else f"OpenVINO {version}, {self.precision}"

    @property
    def encoder_hash(self) -> str:
        """SHA-256 of the weights of PyTorch's image encoder in the precision in which they are used, in hexadecimal."""
        return self._engine.encoder_hash or hash_of(self.image_encoder)

    @property
    def capabilities(self) -> frozenset[str]:
        """What some methods and settings need beyond features: see `ADAPTABLE_BLOCKS` and those beside it."""
        return frozenset({TRAINABLE_ENCODER} if self.dtype is torch.float32 else ())

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

    def _moved(self, encoder: M, weights: Mapping[str, Tensor] | None = None) -> M:
        """Check the weights of an encoder, by the names in their file or in the module; return it on the device."""
        check_weights(self.name, encoder.state_dict() if weights is None else weights)
        return encoder.to(self.device).eval().requires_grad_(False)

    def _start_image_encoder(self, load: Callable[[], torch.nn.Module], source: str) -> None:
        """Take a copy of the image encoder for the engine that is asked for, or else the encoder itself.

        Args:
            load: makes the encoder, in float32.
            source: a hash of all that it is made from, see `choose_engine`.
        """
        self._load_image_encoder = load

        def settle() -> tuple[torch.nn.Module, Tensor, str]:
            encoder = load()
            return encoder, self._move_image_encoder(encoder), hash_of(self.image_encoder)

        self._engine = engines.choose_engine(self, source, settle)
        if self._engine.name == "torch":
            self.image_encoder  # noqa: B018 (loaded and checked now, not with the first image)

    def _take_image_encoder(self, encoder: torch.nn.Module, weights: Mapping[str, Tensor] | None = None) -> None:
        """Take an image encoder, and choose what runs it; see `_move_image_encoder`."""
        exact = self._move_image_encoder(encoder, weights)
        asked = self.requested_engine
        copied = asked == "openvino" or (asked == "auto" and engines.is_convolutional(encoder))
        source = hash_of(encoder) if copied else ""
        self._engine = engines.choose_engine(self, source, lambda: (encoder, exact, hash_of(self.image_encoder)))

    def _move_image_encoder(self, encoder: torch.nn.Module, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Bring an image encoder to the device and the precision, and check it there on a test picture.

        Where the device cannot compute in the precision, float32 is used, with a warning.

        Args:
            encoder: in float32.
            weights: the encoder's, by the names that their file has; None for those that the module has.

        Returns:
            Features of the test picture, by the encoder in float32.

        Raises:
            ArgumentError: a weight or the model's scale is not finite, features are useless, or those in the precision
                are not those of float32.
        """
        weights = encoder.state_dict() if weights is None else weights
        self.image_encoder = self._moved(encoder, weights)
        if not 0 < self.logit_scale < math.inf:
            raise unusable(self.name, f"cosines would be multiplied by {self.logit_scale} (exp of logit_scale)")
        probe = engines.probe_picture(self.image_size).to(self.device)
        with torch.inference_mode():
            exact = self._image_features(probe).float()
            black = self._image_features(torch.zeros_like(probe)).float()
        if useless_rows(F.normalize(exact, dim=-1)).any():
            raise refuse_features(self.name, "a test picture", weights)
        if torch.equal(exact, black):
            raise refuse_features(self.name, "all pictures", weights, "the same")
        if self.dtype is not torch.float32:
            self._cast_image_encoder(probe, exact)
        return exact

    def _cast_image_encoder(self, probe: Tensor, exact: Tensor) -> None:
        """Bring the image encoder to a lower precision, where its features of a test picture stay as they are."""
        encoder = self.image_encoder
        try:
            self.image_encoder = copy.deepcopy(encoder).to(self.dtype)
            with torch.inference_mode():
                features = self._image_features(probe.to(self.dtype)).float()
        except (RuntimeError, TypeError) as error:
            reason = f"{self.device} cannot compute {self.name} in {self.precision} ({str(error).splitlines()[0]})"
            warnings.warn(f"{reason}; float32 is used", FairContextWarning, stacklevel=2)
            self.image_encoder, self.precision, self.dtype = encoder, "fp32", torch.float32
            return
        if problem := engines.disagreement(exact, features):
            asked = f"precision={self.precision!r} is not possible for {self.name} on {self.device}"
            raise ArgumentError(f"{asked}: a test picture's features {problem}; use fp32")

    def _image_features(self, pixels: Tensor, encoder: Callable[[Tensor], Any] | None = None) -> Tensor:
        """Encode normalised pixels of the encoder's dtype; need not be normalised to unit length.

        Args:
            pixels: as the encoder reads them.
            encoder: what to run instead, for example the encoder with other weights.
        """
        return self._head((encoder or self.image_encoder)(pixels))

    def _head(self, output: Any) -> Tensor:
        """Return features from what the encoder returned, which may be tokens beside them."""
        return engines.pooled_of(output)

    def encode_with(
        self, weights: Mapping[str, Tensor], pixels: Float[Tensor, "images 3 height width"]
    ) -> Float[Tensor, "images dim"]:
        """Return unit-norm image features of the encoder with other weights; gradients flow to them.

        Args:
            weights: by the names of the encoder's parameters, float32.
            pixels: values in [0, 1], of the backbone's image size.
        """
        encoder = partial(torch.func.functional_call, self.image_encoder, dict(weights))
        return F.normalize(self._image_features(self._normalise(pixels), encoder).float(), dim=-1)

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
        engine, counts = self._engine, list[int]()

        def padded() -> Iterator[Tensor]:
            # On a CPU a batch has 16 rows whatever the batch size: they fit its caches, and kernels that are chosen by
            # the number of rows (in bf16 with other rounding) stay the same.
            for chunk in (chunk for part in parts for chunk in part.detach().split(engine.rows)):
                counts.append(len(chunk))
                yield pad_rows(self._normalise(chunk), min(engine.rows, ROW_MULTIPLE))

        outputs = engine.features(self, padded())
        return self._joined([F.normalize(rows, dim=-1)[:count] for rows, count in zip(outputs, counts, strict=True)])

    def _joined(self, features: Sequence[Tensor]) -> Float[Tensor, "images dim"]:
        """Join unit-norm features, fit for gradients, and check them once, as a check waits for the device."""
        encoded = torch.cat([*features]).clone()  # a copy made outside inference mode
        if count := int(useless_rows(encoded).sum()):
            whose = "the picture" if len(encoded) == 1 else f"{count} of {len(encoded)} pictures"
            lower = "" if self.dtype is torch.float32 else f" in {self.precision}; use fp32"
            raise FeatureError(f"{self.name}: the features of {whose} are {USELESS}{lower}")
        return encoded

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 of all weights, the image encoder's in the precision in which they are used, in hexadecimal."""
        return digest(f"{self.text_hash} {self.encoder_hash}")

    @property
    def text_dtype(self) -> torch.dtype:
        """What text features are computed in: float32, unless someone has changed the text encoder."""
        return self.token_embeddings(torch.zeros(1, 1, dtype=torch.long, device=self.device)).dtype

    @abstractmethod
    def _token_ids(self, text: str) -> list[int]:
        """Tokenise a text in full, with start token (where there is one) and end token."""

    def token_embeddings(self, ids: Int[Tensor, "*batch tokens"]) -> Float[Tensor, "*batch tokens width"]:
        """Look up token embeddings, detached."""
        embedded: Tensor = self.text_encoder.embedding(ids)
        return embedded.detach()

    def _encode_embeddings(self, embeddings: Tensor, mask: Tensor, shared: int) -> Tensor:
        """Encode prompts given by their token embeddings; need not be normalised to unit length."""
        features: Tensor = self.text_encoder(embeddings, mask, shared)
        return features

    @property
    @abstractmethod
    def text_hash(self) -> str:
        """Hexadecimal hash of the text encoder's weights: what text features depend on, besides the prompts."""

    def tokenize(self, names: Sequence[str], template: str) -> Prompts:
        """Tokenise a template filled with class names, in full; see `check_length`.

        Raises:
            LabelError: the template has no `{}` for a name.
        """
        return Prompts.build(template, names, self).to(self.device)

    def describe(self, prompts: Sequence[Sequence[str]]) -> Prompts:
        """Tokenise several prompts of each class, in full; their features are one for each class, the unit mean."""
        return Prompts.describe(prompts, self).to(self.device)

    def context_of(self, text: str) -> Float[Tensor, "tokens width"]:
        """Return the token embeddings of some words, without start and end tokens."""
        return self.token_embeddings(torch.tensor(self._token_ids(text)[self.start : -1], device=self.device))

    def _text_features(self, prompts: Prompts, context: Tensor | None, placement: Placement) -> Tensor:
        embeddings, mask = self.token_embeddings(prompts.ids), prompts.mask
        if context is not None:
            embeddings, mask = prompts.insert(embeddings, context, placement)
        shared = prompts.start
        if context is None or context.ndim == 2:
            shared += prompts.length + embeddings.shape[1] - prompts.ids.shape[1]
        return F.normalize(self._encode_embeddings(embeddings, mask, shared), dim=-1)

    def encode_text(
        self,
        prompts: Prompts,
        context: Float[Tensor, "*classes tokens width"] | None = None,
        placement: Placement = "replace",
        known: Float[Tensor, "prompts dim"] | None = None,
    ) -> Float[Tensor, "classes dim"]:
        """Return unit-norm text features of each class, in float32; gradients flow to the context.

        Where a class has several prompts, its features are the unit mean of theirs, see `Prompts.pool`.
        Prompts with the same words are encoded once, so that their features are equal to the bit. Many prompts are
        encoded without a graph, and group by group again when their gradient is asked for (two passes, exact):
        memory does not grow with their number.

        Args:
            prompts: tokenised prompts.
            context: token embeddings that replace the prompts' context tokens (`"replace"`, CL) or are put
                before the prompt, right after the start token (`"prepend"`, CL-HP); one for all prompts, or one each.
            placement: which of the two.
            known: the prompts' features, as at a context that has not moved: then only a gradient encodes anything.

        Raises:
            LabelError: a prompt, with the context, has more tokens than fit.
            ArgumentError: without a context, the features of a prompt are useless. Those of a context that is learnt
                are for whoever learns it to check.
        """
        per_prompt = context is not None and context.ndim == 3
        replaced = prompts.length if placement == "replace" else 0
        self.check_length(prompts, 0 if context is None else context.shape[-2] - replaced)
        # With a context of its own, a prompt is no other's, whatever its words.
        keys = [(text, row if per_prompt else 0) for row, text in enumerate(prompts.texts)]
        rows = {key: row for row, key in reversed(list(enumerate(keys)))}
        lengths = prompts.lengths
        firsts = sorted(rows.values(), key=lambda row: (lengths[row], row))  # like lengths together: little padding
        unique = prompts.select(firsts)
        groups = unique.split(TEXT_BATCH)
        context = context[firsts] if context is not None and per_prompt else context
        encode = partial(self._text_features, placement=placement)
        known = None if known is None else known[firsts]
        if context is None or not (context.requires_grad and torch.is_grad_enabled()):
            features = encode_groups(groups, context, encode) if known is None else known
        elif known is None and len(groups) == 1:
            features = encode(unique, context)
        else:
            features = CheckpointedFeatures.apply(context, groups, encode, known)
        if context is None and (useless := useless_rows(features)).any():
            raise refuse_features(self.name, f"the prompt {unique.texts[int(useless.nonzero()[0])][:60]!r}", {})
        index = {keys[first]: row for row, first in enumerate(firsts)}
        return prompts.pool(features[[index[key] for key in keys]])

    def check_length(self, prompts: Prompts, extra: int = 0, names: Sequence[str] = ()) -> None:
        """Raise `LongPromptError`, naming the longest prompt, unless all prompts fit.

        Args:
            prompts: tokenised prompts.
            extra: so many tokens more, or fewer.
            names: of the classes, for the message where a class has several prompts.
        """
        tokens = max(prompts.lengths) + extra
        if tokens > self.context_length:
            longest = prompts.lengths.index(max(prompts.lengths))
            text, described = prompts.texts[longest], prompts.counts is not None
            owners = [name for name, rows in zip(names, prompts.rows, strict=False) if longest in rows]
            whose = f"class {owners[0]!r}: " if described and owners else ""
            cure = f"shorten {'it' if described else 'the class name'}, or truncate it (--truncate)"
            if extra > max(prompts.lengths):  # what is learnt is the longer part
                cure = "the context is too long, take a shorter one"
            learnable = f" ({extra} of them learnable)" if extra > 0 else ""
            limit = f"more than the {self.context_length} that {self.name} reads{learnable}; {cure}"
            raise LongPromptError(f"{whose}prompt {text[:60]!r} has {tokens} tokens, {limit}", text)

    def context(self, prompts: Prompts) -> Float[Tensor, "tokens width"]:
        """Return `delta_0` of CL: the embeddings of the prompts' context tokens."""
        return self.token_embeddings(prompts.ids[0, prompts.start : prompts.start + prompts.length])

    def view_recipe(self, preset: str) -> ViewRecipe:
        """Return the view recipe of a preset: the paper's, or what is recommended for this backbone."""
        check_choice("preset", preset, ("paper", "recommended", "official"))
        overrides = self.recommended.get("views", {}) if preset == "recommended" else {}
        return ViewRecipe(**overrides)  # type: ignore[arg-type]
