"""Folders of transformers as models: CLIP, SigLIP, SigLIP 2, AltCLIP and Chinese-CLIP, each part checked as it is read.

A folder is what the library's `save_pretrained` writes, or a repository of the Hugging Face Hub that was copied.
Nothing is fetched or unpickled. The library makes the model and fits the tensors to it. What does not fit is one line,
where the library would draw new numbers in its place.
"""

import math
import re
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faircontext.backbones.loaded import CHANNELS, Loaded, finish
from faircontext.backbones.transformers_clip import KINDS, Kind, TransformersClip
from faircontext.backbones.weights import check_fit, check_floats, other_positions, read_weights
from faircontext.errors import ArgumentError, in_one_line, silence
from faircontext.files import Rules, check_values, find_file, read_json

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
_SENTENCEPIECE = {"sentencepiece": "sentencepiece", "google": "protobuf", "google.protobuf": "protobuf"}
"""Modules that a SentencePiece vocabulary is read with, outer ones first, and the packages that have them."""

_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of filters."""
_FILTER_WORDS = f"{', '.join(map(str, _FILTERS))} ({', '.join(_FILTERS.values())})"

_OPENAI = re.compile(r"openai|clip-vit-(?:base|large)-patch\d+", re.IGNORECASE)
"""In the names of OpenAI's own checkpoints, which were trained with QuickGELU."""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and value > 0


def _is_size(value: Any) -> bool:
    return (
        all(side is None or _is_whole(side) for side in value.values()) if isinstance(value, dict) else _is_whole(value)
    )


def _is_scale(value: Any) -> bool:
    return type(value) is float and math.isclose(value, 1 / 255, rel_tol=1e-3)


_CONFIG: Rules = {
    "model_type": (lambda value: value in [*KINDS], f"one of {', '.join(KINDS)}"),  # a value need not be hashable
    "quantization_config": (lambda value: not value, "left out, with the weights from before quantisation"),
}
"""What is read of `config.json`, as below."""

_PREPARED: Rules = {
    "do_normalize": (lambda value: isinstance(value, bool), "true or false"),
    "do_center_crop": (lambda value: isinstance(value, bool), "true or false"),
    "image_mean": CHANNELS["mean"],
    "image_std": CHANNELS["std"],
    "do_rescale": (lambda value: value is True, "true: pixels are from 0 to 1 here before the mean is taken off"),
    "rescale_factor": (_is_scale, "1/255: write another scale into image_mean and image_std"),
    "resample": (lambda value: value in [*_FILTERS] and type(value) is int, f"one of {_FILTER_WORDS}"),
    "image_processor": (lambda value: isinstance(value, dict), "an object of JSON"),
    "size": (_is_size, 'a count of pixels, or {"shortest_edge": PIXELS}, or {"height": PIXELS, "width": PIXELS}'),
    "crop_size": (_is_size, 'a count of pixels, or {"height": PIXELS, "width": PIXELS}'),
    "max_num_patches": (_is_whole, "a count of patches"),
}
"""What is read of `preprocessor_config.json`: whether a value can be used, and which can."""


