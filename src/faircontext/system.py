"""What concerns the process as a whole: processors that it may use, memory that it may keep, threads that are left.

Everything here works on systems that lack a source: POSIX's `resource` module and Linux's `/proc` are asked where they
exist.
"""

import ctypes
import math
import os
import platform
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""A container's limit (cgroup v2): microseconds of processor time, and the period in which they may be used."""

_CGROUP_MEMORY = Path("/sys/fs/cgroup")
"""Folder of a container's limits (cgroup v2)."""


def usable_processors() -> int:
    """Return how many processors this process may use, at least 1.

    A machine can have more: `taskset`, a batch system or a container (cgroup v2) may leave a process only some of them.
    """
    if sys.version_info >= (3, 13):
        allowed = os.process_cpu_count() or 1
    elif hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    try:
        quota, period = map(float, _CGROUP_LIMIT.read_text().split())
    except (OSError, ValueError):  # no such file, or no limit: the quota is then the word "max"
        return max(1, allowed)
    return max(1, min(allowed, math.ceil(quota / period)))


def call_in_own_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function in a thread that ends with it, and return what it returns; errors are raised here.

    OpenMP keeps a team of threads for each thread that has ever computed with it, until that one ends. Where there are
    more of them than processors, as those of a worker and of the thread that has loaded the model, each team's threads
    go to sleep between two operations: FCL takes a fifth longer.
    """
    with ThreadPoolExecutor(1, "faircontext-once") as pool:
        return pool.submit(function, *args, **kwargs).result()


_MALLOC = ((-4, 0), (-1, 256 * 2**20), (-8, 1))
"""For `mallopt`: M_MMAP_MAX, so that large blocks come from the heap as well; M_TRIM_THRESHOLD, in bytes; M_ARENA_MAX,
as heaps of other threads would be given back whatever the threshold."""


def keep_freed_memory() -> bool:
    """Let this process use again what it frees, instead of giving it back each time; return whether that was done.

    The layers of an image tower allocate and free tens of megabytes for each batch. The C library of Linux gives them
    back to the system, which clears each page anew: a third of what FCL costs in PyTorch. The peak stays as it was.
    Another C library, and settings of the environment (`MALLOC_...`, `GLIBC_TUNABLES`), are left alone.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; on Windows there is no such library
        return False
    return all(mallopt(name, value) == 1 for name, value in _MALLOC)


def processor_name() -> str:
    """Return the name of the processor's model, or an empty text where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def resident_mb() -> float:
    """Return the resident size of this process now, in MB (Linux)."""
    return _status_mb("VmRSS")


def available_mb() -> float | None:
    """Return how much memory processes may still take, in MB, within a container's limit; None but on Linux."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = {name: int(value.split()[0]) * 2**10 for name, _, value in (line.partition(":") for line in lines)}
    room = sizes["MemAvailable"]
    try:
        limit, used = (int((_CGROUP_MEMORY / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no such file, or no limit: the limit is then the word "max"
        return room / 2**20
    return min(room, max(0, limit - used)) / 2**20


def forget_peak() -> bool:
    """Let the peak of the resident size begin anew, and return whether the system does that (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_mb() -> float:
    """Return the largest resident size since `forget_peak`, in MB (Linux)."""
    return _status_mb("VmHWM")


def _status_mb(name: str) -> float:
    line = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert line is not None
    return int(line[1]) / 1024


def lifetime_peak_mb() -> float | None:
    """Return the largest resident size since this process began, in MB; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes, on macOS bytes
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
