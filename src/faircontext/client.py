"""A client of `faircontext serve`: images in, answers out; it comes again when the service is busy."""

import email.utils
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from faircontext.errors import ArgumentError, FairContextError, check_minimum, one_line, reason_of
from faircontext.names import lines_of_labels

if TYPE_CHECKING:
    import httpx

Field = str | int | bool | Sequence[str] | Mapping[str, Sequence[str]] | None
"""What is sent in a field: a list as several fields, an object as JSON, None not at all."""

_LONGEST_PAUSE = 30.0

_LONGEST_WAIT = 300.0
"""Seconds that a service may ask to be left alone; a clock that is wrong could ask for years."""


class ServiceError(FairContextError):
    """The service refused a request, or could not be reached.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        field: of the request that is at fault; empty where none is.
    """

    def __init__(self, status: int, field: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.field = field


class Client:
    """Asks a service.

    Args:
        url: of the service, for example `http://127.0.0.1:8000`.
        token: where the service asks for one.
        timeout: seconds for one request.
        retries: how often a request is sent again, after the service was busy or could not be reached.
        batch: images in a request; long lists are sent in several.

    Raises:
        ArgumentError: httpx is not installed, or an argument has a value that cannot be used.
    """

    def __init__(
        self, url: str, token: str | None = None, timeout: float = 150.0, retries: int = 8, batch: int = 16
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise ArgumentError("Client needs httpx: pip install 'faircontext[client]'") from None
        check_minimum("retries", retries, 0)
        check_minimum("batch", batch, 1)
        if not url.startswith(("http://", "https://")):
            raise ArgumentError(f"invalid url {url!r}: must start with http:// or https://")
        if token is not None and not (token.isascii() and token.isprintable() and token == token.strip() != ""):
            raise ArgumentError("invalid token: must be of ASCII letters, digits and signs, without a line break")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._retries, self._batch = retries, batch

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def classify(
        self,
        paths: Sequence[Path | str],
        labels: Sequence[str] | None = None,
        *,
        label_set: str | None = None,
        settings: Sequence[str] = (),
        **fields: Field,
    ) -> list[dict[str, Any]]:
        """Return the answers for some images, one for each image and method, as `classify --json` writes them.

        Args:
            paths: image files, a list.
            labels: class names, a list. A name cannot have a line break in it or start with #, which the service reads
                as several names and as a comment.
            label_set: a label set of the service, in place of names.
            settings: of the method, each `name=value`.
            fields: others of `POST /v1/classify`: method, prompts, template (a list), descriptions (lists of prompts by
                class name), unknown, preset, plain, seed, top_k, truncate; None leaves a field out.

        Raises:
            ServiceError: the service refused, could not be reached, or answered something else.
            ArgumentError: a file cannot be read, or an argument has a value that cannot be sent.
        """
        _check_list("paths", paths, "image files")
        data = _form(labels, label_set, settings, fields)
        answers: list[dict[str, Any]] = []
        for start in range(0, len(paths), self._batch):
            some = paths[start : start + self._batch]
            answers += _entries(self._post("/v1/classify", data, "images", some), some)
        return answers

    @overload
    def explain(
        self,
        path: Path | str,
        labels: Sequence[str] | None = None,
        *,
        format: Literal["html"],
        label_set: str | None = None,
        settings: Sequence[str] = (),
        **fields: Field,
    ) -> str: ...

    @overload
    def explain(
        self,
        path: Path | str,
        labels: Sequence[str] | None = None,
        *,
        format: Literal["json"] = "json",
        label_set: str | None = None,
        settings: Sequence[str] = (),
        **fields: Field,
    ) -> dict[str, Any]: ...

    def explain(
        self,
        path: Path | str,
        labels: Sequence[str] | None = None,
        *,
        format: Literal["json", "html"] = "json",  # noqa: A002 (the field is called so)
        label_set: str | None = None,
        settings: Sequence[str] = (),
        **fields: Field,
    ) -> dict[str, Any] | str:
        """Return why FCL answers an image as it does, as `POST /v1/explain` does.

        Args:
            path: an image file.
            labels: see `classify`.
            format: json, or html for the page of `faircontext explain`, as text.
            label_set: see `classify`.
            settings: see `classify`.
            fields: preset, plain, seed and truncate.

        Raises:
            ServiceError: see `classify`.
            ArgumentError: see `classify`.
        """
        data = _form(labels, label_set, settings, fields | {"format": format})
        response = self._post("/v1/explain", data, "image", [path])
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        if format == "html" and response.is_success and is_page:
            return response.text
        return _answer(response, "answer")

    def _post(self, address: str, data: Mapping[str, Any], field: str, paths: Sequence[Path | str]) -> "httpx.Response":
        with ExitStack() as stack:
            files = [(field, (_sent_name(path), stack.enter_context(_opened(path)))) for path in paths]
            for pause in self._pauses():
                for _, (_, file) in files:
                    file.seek(0)
                response = self._send(address, data, files, last=pause is None)
                if response is not None and (response.status_code != 429 or pause is None):
                    return response
                wait = 0.0 if response is None else _seconds(response.headers.get("Retry-After", "1"))
                time.sleep(max(wait, pause or 0.0))
        raise AssertionError("the last try answers or raises")

    def _pauses(self) -> Iterator[float | None]:
        """Yield how long to wait after each try: twice as long each time, with chance in it; None after the last."""
        for tried in range(self._retries):
            yield min(_LONGEST_PAUSE, 0.25 * 2**tried) * random.uniform(0.5, 1.0)
        yield None

    def _send(self, address: str, data: Mapping[str, Any], files: Any, last: bool) -> "httpx.Response | None":
        """Return the answer, or None where the service could not be reached and may be asked again."""
        import httpx

        try:
            return self._http.post(address, data=data, files=files)
        except httpx.ConnectError as error:
            if last:
                raise ServiceError(0, "", f"{self._http.base_url}: cannot be reached: {error}") from None
            return None
        except httpx.HTTPError as error:
            raise ServiceError(0, "", f"{self._http.base_url}: {type(error).__name__}: {error}") from None


def _check_list(argument: str, values: object, of: str) -> None:
    """Refuse what is no list; a text alone is a list of its letters to Python."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ArgumentError(f"invalid {argument} {str(values)!r}: must be a list of {of}")


def _form(
    labels: Sequence[str] | None, label_set: str | None, settings: Sequence[str], fields: Mapping[str, Any]
) -> dict[str, Any]:
    _check_list("settings", settings, "texts, each name=value")
    data: dict[str, Any] = {name: _text_of(name, value) for name, value in fields.items() if value is not None}
    if labels is not None:
        data["labels"] = _lines_of(labels)
    if label_set is not None:
        data["label_set"] = _text_of("label_set", label_set)
    return data | {"settings": _text_of("settings", settings)}


def _lines_of(labels: Sequence[str]) -> str:
    """Return class names as the service reads them: one a line. What would arrive as others is refused."""
    _check_list("labels", labels, "names")
    return lines_of_labels(labels)


def _text_of(name: str, value: object) -> str | list[str]:
    """Return what a field is sent as."""
    try:
        if isinstance(value, Mapping):
            return json.dumps(dict(value), allow_nan=False)
        if isinstance(value, str | int):
            return _encodable(str(value))
        if isinstance(value, Sequence) and all(isinstance(text, str) for text in value):
            return [_encodable(text) for text in value]
    except (TypeError, ValueError):  # of JSON, or stray bytes
        pass
    hint = "must be a text, a whole number, True or False, a list of texts, or an object of JSON"
    raise ArgumentError(f"invalid {name} {one_line(str(value))[:60]}: {hint}")


def _encodable(text: str) -> str:
    text.encode()
    return text


def _sent_name(path: Path | str) -> str:
    """Return what a file is called in a request; stray bytes, which cannot be sent, as escapes."""
    return Path(path).name.encode("utf-8", "backslashreplace").decode()


def _opened(path: Path | str) -> Any:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise ArgumentError(f"{path}: {reason_of(error)}") from None


def _seconds(retry_after: str) -> float:
    """Return how long a busy service wants to be left alone: a number of seconds or a date (RFC 9110, 10.2.3)."""
    try:
        if retry_after.strip().isdecimal():
            wait = float(retry_after)
        else:
            then = email.utils.parsedate_to_datetime(retry_after)
            wait = (then.replace(tzinfo=then.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return 1.0
    return min(max(wait, 0.0), _LONGEST_WAIT)


def _answer(response: "httpx.Response", key: str) -> dict[str, Any]:
    """Return what was answered, a document that has a key, or raise what the service says."""
    try:
        document = response.json()
    except ValueError:
        document = None
    document = document if isinstance(document, dict) else {}
    if response.is_success and key in document:
        return document
    problem = document.get("error")
    if not response.is_success and isinstance(problem, dict) and isinstance(problem.get("message"), str):
        raise ServiceError(response.status_code, str(problem.get("field", "")), problem["message"])
    what = "none of faircontext's answers; is the address that of `faircontext serve`?"
    raise ServiceError(response.status_code, "", f"{response.url}: status {response.status_code} with {what}")


def _entries(response: "httpx.Response", paths: Sequence[Path | str]) -> list[dict[str, Any]]:
    """Return the answers for images: an image's stand together, under its name as it is here and not as it was sent."""
    entries = _answer(response, "answers")["answers"]
    each, rest = divmod(len(entries), len(paths)) if isinstance(entries, list) else (0, 0)
    if each == 0 or rest or not all(isinstance(entry, dict) for entry in entries):
        what = f"no list of answers for {len(paths):,} images"
        raise ServiceError(response.status_code, "", f"{response.url}: status {response.status_code} with {what}")
    return [{**entry, "path": _sent_name(paths[index // each])} for index, entry in enumerate(entries)]
