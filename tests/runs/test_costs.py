"""What an answer costs: each trial pays for its views, the label set is not paid for, and memory is seen."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from test_errors import unchecked

from faircontext import FCL, TPT, Backbone, Episode, FairContextError, LabelSpace, Method, Prediction, ViewRecipe
from faircontext.methods import ZeroShot
from faircontext.runs.costs import Efficiency, measure
from faircontext.system import forget_peak

NAMES = ("cat", "dog", "house")
RECIPE = ViewRecipe(count=8, scale=(0.3, 1.0))


@pytest.fixture
def labels(tiny: Callable[[str], Backbone]) -> LabelSpace:
    return LabelSpace(NAMES, tiny("clip"))


@pytest.fixture
def images(make_image: Callable[..., np.ndarray]) -> list[np.ndarray]:
    return [make_image(number) for number in range(3)]


@dataclass(frozen=True)
class Probing(Method):
    """Zero-shot that looks at its episode before it answers."""

    probe: object = None

    def __call__(self, episode: Episode) -> Prediction:
        self.probe(episode)
        return ZeroShot()(episode)


def test_an_efficiency_is_the_mean_and_its_standard_error():
    found = Efficiency((1.0, 2.0, 3.0, 6.0), 1, None, None)
    assert found.seconds_mean == 3.0
    # Squared distances 4, 1, 0, 9 over 3 degrees of freedom, over the root of 4.
    assert found.seconds_spread == pytest.approx((14 / 3) ** 0.5 / 2)
    assert str(found) == "3.000 s (standard error 1.080, 4 trials)"
    assert str(Efficiency((1.0, 1.0), 1, 512.2, 3.0)).endswith("peak of the device 512 MB, process grew by 3 MB")


@pytest.mark.parametrize("method", [TPT(rho=0.5), FCL(masks=16, k=3)], ids=["tpt", "fcl"])
def test_methods_are_measured(method, labels, images):
    found = measure(method, images, labels, RECIPE, trials=4, warmup=1)
    assert len(found.seconds) == 4
    assert min(found.seconds) > 0
    assert found.images == 3
    assert found.peak_device_mb is None
    assert found.seconds_spread == statistics.stdev(found.seconds) / 2


def test_a_trial_holds_all_that_the_method_does(labels, images):
    slow = measure(Probing(lambda _: time.sleep(0.05)), images, labels, RECIPE, trials=3)
    assert min(slow.seconds) >= 0.05


def test_every_trial_is_a_fresh_episode_of_the_next_image(labels, images):
    seen: list[Episode] = []

    def use(episode: Episode) -> None:
        assert not {"view_features", "z", "x"} & (
            vars(episode).keys() | episode.known
        )  # nothing has been computed before
        assert len(episode.view_features) == 8
        seen.append(episode)

    measure(Probing(use), images, labels, RECIPE, trials=4, warmup=3, seed=5)
    assert len({id(episode) for episode in seen}) == len(seen) == 7
    ids = [Episode(image, labels, RECIPE).id for image in images]
    assert [episode.id for episode in seen] == [*ids, *ids, ids[0]]
    assert {episode.seed for episode in seen} == {5}
    assert {episode.recipe for episode in seen} == {RECIPE}


def test_what_a_trial_takes_is_its_time_and_the_warm_up_is_not(labels, images):
    calls: list[None] = []

    def wait(_: Episode) -> None:
        calls.append(None)
        time.sleep(0.5 if len(calls) <= 2 else 0.05)

    found = measure(Probing(wait), images[:1], labels, RECIPE, trials=3, warmup=2)
    assert len(calls) == 5
    assert all(0.05 <= seconds < 0.45 for seconds in found.seconds)
    assert found.images == 1


def test_the_label_set_is_encoded_before(labels, images):
    seen: list[bool] = []
    assert "text" not in vars(labels)
    measure(Probing(lambda episode: seen.append("text" in vars(episode.labels))), images, labels, RECIPE, trials=2)
    assert seen == [True] * 4  # two to warm up, two trials


@pytest.mark.skipif(not forget_peak(), reason="the system does not tell the peak of the resident size")
def test_memory_that_a_trial_takes_and_gives_back_is_seen(labels, images):
    def take(_: Episode) -> None:
        torch.ones(64, 2**20, dtype=torch.uint8)

    found = measure(Probing(take), images, labels, RECIPE, trials=2)
    assert 60 < found.peak_resident_mb < 120


def test_no_growth_is_claimed_where_the_system_does_not_tell(labels, images, monkeypatch):
    monkeypatch.setattr("faircontext.runs.costs.forget_peak", lambda: False)
    assert measure(ZeroShot(), images, labels, RECIPE, trials=2).peak_resident_mb is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_device_memory_is_seen(tiny_folder, images):
    from faircontext import create_backbone

    backbone = create_backbone(f"local-dir:{tiny_folder('clip')}", device="cuda")

    def take(_: Episode) -> None:
        torch.ones(64, 2**20, dtype=torch.uint8, device="cuda")

    labels = LabelSpace(NAMES, backbone)
    plain = measure(ZeroShot(), images, labels, RECIPE, trials=2)
    assert plain.peak_device_mb > 0
    assert measure(Probing(take), images, labels, RECIPE, trials=2).peak_device_mb - plain.peak_device_mb > 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": []}, "images is empty; give at least one, see load_image"),
        ({"trials": 1}, "trials=1 is not possible; it must be a number of at least 2"),
        ({"warmup": 0}, "warmup=0 is not possible; it must be a number of at least 1"),
        ({"method": "fcl"}, "method is of type str, not Method; create one with create_method"),
        ({"labels": NAMES}, "labels is of type tuple, not LabelSpace"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(change, message, labels, images):
    given = {"method": ZeroShot(), "images": images, "labels": labels, "trials": 2} | change
    with unchecked(), pytest.raises(FairContextError, match=message):
        measure(**given)


def test_a_method_that_the_labels_do_not_suit_is_refused_before_any_trial(tiny, images):
    labels = LabelSpace(NAMES, tiny("clip"), ["{} texture."])
    with pytest.raises(FairContextError, match="texture"):
        measure(FCL(masks=8), images, labels, RECIPE)
