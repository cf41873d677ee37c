"""What the tests themselves rely on: they signal only processes that they started, and those heed signals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import descendants


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not list processes in /proc")
def test_descendants_are_what_was_started_here_and_nobody_else() -> None:
    wait = "import sys; sys.stdin.read()"
    parent = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {wait!r}]); print(p.pid, flush=True); p.wait()"  # noqa: E501
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", parent], **pipes) as child:
        grandchild = int(child.stdout.readline())
        assert {child.pid, grandchild} <= descendants()
        assert descendants(child.pid) == {grandchild}
        assert not {os.getpid(), os.getppid(), 1} & descendants()
        child.stdin.close()
