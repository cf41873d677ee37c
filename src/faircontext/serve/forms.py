"""What a request holds: fields by name and type, read as they come, with files bounded before they are stored."""

import base64
import copyreg
import io
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_origin

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from faircontext.names import lines_of_labels
from faircontext.runs.unknown import SCORES
from faircontext.serve.refusals import Refused, blamed_on

F = TypeVar("F", bound=BaseModel)

_BASE64 = {"type": "string", "contentEncoding": "base64"}
_NAMED = {"type": "object", "required": ["base64"], "properties": {"name": {"type": "string"}, "base64": _BASE64}}


def _sent(filename: str | None, content: bytes) -> UploadFile:
    return UploadFile(io.BytesIO(content), size=len(content), filename=filename)


def _as_file(value: Any, info: ValidationInfo) -> Any:
    """Return the file that a value of JSON is; a form has files as they are."""
    if info.mode != "json":
        return value
    described: dict[str, Any] = value if isinstance(value, dict) else {"base64": value}
    try:
        content = base64.b64decode("".join(described["base64"].split()), validate=True)  # some write it in lines
    except (AttributeError, KeyError, ValueError):
        what = 'must be a file in base64, or {"name": NAME, "base64": CONTENT}'
        raise PydanticCustomError("base64", what) from None
    name = described.get("name")
    return _sent(name if isinstance(name, str) else None, content)


def _as_lines(value: Any) -> Any:
    """Return class names as text, which JSON may have as a list."""
    with blamed_on("labels"):
        return lines_of_labels(value) if isinstance(value, list) else value


def _as_text(value: Any) -> Any:
    """Return a document as text, which JSON may have as an object."""
    return json.dumps(value) if isinstance(value, dict) else value


# How a field is described in forms is of mode "validation", and how in JSON of mode "serialization".
Upload = Annotated[
    UploadFile,
    BeforeValidator(_as_file),
    WithJsonSchema({"type": "string", "format": "binary"}, mode="validation"),
    WithJsonSchema({"anyOf": [_BASE64, _NAMED]}, mode="serialization"),
]
"""A file that is sent."""

Lines = Annotated[
    str,
    BeforeValidator(_as_lines),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}, mode="serialization"),
]
Document = Annotated[
    str, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "object"]}, mode="serialization")
]

_MAX_TEXT = 4 * 2**20
"""Bytes of a field that is no file: 2,000 names of 200 letters, each of up to four bytes, and more."""

_MAX_LINE = 1_000
"""Letters of a field that is a line."""

_MAX_FIELDS = 300

_MAX_VALUES = 2**18
"""Values in JSON, each of which takes far more memory than the two bytes that it can be sent as."""

_LONG_HEADER = "the name of a file or of a field, or another header of a part, is longer than 4 KiB"

_MAX_BOUNDARY = 256
"""Characters of what stands between parts."""

_CHARSETS = (b"utf-8", b"utf8", b"us-ascii")
"""In small letters."""

_HOW_UNKNOWN = (
    f"must be {', '.join(SCORES[:-1])} or {SCORES[-1]}, with =VALUE where answers are to be withheld, such as "
    f"{SCORES[0]}=0.3"
)

_MB = 10**6


