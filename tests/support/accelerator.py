"""A pretend accelerator: a torch device that computes on the CPU, refuses CPU tensors, and counts copies to the host.

It stands on PyTorch's Python backend for PrivateUse1 (`_setup_privateuseone_for_python_backend`, from 2.9), which gives
the device its name, guard and hooks. PyTorch's own example keeps a tensor's numbers in an attribute of a Python object
and writes one kernel for each operator. Neither holds for a model: the attribute is lost whenever C++ makes a shallow
copy, as autograd does of an output that it saves for the gradient (softmax, exp), and strides, views and `out=` of a
tensor without memory have nothing to stand on. So here

- a tensor's memory is the host's: DLPack's device type "extension" is what PyTorch reads as PrivateUse1, so that a CPU
  tensor becomes one of the device, and back, by a change of the capsule's device. Strides, offsets, views and
  in-place operators are then what they are on the CPU, and shallow copies share the memory;
- one boxed fallback runs every operator on the CPU and gives the results to the device. Operators that PyTorch composes
  of others for an unknown device need kernels of their own only where that ends nowhere: copies between devices, and
  convolutions.

What needs care: an operator that writes to an argument must return that argument; one that resizes it (`out=` of an
empty tensor) gives it new memory, as memory that came by DLPack cannot grow; and in inference mode a view of a normal
tensor must be normal. What PyTorch lacks: storages cannot be allocated without an allocator in C++, so `copy.deepcopy`
of a tensor, which copies its storage, is replaced here by a clone.

The device is there for the rest of a process once it is installed: tests use it in a process of their own.
"""

import ctypes
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

__all__ = ["NAME", "Traffic", "install", "missing", "traffic"]

NAME = "pretend"
"""What `device=` is called."""

_CPU, _EXTENSION = 1, 12
"""Device types of DLPack."""

_KEEP: list[torch.library.Library] = []
"""Registrations end with their library."""

aten = torch.ops.aten

_WAITING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Operators for which the host waits for numbers of the device."""

_COMPOSED = (aten.index.Tensor,)
"""Of these, those that call another one where they do: a boolean index calls `nonzero`."""


def missing() -> str | None:
    """Return why this PyTorch cannot have the device, or None where it can."""
    if hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        return None
    return f"torch {torch.__version__} has no Python backend for PrivateUse1, which came with 2.9"


def install() -> torch.device:
    """Register the device in this process, once, and return it."""
    if not _KEEP:
        backend_registration._setup_privateuseone_for_python_backend(NAME)
        every = torch.library.Library("_", "IMPL")
        every.fallback(_run, "PrivateUse1")
        some = torch.library.Library("aten", "IMPL")
        some.impl("_copy_from", _copy_from, "PrivateUse1")
        some.impl("convolution_overrideable", _convolve, "PrivateUse1")
        some.impl("convolution_backward_overrideable", _convolve_backward, "PrivateUse1")
        _KEEP.extend((every, some))
        Tensor.__deepcopy__ = _deepcopy(Tensor.__deepcopy__)  # type: ignore[method-assign]
    return torch.device(NAME, 0)


class Traffic:
    """Copies between the device and the host, by operator and by the line of faircontext that asked for them.

    Attributes:
        down: what made the host wait for numbers of the device: copies to it, scalars that are read, and operators
            whose result's shape depends on numbers (a boolean index, `nonzero`, `unique`).
        up: copies from the host.
    """

    def __init__(self) -> None:
        self.down: Counter[str] = Counter()
        self.up: Counter[str] = Counter()

    def __str__(self) -> str:
        lines = [f"{count:5} {what}" for what, count in sorted(self.down.items())]
        return "\n".join([f"{self.down.total()} copies to the host:", *lines])


_WATCHED: list[Traffic] = []
_LOCK = threading.Lock()


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Count the copies that are made meanwhile, in all threads."""
    counted = Traffic()
    _WATCHED.append(counted)
    try:
        yield counted
    finally:
        _WATCHED.remove(counted)


def _note(direction: str, what: str) -> None:
    if not _WATCHED:
        return
    frame, place = sys._getframe(2), "autograd"
    while frame is not None:
        if "/faircontext/" in (name := frame.f_code.co_filename.replace("\\", "/")):
            place = f"{name.rpartition('/faircontext/')[2]}:{frame.f_lineno}"
            break
        frame = frame.f_back  # type: ignore[assignment]
    with _LOCK:
        for counted in _WATCHED:
            getattr(counted, direction)[f"{place} {what}"] += 1


