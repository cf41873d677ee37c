"""Seconds of what methods share on one image, apart from those that each method takes itself."""

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Ledger:
    """Times what is computed once for an image, and notes which method uses it, whoever needed it first.

    Args:
        wait: returns when the device has done what it was asked for.
    """

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self._wait = wait
        self._seconds: dict[Hashable, float] = defaultdict(float)
        self._parts: dict[Hashable, dict[Hashable, float]] = {}
        self._used: dict[Hashable, float] = {}
        self._computing = 0.0

    def add(self, key: Hashable, seconds: float) -> None:
        """Add seconds that a shared thing took elsewhere."""
        self._seconds[key] += seconds

    def use(self, key: Hashable, share: float = 1.0) -> None:
        """Note that a shared thing, or a share of it, is used, and with it what it was made from."""
        for part, needed in {**self._parts.get(key, {}), key: 1.0}.items():
            self._used[part] = max(self._used.get(part, 0.0), share * needed)

    @contextmanager
    def computing(self, key: Hashable) -> Iterator[None]:
        """Time a computation whose result is shared, without what it uses of others."""
        outer, before = self._used, self._computing
        self._used, self._computing, begin = {}, 0.0, time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            seconds = time.perf_counter() - begin
            self._seconds[key] += seconds - self._computing
            self._parts[key] = {**self._parts.get(key, {}), **self._used}
            self._used, self._computing = outer, before + seconds

    def measure(self, run: Callable[[], T]) -> tuple[T, float, float]:
        """Return what a method returns, the seconds that it took itself, and those of what it shares with others."""
        self._used, self._computing, begin = {}, 0.0, time.perf_counter()
        result = run()
        self._wait()
        seconds = time.perf_counter() - begin - self._computing
        return result, seconds, sum(share * self._seconds[key] for key, share in self._used.items())
