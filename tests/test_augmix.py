"""AugMix on crops: each operation alone, the mixture, its stream, and which methods see its views."""

from collections.abc import Callable

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from faircontext import MTA, TPT, TTL, ZERO, Backbone, Episode, LabelSpace, ViewRecipe, create_method, list_methods
from faircontext.views import _OPERATIONS, augmix, stream
from helpers import assert_identical, same_bits

MakeImage = Callable[..., np.ndarray]
NAMES = "autocontrast equalize posterize rotate solarize shear_x shear_y translate_x translate_y".split()
OPERATIONS = dict(zip(NAMES, _OPERATIONS, strict=True))
LEVELS = [0.1, 0.5, float(np.nextafter(1.0, 0.0))]
SIGNS = [1.0, -1.0]
WITH_AUGMIX = {"tpt", "ctpt", "rlcf", "rlcf_encoder", "tps", "rtpt", "dmn"}
SEEDS = st.integers(0, 2**32 - 1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(size: int = 224, low: int = 0, high: int = 256, seed: int = 0) -> np.ndarray:
    return rng(seed).integers(low, high, (size, size, 3), dtype=np.uint8)


def apply(name: str, image: np.ndarray, level: float, sign: float = 1.0) -> np.ndarray:
    return np.asarray(OPERATIONS[name](PIL.Image.fromarray(image), level, sign)).astype(int)


def crops_of(number: int, size: int = 32, seed: int = 0) -> Tensor:
    return torch.from_numpy(rng(seed).integers(0, 256, (number, 3, size, size), dtype=np.uint8))


class Mixing(np.random.Generator):
    """A stream in which every mixture has the same share of the crop itself, and the same weights of the chains."""

    share: float
    weights: tuple[float, ...]

    def beta(self, *_: float) -> float:
        return self.share

    def dirichlet(self, *_: np.ndarray) -> np.ndarray:
        return np.array(self.weights)


def mixing(share: float, weights: tuple[float, ...] = (0.2, 0.3, 0.5)) -> Mixing:
    generator = Mixing(np.random.PCG64(0))
    generator.share, generator.weights = share, weights
    return generator


# Each operation alone


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [1, 224])
def test_an_operation_keeps_the_shape(name: str, level: float, size: int) -> None:
    for sign in SIGNS:
        changed = apply(name, noise(size), level, sign)
        assert changed.shape == (size, size, 3)
        assert changed.min() >= 0
        assert changed.max() <= 255


@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
def test_contrast_is_stretched_to_the_whole_range_at_every_level(name: str) -> None:
    image = noise(64, 100, 151)
    changed = apply(name, image, 0.1)
    assert (changed.min(), changed.max()) == (0, 255)
    for channel in range(3):
        order = np.argsort(image[..., channel].ravel(), kind="stable")
        assert (np.diff(changed[..., channel].ravel()[order]) >= 0).all()
    assert all(np.array_equal(apply(name, image, level), changed) for level in LEVELS)


def test_autocontrast_is_linear() -> None:
    image = noise(64, 100, 151)
    expected = (image.astype(float) - 100) * 255 / 50
    assert np.abs(apply("autocontrast", image, 0.5) - expected).max() <= 1


def test_equalize_flattens_the_histogram() -> None:
    image = (100 + 50 * rng().beta(5, 1, (224, 224, 3))).astype(np.uint8)
    changed = apply("equalize", image, 0.5)
    assert np.abs(np.quantile(image, [0.25, 0.5, 0.75]) - [64, 128, 191]).min() > 9
    assert np.abs(np.quantile(changed, [0.25, 0.5, 0.75]) - [64, 128, 191]).max() < 20


@pytest.mark.parametrize("level", LEVELS)
def test_posterize_keeps_four_bits(level: float) -> None:
    image = noise()
    changed = apply("posterize", image, level)
    assert np.array_equal(changed, image & 0xF0)
    assert len(np.unique(changed)) == 16


@pytest.mark.parametrize("level", LEVELS)
def test_solarize_inverts_only_the_brightest_values(level: float) -> None:
    image = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    changed, threshold = apply("solarize", image, level), 256 - int(25.6 * level)
    assert threshold >= 231
    touched = changed != image
    assert image[touched].min(initial=255) >= 231
    assert np.array_equal(changed, np.where(image < threshold, image, 255 - image.astype(int)))


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("level", LEVELS)
def test_rotate_turns_by_at_most_two_whole_degrees(level: float, sign: float) -> None:
    image = noise()
    degrees = int(3 * level)
    assert degrees <= 2
    expected = PIL.Image.fromarray(image).rotate(sign * degrees, PIL.Image.Resampling.BILINEAR)
    changed = apply("rotate", image, level, sign)
    assert np.array_equal(changed, np.asarray(expected))
    assert np.array_equal(changed, image) == (level < 1 / 3)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("axis", [0, 1])
