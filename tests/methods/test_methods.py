"""What every method owes its caller: one parametrised file for all of them."""

import gc
import random
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

from faircontext import (
    Backbone,
    Episode,
    LabelSpace,
    Method,
    Prediction,
    StreamMethod,
    ViewRecipe,
    create_method,
    list_methods,
)
from faircontext.backbones.prompts import PROMPT_SETS
from faircontext.methods.base import METHODS
from faircontext.views import Views
from helpers import CLASSES, assert_identical, assert_valid, without_collector

MakeEpisode = Callable[..., Episode]
MakeImage = Callable[..., np.ndarray]
CHEAP = {"fcl": {"masks": 8, "k": 3, "beta": 5.0, "lr": 0.006}}
CHEAP |= {
    name: {"rho": 0.5} for name in ("tpt", "ctpt", "rlcf", "rlcf_encoder", "tps", "rtpt", "dmn", "boostadapter", "dpe")
}
"""Settings that make a method fast, or let several of eight views count; one that is not listed has its defaults."""


PAIRS = [("clip", name) for name in list_methods()] + [
    pytest.param(("lite0", name), marks=pytest.mark.slow) for name in list_methods() if not METHODS[name].needs
]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: "-".join(pair))
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="module")
def home(pair: tuple[str, str], lite0: Backbone, tiny: Callable[[str], Backbone]) -> Backbone:
    """The embedded model, which knows what it sees, or a tiny CLIP with random weights, on which all methods run."""
    return lite0 if pair[0] == "lite0" else tiny("clip")


def methods_of(backbone: Backbone) -> list[Method]:
    names = [name for name in list_methods() if METHODS[name].needs <= backbone.capabilities]
    return [create_method(name, **CHEAP.get(name, {})) for name in names]


@pytest.fixture
def method(pair: tuple[str, str]) -> Method:
    return create_method(pair[1], **CHEAP.get(pair[1], {}))


@pytest.fixture(scope="module")
def labels(home: Backbone) -> LabelSpace:
    return LabelSpace(CLASSES, home)


@pytest.fixture
def make_episode(labels: LabelSpace) -> MakeEpisode:
    def make(image: np.ndarray, space: LabelSpace = labels, seed: int = 0, views: int = 8) -> Episode:
        return Episode(image, space, ViewRecipe(count=views, scale=(0.3, 1.0)), seed)

    return make


@cache
def thousand(backbone: Backbone) -> LabelSpace:
    return LabelSpace(IMAGENET_CLASSNAMES, backbone)


@pytest.fixture
def imagenet(home: Backbone) -> LabelSpace:
    assert len(thousand(home)) == 1000
    return thousand(home)


def differ(first: Prediction, second: Prediction) -> bool:
    """Return whether two answers came about differently; votes alone may well agree."""
    return not torch.equal(first.probabilities, second.probabilities) or first.diagnostics != second.diagnostics


def knows(backbone: Backbone) -> bool:
    return backbone.name == "lite0"


def test_an_answer_is_valid_and_its_repetition_identical(
    method: Method, home: Backbone, photos: dict[str, np.ndarray], make_episode: MakeEpisode
) -> None:
    prediction = method(make_episode(photos["rocket"]))
    assert_valid(prediction, 10)
    assert not knows(home) or CLASSES[prediction.index] == "rocket"
    assert prediction.fallback is None
    assert_identical(prediction, method(make_episode(photos["rocket"])))


def test_nothing_is_carried_from_one_image_to_the_next(
    method: Method, make_image: MakeImage, make_episode: MakeEpisode
) -> None:
    images = [make_image(seed) for seed in range(3)]
    forward = [method(make_episode(image)) for image in images]
    backward = [method(make_episode(image)) for image in reversed(images)]
    for first, second in zip(forward, reversed(backward), strict=True):
        assert_identical(first, second)
    fresh = create_method(method.name, **method.settings())
    assert_identical(forward[2], fresh(make_episode(images[2])))  # alone, by an instance that has seen nothing
    assert differ(forward[0], forward[1])


def test_methods_share_an_episode_without_touching_it(
    method: Method, home: Backbone, make_image: MakeImage, make_episode: MakeEpisode
) -> None:
    shared = make_episode(make_image(0))
    for other in methods_of(home):
        other(shared)
    assert_identical(method(shared), method(make_episode(make_image(0))))


def test_only_methods_that_use_views_make_them(
    method: Method, make_image: MakeImage, make_episode: MakeEpisode
) -> None:
    episode = make_episode(make_image(0))
    method(episode)
    assert ("all" in vars(episode._views)) == method.uses_views


def test_another_seed_draws_other_views_and_masks(
    method: Method, make_image: MakeImage, make_episode: MakeEpisode
) -> None:
    first, second = (method(make_episode(make_image(0), seed=seed)) for seed in (0, 1))
    assert differ(first, second) == method.uses_views


def global_states() -> tuple:
    kind, keys, *rest = np.random.get_state()
    # not Python's own generator: the tests' type checker draws from it
    return (kind, keys.tolist(), *rest), torch.get_rng_state().tolist(), torch.is_grad_enabled()


