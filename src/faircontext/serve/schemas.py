"""What is answered, as OpenAPI describes it."""

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, Field, create_model

from faircontext.runs.records import CSV_COLUMNS, Answer


class Ranked(BaseModel):
    """A class among the most probable ones."""

    index: int
    name: str
    probability: float = Field(description="By the method.")
    zero_shot: float = Field(description="By zero-shot, from the same prompts.")


_COLUMNS: dict[str, Any] = {
    column.name: (column.type, ...)
    for column in fields(Answer)
    if column.name in (*CSV_COLUMNS, "shared_seconds", "label_index", "warnings")
}
"""What an entry has also of an image that cannot be read; see `Answer.entry`."""

_HEADLINE = "The answer for people: where its probability is low with that, and with the class that is close to it."

Entry = create_model(
    "Entry",
    __doc__="An image's answer by a method, or why it has none; the fields are those of `faircontext classify --json`.",
    **_COLUMNS,
    zero_shot_index=(int | None, None),
    index=(int | None, None),
    top5=(list[tuple[str, float]] | None, None),
    candidates=(list[str] | None, None),
    diagnostics=(dict[str, Any] | None, None),
    headline=(str | None, Field(None, description=_HEADLINE)),
    top=(list[Ranked] | None, Field(None, description="The `top_k` most probable classes, beside zero-shot.")),
)


class Answers(BaseModel):
    """What `faircontext classify --json` writes, and what is odd about the class names."""

    schema_version: int
    run: dict[str, Any]
    versions: dict[str, str]
    summary: dict[str, Any]
    warnings: list[str]
    answers: list[Entry] = Field(  # type: ignore[valid-type]
        description="One for each image and method, in the order in which they were sent."
    )


class DescribedMap(BaseModel):
    """A picture of evidence, and how far it would come out the same with other masks."""

    picture: str
    reliability: float | None
    reliable: bool


class Candidate(BaseModel):
    """A candidate before and after calibration; shares are among the candidates."""

    name: str
    before: float
    after: float
    votes_before: int
    votes_after: int
    picture: str | None = None
    reliability: float | None = None
    reliable: bool | None = None


class View(BaseModel):
    """A view that voted."""

    picture: str
    vote: str
    entropy: float
    plain: bool


class Contrast(DescribedMap):
    """The evidence of one candidate against another."""

    first: str
    second: str


class GreyMap(BaseModel):
    """A candidate's evidence in 8 bits: black is `low`, white is `high`, in nats."""

    name: str
    picture: str
    low: float
    high: float


class WhyAnswer(BaseModel):
    """What `faircontext explain` shows; pictures are PNG files of 8 bits by name, each in base64 as a data address."""

    schema_version: int
    source: str
    image_id: str
    answer: str
    zero_shot: str
    in_words: str
    warnings: list[str]
    run: dict[str, Any]
    settings: dict[str, Any]
    diagnostics: dict[str, Any]
    fallback: str | None
    labels: list[str]
    versions: dict[str, str]
    headline: str = Field(description=_HEADLINE)
    confidence: float
    candidates: list[Candidate]
    learnt: bool
    compared: bool
    common: str | None
    contrast: DescribedMap | None
    flat: bool
    views: list[View]
    all_views: int
    seen: str = Field(description="What the model sees of the picture.")
    classes: int
    version: str
    contrasts: list[Contrast]
    maps: list[GreyMap]
    pictures: dict[str, str]


class MethodFacts(BaseModel):
    """A method that a request may name."""

    name: str
    summary: str
    uses_views: bool
    default: bool
    settings: dict[str, Any]


class Limits(BaseModel):
    """How much a request may hold."""

    images: int
    file_mb: float
    request_mb: float
    labels: int
    letters: int
    seconds: float
    queue: int


class Methods(BaseModel):
    """Methods by name, with the settings that they have where a request gives none."""

    methods: list[MethodFacts]


class Models(BaseModel):
    """The model that answers, and what a request may hold."""

    model: dict[str, Any]
    limits: Limits
    version: str


class Labels(BaseModel):
    """Label sets that a request may name."""

    label_sets: dict[str, list[str]]


class Health(BaseModel):
    """The state of the service."""

    status: str
