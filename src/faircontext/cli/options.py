"""What all commands share: reading options, lines of results, and warnings on standard error."""

import ast
import inspect
import io
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import field, fields, is_dataclass, make_dataclass, replace
from difflib import get_close_matches
from itertools import chain, pairwise, takewhile
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import tyro

from faircontext.errors import ArgumentError, one_line, unknown_name

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
    words = _joined(arguments, options)
    marked = [word + _EMPTY if not word or re.fullmatch("--[^=]+=", word) else word for word in words]
    shown = io.StringIO()
    try:
        with redirect_stderr(shown):
            settings: dict[str, Any] = {"prog": f"faircontext {command}", "config": (tyro.conf.OmitArgPrefixes,)}
            groups = tyro.cli(_grouped(options, not {"-h", "--help"}.isdisjoint(words)), args=marked, **settings)
    except SystemExit as stop:
        if not stop.code:  # help was asked for, and shown
            raise
        message = _message(shown.getvalue()).replace(_EMPTY, "")
        if unknown := re.match(r"Unrecognized options: (--[^\s,=]+)", message):
            names = [f"--{option.name.replace('_', '-')}" for option in fields(options)]  # type: ignore[arg-type]
            if close := get_close_matches(unknown[1].replace("_", "-"), names, n=1):
                raise unknown_name("option", unknown[1], close) from None
        raise ArgumentError(f"{message}; see faircontext {command} --help") from None
    values: dict[str, Any] = {}
    for name, value in vars(groups).items():
        values |= vars(value) if isinstance(value, _Group) else {name: value}
    read = options(**values)
    return read if marked == words else _filled(read, options)


_HEADINGS = (
    "images and labels",
    "run",
    "service",
    "output",
    "model",
    "prompts",
    "method",
    "decision",
    "perturbation",
    "online methods",
    "reading",
    "execution",
)
"""Headings of help, the usual ones first."""


class _Group:
    """Options under one heading."""


def _grouped(options: type, helped: bool) -> type:
    """Return a dataclass of the same options, those of a part under its heading; others stand before them.

    Args:
        options: a dataclass, and the parts that it is composed of.
        helped: whether help is shown, for which sources are read.
    """
    hints, heading, texts = get_type_hints(options, include_extras=True), dict[str, str](), dict[str, str]()
    for part in reversed(options.__mro__):
        texts |= _texts(part) if helped else {}
        for name in inspect.get_annotations(part):
            heading.setdefault(name, part.__dict__.get("group", ""))
    parts: dict[str, list[tuple[str, Any, Any]]] = {}
    for option in fields(options):
        kind = hints[option.name]
        of = "" if tyro.conf.Positional in getattr(kind, "__metadata__", ()) else heading[option.name]
        told: Any = Annotated[kind, tyro.conf.arg(help=texts.get(option.name, ""))]
        parts.setdefault(of, []).append((option.name, told, field(default=option.default, kw_only=True)))
    groups: list[tuple[str, Any, Any]] = list(parts.get("", []))
    for name in (name for name in _HEADINGS if name in parts):
        group = make_dataclass(name, parts[name], bases=(_Group,), frozen=True)
        groups.append((name.replace(" ", "_"), group, field(kw_only=True)))
    grouped = make_dataclass(options.__name__, groups)
    grouped.__doc__ = options.__doc__
    return grouped


def _texts(part: type) -> dict[str, str]:
    """Return what is said of each option that a class declares: the text below it."""
    if not is_dataclass(part):
        return {}
    declared = ast.parse(dedent(inspect.getsource(part))).body[0]
    texts = {}
    for option, text in pairwise(getattr(declared, "body", [])):
        if isinstance(option, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[ast.unparse(option.target)] = re.sub(r"\s+", " ", str(text.value.value))
    return texts


def _joined(arguments: Sequence[str], options: type) -> list[str]:
    """Return the arguments with the values of a list that is given several times after its first name.

    The parser would take the last of them alone, without a word.
    """
    hints = get_type_hints(options, include_extras=True).items()
    names = {f"--{name.replace('_', '-')}" for name, hint in hints if get_origin(hint) is tuple}
    parts: list[list[str]] = [[]]
    lists: dict[str, list[str]] = {}
    current = parts[0]
    for word in arguments:
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if option in names:
            if option not in lists:
                parts.append(lists.setdefault(option, [option]))
            lists[option] += [value] if equals else []
            current = parts[0] if equals else lists[option]  # what comes after `--name=value` is no value of it
        elif word.startswith("--"):
            parts.append(current := [word])
        else:
            current.append(word)
    return [*chain.from_iterable(parts)]


def _filled(read: Any, options: type) -> Any:
    """Return options with empty texts where empty arguments were given; raise `ArgumentError` where one is a path."""
    changes: dict[str, Any] = {}
    hints = get_type_hints(options, include_extras=True)
    for option in fields(read):
        value = getattr(read, option.name)
        parts = value if isinstance(value, tuple) else (value,)
        if Path(_EMPTY) in parts:
            positional = tyro.conf.Positional in getattr(hints[option.name], "__metadata__", ())
            name = option.name if positional else f"--{option.name.replace('_', '-')}"
            raise ArgumentError(f"{name} is empty; name a file or folder")
        filled = tuple(part.replace(_EMPTY, "") if isinstance(part, str) else part for part in parts)
        changes[option.name] = filled if isinstance(value, tuple) else filled[0]
    return replace(read, **changes)


def _message(box: str) -> str:
    """Return, as one line, what the parser says in the first part of its box.

    On a terminal without Unicode the box is a title over a rule; else the title is in the frame.
    """
    lines = box.splitlines()
    lines = lines[1:] if box.startswith("╭") else lines[2:]
    texts = [line.strip(" │╰╯") for line in lines]
    return " ".join(takewhile(lambda text: not set(text) <= set("─-"), texts)).rstrip(".")
