"""Whether two descriptions are of one run, and each position of its rows is that of one image; rows have checksums."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.errors import ArgumentError, and_more
from faircontext.files import to_json
from faircontext.runs.records import to_numpy


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
    """Raise `ArgumentError` naming what differs, unless two configurations are equal as JSON."""
    earlier, now = (json.loads(to_json(document)) for document in (earlier, now))
    methods = [document["methods"] for document in (earlier, now) if isinstance(document.get("methods"), Mapping)]
    if len(methods) == 2 and methods[0].keys() != methods[1].keys():
        was, requested = (", ".join(names) for names in methods)
        raise ArgumentError(
            f"{folder}: is a run of other methods than those that are asked for: {was}, not {requested}; name the same "
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
    for name, was, now_value in differing(earlier, now):
        if name == "stored":
            stored = " and ".join(was or ["neither scores nor embeddings"])
            requested = " and ".join(f"--{part}" for part in now_value or ()) or "neither --scores nor --embeddings"
            yield f"its rows hold {stored}, and {requested} {'is' if len(now_value or ()) == 1 else 'are'} asked for"
        else:
            yield f"{name} was {shorten(was)} and is {shorten(now_value)}"


def shorten(value: Any) -> str:
    """Return a value as JSON, cut where it is long, for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:76] + " ..."
