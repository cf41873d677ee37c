import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import distance_transform_edt
from scipy.stats import rankdata
from sklearn.metrics import jaccard_score, roc_auc_score
from test_errors import unchecked
from torchcam.metrics import DeletionInsertionMetric

from faircontext import Episode, LabelSpace
from faircontext.errors import ArgumentError
from faircontext.evidence import Evidence, sample_masks
from faircontext.metrics.saliency import (
    Curve,
    deletion,
    insertion,
    localise,
    pointing_game,
    rank_correlation,
    top_overlap,
)
from faircontext.occlusion import occlude
from helpers import CLASSES

SIDE = 8
PIXELS = SIDE * SIDE
maps = arrays(np.float64, (SIDE, SIDE), elements=st.integers(-20, 20).map(float))


def random_map(seed: int, height: int = SIDE, width: int = SIDE) -> torch.Tensor:
    """A map without ties."""
    return torch.randperm(height * width, generator=torch.Generator().manual_seed(seed)).double().view(height, width)


def random_image(seed: int, height: int = SIDE, width: int = SIDE) -> torch.Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(weights: torch.Tensor):
    """A model that sums its pixels with weights; on a white image each pixel adds its own."""
    return lambda images: (images.mean(1) * weights).sum((1, 2))


WHITE = torch.ones(3, SIDE, SIDE, dtype=torch.float64)


# Insertion and deletion