def load_transformers(
    name: str,
    pretrained: str | None = None,
    *,
    weights_key: str | None = None,
    adapter: str | None = None,
    **options: Any,
) -> TransformersClip:
    """Load a model of transformers.

    Args:
        name: `transformers:` and the folder.
        pretrained: file of weights in place of the folder's own, for example a training loop's.
        weights_key: see `create_backbone`, as the rest.
        adapter: see there.
        **options: `device`, `precision`, `batch_size` and `engine`, see there.

    Warnings and errors are those of `create_backbone`.
    """
    path = name.partition(":")[2]
    if not path:
        raise ArgumentError(f"{name!r} names no model; write transformers:FOLDER")
    folder = Path(path).expanduser()
    config = _read_config(folder)
    kind = KINDS[config["model_type"]]
    file = None if pretrained is None else Path(pretrained).expanduser()
    if file is not None and not file.is_file():
        raise ArgumentError(f"pretrained={pretrained!r} is no file; give one, or leave it out for {folder}'s own")
    tensors: dict[str, Tensor] = {}
    lines: list[str] = []
    for part in _weight_files(folder) if file is None else [file]:
        with in_one_line(f"{part}: cannot be read"):
            read, said = read_weights(part, weights_key)
        tensors |= read
        lines += [f"{part}: {line}" for line in said]
    with in_one_line(f"{folder}: transformers cannot make a model of it"), silence():
        model = _make(file or folder, kind, config, tensors)
    tensors.clear()  # as large as the model
    tokenizer = _read_tokenizer(folder)
    lines += _doubt_activation(folder, model.config)
    pixels, warned = read_preprocessing(folder, kind, model.config)
    loaded = Loaded(model, tokenizer, pixels, [*lines, *warned])
    return finish(partial(TransformersClip, kind=kind, **options), loaded, name, pretrained, adapter)


def _read_config(folder: Path) -> dict[str, Any]:
    """Return a folder's configuration, of a model that is known here."""
    if (folder / "open_clip_config.json").exists() and not (folder / "config.json").exists():
        raise ArgumentError(f"{folder}: a model of open_clip; name it local-dir:{folder}")
    path = find_file(folder, "configuration, as save_pretrained writes it,", "config.json")
    return check_values(path, read_json(path), _CONFIG, ["model_type"])


def _weight_files(folder: Path) -> list[Path]:
    first = find_file(folder, "weights", *_WEIGHTS)
    if first.suffix != ".json":
        return [first]
    parts = (lambda value: isinstance(value, dict) and bool(value)), "the file of each tensor"
    names = check_values(first, read_json(first), {"weight_map": parts}, ["weight_map"])["weight_map"].values()
    what = f"part of the weights that {first.name} names"
    return [find_file(folder, what, str(name)) for name in dict.fromkeys(names)]


def _make(source: Path, kind: Kind, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """Return the library's model with the tensors of a file or folder, in float32."""
    import transformers
    from transformers.utils import logging

    create = getattr(transformers, kind.model)
    known = create.config_class.from_dict({key: config[key] for key in config if key not in ("dtype", "torch_dtype")})
    numbers = {key: tensor for key, tensor in tensors.items() if "position_ids" not in key}  # older versions'
    check_floats(source, numbers, numbers)
    floats = {key: tensor.float() for key, tensor in numbers.items()}
    with ExitStack() as stack:
        if logging.is_progress_bar_enabled():
            logging.disable_progress_bar()
            stack.callback(logging.enable_progress_bar)
        stack.enter_context(torch.random.fork_rng(devices=[]))  # what is missing is drawn, and then refused
        model, info = create.from_pretrained(
            None, config=known, state_dict=floats, output_loading_info=True, ignore_mismatched_sizes=True
        )
    _check_fit(source, kind, model.config, info)
    return model.float().eval()


def _check_fit(source: Path, kind: Kind, config: Any, info: Mapping[str, Any]) -> None:
    """Say in one line what of the tensors does not fit the model."""
    shapes = sorted(info["mismatched_keys"])
    class_token = int(config.model_type not in ("siglip", "siglip2"))
    if sizes := other_positions(shapes, config.vision_config.patch_size, class_token):
        cure = (
            "correct image_size and max_position_embeddings there, or take weights of that size: none is resized here"
        )
        raise ArgumentError(f"{source}: has positions of {sizes[0]}, and config.json says {sizes[1]}; {cure}")
    unknown = sorted(key for key in info["unexpected_keys"] if not key.startswith("text_model.pooler."))  # BERT's
    problem, cure = f"{source}: cannot be read as weights of {kind.model}", "take config.json and weights of one model"
    check_fit(problem, shapes, sorted(info["missing_keys"]), unknown, cure)


def _read_tokenizer(folder: Path) -> Any:
    """Return the library's tokenizer of a folder."""
    find_file(folder, "tokenizer", *_TOKENIZERS)
    vocabulary = next(folder.glob("s*p*iece*.model"), None)
    missing = next((package for module, package in _SENTENCEPIECE.items() if find_spec(module) is None), None)
    if missing and vocabulary and not (folder / "tokenizer.json").is_file():
        raise ArgumentError(f"{vocabulary}: needs {missing}: pip install 'faircontext[checkpoints]'")
    with in_one_line(f"{folder}: its tokenizer cannot be read"), silence():
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)


