"""Several labels for an image: each label has a score of its own, which no other label changes.

A model that was trained with a sigmoid over pairs of image and text (SigLIP) says how likely a label is,
`sigmoid(s cos_c + b)`, with its own scale and bias. A model that was trained with a softmax (CLIP) says only which of
several texts fits best. There a label stands against a list of negatives, generic words that say little of an image:
the score is the label's share of the softmax over itself and these,

    exp(s cos_c) / (exp(s cos_c) + sum_n exp(s cos_n)) = sigmoid(s cos_c - log sum_n exp(s cos_n)).

Both are log-odds, a line in the cosine, through a sigmoid. Log-odds are what is stored: probabilities near one are
rounded to one, and images could then not be ranked.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.errors import LabelError
from faircontext.labels import LabelSpace
from faircontext.names import normalise

NEGATIVES = (
    "thing",
    "object",
    "place",
    "scene",
    "background",
    "surface",
    "texture",
    "pattern",
    "material",
    "shape",
    "colour",
    "part of something",
)
"""What a label stands against where nothing else is given: words for what is in a picture whatever it shows."""


class LabelScorer:
    """Scores labels of a label space, each by itself: a score is the same, to the bit, whatever the other labels are.

    For that, text features are encoded class by class, and cosines are summed row by row in double precision.

    Args:
        labels: the label space; its templates are those of the negatives as well.
        negatives: words, as class names are; None for the model's bias where it has one, else for `NEGATIVES`.

    Attributes:
        labels: as given.
        negatives: those that are used, none where the model's bias is.

    Raises:
        LabelError: there are no negatives, one is a class name too, or the context of the labels is each class's own.
    """

    def __init__(self, labels: LabelSpace, negatives: Sequence[str] | None = None) -> None:
        self.labels = labels
        chosen = () if labels.backbone.logit_bias is not None else NEGATIVES
        self.negatives = tuple(chosen if negatives is None else negatives)
        if negatives is not None and not self.negatives:
            raise LabelError("there are no negatives; give at least one, or leave them out")
        if labels.context is not None and labels.context.per_class:
            raise LabelError(
                f"{labels.context.source}: each class has a context of its own, which the negatives lack; use one that "
                "classes share"
            )
        known = {normalise(name): name for name in labels.names}
        if both := next((word for word in self.negatives if normalise(word) in known), None):
            raise LabelError(
                f"the negative {both!r} is the class {known[normalise(both)]!r} too, which could never be likely; give "
                "other negatives"
            )

    @property
    def rule(self) -> str:
        """How scores come about: `sigmoid`, by the model's bias, or `negatives`."""
        return "negatives" if self.negatives else "sigmoid"

    @cached_property
    def text(self) -> Float[np.ndarray, "classes dim"]:
        """Unit-norm text features of the classes, each encoded alone."""
        own = self.labels.descriptions
        spaces = (
            self.labels.of([name], None if own is None else [own[index]])
            for index, name in enumerate(self.labels.names)
        )
        return np.concatenate([_as_double(space.zero_shot_text) for space in spaces])

    @cached_property
    def negative_text(self) -> Float[np.ndarray, "negatives dim"]:
        """The same of the negatives."""
        return np.concatenate([_as_double(self.labels.of([word]).zero_shot_text) for word in self.negatives])

    def logits(self, z: Float[Tensor, " dim"]) -> Float[np.ndarray, " classes"]:
        """Return the log-odds of every label, in float32.

        Args:
            z: unit-norm features of an image.
        """
        features, scale = _as_double(z), self.labels.backbone.logit_scale
        shift = self.labels.backbone.logit_bias or 0.0
        if self.negatives:
            shift = -float(np.logaddexp.reduce(scale * _cosines(self.negative_text, features)))
        return (scale * _cosines(self.text, features) + shift).astype(np.float32)


def _as_double(features: Tensor) -> np.ndarray:
    return np.ascontiguousarray(features.detach().to("cpu", torch.float64).numpy())


def _cosines(text: Float[np.ndarray, "classes dim"], z: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " classes"]:
    """Return dot products; a row's sum does not depend on the other rows, as it may in a product of matrices."""
    return np.asarray((text * z).sum(axis=1))