def test_the_curves_of_a_linear_model_are_cumulative_sums_of_its_weights():
    weights = random_map(0)
    falling = np.sort(weights.numpy().ravel())[::-1]
    added = np.concatenate([[0], falling.cumsum()])[:: PIXELS // 16]
    curve = insertion(linear(weights), WHITE, weights, steps=16, baseline="black")
    np.testing.assert_array_equal(curve.fractions, np.arange(17) / 16)
    np.testing.assert_allclose(curve.scores, added, atol=1e-9)
    curve = deletion(linear(weights), WHITE, weights, steps=16)
    np.testing.assert_allclose(curve.scores, falling.sum() - added, atol=1e-9)


def test_a_constant_map_takes_pixels_in_reading_order():
    seen = []
    insertion(lambda images: seen.append(images) or images.sum((1, 2, 3)), WHITE, torch.ones(SIDE, SIDE), steps=PIXELS)
    deletion(lambda images: seen.append(images) or images.sum((1, 2, 3)), WHITE, torch.ones(SIDE, SIDE), steps=PIXELS)
    taken = (torch.cat(seen)[-PIXELS - 1 :, 0] == 0).flatten(1).long()
    torch.testing.assert_close(taken, torch.ones(PIXELS + 1, PIXELS).tril(-1).long())


@given(maps, st.integers(1, PIXELS), st.sampled_from(["black", "mean", "blur"]))
def test_areas_of_a_linear_model_add_up_to_the_scores_of_image_and_baseline(saliency, steps, baseline):
    score, image = linear(random_map(4) / PIXELS), random_image(4)
    inserted = insertion(score, image, saliency, steps=steps, baseline=baseline)
    deleted = deletion(score, image, saliency, steps=steps, baseline=baseline)
    nothing = occlude(image, torch.ones(1, SIDE, SIDE, dtype=torch.bool), baseline)
    ends = score(torch.cat([image[None], nothing])).numpy()
    np.testing.assert_allclose([inserted.scores[-1], inserted.scores[0]], ends, atol=1e-9)
    np.testing.assert_allclose([deleted.scores[0], deleted.scores[-1]], ends, atol=1e-9)
    assert inserted.area + deleted.area == pytest.approx(ends.sum(), abs=1e-9)


@given(maps, st.sampled_from([np.cbrt, lambda m: 3 * m + 1, lambda m: np.exp(m / 10)]))
def test_only_the_order_of_a_map_counts(saliency, monotone):
    score, image, other = linear(random_map(5)), random_image(5), random_map(6).numpy()
    for run in (insertion, deletion):
        assert run(score, image, saliency, steps=9).area == run(score, image, monotone(saliency), steps=9).area
    assert rank_correlation(saliency, other) == rank_correlation(monotone(saliency), other) or np.ptp(saliency) == 0
    assert top_overlap(saliency, other) == top_overlap(monotone(saliency), other)
    region = other > 50
    assert pointing_game(saliency, region, 1) == pointing_game(monotone(saliency), region, 1)


@pytest.mark.parametrize("steps", [1, 5, 16, 64])
def test_images_are_scored_in_batches_with_the_same_curve(steps):
    sizes = []

    def score(images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        return images.flatten(1).std(1)

    saliency, image = random_map(7), random_image(7)
    curves = [insertion(score, image, saliency, steps=steps, batch_size=size) for size in (1, 4, 100)]
    assert sizes == [1] * (steps + 1) + [min(4, steps + 1 - i) for i in range(0, steps + 1, 4)] + [steps + 1]
    for curve in curves:
        np.testing.assert_array_equal(curve.scores, curves[0].scores)


def test_portions_are_equal_up_to_a_pixel_and_are_what_the_fractions_say():
    saliency = random_map(8, 5, 7)
    image = torch.ones(3, 5, 7)
    curve = insertion(lambda images: images.mean((1, 2, 3)), image, saliency, steps=12, baseline="black")
    np.testing.assert_allclose(curve.scores, curve.fractions, atol=1e-6)
    portions = np.diff(curve.fractions * 35).round().astype(int)
    assert set(portions) == {2, 3}
    assert portions.sum() == 35


def test_the_area_is_that_of_trapezoids():
    curve = Curve(np.array([0, 0.25, 1]), np.array([0, 1, 0.5]))
    assert curve.area == 0.25 * 0.5 + 0.75 * 0.75


def test_a_map_may_be_an_array_or_a_tensor_of_any_precision():
    saliency, image, score = random_map(9), random_image(9), linear(random_map(2))
    expected = deletion(score, image, saliency).area
    for same in (saliency.numpy(), saliency.bfloat16(), saliency.float().requires_grad_()):
        assert deletion(score, image, same).area == expected


def test_no_graph_is_kept_and_what_the_model_makes_stays_fit_for_gradients():
    weights, made = torch.ones(SIDE, SIDE, dtype=torch.float64, requires_grad=True), []

    def score(images: torch.Tensor) -> torch.Tensor:
        made.append(images)
        return linear(weights)(images)

    insertion(score, WHITE, torch.zeros(SIDE, SIDE))
    linear(weights)(made[0]).sum().backward()
    assert weights.grad is not None


# Against torchcam: a map that is given in place of an extractor, and a small network


class Given:
    """What torchcam's metric asks of an extractor: here the map is known."""

    def __init__(self, model: torch.nn.Module, saliency: torch.Tensor) -> None:
        self.model, self.saliency = model, saliency

    def __call__(self, *_args, **_kwargs) -> list[torch.Tensor]:
        return [self.saliency[None]]

    def fuse_cams(self, cams: list[torch.Tensor]) -> torch.Tensor:
        return cams[0]

    def _hooks_off(self):
        return nullcontext()


@pytest.mark.parametrize("baseline", ["black", "mean", "blur"])
@pytest.mark.parametrize("steps", [1, 8, 32, 384])
@pytest.mark.parametrize("tied", [False, True])
def test_torchcam_finds_the_same_areas(baseline, steps, tied):
    # torchcam takes portions of ceil(pixels / steps), the last one smaller; where steps divide pixels they are ours.
    height, width = 16, 24
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3, stride=2), torch.nn.Tanh(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten()
    )
    model = torch.nn.Sequential(model, torch.nn.Linear(24, 5), torch.nn.Softmax(-1)).double().eval()
    image, saliency = random_image(10, height, width), random_map(10, height, width)
    if tied:
        saliency = saliency // 50
    hidden = occlude(image, torch.ones(1, height, width, dtype=torch.bool), baseline)
    metric = DeletionInsertionMetric(Given(model, saliency), steps=steps, baseline=hidden)
    metric.update(image[None], 3)

    def score(images: torch.Tensor) -> torch.Tensor:
        return model(images)[:, 3]

    found = {
        "deletion_auc": deletion(score, image, saliency, steps=steps, baseline=baseline).area,
        "insertion_auc": insertion(score, image, saliency, steps=steps, baseline=baseline).area,
    }
    assert found == pytest.approx(metric.summary(), abs=1e-6)  # its fractions are in float32


# The pointing game


@pytest.mark.parametrize(
    ("tolerance", "hit"), [(0, False), (4.9, False), (5, True), (15, True)], ids=lambda value: str(value)
)
def test_the_tolerance_is_a_radius_in_pixels(tolerance, hit):
    saliency = np.zeros((40, 40))
    saliency[13, 24] = 1  # 3 below and 4 right of the box's last pixel, (10, 20)
    assert pointing_game(saliency, (5, 5, 21, 11), tolerance) is hit
    assert pointing_game(saliency, (24, 13, 25, 14), 0)
    assert not pointing_game(saliency, (25, 13, 26, 14), 0)


def test_of_several_maxima_the_first_counts():
    saliency = np.zeros((6, 6))
    saliency[1, 4] = saliency[4, 1] = 1
    assert pointing_game(saliency, (4, 1, 5, 2), 0)
    assert not pointing_game(saliency, (1, 4, 2, 5), 0)


@given(maps, arrays(np.bool_, (SIDE, SIDE)), st.integers(0, 8))
def test_a_hit_is_what_the_distance_transform_says(saliency, region, tolerance):
    region[3, 3] = True
    distance = distance_transform_edt(~region).ravel()[saliency.argmax()]
    assert pointing_game(saliency, region, tolerance) == (distance <= tolerance)


@given(st.integers(0, 1000), st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3), st.integers(1, 3)))
def test_a_box_is_the_mask_of_its_pixels(seed, place):
    left, top, width, height = place
    region = np.zeros((SIDE, SIDE), np.bool_)
    region[top : top + height, left : left + width] = True
    box = (left, top, left + width, top + height)
    assert pointing_game(random_map(seed), box, 2) == pointing_game(random_map(seed), region, 2)


