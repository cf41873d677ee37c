"""Prompts that people write: templates with a place for the class name, and descriptions of each class, from files.

Descriptions are a JSON object of class names and lists of prompts, as CuPL has them (Pratt et al., 2023), or of data
sets and such objects, as CLIP_benchmark has them; templates are lines of text, a JSON list, or CLIP_benchmark's object
of data sets and lists, in which the place of the name is `{c}`.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import category

from faircontext.errors import LabelError, and_more, counted
from faircontext.names import ClassIndex, normalise, read_text

Descriptions = tuple[tuple[str, ...], ...]
"""The prompts of each class, in the order of the classes."""

_FIELD = re.compile(r"\{[^{}\s]+\}")
"""A word in braces, as of a template with names for what is put in."""

_LIST_ENTRY = re.compile(r"""(lambda\b.*|f?(["']).*\2,?|.*[.!?],)""")
"""A line copied from a list in a program, with the marks around its text."""

_CONTROL = {"Cc", "Cs", "Zl", "Zp"}
"""Unicode categories of control characters, bytes that are not UTF-8, and line breaks."""


def _is_line(text: str) -> bool:
    """Tell whether a text has neither control characters nor line breaks in it."""
    return not _CONTROL & {*map(category, text)}


def as_template(text: str) -> str:
    """Return a template with `{}` for the class name, which may be written `{c}` as well.

    Raises:
        LabelError: it does not have exactly one place for the name, or other words in braces.
    """
    template = text if "{}" in text else text.replace("{c}", "{}")
    if template.count("{}") != 1:
        raise LabelError(f"prompt template {text!r} needs exactly one {{}} for the class name")
    if field := _FIELD.search(template):
        cure = "leave it out, as nothing is put there"
        raise LabelError(f"prompt template {text!r} has {field[0]} besides the place of the class name; {cure}")
    return template


def fill_template(template: str, name: str) -> str:
    """Put a class name into a template; underscores become spaces.

    Raises:
        LabelError: the template does not have exactly one `{}` for the name.
    """
    return as_template(template).replace("{}", name.replace("_", " "))


def read_templates(path: Path, dataset: str | None = None) -> tuple[str, ...]:
    """Read prompt templates: a line each (blank lines and lines that start with `#` are left out), or JSON.

    Args:
        path: of the file; one that ends in `.json` is a list of templates, or an object of data sets and such lists.
        dataset: name of the data set, where a file has the templates of several.

    Raises:
        LabelError: the file cannot be read, has no template, or one has no place for the class name.
    """
    text = read_text(path)
    if path.suffix.lower() == ".json":
        templates = _templates_in(path, _parse(path, text), dataset)
    else:
        lines = [line.strip() for line in text.splitlines()]
        templates = [line for line in lines if line and not line.startswith("#")]
        if entry := next(filter(_LIST_ENTRY.fullmatch, templates), None):
            raise LabelError(f"{path}: {entry!r} is an entry of a list in a program; write its text alone, or JSON")
    if not templates:
        raise LabelError(f"{path}: has no prompt template; write one a line, for example 'a photo of a {{}}.'")
    if no_line := next((line for line in templates if not _is_line(line)), None):
        raise LabelError(f"{path}: the prompt template {no_line[:60]!r} is no line of text")
    try:
        return tuple(dict.fromkeys(map(as_template, templates)))
    except LabelError as error:
        raise LabelError(f"{path}: {error}") from None


def _templates_in(path: Path, document: Any, dataset: str | None) -> list[str]:
    """Return the templates of a JSON document, those of one data set where it has several."""
    if isinstance(document, Mapping):
        if len(document) > 1 and (key := _named(document, dataset)) is None:
            raise LabelError(
                f"{path}: has templates of {and_more([*document])}, and none of "
                f"{'this data set' if dataset is None else dataset}; copy those you want to a file of their own"
            )
        document = document[key] if len(document) > 1 else next(iter(document.values()), [])
    if not isinstance(document, list) or not all(isinstance(entry, str) for entry in document):
        raise LabelError(f"{path}: is no JSON list of prompt templates, nor an object of data sets and such lists")
    return document


def read_descriptions(path: Path, names: Sequence[str], dataset: str | None = None) -> Descriptions:
    """Read a JSON file of class names and their prompts, and return the prompts in the order of the classes.

    Keys that are no class are left out. Of a file of several data sets, the one that is called as `dataset` is taken,
    else the only one that has all classes.

    Args:
        path: of the file.
        names: class names; underscores for spaces, case and Unicode composition do not matter.
        dataset: name of the data set.

    Raises:
        LabelError: the file cannot be read, or lacks prompts of a class.
    """
    return parse_descriptions(read_text(path), names, path, dataset)


def parse_descriptions(text: str, names: Sequence[str], source: Path | str, dataset: str | None = None) -> Descriptions:
    """Return the prompts of each class from JSON text; see `read_descriptions`.

    Args:
        text: JSON.
        names: class names.
        source: what gives the text, for messages.
        dataset: name of the data set.

    Raises:
        LabelError: it is no such JSON, or lacks prompts of a class.
    """
    document = _parse(source, text)
    if not isinstance(document, Mapping) or not document:
        raise LabelError(f"{source}: is no JSON object of class names and lists of prompts")
    if all(isinstance(entry, Mapping) for entry in document.values()):
        document = _descriptions_of_set(source, document, names, dataset)
    return arrange_descriptions(document, names, f"{source}: ")


def _descriptions_of_set(
    source: Path | str, document: Mapping[str, Mapping[str, Any]], names: Sequence[str], dataset: str | None
) -> Mapping[str, Any]:
    if len(document) == 1:
        return next(iter(document.values()))
    if (key := _named(document, dataset)) is not None:
        return document[key]
    indices = {key: ClassIndex([*entries]) for key, entries in document.items()}
    complete = [key for key, index in indices.items() if all(index.find(name) is not None for name in names)]
    if len(complete) == 1:
        return document[complete[0]]
    which = f"{and_more(complete)} have all classes" if complete else "none has all classes"
    cure = "copy the one you want to a file of its own"
    raise LabelError(f"{source}: has prompts of {len(document)} data sets, of which {which}; {cure}")


def _named(document: Mapping[str, Any], dataset: str | None) -> str | None:
    """Return the key that a data set is called by, with or without the collection before it (`vtab/dtd`)."""
    if dataset is None:
        return None
    words = {key: {normalise(key), normalise(key.rpartition("/")[2])} for key in document}
    return next((key for key, spellings in words.items() if normalise(dataset) in spellings), None)


def arrange_descriptions(
    descriptions: Mapping[str, Sequence[str]] | Sequence[Sequence[str]], names: Sequence[str], where: str = ""
) -> Descriptions:
    """Return the prompts of each class in the order of the classes, each prompt once.

    A prompt is taken as it is; only `{}` or `{c}` in it stands for the name of its class.

    Args:
        descriptions: lists of prompts by class name, or in the order of the classes.
        names: class names.
        where: what an error begins with, for example the file.

    Raises:
        LabelError: a class lacks prompts, or one of them cannot be read.
    """
    if isinstance(descriptions, Mapping):
        index = ClassIndex([*descriptions])
        positions = [index.find(name) for name in names]
        if missing := [name for name, position in zip(names, positions, strict=True) if position is None]:
            raise LabelError(f"{where}lacks prompts of {and_more([*map(repr, missing)])}; give each class at least one")
        entries = [*descriptions.values()]
        lists = [entries[position] for position in positions if position is not None]
    else:
        lists = [*descriptions]
        if len(lists) != len(names):
            has = f"has prompts of {counted(len(lists), 'class')}"
            raise LabelError(f"{where}{has}, and there are {len(names)} class names")
    return tuple(_prompts_of(name, prompts, where) for name, prompts in zip(names, lists, strict=True))


def _prompts_of(name: str, prompts: Any, where: str) -> tuple[str, ...]:
    """Return the prompts of one class, each once."""
    prompts = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(prompts, list | tuple) or not prompts:
        raise LabelError(f"{where}class {name!r} has no list of prompts; give it at least one")
    for prompt in prompts:
        if not isinstance(prompt, str) or not prompt.strip() or not _is_line(prompt.strip()):
            raise LabelError(f"{where}class {name!r} has the prompt {str(prompt)[:60]!r}, which is no line of text")
    word = name.replace("_", " ")
    return tuple(dict.fromkeys(prompt.strip().replace("{c}", "{}").replace("{}", word) for prompt in prompts))


def _parse(source: Path | str, text: str) -> Any:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if doubled := next((key for key, count in Counter(key for key, _ in pairs).items() if count > 1), None):
            raise LabelError(f"{source}: has {doubled!r} twice; join the two lists")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=build)
    except (ValueError, RecursionError) as error:
        if isinstance(error, LabelError):
            raise
        raise LabelError(f"{source}: is no JSON: {error}") from None
