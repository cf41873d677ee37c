"""Work in other processes: results in order and in bounded number; no way to wait for ever, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path
from queue import SimpleQueue

import pytest

from faircontext import FairContextError, ImageError
from faircontext.runs import ahead
from faircontext.runs.ahead import Threads, map_ahead

ENDS = "; what was answered is kept; use fewer workers, or 0"


def uneven(number: int) -> tuple[int, int]:
    time.sleep(0.05 * (number % 3))
    return number, os.getpid()


def leave_a_file(path: Path) -> Path:
    path.touch()
    return path


def fail(number: int) -> int:
    if number == 2:
        raise ImageError("2.png", "is two")
    return number


def end(number: int) -> int:
    if number == 2:
        os._exit(1)
    return number


def stop(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    return number


def fall_asleep(number: int) -> int:
    if number == 2:
        time.sleep(1000)
    return number


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = {*active_children()}
    yield
    assert not {*active_children()} - before


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_order_from_other_processes(workers: int) -> None:
    numbers, processes = zip(*map_ahead(uneven, range(12), workers), strict=True)
    assert numbers == tuple(range(12))
    assert len({*processes}) == workers
    assert os.getpid() not in processes


def test_nothing_to_do_starts_nothing() -> None:
    assert list(map_ahead(uneven, [], 2)) == []


def test_only_some_results_are_made_ahead_and_what_is_not_asked_for_ends(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(60)]
    results = map_ahead(leave_a_file, paths, 2)
    assert next(results) == paths[0]
    time.sleep(1)
    assert 2 <= len([*tmp_path.iterdir()]) <= 1 + 4 * 2
    results.close()


def test_what_the_function_raises_is_raised_here_with_where_it_was_raised() -> None:
    results = map_ahead(fail, range(4), 1)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ImageError, match="is two") as raised:
        next(results)
    assert "in fail" in raised.value.__notes__[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_ends_is_a_line(workers: int) -> None:
    results = map_ahead(end, range(8), workers)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(FairContextError) as ended:
        next(results)
    assert str(ended.value) == f"a process that reads images was killed, perhaps for want of memory, at 2{ENDS}"


@pytest.mark.skipif(os.name != "posix", reason="stops a process as POSIX does")
@pytest.mark.parametrize("silent", [fall_asleep, pytest.param(stop, marks=pytest.mark.slow)])
def test_a_process_that_stays_silent_is_a_line(silent: Callable[[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PATIENCE", 4)
    results, begin = map_ahead(silent, range(8), 2), time.monotonic()
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(FairContextError) as noticed:
        next(results)
    assert str(noticed.value) == f"a process that reads images has been silent for 4 s, at 2{ENDS}"
    assert time.monotonic() - begin < 60


KILLED = """
import os, signal, sys
from faircontext.runs.ahead import map_ahead
from test_ahead import uneven

if __name__ == "__main__":
    results = map_ahead(uneven, range(100), 2)
    print(next(results)[1], next(results)[1], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="asks POSIX whether a process lives")
@pytest.mark.slow
def test_processes_end_with_the_one_that_asks_even_where_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left, end = {int(word) for word in done.stdout.split()}, time.monotonic() + 20
    while left and time.monotonic() < end:
        left = {number for number in left if is_alive(number)}
        time.sleep(0.1)
    assert not left


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_threads_give_each_call_its_own_result_or_error() -> None:
    threads = Threads(lambda number: 6 // number, 2)
    results = [threads.submit(number) for number in (1, 0, 2, 3)]
    assert (results[3](), results[0](), results[2]()) == (2, 6, 3)
    with pytest.raises(ZeroDivisionError):
        results[1]()
    threads.close(wait=True)


def test_threads_end_without_the_calls_that_wait() -> None:
    begun, go_on, done = SimpleQueue[int](), SimpleQueue[None](), list[int]()

    def call(number: int) -> None:
        begun.put(number)
        go_on.get()
        done.append(number)

    threads = Threads(call, 1)
    for number in range(3):
        threads.submit(number)
    assert begun.get() == 0
    threads.close()
    go_on.put(None)
    threads.close(wait=True)
    assert done == [0]
