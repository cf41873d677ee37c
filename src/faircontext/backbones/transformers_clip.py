"""Models of transformers as backbones: CLIP, SigLIP, SigLIP 2, AltCLIP and Chinese-CLIP, from a folder.

The library makes the model and fits the tensors to it. What does not fit is one line, where the library would draw new
numbers in its place.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faircontext.backbones.adapters import merge_adapter
from faircontext.backbones.base import ADAPTABLE_BLOCKS, Backbone
from faircontext.backbones.towers import USELESS, check_vocabulary, hash_of, refuse_features, useless_rows
from faircontext.backbones.transformers_folder import (
    KINDS,
    Kind,
    doubt_activation,
    read_config,
    read_preprocessing,
    read_tensors,
    read_tokenizer,
)
from faircontext.backbones.transformers_towers import ImageTower, Pool, SplitImageTower, TextTower, longest_prompt
from faircontext.errors import ArgumentError, FairContextWarning, in_one_line, silence
from faircontext.files import digest

__all__ = ["TransformersClip", "load_transformers"]

_ACTIVATIONS = {"quick_gelu": "QuickGELU", "gelu": "GELU"}


def load_transformers(
    name: str,
    pretrained: str | None = None,
    *,
    device: str = "cpu",
    precision: str = "auto",
    batch_size: int = 16,
    engine: str = "auto",
    weights_key: str | None = None,
    adapter: str | None = None,
) -> "TransformersClip":
    """Load a model of transformers.

    Args:
        name: `transformers:` and the folder.
        pretrained: file of weights in place of the folder's own, for example a training loop's.
        device: see `create_backbone`, as the rest.
        precision: see there.
        batch_size: see there.
        engine: see there.
        weights_key: see there.
        adapter: see there.

    Warnings and errors are those of `create_backbone`.
    """
    given = name.partition(":")[2]
    if not given:
        raise ArgumentError(f"{name!r} names no folder; write transformers:FOLDER")
    folder = Path(given).expanduser()
    config = read_config(folder)
    kind = KINDS[config["model_type"]]
    tensors, lines = read_tensors(folder, pretrained, weights_key)
    with in_one_line(f"{folder}: transformers cannot make a model of it"), silence(), _without_progress():
        model = _make(folder, pretrained, kind, config, tensors)
    tensors.clear()  # as large as the model
    tokenizer = read_tokenizer(folder)
    lines += doubt_activation(folder, model.config)
    if adapter is not None:
        lines += merge_adapter(model, Path(adapter).expanduser(), name)
    title = name if pretrained is None else f"{name}:{pretrained}"
    pixels, warned = read_preprocessing(folder, kind, model.config)
    options: dict[str, Any] = {"device": device, "precision": precision, "batch_size": batch_size, "engine": engine}
    backbone = TransformersClip(title, model, tokenizer, kind, pixels, **options)
    for line in [*lines, *warned]:
        warnings.warn(line, FairContextWarning, stacklevel=3)
    if lines or warned:
        backbone.facts = {**backbone.facts, "warnings": [*lines, *warned]}
    return backbone


def _make(
    folder: Path, pretrained: str | None, kind: Kind, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> Any:
    """Return the library's model with some tensors, in float32."""
    import transformers

    create = getattr(transformers, kind.model)
    known = create.config_class.from_dict({key: config[key] for key in config if key not in ("dtype", "torch_dtype")})
    source = folder if pretrained is None else Path(pretrained)
    if kinds := [
        key for key, tensor in tensors.items() if not tensor.is_floating_point() and "position_ids" not in key
    ]:
        raise ArgumentError(
            f"{source}: {len(kinds)} tensors are no floating-point numbers (first {kinds[0]}), as in a quantised "
            "model; take the weights from before"
        )
    floats = {key: tensor.float() for key, tensor in tensors.items() if "position_ids" not in key}  # older versions'
    with torch.random.fork_rng(devices=[]):  # what is missing is drawn, and then refused
        model, found = create.from_pretrained(
            None, config=known, state_dict=floats, output_loading_info=True, ignore_mismatched_sizes=True
        )
    _check_fit(source, kind, model.config, found)
    return model.float().eval()


def _check_fit(source: Path, kind: Kind, config: Any, found: Mapping[str, Any]) -> None:
    """Say in one line what of the tensors does not fit the model."""
    shapes = sorted(found["mismatched_keys"])
    if positions := [shape for shape in shapes if "position_embedding" in shape[0]]:
        sizes = [_size_of_positions(key, theirs[0], config) for key, theirs, _ in positions]
        needed = [_size_of_positions(key, ours[0], config) for key, _, ours in positions]
        raise ArgumentError(
            f"{source}: has positions of {' and '.join(sizes)}, and config.json says {' and '.join(needed)}; correct "
            "image_size and max_position_embeddings there, or take weights of that size: they are not resized here"
        )
    problems = []
    if shapes:
        key, *both = shapes[0]
        theirs, ours = (" x ".join(map(str, shape)) for shape in both)
        problems.append(f"tensors of another shape: {len(shapes)} (first {key}: {theirs} and not {ours})")
    unknown = [key for key in found["unexpected_keys"] if not key.startswith("text_model.pooler.")]  # BERT's, not used
    for what, keys in (("missing", found["missing_keys"]), ("unknown", unknown)):
        if keys:
            problems.append(f"{what}: {len(keys)} (first {min(keys)})")
    if problems:
        raise ArgumentError(
            f"{source}: cannot be read as weights of {kind.model}: {', '.join(problems)}; take config.json and weights "
            "of one model"
        )


