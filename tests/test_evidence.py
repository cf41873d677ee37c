from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

from faircontext import FCL
from faircontext.calibrate import pair_weights
from faircontext.episode import distinct_maps
from faircontext.errors import ArgumentError
from faircontext.evidence import (
    Evidence,
    Masks,
    common_evidence,
    effective_area,
    match_area,
    sample_masks,
    unique_evidence,
)
from faircontext.methods.variants import FCLVariants
from faircontext.occlusion import occlude, on_patches
from oracles import evidence as oracle

GRIDS = (7, 9, 11, 13)
PAIR = torch.tensor([[0], [1]])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def random_image(height: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(seed))


# Masks


@pytest.mark.parametrize(
    ("grid", "gamma", "chosen"),
    [
        *((7, 0.5, 25), (9, 0.5, 41), (11, 0.5, 61), (13, 0.5, 85)),
        *((7, 0.3, 15), (13, 0.3, 51), (2, 0.375, 2)),
        *((7, 1e-9, 1), (13, 1e-9, 1), (7, 1.0, 48), (13, 1.0, 168)),
    ],
)
def test_a_mask_has_the_rounded_fraction_of_its_cells_but_never_none_or_all(grid, gamma, chosen):
    masks = sample_masks(20, rng(), (grid,), gamma)
    assert [int(cells.sum()) for cells in masks.cells] == [chosen] * 20
    assert {tuple(cells.shape) for cells in masks.cells} == {(grid, grid)}


def test_grid_sizes_are_drawn_uniformly():
    sizes = [len(cells) for cells in sample_masks(2000, rng(), GRIDS, 0.5).cells]
    assert set(sizes) == set(GRIDS)
    assert chisquare([sizes.count(grid) for grid in GRIDS]).pvalue > 0.01


def test_cells_are_chosen_uniformly():
    counts = sum(cells.numpy().astype(int) for cells in sample_masks(2000, rng(), (7,), 0.5).cells)
    assert counts.mean() == pytest.approx(2000 * 25 / 49)
    assert np.abs(counts - counts.mean()).max() < 5 * np.sqrt(2000 * 25 / 49 * 24 / 49)


@pytest.mark.parametrize("gamma", [0.5, (0.1, 0.9)])
def test_the_first_hundred_of_eight_hundred_masks_are_the_run_of_a_hundred(gamma):
    long, short = sample_masks(800, rng(), GRIDS, gamma), sample_masks(100, rng(), GRIDS, gamma)
    assert (len(long), len(short)) == (800, 100)
    assert all(torch.equal(a, b) for a, b in zip(long.cells[:100], short.cells, strict=True))
    assert not any(a.shape == b.shape and torch.equal(a, b) for a, b in pairwise(long.cells))


def test_a_range_of_gamma_gives_each_mask_its_own_fraction():
    counts = [int(cells.sum()) for cells in sample_masks(500, rng(), (10,), (0.2, 0.4)).cells]
    assert min(counts) >= 20
    assert max(counts) <= 40
    assert len(set(counts)) == 21


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("height", "width"), [(50, 50), (37, 64), (5, 6), (1, 20)])
def test_a_pixel_is_masked_if_its_cell_is(grid, height, width):
    masks = sample_masks(3, rng(grid), (grid,), 0.5)
    expected = np.stack([oracle.occluded(cells.numpy(), height, width) for cells in masks.cells])
    assert np.array_equal(masks.pixels(0, 3, height, width).numpy(), expected)


def test_masks_come_at_pixel_resolution_in_any_batches():
    masks = sample_masks(10, rng(), GRIDS, 0.5)
    whole = masks.pixels(0, 10, 30, 40)
    assert torch.equal(
        torch.cat([masks.pixels(0, 4, 30, 40), masks.pixels(4, 8, 30, 40), masks.pixels(8, 12, 30, 40)]), whole
    )
    assert whole.shape == (10, 30, 40)
    assert whole.dtype == torch.bool


# Occlusion


def test_black_occlusion_multiplies_by_one_minus_the_mask():
    image, pixels = random_image(6, 5), sample_masks(4, rng(), (2, 3), 0.5).pixels(0, 4, 6, 5)
    occluded = occlude(image, pixels)
    for mask, result in zip(pixels.numpy(), occluded.numpy(), strict=True):
        assert np.array_equal(result, image.numpy() * (1 - mask.astype(np.float32)))


def test_mean_occlusion_fills_in_the_mean_colour_of_the_image():
    image, pixels = random_image(6, 5), sample_masks(4, rng(), (2, 3), 0.5).pixels(0, 4, 6, 5)
    colour = image.numpy().astype(np.float64).mean((1, 2))[:, None, None]
    for mask, result in zip(pixels.numpy(), occlude(image, pixels, "mean").numpy(), strict=True):
        assert result == pytest.approx(np.where(mask, colour, image.numpy()), abs=1e-6)


