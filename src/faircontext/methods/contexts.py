"""Keeping a context that FCL learnt on an image."""

from collections.abc import Callable
from pathlib import Path

from faircontext.backbones.prompts import Placement
from faircontext.labels import LabelSpace
from faircontext.methods.fcl import FCL, Adaptation

__all__ = ["write_context"]


def write_context(
    path: Path | None, adaptation: Adaptation, method: FCL, labels: LabelSpace, warn: Callable[[str], None]
) -> None:
    """Write a learnt context in the form of CoOp's prompt learner; see `LabelSpace.save_context`.

    Args:
        path: of the file; one that is there is replaced. None writes nothing.
        adaptation: what was learnt, with the first template.
        method: that has learnt it.
        labels: the classes.
        warn: is told where nothing was learnt, and so nothing is written.

    Raises:
        ArgumentError: the file cannot be written.
    """
    if path is None:
        return
    if adaptation.calibration is None or adaptation.not_learnt is not None:
        warn(f"{path}: not written, as nothing was learnt ({adaptation.not_learnt})")
        return
    placement: Placement = "replace" if method.context == "cl" else "prepend"
    labels.save_context(path, adaptation.calibration.context, adaptation.candidates, placement)
