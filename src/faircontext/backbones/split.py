"""An image tower that is cut below its last attention blocks, so that these can be adapted."""

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.engines import ROW_MULTIPLE, pad_rows
from faircontext.errors import ArgumentError

if TYPE_CHECKING:
    from faircontext.backbones.base import Backbone

__all__ = ["SplitTower"]


class SplitTower(ABC):
    """A vision transformer, cut; blocks below run in the tower's precision, blocks above in float32.

    The tokens at the cut can be stored.

    Args:
        backbone: whose image tower it is.
        blocks: how many blocks are above the cut.

    Attributes:
        blocks: as given.
        width: of the tokens.

    Raises:
        ArgumentError: the tower has fewer blocks.
    """

    width: int
    projections: ClassVar[tuple[str, ...]]
    """Names of a block's weights that project its input to queries, keys and values."""

    def __init__(self, backbone: "Backbone", blocks: int) -> None:
        tower: Any = backbone.tower
        total = len(self._layers(tower))
        if blocks > total:
            raise ArgumentError(f"blocks={blocks} is not possible; the image tower of {backbone.name} has {total}")
        self.blocks = blocks
        self._backbone = backbone
        self._lower = tower
        self._upper: Any = tower if backbone.dtype is torch.float32 else copy.deepcopy(tower).float()

    def below(self, pixels: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images tokens features"]:
        """Return the tokens at the cut, in float32, for pixels in [0, 1]."""
        chunks = []
        with torch.inference_mode():
            for rows in pixels.split(ROW_MULTIPLE):
                hidden = self._embed(pad_rows(self._backbone._normalise(rows).to(self._backbone.dtype)))
                for layer in self._layers(self._lower)[: -self.blocks]:
                    hidden = self._run(layer, hidden)
                chunks.append(hidden[: len(rows)].float())
        return torch.cat(chunks).clone()

    def above(
        self, tokens: Float[Tensor, "images tokens features"], updates: Float[Tensor, "blocks rows features"]
    ) -> Float[Tensor, "images dim"]:
        """Return unit-norm image features; `updates` are added to the blocks' projections of queries, keys, values."""
        hidden = tokens
        for layer, update in zip(self._layers(self._upper)[-self.blocks :], updates, strict=True):
            hidden = self._run_changed(layer, update, hidden)
        return F.normalize(self._pool(hidden), dim=-1)

    @staticmethod
    @abstractmethod
    def _layers(tower: Any) -> Any:
        """Return the attention blocks of a tower."""

    @abstractmethod
    def _embed(self, pixels: Tensor) -> Tensor:
        """Return the tokens that enter the first block of the lower part."""

    @staticmethod
    def _masks(layer: Any) -> dict[str, Any]:  # noqa: ARG004 (other libraries have some)
        """Return what a block is given by keyword besides the tokens."""
        return {}

    def _run(self, layer: Any, hidden: Tensor) -> Tensor:
        """Run a block."""
        return _first(layer(hidden, **self._masks(layer)))

    def _run_changed(self, layer: Any, update: Tensor, hidden: Tensor) -> Tensor:
        """Run a block with a change of its projections of queries, keys and values."""
        parts = zip(self.projections, update.chunk(len(self.projections)), strict=True)
        weights = {name: layer.get_parameter(name) + part for name, part in parts}
        return _first(torch.func.functional_call(layer, weights, (hidden,), self._masks(layer)))

    @abstractmethod
    def _pool(self, hidden: Tensor) -> Tensor:
        """Return the features, not of unit length, of what leaves the last block of the upper part."""


def _first(output: Any) -> Tensor:
    """Return the tokens of what a block returns, which may be more."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden
