"""A client of `faircontext serve`: images in, answers out; it comes again when the service is busy."""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from faircontext.errors import ArgumentError, FairContextError, check_minimum, reason_of

if TYPE_CHECKING:
    import httpx

__all__ = ["Client", "ServiceError"]

Field = str | int | bool | Sequence[str] | Mapping[str, Sequence[str]]
"""What is sent in a field: a list as several fields, an object as JSON."""

_LONGEST_PAUSE = 30.0


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
            paths: image files.
            labels: class names.
            label_set: a label set of the service, in place of names.
            settings: of the method, each `name=value`.
            fields: others of `POST /v1/classify`: method, prompts, template (a list), descriptions (lists of prompts by
                class name), unknown, preset, seed, top_k, truncate.

        Raises:
            ServiceError: the service refused, or could not be reached.
            ArgumentError: a file cannot be read.
        """
        data = _form(labels, label_set, settings, fields)
        answers: list[dict[str, Any]] = []
        for start in range(0, len(paths), self._batch):
            answers += self._post("/v1/classify", data, "images", paths[start : start + self._batch])["answers"]
        return answers

    def explain(
        self,
        path: Path | str,
        labels: Sequence[str] | None = None,
        *,
        label_set: str | None = None,
        settings: Sequence[str] = (),
        **fields: Field,
    ) -> dict[str, Any]:
        """Return why FCL answers an image as it does, as `POST /v1/explain` does; for arguments see `classify`."""
        return self._post("/v1/explain", _form(labels, label_set, settings, fields), "image", [path])

    def _post(self, address: str, data: Mapping[str, Any], field: str, paths: Sequence[Path | str]) -> dict[str, Any]:
        with ExitStack() as stack:
            files = [(field, (Path(path).name, stack.enter_context(_opened(path)))) for path in paths]
            for pause in self._pauses():
                for _, (_, file) in files:
                    file.seek(0)
                response = self._send(address, data, files, last=pause is None)
                if response is not None and (response.status_code != 429 or pause is None):
                    return _answer(response)
                wait = 0.0 if response is None else float(response.headers.get("Retry-After", "1"))
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


def _form(
    labels: Sequence[str] | None, label_set: str | None, settings: Sequence[str], fields: Mapping[str, Any]
) -> dict[str, Any]:
    if isinstance(labels, str):
        raise ArgumentError(f"invalid labels {labels!r}: must be a list of names")
    data: dict[str, Any] = {name: _text_of(value) for name, value in fields.items()}
    if labels is not None:
        data["labels"] = "\n".join(labels) + "\n"
    if label_set is not None:
        data["label_set"] = label_set
    return data | {"settings": list(settings)}


def _text_of(value: Field) -> str | list[str]:
    """Return what a field is sent as."""
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value) if isinstance(value, str | int) else [*value]


def _opened(path: Path | str) -> Any:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise ArgumentError(f"{path}: {reason_of(error)}") from None


def _answer(response: "httpx.Response") -> dict[str, Any]:
    """Return what was answered, or raise what the service says."""
    try:
        document: dict[str, Any] = response.json()
    except ValueError:
        document = {}
    if response.is_success and document:
        return document
    problem = document.get("error", {"field": "", "message": f"the service answered {response.status_code}"})
    raise ServiceError(response.status_code, problem["field"], problem["message"])
