"""Stability of evidence maps: the first masks are those of a shorter run, another seed is another draw."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from faircontext import Backbone, Episode, LabelSpace, ViewRecipe
from faircontext.analysis import Stability, stability
from faircontext.errors import ArgumentError
from faircontext.metrics.saliency import rank_correlation


@pytest.fixture(scope="module")
def episode(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> Episode:
    return Episode(make_image(3), LabelSpace(("cat", "dog", "horse", "snail"), tiny("clip")))


def test_maps_of_the_first_masks_are_those_of_a_run_with_fewer(episode: Episode) -> None:
    method = Stability(masks=64, fewer=(16, 32, 64, 100), beta=5.0, k=3, steps=4)
    found = method(episode).diagnostics
    assert found["masks"] == (16.0, 32.0, 64.0)
    setting = method.setting(episode)
    whole = method.evidence(episode, setting.text).maps[setting.position]
    for count, value in zip((16, 32), found["convergence"], strict=False):
        alone = Episode(episode._views._pixels.permute(1, 2, 0).numpy(), episode.labels)
        fewer = replace(method, masks=count).evidence(alone, setting.text).maps[setting.position]
        assert value == pytest.approx(rank_correlation(fewer, whole), abs=1e-9)
    assert found["convergence"][-1] == pytest.approx(1.0)
    assert -1 <= found["seeds"] < 1
    assert 0 <= found["overlap"] < 1


def test_the_random_order_is_the_images_own_whatever_the_seed(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = []
    original = stability.insertion
    monkeypatch.setattr(
        stability, "insertion", lambda *args, **more: orders.append(args[2].cpu().numpy()) or original(*args, **more)
    )
    for number in (1, 2):
        space = LabelSpace(("cat", "dog", "horse"), tiny("clip"))
        Stability(masks=8, k=3, steps=2)(Episode(make_image(number), space, ViewRecipe(count=4), seed=2**70))
    first, second = orders[1::2]
    assert sorted(first.ravel()) == sorted(second.ravel()) == [*range(first.size)]
    assert (first != second).any()


@pytest.mark.parametrize(("settings", "message"), [({"steps": 0}, "steps=0"), ({"fewer": (0, 5)}, "fewer=")])
def test_impossible_settings(settings: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Stability(**settings)
