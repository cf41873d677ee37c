"""Where and in which precision a model computes, from the words that a user gives."""

import re

import torch

from faircontext.errors import ArgumentError, check_choice

__all__ = ["DTYPES", "resolve_precision", "usable_device"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions of the image tower."""


def usable_device(device: str) -> torch.device:
    """Return the torch device of a name.

    Raises:
        ArgumentError: there is none here that holds numbers.
    """
    try:
        found = torch.empty(0, device=device).device
        if found.type == "meta":
            raise RuntimeError("it holds no numbers")
        return found
    except (RuntimeError, AssertionError, ImportError) as error:  # what torch raises depends on how it was built
        raise ArgumentError(f"device={device!r} is not possible: {_why_none(error)}; use for example cpu") from None


def _why_none(error: Exception) -> str:
    """Return the first sentence of what torch says about a device, where that is about the device and short."""
    said = re.split(r"[.;]\s|\n", str(error), maxsplit=1)[0].rstrip(".")
    about_itself = isinstance(error, NotImplementedError | ImportError) or "INTERNAL ASSERT" in said or len(said) > 100
    return "PyTorch finds no such device here" if about_itself else said


def resolve_precision(precision: str, device: torch.device) -> str:
    """Return fp32, bf16 or fp16 for a requested precision; `"auto"` takes bf16 where the processor computes in it.

    Raises:
        ArgumentError: the precision is not one of auto, fp32, bf16, fp16.
    """
    check_choice("precision", precision, ("auto", *DTYPES))
    if precision != "auto":
        return precision
    if device.type == "cpu":
        # Private, but the only question torch answers about bf16 arithmetic (avx512_bf16, AMX) on a CPU.
        probe = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
        return "bf16" if probe() else "fp32"
    return "fp32"
