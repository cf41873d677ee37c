"""Towers of images and text: device and precision, batches, checks of weights and features, and the features' cache.

Text features are stored in the platform's own folder for caches (`~/.cache/faircontext` on Linux); the environment
variable `FAIRCONTEXT_CACHE` names another, and with the value `off` nothing is stored. Image features are stored in a
folder that a run names (`evaluate --features`). Copies of image towers for another engine, see `engines`, lie beside
the text features. Deleting any of them costs time only.
"""

import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import platformdirs
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from faircontext import __version__
from faircontext.errors import ArgumentError, FairContextWarning, check_choice, reason_of
from faircontext.files import digest, digest_of_json, digest_of_parts, replacing

__all__ = [
    "ADAPTABLE_BLOCKS",
    "DROPPABLE_PATCHES",
    "DTYPES",
    "MINIMUM_COSINE",
    "ROW_MULTIPLE",
    "TRAINABLE_TOWER",
    "USELESS",
    "cache_folder",
    "cached_features",
    "check_vocabulary",
    "check_weights",
    "count_damaged",
    "disagreement",
    "hash_of",
    "hash_of_tensor",
    "pad_rows",
    "probe_picture",
    "refuse_features",
    "resolve_precision",
    "tensor_bytes",
    "usable_device",
    "useless_rows",
    "write_tensors",
]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions of the image tower."""

ROW_MULTIPLE = 16
"""Encoder batches are padded to a multiple of this: a row's features then do not depend on the rows beside it."""

USELESS = "NaN, infinite or all zero"
"""What features must not be: a softmax over them gives NaN, or the same probability for all classes."""

ADAPTABLE_BLOCKS = "attention blocks that can be adapted (a vision transformer, such as ViT-B-16)"
"""Capability: the image tower is a vision transformer, see `Backbone.split_tower`."""

DROPPABLE_PATCHES = "patches that can be left out (a vision transformer of open_clip, such as ViT-B-16)"
"""Capability: the image tower runs on some of an image's patches, see `Backbone.encode_without`."""

TRAINABLE_TOWER = "an image tower in float32 (precision fp32)"
"""Capability: all weights of the image tower can be trained."""


def usable_device(device: str) -> torch.device:
    """Return the torch device of a name.

    Raises:
        ArgumentError: there is none here that holds numbers.
    """
    try:
        usable = torch.empty(0, device=device).device
        if usable.type == "meta":
            raise RuntimeError("it holds no numbers")
        return usable
    except (RuntimeError, AssertionError, ImportError) as error:  # what torch raises depends on how it was built
        said = re.split(r"[.;]\s|\n", str(error), maxsplit=1)[0].rstrip(".")
        about_torch = isinstance(error, NotImplementedError | ImportError) or "INTERNAL ASSERT" in said
        reason = "PyTorch finds no such device here" if about_torch or len(said) > 100 else said
        raise ArgumentError(f"device={device!r} is not possible: {reason}; use for example cpu") from None


def resolve_precision(precision: str, device: torch.device) -> str:
    """Return fp32, bf16 or fp16 for a requested precision; `"auto"` takes bf16 where the processor computes in it.

    Raises:
        ArgumentError: the precision is not one of auto, fp32, bf16, fp16.
    """
    check_choice("precision", precision, ("auto", *DTYPES))
    if precision != "auto":
        return precision
    # Private, but the only question torch answers about bf16 arithmetic (avx512_bf16, AMX) on a CPU.
    bf16 = device.type == "cpu" and getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return "bf16" if bf16 else "fp32"


MINIMUM_VOCABULARY = 0.98
"""Least share of a model's tokens that its tokenizer must make; embeddings may be padded to a round number of rows."""

MINIMUM_COSINE = 0.99
"""Least agreement of a lower precision, or of another engine, with float32 in PyTorch, on a test picture."""


def disagreement(exact: Float[Tensor, "1 dim"], features: Float[Tensor, "1 dim"]) -> str | None:
    """Return, in words that follow "features", why a test picture's are not what float32 gives; None where they are."""
    cosine = float(F.cosine_similarity(exact, features)[0])
    if cosine >= MINIMUM_COSINE:
        return None
    if math.isnan(cosine):
        return "are NaN or infinite"
    return f"agree with float32 to a cosine of {cosine:.3f}, less than {MINIMUM_COSINE}"


def check_weights(name: str, weights: Mapping[str, Tensor]) -> None:
    """Raise `ArgumentError` naming the model and the first tensor with a value that is NaN or infinite."""
    for tensor_name, tensor in weights.items():
        # Where the sum is finite all values are: a pass that needs no memory. Where it is not, it may have overflowed.
        if not tensor.is_floating_point() or bool(tensor.sum().isfinite()):
            continue
        if count := int((~tensor.isfinite()).sum()):
            raise ArgumentError(
                f"{name}: the weights cannot be used: {count:,} of the {tensor.numel():,} values of {tensor_name} are "
                "NaN or infinite; take another checkpoint"
            )


