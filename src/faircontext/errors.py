"""Every error that a user can cause: one line that names what was wrong, with close matches and the fix.

Also the registry of what has a name, third parties' included, which answers for names that it does not know.
"""

import logging
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class FairContextError(Exception):
    """Base of all errors that faircontext raises on purpose; the message is one line, fit to be shown as it is."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class FairContextWarning(UserWarning):
    """Something was done in another way than asked for; the command line shows it in one line."""


class ArgumentError(FairContextError, ValueError):
    """An argument or a setting has a value that cannot be used."""


class FeatureError(FairContextError, ArithmeticError):
    """What a model computes from an image is no number; it has no prediction, and a run goes on without it."""


class LabelError(FairContextError, ValueError):
    """A class name or a prompt template cannot be used."""


class LongPromptError(LabelError):
    """A prompt has more tokens than a text tower reads.

    Attributes:
        prompt: its text.
    """

    def __init__(self, message: str, prompt: str) -> None:
        super().__init__(message)
        self.prompt = prompt

    def __reduce__(self) -> tuple[type["LongPromptError"], tuple[str, str]]:
        return LongPromptError, (str(self), self.prompt)


class ImageError(FairContextError, OSError):
    """An image is unreadable.

    Attributes:
        path: the file, as it was given.
        reason: why it is unreadable, without the path.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type["ImageError"], tuple[str, str]]:
        return ImageError, (self.path, self.reason)


def reason_of(error: Exception) -> str:
    """Return what the operating system says about a file, in lower case, or else what the error says."""
    return str(getattr(error, "strerror", None) or error).lower()


def first_reason(error: Exception) -> str:
    """Return the first line of `reason_of`, or the kind of an error that says nothing."""
    return (reason_of(error).splitlines() or [type(error).__name__])[0]


def one_line(text: str) -> str:
    """Return a text with line breaks, control characters and stray bytes written as escapes, as paths may hold them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


TRACEBACK = "FAIRCONTEXT_TRACEBACK"
"""Environment variable that, not empty, shows the whole traceback of what a stranger's code has raised."""


def _raised(error: BaseException, module: str) -> str:
    """Return what a stranger's code has raised, and the last line of that code, in one line.

    Args:
        error: what was raised; its traceback is printed where `TRACEBACK` asks for it.
        module: where the code begins; its top-level package is the stranger's.
    """
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    own = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == module.partition(".")[0]
    ]
    if isinstance(error, SyntaxError):  # it is raised by who reads the file
        own = [f"{error.filename}:{error.lineno}"]
    where = f", at {own[-1]}; {TRACEBACK}=1 shows the traceback" if own else ""
    return one_line(f"{type(error).__name__}: {error}{where}")


