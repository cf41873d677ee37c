"""What all commands share: reading options, lines of results, and warnings on standard error."""

import io
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import tyro

from faircontext.errors import ArgumentError, one_line

__all__ = ["parse_options", "say", "warn"]

T = TypeVar("T")


def warn(line: str) -> None:
    """Tell a person something besides the results, on standard error."""
    print(f"note: {one_line(line)}", file=sys.stderr, flush=True)


def say(line: str) -> None:
    """Print a line of results at once, so that a reader in a pipe sees it when it comes."""
    print(line, flush=True)


_EMPTY = "\0"
"""Stands for an empty argument while options are read: an empty path would be the current folder."""


def parse_options(options: type[T], arguments: Sequence[str], command: str) -> T:
    """Read a command's options, a dataclass.

    Raises:
        ArgumentError: an option is unknown or its value cannot be read, or a path is empty, as a shell makes of a
            variable that is not set.
    """
    given = _joined(arguments, options)
    marked = [word + _EMPTY if not word or re.fullmatch("--[^=]+=", word) else word for word in given]
    shown = io.StringIO()
    try:
        with redirect_stderr(shown):
            read: T = tyro.cli(options, args=marked, prog=f"faircontext {command}")
    except SystemExit as stop:
        if not stop.code:  # help was asked for, and shown
            raise
        message = _message(shown.getvalue()).replace(_EMPTY, "")
        raise ArgumentError(f"{message}; see faircontext {command} --help") from None
    return read if marked == given else _filled(read, options)


def _joined(arguments: Sequence[str], options: type) -> list[str]:
    """Return the arguments with the values of a list that is given several times after its first name.

    The parser would take the last of them alone, without a word.
    """
    hints = get_type_hints(options, include_extras=True).items()
    lists = {f"--{name.replace('_', '-')}" for name, hint in hints if get_origin(hint) is tuple}
    parts: list[list[str]] = [[]]
    firsts: dict[str, list[str]] = {}
    repeated = False
    current = parts[0]
    for word in arguments:
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if option in lists:
            repeated |= option in firsts
            if option not in firsts:
                parts.append(firsts.setdefault(option, [option]))
            firsts[option] += [value] if equals else []
            current = parts[0] if equals else firsts[option]  # what comes after `--name=value` is no value of it
        elif word.startswith("--"):
            parts.append(current := [word])
        else:
            current.append(word)
    return [word for part in parts for word in part] if repeated else [*arguments]


def _filled(read: Any, options: type) -> Any:
    """Return options with empty texts where empty arguments were given; raise `ArgumentError` where one is a path."""
    changes: dict[str, Any] = {}
    hints = get_type_hints(options, include_extras=True)
    for field in fields(read):
        value = getattr(read, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        if Path(_EMPTY) in parts:
            positional = tyro.conf.Positional in getattr(hints[field.name], "__metadata__", ())
            name = field.name if positional else f"--{field.name.replace('_', '-')}"
            raise ArgumentError(f"{name} is empty; name a file or folder")
        filled = tuple(part.replace(_EMPTY, "") if isinstance(part, str) else part for part in parts)
        changes[field.name] = filled if isinstance(value, tuple) else filled[0]
    return replace(read, **changes)


def _message(box: str) -> str:
    """Return, as one line, what the parser says in the first part of its box.

    On a terminal without Unicode the box is a title over a rule; else the title is in the frame.
    """
    lines = box.splitlines()
    lines = lines[1:] if box.startswith("╭") else lines[2:]
    texts = [line.strip(" │╰╯") for line in lines]
    return " ".join(takewhile(lambda text: not set(text) <= set("─-"), texts)).rstrip(".")
