"""Packages of third parties as an installer leaves them, and processes that find them."""

import os
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

RUN = """
import sys
from faircontext.cli import main
codes = [main(line.split("\\t")) for line in sys.argv[1:]]
raise SystemExit(f"exit codes: {codes}" if any(codes) else 0)
"""
"""Several commands in one process: importing torch takes longer than all of them. Where one fails, the last line of
standard error has their exit codes."""


def install(site: Path, name: str, entry_points: dict[str, dict[str, str]]) -> None:
    """Write what an installer writes of a distribution's metadata."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    parser = ConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their capitals
    parser.read_dict(entry_points)
    with (folder / "entry_points.txt").open("w") as file:
        parser.write(file)


def run(site: Path, commands: list[list[str]]) -> subprocess.CompletedProcess[str]:
    """Run commands in the folder above the packages, in a process that finds these."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", RUN, *("\t".join(command) for command in commands)]
    return subprocess.run(words, cwd=site.parent, env=environment, capture_output=True, text=True, check=False)
