"""Estimators of evidence maps: exact on grids whose masks can all be listed, unbiased, smoothed, and their trust."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from faircontext.evidence import BLOCKS, LATTICE, Evidence, Masks, cell_of, sample_masks, sum_masks
from faircontext.metrics.saliency import rank_correlation

GRIDS = (3, 4, 5)


def least_squares_maps(importance: torch.Tensor, masks: Masks, height: int, width: int) -> torch.Tensor:
    return Evidence(importance, masks, height, width, "least-squares").maps


def every_mask(grid: int, chosen: int) -> Masks:
    """Return all masks of a grid that hide a number of cells."""
    cells = []
    for places in combinations(range(grid**2), chosen):
        mask = torch.zeros(grid**2, dtype=torch.bool)
        mask[list(places)] = True
        cells.append(mask.view(grid, grid))
    return Masks(tuple(cells))


def draw(count: int, seed: int = 0, grids: tuple[int, ...] = GRIDS) -> Masks:
    return sample_masks(count, np.random.default_rng(seed), grids, 0.5)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(1.5, 1.0, shape))


def covariance(importance: torch.Tensor, masks: Masks) -> torch.Tensor:
    """Return the covariance of importance with each cell over a whole population of masks."""
    cells = torch.stack(masks.cells).double()
    return torch.einsum("nc,nij->cij", importance - importance.mean(0), cells) / len(masks)


def field(masks: Masks, weights: np.ndarray, noise: float = 0.0, seed: int = 0) -> torch.Tensor:
    """Return importance that is a linear field over pixels: what is hidden of it, plus noise."""
    hidden = masks.pixels(0, len(masks), *weights.shape).double().numpy()
    exact = (hidden * weights).sum((1, 2))
    return torch.from_numpy(exact + noise * np.random.default_rng(seed).normal(size=len(masks)))[:, None]


# Expectations, by listing every mask and every set of masks


@pytest.mark.parametrize(
    ("grid", "chosen", "size"), [(2, 2, 3), (2, 1, 3), pytest.param(3, 4, 2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("estimator", ["paper", "covariance"])
def test_the_mean_over_all_sets_of_masks_is_the_closed_form(grid, chosen, size, estimator):
    masks = every_mask(grid, chosen)
    importance = normal(len(masks), 2)
    total, count = torch.zeros(2, grid, grid, dtype=torch.float64), 0
    for rows in product(range(len(masks)), repeat=size):
        total += Evidence(importance[list(rows)], masks.select(rows), grid, grid, estimator).maps
        count += 1
    constant = importance.mean(0)[:, None, None] * chosen / grid**2  # what the paper's sum has besides
    expected = covariance(importance, masks) + (0 if estimator == "covariance" else constant)
    torch.testing.assert_close(total / count, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("grid", "chosen"), [(2, 2), (3, 4)])
def test_least_squares_finds_a_field_of_cells_from_all_masks(grid, chosen):
    """With k of g^2 cells hidden in every mask, a constant cannot be told from the intercept: the field's mean is 0."""
    masks = every_mask(grid, chosen)
    weights = np.random.default_rng(1).normal(size=(grid, grid))
    found = least_squares_maps(field(masks, weights), masks, grid, grid)[0]
    np.testing.assert_allclose(found / grid**2, weights - weights.mean(), atol=1e-3)