def test_translate_moves_by_whole_pixels_and_fills_with_zeros(level: float, sign: float, axis: int) -> None:
    image = noise(224, 1, 256)
    pixels = int(224 / 3 * level / 10)
    assert pixels <= 7
    name = "translate_x" if axis == 1 else "translate_y"
    changed = np.moveaxis(apply(name, image, level, sign), axis, 0)
    source = np.moveaxis(image, axis, 0).astype(int)
    if sign < 0:  # the other way: as in a mirror
        changed, source = changed[::-1], source[::-1]
    assert np.array_equal(changed[: 224 - pixels], source[pixels:])
    assert (changed[224 - pixels :] == 0).all()


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("axis", [0, 1])
def test_shear_moves_each_line_by_at_most_three_percent_of_its_place(level: float, sign: float, axis: int) -> None:
    ramp = np.arange(224, dtype=np.uint8)
    image = np.broadcast_to(ramp[:, None] if axis == 0 else ramp[None], (224, 224))
    changed = apply("shear_x" if axis == 1 else "shear_y", np.stack([image] * 3, -1), level, sign)[..., 0]
    if axis == 0:
        changed = changed.T  # lines along the axis that is sheared
    for line in (0, 50, 200):
        moved = (changed[line] - ramp.astype(int))[10:-10]
        assert np.abs(moved - sign * 0.03 * level * line).max() <= 1.01
    last = changed[223]
    filled = (last[1:] == 0).sum()
    assert filled <= 0.03 * level * 223 + 1


# The mixture


@given(SEEDS, st.integers(0, 5), st.sampled_from([1, 8, 32]))
def test_a_mixture_is_a_picture_of_the_same_shape_and_its_stream_determines_it(
    seed: int, number: int, size: int
) -> None:
    crops = crops_of(number, size, seed)
    before = crops.clone()
    mixed = augmix(crops, rng(seed))
    assert mixed.dtype == torch.uint8
    assert mixed.shape == crops.shape
    assert same_bits(crops, before)
    assert same_bits(mixed, augmix(crops, rng(seed)))


def test_fewer_crops_are_the_first_of_more() -> None:
    crops = crops_of(9)
    assert same_bits(augmix(crops, rng(0))[:4], augmix(crops[:4], rng(0)))


def test_the_share_is_between_the_crop_and_its_chains() -> None:
    crops = crops_of(8)
    chains, half = (augmix(crops, mixing(share)).int() for share in (0.0, 0.5))
    middle = 0.5 * crops + 0.5 * chains
    assert (half - middle).abs().max() <= 1.0
    assert (chains - crops.int()).abs().float().mean() > 3.0


def test_the_chains_are_mixed_by_their_weights() -> None:
    crops = crops_of(8)

    def mixed(*weights: float) -> Tensor:
        return augmix(crops, mixing(0.0, weights)).double()

    alone = [mixed(1, 0, 0), mixed(0, 1, 0), mixed(0, 0, 1)]
    assert not torch.equal(alone[0], alone[1])
    expected = 0.2 * alone[0] + 0.3 * alone[1] + 0.5 * alone[2]
    assert (mixed(0.2, 0.3, 0.5) - expected).abs().max() <= 0.5 + 1e-9


def test_where_operations_do_nothing_so_does_the_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faircontext.views._OPERATIONS", (lambda picture, *_: picture,))
    crops = crops_of(50)
    assert same_bits(augmix(crops, rng(0)), crops)


def test_shares_and_weights_are_uniform() -> None:
    shares, weights = [], []

    class Watching(np.random.Generator):
        def beta(self, a: float, b: float) -> float:
            shares.append(super().beta(a, b))
            return shares[-1]

        def dirichlet(self, alpha: np.ndarray) -> np.ndarray:
            weights.append(super().dirichlet(alpha))
            return weights[-1]

    augmix(crops_of(400, 1), Watching(np.random.PCG64(0)))
    assert np.shape(weights) == (400, 3)
    assert np.abs(np.quantile(shares, [0.1, 0.5, 0.9]) - [0.1, 0.5, 0.9]).max() < 0.06
    # Of three numbers that are uniform on the simplex, each has the distribution 1 - sqrt(1 - u).
    expected = 1 - np.sqrt(1 - np.array([0.1, 0.5, 0.9]))
    assert np.abs(np.quantile(weights, [0.1, 0.5, 0.9], axis=0).T - expected).max() < 0.06


