"""What a run on disk must be: the entries of its `run.json`, checked when it is read; its rows have checksums.

Who reads a run need not check them again. Whether two descriptions are of one run is told here as well.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.errors import ArgumentError, and_more, reason_of
from faircontext.runs.records import SCHEMA_VERSION, to_numpy


@dataclass(frozen=True)
class _Kind:
    """What an entry must be, in words, and whether a value is that."""

    wanted: str
    test: Callable[[Any], bool]


def _or_null(kind: _Kind) -> _Kind:
    return _Kind(f"{kind.wanted}, or null", lambda value: value is None or kind.test(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_shard(value: Any) -> bool:
    pair = isinstance(value, list) and len(value) == 2 and all(_is_whole(part, 0) for part in value)
    return pair and bool(value[0] < value[1])


_FOLDER = r"(?!\.{0,2}$)[^/\0]+"
_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_NAME = _Kind("the name of a folder", lambda value: isinstance(value, str) and bool(re.fullmatch(_FOLDER, value)))
_NUMBER = _Kind("a number", _is_number)
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_WHOLE = _Kind("a whole number of at least 0", lambda value: _is_whole(value, 0))
_POSITIVE = _Kind("a whole number of at least 1", lambda value: _is_whole(value, 1))
_COUNT = _Kind("a whole number between 0 and 1e12", lambda value: _is_whole(value, 0, 1e12))
_STATUS = _Kind('"running" or "complete"', lambda value: value in ("running", "complete"))
_PERTURBATION = _Kind('"corruption" or "attack"', lambda value: value in ("corruption", "attack"))
_SHARD = _Kind("two whole numbers [i, n] with i below n", _is_shard)

_SHAPE: Mapping[str, Any] = {
    "status": _STATUS,
    "folder?": _TEXT,
    "working_directory?": _TEXT,
    "image_column?": _TEXT,
    "model?": {},
    "sessions": [{"versions?": {}, "seconds?": _or_null(_NUMBER)}],
    "hashes": {"*": _TEXT},
    "counts?": {"images": _COUNT, "unreadable": _COUNT},
    "config": {
        "dataset": {"name": _NAME, "split": _TEXT, "hash": _TEXT}
        | dict.fromkeys(("classes", "images", "listed"), _COUNT),
        "names?": [_TEXT],
        "limit": _or_null(_POSITIVE),
        "shard": _or_null(_SHARD),
        "seed": _WHOLE,
        "backbone": {
            "name": _TEXT,
            "precision": _TEXT,
            "pretrained?": _or_null(_TEXT),
            "weights?": _TEXT,
            "engine?": {"name": _TEXT},
        },
        "pretrained?": _or_null(_TEXT),
        "preset": _TEXT,
        "prompts": _TEXT,
        "exif?": _FLAG,
        "shift?": {"kind": _PERTURBATION, "name": _TEXT, "severity?": _POSITIVE, "eps?": _POSITIVE},
        "max_pixels?": _POSITIVE,
        "templates?": [_TEXT],
        "views?": {"scale?": [_NUMBER]},
        "methods": {"*": {}},
        "multi_label?": {"threshold": _NUMBER, "scores": _TEXT},
        "versions?": {},
    },
}
"""Entries of a `run.json` that something reads: `?` ends the name of one that may be absent, `*` is every name."""

_FORMER_KEYS = (
    (("counts",), "refused", "unreadable"),
    (("model",), "remarks", "warnings"),
    (("config", "views"), "number", "count"),
)
"""What is called otherwise in a `run.json` of schema version 1: the object that holds it, its key there and today."""


def read_document(path: Path) -> dict[str, Any]:
    """Read a `run.json`; one of schema version 1 is returned as of the present one.

    Raises:
        ArgumentError: it cannot be read, or an entry is missing or is not what it must be; the message names it.
    """
    fix = "put it right, or delete its folder and make the run again"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: is no description of a run: {reason_of(error)}; {fix}") from None
    version = document.get("schema_version") if isinstance(document, dict) else SCHEMA_VERSION
    if isinstance(version, bool) or version not in (1, SCHEMA_VERSION):
        shown = "no schema version" if version is None else f"schema version {_short(version)}"
        raise ArgumentError(f"{path}: has {shown}; this faircontext reads 1 and {SCHEMA_VERSION}: make the run again")
    document = _updated(document)
    if fault := next(_misshapen(document, _SHAPE), None) or next(_contradictions(document), None):
        raise ArgumentError(f"{path}: is no description of a run: {fault}; {fix}")
    checked: dict[str, Any] = document
    return checked


def _updated(document: Any) -> Any:
    """Return a document of any schema version, not checked yet, as one of the present version."""
    if not isinstance(document, dict) or document["schema_version"] == SCHEMA_VERSION:
        return document
    for names, former, key in _FORMER_KEYS:
        holder: Any = document
        for name in names:
            holder = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and former in holder:
            holder[key] = holder.pop(former)
    return {**document, "schema_version": SCHEMA_VERSION}


def _misshapen(value: Any, shape: Any, name: str = "") -> Iterator[str]:
    """Yield, in words, what of a document is not what a shape says."""
    if isinstance(shape, _Kind):
        if not shape.test(value):
            yield _invalid(name, value, shape.wanted)
    elif not isinstance(value, type(shape)):
        yield _invalid(name, value, "a list" if isinstance(shape, list) else "an object")
    elif isinstance(shape, list):
        for index, inner in enumerate(value):
            yield from _misshapen(inner, shape[0], f"{name}[{index}]")
    else:
        yield from _misshapen_entries(value, shape, f"{name}." if name else "")


def _misshapen_entries(value: Mapping[str, Any], shape: Mapping[str, Any], above: str) -> Iterator[str]:
    for key, inner in shape.items():
        name = key.removesuffix("?")
        for present in value if key == "*" else {name} & value.keys():
            yield from _misshapen(value[present], inner, f"{above}{present}")
        if name == key != "*" and name not in value:
            yield f"{above}{name} is missing"


def _contradictions(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield, in words, what entries of a document say against each other."""
    config = document["config"]
    classes = config["dataset"]["classes"]
    if len(config.get("names", ())) not in (0, classes):
        yield _invalid("config.dataset.classes", classes, f"{len(config['names'])}, as many as config.names has")
    if not config["methods"]:
        yield "config.methods is empty"
    for method in config["methods"]:
        if method not in document["hashes"]:
            yield f"hashes.{method} is missing"