def counted(n: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is one: `1 image`, `2,000 images`, `3 classes`."""
    return f"{n:,} {noun if n == 1 else f'{noun}es' if noun.endswith(('s', 'x', 'ch', 'sh')) else f'{noun}s'}"


def and_more(items: Sequence[str], limit: int = 5, separator: str = ", ") -> str:
    """Return the first items, and how many more there are."""
    rest = len(items) - limit
    return separator.join(items[:limit]) + (f" and {rest:,} more" if rest > 0 else "")


def lines_and_more(items: Sequence[T], limit: int, line: Callable[[T], str], rest: str) -> list[str]:
    """Return a line for each of the first items, and `rest` with the count of the others in place of `{}`."""
    more = len(items) - limit
    return [*map(line, items[:limit]), *([rest.format(f"{more:,}")] if more > 0 else [])]


def check_type(argument: str, value: object, kind: type | tuple[type, ...], hint: str = "") -> None:
    """Raise `ArgumentError` naming the argument unless its value is of a type."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(k.__name__ for k in kinds)
        raise ArgumentError(f"{argument} is of type {type(value).__name__}, not {wanted}{f'; {hint}' if hint else ''}")


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ArgumentError:
    """Build the error for a name that is not in a list, with the closest ones (or all of them)."""
    names = sorted(known)
    close = get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {and_more(names, 20)}"
    return ArgumentError(f"unknown {kind} {name!r}; {hint}")


def check_choice(argument: str, value: object, choices: Iterable[str]) -> None:
    """Raise `ArgumentError` naming the argument unless its value is one of the choices."""
    allowed = tuple(choices)
    if value not in allowed:
        raise ArgumentError(f"{argument}={value!r} is not possible; use one of {', '.join(map(repr, allowed))}")


def check_minimum(argument: str, value: float, minimum: float) -> None:
    """Raise `ArgumentError` naming the argument unless its value is a number from the minimum to 1e37."""
    if not minimum <= value <= 1e37:
        raise ArgumentError(f"{argument}={value!r} is not possible; it must be a number of at least {minimum}")


def check_interval(argument: str, value: float | tuple[float, ...], low: float, high: float) -> None:
    """Raise `ArgumentError` unless a number, or both ends of an ordered pair, lie above `low` and at most at `high`."""
    ends = value if isinstance(value, tuple) else (value, value)
    if len(ends) != 2 or not low < ends[0] <= ends[1] <= high:
        raise ArgumentError(
            f"{argument}={value!r} is not possible; it must lie above {low} and at most at {high}"
            + (", the smaller end first" if isinstance(value, tuple) else "")
        )


class Registry(Generic[T]):
    """A mapping from public names to classes or factories, in order of registration; third parties' come last.

    Third parties add to it by entry points, which are read once, when a name is first looked up. One that cannot be
    used, for example since its module cannot be imported, is a `FairContextWarning`, and left out.

    Args:
        kind: what the entries are, for messages.
        group: of entry points.
        unpack: returns what is to be registered, by name, given the name and the object of an entry point. It raises
            any error where that cannot be done.
        pattern: a regular expression that names match.
    """

    def __init__(
        self,
        kind: str,
        group: str = "",
        unpack: Callable[[str, Any], Mapping[str, T]] | None = None,
        pattern: str = "[a-z][a-z0-9_]*",
    ) -> None:
        self._kind, self._group, self._unpack, self._pattern = kind, group, unpack, pattern
        self._entries: dict[str, T] = {}
        self._sources: dict[str, tuple[str, str]] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under `name`.

        Raises:
            ValueError: the name is taken, or could not be used where names are given.
        """
        if not (isinstance(name, str) and re.fullmatch(self._pattern, name)):
            raise ValueError(f"a {self._kind} cannot be called {name!r}; names match {self._pattern}")
        if name in self._entries:
            raise ValueError(f"{self._kind} {name!r} is registered twice")

        def file(entry: T) -> T:
            self._entries[name] = entry
            return entry

        return file

    @contextmanager
    def blamed(self, name: str) -> Iterator[None]:
        """Turn any error that a third party's entry raises in this context into a line that names entry and package."""
        try:
            yield
        except FairContextError:
            raise
        except Exception as error:
            if name not in self._sources:
                raise
            source, module = self._sources[name]
            raise FairContextError(f"{self._kind} {name!r} of {source} failed: {_raised(error, module)}") from error

    def _all(self) -> Mapping[str, T]:
        """Return all entries; the first call reads the entry points."""
        if self._unpack is not None:
            from importlib.metadata import entry_points  # takes a while

            unpack, self._unpack = self._unpack, None
            for point in entry_points(group=self._group):
                source = "an unknown distribution" if point.dist is None else point.dist.name
                earlier = dict(self._entries)
                try:
                    for name, entry in unpack(point.name, point.load()).items():
                        self.register(name)(entry)
                except (Exception, SystemExit) as error:  # a stranger's code may raise anything
                    self._entries, raised = earlier, _raised(error, point.module)
                    warnings.warn(
                        f"{self._kind} {point.name!r} of {source} is left out: {point.value}: {raised}",
                        FairContextWarning,
                        stacklevel=3,
                    )
                self._sources |= dict.fromkeys(self._entries.keys() - earlier.keys(), (source, point.module))
        return self._entries

    def __getitem__(self, name: str) -> T:
        entries = self._all()
        if name not in entries:
            shown = [known for known, entry in entries.items() if not getattr(entry, "hidden", False)]
            raise unknown_name(self._kind, name, shown)
        return entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names that match a shell pattern, in order of registration."""
        return [name for name in self if fnmatchcase(name, pattern)]


@contextmanager
def in_one_line(what: str, fetching: bool = False) -> Iterator[None]:
    """Turn what a library says into one line that begins with what went wrong."""
    try:
        yield
    except FairContextError:
        raise
    except Exception as error:  # broken files, and libraries of downloads, raise anything
        said = " ".join(str(error).split())
        kind = "" if fetching or isinstance(error, RuntimeError) else f"{type(error).__name__}: "
        raise ArgumentError(f"{what}: {kind}{said[: 300 if fetching else 200]}") from None


@contextmanager
def silence() -> Iterator[None]:
    """Keep a library from writing log lines and hints of its own."""
    earlier = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(earlier)
