"""Models that a library has loaded: what backbones of open_clip and of transformers have in common.

Also adapters (LoRA and its relatives) in the folders that peft writes, which peft merges into a model's weights.
"""

import math
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from faircontext.backbones.base import ADAPTABLE_BLOCKS, Backbone, require
from faircontext.backbones.split import Blocks, SplitEncoder
from faircontext.backbones.weights import (
    USELESS,
    check_fit,
    check_vocabulary,
    check_weights,
    read_content,
    refuse_features,
)
from faircontext.cache import hash_of
from faircontext.errors import ArgumentError, FairContextWarning, and_more, in_one_line, silence
from faircontext.files import Rules, check_values, find_file, read_json

B = TypeVar("B", bound=Backbone)


def _are_channels(value: Any, low: float, high: float) -> bool:
    numbers = isinstance(value, Sequence) and len(value) == 3 and all(type(one) in (int, float) for one in value)
    return numbers and all(low <= one <= high for one in value)


CHANNELS: Rules = {
    "mean": (lambda value: _are_channels(value, 0.0, 1.0), "three numbers from 0 to 1, as pixels are"),
    "std": (lambda value: _are_channels(value, math.ulp(0.0), 1e37), "three numbers above 0"),
}
PIXELS: Rules = {
    **CHANNELS,
    "interpolation": (lambda value: value in ("bicubic", "bilinear", "nearest"), "bicubic, bilinear or nearest"),
    "resize_mode": (lambda value: value in ("shortest", "squash"), "shortest or squash"),
    "size": (lambda value: not isinstance(value, Sequence) or len({*value}) == 1, "that of a square"),
}
"""How pictures are prepared: whether a value can be used, and which can."""


@dataclass(frozen=True)
class Loaded:
    """A model as a library has loaded it.

    Attributes:
        model: in float32; it is used, not copied.
        tokenizer: the library's.
        pixels: how pictures are prepared, as in `PIXELS`.
        warnings: what a person should know about the choice of weights, a line each.
        facts: what records say of the choice besides.
    """

    model: Any
    tokenizer: Any
    pixels: Mapping[str, Any]
    warnings: Sequence[str] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


def finish(
    make: Callable[[str, Loaded], B], loaded: Loaded, name: str, pretrained: str | None, adapter: str | None
) -> B:
    """Return the backbone of a loaded model, with its adapter, and say what was chosen."""
    lines = [*loaded.warnings]
    if adapter is not None:
        lines += _merge_adapter(loaded.model, Path(adapter).expanduser(), name)
    for line in lines:
        warnings.warn(line, FairContextWarning, stacklevel=4)
    backbone = make(name if pretrained is None else f"{name}:{pretrained}", loaded)
    backbone.facts = {**backbone.facts, **({"warnings": lines} if lines else {}), **loaded.facts}
    return backbone


class TextEncoder(torch.nn.Module):
    """A library's text encoder, from token embeddings, so that a context can be learnt; the model's layers are shared.

    Args:
        context_length: longest prompt.
        pad: token id that fills prompts up.
        pool: where a prompt's feature is taken: at the `"first"` or the `"last"` position, or else at the end token.
        full_length: whether padding counts: features then need the full context length. Otherwise, where attention is
            causal and the feature is taken at the end token, or padding is masked, cutting it is exact.
    """

    embedding: Any

    def __init__(self, context_length: int, pad: int, pool: str, full_length: bool) -> None:
        super().__init__()
        self.context_length, self.pad, self.pool, self.full_length = context_length, pad, pool, full_length

    def forward(
        self, embeddings: Float[Tensor, "prompts tokens width"], mask: Bool[Tensor, "prompts tokens"], shared: int = 0
    ) -> Float[Tensor, "prompts dim"]:
        """Encode prompts given by their token embeddings.

        Args:
            embeddings: of tokens, and of the padding after them.
            mask: True for tokens.
            shared: so many first tokens are the same in all prompts.
        """
        ends = mask.sum(1) - 1 - embeddings.shape[1]
        if self.full_length:
            rest = self.context_length - embeddings.shape[1]
            padding = self.embedding.weight[self.pad].expand(len(embeddings), rest, -1)
            embeddings, mask, ends = torch.cat([embeddings, padding], 1), F.pad(mask, (0, rest)), ends - rest
        hidden = self._run(embeddings, mask, shared)
        ends = {"first": torch.zeros_like(ends), "last": torch.full_like(ends, -1)}.get(self.pool, ends)
        return self._project(hidden[torch.arange(len(ends), device=ends.device), ends])

    @abstractmethod
    def _run(self, embeddings: Tensor, mask: Tensor, shared: int) -> Tensor:
        """Return the normalised hidden states, of which the first, of tokens that prompts share, may be left out."""

    @abstractmethod
    def _project(self, pooled: Tensor) -> Tensor:
        """Return features, not of unit length, of the hidden states where they are taken."""