def _invalid(name: str, value: Any, wanted: str) -> str:
    return f"invalid {name or 'content'} {_short(value)}: must be {wanted}"


def check_positions(folder: Path, rows: pa.Table) -> None:
    """Check that each position of a run is that of one image.

    Args:
        folder: of the run, for the message.
        rows: by position, each image and method once.

    Raises:
        ArgumentError: two images have one position; the message names them.
    """
    positions, paths = to_numpy(rows["position"]), rows["path"]
    other = pc.not_equal(paths[:-1], paths[1:]).to_numpy() if len(rows) else np.zeros(0, np.bool_)
    if (doubled := np.flatnonzero(other & (positions[1:] == positions[:-1]))).size:
        row = int(doubled[0])
        raise ArgumentError(
            f"{folder}: {paths[row]} and {paths[row + 1]} are both at position {positions[row]}; delete rows.parquet "
            "and parts in it, and go on with --resume"
        )


def check_same(folder: Path | str, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` naming what differs, unless two configurations are equal."""
    methods = [document["methods"] for document in (earlier, now) if isinstance(document.get("methods"), Mapping)]
    if len(methods) == 2 and methods[0].keys() != methods[1].keys():
        was, asked = (", ".join(names) for names in methods)
        raise ArgumentError(
            f"{folder}: is a run of other methods than those that are asked for: {was}, not {asked}; name the same "
            "with --methods (of classify: --method), or another --out"
        )
    if differences := list(_differences(earlier, now)):
        shown = and_more(differences, separator="; ")
        raise ArgumentError(f"{folder}: is another run than the one that is asked for: {shown}; name another --out")


def check_same_origin(folder: Path, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` where two documents of one configuration differ in what made their rows.

    That is the activation of the model, which no hash of weights shows, or the version of the schema, which shows in
    the hashes of methods.
    """
    if earlier["hashes"] != now.get("hashes", earlier["hashes"]):
        raise ArgumentError(
            f"{folder}: was made by another version of faircontext, and can only be read; name another --out"
        )
    if "model" in earlier and "model" in now:  # runs of earlier versions do not say
        check_same(folder, *({"activation": document["model"].get("activation")} for document in (earlier, now)))


def differing(first: Any, second: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each entry, however deep, in which two documents differ, with its value in both."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys([*first, *second]):
            yield from differing(first.get(key), second.get(key), f"{name}.{key}" if name else str(key))
    elif first != second:
        yield name, first, second


def _differences(earlier: Any, now: Any) -> Iterator[str]:
    for name, was, one in differing(earlier, now):
        if name == "stored":
            held = " and ".join(was or ["neither scores nor embeddings"])
            asked = " and ".join(f"--{part}" for part in one or ()) or "neither --scores nor --embeddings"
            yield f"its rows hold {held}, and {asked} {'is' if len(one or ()) == 1 else 'are'} asked for"
        else:
            yield f"{name} was {_short(was)} and is {_short(one)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:76] + " ..."
