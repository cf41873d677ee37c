"""What every metric asks of the arrays it is given."""

import numpy as np
from jaxtyping import Shaped

from faircontext.errors import ArgumentError, check_type

ROUNDING = 1e-5
"""A probability may lie this far outside [0, 1]: sums of float32 values round."""


def check_arrays(**arrays: object) -> None:
    """Raise `ArgumentError` naming an argument that is no NumPy array, such as a tensor or a list of right values."""
    for name, array in arrays.items():
        check_type(name, array, np.ndarray, f"metrics take NumPy arrays: numpy.asarray({name})")


def check_lengths(**arrays: Shaped[np.ndarray, "..."]) -> None:
    """Raise `ArgumentError` naming an argument unless all are arrays with an entry per image, for at least one."""
    check_arrays(**arrays)
    (first, reference), *others = arrays.items()
    if reference.ndim == 0 or len(reference) == 0:
        raise ArgumentError(f"{first} is empty; it needs an entry for at least one image")
    for name, array in others:
        if array.ndim == 0 or len(array) != len(reference):
            count = len(array) if array.ndim else 0
            raise ArgumentError(f"{name} has {count} entries and {first} has {len(reference)}; both are per image")


def check_probabilities(**arrays: Shaped[np.ndarray, " images"]) -> None:
    """Raise `ArgumentError` naming an argument unless its values lie in [0, 1], up to `ROUNDING`."""
    for name, values in arrays.items():
        outside = ~((values >= -ROUNDING) & (values <= 1 + ROUNDING))  # not a number is outside as well
        if outside.any():
            index = int(outside.argmax())
            raise ArgumentError(f"{name}[{index}]={values[index]} is not possible; it must lie between 0 and 1")


def check_classes(argument: str, values: Shaped[np.ndarray, "..."], classes: int | None = None, least: int = 0) -> None:
    """Raise `ArgumentError` naming the argument unless its values are whole numbers from `least` to below `classes`."""
    if not np.issubdtype(values.dtype, np.integer):
        raise ArgumentError(f"{argument} is of type {values.dtype}; it holds classes by index, as whole numbers")
    outside = (values < least) if classes is None else (values < least) | (values >= classes)
    if outside.any():
        value, known = values[outside][0], "" if classes is None else f" to {classes - 1}"
        raise ArgumentError(f"{argument} has the class {value}; classes are known by index, from 0{known}")
