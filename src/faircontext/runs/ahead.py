"""Call a function in other processes, ahead of its turn: results in order, in bounded number, over plain pipes.

Results are pickled through a pipe. PyTorch's `DataLoader` hands them over in shared memory, and waits for ever where
`/dev/shm` is too small, as in many containers; `ProcessPoolExecutor` cannot end a process that is stuck, and leaves
its processes behind when this one is killed. Here each process has a thread that waits for it: a process that ends, or
stays silent, is an error of one line, and none outlives this process, whose end closes the pipes.
"""

import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from faircontext.errors import FairContextError, reason_of

PATIENCE = 300
"""Seconds after which a process that has not answered is given up; starting it counts as well."""

_AHEAD = 4
"""Results that are asked for ahead, for each process."""

_ADVICE = "; what was answered is kept; use fewer workers, or 0"

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Threads(Generic[Argument, Result]):
    """Threads that call a function, for the thread that Ctrl-C interrupts.

    An executor's locks are Python's: an interruption between taking one and releasing it leaves it taken, and its
    threads wait for ever. Here arguments and results go through queues that are taken from and put into as a whole.

    Args:
        function: what is called.
        number: of threads; they end when the object is closed, and do not outlive the process.
    """

    def __init__(self, function: Callable[[Argument], Result], number: int) -> None:
        self._function = function
        self._calls: SimpleQueue[_Call[Argument, Result] | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def submit(self, argument: Argument) -> Callable[[], Result]:
        """Have the function called, in turn, and return what waits for its result, or raises what it raises."""
        call = _Call[Argument, Result](argument)
        self._calls.put(call)
        return call.result

    def close(self, wait: bool = False) -> None:
        """Let the threads end once the calls that have begun are done; `wait` is until then."""
        with suppress(Empty):
            while True:
                self._calls.get_nowait()
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make(self._function)


class _Call(Generic[Argument, Result]):
    """A call that another thread makes."""

    def __init__(self, argument: Argument) -> None:
        self._argument = argument
        self._results: SimpleQueue[tuple[Result] | BaseException] = SimpleQueue()

    def make(self, function: Callable[[Argument], Result]) -> None:
        """Call the function."""
        try:
            self._results.put((function(self._argument),))
        except BaseException as error:  # raised where the result is waited for
            self._results.put(error)

    def result(self) -> Result:
        """Wait for the result, once, and return it, or raise what the function has raised."""
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return result[0]


def map_ahead(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    workers: int,
    does: str = "reads",
    patient: bool = False,
    name: Callable[[Argument], str] = str,
) -> Iterator[Result]:
    """Yield a function's results in order, made in other processes.

    Args:
        function: what is called; it is pickled once for each process.
        arguments: what it is called with, one after the other.
        workers: number of processes, at least 1; they end when the iterator does.
        does: what a process does with an image, for messages.
        patient: whether a result may take as long as it takes.
        name: what an argument is called in messages.

    Raises:
        FairContextError: a process cannot be started, has ended, or has stayed silent for `PATIENCE` seconds.
        Exception: what the function raises.
    """
    processes: list[_Process[Argument, Result]] = []
    free: SimpleQueue[_Process[Argument, Result]] = SimpleQueue()

    def call(argument: Argument) -> Result:
        process = free.get()
        try:
            return process.call(argument)
        finally:
            free.put(process)

    threads = Threads(call, workers)
    try:
        rest = iter(arguments)
        first = [*islice(rest, _AHEAD * workers)]
        pickled = pickle.dumps(function)
        processes.extend(_Process(pickled, does, patient, name) for _ in range(min(workers, len(first))))
        for process in processes:
            free.put(process)
        pending = deque(map(threads.submit, first))
        while pending:
            result = pending.popleft()()
            pending.extend(map(threads.submit, islice(rest, 1)))
            yield result
    finally:
        for process in processes:
            process.kill()
        threads.close(wait=True)
        for process in processes:
            process.close()


class _Process(Generic[Argument, Result]):
    """A process that calls a pickled function on what it is sent."""

    def __init__(self, function: bytes, does: str, patient: bool, name: Callable[[Argument], str]) -> None:
        self._name, self._patient, self._at = f"a process that {does} images", patient, name
        context = get_context("spawn")  # a fork of a process with threads may never come to life
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        try:
            self._process.start()
        except OSError as error:
            raise FairContextError(f"{self._name} cannot be started: {reason_of(error)}{_ADVICE}") from None
        theirs.close()  # so that its end is seen here when the process ends

    def call(self, argument: Argument) -> Result:
        """Return the function's result."""
        at = self._at(argument)
        try:
            self._connection.send(argument)
            # Seconds are waited for one by one: those in which this process is stopped itself do not count.
            if not any(self._connection.poll(1) for _ in (count() if self._patient else range(PATIENCE))):
                raise FairContextError(f"{self._name} has been silent for {PATIENCE} s, at {at}{_ADVICE}")
            result: Result | _Raised = self._connection.recv()
        except (EOFError, OSError):
            raise FairContextError(f"{self._name} was killed, perhaps for want of memory, at {at}{_ADVICE}") from None
        if isinstance(result, _Raised):
            result.error.add_note(result.trace)
            raise result.error
        return result

    def kill(self) -> None:
        """End the process, which has nothing to lose; a thread that waits for it is then free."""
        self._process.kill()

    def close(self) -> None:
        """Release what the system keeps of the process."""
        self._process.join(1)
        self._connection.close()


class _Raised:
    """What the function raised, and where."""

    def __init__(self, error: Exception) -> None:
        self.error, self.trace = error, traceback.format_exc()


def _serve(connection: Connection, pickled: bytes) -> None:
    """Answer until the other end is closed; this runs in the process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks; it ends this one
    function = pickle.loads(pickled)
    while True:
        try:
            argument = connection.recv()
        except (EOFError, OSError):
            return
        try:
            result = function(argument)
        except Exception as error:
            result = _Raised(error)
        try:
            connection.send(result)
        except ConnectionError:
            return
