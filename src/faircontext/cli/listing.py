"""`faircontext list`: names that `--method`, `--backbone` and `--pretrained` take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from faircontext.cli.options import parse_options
from faircontext.errors import ArgumentError

__all__ = ["List", "run"]


@dataclass(frozen=True)
class List:
    """List methods, backbones, or pairs of backbone and weights, by name."""

    what: Annotated[Literal["methods", "backbones", "pretrained"], tyro.conf.Positional]
    """What to list."""
    pattern: Annotated[str, tyro.conf.Positional] = "*"
    """Shell pattern that the names must match."""


def run(arguments: Sequence[str]) -> int:
    """Print the names, with a line about each method."""
    options = parse_options(List, arguments, "list")
    if options.what == "backbones":
        from faircontext.backbones import list_backbones

        lines = list_backbones(options.pattern)
    elif options.what == "pretrained":
        from faircontext.backbones import list_pretrained

        lines = [f"{name:32} {tag}" for name, tag in list_pretrained(options.pattern)]
    else:
        from faircontext.methods import list_methods
        from faircontext.methods.base import METHODS

        lines = [f"{name:12} {METHODS[name].summary}" for name in list_methods(options.pattern)]
    if not lines:
        raise ArgumentError(f"none of the {options.what} matches {options.pattern!r}")
    print("\n".join(lines))
    return 0
