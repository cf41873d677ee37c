"""Loading of open_clip models: the library makes the model, and a checkpoint's weights are fitted to it here.

The library fits them in silence: it resizes positions, and lists what is missing in a message of many pages. Here
nothing is resized unless that is asked for, and what does not fit is one line.
"""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed, resize_text_pos_embed
from torch import Tensor

from faircontext.backbones.checkpoints import find_source
from faircontext.backbones.open_clip import OpenClip
from faircontext.backbones.weights import read_weights
from faircontext.errors import ArgumentError, FairContextError, FairContextWarning

__all__ = ["load_open_clip"]

_IMAGE_POSITIONS = "visual.positional_embedding"
_TEXT_POSITIONS = ("positional_embedding", "text.positional_embedding")


def load_open_clip(
    name: str,
    pretrained: str | None = None,
    *,
    device: str = "cpu",
    precision: str = "auto",
    batch_size: int = 16,
    resize_positions: bool = False,
) -> OpenClip:
    """Load an open_clip model with its weights, its tokenizer and its own preprocessing.

    Args:
        name: architecture, `hf-hub:ORG/NAME`, or `local-dir:FOLDER`.
        pretrained: tag or checkpoint file of an architecture's weights.
        device: a torch device.
        precision: of the image tower.
        batch_size: rows of an image encoder batch on an accelerator.
        resize_positions: whether positions are resized where the model has others.

    Warns:
        FairContextWarning: there was a choice, and what was taken.

    Raises:
        ArgumentError: the model or its weights cannot be found or used.
    """
    source = find_source(name, pretrained)
    with _plain_errors(f"{source.config or name}: open_clip cannot make a model of it"), _silence():
        model = open_clip.create_model(
            source.model,
            load_weights=False,
            force_quick_gelu=source.quick_gelu,
            force_preprocess_cfg=dict(source.preprocess),
            pretrained_text=False,
        )
    with _plain_errors(f"{source.checkpoint}: cannot be read as weights of {name}"), _silence():
        remarks = [*source.remarks, *_fill(model, source.checkpoint, source.model, resize_positions)]
        tokenizer = open_clip.get_tokenizer(source.model)
    for remark in remarks:
        warnings.warn(remark, FairContextWarning, stacklevel=3)
    title = name if pretrained is None else f"{name}:{pretrained}"
    backbone = OpenClip(title, model, tokenizer, device=device, precision=precision, batch_size=batch_size)
    if remarks:
        backbone.facts = {**backbone.facts, "remarks": remarks}
    return backbone


@contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    """Turn what open_clip and torch say into one line that begins with the place and what went wrong."""
    try:
        yield
    except FairContextError:
        raise
    except Exception as error:  # broken files raise anything
        said = " ".join(str(error).split())
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
        raise ArgumentError(f"{what}: {kind}{said[:200]}") from None


@contextmanager
def _silence() -> Iterator[None]:
    """Keep open_clip from writing log lines and hints of its own."""
    earlier = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(earlier)


