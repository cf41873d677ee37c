"""The tensors of a checkpoint file, by the names that the model gives them; nothing is ever unpickled.

Training loops put the weights under a key beside other things, and wrap the model, which puts a prefix before each
name. What is plain is taken, and what was chosen is said; a file with anything but tensors is refused with a command
that keeps its tensors.
"""

import json
import pickle
import re
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from faircontext.errors import ArgumentError
from faircontext.imagefiles import ZEROS, known_kind

__all__ = ["TRANSFORMERS", "keep_archive", "keep_tensors", "read_weights"]

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

_LONGEST_HEADER = 100_000_000
"""Bytes; the library refuses longer ones as well."""

TRANSFORMERS = (
    "a checkpoint of transformers, whose tensors have other names than open_clip's; take the same weights in "
    "open_clip's form: a tag (faircontext list pretrained), or hf-hub:ORG/NAME with an open_clip_config.json"
)


def read_weights(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Read a checkpoint, and say what was taken of it where there was a choice.

    Args:
        path: of safetensors, or of a PyTorch file that holds tensors alone, whatever its extension.

    Returns:
        Tensors by name, and remarks, a line each.

    Raises:
        ArgumentError: it is damaged, or holds more than tensors, no weights, weights twice, changes to weights, or
            those of transformers.
    """
    found, remarks = _unwrap(path, _load(path))
    weights: dict[str, Tensor] = {}
    removed: dict[str, None] = {}
    origin: dict[str, str] = {}
    averaged = [name for name in found if "." in name and _is_averaged(name.partition(".")[0])]
    if averaged and len(averaged) < len(found):
        remarks.append(f"the weights under {averaged[0].partition('.')[0]}. (averaged) are not taken")
        found = {name: tensor for name, tensor in found.items() if name not in set(averaged)}
    for name, tensor in found.items():
        plain = _WRAPPERS.sub("", name)
        if plain in weights:
            raise ArgumentError(f"{path}: holds {plain} twice, as {origin[plain]} and as {name}; keep one of them")
        removed |= dict.fromkeys(match[0] for match in _WRAPPERS.finditer(name))
        if plain not in _NO_WEIGHTS:
            weights[plain], origin[plain] = tensor, name
    if any(name.startswith(("text_model.", "vision_model.")) for name in weights):
        raise ArgumentError(f"{path}: {TRANSFORMERS}")
    if any(_ADAPTER.search(name) for name in weights):
        raise ArgumentError(
            f"{path}: holds LoRA, which is changes to the weights of a model and not the weights; merge it into the "
            "model, and give the file of that"
        )
    removed.pop("module.", None)  # open_clip's own training writes it
    if removed:
        remarks.append(f"names of tensors are read without {', '.join(removed)}")
    return weights, remarks


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
    safetensors = head[8:9] == b"{" and size < _LONGEST_HEADER
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


def _unwrap(path: Path, found: Any) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of a checkpoint as they are named in it, from below the keys of training loops."""
    remarks: list[str] = []
    place: list[str] = []
    parts: list[str] = []
    while isinstance(found, Mapping):
        parts = [str(key) for key, value in found.items() if isinstance(value, Mapping) and _has_tensors(value)]
        key = next((key for key in _KEYS if key in parts), None)
        if key is None:
            break
        others = {part: way for part, way in _ways(found).items() if part != key}
        if others or key != _KEYS[0]:
            remarks.append(f"the weights under {key} are taken")
        for other, way in others.items():
            averaged = " (averaged)" if _is_averaged(other) else ""
            command = keep_tensors(path, *place, *way)
            remarks.append(f"those under {other}{averaged} are not taken; for a file of them: {command}")
        place.append(key)
        found = found[key]
    if not isinstance(found, Mapping):
        raise ArgumentError(f"{path}: holds an object of type {type(found).__name__}, and no tensors by name")
    tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    if tensors and not parts:
        return tensors, remarks
    listed = ", ".join(map(str, list(found)[:8])) or "nothing"
    ways = {part: [part] for part in parts} | _ways(found)
    hint = "".join(f"; for a file of {part}: {keep_tensors(path, *place, *way)}" for part, way in [*ways.items()][:1])
    raise ArgumentError(f"{path}: holds {listed}, and no weights under {', '.join(_KEYS)}{hint}")


def _has_tensors(value: Mapping[Any, Any]) -> bool:
    """Return whether a part of a checkpoint is of weights, or holds such a part; optimisers number theirs."""
    return any(
        isinstance(name, str)
        and (isinstance(inner, Tensor) or (name in _KEYS and isinstance(inner, Mapping) and _has_tensors(inner)))
        for name, inner in value.items()
    )


def _ways(found: Mapping[Any, Any]) -> dict[str, list[str]]:
    """Return the parts of a checkpoint that may be its weights, with the keys that lead to the tensors of each."""
    named = {str(key): value for key, value in found.items() if str(key) in _KEYS or _is_averaged(str(key))}
    ways = {key: _way_to_tensors(value) for key, value in named.items()}
    return {key: [key, *way] for key, way in ways.items() if way is not None}


def _way_to_tensors(value: Any) -> list[str] | None:
    """Return the keys that lead to a mapping of names to tensors, or None; classes of averages have it inside."""
    if not isinstance(value, Mapping):
        return None
    named = {name: inner for name, inner in value.items() if isinstance(name, str)}
    if any(isinstance(inner, Tensor) for inner in named.values()):
        return []
    ways = ((name, _way_to_tensors(inner)) for name, inner in named.items())
    return next(([name, *way] for name, way in ways if way is not None), None)


def _is_averaged(name: str) -> bool:
    return any(word in _AVERAGED for word in re.split(r"[._-]", name.lower()))
