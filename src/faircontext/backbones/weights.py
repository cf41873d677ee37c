"""The weights of a checkpoint file: read as tensors by name, with nothing unpickled, and fitted to an open_clip model.

Training loops put the weights under a key beside other things, and wrap the model, which puts a prefix before each
name. What is plain is taken, and what was chosen is said; a file with anything but tensors is an error with a command
that keeps its tensors. The library fits weights in silence: it resizes positions, and lists what is missing in a
message of many pages. Here nothing is resized unless that is asked for, and what does not fit is one line.
"""

import json
import math
import pickle
import re
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed, resize_text_pos_embed
from safetensors.torch import load_file
from torch import Tensor

from faircontext.errors import ArgumentError
from faircontext.imagefiles import ZEROS, known_kind

__all__ = ["TRANSFORMERS", "keep_archive", "keep_tensors", "load_weights", "read_weights"]

_KEYS = ("state_dict", "model_state_dict", "model")
"""Where training loops put the weights; the first that is there is taken."""

_AVERAGED = ("ema", "swa", "averaged")
"""Words in the name of weights that were averaged over training, and lie beside the weights themselves."""

_WRAPPERS = re.compile(r"^(?:(?:module|model|_orig_mod)\.)+|(?<=\.)(?:_orig_mod|_fsdp_wrapped_module)\.")
"""What DistributedDataParallel, torch.compile, Lightning and FSDP put into the names of tensors."""

_ADAPTER = re.compile(r"(?:^|[._])lora_(?:A|B|up|down|embedding)")
"""Names of low-rank changes to weights, as peft and kohya write them."""

_NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "n_averaged")
"""Numbers among the tensors: of OpenAI's archives, and of torch's AveragedModel."""

_IMAGE_POSITIONS = "visual.positional_embedding"
_TEXT_POSITIONS = ("positional_embedding", "text.positional_embedding")

TRANSFORMERS = (
    "a checkpoint of transformers, whose tensors have other names than open_clip's; take the same weights in "
    "open_clip's form: a tag (faircontext list pretrained), or hf-hub:ORG/NAME with an open_clip_config.json"
)


