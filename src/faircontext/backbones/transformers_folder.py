"""Folders of transformers: configuration, tensors, tokenizer and preparation of pictures, each checked as it is read.

A folder is what the library's `save_pretrained` writes, or a repository of the Hugging Face Hub that was copied.
Nothing is fetched or unpickled.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from faircontext.backbones.transformers_towers import Pool
from faircontext.backbones.weights import read_weights
from faircontext.errors import ArgumentError, in_one_line, reason_of, silence
from faircontext.files import Rules, check_values, read_json

__all__ = ["KINDS", "Kind", "doubt_activation", "read_config", "read_preprocessing", "read_tensors", "read_tokenizer"]


@dataclass(frozen=True)
class Kind:
    """What is known of the models of a `model_type`.

    Attributes:
        model: the library's class.
        pool: where a prompt's feature is taken, see `TextTower`.
        pixels: mean and deviation of each channel, where a folder does not say.
        clean: what is done to a prompt before the tokenizer reads it. Tokenizers of SigLIP 2 are Gemma's, which know
            nothing of what SigLIP was trained on.
    """

    model: str
    pool: Pool
    pixels: tuple[tuple[float, float, float], tuple[float, float, float]]
    clean: Callable[[str], str] = str


def _canonicalize(text: str) -> str:
    """Return a prompt in small letters and without punctuation, as the same weights get it by their open_clip name."""
    from open_clip.tokenizer import get_clean_fn  # takes seconds to import

    return str(get_clean_fn("canonicalize")(text))


_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
KINDS = {
    "clip": Kind("CLIPModel", "end", _CLIP),
    "siglip": Kind("SiglipModel", "last", _HALF, _canonicalize),
    "siglip2": Kind("Siglip2Model", "last", _HALF, str.lower),
    "altclip": Kind("AltCLIPModel", "first", _CLIP),
    "chinese_clip": Kind("ChineseCLIPModel", "first", _CLIP),
}
"""By `model_type` of `config.json`."""

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of filters."""

_OPENAI = re.compile(r"openai|clip-vit-(?:base|large)-patch\d+", re.IGNORECASE)
"""In the names of OpenAI's own checkpoints, which were trained with QuickGELU."""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and value > 0


def _is_size(value: Any) -> bool:
    return _is_whole(value) or (
        isinstance(value, dict) and all(side is None or _is_whole(side) for side in value.values())
    )


def _are_channels(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(one) in (int, float) for one in value)


_PREPARED: Rules = {
    "do_normalize": (lambda value: isinstance(value, bool), "true or false"),
    "do_center_crop": (lambda value: isinstance(value, bool), "true or false"),
    "image_mean": (_are_channels, "three numbers"),
    "image_std": (_are_channels, "three numbers"),
    "do_rescale": (lambda value: value is True, "true: pixels are from 0 to 1 here before the mean is taken off"),
    "rescale_factor": (
        lambda value: type(value) is float and math.isclose(value, 1 / 255, rel_tol=1e-3),
        "1/255: write another scale into image_mean and image_std",
    ),
    "resample": (lambda value: type(value) is int, f"one of {', '.join(map(str, _FILTERS))}"),
    "size": (_is_size, 'a count of pixels, or {"shortest_edge": PIXELS}, or {"height": PIXELS, "width": PIXELS}'),
    "crop_size": (_is_size, 'a count of pixels, or {"height": PIXELS, "width": PIXELS}'),
    "max_num_patches": (_is_whole, "a count of patches"),
}
"""What is read of `preprocessor_config.json`: whether a value can be used, and which can."""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = read_json(path)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}") from None
    if not isinstance(document, dict):
        raise ArgumentError(f"{path}: holds no JSON object")
    return document


def read_config(folder: Path) -> dict[str, Any]:
    """Return a folder's configuration, of a model that is known here."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise ArgumentError(
            f"transformers:{folder}: no such folder; copy the model's files into one (nothing is fetched)"
        )
    if not path.is_file():
        known = (folder / "open_clip_config.json").exists()
        other = f"; it is a model of open_clip: name it local-dir:{folder}" if known else "; save_pretrained writes it"
        raise ArgumentError(f"{path}: no such file{other}")
    config = _read_json(path)
    if config.get("model_type") not in [*KINDS]:  # a value of JSON need not be hashable
        raise ArgumentError(
            f"{path}: a model of type {config.get('model_type')!r}; those that can be used are {', '.join(KINDS)}"
        )
    if config.get("quantization_config"):
        raise ArgumentError(f"{path}: a quantised model; take its weights from before (quantization_config)")
    return config


def read_tensors(folder: Path, pretrained: str | None, key: str | None) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of a folder, or of a file in their place, and what was chosen."""
    if pretrained is not None:
        file = Path(pretrained).expanduser()
        if not file.is_file():
            raise ArgumentError(f"pretrained={pretrained!r} is no file; give one, or leave it out for {folder}'s own")
        files = [file]
    else:
        files = _weight_files(folder)
    tensors: dict[str, Tensor] = {}
    lines: list[str] = []
    for file in files:
        with in_one_line(f"{file}: cannot be read"):
            read, said = read_weights(file, key)
        tensors |= read
        lines += [f"{file}: {line}" for line in said]
    return tensors, lines


