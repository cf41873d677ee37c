"""The benchmark's own official TPT: what it answers is what this package's TPT answers, which computes otherwise."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from faircontext import TPT, Backbone, Episode, LabelSpace, ViewRecipe

pytestmark = pytest.mark.slow

NAMES = ["cat", "dog", "fire truck", "a very long name of a thing"]


@pytest.fixture(scope="module")
def peers() -> Iterator[ModuleType]:
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import peers

        yield peers
    finally:
        sys.path.remove(folder)
        for name in ("common", "peers"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_official_procedure_gives_the_packages_answer(
    peers: ModuleType, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray], seed: int
) -> None:
    backbone = tiny("clip")
    episode = Episode(make_image(seed), LabelSpace(NAMES, backbone), ViewRecipe(count=20), seed)
    official = peers.OfficialTPT(backbone, NAMES)
    own = TPT()(episode)
    untuned = TPT(steps=0)(episode)
    probabilities = official(episode.views / 255.0)
    torch.testing.assert_close(probabilities, own.probabilities, rtol=0, atol=1e-3)
    moved = (own.probabilities - untuned.probabilities).abs().max()
    assert moved > 3e-3  # or the agreement would say nothing


def test_the_official_procedure_starts_afresh_for_each_image(
    peers: ModuleType, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    backbone = tiny("clip")
    official = peers.OfficialTPT(backbone, NAMES)
    labels = LabelSpace(NAMES, backbone)
    first, second = (Episode(make_image(seed), labels, ViewRecipe(count=20)).views / 255.0 for seed in (0, 1))
    alone = official(first)
    official(second)
    assert torch.equal(official(first), alone)


def test_operations_are_those_of_a_vision_transformer(peers: ModuleType) -> None:
    counts = peers.operations("ViT-B-16", 200, 400)
    # Of a block: 12 width^2 multiplications a token, and 2 width for each pair of tokens; the patches; the projection.
    image = 12 * (12 * 768**2 * 197 + 2 * 768 * 197**2) + 3 * 16**2 * 768 * 196 + 768 * 512
    assert counts["fcl, 400 masks"] == pytest.approx(2 * image * 509 / 1e12)
    half = 12 * (12 * 768**2 * 99 + 2 * 768 * 99**2) + 768 * 512
    assert counts["fcl, 400 masks, drop"] == pytest.approx(2 * (image * 109 + half * 400) / 1e12)
    prompt = 12 * (12 * 512**2 * 77 + 2 * 512 * 77**2) + 512 * 512
    text = counts["official TPT"] - 2 * 65 * image / 1e12
    assert text == pytest.approx(2 * 3 * 200 * prompt / 1e12, rel=0.02)  # backwards again as much
