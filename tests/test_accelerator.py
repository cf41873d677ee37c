"""Device handling, tested without a GPU: what `tests/devices/pretend.py` holds passes in processes of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import accelerator

FILE = Path(__file__).parent / "devices" / "pretend.py"
NAMES = re.findall(r"^def (test_\w+)", FILE.read_text(encoding="utf-8"), re.MULTILINE)
COUNTED = (
    "test_copies_do_not_grow_with_masks[paper]",
    "test_copies_do_not_grow_with_views[tpt]",
    "test_copies_do_not_grow_with_views[tda]",
)
"""The copy counts of FCL, of a method that tunes and of one with a memory."""
PARTS = 6
"""Processes that share the tests, so that workers share them too."""


@pytest.mark.process
@pytest.mark.skipif(accelerator.missing() is not None, reason=str(accelerator.missing()))
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(COUNTED, id="copy counts", marks=pytest.mark.smoke),
        *(pytest.param(NAMES[part::PARTS], id=f"part {part + 1} of {PARTS}") for part in range(PARTS)),
    ],
)
def test_methods_and_commands_on_a_pretend_accelerator(names: Sequence[str], pytestconfig: pytest.Config) -> None:
    words = ("-m", "pytest", *(f"{FILE}::{name}" for name in names), "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
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
