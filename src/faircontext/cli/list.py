"""`faircontext list`: names that `--method` and `--backbone` take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

__all__ = ["List", "run"]


@dataclass(frozen=True)
class List:
    """List methods or backbones by name."""

    what: Annotated[Literal["methods", "backbones"], tyro.conf.Positional]
    """What to list."""
    pattern: Annotated[str, tyro.conf.Positional] = "*"
    """Shell pattern that the names must match."""


def run(arguments: Sequence[str]) -> int:
    """Print the names, with a line about each method."""
    options = tyro.cli(List, args=arguments, prog="faircontext list")
    if options.what == "backbones":
        from faircontext.backbones import list_backbones

        print("\n".join(list_backbones(options.pattern)))
        return 0
    from faircontext.methods.base import METHODS

    for name in METHODS.names(options.pattern):
        print(f"{name:12} {METHODS[name].summary}")
    return 0
