"""States of methods with a memory while a run goes on: one for each method, stored with its rows, read again exactly.

A generation is a part of rows and a file for each state as it was after the part's last image. State files are written
first; the part's taking its name commits both. `--resume` goes on from the newest generation that is whole.
"""

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from jaxtyping import Bool
from safetensors import SafetensorError, safe_open
from torch import Tensor

from faircontext import __version__
from faircontext.cache import tensor_bytes, write_tensors
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, reason_of
from faircontext.files import check_folder, digest_of_parts, to_json, writing
from faircontext.labels import LabelSpace
from faircontext.methods import Method, StreamMethod, StreamState
from faircontext.methods.stream import check_origin
from faircontext.runs.option_parts import Say
from faircontext.types import Prediction

STATES = b"faircontext.states"
"""Key of what a part's Parquet schema repeats of the states."""

_FORMAT = 1

_CURE = "delete it, and go on with --resume from the state before it, or from the start where there is none"
"""What helps where a state is another stream's."""


class Streams:
    """The states of a run's methods that have a memory; methods with equal settings share one.

    Args:
        methods: of the run, by what they are called in rows; those without a memory are left out.
        labels: the classes.
        horizon: how many images the stream has; None where it is not known.
        hashes: of the run's configuration, by the same names.
        warn: takes warnings, a line each.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        labels: LabelSpace,
        horizon: int | None,
        hashes: Mapping[str, str] | None = None,
        warn: Say = lambda _: None,
    ) -> None:
        self._methods = {label: method for label, method in methods.items() if isinstance(method, StreamMethod)}
        self._labels, self._horizon, self._hashes, self._warn = labels, horizon, dict(hashes or {}), warn
        self._names = {method: label for label, method in reversed(self._methods.items())}  # the first of equal ones
        self.states: dict[StreamMethod, StreamState] = {}
        self._start()

    def _start(self) -> None:
        self.states = {method: method.start(self._labels, self._horizon) for method in self._names}

    def __bool__(self) -> bool:
        return bool(self._methods)

    def step(self, method: StreamMethod, episode: Episode) -> Prediction:
        """Answer the next image by one of the methods."""
        prediction, self.states[method] = method.step(episode, self.states[method])
        return prediction

    def mark(self) -> str | None:
        """Return what names all states as they are, None where one is half changed."""
        if any(state.open for state in self.states.values()):
            return None
        return " ".join(f"{state.seen} {state.chain}" for state in self.states.values())

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return, for each method, from how many images it has learnt, what names them, and what it costs."""
        states = {label: (method, self.states[method]) for label, method in self._methods.items()}
        return {
            label: {
                "seen": state.seen,
                "chain": state.chain,
                "megabytes": state.megabytes,
                "backward_passes": method.backward_passes,
            }
            for label, (method, state) in states.items()
        }

    def _paths(self, folder: Path, number: int) -> dict[StreamMethod, Path]:
        names = (f"{number:06}-{rank}-{method.name}.safetensors" for rank, method in enumerate(self._names))
        return {method: folder / "state" / name for method, name in zip(self._names, names, strict=True)}

    def save(self, folder: Path, number: int) -> dict[bytes, bytes]:
        """Write the states of a generation, and return what its part's schema repeats of them.

        Args:
            folder: of the run.
            number: of the part.

        Raises:
            ArgumentError: a file cannot be written; earlier generations stay.
        """
        for method, path in self._paths(folder, number).items():
            write_state(path, self.states[method], self._hashes.get(self._names[method], ""))
        return {STATES: to_json(self.facts(), indent=None).encode()}

    def forget(self, folder: Path, number: int, kept: int = 2) -> None:
        """Delete the states of older generations than the newest ones.

        Args:
            folder: of the run.
            number: of the newest part.
            kept: how many generations stay.

        Raises:
            ArgumentError: a file cannot be deleted.
        """
        _delete(path for path, generation in _generations(folder / "state") if generation <= number - kept)
        if not kept:
            shutil.rmtree(folder / "state", ignore_errors=True)

    def restore(self, folder: Path) -> None:
        """Take the states of the newest generation that is whole, and delete rows and states that came after it.

        Where none is whole, the stream starts anew.

        Args:
            folder: of a run that is not complete.

        Raises:
            ArgumentError: a state is of something else, or a file or the folder of states cannot be read or written;
                then nothing has been deleted.
        """
        check_folder(folder / "state")
        parts = sorted(_generations(folder / "parts"), key=lambda generation: generation[1])
        newest = next((number for path, number in reversed(parts) if self._take(folder, path, number)), 0)
        later = [path for path, number in [*parts, *_generations(folder / "state")] if number > newest]
        # rows.parquet holds what the parts hold
        _delete([*later, *(folder / "state").glob("*.partial"), folder / "rows.parquet"])
        if parts and not newest:
            self._start()
            self._warn(f"{folder}: no state goes with the rows that are there; the stream starts anew")
        elif parts and newest < parts[-1][1]:
            self._warn(f"{folder}: the newest state is missing or damaged; the stream goes on from the one before")

    def _take(self, folder: Path, part: Path, number: int) -> bool:
        """Take the states of a generation, if all of it is whole."""
        _check_readable(part)
        try:
            with pq.ParquetFile(part) as file:
                recorded = json.loads(file.schema_arrow.metadata[STATES])
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):  # readable, and so damaged
            return False
        states: dict[StreamMethod, StreamState] = {}
        for method, path in self._paths(folder, number).items():
            label = self._names[method]
            state = read_state(path, method, self._labels, self._horizon, self._hashes.get(label, ""))
            named = recorded.get(label, {})
            if state is None or (state.seen, state.chain) != (named.get("seen"), named.get("chain")):
                return False
            states[method] = state
        self.states = states
        return True

    def check(self, folder: Path, answered: Bool[np.ndarray, " images"], learnt: Mapping[str, int]) -> None:
        """Check that stored rows are those of the beginning of the stream that the states have seen.

        Args:
            folder: of the run.
            answered: which images have rows, in the order of the stream.
            learnt: for each method, from how many images it has learnt by its rows.

        Raises:
            ArgumentError: they are not.
        """
        cure = "delete rows.parquet, parts and state in it, and go on with --resume"
        n = int(answered.sum())
        if not answered[:n].all():
            gap = int(np.argmin(answered))
            raise ArgumentError(
                f"{folder}: rows of the stream's image {gap + 1} are missing, of later ones not; {cure}"
            )
        for label, method in self._methods.items():
            if (seen := self.states[method].seen) != learnt[label]:
                raise ArgumentError(
                    f"{folder}: the state of {label} is of {seen} images, and its rows are of {learnt[label]}; {cure}"
                )

    def learnt(self, rows: pa.Table) -> dict[str, int]:
        """Return, for each method, from how many images it has learnt by some of its rows."""
        has_t = rows["method"].filter(pc.match_substring(rows["diagnostics"], '"t":'))
        return {label: pc.sum(pc.equal(has_t, label)).as_py() or 0 for label in self._methods}


