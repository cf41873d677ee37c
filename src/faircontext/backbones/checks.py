"""Whether a model can be used: no weight is NaN or infinite, and features are unit vectors."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from faircontext.errors import ArgumentError

__all__ = ["USELESS", "check_weights", "refuse_features", "useless_rows"]

USELESS = "NaN, infinite or all zero"
"""What features must not be: a softmax over them gives NaN, or the same probability for all classes."""


def check_weights(name: str, weights: Mapping[str, Tensor]) -> None:
    """Raise `ArgumentError` naming the first tensor with a value that is NaN or infinite.

    Args:
        name: of the model.
        weights: its parameters and buffers, by the names that their file has.
    """
    for tensor_name, tensor in weights.items():
        # Where the sum is finite all values are: a pass that needs no memory. Where it is not, it may have overflowed.
        if not tensor.is_floating_point() or bool(tensor.sum().isfinite()):
            continue
        count = int((~tensor.isfinite()).sum())
        if count:
            raise ArgumentError(
                f"{name}: the weights cannot be used: {count:,} of the {tensor.numel():,} values of {tensor_name} are "
                "NaN or infinite; take another checkpoint"
            )


def useless_rows(features: Float[Tensor, "rows dim"]) -> Bool[Tensor, " rows"]:
    """Return which rows of features, as they are after division by their length, are no unit vectors."""
    useful: Tensor = features.norm(dim=-1) > 0.5  # a comparison with NaN is false
    return ~useful


def refuse_features(name: str, what: str, weights: Mapping[str, Tensor], problem: str = USELESS) -> ArgumentError:
    """Return the error for a tower whose features are useless, with the tensor to blame where one is all zero.

    Args:
        name: of the model.
        what: whose features.
        weights: of the tower.
        problem: what the features are.
    """
    zero = next((key for key, tensor in weights.items() if tensor.ndim > 1 and not torch.any(tensor)), None)
    blame = f" (all values of {zero} are zero)" if zero else ""
    return ArgumentError(
        f"{name}: the weights cannot be used: the features of {what} are {problem}{blame}; take another checkpoint"
    )
