"""What passes between the stages: images, predictions, and their diagnostics as rows store them and give them back."""

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import PIL.Image
from jaxtyping import Float, Int, UInt8

from faircontext.errors import FeatureError

Tensor = Any
"""A tensor of PyTorch, which reading runs does without; shapes and types of numbers are checked all the same."""

Image = UInt8[np.ndarray, "height width 3"]
"""A decoded RGB image."""

Diagnostic = float | int | str | tuple[float, ...]
"""A number, a word or a row of numbers about how a prediction came about."""


@dataclass(frozen=True)
class Prediction:
    """One method's prediction for one image; tensors are on the CPU.

    Attributes:
        index: the predicted class, an index into the label space.
        ranking: all classes, best first; `ranking[0]` is `index`.
        probabilities: per class, summing to one; what ECE, Brier score and NLL are computed from. The predicted class
            need not be the most probable one: a voting method predicts by votes. Where an image may have several
            labels, scores of their own stand here, which do not sum to one.
        votes: per class, for methods that vote, else None.
        candidates: the classes the method decided between, best first as explored; empty where it has no such step.
        fallback: None, or why the method predicted with less than its full procedure.
        diagnostics: flat mapping of further numbers, words and rows of numbers about how the prediction came about.
        cosines: per class, between the image and the text features that the prediction was made with; None for a
            method that has no such pair.

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
    cosines: Float[Tensor, " classes"] | None = None

    def __post_init__(self) -> None:
        if not self.probabilities.isfinite().all():
            raise FeatureError("the probabilities are NaN or infinite")

    @property
    def confidence(self) -> float:
        """The probability of the predicted class."""
        return float(self.probabilities[self.index])


UNSURE = 0.6
"""Answers of lower probability are not to be relied on: in a trial 1 of 19 was right, and of the others 16 of 21."""


def headline(ranked: Sequence[tuple[str, float]]) -> str:
    """Return an answer as it stands above all that is said of it: `elephant`, or `elephant, 32%, close to giraffe`.

    A probability below `UNSURE` is told, and with it the second class where that has at least half as much.

    Args:
        ranked: the best classes with their probabilities, best first; none where the answer is withheld.
    """
    if not ranked:
        return "none of these"
    (name, probability), *others = ranked[:2]
    if probability >= UNSURE:
        return name
    close = [f"close to {other}" for other, share in others if share >= probability / 2]
    return ", ".join([name, f"{probability:.0%}", *close])


def read_diagnostics(text: str) -> dict[str, Any]:
    """Return the diagnostics of a row; what was NaN or infinite, and is null in JSON, is NaN."""
    return {name: _without_null(value) for name, value in json.loads(text).items()}


def _without_null(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_null(inner) for inner in value]
    return math.nan if value is None else value


MAP_SIDE = 56
"""Side of stored maps; a cell of the finest grid of masks is four of their pixels wide."""


@dataclass(frozen=True)
class StoredMaps:
    """What a row of the analysis `gallery` stores of an image.

    Attributes:
        image: the plain view `u_1`.
        evidence: `E_c` of the candidates, in the order of the row's `candidates`, in nats.
    """

    image: Image
    evidence: Float[np.ndarray, "candidates size size"]


def store_maps(image: Image, evidence: Float[np.ndarray, "candidates size size"]) -> dict[str, str]:
    """Return an image (as JPEG) and maps (in half precision) as text, for the diagnostics of a row; see `read_maps`."""
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, "JPEG", quality=88)
    return {
        "image": base64.b64encode(file.getvalue()).decode("ascii"),
        "maps": base64.b64encode(evidence.astype("<f2").tobytes()).decode("ascii"),
    }


def read_maps(diagnostics: Mapping[str, Any]) -> StoredMaps:
    """Return what `store_maps` has stored.

    Raises:
        KeyError: the row is of another method.
    """
    with PIL.Image.open(io.BytesIO(base64.b64decode(diagnostics["image"]))) as file:
        image = np.asarray(file.convert("RGB"))
    maps = np.frombuffer(base64.b64decode(diagnostics["maps"]), "<f2").reshape(-1, MAP_SIDE, MAP_SIDE)
    return StoredMaps(image, maps.astype(np.float32))


FLAT = 0.95
"""Common evidence is flat where the mean of `Q / max Q`, over pixels and pairs, is above this."""


def is_flat(diagnostics: Mapping[str, Any]) -> bool:
    """Tell from a prediction's diagnostics whether its common evidence localised nothing, see `FLAT`."""
    return float(diagnostics.get("common_mean", 0.0)) > FLAT


def describe_flat(name: str, flat: int, images: int) -> str:
    """Return, for a person, how many images of a run had flat common evidence.

    Args:
        name: what the method is called in the run.
        flat: images whose common evidence is flat, see `is_flat`.
        images: how many have common evidence.
    """
    return (
        f"{name}: common evidence is flat in {flat} of {images} images (mean of Q / max Q above {FLAT}): nothing "
        "was localised there, where the setting area, for example area=0.25, gives it an area unless all maps are level"
    )