def test_blur_occlusion_leaves_other_pixels_and_plain_images_as_they_are():
    image, pixels = random_image(32, 40), sample_masks(4, rng(), GRIDS, 0.5).pixels(0, 4, 32, 40)
    blurred = occlude(image, pixels, "blur")
    kept = ~pixels[:, None].expand(-1, 3, -1, -1)
    assert torch.equal(blurred[kept], image.expand(4, -1, -1, -1)[kept])
    plain = torch.full((3, 32, 40), 0.25)
    assert occlude(plain, pixels, "blur").numpy() == pytest.approx(0.25, abs=1e-6)


# Evidence maps


def evidence_maps(importance: torch.Tensor, masks: Masks, height: int, width: int) -> torch.Tensor:
    return Evidence(importance, masks, height, width).maps


def test_evidence_of_a_class_that_needs_one_cell_is_closed_form():
    # All four masks that hide one cell of a 2 x 2 grid: the class loses 3 nats with cell 0 and gains 1 with cell 3.
    cells = torch.eye(4, dtype=torch.bool).view(4, 2, 2)
    importance = torch.tensor([[3.0], [0.0], [0.0], [-1.0]])
    (evidence,) = evidence_maps(importance, Masks(tuple(cells)), 4, 6)
    expected = np.zeros((4, 6))
    expected[:2, :3], expected[2:, 3:] = 3 / 4, -1 / 4
    assert np.array_equal(evidence.numpy(), expected)


@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from([GRIDS, (2, 3), (5,)]),
)
def test_evidence_maps_are_the_weighted_sum_of_pixel_masks(seed, count, classes, height, width, grids):
    masks = sample_masks(count, rng(seed), grids, 0.5)
    importance = rng(seed + 1).normal(size=(count, classes))
    expected = oracle.evidence_maps(
        importance, [oracle.occluded(cells.numpy(), height, width) for cells in masks.cells]
    )
    found = evidence_maps(torch.from_numpy(importance), masks, height, width)
    assert found.dtype == torch.float64
    assert found.numpy() == pytest.approx(expected, abs=1e-12)


# Common evidence

MAPS = arrays(np.float64, (2, 3, 4), elements=st.floats(-20, 20))


@given(MAPS)
def test_common_evidence_is_the_normalised_product_of_the_softmaxes(maps):
    (common,) = common_evidence(torch.from_numpy(maps), PAIR, "none")
    assert common.sum().item() == pytest.approx(1.0, abs=1e-12)
    assert common.numpy() == pytest.approx(oracle.common_evidence(*maps), rel=1e-9)


@given(MAPS)
def test_common_evidence_scaled_by_its_maximum_has_maximum_one(maps):
    (common,) = common_evidence(torch.from_numpy(maps), PAIR, "max")
    literal = oracle.common_evidence(*maps)
    assert common.max().item() == 1.0
    assert common.numpy() == pytest.approx(literal / literal.max(), rel=1e-9)


@given(MAPS)
def test_common_evidence_stretched_to_the_unit_interval_reaches_both_ends(maps):
    (common,) = common_evidence(torch.from_numpy(maps), PAIR, "minmax")
    total = maps[0] + maps[1]
    if np.ptp(np.exp(total - total.max())) == 0:
        assert np.array_equal(common.numpy(), np.ones((3, 4)))
    else:
        assert (common.min().item(), common.max().item()) == (0.0, 1.0)
        assert (common.flatten()[total.argmin()].item(), common.flatten()[total.argmax()].item()) == (0.0, 1.0)


def test_minmax_stretches_linearly():
    maps = torch.log(torch.tensor([[[1.0, 2.0, 3.0, 5.0]], [[1.0, 1.0, 1.0, 1.0]]], dtype=torch.float64))
    assert common_evidence(maps, PAIR, "minmax").flatten().tolist() == pytest.approx([0.0, 0.25, 0.5, 1.0])


@pytest.mark.parametrize(("scaling", "value"), [("none", 1 / 12), ("max", 1.0), ("minmax", 1.0)])
def test_constant_maps_are_equally_common_everywhere(scaling, value):
    maps = torch.tensor([0.3, -7.0])[:, None, None].expand(2, 3, 4)
    assert common_evidence(maps, PAIR, scaling).numpy() == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("scaling", ["none", "max", "minmax"])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_common_evidence_is_finite_for_huge_ranges(scaling, size):
    maps = torch.linspace(-size, size, 24).view(2, 3, 4)
    common = common_evidence(maps, PAIR, scaling)
    assert common.isfinite().all()
    assert common[0, -1, -1].item() == 1.0
    assert common[0, 0, 0].item() == 0.0


