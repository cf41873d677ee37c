"""What a request holds: fields by name and type, read as they come, with files bounded before they are stored."""

import io
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_origin

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from faircontext.runs.unknown import SCORES
from faircontext.serve.refusals import Refused

F = TypeVar("F", bound=BaseModel)

Upload = Annotated[UploadFile, WithJsonSchema({"type": "string", "format": "binary"})]
"""A file that is sent."""

_MAX_TEXT = 4 * 2**20
"""Bytes of a field that is no file: 2,000 names of 200 letters, each of up to four bytes, and more."""

_MAX_LINE = 1_000
"""Letters of a field that is a line."""

_MAX_FIELDS = 300

_MAX_HEADER = 4_000
"""Bytes of a part's header, in which the name of a file stands."""

_MAX_BOUNDARY = 256
"""Characters of what stands between parts."""

_CHARSETS = (b"utf-8", b"utf8", b"us-ascii")
"""In small letters."""

_SCORES = f"{', '.join(SCORES[:-1])} or {SCORES[-1]}"

_MB = 10**6


class LabelFields(BaseModel):
    """The class names of a request, given in one of three ways, and what all requests may choose."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    labels: str | None = Field(None, description="Class names: one a line, or with commas between.")
    labels_file: Upload | None = Field(None, description="A text file in UTF-8 with a class name a line.")
    label_set: str | None = Field(
        None, description="The name of a label set of the service; its only one may be left out."
    )
    settings: list[str] = Field(
        [], description="Settings of the method over the preset's, each name=value, as after --set.", max_length=100
    )
    preset: Literal["paper", "recommended", "official"] | None = Field(None, description="Settings to start from.")
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
    descriptions: str | None = Field(
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


def pack_form(form: ClassifyForm | ExplainForm) -> dict[str, Any]:
    """Return the fields of a form as they go to another process; files as their names and contents."""

    def packed(value: Any) -> Any:
        if isinstance(value, list):
            return [packed(one) for one in value]
        if not isinstance(value, UploadFile):
            return value
        value.file.seek(0)
        return (value.filename, value.file.read())

    return {name: packed(getattr(form, name)) for name in type(form).model_fields}


def unpack_form(form: type[F], fields: Mapping[str, Any]) -> F:
    """Return the form whose fields `pack_form` returned."""

    def unpacked(value: Any) -> Any:
        if isinstance(value, list):
            return [unpacked(one) for one in value]
        return UploadFile(io.BytesIO(value[1]), filename=value[0]) if isinstance(value, tuple) else value

    return form.model_construct(**{name: unpacked(value) for name, value in fields.items()})


def form_body(form: type[BaseModel]) -> dict[str, Any]:
    """Return how a form is described in OpenAPI."""
    schema = form.model_json_schema()
    schema["properties"] = {name: _without_null(one) for name, one in schema["properties"].items()}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave null out: a field of a form is there or not."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if not kinds:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}


class _BoundedParser(MultiPartParser):
    """Reads files up to a size; what is beyond it is not stored, so that the refusal can be sent when all is read.

    Attributes:
        max_file: bytes of a file, at most.
        too_large: the field of a file that is larger, or empty.
        no_text: a field that is no text in UTF-8, or empty.
        complete: whether the last boundary has been read; without it, the last part is not among the items.
    """

    max_file = 0
    too_large = ""
    no_text = ""
    complete = False

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        super().on_header_value(data, start, end)
        if len(self._current_partial_header_value) > _MAX_HEADER:  # older versions of the parser have no limit
            raise MultiPartException("Maximum header size exceeded")

    def on_part_end(self) -> None:
        part = self._current_part
        if part.file is None:
            try:
                part.data.decode("utf-8")
            except UnicodeDecodeError:  # the parser would take it for Latin-1
                self.no_text = self.no_text or part.field_name or "body"
        super().on_part_end()

    def on_end(self) -> None:
        self.complete = True

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._current_part
        if part.file is None:
            super().on_part_data(data, start, end)
            return
        waiting = sum(len(content) for owner, content in self._file_parts_to_write if owner is part)
        if (part.file.size or 0) + waiting + end - start > self.max_file:
            self.too_large = self.too_large or part.field_name
            return
        super().on_part_data(data, start, end)


async def read_form(request: Request, form: type[F], max_images: int, max_file_mb: float) -> tuple[F, FormData]:
    """Read a request's fields.

    Returns:
        The fields, and what holds the files; it is to be closed when they have been used.

    Raises:
        Refused: the request is no form, or has a field that cannot be used.
    """
    _check_kind(request.headers.get("Content-Type", ""))
    parser = _BoundedParser(
        request.headers,
        request.stream(),
        max_files=max_images + 1,  # and a file of labels
        max_fields=_MAX_FIELDS,
        max_part_size=_MAX_TEXT,
    )
    parser.max_file = int(max_file_mb * _MB)
    try:
        data = await parser.parse()
    except (MultiPartException, FormParserError) as error:  # the latter from older versions of starlette
        raise _unreadable(str(error.__cause__ or getattr(error, "message", error)), max_images) from None
    except ClientDisconnect:
        raise Refused(400, "left", "body", "the client left before the request was read") from None
    try:
        _check_read(parser, max_file_mb)
        return _parse(form, data, max_images), data
    except Refused:
        await data.close()
        raise


def _check_kind(content_type: str) -> None:
    """Raise `Refused` unless a request says that it is a form of UTF-8."""
    kind, parameters = parse_options_header(content_type)
    boundary, charset = parameters.get(b"boundary", b""), parameters.get(b"charset", b"utf-8")
    what = ""
    if kind != b"multipart/form-data":
        what = "must be multipart/form-data"
    elif not boundary:
        what = "must be multipart/form-data with a boundary"
    elif len(boundary) > _MAX_BOUNDARY:
        what = f"the boundary must have at most {_MAX_BOUNDARY} characters"
    elif charset.lower() not in _CHARSETS:
        what = "charset must be UTF-8, or left out"
    if what:
        raise Refused(415, "media_type", "Content-Type", f"invalid Content-Type: {what}")


def _check_read(parser: _BoundedParser, max_file_mb: float) -> None:
    """Raise `Refused` where a form was not read as it was meant."""
    if not parser.complete:
        message = "invalid body: ended early, before the last boundary of the form; send all of it"
        raise Refused(400, "malformed", "body", message)
    if field := parser.too_large:
        raise Refused(413, "too_large", field, f"invalid {field}: a file is larger than {max_file_mb:g} MB")
    if field := parser.no_text[:60]:
        raise Refused(422, "invalid", field, f"invalid {field}: must be text in UTF-8")


def _unreadable(message: str, max_images: int) -> Refused:
    """Return the refusal of a form that the parser does not take."""
    if "Too many files" in message:
        return Refused(413, "too_many", "images", f"invalid images: at most {max_images:,} in a request")
    if "Too many fields" in message:
        return Refused(413, "too_many", "body", f"invalid body: at most {_MAX_FIELDS} fields")
    if "maximum size" in message:
        return Refused(413, "too_large", "body", f"invalid body: a field is larger than {_MAX_TEXT // 2**20} MiB")
    if "header size" in message:
        what = f"the name of a file or of a field, or another header of a part, is longer than {_MAX_HEADER:,} bytes"
        return Refused(400, "malformed", "body", f"invalid body: {what}")
    return Refused(400, "malformed", "body", "invalid body: not a form of the kind multipart/form-data")


def _parse(form: type[F], data: FormData, max_images: int) -> F:
    """Return the fields of a form; those that are lists may be given several times."""
    values: dict[str, Any] = {}
    for name in data:
        given = [value for value in data.getlist(name) if not (isinstance(value, UploadFile) and not value.filename)]
        if name in form.model_fields and get_origin(form.model_fields[name].annotation) is list:
            values[name] = given
        elif len(given) > 1:
            raise Refused(422, "invalid", name, f"invalid {name}: given {len(given)} times; give it once")
        elif given:
            values[name] = given[0]
    try:
        fields = form.model_validate(values)
    except ValidationError as error:
        raise _invalid(form, values, error) from None
    if isinstance(fields, ClassifyForm) and len(fields.images) > max_images:
        raise Refused(413, "too_many", "images", f"invalid images: at most {max_images:,} in a request")
    return fields


def _invalid(form: type[BaseModel], values: Mapping[str, Any], error: ValidationError) -> Refused:
    """Return the refusal that names the first field at fault."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0])[:60]
    if first["type"] == "missing":
        what = "missing; send a file" if name in ("image", "images") else "missing"
    elif first["type"] == "extra_forbidden":
        what = f"unknown; known: {', '.join(form.model_fields)}"
    elif first["type"] == "string_pattern_mismatch":  # only `unknown` has a pattern
        what = f"must be {_SCORES}, with =VALUE where answers are to be withheld, such as {SCORES[0]}=0.3"
    elif first["type"] == "is_instance_of":
        what = "must be a file, with a name"
    elif isinstance(values.get(name), UploadFile):
        what = "must be text, not a file"
    else:
        what = str(first["msg"])
        what = what[:1].lower() + what[1:]
    return Refused(422, "invalid", name, f"invalid {name}: {what}")
