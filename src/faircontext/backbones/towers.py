"""Towers of images and text: device and precision, batches, checks of weights and features, hashes."""

import hashlib
import re
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from faircontext.errors import ArgumentError, check_choice

__all__ = [
    "DTYPES",
    "ROW_MULTIPLE",
    "USELESS",
    "check_weights",
    "hash_of",
    "pad_rows",
    "probe_picture",
    "refuse_features",
    "resolve_precision",
    "usable_device",
    "useless_rows",
]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions of the image tower."""

ROW_MULTIPLE = 16
"""Encoder batches are padded to a multiple of this: a row's features then do not depend on the rows beside it."""

USELESS = "NaN, infinite or all zero"
"""What features must not be: a softmax over them gives NaN, or the same probability for all classes."""


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


def pad_rows(rows: Tensor) -> Tensor:
    """Return a batch with rows of zeros up to a multiple of `ROW_MULTIPLE`."""
    padding = -len(rows) % ROW_MULTIPLE
    return torch.cat([rows, rows.new_zeros(padding, *rows.shape[1:])]) if padding else rows


def hash_of(module: torch.nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers, in hexadecimal."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        sha256.update(name.encode())
        sha256.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha256.hexdigest()
