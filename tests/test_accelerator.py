"""Device handling, tested without a GPU: what `tests/devices/pretend.py` holds passes in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import accelerator

FILE = Path(__file__).parent / "devices" / "pretend.py"


@pytest.mark.skipif(accelerator.missing() is not None, reason=str(accelerator.missing()))
def test_methods_and_commands_on_a_pretend_accelerator(pytestconfig: pytest.Config) -> None:
    words = ("-m", "pytest", str(FILE), "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--durations=5")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["OMP_NUM_THREADS"] = "1"
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=pytestconfig.rootpath,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert " passed" in ended.stdout.splitlines()[-1]