def test_unique_evidence_is_what_the_other_class_does_not_share() -> None:
    maps = torch.tensor(np.random.default_rng(4).normal(size=(2, 6, 5)), dtype=torch.float32)
    found = unique_evidence(maps, torch.tensor([[0, 1], [1, 0]])).double().numpy()
    first, second = maps.double().numpy()

    def stretched(values: np.ndarray) -> np.ndarray:
        return (values - values.min()) / (values.max() - values.min())

    common = stretched(oracle.common_evidence(first, second))
    for own, unique in zip((first, second), found, strict=True):
        np.testing.assert_allclose(unique, stretched(oracle.softmax_over_pixels(own)) * (1 - common), atol=1e-5)


# Effective area


def smooth_maps(seed: int, height: int, width: int, scale: float) -> torch.Tensor:
    """Return maps of some broad bumps, as evidence is."""
    rng_ = rng(seed)
    rows, columns = np.mgrid[:height, :width] / max(height, width)
    maps = [
        sum(
            rng_.normal() * np.exp(-((rows - rng_.random()) ** 2 + (columns - rng_.random()) ** 2) / 0.05)
            for _ in range(4)
        )
        for _ in range(3)
    ]
    return torch.from_numpy(scale * np.stack(maps)).float()


@given(
    st.integers(0, 10_000),
    st.sampled_from([(20, 20), (60, 33), (130, 120)]),
    st.floats(0.02, 0.999),
    st.sampled_from([1e-3, 0.05, 1.0, 30.0]),
)
def test_common_evidence_has_the_area_that_is_asked_for_and_keeps_the_order_of_pixels(seed, size, area, scale):
    maps = smooth_maps(seed, *size, scale)
    found = common_evidence(maps, PAIR, "max", area)
    assert float(effective_area(found)) == pytest.approx(area, rel=2e-3)
    assert float(found.max()) == 1.0
    total = (maps[0] + maps[1]).flatten()
    assert (found[0].flatten()[total.argsort()].diff() >= 0).all()


@pytest.mark.parametrize("scaling", ["max", "minmax", "none"])
def test_an_area_of_one_is_the_whole_image(scaling):
    maps = smooth_maps(0, 30, 20, 1.0)
    found = common_evidence(maps, PAIR, scaling, 1.0)
    expected = torch.full((1, 30, 20), 1 / 600 if scaling == "none" else 1.0)
    torch.testing.assert_close(found, expected)
    assert float(effective_area(found)) == pytest.approx(1.0)


@pytest.mark.parametrize("scaling", ["max", "minmax"])
def test_an_area_below_a_pixel_is_the_peak(scaling):
    maps = smooth_maps(1, 30, 20, 1.0)
    found = common_evidence(maps, PAIR, scaling, 1e-9)
    peak = (maps[0] + maps[1]) == (maps[0] + maps[1]).max()
    assert torch.equal(found[0], peak.float())
    assert float(effective_area(found)) == pytest.approx(int(peak.sum()) / 600)


def test_even_evidence_has_no_peak_whatever_area_is_asked_for():
    even = torch.full((2, 12, 12), 0.3)
    assert torch.equal(common_evidence(even, PAIR, "max", 0.1), torch.ones(1, 12, 12))


def test_maxima_that_tie_share_the_peak():
    maps = torch.zeros(1, 10, 10)
    maps[0, :5] = 1.0
    assert torch.equal((match_area(maps, 0.2)).exp()[0, :5], torch.ones(5, 10))
    assert float(effective_area(match_area(maps, 0.2).exp())) == pytest.approx(0.5)
    assert float(effective_area(match_area(maps, 0.8).exp())) == pytest.approx(0.8, rel=2e-3)


def test_the_area_of_some_maps_is_known():
    weights = torch.zeros(3, 4, 5)
    weights[0] = 2.0
    weights[1, 0, 0] = 7.0
    weights[2, :2] = 0.5
    assert effective_area(weights).tolist() == pytest.approx([1.0, 1 / 20, 0.5])


