"""`faircontext list`: names that `--method`, `--backbone` and `--pretrained` take, and those of analyses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from faircontext.cli.options import parse_options
from faircontext.errors import ArgumentError

__all__ = ["List", "run"]


@dataclass(frozen=True)
class List:
    """List methods, analyses, backbones, or pairs of backbone and weights, by name."""

    what: Annotated[Literal["methods", "analyses", "backbones", "pretrained"], tyro.conf.Positional]
    """What to list."""
    pattern: Annotated[str, tyro.conf.Positional] = "*"
    """Shell pattern that the names must match."""


def run(arguments: Sequence[str]) -> int:
    """Print the names, with a line about each method or analysis, and the activation of each architecture."""
    options = parse_options(List, arguments, "list")
    if options.what == "backbones":
        from faircontext.backbones import activation_of, list_backbones

        lines = [f"{name:32} {activation_of(name)}".rstrip() for name in list_backbones(options.pattern)]
    elif options.what == "pretrained":
        from faircontext.backbones import list_pretrained

        lines = [f"{name:32} {tag}" for name, tag in list_pretrained(options.pattern)]
    else:
        from faircontext.analysis import list_analyses
        from faircontext.methods import list_methods
        from faircontext.methods.base import METHODS

        names = (list_methods if options.what == "methods" else list_analyses)(options.pattern)
        lines = [f"{name:13} {METHODS[name].summary}" for name in names]
    if not lines:
        raise ArgumentError(f"none of the {options.what} matches {options.pattern!r}")
    print("\n".join(lines))
    return 0
