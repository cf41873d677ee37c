"""Settings of evidence: estimators, numbers of masks that follow from the reliability, areas, and what they find."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from faircontext import Backbone, Episode, LabelSpace, create_method
from faircontext.errors import ArgumentError
from faircontext.evidence import effective_area
from faircontext.methods.variants import AUTO_BLOCK, FCLVariants
from faircontext.types import FLAT, describe_flat, is_flat
from helpers import same_bits

MakeEpisode = Callable[..., Episode]
SMALL = FCLVariants(k=4, beta=5.0, masks=40, grids=(3, 4, 5), estimator="covariance", smoothing=0.1, steps=1)


@pytest.fixture(scope="module")
def make(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> MakeEpisode:
    """Return a function that makes a fresh episode of an image on a tiny model."""
    labels = LabelSpace(("cat", "dog", "horse", "snail", "house"), tiny("clip"))
    return lambda seed=3: Episode(make_image(seed), labels)


@pytest.mark.parametrize("estimator", ["paper", "covariance", "least-squares"])
def test_every_estimator_gives_maps_and_says_how_far_they_can_be_trusted(make: MakeEpisode, estimator: str) -> None:
    found = replace(SMALL, estimator=estimator).adapt(make())
    assert found.evidence is not None
    assert found.evidence.maps.shape == (4, *make().x.shape[1:])
    diagnostics = found.prediction.diagnostics
    assert diagnostics["evidence_masks"] == 40
    trust = diagnostics["evidence_reliability"]
    order = torch.searchsorted(found.candidates, torch.tensor(found.prediction.candidates))
    assert trust == pytest.approx(found.evidence.reliability[order].tolist())
    assert 0 < diagnostics["common_mean"] <= 1


@pytest.mark.parametrize(("area", "scaling"), [(0.1, "max"), (0.5, "none")])
def test_common_evidence_has_the_area_of_the_setting(make: MakeEpisode, area: float, scaling: str) -> None:
    found = replace(SMALL, area=area, evidence_scaling=scaling).adapt(make())
    assert found.common is not None
    torch.testing.assert_close(effective_area(found.common), torch.full((6,), area), rtol=3e-3, atol=0)
    assert found.prediction.diagnostics["common_area"] == pytest.approx(area, rel=3e-3)


def test_an_area_of_the_whole_image_is_the_control_with_the_image(make: MakeEpisode) -> None:
    whole, control = replace(SMALL, area=1.0).adapt(make()), replace(SMALL, proxy="image").adapt(make())
    assert whole.calibration is not None
    assert control.calibration is not None
    torch.testing.assert_close(whole.calibration.context, control.calibration.context)
    assert whole.common is not None
    assert whole.common.min() == 1.0
    assert is_flat(whole.prediction.diagnostics)
    assert not is_flat(control.prediction.diagnostics)


def test_a_run_is_told_of_flat_common_evidence() -> None:
    assert not is_flat({"common_mean": FLAT})
    assert not is_flat({})
    assert describe_flat("fcl-50", 3, 4) == (
        "fcl-50: common evidence is flat in 3 of 4 images (mean of Q / max Q above 0.95): nothing was localised there, "
        "where the setting area, for example area=0.25, gives it an area unless all maps are level"
    )


# Masks by reliability


@pytest.mark.parametrize("target", [0.05, 0.6, 0.999])
def test_masks_are_added_in_blocks_until_the_target_or_the_budget(make: MakeEpisode, target: float) -> None:
    method = replace(SMALL, masks="auto", budget=200, reliability=target)
    episode = make()
    text = episode.labels.text[0][:4]
    found = method.evidence(episode, text)
    used = len(found.masks)
    assert used == 200 or used % AUTO_BLOCK == 0
    favoured = (text @ episode.z).topk(2).indices

    def reached(count: int) -> bool:
        fixed = replace(SMALL, masks=count).evidence(make(), text)
        return bool((fixed.reliability[favoured] >= target).all())

    assert used == next((count for count in range(AUTO_BLOCK, 200, AUTO_BLOCK) if reached(count)), 200)


@pytest.mark.parametrize("target", [0.3])
def test_a_run_that_stops_early_is_the_run_with_that_many_masks(make: MakeEpisode, target: float) -> None:
    auto = replace(SMALL, masks="auto", budget=150, reliability=target).adapt(make())
    assert auto.evidence is not None
    fixed = replace(SMALL, masks=len(auto.evidence.masks)).adapt(make())
    assert fixed.evidence is not None
    assert same_bits(auto.evidence.maps, fixed.evidence.maps)
    assert same_bits(auto.prediction.probabilities, fixed.prediction.probabilities)
    assert auto.prediction.diagnostics == fixed.prediction.diagnostics


def test_a_budget_below_a_block_is_spent_at_once(make: MakeEpisode) -> None:
    found = replace(SMALL, masks="auto", budget=20).adapt(make())
    assert found.evidence is not None
    assert len(found.evidence.masks) == 20


def test_the_answer_does_not_depend_on_what_was_asked_before(make: MakeEpisode) -> None:
    """Features of earlier masks are kept and added to, in other batches than at once."""
    method, shared = replace(SMALL, masks="auto", budget=101, reliability=1.0), make()
    replace(SMALL, masks=7).adapt(shared)
    replace(SMALL, masks=23).adapt(shared)
    assert same_bits(method(shared).probabilities, method(make()).probabilities)
    _, at_once = make().masked_features(101, (3, 4, 5), 0.5, "black")
    _, by_steps = shared.masked_features(101, (3, 4, 5), 0.5, "black")
    assert same_bits(at_once, by_steps)


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"masks": "auto"}, 'masks="auto" needs a budget, the most masks that an image may use: budget=400'),
        ({"masks": "auto", "budget": 0}, "budget=0 is not possible; it must lie above 0 and at most at 100000"),
        ({"masks": 0}, "masks=0 is not possible; it must lie above 0 and at most at 100000"),
        ({"masks": 100_001}, "masks=100001 is not possible; it must lie above 0 and at most at 100000"),
        ({"smoothing": -0.1}, "smoothing=-0.1 is not possible; it must lie between 0 and 1"),
        ({"smoothing": float("nan")}, "smoothing=nan is not possible; it must lie between 0 and 1"),
        ({"reliability": 1.5}, "reliability=1.5 is not possible; it must lie above 0.0 and at most at 1.0"),
    ],
)
def test_settings_that_are_not_possible_are_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        create_method("fcl_variants", **settings)
    assert str(refused.value) == message