def read_weights(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Read a checkpoint, and say what was taken of it where there was a choice.

    Args:
        path: of safetensors, or of a PyTorch file that holds tensors alone, whatever its extension.

    Returns:
        Tensors by name, and warnings, a line each.

    Raises:
        ArgumentError: it is damaged, or holds more than tensors, no weights, weights twice, changes to weights, or
            those of transformers.
    """
    tensors, warnings = _unwrap(path, _load(path))
    averaged = [name for name in tensors if "." in name and _is_averaged(name.partition(".")[0])]
    if averaged and len(averaged) < len(tensors):
        warnings.append(f"the weights under {averaged[0].partition('.')[0]}. (averaged) are not taken")
        tensors = {name: tensor for name, tensor in tensors.items() if name not in set(averaged)}
    names: dict[str, str] = {}
    removed: dict[str, None] = {}
    for name in tensors:
        plain = _WRAPPERS.sub("", name)
        if plain in names and plain not in _NO_WEIGHTS:
            raise ArgumentError(f"{path}: holds {plain} twice, as {names[plain]} and as {name}; keep one of them")
        removed |= dict.fromkeys(match[0] for match in _WRAPPERS.finditer(name))
        names[plain] = name
    weights = {plain: tensors[name] for plain, name in names.items() if plain not in _NO_WEIGHTS}
    if any(name.startswith(("text_model.", "vision_model.")) for name in weights):
        raise ArgumentError(f"{path}: {TRANSFORMERS}")
    if any(_ADAPTER.search(name) for name in weights):
        raise ArgumentError(
            f"{path}: holds LoRA, which is changes to the weights of a model and not the weights; merge it into the "
            "model, and give the file of that"
        )
    removed.pop("module.", None)  # open_clip's own training writes it
    if removed:
        warnings.append(f"names of tensors are read without {', '.join(removed)}")
    return weights, warnings


def keep_tensors(path: Path, *keys: str) -> str:
    """Return a command that writes the tensors of a file, which its user trusts, into one that is read here.

    Args:
        path: of the file; all that holds tensors is kept as it lies, under whatever key.
        keys: that lead to the part which alone is kept; then the file need not be trusted.
    """
    source = json.dumps(str(path))
    if keys:
        part = "".join(f"[{json.dumps(key)}]" for key in keys)
        target = json.dumps(f"{path.stem}-{keys[-1]}.pt")
        return _python(f'torch.save(torch.load({source}, "cpu", weights_only=True){part}, {target})')
    return _python(
        "keep = lambda x: x.state_dict() if isinstance(x, torch.nn.Module) else x if torch.is_tensor(x) else "
        "{k: keep(v) for k, v in x.items() if isinstance(v, (dict, torch.Tensor, torch.nn.Module))}; "
        f'torch.save(keep(torch.load({source}, "cpu", weights_only=False)), {json.dumps(f"{path.stem}-weights.pt")})'
    )


def keep_archive(path: Path) -> str:
    """Return a command that writes the tensors of a TorchScript archive, which its user trusts, into a file."""
    source, target = json.dumps(str(path)), json.dumps(f"{path.stem}-weights.pt")
    return _python(f'torch.save(torch.jit.load({source}, "cpu").float().state_dict(), {target})')


def _python(program: str) -> str:
    return f"python -c {shlex.quote('import torch; ' + program)}"


def _load(path: Path) -> Any:
    """Return what a file holds; which form it has is known by its first bytes, as extensions may be wrong."""
    with path.open("rb") as file:
        head = file.read(512)
    size = int.from_bytes(head[:8], "little")
    safetensors = head[8:9] == b"{" and size < 100_000_000  # the library refuses longer headers as well
    if not safetensors and not head.startswith((b"PK\3\4", b"\x80")):
        what = "is empty" if not head else f"holds {ZEROS}" if not any(head) else ""
        what = what or f"holds {known_kind(head) or 'neither safetensors nor what PyTorch writes'}"
        raise ArgumentError(f"{path}: no file of weights: it {what}")
    try:
        if safetensors:
            return load_file(path)
        if head.startswith(b"PK") and not zipfile.is_zipfile(path):
            raise EOFError("its end is missing")
        with path.open("rb") as file:  # of a path the library would look at the extension
            return torch.load(file, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except pickle.UnpicklingError:
        raise ArgumentError(
            f"{path}: not a file of tensors alone, and anything else is not read because it could run code; if you "
            f"trust it, keep its tensors with: {keep_tensors(path)}"
        ) from None
    except Exception as error:  # broken files raise anything
        said = " ".join(str(error).split()) or type(error).__name__
        raise ArgumentError(
            f"{path}: damaged or cut short, as by an interrupted download; fetch it again ({said[:120]})"
        ) from None


def _unwrap(path: Path, content: Any) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of a checkpoint as they are named in it, from below the keys of training loops."""
    warnings: list[str] = []
    above: list[str] = []
    parts: list[str] = []
    while isinstance(content, Mapping):
        parts = [str(key) for key, value in content.items() if isinstance(value, Mapping) and _has_tensors(value)]
        key = next((key for key in _KEYS if key in parts), None)
        if key is None:
            break
        others = {part: keys for part, keys in _key_paths(content).items() if part != key}
        if others or key != _KEYS[0]:
            warnings.append(f"the weights under {key} are taken")
        for other, keys in others.items():
            averaged = " (averaged)" if _is_averaged(other) else ""
            command = keep_tensors(path, *above, *keys)
            warnings.append(f"those under {other}{averaged} are not taken; for a file of them: {command}")
        above.append(key)
        content = content[key]
    if not isinstance(content, Mapping):
        raise ArgumentError(f"{path}: holds an object of type {type(content).__name__}, and no tensors by name")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if tensors and not parts:
        return tensors, warnings
    listed = ", ".join(map(str, list(content)[:8])) or "nothing"
    paths = {part: [part] for part in parts} | _key_paths(content)
    hint = "".join(
        f"; for a file of {part}: {keep_tensors(path, *above, *keys)}" for part, keys in [*paths.items()][:1]
    )
    raise ArgumentError(f"{path}: holds {listed}, and no weights under {', '.join(_KEYS)}{hint}")


def _has_tensors(value: Mapping[Any, Any]) -> bool:
    """Return whether a part of a checkpoint is of weights, or holds such a part; optimisers number theirs."""
    return any(
        isinstance(name, str)
        and (isinstance(inner, Tensor) or (name in _KEYS and isinstance(inner, Mapping) and _has_tensors(inner)))
        for name, inner in value.items()
    )


def _key_paths(content: Mapping[Any, Any]) -> dict[str, list[str]]:
    """Return the parts of a checkpoint that may be its weights, with the keys that lead to the tensors of each."""
    named = {str(key): value for key, value in content.items() if str(key) in _KEYS or _is_averaged(str(key))}
    paths = {key: _keys_to_tensors(value) for key, value in named.items()}
    return {key: [key, *keys] for key, keys in paths.items() if keys is not None}


def _keys_to_tensors(value: Any) -> list[str] | None:
    """Return the keys that lead to a mapping of names to tensors, or None; classes of averages have it inside."""
    if not isinstance(value, Mapping):
        return None
    named = {name: inner for name, inner in value.items() if isinstance(name, str)}
    if any(isinstance(inner, Tensor) for inner in named.values()):
        return []
    paths = ((name, _keys_to_tensors(inner)) for name, inner in named.items())
    return next(([name, *keys] for name, keys in paths if keys is not None), None)


def _is_averaged(name: str) -> bool:
    return any(word in _AVERAGED for word in re.split(r"[._-]", name.lower()))


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
