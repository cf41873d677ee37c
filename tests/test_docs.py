"""What pages name is there: files, modules and make targets of this repository, commands and options of the parser."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from faircontext.cli import _COMMANDS
from faircontext.cli.options import parse_options

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/faircontext"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]
HOMES = (ROOT, SOURCE, ROOT / "tests/support")
"""What the names of files start from."""

BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FOLDERS = re.compile(r"(?<![\w/.<-])(?:docs|src|tests|scripts|benchmarks|examples)/[\w./-]*\w")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
OF_OTHERS = {"--check", "--delta", "--help", "--maple"}
"""Options of other programs, and one that all commands have."""

pytestmark = pytest.mark.skipif(not all(page.exists() for page in PAGES[-3:]), reason="the documentation is not here")
on_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


class TakenError(Exception):
    """The parser has taken a command, which is not run."""


def run(words: list[str], read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a command with another function in place of the one that reads its options."""
    module = import_module(f"faircontext.cli.{_COMMANDS[words[0]][0]}")
    monkeypatch.setattr(module, "parse_options", read)
    with pytest.raises(TakenError):
        getattr(module, _COMMANDS[words[0]][1])(words[1:])


@pytest.fixture
def options_of(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The options of each command."""
    found: dict[str, set[str]] = {}
    for command in _COMMANDS:

        def note(options: type, _: object, name: str) -> None:
            names = [field.name.replace("_", "-") for field in fields(options)]
            found[name] = {f"--{no}{name}" for name in names for no in ("", "no-")} | OF_OTHERS
            raise TakenError

        run([command], note, monkeypatch)
    return found


def blocks_of(page: Path, *languages: str) -> Iterator[str]:
    yield from (dedent(text) for _, language, text in BLOCK.findall(page.read_text("utf-8")) if language in languages)


def spans_of(page: Path) -> list[str]:
    """Return what stands between backquotes in the text of a page."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", BLOCK.sub("", page.read_text("utf-8")))]


def commands_of(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command that the blocks of a page have, without redirections and what follows a pipe."""
    for line in "\n".join(blocks_of(page, "", "sh")).replace("\\\n", " ").splitlines():
        if re.search(r"(^|[\s|])faircontext [a-z]", line):
            words = shlex.split(line, comments=True)
            words = words[words.index("faircontext") + 1 :] if "faircontext" in words else []
            yield from (
                [words[: next((i for i, word in enumerate(words) if word in ("|", "&&", ">", "2>", ";")), None)]]
                if words
                else []
            )


def exists(name: str) -> bool:
    """Tell whether a dotted name below `faircontext` is there."""
    parts, found = name.split("."), None
    for end in range(1, len(parts) + 1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            try:
                found = getattr(found, parts[end - 1])
            except AttributeError:
                return False
    return True


@on_each_page
def test_its_commands_are_taken_by_the_parser(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: Any) -> None:
        parse_options(*arguments)
        raise TakenError

    for words in commands_of(page):
        run(words, read, monkeypatch)


OTHERS = {"tar": {"--sort", "--sparse", "--dereference"}, "pytest": {"--collect-only"}}
"""Options of other programs that texts name."""


def test_options_and_commands_in_texts_and_messages_are_there(options_of: dict[str, set[str]]) -> None:
    others = {
        option
        for folder in ("scripts", "benchmarks")
        for path in (ROOT / folder).glob("*.py")
        for option in re.findall('"(--[a-z-]+)"', path.read_text("utf-8"))
    }
    known, wrong = set().union(others, *options_of.values()), []
    for page in PAGES:
        wrong += [
            (page.name, s, o)
            for s in spans_of(page)
            for o in OPTION.findall(s)
            if o not in known | OTHERS.get(s.partition(" ")[0], set())
        ]
    texts = [(page.name, span) for page in PAGES for span in spans_of(page) if span.startswith("faircontext ")]
    paths = (*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html"), ROOT / "Dockerfile", ROOT / "Makefile")
    texts += [(path.name, line) for path in paths for line in path.read_text("utf-8").splitlines()]
    for name, text in texts:
        for command, rest in re.findall(r"(?<!import )\bfaircontext ([a-z]+)((?: [\w./{}\[\]*-]+)*)", text):
            if command in options_of or text.startswith("faircontext "):
                unknown = {*OPTION.findall(rest)} - options_of.get(command, set())
                wrong += [(name, command, option) for option in unknown]
    assert not wrong


@on_each_page
def test_its_files_and_targets_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = [span for span in spans_of(page) if re.fullmatch(r"[\w./-]+\.py", span)]
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", BLOCK.sub("", text)) if "://" not in link]
    gone = [name for name in named if not any((home / name).exists() for home in HOMES)]
    gone += [name for name in FOLDERS.findall(text) if not (ROOT / name).exists() and f"]({name}" not in text]
    gone += [link for link in links if not (page.parent / link).exists()]
    gone += [name for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE) if name not in targets]
    assert not gone


@on_each_page
def test_its_modules_and_their_names_are_there(page: Path) -> None:
    text, packages = page.read_text("utf-8"), {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    names = {*re.findall(r"\bfaircontext(?:\.[A-Za-z_]\w*)+", text)}
    spans = [
        span for span in spans_of(page) if re.fullmatch(r"\w+(\.\w+)+", span) and not span.endswith((".html", ".py"))
    ]
    names |= {f"faircontext.{span}" for span in spans if span.partition(".")[0] in packages}
    for block in blocks_of(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "faircontext":
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fc":
                names.add(f"faircontext.{node.attr}")
    assert not [name for name in sorted(names) if not exists(name)]


def test_the_table_of_the_layout_is_that_of_the_source() -> None:
    rows = (
        (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| below `src/faircontext` |")[2].partition("\n\n")[0]
    )
    named = {name.strip("/") for row in rows.splitlines()[2:] for name in re.findall("`([^`]+)`", row.split("|")[1])}
    there = {path.stem for path in SOURCE.glob("[!_]*.py")} | {
        path.parent.name for path in SOURCE.glob("*/__init__.py")
    }
    assert named == there
