"""Settings as they are written on a command line, `name=value`, read by the types of a dataclass's fields."""

import types
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin

from faircontext.errors import ArgumentError
from faircontext.methods.base import METHODS, check_known, describe_type, name_variant, types_of


def parse_settings(name: str, settings: Iterable[str]) -> dict[str, object]:
    """Read `name=value` words, as given on a command line, by the types of the method's fields.

    Raises:
        ArgumentError: a word is not `name=value`, or the value does not have the field's type.
    """
    return parse_fields(METHODS[name], name, settings, "masks=50")


def parse_fields(kind: type[Any], name: str, assignments: Iterable[str], example: str) -> dict[str, object]:
    """Read `name=value` words by the types of a dataclass's fields.

    Args:
        kind: the dataclass.
        name: what it is called in messages.
        assignments: what was given.
        example: of a word, for messages.

    Raises:
        ArgumentError: a word is not `name=value`, there is no such field, it is given twice, or the value does not have
            its type.
    """
    parsed: dict[str, object] = {}
    for word in assignments:
        key, equals, text = word.partition("=")
        if not equals:
            raise ArgumentError(f"{word!r} is not a setting; write name=value, for example {example}")
        check_known(kind, name, [key])
        if key in parsed:
            raise ArgumentError(f"{word!r}: {name} has a value of {key} already; give it once")
        parsed[key] = _parse(kind, key, text)
    return parsed


def _parse(kind: type[Any], key: str, text: str) -> object:
    """Convert a word to the first type of a field that takes it: None, bool, numbers, tuples of them, choices.

    Raises:
        ArgumentError: none does.
    """
    hint = types_of(kind)[key]
    try:
        return _read(text, hint)
    except ValueError:
        elsewhere = name_variant(kind, key, partial(_reads, text))
        raise ArgumentError(f"{key}={text} is not possible; it takes {describe_type(hint)}{elsewhere}") from None


def _read(text: str, hint: Any) -> object:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in sorted(kinds, key=lambda kind: kind is not types.NoneType):  # every text is a word, "none" as well
        try:
            return _convert(text, kind)
        except (KeyError, ValueError):
            continue
    raise ValueError(text)


def _reads(text: str, hint: Any) -> bool:
    try:
        _read(text, hint)
    except ValueError:
        return False
    return True


def _convert(text: str, kind: Any) -> object:
    if kind is types.NoneType:
        return {"none": None, "None": None}[text]
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if get_origin(kind) is tuple:
        return tuple(_convert(part, get_args(kind)[0]) for part in text.split(",") if part or "," not in text)
    if get_origin(kind) is Literal:
        return {choice: choice for choice in get_args(kind)}[text]
    converted: object = kind(text)
    return converted
