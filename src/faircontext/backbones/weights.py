"""The weights of a checkpoint file: read as tensors by name, with nothing unpickled.

Training loops put the weights under a key beside other things, and wrap the model, which puts a prefix before each
name. What is plain is taken, and what was chosen is said; averaged weights are taken where they are asked for. A file
with anything but tensors is an error with a command that keeps its tensors.
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

__all__ = ["keep_archive", "keep_tensors", "read_content", "read_weights", "weights_in"]

_KEYS = ("state_dict", "model_state_dict", "model")
"""Where training loops put the weights; the first that is there is taken."""

_AVERAGED = ("ema", "swa", "averaged")
"""Words in the name of weights that were averaged over training, and lie beside the weights themselves."""

_WRAPPERS = re.compile(
    r"^(?:(?:module|model|_orig_mod|_fsdp_wrapped_module)\.)+|(?<=\.)(?:_orig_mod|_fsdp_wrapped_module)\."
)
"""What DistributedDataParallel, torch.compile, Lightning and FSDP put into the names of tensors."""

_SCALE, _IMAGE_TOWERS = "logit_scale", ("visual.", "vision_model.")
"""Names by which a model is known among tensors, in open_clip and in transformers."""

_ADAPTER = re.compile(r"(?:^|[._])lora_(?:A|B|up|down|embedding)")
"""Names of low-rank changes to weights, as peft and kohya write them."""

_NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "n_averaged")
"""Numbers among the tensors: of OpenAI's archives, and of torch's AveragedModel."""


def read_weights(path: Path, key: str | None = None) -> tuple[dict[str, Tensor], list[str]]:
    """Read a checkpoint, and say what was taken of it where there was a choice.

    Args:
        path: of safetensors, or of a PyTorch file that holds tensors alone, whatever its extension.
        key: which of several weights is taken, as `model_ema`; None for those that were not averaged.

    Returns:
        Tensors by name, and warnings, a line each.

    Raises:
        ArgumentError: it is damaged, or holds more than tensors, no weights (or none under the key), weights twice,
            several models, or changes to weights.
    """
    return _model_in(path, *weights_in(path, read_content(path), key))


def _model_in(path: Path, weights: dict[str, Tensor], warnings: list[str]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of the model among those of a training loop, whose class may hold it under any name.

    What a file holds besides, as of a loss, is left out.

    Raises:
        ArgumentError: it holds several models, or one of averaged weights alone.
    """
    found = {name.removesuffix(_SCALE) for name in weights if f".{name}".endswith(f".{_SCALE}")}
    roots = [root for root in sorted(found) if any(name.startswith(_towers_under(root)) for name in weights)]
    plain = [root for root in roots if not _is_averaged(root)]
    if not any(roots):
        return weights, warnings
    if len(plain) != 1 and "" not in plain:
        keys = [root.removesuffix(".") for root in roots]
        raise ArgumentError(f"{path}: holds weights under {' and '.join(keys)}; name which: {_as_option(keys[0])}")
    own, *left = sorted(roots, key=plain[0].__ne__)
    if own:
        warnings.append(f"names of tensors are read without {own}")
    warnings += [f"those under {root} are not taken; {_to_take(root.removesuffix('.'))}" for root in left]
    if others := [name for name in weights if own and not name.startswith((own, *left))]:
        warnings.append(f"tensors outside {own} are not taken: {len(others)} (first {others[0]})")
    names = [name for name in weights if name.startswith(own) and not name.startswith(tuple(left))]
    return {name.removeprefix(own): weights[name] for name in names}, warnings


def _towers_under(root: str) -> tuple[str, ...]:
    return tuple(root + tower for tower in _IMAGE_TOWERS)


def weights_in(path: Path, content: Any, key: str | None = None) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights in what a file holds; see `read_weights`."""
    tensors, warnings = _unwrap(path, content) if key is None else _part(path, content, key)
    averaged = [name for name in tensors if "." in name and _is_averaged(name.partition(".")[0])]
    if averaged and len(averaged) < len(tensors):
        prefix = averaged[0].partition(".")[0]
        warnings.append(f"the weights under {prefix}. (averaged) are not taken; {_to_take(prefix)}")
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
    if any(_ADAPTER.search(name) for name in weights):
        raise ArgumentError(
            f"{path}: holds LoRA, which is changes to the weights of a model and not the weights; give peft's folder "
            "of it as adapter= (--adapter) beside the model's own weights"
        )
    removed.pop("module.", None)  # open_clip's own training writes it
    if removed:
        warnings.append(f"names of tensors are read without {', '.join(removed)}")
    return weights, warnings


def _to_take(key: str) -> str:
    return f"to take them: {_as_option(key)}"


def _as_option(key: str) -> str:
    return f"weights_key={key!r} (--weights-key {key})"


def keep_tensors(path: Path) -> str:
    """Return a command that writes the tensors of a file, which its user trusts, into one that is read here."""
    source = json.dumps(str(path))
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


def read_content(path: Path) -> Any:
    """Return what a file holds; which form it has is known by its first bytes, as extensions may be wrong."""
    with path.open("rb") as file:
        head = file.read(512)
    size = int.from_bytes(head[:8], "little")
    safetensors = head[8:9] == b"{" and size < 100_000_000  # the library refuses longer headers as well
    if not safetensors and not head.startswith((b"PK\3\4", b"\x80")):
        what = "is empty" if not head else f"holds {ZEROS}" if not any(head) else ""
        what = what or f"holds {known_kind(head) or 'neither safetensors nor what PyTorch writes'}"
        raise ArgumentError(f"{path}: no file of weights: it {what}{'' if head else '; fetch it again'}")
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
        for other in others:
            averaged = " (averaged)" if _is_averaged(other) else ""
            warnings.append(f"those under {other}{averaged} are not taken; {_to_take('.'.join([*above, other]))}")
        above.append(key)
        content = content[key]
    if not isinstance(content, Mapping):
        raise ArgumentError(f"{path}: holds an object of type {type(content).__name__}, and no tensors by name")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if tensors and not parts:
        return tensors, warnings
    listed = ", ".join(map(str, list(content)[:8])) or "nothing"
    named = next(iter([*parts, *_key_paths(content)]), None)
    hint = "; take another checkpoint" if named is None else f"; {_to_take('.'.join([*above, named]))}"
    raise ArgumentError(f"{path}: holds {listed}, and no weights under {', '.join(_KEYS)}{hint}")


def _part(path: Path, content: Any, key: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors under a key: of a part, with dots between the keys that lead to it, or before their names."""
    inner, rest = content, key
    while isinstance(inner, Mapping) and rest and rest not in inner and rest.partition(".")[0] in inner:
        first, _, rest = rest.partition(".")
        inner = inner[first]
    if isinstance(inner, Mapping) and (keys := _keys_to_tensors(inner.get(rest))) is not None:
        inner = inner[rest]
        for below in keys:
            inner = inner[below]
        tensors = {str(name): value for name, value in inner.items() if isinstance(value, Tensor)}
    else:
        flat = _unwrap(path, content)[0]
        names = {name: name if name.startswith(f"{key}.") else _WRAPPERS.sub("", name) for name in flat}
        tensors = {own.removeprefix(f"{key}."): flat[name] for name, own in names.items() if own.startswith(f"{key}.")}
        if not tensors:
            parts = [*_key_paths(content), *dict.fromkeys(name.partition(".")[0] for name in flat)]
            raise ArgumentError(f"{path}: holds no weights under {key!r}; it has {', '.join(parts[:8])}")
    return tensors, [f"the weights under {key} are taken"]


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