# Agreement


@given(maps, maps)
def test_rank_correlation_is_that_of_mean_ranks(first, second):
    found = rank_correlation(first, second)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert math.isnan(found)
        return
    expected = np.corrcoef(rankdata(first), rankdata(second))[0, 1]
    assert found == pytest.approx(expected, abs=1e-12)
    assert found == pytest.approx(rank_correlation(second, first), abs=1e-12)
    assert rank_correlation(first, first) == pytest.approx(1)
    assert rank_correlation(first, -first) == pytest.approx(-1)


@given(maps, maps, st.floats(0.01, 1))
def test_overlap_is_jaccards_index_of_the_top_pixels(first, second, fraction):
    number = max(1, int(fraction * PIXELS + 0.5))
    tops = [np.isin(np.arange(PIXELS), np.argsort(-m.ravel(), kind="stable")[:number]) for m in (first, second)]
    assert top_overlap(first, second, fraction) == pytest.approx(jaccard_score(*tops), abs=1e-12)
    assert top_overlap(first, second, fraction) == top_overlap(second, first, fraction)


def test_overlaps_that_are_known():
    rising = np.arange(100.0).reshape(10, 10)
    assert top_overlap(rising, rising) == 1
    assert top_overlap(rising, -rising) == 0
    assert top_overlap(rising, -rising, 1) == 1
    assert top_overlap(rising, np.roll(rising, 1, 0)) == 10 / 30  # a tenth of the pixels in both
    assert top_overlap(rising, rising, 1e-9) == 1  # of one pixel


# On a photo


@pytest.mark.slow
def test_evidence_of_the_true_class_beats_its_negative_on_a_photo(lite0, make_episode, photos):
    labels = LabelSpace(CLASSES, lite0)
    episode: Episode = make_episode(photos["cat"], labels)
    label = labels.names.index("cat")

    def posterior(images: torch.Tensor) -> torch.Tensor:
        return (lite0.logit_scale * lite0.encode_image(images) @ labels.zero_shot_text.T).softmax(-1)[:, label]

    masks = sample_masks(64, np.random.default_rng(0), (7, 9), 0.5)
    size = lite0.image_size
    pixels = [occlude(episode.x, masks.pixels(start, start + 16, size, size)) for start in range(0, 64, 16)]
    rise = -torch.cat([posterior(part) for part in pixels]).log() + posterior(episode.x[None]).log()
    (evidence,) = Evidence(rise[:, None], masks, size, size).maps
    areas = {
        (run.__name__, sign): run(posterior, episode.x, sign * evidence, steps=14).area
        for run in (insertion, deletion)
        for sign in (1, -1)
    }
    assert areas["insertion", 1] > areas["insertion", -1] + 0.05
    assert areas["deletion", 1] < areas["deletion", -1] - 0.03  # 0.04 in float32, more in bfloat16
    assert 0 <= min(areas.values()) <= max(areas.values()) <= 1


# Refusals

ONES = np.ones((4, 4))
IMAGE = torch.ones(3, 4, 4)
HOLE = np.where(np.arange(16).reshape(4, 4) == 5, np.nan, 1.0)


