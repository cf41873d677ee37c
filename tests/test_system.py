"""What the system says about this process: only processors that it may use, and its memory."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from faircontext import system
from faircontext.system import (
    call_in_own_thread,
    forget_peak,
    lifetime_peak_mb,
    peak_mb,
    resident_mb,
    usable_processors,
)

SOURCE = Path(system.__file__).parent


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind a process to processors")
def test_a_process_that_is_bound_to_one_processor_may_use_one() -> None:
    script = (
        "import os; from faircontext.system import usable_processors\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(usable_processors())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        *(("50000 100000", 1), ("100000 100000", 1), ("150000 100000", 2)),
        *(("99900000 100000", 999), ("max 100000", 999), (None, 999)),
    ],
)
def test_a_containers_limit_counts(
    limit: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu.max"
    monkeypatch.setattr(system, "_CGROUP_LIMIT", file)
    allowed = usable_processors()
    if limit is not None:
        file.write_text(f"{limit}\n")
    assert usable_processors() == min(expected, allowed)


def test_no_other_module_counts_processors() -> None:
    """`os.cpu_count` counts those of the machine, also where a process may use only some of them."""
    counting = [path for path in SOURCE.rglob("*.py") if "cpu_count" in path.read_text("utf-8")]
    assert counting == [Path(system.__file__)]


@pytest.mark.skipif(not forget_peak(), reason="the system does not tell the peak of the resident size")
def test_the_peak_can_be_forgotten() -> None:
    np.ones((100, 2**20), np.uint8).sum()
    before = peak_mb()
    assert forget_peak()
    assert peak_mb() < before - 50
    assert abs(peak_mb() - resident_mb()) < 20


def test_the_peak_since_the_process_began_is_in_megabytes() -> None:
    pytest.importorskip("resource", reason="the system does not tell the peak of the resident size")
    assert 30 < lifetime_peak_mb() < 100_000


PAGES = """
import resource
from faircontext.system import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        blocks = [b"1" * (size * 2**20) for size in (40, 24, 24, 12)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first, done, _, last = faults(), keep_freed_memory(), faults(), faults()
print(first, int(done), last)
"""
"""Minor page faults of blocks that are allocated and freed again and again, before and after."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the setting is of the C library of Linux")
def test_what_is_freed_is_used_again() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True, env=kept)
    first, changed, last = map(int, done.stdout.split())
    if not changed:
        pytest.skip("the C library has no such setting")
    assert first > 1000  # 128,000 pages of 4 kB; fewer where pages are larger
    assert last < first / 50


@pytest.mark.parametrize("name", ["MALLOC_TOP_PAD_", "GLIBC_TUNABLES"])
def test_what_the_environment_says_of_memory_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.ctypes, "CDLL", lambda _: pytest.fail("the C library was called"))
    monkeypatch.setenv(name, "131072")
    assert system.keep_freed_memory() is False


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.ctypes, "CDLL", lambda _: object())
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    assert system.keep_freed_memory() is False


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not list a process's threads")
def test_what_computes_in_a_thread_of_its_own_leaves_no_threads_behind() -> None:
    script = (
        "import os, time, torch; from faircontext.system import call_in_own_thread\n"
        "torch.set_num_threads(2)\n"
        "count = lambda: len(os.listdir('/proc/self/task'))\n"
        "compute = lambda factor: float((torch.ones(2000, 2000) * factor).sin().sum()) and factor\n"
        "before = count(); print(call_in_own_thread(compute, factor=3))\n"
        "end = time.monotonic() + 20\n"
        "while count() > before and time.monotonic() < end: time.sleep(0.01)\n"  # they take a moment to end
        "print(count() - before); compute(1); print(count() - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n0\n1\n"


def test_an_error_in_a_thread_of_its_own_is_raised() -> None:
    with pytest.raises(ValueError, match=r"^invalid literal for int\(\) with base 10: 'x'$"):
        call_in_own_thread(int, "x")
