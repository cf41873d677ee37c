"""What a run on disk must be: the entries of its `run.json`, checked when it is read; its rows have checksums.

Who reads a run need not check them again. Whether two descriptions are of one run is told here as well.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from faircontext.errors import ArgumentError, and_more, counted, reason_of
from faircontext.files import to_json
from faircontext.runs.records import SCHEMA_VERSION, to_numpy


class Entries(BaseModel):
    """An object of a JSON file: types are not converted, what is not named is not looked at, and numbers are finite."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


E = TypeVar("E", bound=Entries)

_Count = Annotated[int, Field(ge=0, le=10**12)]
_Positive = Annotated[int, Field(ge=1)]
_Anything = dict[str, Any]


def _of_folder(name: str) -> str:
    if name in ("", ".", "..") or {"/", "\0"} & {*name}:
        raise ValueError("must be the name of a folder")
    return name


def _of_parts(shard: list[_Count]) -> list[_Count]:
    if not (len(shard) == 2 and shard[0] < shard[1]):
        raise ValueError("must be two whole numbers [i, n] with i below n")
    return shard


class _DatasetEntries(Entries):
    name: Annotated[str, AfterValidator(_of_folder)]
    split: str
    hash: str
    classes: _Count
    images: _Count
    listed: _Count


class _EngineEntries(Entries):
    name: str


class _BackboneEntries(Entries):
    name: str
    precision: str
    pretrained: str | None = None
    weights: str = ""
    engine: _EngineEntries = _EngineEntries(name="")


class _PerturbationEntries(Entries):
    kind: Literal["corruption", "attack"]
    name: str
    severity: _Positive = 1
    eps: _Positive = 1


class _UnknownEntries(Entries):
    temperatures: dict[str, float] = {}


class _ViewEntries(Entries):
    scale: list[float] = []


class _ConfigEntries(Entries):
    dataset: _DatasetEntries
    names: list[str] = []
    limit: _Positive | None
    shard: Annotated[list[_Count], AfterValidator(_of_parts)] | None
    seed: Annotated[int, Field(ge=0)]
    backbone: _BackboneEntries
    pretrained: str | None = None
    preset: str
    prompts: str
    exif: bool = True
    shift: _PerturbationEntries = _PerturbationEntries(kind="corruption", name="")
    max_pixels: _Positive = 1
    templates: list[str] = []
    views: _ViewEntries = _ViewEntries()
    unknown: _UnknownEntries = _UnknownEntries()
    methods: Annotated[dict[str, _Anything], Field(min_length=1)]
    versions: _Anything = {}


class _SessionEntries(Entries):
    versions: _Anything = {}
    seconds: float | None = None


class _CountEntries(Entries):
    images: _Count
    unreadable: _Count


class _RunEntries(Entries):
    """Entries of a `run.json` that something reads; one with a default may be absent."""

    status: Literal["running", "complete"]
    folder: str = ""
    working_directory: str = ""
    image_column: str = ""
    model: _Anything = {}
    sessions: list[_SessionEntries]
    hashes: dict[str, str]
    counts: _CountEntries = _CountEntries(images=0, unreadable=0)
    config: _ConfigEntries

    @model_validator(mode="after")
    def _agree(self) -> "_RunEntries":
        names, classes = self.config.names, self.config.dataset.classes
        if names and len(names) != classes:
            raise ValueError(f"config.names has {counted(len(names), 'name')}, and config.dataset.classes is {classes}")
        if missing := next((method for method in self.config.methods if method not in self.hashes), None):
            raise ValueError(f"hashes.{missing} is missing")
        return self


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
    checked: dict[str, Any] = _updated(document)
    check_entries(_RunEntries, checked, f"{path}: is no description of a run", fix)
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


def read_entries(kind: type[E], path: Path, what: str, fix: str) -> E:
    """Read a JSON file by the types of its entries.

    Args:
        kind: what it must hold.
        path: of the file.
        what: it is, in messages.
        fix: what helps where it is something else.

    Raises:
        ArgumentError: it cannot be read, or an entry is missing or is not what it must be; the message names it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}") from None
    return check_entries(kind, content, f"{path}: is no {what}", fix)


def check_entries(kind: type[E], document: Mapping[str, Any] | bytes, fault: str, fix: str) -> E:
    """Return a JSON document, as text or as it was read, by the types of its entries; see `read_entries`."""
    if isinstance(document, bytes):
        with suppress(ValueError, RecursionError):  # pydantic says what is wrong with the text
            document = json.loads(document)
    if not isinstance(document, bytes):  # pydantic refuses lone surrogates: bytes of file names that are not UTF-8
        document = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    try:
        return kind.model_validate_json(document)
    except ValidationError as error:
        raise ArgumentError(f"{fault}: {_first_fault(error)}; {fix}") from None


def _first_fault(error: ValidationError) -> str:
    """Return in words what of a document is not what it must be: the first entry, and its value."""
    first = error.errors(include_url=False)[0]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    words = (
        first["msg"]
        .removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .replace(" after validation", "")
    )
    if first["type"] == "missing":
        return f"{name} is missing"
    words = words[:1].lower() + words[1:]
    return f"invalid {name} {_short(first['input'])}: {words}" if name else words


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
            yield f"{name} was {_short(was)} and is {_short(now_value)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:76] + " ..."
