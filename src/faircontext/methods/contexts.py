"""Keeping a context that FCL learnt on an image."""

from pathlib import Path

from faircontext.backbones.prompts import Placement
from faircontext.labels import LabelSpace
from faircontext.methods.fcl import FCL, Adaptation

__all__ = ["write_context"]


def write_context(path: Path, adaptation: Adaptation, method: FCL, labels: LabelSpace) -> str | None:
    """Write a learnt context in the form of CoOp's prompt learner; see `LabelSpace.save_context`.

    Args:
        path: of the file; one that is there is replaced.
        adaptation: what was learnt, with the first template.
        method: that has learnt it.
        labels: the classes.

    Returns:
        None, or why nothing was written.

    Raises:
        ArgumentError: the file cannot be written.
    """
    if adaptation.calibration is None or adaptation.not_learnt is not None:
        return f"{path}: not written, as nothing was learnt ({adaptation.not_learnt})"
    placement: Placement = "replace" if method.context == "cl" else "prepend"
    labels.save_context(path, adaptation.calibration.context, adaptation.candidates, placement)
    return None
