"""Fair Context Learning: episodic test-time adaptation of CLIP-like vision-language models.

The names below are the public interface. They are imported on first use, so that ``import faircontext`` (and with it
the command line's help) costs milliseconds and not the seconds that importing torch takes.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faircontext.backbones import Backbone, create_backbone, list_backbones, list_pretrained
    from faircontext.episode import Episode
    from faircontext.errors import FairContextError, ImageError
    from faircontext.imageio import load_image
    from faircontext.labels import LabelSpace
    from faircontext.methods import (
        CTPT,
        FCL,
        MTA,
        RLCF,
        RTPT,
        TPS,
        TPT,
        TTL,
        ZERO,
        Method,
        RLCFEncoder,
        ZeroShot,
        create_method,
        list_methods,
    )
    from faircontext.types import Prediction
    from faircontext.views import ViewRecipe

__version__ = "0.1.0"

__all__ = [
    "Backbone",
    "create_backbone",
    "list_backbones",
    "list_pretrained",
    "LabelSpace",
    "load_image",
    "ViewRecipe",
    "Episode",
    "Method",
    "ZeroShot",
    "FCL",
    "TPT",
    "CTPT",
    "RLCF",
    "RLCFEncoder",
    "MTA",
    "ZERO",
    "TTL",
    "TPS",
    "RTPT",
    "create_method",
    "list_methods",
    "Prediction",
    "FairContextError",
    "ImageError",
    "__version__",
]

_HOME = {
    "Backbone": "backbones",
    "create_backbone": "backbones",
    "list_backbones": "backbones",
    "list_pretrained": "backbones",
    "LabelSpace": "labels",
    "load_image": "imageio",
    "ViewRecipe": "views",
    "Episode": "episode",
    "Method": "methods",
    "ZeroShot": "methods",
    "FCL": "methods",
    "TPT": "methods",
    "CTPT": "methods",
    "RLCF": "methods",
    "RLCFEncoder": "methods",
    "MTA": "methods",
    "ZERO": "methods",
    "TTL": "methods",
    "TPS": "methods",
    "RTPT": "methods",
    "create_method": "methods",
    "list_methods": "methods",
    "Prediction": "types",
    "FairContextError": "errors",
    "ImageError": "errors",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'faircontext' has no attribute {name!r}")
    return getattr(import_module(f"faircontext.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)