@pytest.mark.parametrize("size", [9, 12, 40])
def test_least_squares_is_ridge_with_the_penalty_of_least_error_left_out(size):
    masks = draw(size, seed=size)
    importance = normal(size, 2, seed=size)
    shares = np.concatenate(
        [
            torch.nn.functional.interpolate(
                masks.pixels(0, size, 60, 60)[:, None].double(), size=(grid, grid), mode="area"
            ).flatten(1)
            / grid
            for grid in GRIDS
        ],
        axis=1,
    )
    found = least_squares_maps(importance, masks, 60, 60)
    best = min(_ridge_by_hand(shares, importance.numpy()), key=lambda fit: fit[0])
    start, expected = 0, np.zeros((2, 60, 60))
    for grid in GRIDS:
        cells = grid * best[1][start : start + grid**2].T.reshape(2, grid, grid)
        expected += np.kron(cells, np.ones((60 // grid, 60 // grid)))
        start += grid**2
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-8)


def _ridge_by_hand(shares: np.ndarray, targets: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Return, for each penalty, the squared error of masks left out one by one, and the weights from all of them."""
    count = len(shares)
    design = np.concatenate([shares, np.ones((count, 1))], axis=1)
    covariance = shares - shares.mean(0)
    largest = np.linalg.eigvalsh(covariance @ covariance.T)[-1]
    fits = []
    for share in 10.0 ** np.arange(-4.0, 2.25, 0.5)[::-1]:
        penalty = np.diag([*np.full(shares.shape[1], share * largest), 0.0])

        def fit(rows: np.ndarray, penalty: np.ndarray = penalty) -> np.ndarray:
            return np.linalg.solve(design[rows].T @ design[rows] + penalty, design[rows].T @ targets[rows])

        missed = np.zeros(targets.shape[1])
        for row in range(count):
            others = np.delete(np.arange(count), row)
            missed += (targets[row] - design[row] @ fit(others)) ** 2 / count
        fits.append((float((missed / targets.var(0)).sum()), fit(np.arange(count))[:-1]))
    return fits


# Variance


def test_covariance_takes_the_mean_of_importance_out_of_the_variance():
    """With importance far from zero, the plain sum's maps vary as its mean, the covariance's as its deviation."""
    deviations = {}
    for estimator in ("paper", "covariance"):
        maps = [
            Evidence(normal(40, 1, seed=seed) + 10.0, draw(40, seed=seed, grids=(4,)), 4, 4, estimator).maps
            for seed in range(60)
        ]
        deviations[estimator] = torch.stack(maps).std(0).mean()
    assert float(deviations["covariance"]) == pytest.approx(1.0 * 0.5 / np.sqrt(40), rel=0.2)
    assert float(deviations["paper"]) > 5 * float(deviations["covariance"])


def test_the_standard_error_is_the_spread_over_sets_of_masks():
    weights = np.zeros((8, 8))
    weights[:4, :4] = 0.1
    found = [
        Evidence(field(masks, weights, noise=1.0, seed=seed), masks, 8, 8, "covariance")
        for seed, masks in ((seed, draw(80, seed=seed, grids=(4,))) for seed in range(50))
    ]
    deviation = torch.stack([evidence.maps[0] for evidence in found]).std(0)
    errors = torch.stack([evidence.error(8)[0] for evidence in found]).mean(0)
    assert float((errors / deviation).mean()) == pytest.approx(1.0, abs=0.1)


# Smoothing and upsampling


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.03, 0.1, 0.5]), st.integers(5, 30), st.integers(5, 30))
def test_upsampling_gives_the_weighted_sum_of_smoothed_masks(seed, smoothing, height, width):
    masks, weights = draw(12, seed=seed), normal(12, 2, seed=seed)

    def kernel(side: int) -> np.ndarray:
        if smoothing == 0.0:
            return np.eye(side)
        place = (np.arange(side) + 0.5) / side
        values = np.exp(-((place[:, None] - place) ** 2) / (2 * smoothing**2))
        return values / values.sum(1, keepdims=True)

    pixels = masks.pixels(0, 12, height, width).double().numpy()
    smooth = np.einsum("ui,nij,vj->nuv", kernel(height), pixels, kernel(width))
    expected = np.einsum("nc,nuv->cuv", weights.numpy(), smooth)
    np.testing.assert_allclose(sum_masks(weights, masks, height, width, smoothing), expected, atol=1e-10)


def test_the_papers_maps_are_to_the_bit_what_they_were():
    masks, importance = draw(30), normal(30, 4).float()
    summed = torch.zeros(4, 50, 40)
    for grid, rows, chosen in masks.by_grid():
        cell = cell_of(grid, 50)[:, None] * grid + cell_of(grid, 40)
        summed += (importance[rows].T @ chosen.float())[:, cell]
    assert torch.equal(Evidence(importance, masks, 50, 40).maps, summed / 30)


@pytest.mark.parametrize("estimator", ["paper", "covariance"])
def test_evidence_of_one_class_against_another_is_the_difference_of_their_maps(estimator):
    evidence = Evidence(normal(30, 3), draw(30), 20, 20, estimator, 0.1)
    contrast = evidence.contrast(2, 0)
    torch.testing.assert_close(contrast.maps[0], evidence.maps[2] - evidence.maps[0])
    assert contrast.reliability.shape == (1,)
    assert contrast.error().shape == (1, LATTICE, LATTICE)


# Reliability


@pytest.mark.parametrize("estimator", ["paper", "covariance", "least-squares"])
def test_reliability_foretells_the_agreement_with_other_masks(estimator):
    weights = np.zeros((28, 28))
    weights[:14, :14] = 0.02
    foretold, seen = [], []
    for seed in range(8):
        first, second = (
            Evidence(field(masks, weights, noise=1.5, seed=at), masks, 28, 28, estimator, 0.1)
            for at, masks in ((at, draw(60, seed=at)) for at in (2 * seed, 2 * seed + 1))
        )
        foretold += [float(first.reliability), float(second.reliability)]
        seen.append(np.corrcoef(first.maps.flatten(), second.maps.flatten())[0, 1])
    assert 0.2 < np.mean(seen) < 0.95
    assert np.mean(foretold) == pytest.approx(np.mean(seen), abs=0.1)


def test_the_reliability_of_noise_is_low_and_that_of_a_clear_field_is_high():
    weights = np.zeros((28, 28))
    weights[10:20, 10:20] = 1.0
    masks = draw(200)
    clear = Evidence(field(masks, weights), masks, 28, 28, "covariance", 0.1)
    noise = Evidence(normal(200, 20), masks, 28, 28, "covariance", 0.1)
    assert float(clear.reliability) > 0.9
    assert float(noise.reliability.mean()) < 0.35
    assert rank_correlation(clear.maps[0], torch.from_numpy(weights)) > 0.5


def test_with_too_few_masks_nothing_is_promised():
    few = Evidence(normal(3, 2), draw(3), 10, 10, "covariance")
    assert few.reliability.tolist() == [0.0, 0.0]
    assert few.error().isinf().all()
    assert Evidence(normal(2 * BLOCKS, 2), draw(2 * BLOCKS), 10, 10, "covariance").error().isfinite().all()
    single = Evidence(normal(1, 2), draw(1), 10, 10, "covariance")
    assert single.maps.abs().max() == 0.0


def test_constant_importance_has_no_evidence():
    constant = Evidence(torch.full((40, 2), 1.3), draw(40), 16, 16, "covariance", 0.1)
    assert constant.maps.abs().max() < 1e-6
    assert (constant.reliability >= 0).all()
    squares = least_squares_maps(torch.full((40, 2), 1.3), draw(40), 16, 16)
    assert squares.isfinite().all()
    assert squares.abs().max() < 1e-5


@given(st.integers(0, 100), st.sampled_from(["paper", "covariance", "least-squares"]))
def test_values_are_finite_and_between_their_bounds(seed, estimator):
    evidence = Evidence(normal(25, 3, seed=seed).float(), draw(25, seed=seed), 24, 24, estimator, 0.1)
    assert evidence.maps.isfinite().all()
    assert evidence.maps.dtype == torch.float32
    assert ((evidence.reliability >= 0) & (evidence.reliability <= 1)).all()
    assert (evidence.error() >= 0).all()