def _doubt_activation(folder: Path, config: Any) -> list[str]:
    """Return a warning where a name is that of OpenAI's weights, and the configuration has another activation."""
    names = f"{folder.resolve().parent.name}/{folder.resolve().name} {getattr(config, 'name_or_path', '')}"
    used = {part: getattr(config, part).hidden_act for part in ("text_config", "vision_config")}
    wrong = [part for part, activation in used.items() if activation == "gelu"]
    if config.model_type != "clip" or not wrong or not _OPENAI.search(names):
        return []
    doubt = (
        "GELU is used, as config.json says, but the name suggests OpenAI's weights, which were trained with QuickGELU"
    )
    return [f'{folder}: {doubt}; if so, write "hidden_act": "quick_gelu" into its {" and ".join(wrong)}']


def read_preprocessing(folder: Path, kind: Kind, config: Any) -> tuple[dict[str, Any], list[str]]:
    """Return how pictures are prepared, as in `PIXELS`, and warnings."""
    names = ("preprocessor_config.json", "processor_config.json")
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    said = {} if path is None else check_values(path, read_json(path), _PREPARED)
    if inner := said.get("image_processor"):
        said = check_values(path, inner, _PREPARED)
    lines, any_ratio = [], kind.model == "Siglip2Model"  # of sides; a square has all of the patches
    if path is None:
        lines.append(f"{folder}: no preprocessor_config.json in it; the usual preparation of {kind.model} is taken")
    mean, std = (said.get(key) or usual for key, usual in zip(("image_mean", "image_std"), kind.pixels, strict=True))
    if said.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if any_ratio:
        size = math.isqrt(int(said.get("max_num_patches", 256))) * int(config.vision_config.patch_size)
    else:
        size = int(config.vision_config.image_size)
        lines += _check_size(path or folder, said, size) if said else []
    both = isinstance(said.get("size"), dict) and "height" in said["size"] if said else kind.model == "SiglipModel"
    preparation = {"mean": mean, "std": std, "interpolation": _FILTERS[said.get("resample", 2 if any_ratio else 3)]}
    return {**preparation, "size": size, "resize_mode": "squash" if both and not any_ratio else "shortest"}, lines


def _check_size(path: Path, said: Mapping[str, Any], size: int) -> list[str]:
    """Refuse a preparation for another model's pictures; warn of a margin that is not cut off here."""
    sides = _sides(said.get("size", size), "shortest_edge")
    crop = _sides(said.get("crop_size", size), "height", "width") if said.get("do_center_crop") else {}
    final = crop or {name: sides[name] for name in ("height", "width") if name in sides} or sides
    if any(int(side) != size for side in final.values()):
        problem = f"prepares pictures of {' x '.join(map(str, final.values()))} pixels"
        cure = "take the file that belongs to the model"
        raise ArgumentError(f"{path}: {problem}, and the model reads {size} x {size}; {cure}")
    resized = [int(side) for side in sides.values() if int(side) != size]
    return [f"{path}: resizes to {side} before cutting {size} out; here the whole side is kept" for side in resized[:1]]


def _sides(said: Any, *names: str) -> dict[str, Any]:
    """Return the sides that a size is of, by name; a number is all of some names."""
    sides = said if isinstance(said, dict) else dict.fromkeys(names, said)
    return {name: side for name, side in sides.items() if side}