def _fill(model: Any, path: Path, name: str, resize: bool) -> list[str]:
    """Load the weights of a file into a model, and return remarks, a line each."""
    if path.suffix in (".npz", ".npy"):  # of big_vision, whose arrays the library has a reader for
        if not hasattr(model.visual, "trunk"):
            raise ArgumentError(
                f"{path}: NumPy arrays are read as weights of big_vision, which {name} is no architecture of; give "
                "safetensors, or a PyTorch file"
            )
        open_clip.load_checkpoint(model, str(path))
        return []
    weights, remarks = read_weights(path)
    remarks = [f"{path}: {remark}" for remark in remarks]
    # These steps are those of `open_clip.load_checkpoint`, which takes no tensors, only a file.
    weights = convert_state_dict(model, weights)
    if "positional_embedding" in weights and not hasattr(model, "positional_embedding"):
        weights = convert_to_custom_text_state_dict(weights)
    for key in ("logit_scale", "logit_bias"):
        own = getattr(model, key, None)
        if own is not None and key in weights:
            weights[key] = weights[key].reshape(own.shape)  # a number in some files, a vector of one in others
    if getattr(model, "logit_bias", None) is not None and "logit_scale" in weights:
        weights.setdefault("logit_bias", torch.zeros_like(weights["logit_scale"]))
    shapes = _other_shapes(model, weights)
    # With other tensors of another shape it is another architecture, whose patches may be of another size as well.
    sizes = [] if {*shapes} - {_IMAGE_POSITIONS, *_TEXT_POSITIONS} else _other_positions(model, weights)
    if sizes:
        found, reads = (" and ".join(pair[place] for pair in sizes) for place in (0, 1))
        if not resize:
            other = _other_architecture(name, model, weights)
            raise ArgumentError(
                f"{path}: has positions of {found}, and {name} reads {reads}; {other}, "
                "or have them resized with resize_positions=True (--resize-positions)"
            )
        resize_pos_embed(weights, model)
        resize_text_pos_embed(weights, model)
        remarks.append(f"{path}: positions of {found} are resized to the {reads} that {name} reads")
    _fit(model, weights, path, name)
    return remarks


def _other_shapes(model: Any, weights: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors whose shape is not the model's."""
    own = model.state_dict()
    return [key for key in own if key in weights and own[key].shape != weights[key].shape]


def _other_positions(model: Any, weights: dict[str, Tensor]) -> list[tuple[str, str]]:
    """Return what sizes positions are of, and what the model reads, where the library would resize them."""
    own, sizes = model.state_dict(), []
    for key in (_IMAGE_POSITIONS, *_TEXT_POSITIONS):
        if key not in own or key not in weights or own[key].shape[0] == weights[key].shape[0]:
            continue
        counts = (weights[key].shape[0], own[key].shape[0])
        if key in _TEXT_POSITIONS:
            sizes.append((f"{counts[0]} tokens", f"{counts[1]} tokens"))
        else:
            sizes.append((_pixels(counts[0], model.visual), f"{model.visual.image_size[0]} pixels"))
    return sizes


def _pixels(positions: int, tower: Any) -> str:
    """Return the side of the pictures that a tower of square patches has so many positions for; one is of no patch."""
    side = math.isqrt(positions - 1)
    return f"{side * tower.patch_size[0]} pixels" if side * side == positions - 1 else f"{positions} patches"


def _other_architecture(name: str, model: Any, weights: dict[str, Tensor]) -> str:
    """Return advice to name an architecture that differs from the one that was named in the sizes alone."""
    config = open_clip.get_model_config(name)
    if config is None or name.startswith("local-dir:"):
        return "correct image_size and context_length in open_clip_config.json"
    if _IMAGE_POSITIONS in weights and hasattr(model.visual, "patch_size"):
        side = math.isqrt(weights[_IMAGE_POSITIONS].shape[0] - 1)
        config["vision_cfg"]["image_size"] = side * model.visual.patch_size[0]
    for key in _TEXT_POSITIONS:
        if key in weights:
            config["text_cfg"]["context_length"] = weights[key].shape[0]
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
    shapes = _other_shapes(model, weights)
    problems = []
    if shapes:
        sizes = " and not ".join(" x ".join(map(str, found[shapes[0]].shape)) for found in (weights, own))
        problems.append(f"tensors of another shape: {len(shapes)} (first {shapes[0]}: {sizes})")
        weights = {key: tensor for key, tensor in weights.items() if key not in shapes}
    found = model.load_state_dict(weights, strict=False)
    missing = [key for key in found.missing_keys if key not in shapes]
    for keys, what in ((missing, "missing"), (found.unexpected_keys, "unknown")):
        if keys:
            problems.append(f"{what}: {len(keys)} (first {keys[0]})")
    if problems:
        raise ArgumentError(
            f"{path}: cannot be read as weights of {name}: {', '.join(problems)}; name the architecture that they were "
            "trained with"
        )
