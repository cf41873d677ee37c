"""The script that kills runs, in a process of its own, on the tiny model: rows and states end as without."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_kills.py"


@pytest.mark.process
@pytest.mark.parametrize("moments", [pytest.param(1, marks=pytest.mark.smoke), 20])
def test_killed_at_any_moment_rows_and_states_are_equal_to_the_bit(
    moments: int, tiny_folder: Callable[[str], Path], make_image: Callable[..., np.ndarray], tmp_path: Path
) -> None:
    for number in range(20):
        folder = tmp_path / "data/set" / ("cat", "dog", "rocket")[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(make_image(number, 32, 32)).save(folder / f"{number:02}.png")
    (folder / "x.png").write_bytes(b"no picture")
    words = ["--datasets", "set", "--root", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--rows", "9"]
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, *model, "--moments", str(moments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": equal\n") == moments
    assert done.stdout.endswith(f"{moments} of {moments} are equal to the bit\n")
    kept = {int(line.split(", ")[1].split()[0]) for line in done.stdout.splitlines() if "rows kept" in line}
    assert len(kept) > 2 or moments == 1  # moments differ in what was there
