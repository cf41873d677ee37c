"""Vision-language models behind one interface."""

from collections.abc import Callable
from functools import partial

from faircontext.backbones.base import Backbone
from faircontext.errors import check_type
from faircontext.registry import Registry

__all__ = ["Backbone", "create_backbone", "list_backbones"]

_BACKBONES: Registry[Callable[..., Backbone]] = Registry("backbone")


def _create_lite(name: str, **options: object) -> Backbone:
    from faircontext.backbones.lite import Lite  # imports timm, which takes seconds

    return Lite(name, **options)  # type: ignore[arg-type]


for _name in ("lite0", "lite1", "lite2"):
    _BACKBONES.register(_name)(partial(_create_lite, _name))


def create_backbone(
    name: str = "lite0",
    *,
    device: str = "cpu",
    precision: str = "auto",
    batch_size: int = 16,
) -> Backbone:
    """Create a backbone by name; see `list_backbones`.

    Args:
        name: for example `"lite0"`, the embedded default.
        device: a torch device, for example `"cpu"` or `"cuda"`.
        precision: of the image tower: `"auto"`, `"fp32"`, `"bf16"` or `"fp16"`.
        batch_size: rows of an image encoder batch on an accelerator, a multiple of 16; another size may move features
            by rounding. On a CPU they are always 16, and features do not depend on it.

    Raises:
        ArgumentError: there is no backbone of this name, or an option is not possible.
    """
    check_type("name", name, str)
    return _BACKBONES[name](device=device, precision=precision, batch_size=batch_size)


def list_backbones(pattern: str = "*") -> list[str]:
    """Return the names of the backbones that match a shell pattern."""
    return _BACKBONES.names(pattern)
