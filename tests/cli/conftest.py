"""Commands whose default backbone looks at small pictures; `one_lite` loads it once for all of them."""

from collections.abc import Iterator

import pytest

import faircontext.backbones
from faircontext import Backbone
from faircontext.backbones import lite as backbones_lite


@pytest.fixture(autouse=True)
def small_lite() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backbones_lite._IMAGE_SIZES, "lite0", 64)
        yield


@pytest.fixture
def one_lite(lite: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a command asks for the default backbone, it is the tests' own."""
    create = faircontext.backbones.create_backbone

    def chosen(name: str, pretrained: str | None = None, **options: object) -> Backbone:
        return lite if (name, pretrained) == ("lite0", None) else create(name, pretrained, **options)

    monkeypatch.setattr(faircontext.backbones, "create_backbone", chosen)
