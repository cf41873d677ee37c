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

__all__ = ["ClassifyForm", "ExplainForm", "LabelFields", "Upload", "form_body", "pack_form", "read_form", "unpack_form"]

F = TypeVar("F", bound=BaseModel)

Upload = Annotated[UploadFile, WithJsonSchema({"type": "string", "format": "binary"})]
"""A file that is sent."""

_MAX_TEXT = 4 * 2**20
"""Bytes of a field that is no file: 2,000 names of 200 letters, each of up to four bytes, and more."""

_MAX_LINE = 1_000
"""Letters of a field that is a line."""

_MAX_FIELDS = 300

_MB = 10**6


class LabelFields(BaseModel):
    """The class names of a request, given in one of three ways, and what all requests may choose."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    labels: str | None = Field(None, description="Class names: one a line, or with commas between.")
    labels_file: Upload | None = Field(None, description="A text file in UTF-8 with a class name a line.")
    label_set: str | None = Field(None, description="The name of a label set of the service, see /v1/labels.")
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
    """Reads files up to a size; what is beyond it is not stored, so that the refusal can be sent when all is read."""

    max_file = 0
    too_large = ""

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
    kind, parameters = parse_options_header(request.headers.get("Content-Type", ""))
    if kind != b"multipart/form-data" or not parameters.get(b"boundary"):
        raise Refused(415, "media_type", "Content-Type", "invalid Content-Type: must be multipart/form-data")
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
        raise _unreadable(str(getattr(error, "message", error)), max_images) from None
    except ClientDisconnect:
        raise Refused(400, "left", "body", "the client left before the request was read") from None
    try:
        if parser.too_large:
            message = f"invalid {parser.too_large}: a file is larger than {max_file_mb:g} MB"
            raise Refused(413, "too_large", parser.too_large, message)
        return _parse(form, data, max_images), data
    except Refused:
        await data.close()
        raise


def _unreadable(message: str, max_images: int) -> Refused:
    """Return the refusal of a form that the parser does not take."""
    if "Too many files" in message:
        return Refused(413, "too_many", "images", f"invalid images: at most {max_images:,} in a request")
    if "Too many fields" in message:
        return Refused(413, "too_many", "body", f"invalid body: at most {_MAX_FIELDS} fields")
    if "maximum size" in message:
        return Refused(413, "too_large", "body", f"invalid body: a field is larger than {_MAX_TEXT // 2**20} MiB")
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
    if len(values.get("images", [])) > max_images:
        raise Refused(413, "too_many", "images", f"invalid images: at most {max_images:,} in a request")
    try:
        return form.model_validate(values)
    except ValidationError as error:
        raise _invalid(form, values, error) from None


def _invalid(form: type[BaseModel], values: Mapping[str, Any], error: ValidationError) -> Refused:
    """Return the refusal that names the first field at fault."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0])[:60]
    if first["type"] == "missing":
        what = "missing; send a file" if name in ("image", "images") else "missing"
    elif first["type"] == "extra_forbidden":
        what = f"unknown; known: {', '.join(form.model_fields)}"
    elif first["type"] == "is_instance_of":
        what = "must be a file, with a name"
    elif isinstance(values.get(name), UploadFile):
        what = "must be text, not a file"
    else:
        what = str(first["msg"])
        what = what[:1].lower() + what[1:]
    return Refused(422, "invalid", name, f"invalid {name}: {what}")
