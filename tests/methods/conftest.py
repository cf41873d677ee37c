"""What tests of methods share."""

from collections.abc import Callable

import pytest

from faircontext import Backbone


@pytest.fixture(scope="session")
def backbone(tiny: Callable[[str], Backbone]) -> Backbone:
    """A tiny CLIP with random weights, on which all methods run."""
    return tiny("clip")