def test_the_area_does_not_depend_on_the_maps_beside_it():
    maps = torch.cat([smooth_maps(seed, 120, 120, 10.0**-seed) for seed in range(3)])
    together = match_area(maps, 0.25)
    for index in range(len(maps)):
        torch.testing.assert_close(match_area(maps[index : index + 1], 0.25)[0], together[index], rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("area", [0.0, 2.0, -0.1, float("nan")])
def test_an_area_that_is_none_is_refused(area):
    with pytest.raises(ArgumentError, match=r"area=.* is not possible; it must lie above 0.0 and at most at 1.0"):
        common_evidence(torch.zeros(2, 4, 4), PAIR, "max", area)


# Patches that are left out


def test_patches_of_a_grid_that_divides_them_are_those_of_its_cells() -> None:
    masks = on_patches(sample_masks(6, rng(), (2, 4), 0.5), 4, 0.5)
    assert masks.drawn is not None
    for grid, patches, cells in zip(masks.drawn, masks.cells, sample_masks(6, rng(), (2, 4), 0.5).cells, strict=True):
        assert torch.equal(patches, cells.repeat_interleave(4 // grid, 0).repeat_interleave(4 // grid, 1))


@given(st.sampled_from([2, 5, 7, 9, 13]), st.sampled_from([2, 7, 14]), st.floats(0.05, 0.95), st.integers(0, 99))
def test_the_most_covered_patches_are_hidden_equally_many_in_each_mask(grid, side, gamma, seed):
    drawn = sample_masks(5, rng(seed), (grid,), gamma)
    masks = on_patches(drawn, side, gamma)
    count = min(max(int(np.floor(gamma * side**2 + 0.5)), 1), side**2 - 1)
    fine = grid * side  # divides both, so that covered shares are counts
    for cells, hidden in zip(drawn.cells, masks.cells, strict=True):
        covered = Masks((cells,)).pixels(0, 1, fine, fine)[0].unflatten(0, (side, grid)).unflatten(2, (side, grid))
        covered = covered.sum((1, 3))
        assert int(hidden.sum()) == count
        assert covered[hidden].min() >= covered[~hidden].max()
    assert masks.grids == drawn.grids == (grid,)


def test_the_first_masks_on_patches_are_those_of_a_shorter_run() -> None:
    masks = on_patches(sample_masks(20, rng(), GRIDS, 0.5), 14, 0.5)
    short = on_patches(sample_masks(3, rng(), GRIDS, 0.5), 14, 0.5)
    assert all(torch.equal(a, b) for a, b in zip(masks.first(3).cells, short.cells, strict=True))
    assert masks.first(3).drawn == short.drawn
    assert masks.select([4, 0]).drawn == (masks.drawn[4], masks.drawn[0])


def test_least_squares_explains_patches_by_the_cells_of_the_drawn_grids() -> None:
    masks = sample_masks(60, rng(), (2, 4), 0.5)
    costs = torch.stack([cells.float().mean() + cells[0, 0] for cells in masks.cells])[:, None]
    own, left_out = (Evidence(costs, each, 8, 8, "least-squares").maps for each in (masks, on_patches(masks, 4, 0.5)))
    torch.testing.assert_close(left_out, own)  # 2 and 4 divide the patches, so that the same is hidden


def test_a_range_of_fractions_hides_no_equal_number_of_patches() -> None:
    message = r'gamma=\(0.3, 0.7\) is not possible with occluder="drop", where all masks hide equally many patches'
    with pytest.raises(ArgumentError, match=message):
        on_patches(sample_masks(2, rng(), (7,), (0.3, 0.7)), 14, (0.3, 0.7))
    with pytest.raises(ArgumentError, match=message):  # before any image
        FCLVariants(occluder="drop", gamma=(0.3, 0.7))


# Pairs


@given(st.integers(1, 14), st.integers(0, 99))
def test_pairs_are_those_with_a_top_candidate(count: int, seed: int) -> None:
    ranking = torch.from_numpy(rng(seed).permutation(count))
    pairs = FCLVariants(pairs="top3").choose_pairs(ranking).T.tolist()
    top = set(ranking[:3].tolist())
    every = [[i, j] for i in range(count) for j in range(i + 1, count)]
    assert FCL().choose_pairs(ranking).T.tolist() == every
    assert pairs == [pair for pair in every if top & set(pair)]
    rest = max(count - 3, 0)
    assert len(pairs) == len(every) - rest * (rest - 1) // 2


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_equal_maps_are_known_as_one(kinds: list[int]) -> None:
    different = torch.rand(5, 6, 7, generator=torch.Generator().manual_seed(0))
    different[1] = different[0].flip(0)  # the same sum, another map
    maps = different[kinds]
    firsts, likes = distinct_maps(maps)
    assert firsts == [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    assert torch.equal(maps[firsts][likes], maps)


# A weight of a pair


@given(st.floats(-8.0, 8.0), st.floats(-8.0, 8.0), st.lists(st.floats(-8.0, 8.0), max_size=8))
def test_no_pair_has_weight_zero_where_scores_differ_by_sixteen_at_most(first, second, others):
    posterior = torch.tensor([first, second, *others], dtype=torch.float32).softmax(-1)
    assert float(pair_weights(posterior, PAIR)) > 0.0
