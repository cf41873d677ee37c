"""What several tests of methods use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from faircontext import Backbone, create_backbone


@pytest.fixture(scope="module")
def tiny_double(tiny_folder: Callable[[str], Path]) -> Backbone:
    """A private copy of the tiny model whose text tower computes in float64."""
    backbone = create_backbone(f"local-dir:{tiny_folder('clip')}", precision="fp32")
    backbone.text_tower.double()
    return backbone
