"""A vision transformer of a library, run block by block and cut in two."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.engines import ROW_MULTIPLE, pad_rows


@dataclass(frozen=True)
class Blocks:
    """How a library's vision transformer is run in parts.

    Attributes:
        layers: gives the attention blocks of an encoder.
        embed: gives the tokens that enter the first block, of an encoder and normalised pixels.
        pool: gives the features, not of unit length, of an encoder and what leaves the last block.
        projections: names of a block's weights that project its input to queries, keys and values.
    """

    layers: Callable[[Any], Any]
    embed: Callable[[Any, Tensor], Tensor]
    pool: Callable[[Any, Tensor], Tensor]
    projections: tuple[str, ...]


class SplitEncoder:
    """A vision transformer, cut below its last attention blocks, so that these can be adapted.

    Blocks below run in the encoder's precision, blocks above in float32. The tokens at the cut can be stored.

    Args:
        encoder: the image encoder.
        parts: of the encoder.
        blocks: how many blocks are above the cut, at most as many as there are.
        normalise: gives normalised pixels, on the encoder's device.

    Attributes:
        blocks: as given.
        width: of the tokens.
    """

    def __init__(self, encoder: Any, parts: Blocks, blocks: int, normalise: Callable[[Tensor], Tensor]) -> None:
        weight = parts.layers(encoder)[-1].get_parameter(parts.projections[0])
        self.blocks, self.width = blocks, int(weight.shape[1])
        self._parts, self._lower, self._dtype, self._normalise = parts, encoder, weight.dtype, normalise
        self._upper: Any = encoder if weight.dtype is torch.float32 else copy.deepcopy(encoder).float()

    def below(self, pixels: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images tokens features"]:
        """Return the tokens at the cut, in float32, for pixels in [0, 1]."""
        chunks = []
        with torch.inference_mode():
            for rows in pixels.split(ROW_MULTIPLE):
                hidden = self._parts.embed(self._lower, pad_rows(self._normalise(rows).to(self._dtype)))
                for layer in self._parts.layers(self._lower)[: -self.blocks]:
                    hidden = run_block(layer, hidden)
                chunks.append(hidden[: len(rows)].float())
        return torch.cat(chunks).clone()

    def above(
        self, tokens: Float[Tensor, "images tokens features"], updates: Float[Tensor, "blocks rows features"]
    ) -> Float[Tensor, "images dim"]:
        """Return unit-norm image features; `updates` are added to the blocks' projections of queries, keys, values."""
        hidden, names = tokens, self._parts.projections
        for layer, update in zip(self._parts.layers(self._upper)[-self.blocks :], updates, strict=True):
            own = zip(names, update.chunk(len(names)), strict=True)
            hidden = run_block(layer, hidden, {name: layer.get_parameter(name) + part for name, part in own})
        return F.normalize(self._parts.pool(self._upper, hidden), dim=-1)


def run_block(layer: Any, hidden: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
    """Run an attention block that sees everything, with some of its weights replaced."""
    known = inspect.signature(layer.forward).parameters  # what must be given differs between versions of libraries
    masks = {name: None for name in ("attention_mask", "causal_attention_mask") if name in known}
    output = torch.func.functional_call(layer, dict(weights), (hidden,), masks) if weights else layer(hidden, **masks)
    tokens: Tensor = output[0] if isinstance(output, tuple) else output
    return tokens
