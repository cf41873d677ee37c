"""Diagnostics: what a prediction says of how it came about, as it is stored in rows and read back without a model."""

import base64
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from jaxtyping import Float, UInt8

__all__ = [
    "FLAT",
    "MAP_SIDE",
    "Diagnostic",
    "StoredMaps",
    "describe_flat",
    "is_flat",
    "read_diagnostics",
    "read_maps",
    "store_maps",
]

Diagnostic = float | int | str | tuple[float, ...]
"""A number, a word or a row of numbers about how a prediction came about."""


def read_diagnostics(text: str) -> dict[str, Any]:
    """Return the diagnostics of a row; what was NaN or infinite, and is null in JSON, is NaN."""
    diagnostics: dict[str, Any] = {name: _without_null(value) for name, value in json.loads(text).items()}
    return diagnostics


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

    image: UInt8[np.ndarray, "height width 3"]
    evidence: Float[np.ndarray, "candidates size size"]


def store_maps(
    image: UInt8[np.ndarray, "height width 3"], evidence: Float[np.ndarray, "candidates size size"]
) -> dict[str, str]:
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
    """Tell from an answer's diagnostics whether its common evidence localised nothing, see `FLAT`."""
    return float(diagnostics.get("common_mean", 0.0)) > FLAT


def describe_flat(name: str, flat: int, localised: int) -> str:
    """Return, for a person, how many images of a run had flat common evidence.

    Args:
        name: what the method is called in the run.
        flat: images whose common evidence is flat, see `is_flat`.
        localised: images that have common evidence.
    """
    return (
        f"{name}: common evidence is flat in {flat} of {localised} images (mean of Q / max Q above {FLAT}): nothing "
        "was localised there; the setting area gives it an area, for example area=0.25"
    )