def _size_of_positions(key: str, count: int, config: Any) -> str:
    if "vision" not in key:
        return f"{count} tokens"
    patches = count - 1 if config.model_type not in ("siglip", "siglip2") else count  # a class token
    side = math.isqrt(max(patches, 0))
    return f"{side * config.vision_config.patch_size} pixels" if side * side == patches else f"{count} positions"


@contextmanager
def _without_progress() -> Iterator[None]:
    """Keep transformers from drawing bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


class TransformersClip(Backbone):
    """A model of transformers.

    Args:
        name: what it is called in tables and records.
        model: of one of the library's classes, in float32; it is used, not copied.
        tokenizer: the library's.
        kind: what is known of models of its class.
        pixels: `image_size`, `mean`, `std`, `interpolation` and `resize_mode`.
        device: a torch device.
        precision: of the image tower: `auto`, `fp32`, `bf16` or `fp16`.
        batch_size: rows of an image encoder batch on an accelerator; on a CPU they are always 16.
        engine: of the image tower: `auto`, `torch` or `openvino`.

    Raises:
        ArgumentError: the weights or the tokenizer cannot be used.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        kind: Kind,
        pixels: Mapping[str, Any],
        *,
        device: str = "cpu",
        precision: str = "auto",
        batch_size: int = 16,
        engine: str = "auto",
    ) -> None:
        super().__init__(device, precision, batch_size, engine)
        self.name = name
        self.image_size, self.mean, self.std = pixels["image_size"], pixels["mean"], pixels["std"]
        self.interpolation, self.resize_mode = pixels["interpolation"], pixels["resize_mode"]
        self._read_scale(model)
        self._tokenizer, self._clean = tokenizer, kind.clean
        self.context_length = min(longest_prompt(model), self._tokenizer.model_max_length)
        self._read_tokenizer(kind.pool)
        weights = model.state_dict()
        image = {key: weights[key] for key in weights if key.startswith(("vision_model.", "visual_projection."))}
        text = {key: weights[key] for key in weights if key not in image}
        left = self._tokenizer.padding_side == "left"
        self.text_tower = self._placed(TextTower(model, kind.pool, self.context_length, self.pad, left), text)
        check_vocabulary(name, tokenizer, len(self.text_tower.embedding.weight))
        self._check_text(text)
        self._place_tower(ImageTower(model, name), image)
        parts = {model.config.text_config.hidden_act, model.config.vision_config.hidden_act}
        self.facts = {"activation": " and ".join(sorted(_ACTIVATIONS.get(part, part) for part in parts))}
        self._splits: dict[int, SplitImageTower] = {}

    def _read_tokenizer(self, pool: Pool) -> None:
        """Find out from an empty text what the tokenizer puts around the words, and with what it fills rows."""
        tokenizer = self._tokenizer
        pad = tokenizer.pad_token_id
        if pad is None and pool == "last":
            raise ArgumentError(f"{self.name}: its tokenizer has no padding token, with which prompts are filled up")
        self.pad = int(pad or 0)
        empty = tokenizer("")["input_ids"]
        ends = [one for one in (tokenizer.eos_token_id, tokenizer.sep_token_id) if one is not None]
        self._adds_end = bool(empty) and empty[-1] in ends
        self.start = len(empty) - self._adds_end
        if self.start > 1 or not (self._adds_end or pool == "last"):
            raise ArgumentError(
                f"{self.name}: its tokenizer makes of an empty text the tokens {empty}, and not a start token, if any, "
                "and an end token"
            )

    def _check_text(self, weights: Mapping[str, Tensor]) -> None:
        """Refuse a text tower whose features are useless, or the same for all prompts."""
        two = self.tokenize(("cat", "dog"), "a photo of a {}.")
        with torch.no_grad():
            features = self._text_features(two, None, "replace")
        if useless_rows(features).any():
            raise refuse_features(self.name, "every prompt", weights, USELESS)
        if torch.equal(features[0], features[1]):
            raise refuse_features(self.name, "all prompts", weights, "the same")

    def _token_ids(self, text: str) -> list[int]:
        with silence():  # of prompts that are too long, which are refused with all that is wrong
            ids: list[int] = [*self._tokenizer(self._clean(text), truncation=False)["input_ids"]]
        if not self._adds_end:
            ids.append(self.pad)  # prompts are filled up with it anyway
        known = len(self.text_tower.embedding.weight)
        if max(ids) >= known:
            raise ArgumentError(
                f"{self.name}: its tokenizer gives {text[:40]!r} the token {max(ids)}, and the weights have {known}; "
                "take the tokenizer that they were trained with"
            )
        return ids

    @property
    def capabilities(self) -> frozenset[str]:
        """What some methods need beyond features; see `Backbone.capabilities`."""
        return super().capabilities | {ADAPTABLE_BLOCKS}

    def split_tower(self, blocks: int) -> SplitImageTower:
        """Return the image tower cut below its last attention blocks; see `Backbone.split_tower`."""
        if blocks not in self._splits:
            self._splits[blocks] = SplitImageTower(self, blocks)
        return self._splits[blocks]

    @cached_property
    def text_hash(self) -> str:
        """SHA-256 of the text tower's weights and of how prompts are filled up, in hexadecimal."""
        tower = self.text_tower
        return digest(f"{hash_of(tower)} {tower.context_length} {tower.pad} {tower.left}")