def _weight_files(folder: Path) -> list[Path]:
    first = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if first is None:
        raise ArgumentError(f"{folder}: no weights in it; looked for {', '.join(_WEIGHTS)}")
    if first.suffix != ".json":
        return [first]
    parts = _read_json(first).get("weight_map")
    if not isinstance(parts, dict) or not parts:
        raise ArgumentError(f"{first}: names no parts of the weights (weight_map)")
    files = [folder / str(part) for part in dict.fromkeys(parts.values())]
    if missing := [file for file in files if not file.is_file()]:
        raise ArgumentError(f"{missing[0]}: no such file, which {first.name} names as a part of the weights")
    return files


def read_tokenizer(folder: Path) -> Any:
    """Return the library's tokenizer of a folder."""
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ArgumentError(f"{folder}: no tokenizer in it; looked for {', '.join(_TOKENIZERS)}")
    vocabulary = next(folder.glob("s*p*iece*.model"), None)
    if vocabulary and not (folder / "tokenizer.json").is_file() and find_spec("sentencepiece") is None:
        raise ArgumentError(f"{vocabulary}: needs sentencepiece: pip install 'faircontext[checkpoints]'")
    with in_one_line(f"{folder}: its tokenizer cannot be read"), silence():
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)


def doubt_activation(folder: Path, config: Any) -> list[str]:
    """Return a warning where a name is that of OpenAI's weights, and the configuration has another activation."""
    names = f"{folder.resolve().parent.name}/{folder.resolve().name} {getattr(config, 'name_or_path', '')}"
    used = {part: getattr(config, part).hidden_act for part in ("text_config", "vision_config")}
    wrong = [part for part, activation in used.items() if activation == "gelu"]
    if config.model_type != "clip" or not wrong or not _OPENAI.search(names):
        return []
    return [
        f"{folder}: GELU is used, as config.json says, but the name suggests OpenAI's weights, which were trained with "
        f'QuickGELU; if so, write "hidden_act": "quick_gelu" into its {" and ".join(wrong)}'
    ]


def read_preprocessing(folder: Path, kind: Kind, config: Any) -> tuple[dict[str, Any], list[str]]:
    """Return how pictures are prepared (`image_size`, `mean`, `std`, `interpolation`, `resize_mode`), and warnings."""
    path = next(
        (folder / n for n in ("preprocessor_config.json", "processor_config.json") if (folder / n).is_file()), None
    )
    said = {} if path is None else _read_prepared(path)
    lines = []
    if path is None:
        lines.append(f"{folder}: no preprocessor_config.json in it; the usual preparation of {kind.model} is taken")
    mean, std = (
        tuple(said.get(key) or default) for key, default in zip(("image_mean", "image_std"), kind.pixels, strict=True)
    )
    if said.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    default = 2 if kind.model == "Siglip2Model" else 3
    filter_ = _FILTERS.get(said.get("resample", default))
    if filter_ is None:
        raise ArgumentError(f"{path}: resample={said['resample']!r}; only {', '.join(_FILTERS.values())} can be used")
    good = all(0 <= value <= 1 for value in mean) and all(0 < value < math.inf for value in std)
    if not (len(mean) == len(std) == 3 and good):
        raise ArgumentError(f"{path}: mean {mean} and std {std} are not possible; std is above 0, mean from 0 to 1")
    size, mode = _size(said, kind, config)
    whole = {"image_size": size, "mean": mean, "std": std, "interpolation": filter_, "resize_mode": mode}
    lines += _check_size(path or folder, said, size, config)
    return whole, lines


def _read_prepared(path: Path) -> dict[str, Any]:
    """Return what a folder says of the preparation of pictures, without what it leaves open (null)."""
    whole = _read_json(path)
    inner = whole.get("image_processor") or whole
    if not isinstance(inner, dict):
        raise ArgumentError(f"{path}: invalid image_processor {str(inner)[:60]!r}: must be an object of JSON")
    return check_values(path, inner, _PREPARED)


def _size(said: Mapping[str, Any], kind: Kind, config: Any) -> tuple[int, str]:
    """Return the side of the square that is read, and how a picture is made square."""
    if kind.model == "Siglip2Model":  # reads any ratio of sides; a square has all of the patches
        return math.isqrt(int(said.get("max_num_patches", 256))) * int(config.vision_config.patch_size), "shortest"
    sides = said.get("size")
    both = isinstance(sides, dict) and "height" in sides if said else kind.model == "SiglipModel"
    return int(config.vision_config.image_size), "squash" if both else "shortest"


def _check_size(path: Path, said: Mapping[str, Any], size: int, config: Any) -> list[str]:
    """Refuse a preparation for another model's pictures; warn of a margin that is not cut off here."""
    if not said or config.model_type == "siglip2":
        return []
    whole = said.get("size", size)
    sides: dict[str, Any] = whole if isinstance(whole, dict) else {"shortest_edge": whole}
    sides = {key: side for key, side in sides.items() if side is not None}
    crop: Any = said.get("crop_size", size) if said.get("do_center_crop") else None
    crop = crop if isinstance(crop, dict) or crop is None else {"height": crop, "width": crop}
    final = crop or {key: side for key, side in sides.items() if key in ("height", "width")} or sides
    if any(int(side) != size for side in final.values()):
        raise ArgumentError(
            f"{path}: prepares pictures of {' x '.join(map(str, final.values()))} pixels, and the model reads {size} x "
            f"{size}; take the file that belongs to the model"
        )
    resized = [int(side) for side in sides.values() if int(side) != size]
    return (
        [f"{path}: resizes to {resized[0]} before cutting {size} out; here the whole side is kept"] if resized else []
    )