class LabelFields(BaseModel):
    """The class names of a request, given in one of three ways, and what all requests may choose."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, str_max_length=_MAX_TEXT)

    labels: Lines | None = Field(None, description="Class names: one a line, or with commas between.")
    labels_file: Upload | None = Field(None, description="A text file in UTF-8 with a class name a line.")
    label_set: str | None = Field(
        None, description="The name of a label set of the service; its only one may be left out."
    )
    settings: list[str] = Field(
        [], description="Settings of the method over the preset's, each name=value, as after --set.", max_length=100
    )
    preset: Literal["paper", "recommended", "official"] | None = Field(None, description="Settings to start from.")
    plain: Literal["own", "crop", "pad", "squash"] | None = Field(
        None, description="What the model sees of a picture that is not square, as after --views."
    )
    seed: int | None = Field(None, ge=0, lt=2**63, description="Seed of views and masks.")
    truncate: bool | None = Field(None, description="Cut class names that are too long, instead of refusing them.")


class ClassifyForm(LabelFields):
    """What `POST /v1/classify` takes."""

    images: list[Upload] = Field(min_length=1, description="Image files.")
    method: str | None = Field(None, max_length=1000, description="A method, several with commas between, or all.")
    prompts: Literal["single", "generic7", "imagenet80"] | None = Field(
        None, description="The prompt set; single where no prompts are given at all."
    )
    template: list[Annotated[str, Field(max_length=_MAX_LINE)]] = Field(
        [], description="A prompt template with {} for the class name; may be given several times.", max_length=100
    )
    descriptions: Document | None = Field(
        None, description="Prompts of each class: a JSON object of class names and lists of prompts."
    )
    unknown: str | None = Field(
        None,
        pattern=rf"^({'|'.join(SCORES)})(=[-+.0-9eE]{{1,40}})?$",
        description="Answer none of these where a score is low, such as probability=0.3; a score alone is told.",
    )
    top_k: int = Field(5, ge=1, le=100, description="How many of the most probable classes are told in `top`.")


class ExplainForm(LabelFields):
    """What `POST /v1/explain` takes."""

    image: Upload = Field(description="An image file.")
    format: Literal["json", "html"] = Field("json", description="json, or html: the page of `faircontext explain`.")


def _reduce(file: UploadFile) -> tuple[Any, ...]:
    file.file.seek(0)
    return _sent, (file.filename, file.file.read())


copyreg.pickle(UploadFile, _reduce)  # so that forms go to other processes as they are


def form_body(form: type[BaseModel]) -> dict[str, Any]:
    """Return how a form, and the same in JSON, is described in OpenAPI."""
    schema = form.model_json_schema()
    schema["properties"] = {
        name: _without_null(schema_of_field) for name, schema_of_field in schema["properties"].items()
    }
    kinds = {"multipart/form-data": schema, "application/json": form.model_json_schema(mode="serialization")}
    content = {kind: {"schema": described} for kind, described in kinds.items()}
    return {"requestBody": {"required": True, "content": content}}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave null out: a field of a form is there or not."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if not kinds:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}


async def read_form(request: Request, form: type[F], max_images: int, max_file_mb: float) -> tuple[F, FormData]:
    """Read a request's fields.

    Returns:
        The fields, and what holds the files; it is to be closed when they have been used.

    Raises:
        Refused: the request is neither a form nor JSON, or has a field that cannot be used.
    """
    kind = request.headers.get("Content-Type", "")
    boundary = _boundary_of(kind)
    try:
        if boundary is None:
            content = b"".join([chunk async for chunk in request.stream()])
            return _parse(form, content, max_images, max_file_mb), FormData()
        data, complete = await _read_parts(request, kind, boundary, max_images)
    except ClientDisconnect:
        raise Refused(400, "left", "body", "the client left before the request was read") from None
    try:
        if not complete:  # then the last part is not among the fields
            message = "invalid body: ended early, before the last boundary of the form; send all of it"
            raise Refused(400, "malformed", "body", message)
        return _parse(form, data, max_images, max_file_mb), data
    except Refused:
        await data.close()
        raise


async def _read_parts(request: Request, kind: str, boundary: bytes, max_images: int) -> tuple[FormData, bool]:
    """Return the parts of a form, and whether the last boundary came; raise `Refused` where there are none."""
    last, complete = b"\r\n--" + boundary + b"--", False

    async def body() -> AsyncGenerator[bytes, None]:
        nonlocal complete
        read = b"\r\n"
        async for chunk in request.stream():
            read += chunk
            complete, read = complete or last in read, read[-len(last) :]
            yield chunk

    # In Latin-1, which keeps all bytes: the parser takes text for it that is not UTF-8, and says nothing.
    headers = Headers({"Content-Type": f"{kind}; charset=latin-1"})
    most = max_images + 1  # and a file of labels
    limits = {"max_files": most, "max_fields": _MAX_FIELDS, "max_part_size": _MAX_TEXT}
    try:
        return await MultiPartParser(headers, body(), **limits).parse(), complete
    except (MultiPartException, FormParserError) as error:  # the latter from older versions of starlette
        raise _unreadable(str(error.__cause__ or getattr(error, "message", error)), max_images) from None


def _boundary_of(content_type: str) -> bytes | None:
    """Return what stands between the parts of a form, None for JSON; raise `Refused` of others, and unless in UTF-8."""
    kind, parameters = parse_options_header(content_type)
    boundary, charset = parameters.get(b"boundary", b""), parameters.get(b"charset", b"utf-8")
    is_json = kind == b"application/json"
    for wrong, what in (
        (not is_json and kind != b"multipart/form-data", "must be multipart/form-data or application/json"),
        (not is_json and not boundary, "must be multipart/form-data with a boundary"),
        (len(boundary) > _MAX_BOUNDARY, f"the boundary must have at most {_MAX_BOUNDARY} characters"),
        (charset.lower() not in _CHARSETS, "charset must be UTF-8, or left out"),
    ):
        if wrong:
            raise Refused(415, "media_type", "Content-Type", f"invalid Content-Type: {what}")
    return None if is_json else boundary


def _unreadable(message: str, max_images: int) -> Refused:
    """Return the refusal of a form that the parser does not take."""
    rows: tuple[tuple[str, int, str, str, str], ...] = (
        ("Too many files", 413, "too_many", "images", f"at most {max_images:,} in a request"),
        ("Too many fields", 413, "too_many", "body", f"at most {_MAX_FIELDS} fields"),
        ("maximum size", 413, "too_large", "body", f"a field is larger than {_MAX_TEXT // 2**20} MiB"),
        ("header size", 400, "malformed", "body", _LONG_HEADER),
        ("", 400, "malformed", "body", "not a form of the kind multipart/form-data"),
    )
    _, status, reason, field, what = next(row for row in rows if row[0] in message)
    return Refused(status, reason, field, f"invalid {field}: {what}")


def _fields_of(data: FormData) -> dict[str, list[str | UploadFile]]:
    """Return the values of each field as they were sent, without files that have no name.

    Raises:
        Refused: a text is not UTF-8.
    """
    fields: dict[str, list[str | UploadFile]] = {}
    for raw, value in data.multi_items():
        name = _from_utf_8(raw) or raw
        values = fields.setdefault(name, [])
        if isinstance(value, UploadFile):
            value.filename = _from_utf_8(value.filename or "") or value.filename
            values += [value] if value.filename else []
        elif (text := _from_utf_8(value)) is None:
            raise Refused(422, "invalid", name[:60] or "body", f"invalid {name[:60] or 'body'}: must be text in UTF-8")
        else:
            values.append(text)
    return fields


def _from_utf_8(text: str) -> str | None:
    """Return a text whose bytes were taken for Latin-1; None where they are not UTF-8."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return None


