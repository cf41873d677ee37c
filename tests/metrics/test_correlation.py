"""Correlation of clustered points, against scipy and against what is known by hand."""

from math import isnan

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import clustered_correlation


@pytest.fixture
def points() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 12, 200).astype(np.float64)  # with ties
    return first, -first + rng.normal(0, 4, 200), np.repeat(np.arange(20), 10)


def test_values_are_those_of_scipy(points: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    first, second, clusters = points
    for kind, reference in (("pearson", pearsonr), ("spearman", spearmanr)):
        found = clustered_correlation(first, second, clusters, kind, resamples=50)
        assert found is not None
        assert found.value == pytest.approx(reference(first, second).statistic)
        assert found.low < found.value < found.high


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_copies_of_a_point_in_its_cluster_add_no_knowledge(kind: str) -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(size=30)
    second = first + rng.normal(size=30)
    one = clustered_correlation(first, second, np.arange(30), kind, resamples=200)
    copied = [np.repeat(column, 8) for column in (first, second)]
    many = clustered_correlation(*copied, np.repeat(np.arange(30), 8), kind, resamples=200)
    naive = clustered_correlation(*copied, np.arange(240), kind, resamples=200)
    assert one is not None
    assert many is not None
    assert naive is not None
    assert (many.low, many.high) == pytest.approx((one.low, one.high))
    assert naive.high - naive.low < 0.6 * (many.high - many.low)


def test_what_does_not_vary_has_no_correlation_and_one_cluster_no_interval() -> None:
    first = np.arange(5.0)
    assert clustered_correlation(first, np.ones(5), np.arange(5)) is None
    found = clustered_correlation(first, first, np.zeros(5, np.int64))
    assert found is not None
    assert found.value == pytest.approx(1)
    assert isnan(found.low)
    assert isnan(found.high)


def test_values_that_are_not_finite_and_no_points_are_refused() -> None:
    with pytest.raises(ArgumentError, match="not all finite"):
        clustered_correlation(np.array([0.0, np.nan]), np.ones(2), np.arange(2))
    with pytest.raises(ArgumentError, match="first is empty"):
        clustered_correlation(np.ones(0), np.ones(0), np.arange(0))
    with pytest.raises(ArgumentError, match="resamples=0"):
        clustered_correlation(np.ones(2), np.ones(2), np.arange(2), resamples=0)
