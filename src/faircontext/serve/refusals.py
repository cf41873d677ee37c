"""What a request is refused with: a status, the field at fault and a line that says what would be right."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from faircontext.errors import FairContextError, one_line


class Problem(BaseModel):
    """Why a request was refused."""

    status: int = Field(description="The HTTP status.")
    reason: str = Field(description="One word, as it is counted in /metrics.")
    field: str = Field(description="The field, header or part of the request that is at fault; empty where none is.")
    message: str = Field(description="What was wrong, and what would be right; one line.")


class Refusal(BaseModel):
    """The answer to a request that was refused."""

    error: Problem


class Refused(HTTPException):
    """A request that is not answered.

    Args:
        status: of HTTP.
        reason: one word, which is counted.
        field: what is at fault.
        message: one line.
        retry_after: seconds after which it may be tried again.
    """

    def __init__(self, status: int, reason: str, field: str, message: str, retry_after: int | None = None) -> None:
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        super().__init__(status, message, headers)
        self.reason = reason
        self.field = field
        self.arguments = status, reason, field, message, retry_after

    def document(self) -> dict[str, Any]:
        """Return what is answered, see `Refusal`."""
        problem = Problem(
            status=self.status_code, reason=self.reason, field=self.field, message=one_line(str(self.detail))
        )
        return Refusal(error=problem).model_dump()


def closing() -> Refused:
    """Return the refusal of what is not answered before the service ends."""
    return Refused(503, "closing", "", "the service ends; ask another one", 10)


def refusal_response(refused: Refused) -> JSONResponse:
    """Return a refusal as it is sent."""
    return JSONResponse(refused.document(), refused.status_code, refused.headers)


@contextmanager
def blamed_on(field: str) -> Iterator[None]:
    """Turn an error that a user can cause into a refusal that names a field."""
    try:
        yield
    except FairContextError as error:
        raise Refused(422, "invalid", field, str(error)) from None
