"""What all commands share: reading options, and notes on standard error."""

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import TypeVar

import tyro

from faircontext.errors import ArgumentError, one_line

__all__ = ["note", "parse_options", "say"]

T = TypeVar("T")


def note(line: str) -> None:
    """Tell a person something besides the results, on standard error."""
    print(f"note: {one_line(line)}", file=sys.stderr, flush=True)


def say(line: str) -> None:
    """Print a line of results at once, so that a reader in a pipe sees it when it comes."""
    print(line, flush=True)


def parse_options(options: type[T], arguments: Sequence[str], command: str) -> T:
    """Read a command's options.

    Raises:
        ArgumentError: an option is unknown or its value cannot be read.
    """
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
    words = [line.strip(" │╰╯") for line in lines]
    ends = [number for number, line in enumerate(words) if set(line) <= set("─-")]
    return " ".join(words[: ends[0]] if ends else words).rstrip(".")
