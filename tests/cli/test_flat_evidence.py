"""A run says where common evidence localises nothing: in `classify` and in `evaluate`, a line a method."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircontext.cli import main

SETTINGS = ["masks=8", "steps=1", "k=3"]
FLAT = "note: fcl: common evidence is flat in 2 of 2 images (mean of Q / max Q above 0.95): nothing was localised there"


@pytest.fixture
def photos(tmp_path: Path, make_image: Callable[..., np.ndarray]) -> Path:
    """Two photos in class folders."""
    for seed, name in enumerate(("cat", "dog")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        Image.fromarray(make_image(seed)).save(tmp_path / "mine" / name / "photo.png")
    (tmp_path / "mine" / "horse").mkdir()
    return tmp_path / "mine"


@pytest.mark.parametrize(("area", "flat"), [("1.0", True), ("0.1", False)])
@pytest.mark.parametrize("command", ["classify", "evaluate"])
def test_a_run_says_where_common_evidence_is_flat(
    command: str,
    area: str,
    flat: bool,
    photos: Path,
    tiny_folder: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {
        "classify": [str(photos), "--labels-from-folders"],
        "evaluate": ["--datasets", str(photos), "--root", str(tmp_path), "--out", str(tmp_path / "runs")],
    }
    backbone = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--views", "count=4"]
    assert main([command, *given[command], *backbone, "--set", *SETTINGS, f"area={area}"]) == 0
    assert (FLAT in capsys.readouterr().err) == flat
