"""Evidence maps as text in a run's rows, so that figures and pages are drawn from records alone, without a model.

A row of the analysis `gallery` holds the picture as the model sees it (`image`, a JPEG file) and the class evidence
maps of its candidates (`maps`, averaged down to `SIZE` by `SIZE`, in half precision), both in base64.
"""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

__all__ = ["SIZE", "KeptMaps", "keep_maps", "read_maps"]

SIZE = 56
"""Side of the maps that are kept; a cell of the finest grid of masks is four of their pixels wide."""

_QUALITY = 88


@dataclass(frozen=True)
class KeptMaps:
    """What a row keeps of an image.

    Attributes:
        image: the plain view `u_1`.
        evidence: `E_c` of the candidates, in the order of the row's `candidates`, in nats.
    """

    image: UInt8[np.ndarray, "height width 3"]
    evidence: Float[np.ndarray, "candidates size size"]


def keep_maps(
    image: UInt8[Tensor, "3 height width"], evidence: Float[Tensor, "candidates height width"]
) -> dict[str, str]:
    """Return an image and its evidence maps as diagnostics of a row; `read_maps` reads them back."""
    file = io.BytesIO()
    PIL.Image.fromarray(image.permute(1, 2, 0).cpu().numpy()).save(file, "JPEG", quality=_QUALITY)
    small = F.interpolate(evidence[None].float().cpu(), size=(SIZE, SIZE), mode="area")[0]
    return {
        "image": base64.b64encode(file.getvalue()).decode("ascii"),
        "maps": base64.b64encode(small.numpy().astype("<f2").tobytes()).decode("ascii"),
    }


def read_maps(diagnostics: Mapping[str, Any]) -> KeptMaps:
    """Return what `keep_maps` has kept.

    Args:
        diagnostics: of a row of the analysis `gallery`, read from JSON.

    Raises:
        KeyError: the row is of another method.
    """
    with PIL.Image.open(io.BytesIO(base64.b64decode(diagnostics["image"]))) as file:
        image = np.asarray(file.convert("RGB"))
    maps = np.frombuffer(base64.b64decode(diagnostics["maps"]), "<f2").reshape(-1, SIZE, SIZE)
    return KeptMaps(image, maps.astype(np.float32))
