"""Names for things that can be created: register, look up, list with shell wildcards."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from faircontext.errors import unknown_name

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from public names to classes or factories, in order of registration."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under `name`; a name is given once."""
        if name in self._entries:
            raise ValueError(f"{self._kind} {name!r} is registered twice")

        def file(entry: T) -> T:
            self._entries[name] = entry
            return entry

        return file

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise unknown_name(self._kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names that match a shell pattern, in order of registration."""
        return [name for name in self._entries if fnmatchcase(name, pattern)]