class _Device(ctypes.Structure):
    """How DLPack's tensor begins."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _moved(tensor: Tensor, device_type: int) -> Tensor:
    """Return a tensor with the same memory that belongs to another device."""
    capsule = torch._C._to_dlpack(tensor)
    device = _Device.from_address(ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor"))
    device.device_type, device.device_id = device_type, 0
    moved: Tensor = torch._C._from_dlpack(capsule)
    return moved


def _on_host(tensor: Tensor) -> Tensor:
    return _moved(tensor, _CPU) if tensor.device.type == NAME else tensor


@dataclass(frozen=True)
class _Operator:
    """What the schema of an operator says.

    Attributes:
        waits: whether the host waits for numbers of the device.
        names: of its arguments, in their order.
        written: the names of those that it writes to.
        same: for each result, the name of the argument that it is; None where it is a new tensor or a view.
        views: for each result, whether it is a view.
        takes_indices: whether indices of the CPU may meet tensors of the device, as on a GPU.
    """

    waits: bool
    names: tuple[str, ...]
    written: tuple[str, ...]
    same: tuple[str | None, ...]
    views: tuple[bool, ...]
    takes_indices: bool


@cache
def _operator(op: Any) -> _Operator:
    schema = op._schema
    aliases = {argument.name: argument.alias_info for argument in schema.arguments if argument.alias_info}
    written = {name: alias.before_set for name, alias in aliases.items() if alias.is_write}
    same: list[str | None] = []
    for result in schema.returns:
        writes = result.alias_info is not None and result.alias_info.is_write
        own = result.alias_info.before_set if writes else None
        same.append(next((name for name, letters in written.items() if writes and letters == own), None))
    views = (result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
    return _Operator(
        waits=bool(_WAITING & {*op.tags}) and op not in _COMPOSED,
        names=tuple(argument.name for argument in schema.arguments),
        written=tuple(written),
        same=tuple(same),
        views=tuple(views),
        takes_indices=op.name().startswith(("aten::index.", "aten::index_put", "aten::_index_put")),
    )


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator on the CPU: the kernel of every operator that has none of its own."""
    known = _operator(op)
    if known.waits:
        _note("down", op.name())
    tensors: list[Tensor] = []
    _collect((args, kwargs), tensors)
    _refuse_cpu(op.name(), tensors, known.takes_indices and args[0].device.type == NAME)
    named = dict(zip(known.names, args, strict=False)) | kwargs if known.written else {}
    # Memory that came by DLPack cannot grow: what an operator may resize is given memory of its own.
    grows = [one for one in (named.get(name) for name in known.written) if isinstance(one, Tensor)]
    grown = {id(one): _on_host(one).clone() for one in grows if one.numel() == 0 or op is aten.resize_.default}
    results = op(*_replaced(args, grown), **_replaced(kwargs, grown))
    for target in grows:
        if id(target) in grown:
            target.data = _moved(grown[id(target)], _EXTENSION)
    several = len(known.same) > 1
    normal = bool(tensors) and torch.is_inference_mode_enabled() and not any(one.is_inference() for one in tensors)
    made = [
        _given(result, view and normal) if name is None else named[name]
        for name, view, result in zip(known.same, known.views, results if several else (results,), strict=False)
    ]
    return tuple(made) if several else made[0] if made else None


def _collect(value: Any, tensors: list[Tensor]) -> None:
    """Add the tensors of nested arguments to a list."""
    if isinstance(value, Tensor):
        tensors.append(value)
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            _collect(one, tensors)


def _replaced(value: Any, grown: dict[int, Tensor]) -> Any:
    """Return nested arguments with the CPU's in place of the device's."""
    if isinstance(value, Tensor):
        return grown[id(value)] if id(value) in grown else _on_host(value)
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == NAME else value
    if isinstance(value, dict):
        return {name: _replaced(one, grown) for name, one in value.items()}
    return type(value)(_replaced(one, grown) for one in value) if isinstance(value, list | tuple) else value


def _refuse_cpu(name: str, tensors: list[Tensor], indices: bool = False) -> None:
    """Raise where a tensor of the CPU meets those of the device, as on a GPU: all but single numbers, and indices."""
    strangers = [tensor for tensor in tensors if tensor.device.type != NAME and tensor.ndim > 0]
    if strangers and indices:
        _note("up", f"{name} by an index of the CPU")
    elif strangers:
        raise RuntimeError(f"{name}: all tensors must be on the same device, and one is on {strangers[0].device}")


def _given(result: Any, normal_view: bool = False) -> Any:
    """Return a result as the device's; a view of a normal tensor is normal, also in inference mode."""
    if isinstance(result, list | tuple):
        return type(result)(_given(one, normal_view) for one in result)
    if not isinstance(result, Tensor):
        return result
    if not normal_view:
        return _moved(result, _EXTENSION)
    with torch.inference_mode(False):
        return _moved(result, _EXTENSION)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:  # noqa: ARG001
    """Copy from device to host, host to device, or within the device."""
    if target.device.type != NAME:
        _note("down", "copy")
    elif source.device.type != NAME:
        _note("up", "copy")
    _on_host(target).copy_(_on_host(source))
    return target


def _convolve(images: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    _refuse_cpu("aten::convolution", [images, weight, *([] if bias is None else [bias])])
    hosts = [None if one is None else _on_host(one) for one in (images, weight, bias)]
    return _moved(aten.convolution.default(*hosts, *settings), _EXTENSION)


def _convolve_backward(slope: Tensor, images: Tensor, weight: Tensor, *settings: Any) -> tuple[Tensor | None, ...]:
    _refuse_cpu("aten::convolution_backward", [slope, images, weight])
    hosts = [_on_host(one) for one in (slope, images, weight)]
    results = aten.convolution_backward.default(*hosts, [weight.shape[0]], *settings)
    return tuple(None if result is None else _moved(result, _EXTENSION) for result in results)


def _deepcopy(original: Any) -> Any:
    """Return what copies tensors of the device by a clone, and others as before."""

    def copy(tensor: Tensor, memo: dict[int, Any]) -> Any:
        if tensor.device.type != NAME or id(tensor) in memo:
            return original(tensor, memo)
        with torch.no_grad():
            made = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        memo[id(tensor)] = made
        return made.requires_grad_(tensor.requires_grad) if tensor.is_leaf else made

    return copy