class LoadedBackbone(Backbone):
    """A model that a library has loaded.

    Args:
        name: what it is called in tables and records.
        loaded: the model.
        engine: of the image encoder: `auto`, `torch` or `openvino`.
        **options: `device`, `precision` and `batch_size`, see `create_backbone`.

    Raises:
        ArgumentError: the model has a layout, weights or a tokenizer that cannot be used.
    """

    blocks: ClassVar[Blocks]
    """How the image encoder is run in parts, where it is a vision transformer."""
    image_parts: ClassVar[tuple[str, ...]]
    """What names of the image encoder's weights begin with."""

    def __init__(self, name: str, loaded: Loaded, engine: str = "auto", **options: Any) -> None:
        super().__init__(engine=engine, **options)
        self.name, self._tokenizer = name, loaded.tokenizer
        pixels = check_values(name, loaded.pixels, PIXELS)
        size = pixels["size"]
        self.image_size = int(size if isinstance(size, int) else size[0])
        self.mean, self.std = tuple(pixels["mean"]), tuple(pixels["std"])
        self.interpolation, self.resize_mode = pixels["interpolation"], pixels["resize_mode"]
        self.logit_scale = float(loaded.model.logit_scale.detach().exp())
        bias = getattr(loaded.model, "logit_bias", None)
        self.logit_bias = None if bias is None else float(bias.detach()) or None  # zero stands in for none
        self._splits: dict[int, SplitEncoder] = {}

    def _take(self, model: torch.nn.Module, text_encoder: torch.nn.Module, encoder: torch.nn.Module) -> None:
        """Take the encoders of the library's model."""
        weights = model.state_dict()
        image = {key: tensor for key, tensor in weights.items() if key.startswith(self.image_parts)}
        text = {key: weights[key] for key in weights if key not in image and not key.startswith("text_decoder.")}
        self.text_encoder = self._moved(text_encoder, text)
        check_vocabulary(self.name, getattr(self._tokenizer, "tokenizer", self._tokenizer), self._vocabulary)
        self._check_text(text)
        self.context_length = self.text_encoder.context_length
        self._take_image_encoder(encoder, image)

    @abstractmethod
    def _tokens(self, text: str) -> list[int]:
        """Tokenise a text in full."""

    @property
    def _vocabulary(self) -> int:
        return len(self.text_encoder.embedding.weight)

    def _check_text(self, weights: Mapping[str, Tensor]) -> None:
        """Refuse weights whose features of all prompts are useless, or the same.

        The encoder is not run to see this: where text features are in the cache, nothing needs it.
        """
        parts = {
            "text_projection|text_model.head.weight": ("every prompt", USELESS),
            "token_embedding|word_embeddings": ("all prompts", "the same"),
        }
        for part, (whose, problem) in parts.items():
            zero = {key: one for key, one in weights.items() if re.search(part, key) and one.ndim > 1 and not one.any()}
            if zero:
                raise refuse_features(self.name, whose, zero, problem)

    def _token_ids(self, text: str) -> list[int]:
        ids = self._tokens(text)
        if max(ids, default=0) >= self._vocabulary:
            problem = f"its tokenizer gives {text[:40]!r} the token {max(ids)}, and the weights have {self._vocabulary}"
            raise ArgumentError(f"{self.name}: {problem}; take the tokenizer that they were trained with")
        return ids

    def split_encoder(self, blocks: int) -> SplitEncoder:
        """Return the image encoder cut below its last attention blocks; see `Backbone.split_encoder`."""
        require(self, ADAPTABLE_BLOCKS)
        if blocks not in self._splits:
            there = len(self.blocks.layers(self.image_encoder))
            if blocks > there:
                raise ArgumentError(f"blocks={blocks} is not possible; the image tower of {self.name} has {there}")
            self._splits[blocks] = SplitEncoder(self.image_encoder, self.blocks, blocks, self._normalise)
        return self._splits[blocks]

    @cached_property
    def text_hash(self) -> str:
        """SHA-256 of the text encoder's weights, in hexadecimal."""
        return hash_of(self.text_encoder)


