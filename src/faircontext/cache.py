"""Features on disk, so that a second process need not encode the same prompts or pictures again.

Text features are kept in the platform's own folder for caches (`~/.cache/faircontext` on Linux); the environment
variable `FAIRCONTEXT_CACHE` names another, and with the value `off` nothing is kept. Image features are kept in a
folder that a run names (`evaluate --features`). Deleting either costs time only.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from faircontext import __version__

__all__ = ["cache_folder", "cached_features"]


def cache_folder() -> Path | None:
    """Return the folder of the cache, or None where nothing is to be kept."""
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
) -> Tensor:
    """Return a tensor from a folder, or compute and keep it; an entry that is damaged is computed again.

    Args:
        folder: where entries lie; None keeps nothing.
        key: all that the tensor depends on, besides the versions of this package and of torch, the device, and the
            number of threads, which are added.
        device: where the tensor is wanted.
        compute: makes the tensor.
        rows: how many are needed; an entry with fewer is computed again, and what is returned may have more.
    """
    if folder is None:
        return compute()
    whole = {
        **key,
        "faircontext": __version__,
        "torch": torch.__version__,
        "device": device.type,
        "threads": torch.get_num_threads(),
    }
    name = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    path = folder / f"{name}.safetensors"
    found = _read(path)
    if found is None or len(found) < rows:
        found = compute()
        with suppress(OSError):  # a cache that cannot be written is no reason to stop
            _write(path, found)
    return found.to(device)


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.cpu().contiguous().view(torch.uint8).numpy().data).hexdigest()


def _read(path: Path) -> Tensor | None:
    try:
        with safe_open(path, "pt") as file:
            tensor: Tensor = file.get_tensor("features")
            whole = file.metadata()["sha256"] == _digest(tensor) and bool(tensor.isfinite().all())
            return tensor if whole else None
    except Exception:  # no such entry, or a damaged one
        return None


def _write(path: Path, tensor: Tensor) -> None:
    """Write an entry in one step: two processes never see each other's half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    os.close(handle)
    try:
        # Written here, as the library's own writing says of a full disk what is no OSError.
        content = save({"features": tensor.cpu().contiguous()}, {"sha256": _digest(tensor)})
        Path(partial).write_bytes(content)
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)
