"""JSON files that are read again, such as `run.json`: what each must hold. Its library is imported by who reads one.

Who reads a run need not check its entries again.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from faircontext.errors import ArgumentError, counted, reason_of
from faircontext.metrics.scores import TEMPERATURES
from faircontext.runs.checks import shorten
from faircontext.runs.records import SCHEMA_VERSION


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


class RuleEntries(Entries):
    """The rule by which a run has given images several labels."""

    threshold: float
    scores: str


class _RunOfThresholds(Entries):
    backbone: str
    weights: str | None = None
    prompts: str | None = None


class ThresholdFile(Entries):
    """What `faircontext threshold` writes, as far as it is read.

    Attributes:
        score: one of `SCORES`.
        thresholds: by what methods are called in rows.
        temperatures: the same.
        run: what they are of.
    """

    score: Literal["probability", "cosine", "energy"]
    thresholds: dict[str, float]
    temperatures: dict[str, Annotated[float, Field(ge=TEMPERATURES[0], le=TEMPERATURES[1])]] = Field(
        default_factory=dict
    )
    run: _RunOfThresholds


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
        shown = "no schema version" if version is None else f"schema version {shorten(version)}"
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
    return f"invalid {name} {shorten(first['input'])}: {words}" if name else words
