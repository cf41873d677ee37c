"""Tensors of a checkpoint, fitted to a model of open_clip.

The library fits weights in silence: it resizes positions, and lists what is missing in a message of many pages. Here
nothing is resized unless that is asked for, and what does not fit is one line.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed, resize_text_pos_embed
from torch import Tensor

from faircontext.errors import ArgumentError

__all__ = ["NUMPY", "load_weights"]

_IMAGE_POSITIONS = "visual.positional_embedding"
_TEXT_POSITIONS = ("positional_embedding", "text.positional_embedding")

NUMPY = (".npz", ".npy")
"""Files of big_vision's arrays, which open_clip has a reader for."""


def load_weights(
    model: Any, path: Path, weights: dict[str, Tensor] | None, name: str, resize_positions: bool
) -> list[str]:
    """Load weights into a model of open_clip.

    Args:
        model: made by the library.
        path: of their file.
        weights: what `read_weights` gives for it; None for a file of `NUMPY`.
        name: of the model's architecture, or `local-dir:` and its folder.
        resize_positions: whether positions are resized where the model has others.

    Returns:
        Warnings, a line each.

    Raises:
        ArgumentError: the tensors do not fit the model.
    """
    if weights is None:
        if not hasattr(model.visual, "trunk"):
            raise ArgumentError(
                f"{path}: NumPy arrays are read as weights of big_vision, which {name} is no architecture of; give "
                "safetensors, or a PyTorch file"
            )
        open_clip.load_checkpoint(model, str(path))
        return []
    warnings = []
    # These steps are those of `open_clip.load_checkpoint`, which takes no tensors, only a file.
    weights = convert_state_dict(model, weights)
    own = model.state_dict()
    if "positional_embedding" in weights and not hasattr(model, "positional_embedding"):
        weights = convert_to_custom_text_state_dict(weights)
    for key in ("logit_scale", "logit_bias"):
        if key in own and key in weights:
            weights[key] = weights[key].reshape(own[key].shape)  # a number in some files, a vector of one in others
    if "logit_bias" in own and "logit_scale" in weights:
        weights.setdefault("logit_bias", torch.zeros_like(weights["logit_scale"]))
    # With other tensors of another shape it is another architecture, whose patches may be of another size as well.
    resizable = {*_other_shapes(own, weights)} <= {_IMAGE_POSITIONS, *_TEXT_POSITIONS}
    if sizes := _other_positions(model.visual, own, weights) if resizable else []:
        theirs, ours = map(" and ".join, zip(*sizes, strict=True))
        if not resize_positions:
            raise ArgumentError(
                f"{path}: has positions of {theirs}, and {name} reads {ours}; "
                f"{_other_architecture(name, model, weights)}, "
                "or have them resized with resize_positions=True (--resize-positions)"
            )
        resize_pos_embed(weights, model)
        resize_text_pos_embed(weights, model)
        warnings.append(f"{path}: positions of {theirs} are resized to the {ours} that {name} reads")
    _fit(model, weights, path, name)
    return warnings


def _other_shapes(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors whose shape is not the model's."""
    return [key for key in own if key in weights and own[key].shape != weights[key].shape]


def _other_positions(visual: Any, own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> list[tuple[str, str]]:
    """Return what sizes positions are of, and what the model reads, where the library would resize them."""
    sizes = []
    for key in (_IMAGE_POSITIONS, *_TEXT_POSITIONS):
        count, needed = (len(tensors.get(key, ())) for tensors in (weights, own))
        if not count or not needed or count == needed:
            continue
        if key in _TEXT_POSITIONS:
            sizes.append((f"{count} tokens", f"{needed} tokens"))
        else:
            side = math.isqrt(count - 1)  # of a square of patches; one position is of no patch
            pixels = f"{side * visual.patch_size[0]} pixels" if side * side == count - 1 else f"{count} patches"
            sizes.append((pixels, f"{visual.image_size[0]} pixels"))
    return sizes


def _other_architecture(name: str, model: Any, weights: Mapping[str, Tensor]) -> str:
    """Return advice to name an architecture that differs from the one that was named in the sizes alone."""
    config = open_clip.get_model_config(name)
    if config is None or name.startswith("local-dir:"):
        return "correct image_size and context_length in open_clip_config.json"
    if _IMAGE_POSITIONS in weights and hasattr(model.visual, "patch_size"):
        side = math.isqrt(len(weights[_IMAGE_POSITIONS]) - 1)
        config["vision_cfg"]["image_size"] = side * model.visual.patch_size[0]
    for key in _TEXT_POSITIONS:
        if key in weights:
            config["text_cfg"]["context_length"] = len(weights[key])
    fitting = [other for other in open_clip.list_models() if open_clip.get_model_config(other) == config]
    return f"name the architecture {fitting[0]}" if fitting else "name an architecture that reads the same"


def _fit(model: Any, weights: dict[str, Tensor], path: Path, name: str) -> None:
    """Load tensors into a model, or say in one line what does not fit."""
    own = model.state_dict()
    # PyTorch would take integers for floats in silence, without the scale that quantised weights are to be read with.
    kinds = [key for key in own if key in weights and own[key].is_floating_point() > weights[key].is_floating_point()]
    if kinds:
        raise ArgumentError(
            f"{path}: {len(kinds)} tensors are no floating-point numbers (first {kinds[0]}: "
            f"{str(weights[kinds[0]].dtype).removeprefix('torch.')}), as in a quantised model; take the weights from "
            "before"
        )
    problems = []
    if shapes := _other_shapes(own, weights):
        sizes = " and not ".join(" x ".join(map(str, tensors[shapes[0]].shape)) for tensors in (weights, own))
        problems.append(f"tensors of another shape: {len(shapes)} (first {shapes[0]}: {sizes})")
        weights = {key: tensor for key, tensor in weights.items() if key not in shapes}
    loaded = model.load_state_dict(weights, strict=False)
    missing = [key for key in loaded.missing_keys if key not in shapes]
    for keys, what in ((missing, "missing"), (loaded.unexpected_keys, "unknown")):
        if keys:
            problems.append(f"{what}: {len(keys)} (first {keys[0]})")
    if problems:
        raise ArgumentError(
            f"{path}: cannot be read as weights of {name}: {', '.join(problems)}; name the architecture that they were "
            "trained with"
        )