_CONFIG = "adapter_config.json"
_LAYERS = (torch.nn.Linear, torch.nn.Embedding, torch.nn.Conv2d, torch.nn.MultiheadAttention)
"""Whose weights an adapter changes."""


def _merge_adapter(model: torch.nn.Module, folder: Path, name: str) -> list[str]:
    """Merge an adapter into a model's weights, in place.

    Args:
        model: in float32.
        folder: with `adapter_config.json` and the adapter's tensors.
        name: of the model, for messages.

    Returns:
        What was done, and what is odd about the adapter, a line each.

    Raises:
        ArgumentError: peft is not installed; the folder holds no adapter, or one of another model, or one that is not a
            change of weights; or its values are not finite.
    """
    try:
        from peft import PeftConfig, PeftType
    except ImportError:
        raise ArgumentError(f"adapter={str(folder)!r} needs peft: pip install 'faircontext[checkpoints]'") from None
    path = find_file(folder, "adapter, as peft writes it,", _CONFIG)
    kinds = (lambda kind: kind in [*PeftType.__members__]), "LORA, or another kind that the installed peft has"
    facts = check_values(path, read_json(path), {"peft_type": kinds}, ["peft_type"])
    file = find_file(folder, "adapter's tensors", "adapter_model.safetensors", "adapter_model.bin")
    tensors = read_content(file)
    if not isinstance(tensors, Mapping) or not tensors or not all(isinstance(one, Tensor) for one in tensors.values()):
        raise ArgumentError(f"{file}: holds no tensors by name alone, as those of an adapter")
    check_weights(f"adapter {folder}", tensors)
    with in_one_line(f"{folder}: cannot be read as an adapter of {name}"), silence(), torch.random.fork_rng(devices=[]):
        config, kind = PeftConfig.from_pretrained(str(folder)), facts["peft_type"]
        if config.is_prompt_learning:
            raise ArgumentError(f"{folder}: {kind} learns tokens and no weights; give a folder of LoRA")
        config.task_type, config.inference_mode = None, True
        _adapt(model, config, tensors, folder, _origin(facts, name, model)).merge_and_unload()
    lines = [f"{folder}: the adapter ({kind}) is merged into the weights of {name}"]
    zero = [key for key, tensor in tensors.items() if ".lora_B." in key and not tensor.any()]
    if zero and len(zero) == sum(".lora_B." in key for key in tensors):
        lines.append(f"{folder}: the adapter changes nothing, as before its training: all values of {zero[0]} are zero")
    return lines


def _adapt(model: torch.nn.Module, config: Any, tensors: Mapping[str, Tensor], folder: Path, origin: str) -> Any:
    """Return peft's model with an adapter; refuse one whose tensors are not those that the model takes.

    peft itself leaves out what does not fit.
    """
    from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

    another = f"{folder}: an adapter of another model"
    try:
        adapted = get_peft_model(model, config)
    except ValueError as error:
        if "not found in the base model" not in str(error):
            raise
        raise ArgumentError(f"{another}: no layer that it changes is there; {origin}") from None
    taken = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    pairs = [(key, tensors[key].shape, taken[key].shape) for key in tensors if key in taken]
    check_fit(another, pairs, [], [], origin)
    loaded: Any = set_peft_model_state_dict(adapted, dict(tensors))
    missing = [key for key in loaded.missing_keys if "default" in key.split(".")]
    check_fit(another, [], missing, loaded.unexpected_keys, origin)
    return adapted


def _origin(facts: Mapping[str, Any], name: str, model: torch.nn.Module) -> str:
    """Return which model an adapter was made for, as it says itself, and which layers this one has."""
    source, task, targets = (facts.get(key) for key in ("base_model_name_or_path", "task_type", "target_modules"))
    listed = and_more(sorted(map(str, targets)), 6) if isinstance(targets, list) else targets
    details = ", ".join([f"task {task}"] * bool(task) + [f"target_modules {listed}"] * bool(listed))
    made = f"it was made for {source or 'a model that it does not name'}{details and f' ({details})'}"
    layers = {path.rpartition(".")[2] for path, layer in model.named_modules() if path and isinstance(layer, _LAYERS)}
    return f"{made}, and layers of {name} are {and_more(sorted(layers), 8)}; give the model that it was trained on"
