from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given, strategies as st

from faircontext.explore import explore, rank_classes, select_confident
from oracles import exploration as oracle


@st.composite
def tables(draw):
    """Draw (view features, class of each column, rho): repeated views and repeated classes tie exactly.

    Scores are small binary fractions, so that they are exact; cases in which rounding could decide are left out.
    """
    dim = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(st.integers(0, 4), min_size=dim, max_size=dim), min_size=1, max_size=4))
    pool = [[value * (1 + index / 8) for value in row] for index, row in enumerate(rows)]
    views = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=12))
    columns = draw(st.lists(st.integers(0, dim - 1), min_size=1, max_size=7))
    return views, columns, draw(st.sampled_from([0.05, 0.3, 0.5, 0.75, 1.0]))


def decided_by_rounding(scores, count):
    distinct = [list(row) for row in {tuple(row) for row in scores}]
    entropies = sorted(oracle.entropy(oracle.log_softmax(row)) for row in distinct)
    columns = {tuple(row[c] for row in scores): count.posterior[c] for c in range(len(scores[0]))}
    return any(b - a < 1e-5 for values in (entropies, sorted(columns.values())) for a, b in pairwise(values))


@given(tables(), st.integers(1, 10), st.sampled_from(["vote", "mean"]))
def test_phi_k_counts_as_by_hand(table, k, aggregation):
    views, columns, rho = table
    scores = [[2.0 * view[c] for c in columns] for view in views]
    expected = oracle.explore(scores, k, rho, aggregation)
    assume(not decided_by_rounding(scores, expected))

    text = torch.eye(len(views[0]))[columns]
    found = explore(torch.tensor(views), text, 2.0, k, rho, aggregation)

    assert found.selected.tolist() == expected.kept
    assert found.choices.tolist() == expected.choices
    assert found.votes.tolist() == expected.votes
    assert found.ranking.tolist() == expected.ranking
    assert found.candidates.tolist() == expected.candidates
    assert found.posterior.tolist() == pytest.approx(expected.posterior, abs=1e-6)
    assert found.entropies.tolist() == pytest.approx(expected.entropies, abs=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 70), st.integers(1, 30), st.sampled_from(["vote", "mean"]))
def test_phi_k_counts_as_by_hand_on_random_features(seed, views, classes, aggregation):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(views, 8, generator=generator, dtype=torch.float64)
    text = torch.randn(classes, 8, generator=generator, dtype=torch.float64)
    expected = oracle.explore((3.0 * features @ text.T).tolist(), 10, 0.3, aggregation)
    found = explore(features, text, 3.0, 10, 0.3, aggregation)
    assert found.selected.tolist() == expected.kept
    assert found.votes.tolist() == expected.votes
    assert found.candidates.tolist() == expected.candidates


@pytest.mark.parametrize(
    ("views", "rho", "kept"),
    [(64, 0.3, 19), (1, 0.3, 1), (8, 0.3, 2), (10, 0.3, 3), (2, 0.3, 1), (64, 1.0, 64), (64, 0.001, 1), (20, 0.15, 3)],
)
def test_the_number_of_kept_views_is_the_floor_of_rho_n_and_at_least_one(views, rho, kept):
    assert len(select_confident(torch.arange(views, dtype=torch.float32), rho)) == kept


def test_a_product_that_rounds_down_in_floating_point_still_counts():
    assert 0.29 * 100 < 29
    assert len(select_confident(torch.zeros(100), 0.29)) == 29


def test_classes_rank_by_the_first_key_then_the_second_then_the_index():
    votes = torch.tensor([1, 2, 1, 2, 0, 1])
    posterior = torch.tensor([0.1, 0.2, 0.3, 0.2, 0.9, 0.1])
    assert rank_classes(votes, posterior).tolist() == [1, 3, 2, 0, 5, 4]


@pytest.mark.parametrize("classes", [2, 7, 40])
@pytest.mark.parametrize("views", [1, 64])
@pytest.mark.parametrize("aggregation", ["vote", "mean"])
def test_classes_with_the_same_features_tie_and_rank_by_index(classes, views, aggregation):
    generator = torch.Generator().manual_seed(classes)
    features, text = torch.randn(views, 384, generator=generator), torch.randn(1, 384, generator=generator)
    found = explore(features, text.expand(classes, -1), 1.0, classes, aggregation=aggregation)
    assert found.posterior.unique().numel() == 1
    assert found.ranking.tolist() == list(range(classes))
