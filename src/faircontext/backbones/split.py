"""The interface of an image tower that is cut below its last attention blocks, so that these can be adapted."""

from typing import Protocol

from jaxtyping import Float
from torch import Tensor

__all__ = ["SplitTower"]


class SplitTower(Protocol):
    """A vision transformer, cut; blocks below run in the tower's precision, blocks above in float32.

    Attributes:
        blocks: how many blocks are above the cut.
        width: of the tokens.
    """

    blocks: int
    width: int

    def below(self, pixels: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images tokens features"]:
        """Return the tokens at the cut, in float32, for pixels in [0, 1]."""

    def above(
        self, tokens: Float[Tensor, "images tokens features"], updates: Float[Tensor, "blocks rows features"]
    ) -> Float[Tensor, "images dim"]:
        """Return unit-norm image features; `updates` are added to the blocks' projections of queries, keys, values."""
