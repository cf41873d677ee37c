"""What several test files assert, and what they do with memory and processes."""

import ctypes
import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from faircontext import Prediction
from faircontext.errors import ArgumentError

CLASSES = ("astronaut", "cat", "cup of coffee", "rocket", "motorcycle", "dog", "horse", "guitar", "house", "snail")
"""Class names of tests, some of which are what the photos of the tests show."""


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors are equal to the bit."""
    return first.dtype == second.dtype and torch.equal(first, second)


def assert_same_answer(first: Prediction, second: Prediction) -> None:
    """Assert that two answers agree to the bit, votes and probabilities included; diagnostics may differ."""
    assert first.index == second.index
    assert same_bits(first.ranking, second.ranking)
    assert same_bits(first.probabilities, second.probabilities)
    assert (first.votes is None) == (second.votes is None)
    assert first.votes is None or same_bits(first.votes, second.votes)
    assert first.candidates == second.candidates


def assert_identical(first: Prediction, second: Prediction) -> None:
    """Assert that two predictions agree to the bit in everything."""
    assert_same_answer(first, second)
    assert first.fallback == second.fallback
    assert first.diagnostics == second.diagnostics


def assert_valid(prediction: Prediction, classes: int) -> None:
    """Assert what is true of every prediction."""
    assert prediction.probabilities.shape == (classes,)
    assert prediction.probabilities.isfinite().all()
    assert (prediction.probabilities >= 0).all()
    assert abs(float(prediction.probabilities.sum()) - 1) < 1e-5
    assert sorted(prediction.ranking.tolist()) == list(range(classes))
    assert int(prediction.ranking[0]) == prediction.index
    assert prediction.confidence == float(prediction.probabilities[prediction.index])
    first = prediction.ranking[: len(prediction.candidates)].tolist()
    assert sorted(first) == sorted(prediction.candidates)
    assert all(value == value for value in prediction.diagnostics.values())  # no NaN


def refusal(call: Callable[[], object], kind: type[Exception] = ArgumentError) -> str:
    """Return what an error says that a call raises, one line."""
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change_json(path: Path, **values: Any) -> None:
    """Change values of a JSON file; a name with `__` leads to one below; None takes it out."""
    document = json.loads(path.read_text())
    for name, value in values.items():
        *above, last = name.split("__")
        part = document
        for key in above:
            part = part[key]
        part.pop(last, None)
        if value is not None:
            part[last] = value
    path.write_text(json.dumps(document))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a file, and close it."""
    with np.load(path) as arrays:
        return dict(arrays)


def give_memory_back() -> None:
    """Return what is free to the system: glibc would keep what large models had."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


@contextmanager
def without_collector() -> Iterator[None]:
    """Leave what is unreachable to reference counts alone: reference cycles stay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


DEFAULT_SIGNALS = (
    sys.executable,
    "-c",
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "hasattr(signal, 'SIGHUP') and signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "from faircontext.cli import main; sys.exit(main())",
)
"""The command in a process that heeds SIGINT and SIGHUP, also where the tests run in the background and ignore them."""


def descendants(process: int | None = None) -> set[int]:
    """Return the processes that a process has started, and those that these have started (Linux).

    Args:
        process: its id; None for this process.
    """
    children: dict[int, set[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"^PPid:\s+(\d+)$", (entry / "status").read_text(), re.MULTILINE)
        except OSError:  # it has ended
            continue
        if parent is not None:
            children.setdefault(int(parent[1]), set()).add(int(entry.name))
    found, rest = set(), [os.getpid() if process is None else process]
    while rest:
        rest += new if (new := children.get(rest.pop(), set()) - found) else ()
        found |= new
    return found
