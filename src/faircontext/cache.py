"""The cache of features on disk: text features, image features of a run, and copies of image encoders.

Text features are stored in the platform's own folder for caches (`~/.cache/faircontext` on Linux); the environment
variable `FAIRCONTEXT_CACHE` names another, and with the value `off` nothing is stored. Image features are stored in a
folder that a run names (`evaluate --features`). Copies of image encoders for another engine, see `backbones.engines`,
lie beside the text features. Deleting any of them costs time only.
"""

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from faircontext import __version__
from faircontext.errors import ArgumentError, FairContextWarning, reason_of
from faircontext.files import digest, digest_of_json, digest_of_parts, replacing


def hash_of(module: torch.nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers, in hexadecimal."""
    state = sorted(module.state_dict().items())
    return digest_of_parts(part for name, tensor in state for part in (name, tensor_bytes(tensor)))


def hash_of_tensor(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's numbers and shape, in hexadecimal."""
    return digest(str(tuple(tensor.shape)), tensor_bytes(tensor))


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor, in the order of its elements."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def cache_folder() -> Path | None:
    """Return the folder of the cache, or None where nothing is to be stored."""
    setting = os.environ.get("FAIRCONTEXT_CACHE", "")
    if setting.lower() in ("off", "0", "none"):
        return None
    return Path(setting) if setting else Path(platformdirs.user_cache_dir("faircontext", appauthor=False))


def cached_features(
    folder: Path | None,
    key: Mapping[str, object],
    device: torch.device,
    compute: Callable[[], Tensor],
    rows: int = 0,
    asked: bool = False,
) -> Tensor:
    """Return a tensor from a folder, or compute and store it; an entry that is damaged is computed again.

    Args:
        folder: where entries lie; None stores nothing.
        key: all that the tensor depends on, besides the versions of this package and of torch, the device, and the
            number of threads, which are added.
        device: where the tensor is wanted.
        compute: makes the tensor.
        rows: how many are needed; an entry with fewer is computed again, and what is returned may have more.
        asked: whether somebody has asked for the folder, who is told where nothing can be stored in it.

    Warns:
        FairContextWarning: the entry cannot be stored, in a folder that was asked for.
    """
    if folder is None:
        return compute()
    versions = {"faircontext": __version__, "torch": torch.__version__}
    full_key = {**key, **versions, "device": device.type, "threads": torch.get_num_threads()}
    path = folder / f"{digest_of_json(full_key)}.safetensors"
    features = _read_features(path)
    if features is None or len(features) < rows:
        features = compute()
        try:
            write_entry(path, {"features": features}, {})
        except (OSError, ArgumentError) as error:  # a cache that cannot be written is no reason to stop
            if asked:
                reason = reason_of(error).rpartition("cannot be written: ")[2]  # without the entry: one line for all
                line = f"{folder}: features cannot be kept: {reason}; the run goes on without them"
                warnings.warn(line, FairContextWarning, stacklevel=2)
    return features.to(device)


def _read_features(path: Path) -> Tensor | None:
    try:
        features = read_entry(path)[0]["features"]
        return features if bool(features.isfinite().all()) else None
    except Exception:  # no such entry, or a damaged one
        return None


def read_entry(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of an entry, mapped into memory, and what is said of them; any error is raised."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        facts = dict(file.metadata())
    if facts.pop("sha256") != _checksum(tensors, facts):
        raise ValueError("its checksum is another")
    return tensors, facts


def write_entry(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write tensors, with a checksum of all that there is; see `write_tensors`."""
    write_tensors(path, tensors, {**facts, "sha256": _checksum(tensors, facts)})


def _checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    return digest(*(tensor_bytes(tensors[name]) for name in sorted(tensors)), *[digest_of_json(facts)] * bool(facts))


def count_damaged(folder: Path) -> tuple[int, int]:
    """Return how many entries of features a folder has, and how many of them cannot be read."""
    entries = [path for path in folder.rglob("*.safetensors") if path.parent.name != "engines"]
    return len(entries), sum(_read_features(path) is None for path in entries)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to a file of the cache in one step.

    Raises:
        OSError: its folder cannot be made.
        ArgumentError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".partial")  # two processes may make the same entry
    os.close(handle)
    with replacing(path, Path(name)) as made:
        # Written here, as the library's own writing says of a full disk what is no OSError.
        made.write_bytes(save({name: value.cpu().contiguous() for name, value in tensors.items()}, dict(metadata)))
