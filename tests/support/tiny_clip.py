"""Tiny seeded open_clip models in every layout of a text encoder, written as folders that `local-dir:` reads."""

import json
from pathlib import Path

import open_clip
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

VISION = {"image_size": 32, "layers": 4, "width": 32, "patch_size": 16, "head_width": 16}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}

TINY = {"embed_dim": 32, "vision_cfg": VISION, "text_cfg": TEXT}
"""The architecture of the layout `clip`."""

LAYOUTS = {
    "clip": {},
    "custom": {"custom_text": True},
    "quick": {"quick_gelu": True},
    "end": {"custom_text": True, "text_cfg": {**TEXT, "pool_type": "eos", "eos_id": 49407}},
    "siglip": {
        "custom_text": True,
        "init_logit_bias": -10,
        "text_cfg": {**TEXT, "context_length": 64, "no_causal_mask": True, "pool_type": "last", "proj_bias": True},
    },
    "mobile": {"custom_text": True, "text_cfg": {**TEXT, "no_causal_mask": True}},
    "coca": {"custom_text": True, "text_cfg": {**TEXT, "context_length": 76, "embed_cls": True}},
    "resnet": {"vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}},
}
"""What differs from a CLIP with a vision transformer; the last text encoders are as in SigLIP, MobileCLIP and CoCa."""

CAUSAL = ("clip", "custom", "quick", "end", "resnet")


def write_model(folder: Path, layout: str, **preprocess: object) -> Path:
    """Write a model with seeded random weights, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**TINY, **LAYOUTS[layout]}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}))
    torch.manual_seed(3)
    save_file(native_model(folder, False).state_dict(), folder / "open_clip_model.safetensors")
    return folder


def native_model(folder: Path, load_weights: bool = True) -> torch.nn.Module:
    """Return the model as open_clip itself creates it."""
    return open_clip.create_model(f"local-dir:{folder}", load_weights=load_weights).eval()


def native_text(model: torch.nn.Module, texts: list[str] | tuple[str, ...], length: int) -> Tensor:
    """Return open_clip's own unit-norm text features."""
    with torch.no_grad():
        return model.encode_text(open_clip.SimpleTokenizer(context_length=length)(list(texts)), normalize=True)


def write_narrow(folder: Path, weight: float) -> Path:
    """Write a model in which a patch all white is too large for fp16, and above a weight of 50 one all black.

    No other is, and the test picture of `Backbone` is not.
    """
    file = write_model(folder, "clip") / "open_clip_model.safetensors"
    weights = load_file(file)
    weights["visual.conv1.weight"][0] = weight  # a layer norm comes after it, so that in fp32 it does no harm
    save_file(weights, file)
    return folder
