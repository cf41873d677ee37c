"""Vision-language models behind one interface.

An entry point of the group `faircontext.backbones` makes a third party's known by its name; its object is what creates
it, given `pretrained`, and `device`, `precision` and `batch_size` by keyword.
"""

import warnings
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from faircontext.backbones.base import Backbone
from faircontext.backbones.engines import ENGINES
from faircontext.errors import ArgumentError, FairContextWarning, Registry, check_choice, check_type, unknown_name

__all__ = ["Backbone", "activation_of", "create_backbone", "list_backbones", "list_pretrained"]


def _unpack(name: str, create: Callable[..., Backbone]) -> dict[str, Callable[..., Backbone]]:
    """Check what a third party's entry point names."""
    if not callable(create):
        raise TypeError("it is no function that creates a backbone")
    library = find_spec("open_clip")  # is found, and not imported, which takes seconds
    if library and library.origin and Path(library.origin).with_name("model_configs").joinpath(f"{name}.json").exists():
        raise ValueError("open_clip has an architecture of this name")
    return {name: create}


_BACKBONES: Registry[Callable[..., Backbone]] = Registry(
    "backbone", "faircontext.backbones", _unpack, "[A-Za-z0-9][A-Za-z0-9_.-]*"
)


def _create_lite(name: str, pretrained: None, **options: object) -> Backbone:  # noqa: ARG001
    from faircontext.backbones.lite import Lite  # imports timm, which takes seconds

    return Lite(name, **options)  # type: ignore[arg-type]


_LITE = ("lite0", "lite1", "lite2")
for _name in _LITE:
    _BACKBONES.register(_name)(partial(_create_lite, _name))

_OF_FOLDERS = ("resize_positions", "weights_key", "adapter")
_TAKEN = {"transformers": ("pretrained", *_OF_FOLDERS[1:]), "local-dir": _OF_FOLDERS, "hf-hub": _OF_FOLDERS}
"""Which options models of a scheme take; architectures take all."""


def create_backbone(
    name: str = "lite0",
    pretrained: str | None = None,
    *,
    device: str = "cpu",
    precision: str = "auto",
    batch_size: int = 16,
    engine: str = "auto",
    resize_positions: bool = False,
    weights_key: str | None = None,
    adapter: str | None = None,
    preprocess: str | None = None,
) -> Backbone:
    """Create a backbone by name; see `list_backbones`.

    Args:
        name: `"lite0"`, the embedded default; an open_clip architecture, for example `"ViT-B-16"`; `"hf-hub:ORG/NAME"`
            or `"local-dir:FOLDER"`, of open_clip; or `"transformers:FOLDER"`.
        pretrained: tag or checkpoint file of an architecture's weights, for example `"openai"`; with `transformers:` a
            file in place of the folder's weights.
        device: a torch device, for example `"cpu"` or `"cuda"`.
        precision: of the image encoder: `"auto"`, `"fp32"`, `"bf16"` or `"fp16"`.
        batch_size: rows of an image encoder batch on an accelerator, a multiple of 16; another size may move features
            by rounding. On a CPU they are always 16, and features do not depend on it.
        engine: what runs the image encoder: `"torch"`, `"openvino"` (extra `fast`), or `"auto"`, the faster of the two
            on this processor where that is measured once and kept in the cache, else torch. Each engine has its own
            rounding. Another package's backbone runs in PyTorch.
        resize_positions: whether positions of weights that were trained for pictures or prompts of another size are
            resized to the architecture's, instead of refused; accuracy suffers.
        weights_key: which weights of a checkpoint that holds several are taken, for example `"model_ema"`; None for
            those that were not averaged.
        adapter: folder of a LoRA, or another change of weights, that peft wrote; it is merged into the weights.
        preprocess: how pictures are prepared for an architecture's weights from a file: a tag whose preparation is
            taken, `"clip"`, or a JSON file with `mean`, `std`, `interpolation` and `resize_mode`, as
            `open_clip_config.json`. None for what such a file beside the weights says, or all tags of the
            architecture, else CLIP's.

    Warns:
        FairContextWarning: there was a choice, for example between weights and their average, and what was taken; or
            an engine cannot be used, and why; or the image encoder was converted.

    Raises:
        ArgumentError: there is no backbone of this name, its weights cannot be found or read, or an option is not
            possible.
    """
    check_type("name", name, str)
    check_choice("engine", engine, ENGINES)
    requested = {"pretrained": pretrained, "resize_positions": resize_positions, "weights_key": weights_key}
    requested |= {"adapter": adapter, "preprocess": preprocess}
    for option, value in requested.items():
        check_type(option, value, bool if option == "resize_positions" else (str, type(None)))
    chosen = {option: value for option, value in requested.items() if value not in (None, False)}
    options: dict[str, object] = {"device": device, "precision": precision, "batch_size": batch_size}
    registered, scheme = name in _BACKBONES, name.partition(":")[0] if ":" in name else ""
    allowed = ("pretrained",) * (name not in _LITE) if registered else _TAKEN.get(scheme, (*requested,))
    if unused := next((option for option in chosen if option not in allowed), None):
        raise ArgumentError(f"{name} has its own weights; leave {unused} out")
    if registered:
        if name in _LITE:
            options["engine"] = engine
        elif engine == "openvino":
            line = f"PyTorch runs the image tower of {name}, which another package makes"
            warnings.warn(line, FairContextWarning, stacklevel=2)
        with _BACKBONES.blamed(name):
            backbone = _BACKBONES[name](pretrained, **options)
            if not isinstance(backbone, Backbone):
                raise TypeError(f"it returns {type(backbone).__name__}, not Backbone")
        return backbone
    if not scheme and name.replace("/", "-") not in (known := list_backbones()):
        raise unknown_name("backbone", name, known)
    load: Callable[..., Backbone]
    if scheme == "transformers":
        from faircontext.backbones.transformers_folder import load_transformers as load  # takes seconds to import
    else:
        from faircontext.backbones.checkpoints import load_open_clip as load  # takes seconds to import
    return load(name, chosen.pop("pretrained", None), engine=engine, **chosen, **options)


def list_backbones(pattern: str = "*") -> list[str]:
    """Return the names of the backbones that match a shell pattern: the embedded ones, and open_clip architectures."""
    import open_clip  # takes seconds

    return [name for name in [*_BACKBONES, *open_clip.list_models()] if fnmatchcase(name, pattern)]


def activation_of(name: str) -> str:
    """Return the activation of an open_clip architecture with weights from a file, or nothing for another backbone.

    A tag chooses by itself; what a model has is in `Backbone.facts`.
    """
    import open_clip

    config = None if name in _BACKBONES else open_clip.get_model_config(name)
    return "" if config is None else "QuickGELU" if config.get("quick_gelu") else "GELU"


def list_pretrained(pattern: str = "*") -> list[tuple[str, str]]:
    """Return the pairs of open_clip architecture and weight tag whose architecture matches a shell pattern."""
    import open_clip

    return [(name, tag) for name, tag in open_clip.list_pretrained() if fnmatchcase(name, pattern)]