def test_no_global_generator_is_used_or_changed(
    method: Method, make_image: MakeImage, make_episode: MakeEpisode
) -> None:
    def answer_after_seeding(seed: int) -> Prediction:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = global_states()
        prediction = method(make_episode(make_image(0)))
        assert global_states() == before
        return prediction

    assert_identical(answer_after_seeding(1), answer_after_seeding(2))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_answer_does_not_depend_on_the_callers_gradient_mode(
    method: Method, make_image: MakeImage, make_episode: MakeEpisode, mode: Callable
) -> None:
    expected = method(make_episode(make_image(0)))
    with mode():
        assert_identical(method(make_episode(make_image(0))), expected)


@pytest.mark.parametrize("grey", [0, 200])
def test_an_image_of_one_colour_has_identical_views_and_an_answer(
    method: Method, make_episode: MakeEpisode, grey: int
) -> None:
    episode = make_episode(np.full((50, 60, 3), grey, np.uint8))
    assert_valid(method(episode), 10)
    assert (episode.views == grey).all()


@pytest.mark.parametrize("shape", [(1, 1), (2, 500)])
def test_an_image_of_any_shape_has_an_answer(
    method: Method, make_image: MakeImage, make_episode: MakeEpisode, shape: tuple[int, int]
) -> None:
    assert_valid(method(make_episode(make_image(0, *shape))), 10)


@pytest.mark.parametrize("names", [("cat",), ("cat", "dog")])
def test_one_or_two_classes_are_enough(
    method: Method, photos: dict[str, np.ndarray], make_episode: MakeEpisode, home: Backbone, names: tuple[str, ...]
) -> None:
    prediction = method(make_episode(photos["cat"], LabelSpace(names, home)))
    assert_valid(prediction, len(names))
    assert prediction.index == 0 or not knows(home)
    assert len(names) > 1 or prediction.confidence == 1.0


def test_classes_of_the_same_name_tie_and_the_first_wins(
    method: Method, photos: dict[str, np.ndarray], make_episode: MakeEpisode, home: Backbone
) -> None:
    prediction = method(make_episode(photos["cat"], LabelSpace(("dog", "cat", "cat"), home)))
    assert_valid(prediction, 3)
    assert prediction.index == 1 or (prediction.index == 0 and not knows(home))
    if method.name == "zero" or isinstance(method, StreamMethod):  # whose votes, or memory, go to the first
        return
    assert float(prediction.probabilities[1]) == pytest.approx(float(prediction.probabilities[2]), rel=1e-4)


def test_one_view_is_enough(
    method: Method, home: Backbone, photos: dict[str, np.ndarray], make_episode: MakeEpisode
) -> None:
    episode = make_episode(photos["cat"], views=1)
    prediction = method(episode)
    assert_valid(prediction, 10)
    assert not knows(home) or CLASSES[prediction.index] == "cat"


@pytest.mark.slow
def test_a_thousand_classes_are_not_too_many(
    method: Method, home: Backbone, photos: dict[str, np.ndarray], make_episode: MakeEpisode, imagenet: LabelSpace
) -> None:
    prediction = method(make_episode(photos["cup of coffee"], imagenet))
    assert_valid(prediction, 1000)
    assert not knows(home) or imagenet.names[prediction.index] in ("espresso", "coffee mug", "cup", "eggnog")


def test_several_templates_give_one_answer(
    method: Method, photos: dict[str, np.ndarray], make_episode: MakeEpisode, home: Backbone
) -> None:
    labels = LabelSpace(("dog", "cat", "rocket"), home, PROMPT_SETS["generic7"][:3])
    prediction = method(make_episode(photos["cat"], labels))
    assert_valid(prediction, 3)
    assert prediction.index == 1 or not knows(home)


def test_a_method_is_its_settings(method: Method) -> None:
    assert create_method(method.name, **method.settings()) == method
    assert hash(method) == hash(create_method(method.name, **method.settings()))
    assert method.summary
    with pytest.raises(AttributeError):
        method.seed = 1


def test_views_belong_to_the_run(method: Method, make_image: MakeImage, labels: LabelSpace) -> None:
    recipes = [ViewRecipe(count=8, scale=scale) for scale in ((0.1, 0.2), (0.9, 1.0))]
    first, second = (method(Episode(make_image(0), labels, recipe)) for recipe in recipes)
    assert differ(first, second) == method.uses_views


@pytest.fixture(scope="module")
def many(home: Backbone) -> LabelSpace:
    """More classes than are encoded at once, so that gradients go through groups."""
    return LabelSpace([f"thing number {number}" for number in range(70)], home)


def live() -> Counter[str]:
    """Count the episodes, views and tensors that there are."""
    kinds = (Episode, Views, torch.Tensor)
    return Counter(type(found).__name__ for found in gc.get_objects() if issubclass(type(found), kinds))


def test_an_image_leaves_nothing_behind_without_the_collectors_help(
    method: Method, many: LabelSpace, make_episode: MakeEpisode, make_image: MakeImage
) -> None:
    method(make_episode(make_image(0), many))  # what is kept for the label set is there from now on
    with without_collector():
        before = live()
        method(make_episode(make_image(1), many))
        assert live() == before