def _by_name(form: type[BaseModel], sent: Mapping[str, list[str | UploadFile]]) -> dict[str, Any]:
    """Return the values of a form's fields; those that are lists may be given several times."""
    values: dict[str, Any] = {}
    for name, field_values in sent.items():
        if name in form.model_fields and get_origin(form.model_fields[name].annotation) is list:
            values[name] = field_values
        elif len(field_values) > 1:
            raise Refused(422, "invalid", name, f"invalid {name}: given {len(field_values)} times; give it once")
        elif field_values:
            values[name] = field_values[0]
    return values


def _parse(form: type[F], sent: FormData | bytes, max_images: int, max_file_mb: float) -> F:
    """Return the fields of a form, or of a body that is JSON."""
    if isinstance(sent, bytes) and sum(sent.count(sign) for sign in b",[{") > _MAX_VALUES:
        raise Refused(413, "too_many", "body", f"invalid body: at most {_MAX_VALUES:,} commas and opening brackets")
    try:
        if isinstance(sent, bytes):
            fields = form.model_validate_json(sent)
        else:
            fields = form.model_validate(_by_name(form, _fields_of(sent)))
    except ValidationError as error:
        raise _invalid(form, error) from None
    if isinstance(fields, ClassifyForm) and len(fields.images) > max_images:
        raise Refused(413, "too_many", "images", f"invalid images: at most {max_images:,} in a request")
    for name, value in fields:
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, UploadFile) and (one.size or 0) > max_file_mb * _MB:
                raise Refused(413, "too_large", name, f"invalid {name}: a file is larger than {max_file_mb:g} MB")
    return fields


def _invalid(form: type[BaseModel], error: ValidationError) -> Refused:
    """Return the refusal that names the first field at fault."""
    first = error.errors(include_url=False, include_context=False)[0]
    if not first["loc"]:
        return Refused(400, "malformed", "body", "invalid body: must be an object of JSON in UTF-8")
    name, message = str(first["loc"][0])[:60], str(first["msg"])
    if isinstance(first["input"], UploadFile):
        message = "must be text, not a file"
    what = {
        "missing": "missing; send a file" if name in ("image", "images") else "missing",
        "extra_forbidden": f"unknown; known: {', '.join(form.model_fields)}",
        "string_pattern_mismatch": _HOW_UNKNOWN,  # of `unknown`, which alone has a pattern
        "is_instance_of": "must be a file, with a name",
    }.get(first["type"], message[:1].lower() + message[1:])
    return Refused(422, "invalid", name, f"invalid {name}: {what}")
