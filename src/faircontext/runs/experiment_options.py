"""What an experiment is asked to do: options of `ablate` and `reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from faircontext.runs.process_options import ProcessOptions

__all__ = ["ExperimentOptions", "ReproduceOptions"]


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(ProcessOptions):
    """Options of an experiment, which may consist of many runs."""

    root: Path | None = None
    """Folder that holds the data sets."""
    limit: int | None = None
    """At most this many images of each data set, in place of what the experiment says."""
    backbone: str | None = None
    """In place of the experiment's."""
    pretrained: str | None = None
    """Weights, in place of the experiment's: a tag or a checkpoint file."""
    precision: str = "auto"
    """Of the image tower: auto, fp32, bf16 or fp16."""
    engine_image: Literal["auto", "torch", "openvino"] = "auto"
    """What runs the image tower: torch, openvino, or auto, the faster one here."""


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(ExperimentOptions):
    """Options of an experiment of the paper."""

    partial: bool = False
    """Take data sets of which some images are missing."""
    available: bool = False
    """Leave out data sets that are not there or not complete, instead of stopping."""
    trials: int = 30
    """Of each method, where time is measured."""
    dry_run: bool = False
    """Print the plan and the estimate, and run nothing."""