def bright(images: torch.Tensor) -> torch.Tensor:
    return images.mean((1, 2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: insertion(bright, IMAGE, np.ones((4, 5))), "saliency is 4 by 5 and image 4 by 4; a map has a value"),
        (lambda: insertion(bright, IMAGE, HOLE), "saliency has a value that is not finite"),
        (lambda: insertion(bright, IMAGE, ONES[0]), r"saliency has shape \(4,\); a map has a value for each pixel"),
        (lambda: insertion(bright, IMAGE, ONES[:0]), r"saliency has shape \(0, 4\)"),
        (lambda: deletion(bright, IMAGE[0], ONES), r"image of shape \(4, 4\) is not possible"),
        (lambda: deletion(bright, IMAGE * torch.inf, ONES), "image of shape .* finite values"),
        (lambda: deletion(bright, IMAGE, ONES, steps=0), "steps=0 is not possible; it must lie between 1 and the 16"),
        (lambda: deletion(bright, IMAGE, ONES, steps=17), "steps=17 is not possible"),
        (lambda: deletion(bright, IMAGE, ONES, steps=4, batch_size=0), "batch_size=0 is not possible"),
        (lambda: deletion(bright, IMAGE, ONES, steps=4, baseline="red"), "baseline='red' is not possible"),
        (lambda: insertion(lambda i: i, IMAGE, ONES, steps=4), r"score gives a tensor of shape \(5, 3, 4, 4\) for 5"),
        (lambda: insertion(lambda i: bright(i).log() * 0, IMAGE, ONES, steps=4, baseline="black"), "score gives a val"),
        (lambda: pointing_game(ONES, np.ones((4, 5), np.bool_)), "region is 4 by 5 and saliency 4 by 4"),
        (lambda: pointing_game(ONES, np.zeros((4, 4), np.bool_)), "region is empty"),
        (lambda: pointing_game(ONES, (2, 0, 2, 4)), r"region=\(2, 0, 2, 4\) is not possible; write \(left, top"),
        (lambda: pointing_game(ONES, (0, 0, 4, 5)), r"region=\(0, 0, 4, 5\) is not possible"),
        (lambda: pointing_game(ONES, (0, 0, 4, 4), -1), "tolerance=-1 is not possible"),
        (lambda: pointing_game(HOLE, (0, 0, 4, 4)), "saliency has a value that is not finite"),
        (lambda: rank_correlation(ONES, ONES[1:]), "first is 4 by 4 and second 3 by 4; give maps of one size"),
        (lambda: rank_correlation(ONES, HOLE), "second has a value that is not finite"),
        (lambda: top_overlap(HOLE, ONES), "first has a value that is not finite"),
        (lambda: top_overlap(ONES, ONES, 0), "fraction=0 is not possible"),
        (lambda: top_overlap(ONES, ONES, 1.1), "fraction=1.1 is not possible"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(call, message):
    with unchecked(), pytest.raises(ArgumentError, match=message):
        call()


def test_localisation_of_known_maps() -> None:
    regions = np.array([[0, 0, 1], [2, 2, 1]])
    found = localise(np.array([[3.0, 2.0, 1.0], [0.0, -1.0, -2.0]]), regions)
    assert found.auc.tolist() == [1.0, 0.25, 0.25]
    assert found.pointing.tolist() == [1.0, 0.0, 0.0]
    assert found.energy.tolist() == pytest.approx([5 / 6, 1 / 6, 0.0])


def test_localisation_of_maps_that_say_nothing() -> None:
    regions = np.array([[0, 0, 1], [2, 2, 2]])
    flat = localise(np.full((2, 3), -1.0), regions)
    assert flat.auc.tolist() == [0.5, 0.5, 0.5]
    assert flat.pointing.tolist() == pytest.approx([2 / 6, 1 / 6, 3 / 6])
    assert flat.energy.tolist() == [0.0, 0.0, 0.0]


def test_auc_of_regions_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    values, regions = rng.integers(0, 9, (12, 15)).astype(float), rng.integers(0, 4, (12, 15))
    found = localise(torch.from_numpy(values).float(), regions)
    for region, auc in enumerate(found.auc):
        assert auc == pytest.approx(roc_auc_score(regions.ravel() == region, values.ravel()))


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        (np.zeros((2, 2), int), "regions must be two or more"),
        (np.array([[0, 2], [2, 0]]), "regions must be two or more, counted from 0, each with a pixel"),
        (np.array([[0, -1], [1, 0]]), "regions must be two or more"),
        (np.array([[0, 1, 1]]), "regions is 1 by 3 and saliency 2 by 2"),
    ],
)
def test_regions_that_are_none(regions: np.ndarray, message: str) -> None:
    with unchecked(), pytest.raises(ArgumentError, match=message):
        localise(np.eye(2), regions)
