"""What all commands share: reading options, lines of results, and warnings on standard error."""

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TypeVar, get_type_hints

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


def parse_options(options: type[T], arguments: Sequence[str], command: str) -> T:
    """Read a command's options.

    Raises:
        ArgumentError: an option is unknown or its value cannot be read, or a path is empty, as a shell makes of a
            variable that is not set.
    """
    hints = get_type_hints(options).items()
    paths = {f"--{name}".replace("_", "-") for name, kind in hints if kind in (Path, Path | None)}
    for word, value in pairwise([*arguments, "-"]):
        option, equals, joined = word.partition("=")
        if option.replace("_", "-") in paths and (joined if equals else value) == "":
            raise ArgumentError(f"{option} is empty; name a file or folder")
    shown = io.StringIO()
    try:
        with redirect_stderr(shown):
            return tyro.cli(options, args=arguments, prog=f"faircontext {command}")
    except SystemExit as stop:
        if not stop.code:  # help was asked for, and shown
            raise
        raise ArgumentError(f"{_message(shown.getvalue())}; see faircontext {command} --help") from None


def _message(box: str) -> str:
    """Return, as one line, what the parser says in the first part of its box.

    On a terminal without Unicode the box is a title over a rule; else the title is in the frame.
    """
    lines = box.splitlines()
    lines = lines[1:] if box.startswith("╭") else lines[2:]
    texts = [line.strip(" │╰╯") for line in lines]
    return " ".join(takewhile(lambda text: not set(text) <= set("─-"), texts)).rstrip(".")
