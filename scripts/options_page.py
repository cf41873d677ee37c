"""Fill docs/options.md when the site is built: options of all commands and settings of all methods, from their classes.

A hook of MkDocs, named in mkdocs.yml. To print the page: python scripts/options_page.py
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from importlib import import_module
from inspect import cleandoc, get_annotations
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import patch

import tyro

from faircontext.cli import _COMMANDS
from faircontext.cli.options import _HEADINGS, _texts

Row = tuple[str, ...]


class _ReadError(Exception):
    """A command has said what its options are, and does not run."""


def classes_of_options() -> dict[str, type]:
    """Return the dataclass of each command's options."""
    found: dict[str, type] = {}

    def note(options: type, _: object, command: str) -> None:
        found[command] = options
        raise _ReadError

    for module, function, _ in _COMMANDS.values():
        home = import_module(f"faircontext.cli.{module}")
        with patch.object(home, "parse_options", note), suppress(_ReadError):
            getattr(home, function)([])
    return found


def options() -> str:
    """Return a table for each heading of help; an option that several commands have alike is one row."""
    rows: dict[str, dict[Row, list[str]]] = {}
    for command, kind in classes_of_options().items():
        hints, texts, headings = get_type_hints(kind, include_extras=True), dict[str, str](), dict[str, str]()
        for part in reversed(kind.__mro__):
            texts |= _texts(part)
            for name in get_annotations(part):
                headings.setdefault(name, part.__dict__.get("group", ""))
        for field in fields(kind):
            positional = tyro.conf.Positional in getattr(hints[field.name], "__metadata__", ())
            name = field.name.upper() if positional else f"--{field.name.replace('_', '-')}"
            row = (f"`{name}`", _shown(field), texts.get(field.name, ""))
            heading = "" if positional else headings[field.name]
            rows.setdefault(heading, {}).setdefault(row, []).append(f"`{command}`")
    parts = []
    for heading in sorted(rows, key=lambda name: _HEADINGS.index(name) if name in _HEADINGS else -1):
        parts += [f"### {heading.capitalize() or 'Of single commands'}", ""]
        shared = {row: [", ".join(commands)] for row, commands in rows[heading].items()}
        parts += _table(("option", "default", "what it does", "commands"), shared)
    return "\n".join(parts)


def _table(header: Row, rows: Mapping[Row, Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row, last in rows.items():
        cells = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in (*row, *last))
        yield f"| {' | '.join(cells)} |"
    yield ""


def settings() -> str:
    """Return a table for each method and analysis that has settings."""
    from faircontext import analysis  # noqa: F401 (registers analyses beside the methods)
    from faircontext.methods.base import METHODS, describe_type

    parts = []
    for name in METHODS:
        kind = METHODS[name]
        if not fields(kind):
            continue
        texts, limits = dict[str, str](), dict[str, Any]()
        for base in reversed(kind.__mro__):
            limits |= vars(base).get("setting_limits", {})
            attributes = cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
            found = re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", attributes, re.MULTILINE)
            texts |= {key: " ".join(text.split()) for key, text in found}
        rows = {}
        for field in fields(kind):
            hint = get_type_hints(kind)[field.name]
            row = (f"`{field.name}`", _shown(field), f"{describe_type(hint)}{_limit(limits.get(field.name))}")
            rows[row] = [texts.get(field.name, "")]
        parts += [f"### `{name}` {{ #{name} }}", "", f"{kind.summary[0].upper()}{kind.summary[1:]}.", ""]
        parts += _table(("setting", "default", "values", "what it is"), rows)
        parts += _official(name, kind.official_by_dataset)
    return "\n".join(parts)


def _official(name: str, by_dataset: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield what the preset official has for each data set, where a method's authors chose that."""
    if not by_dataset:
        return
    yield f"#### `{name}`, preset `official` {{ #{name}-official }}"
    yield ""
    settings = [*dict.fromkeys(setting for chosen in by_dataset.values() for setting in chosen)]
    rows = {(f"`{of}`",): [str(chosen.get(setting, "")) for setting in settings] for of, chosen in by_dataset.items()}
    yield from _table(("data set", *(f"`{setting}`" for setting in settings)), rows)


def _limit(limit: float | tuple[float, float] | None) -> str:
    if limit is None:
        return ""
    return f", above {limit[0]:g} and at most {limit[1]:g}" if isinstance(limit, tuple) else f", at least {limit:g}"


def _shown(field: Any) -> str:
    """Return a default as it is typed."""
    if field.default is MISSING or field.default in (None, (), ""):
        return ""
    if isinstance(field.default, bool):
        return str(field.default).lower()
    words = field.default if isinstance(field.default, tuple) else (field.default,)
    return f"`{','.join(str(word) for word in words)}`"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the tables into their page."""
    if page.file.src_uri != "options.md":
        return markdown
    return markdown.replace("<!-- options -->", options()).replace("<!-- settings -->", settings())


if __name__ == "__main__":
    text = (Path(__file__).parents[1] / "docs" / "options.md").read_text(encoding="utf-8")
    print(text.replace("<!-- options -->", options()).replace("<!-- settings -->", settings()))
