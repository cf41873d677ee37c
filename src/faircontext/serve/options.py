"""Options of the service: where it listens, who may ask, and how much."""

import ipaddress
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from faircontext.errors import ArgumentError, check_minimum, reason_of
from faircontext.names import class_names
from faircontext.runs.option_parts import check_no_stream
from faircontext.runs.options import ClassifyOptions, ModelOptions
from faircontext.runs.ray import check_address
from faircontext.runs.records import split_methods

DEFAULT_SET = "default"
"""What the label set is called that `--labels` or `--labels-file` gives."""

_SHORTEST_TOKEN = 16

_LONGEST_TIME = 86_400
"""Seconds that a limit of time may have: a day."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ModelOptions):
    """Options of `faircontext serve`."""

    group: ClassVar[str] = "service"

    host: str = "127.0.0.1"
    """Address to listen on; any other than the loopback address needs --token or --insecure."""
    port: int = 8000
    """Port to listen on; 0 chooses a free one."""
    label_sets: tuple[str, ...] = ()
    """Further label sets, NAME=FILE, each file with one class name per line."""
    method: str = "fcl"
    """Default method of requests."""
    token: Path | None = None
    """File with a word that requests must send as `Authorization: Bearer WORD`."""
    insecure: bool = False
    """Listen on an address other than the loopback address without a token."""
    hosts: tuple[str, ...] = ()
    """Host names of the service besides its address; if given, requests to other host names are refused."""
    allow_origin: tuple[str, ...] = ()
    """Origins whose web pages may send requests (CORS), each as https://photos.example.org; others are refused."""
    root_path: str = ""
    """Path under which a proxy serves this service, such as /photos, and which the proxy strips."""
    access_log: bool = False
    """Write a line for each request to standard error: time, request id, client, method, path, status, seconds."""
    queue: int = 64
    """Maximum number of waiting images (with --engine ray, for each replica); further requests get status 429."""
    max_images: int = 100
    """Maximum number of images in a request."""
    max_file_mb: float = 20.0
    """Maximum size of a file, in MB."""
    max_request_mb: float = 256.0
    """Maximum size of a request, in MB."""
    timeout: float = 120.0
    """Timeout of a request, in seconds, after it has been received; at most 86,400."""
    upload_timeout: float = 60.0
    """Timeout of the upload of a request, in seconds; at most 86,400."""
    engine: Literal["local", "ray"] = "local"
    """Where the model runs: local, or ray, replicas on Ray Serve, on the cluster at RAY_ADDRESS or on this machine."""
    replicas: int = 2
    """Maximum number of replicas of the model with --engine ray; their number follows the waiting requests."""

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called; or `all` alone."""
        return split_methods(self.method)

    @property
    def address(self) -> str:
        """The host, without the brackets of an IPv6 address."""
        return without_brackets(self.host)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return self.address.lower() == "localhost" or ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Check what can be checked before a model is loaded.

        Raises:
            FairContextError: an option has a value that cannot be used.
        """
        if not 0 <= self.port <= 65_535:
            raise ArgumentError(f"invalid port {self.port}: must be between 0 and 65,535")
        for name in ("queue", "max_images", "replicas"):
            check_minimum(name, getattr(self, name), 1)
        for name in ("max_file_mb", "max_request_mb", "timeout", "upload_timeout"):
            check_minimum(name, value := getattr(self, name), 0.001)
            if "timeout" in name and value > _LONGEST_TIME:
                raise ArgumentError(f"invalid {name} {value:g}: must be at most {_LONGEST_TIME:,} seconds, a day")
        for host in self.hosts:
            if not _is_host(host):
                what = "must be the name of a host alone, such as photos.example.org"
                raise ArgumentError(f"invalid hosts {host!r}: {what}")
        for origin in self.allow_origin:
            if not re.fullmatch(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d+)?", origin):
                what = "must be scheme and host in small letters, such as https://photos.example.org, without a path"
                raise ArgumentError(f"invalid allow_origin {origin!r}: {what}")
        if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", self.root_path):
            raise ArgumentError(f"invalid root_path {self.root_path!r}: must be a path such as /photos")
        if not self.is_local and self.token is None and not self.insecure:
            raise ArgumentError(
                f"invalid host {self.host}: other machines could ask without a token; give --token FILE, or --insecure "
                "where a proxy or a firewall decides who may ask"
            )
        check_no_stream(self.labels_of_methods)
        if self.engine == "ray":
            check_address()
        self.prompts_name  # noqa: B018 (reads the files)
        self.read_token()
        self.read_label_sets()
        self.reader()

    def read_token(self) -> str | None:
        """Return the token, or None where none is asked for.

        Raises:
            ArgumentError: the file cannot be read, or its word is too short or no word.
        """
        if self.token is None:
            return None
        try:
            word = self.token.read_text(encoding="ascii").strip()
        except UnicodeDecodeError:
            raise ArgumentError(f"invalid token in {self.token}: must be of ASCII letters, digits and signs") from None
        except OSError as error:
            raise ArgumentError(f"{self.token}: {reason_of(error)}") from None
        if not word.isprintable():
            raise ArgumentError(f"invalid token in {self.token}: must have no control characters")
        if len(word) < _SHORTEST_TOKEN or len(word.split()) != 1:
            raise ArgumentError(
                f"invalid token in {self.token}: must be one word of at least {_SHORTEST_TOKEN} characters"
            )
        return word

    def token_warning(self) -> str | None:
        """Return a line where other users of this machine can read the token, or None."""
        if self.token is None or sys.platform == "win32" or not self.token.stat().st_mode & 0o004:
            return None
        return f"warning: other users of this machine can read {self.token}: chmod 600 {self.token}"

    def read_label_sets(self) -> dict[str, tuple[str, ...]]:
        """Return the class names of the label sets, by the sets' names.

        Raises:
            FairContextError: a set has no name, one is given twice, or a file cannot be used.
        """
        sets: dict[str, tuple[str, ...]] = {}
        if self.labels is not None or self.labels_file is not None:
            sets[DEFAULT_SET] = class_names(self.labels, self.labels_file)
        for word in self.label_sets:
            name, equals, file = word.partition("=")
            if not (name and equals and file) or not name.isprintable():
                raise ArgumentError(f"invalid label set {word!r}: must be NAME=FILE, for example pets=pets.txt")
            if name in sets:
                raise ArgumentError(f"invalid label set {word!r}: the name {name} is taken; give it another")
            sets[name] = class_names(None, Path(file))
        return sets

    def for_request(self, **request: Any) -> ClassifyOptions:
        """Return the options of `classify` that a request comes to: the service's, with those that it may choose."""
        options: Mapping[str, Any] = {field.name: getattr(self, field.name) for field in fields(ModelOptions)}
        return ClassifyOptions(**{**options, **request, "labels": None, "labels_file": None})


def without_brackets(host: str) -> str:
    """Return an IPv6 address as it is, also where it is written as in the address of a page."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _is_host(word: str) -> bool:
    """Tell whether a word is a host name or an IP address."""
    try:
        ipaddress.ip_address(without_brackets(word))
    except ValueError:
        return re.fullmatch(r"[A-Za-z0-9._-]{1,253}", word) is not None
    return True


def without_folders(options: ClassifyOptions) -> ClassifyOptions:
    """Return options as they are told to whoever asks: of this machine's files their names alone."""
    return replace(
        options,
        backbone=_without_folder(options.backbone),
        pretrained=options.pretrained and Path(options.pretrained).name,
        preprocess=options.preprocess and Path(options.preprocess).name,
        adapter=options.adapter and Path(options.adapter.name),
        context=options.context and Path(options.context.name),
    )


def _without_folder(backbone: str) -> str:
    scheme, colon, rest = backbone.partition(":")
    return f"{scheme}:{Path(rest).name}" if colon and scheme in ("local-dir", "transformers") else backbone
