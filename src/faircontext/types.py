"""What passes between the stages: the prediction and the names of array shapes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from faircontext.diagnostics import Diagnostic
from faircontext.errors import FeatureError

__all__ = ["Diagnostic", "Image", "Prediction"]

Image = UInt8[np.ndarray, "height width 3"]
"""A decoded RGB image."""


@dataclass(frozen=True)
class Prediction:
    """One method's answer for one image; tensors are on the CPU.

    Attributes:
        index: the answer, an index into the label space.
        ranking: all classes, best first; `ranking[0]` is `index`.
        probabilities: per class, summing to one; what ECE, Brier score and NLL are computed from. The answer need not
            be the most probable class: a voting method answers by votes.
        votes: per class, for methods that vote, else None.
        candidates: the classes the method decided between, best first as explored; empty where it has no such step.
        fallback: None, or why the method answered with less than its full procedure.
        diagnostics: flat mapping of further numbers, words and rows of numbers about how the answer came about.

    Raises:
        FeatureError: a probability is NaN or infinite.
    """

    index: int
    ranking: Int[Tensor, " classes"]
    probabilities: Float[Tensor, " classes"]
    votes: Int[Tensor, " classes"] | None = None
    candidates: tuple[int, ...] = ()
    fallback: str | None = None
    diagnostics: Mapping[str, Diagnostic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.probabilities.isfinite().all():
            raise FeatureError("the probabilities are NaN or infinite")

    @property
    def confidence(self) -> float:
        """The probability of the answer."""
        return float(self.probabilities[self.index])
