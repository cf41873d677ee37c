"""What the system says about this process: only processors that it may use, and its memory."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from faircontext import system
from faircontext.system import forget_peak, lifetime_peak_mb, peak_mb, resident_mb, usable_processors

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
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("150000 100000", 2),
        ("99900000 100000", 999),
        ("max 100000", 999),
        (None, 999),
    ],
)
def test_a_containers_limit_counts(
    limit: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "cpu.max"
    monkeypatch.setattr(system, "_CGROUP_LIMIT", place)
    allowed = usable_processors()
    if limit is not None:
        place.write_text(f"{limit}\n")
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
