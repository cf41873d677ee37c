"""A plan of the pictures on a tiny model, from options, as other processes make it anew."""

from collections.abc import Callable
from pathlib import Path

import pytest

from faircontext.datasets.spec import Dataset
from faircontext.runs.build import load
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.plan import Plan, plan_of


@pytest.fixture(scope="package")
def options(tiny_folder: Callable[[str], Path], picture_set: Path) -> EvaluateOptions:
    """Of `evaluate`: zero-shot and FCL of eight masks on the pictures."""
    return EvaluateOptions(
        datasets=("pictures",),
        root=picture_set.parent,
        backbone=f"local-dir:{tiny_folder('clip')}",
        precision="fp32",
        preset="paper",
        set=("fcl.masks=8", "fcl.k=3"),
    )


@pytest.fixture(scope="module")
def plan(options: EvaluateOptions, pictures: Dataset) -> Plan:
    """What these options come to."""
    return plan_of(options, pictures, load(options))