def check_vocabulary(name: str, tokenizer: Any, rows: int) -> None:
    """Raise `ArgumentError` where most of the tokens that a model has embeddings of are beyond its tokenizer.

    Libraries read a vocabulary or a list of merges that is empty or cut short without a word, and spell words out.

    Args:
        name: the model's, for the message.
        tokenizer: of transformers, or open_clip's own.
        rows: of the embedding.
    """
    count = len(tokenizer) if hasattr(tokenizer, "__len__") else int(tokenizer.vocab_size)
    known = int(count * _share_of_merges(getattr(tokenizer, "backend_tokenizer", None)))
    if known < MINIMUM_VOCABULARY * rows:
        raise ArgumentError(
            f"{name}: its tokenizer makes about {known:,} of the {rows:,} tokens that the weights have embeddings of; "
            "copy the tokenizer's files again (tokenizer.json, vocab.json, merges.txt, vocab.txt), one of which is "
            "empty, cut short, or of another model"
        )


def _share_of_merges(tokenizer: Any) -> float:
    """Return of how many tokens of byte pair encoding, of a sample, the merges make the token."""
    model: Any = getattr(tokenizer, "model", None)
    if type(model).__name__ != "BPE":
        return 1.0
    end = model.end_of_word_suffix or ""
    words = [token.removesuffix(end) for token in sorted(tokenizer.get_vocab(False)) if token.endswith(end)]
    words = [word for word in words if len(word) > 1 and not re.fullmatch("<.*>", word)]  # neither special nor a byte
    sample = words[:: 1 + len(words) // 1000]
    return sum(len(model.tokenize(word)) == 1 for word in sample) / len(sample) if sample else 1.0


def useless_rows(features: Float[Tensor, "rows dim"]) -> Bool[Tensor, " rows"]:
    """Return which rows of features, as they are after division by their length, are no unit vectors."""
    useful: Tensor = features.norm(dim=-1) > 0.5  # a comparison with NaN is false
    return ~useful


def refuse_features(name: str, what: str, weights: Mapping[str, Tensor], problem: str = USELESS) -> ArgumentError:
    """Return the error for a model whose features of something are useless, naming a weight that is all zero."""
    zero = next((key for key, tensor in weights.items() if tensor.ndim > 1 and not torch.any(tensor)), None)
    blame = f" (all values of {zero} are zero)" if zero else ""
    return ArgumentError(
        f"{name}: the weights cannot be used: the features of {what} are {problem}{blame}; take another checkpoint"
    )


def probe_picture(size: int) -> Float[Tensor, "1 3 size size"]:
    """Return a fixed picture with structure at every scale, as photos have, in normalised pixels."""
    rng = torch.Generator().manual_seed(0)
    layers = [torch.rand(1, 3, cells, cells, generator=rng) for cells in (1, 2, 4, 8, 16, 32)]
    scaled = [F.interpolate(layer, size=(size, size), mode="bicubic", align_corners=False) for layer in layers]
    mixed = torch.stack(scaled).mean(0)
    return (mixed - mixed.mean()) / mixed.std()


def pad_rows(rows: Tensor, multiple: int = ROW_MULTIPLE) -> Tensor:
    """Return a batch with rows of zeros up to a multiple of some number."""
    padding = -len(rows) % multiple
    return torch.cat([rows, rows.new_zeros(padding, *rows.shape[1:])]) if padding else rows


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
    whole = {**key, **versions, "device": device.type, "threads": torch.get_num_threads()}
    path = folder / f"{digest_of_json(whole)}.safetensors"
    features = _read_features(path)
    if features is None or len(features) < rows:
        features = compute()
        try:
            write_tensors(path, {"features": features}, {"sha256": digest(tensor_bytes(features))})
        except (OSError, ArgumentError) as error:  # a cache that cannot be written is no reason to stop
            if asked:
                reason = reason_of(error).rpartition("cannot be written: ")[2]  # without the entry: one line for all
                line = f"{folder}: features cannot be kept: {reason}; the run goes on without them"
                warnings.warn(line, FairContextWarning, stacklevel=2)
    return features.to(device)


def _read_features(path: Path) -> Tensor | None:
    try:
        with safe_open(path, "pt") as file:
            tensor: Tensor = file.get_tensor("features")
            whole = file.metadata()["sha256"] == digest(tensor_bytes(tensor)) and bool(tensor.isfinite().all())
            return tensor if whole else None
    except Exception:  # no such entry, or a damaged one
        return None


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
