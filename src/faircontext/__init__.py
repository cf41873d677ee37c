"""Fair Context Learning: episodic test-time adaptation of CLIP-like vision-language models.

The public names stand in ``__init__.pyi``. They are imported on first use, so that ``import faircontext`` (and with it
the command line's help) costs milliseconds and not the seconds that importing torch takes.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*_names, "__version__"]


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)