def test_chains_have_one_to_three_operations_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, float, float]] = []

    def record(number: int) -> Callable[..., PIL.Image.Image]:
        def operation(picture: PIL.Image.Image, level: float, sign: float) -> PIL.Image.Image:
            calls.append((number, level, sign))
            return picture

        return operation

    monkeypatch.setattr("faircontext.views._OPERATIONS", tuple(map(record, range(9))))
    depths = []
    for seed in range(150):
        calls_before = len(calls)
        augmix(crops_of(1, 1), rng(seed))
        depths.append(len(calls) - calls_before)
    numbers, levels, signs = zip(*calls, strict=True)
    assert set(depths) == set(range(3, 10))  # three chains of one to three
    assert np.mean(depths) == pytest.approx(6.0, abs=0.3)
    assert np.bincount(numbers).tolist() == pytest.approx([len(calls) / 9] * 9, rel=0.3)
    assert 0.1 <= min(levels) < 0.12
    assert 0.98 < max(levels) < 1.0
    assert np.mean(levels) == pytest.approx(0.55, abs=0.03)
    assert set(signs) == {1.0, -1.0}
    assert abs(np.mean(signs)) < 0.1


# Views of an episode


@pytest.fixture(scope="module")
def labels(tiny: Callable[[str], Backbone]) -> LabelSpace:
    return LabelSpace(("dog", "fire truck", "cat"), tiny("clip"))


@pytest.fixture(scope="module")
def new_episode(labels: LabelSpace, make_image: MakeImage) -> Callable[..., Episode]:
    def make(image: int = 0, seed: int = 0, **recipe: str) -> Episode:
        return Episode(make_image(image), labels, ViewRecipe(count=12, **recipe), seed)

    return make


def test_augmix_is_on_the_crops_and_the_plain_view_is_untouched(new_episode: Callable[..., Episode]) -> None:
    off, on = new_episode(), new_episode(augmix="on")
    assert same_bits(on.views[0], off.views[0])
    assert same_bits(on.views[0], off.plain)
    assert same_bits(on.views[1:], augmix(off.views[1:], stream(0, off.id, "augmix")))
    assert not torch.equal(on.views[1:], off.views[1:])
    assert same_bits(on.z, off.z)


@pytest.mark.parametrize("recipe", [{}, {"augmix": "auto"}, {"augmix": "auto", "regime": "fine-grained"}], ids=str)
def test_an_episodes_own_views_are_plain_unless_augmix_is_on(
    new_episode: Callable[..., Episode], recipe: dict[str, str]
) -> None:
    assert same_bits(new_episode(**recipe).views, new_episode().views)


def test_the_second_set_of_views_is_made_once_and_shares_the_plain_view(new_episode: Callable[..., Episode]) -> None:
    episode = new_episode(augmix="auto", regime="fine-grained")
    second = episode.augmented
    assert second is episode.augmented
    assert second.plain is episode.plain
    assert second.z is episode.z
    assert second.labels is episode.labels
    assert second.id == episode.id
    assert same_bits(second.views, new_episode(augmix="on").views)
    assert same_bits(second.view_features, new_episode(augmix="on").view_features)


@pytest.mark.parametrize("name", list_methods())
def test_auto_gives_augmented_views_on_fine_grained_data_to_the_methods_that_have_them_there(
    new_episode: Callable[..., Episode], name: str
) -> None:
    method = create_method(name)
    for recipe in (
        {},
        {"augmix": "on"},
        {"augmix": "off", "regime": "fine-grained"},
        {"augmix": "on", "regime": "fine-grained"},
        {"augmix": "auto", "regime": "natural"},
    ):
        episode = new_episode(**recipe)
        assert method.view_set(episode) is episode
    episode = new_episode(augmix="auto", regime="fine-grained")
    assert method.view_set(episode) is (episode.augmented if name in WITH_AUGMIX else episode)


def test_on_fine_grained_data_tpt_answers_from_augmented_views_and_zero_mta_and_ttl_from_plain_ones(
    new_episode: Callable[..., Episode],
) -> None:
    shared = new_episode(augmix="auto", regime="fine-grained")
    for method, recipe in ((TPT(), "on"), (ZERO(rho=1.0), "off"), (MTA(), "off"), (TTL(), "off")):
        other = {"on": "off", "off": "on"}[recipe]
        assert_identical(method(shared), method(new_episode(augmix=recipe)))
        different = method(new_episode(augmix=other)).diagnostics
        assert different != method(shared).diagnostics
