"""How long commands take from the start of a process: `make bench` runs this, where nothing else runs."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from made_runs import write_run

pytestmark = pytest.mark.timing
COMMAND = (sys.executable, "-m", "faircontext")


def median_seconds(*words: str, repeats: int = 5) -> float:
    """Return the median of the seconds from the start of the command to its end."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        subprocess.run([*COMMAND, *words], capture_output=True, check=True)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def test_help_comes_in_half_a_second() -> None:
    assert median_seconds("--help") < 0.5


def test_tables_of_a_run_come_in_a_second(tmp_path: Path) -> None:
    right = {"zero_shot": range(100), "tpt": range(50, 160), "fcl": range(20, 150)}
    for dataset in ("imagenet_a", "dtd", "pets"):
        write_run(tmp_path / dataset, dataset, right, images=200)
    assert median_seconds("tables", str(tmp_path), "--format", "md") < 1.0