def _generations(folder: Path) -> list[tuple[Path, int]]:
    """Return the files of a folder that are called by a number, with it."""
    files = folder.iterdir() if folder.is_dir() else ()
    return [(path, int(match[1])) for path in files if (match := re.match(r"(\d{6})[-.]", path.name))]


def _check_readable(path: Path) -> bool:
    """Return whether a file is there; refuse one that cannot be read, which says nothing of its content.

    Raises:
        ArgumentError: it cannot be read, for example because it is a folder.
    """
    try:
        with path.open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ArgumentError(
            f"{path}: cannot be read: {reason_of(error)}; make it readable, or delete it, and go on with --resume"
        ) from None
    return True


def _delete(paths: Iterable[Path]) -> None:
    """Delete files; what cannot be deleted as it is a folder is told before one is."""
    paths = [*paths]
    if folders := [path for path in paths if path.is_dir()]:
        raise ArgumentError(f"{folders[0]}: is a folder, where a file should be; delete it, and go on with --resume")
    for path in paths:
        with writing(path):
            path.unlink(missing_ok=True)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    return digest_of_parts(
        part
        for name, tensor in sorted(tensors.items())
        for part in (f"{name} {tensor.dtype} {tuple(tensor.shape)}", tensor_bytes(tensor))
    )


def write_state(path: Path, state: StreamState, config: str = "") -> None:
    """Write a state to a file in safetensors' format, in one step.

    Args:
        path: of the file.
        state: whole, not half changed.
        config: hash of the run's configuration.

    Raises:
        ArgumentError: the file cannot be written, or the state is half changed.
    """
    if state.open:
        raise ArgumentError(f"{path}: a state that is half changed is not written; start the stream anew")
    metadata = {
        "format": _FORMAT,
        "origin": state.origin,
        "config": config,
        "seen": state.seen,
        "chain": state.chain,
        "sha256": _digest(state.tensors),
        "faircontext": __version__,
        "torch": torch.__version__,
    }
    with writing(path):  # one entry of metadata: the library writes several in any order
        write_tensors(path, state.tensors, {"faircontext": to_json(metadata, indent=None)})


def read_state(
    path: Path, method: StreamMethod, labels: LabelSpace, horizon: int | None = None, config: str = ""
) -> StreamState | None:
    """Read a state, to the bit as it was written; None where the file is missing or damaged.

    Args:
        path: of the file.
        method: whose state it is.
        labels: the classes.
        horizon: how many images the stream has, where the method needs it.
        config: hash of the run's configuration.

    Raises:
        ArgumentError: the state is of another method, setting, label space or model; the message names what differs;
            or the file is there and cannot be read.
    """
    if not _check_readable(path):
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata = json.loads(file.metadata()["faircontext"])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        if metadata["format"] != _FORMAT or metadata["sha256"] != _digest(tensors):
            return None
        was, seen, chain = metadata["origin"], int(metadata["seen"]), metadata["chain"]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):  # readable, and so damaged
        return None
    origin = method.origin(labels, horizon)
    try:
        check_origin(was, json.loads(json.dumps(origin)), _CURE)
        check_origin({"run": metadata["config"]}, {"run": config}, _CURE)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
    return StreamState(origin, tensors, seen, chain)
