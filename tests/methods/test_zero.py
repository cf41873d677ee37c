"""ZERO's vote: as counted by hand, where it ties, and at the temperature of half precision."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, strategies as st
from torch import Tensor

from faircontext import ZERO, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot
from helpers import assert_valid
from oracles import zero as oracle

SEEDS = st.integers(0, 2**32 - 1)
MakeUp = Callable[[Tensor, Tensor], Episode]


def normal(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def unit(rows: int, columns: int, seed: int) -> Tensor:
    return F.normalize(normal(rows, columns, seed), dim=-1)


@pytest.fixture(scope="module")
def made_up(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> MakeUp:
    """Return a function that makes an episode with given features of views and classes."""

    def make(views: Tensor, text: Tensor) -> Episode:
        labels = LabelSpace([f"class {number}" for number in range(len(text))], tiny("clip"))
        episode = Episode(make_image(0), labels, ViewRecipe(count=len(views)))
        vars(labels)["zero_shot_text"], episode.known["view_features"] = text, views
        return episode

    return make


def sure_views(*views: tuple[int, float], classes: int = 4) -> tuple[Tensor, Tensor]:
    """Views with a cosine to the text of one class each, and zero to the others': the larger, the surer."""
    text = torch.eye(32)[:classes]
    rows = torch.zeros(len(views), 32)
    for row, (chosen, cosine) in zip(rows, views, strict=True):
        row[chosen], row[-1] = cosine, (1 - cosine**2) ** 0.5
    return rows, text


@given(SEEDS, st.integers(1, 64), st.integers(1, 8), st.floats(0.01, 1.0))
def test_a_hard_vote_is_numpys_majority(made_up: MakeUp, seed: int, number: int, classes: int, rho: float) -> None:
    views, text = unit(number, 32, seed), unit(classes, 32, seed + 1)
    episode = made_up(views, text)
    cosines = views.double().numpy() @ text.double().numpy().T
    expected = oracle.vote(cosines, episode.backbone.logit_scale, rho)
    prediction = ZERO(rho=rho)(episode)
    assert prediction.index == expected.answer
    assert prediction.votes.tolist() == expected.votes
    assert prediction.diagnostics["views"] == tuple(expected.kept)
    assert prediction.diagnostics["views_selected"] == len(expected.kept)
    shares = np.array(expected.votes) / len(expected.kept)
    np.testing.assert_allclose(prediction.probabilities, shares, rtol=0, atol=1e-6)
    counts = prediction.votes[prediction.ranking].tolist()
    assert counts == sorted(counts, reverse=True)
    assert prediction.fallback is None
    assert_valid(prediction, classes)


@given(SEEDS, st.integers(1, 64), st.integers(1, 8), st.floats(0.01, 1.0))
def test_at_the_temperature_of_half_precision_views_share_their_votes(
    made_up: MakeUp, seed: int, number: int, classes: int, rho: float
) -> None:
    views, text = unit(number, 32, seed), unit(classes, 32, seed + 1)
    episode = made_up(views, text)
    cosines = views.double().numpy() @ text.double().numpy().T
    shares = oracle.half_precision_shares(cosines, episode.backbone.logit_scale, rho)
    prediction = ZERO(rho=rho, temperature="eps_fp16")(episode)
    # In float32 a cosine is exact to 6e-8, and here multiplied by 1024.
    np.testing.assert_allclose(prediction.probabilities, shares, rtol=0, atol=1e-4)
    top = np.sort(shares)[-2:]
    if len(top) == 1 or top[1] - top[0] > 1e-4:
        assert prediction.index == oracle.half_precision_answer(cosines, episode.backbone.logit_scale, rho)
    assert shares[prediction.index] == pytest.approx(shares.max(), abs=1e-4)
    assert prediction.votes is None
    assert prediction.fallback is None
    assert_valid(prediction, classes)


def test_a_small_gap_is_shared_at_the_temperature_of_half_precision(made_up: MakeUp) -> None:
    text = torch.eye(32)[:2]
    view = F.normalize(torch.tensor([[0.3, 0.298] + [0.0] * 29 + [0.9]]), dim=-1)
    gap = float(view[0, 0] - view[0, 1])
    prediction = ZERO(temperature="eps_fp16")(made_up(view, text))
    assert float(prediction.probabilities[0]) == pytest.approx(1 / (1 + np.exp(-1024 * gap)), abs=1e-4)
    assert ZERO()(made_up(view, text)).probabilities.tolist() == [1.0, 0.0]


TEMPERATURES = ("hard", "eps_fp16")


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(
    ("views", "rho", "kept", "shares", "order"),
    [
        # View 4 is surer, but chooses neither; view 3 comes before view 2.
        (((0, 0.9), (1, 0.8), (0, 0.4), (1, 0.5), (2, 0.7)), 0.4, (0, 1), [0.5, 0.5, 0.0, 0.0], [1, 0]),
        (((0, 0.9), (1, 0.8), (0, 0.4), (1, 0.5)), 0.5, (0, 1), [0.5, 0.5, 0.0, 0.0], [1, 0]),
        # No discarded view chooses a tied class: the most confident view does.
        (((1, 0.8), (2, 0.9), (0, 0.4), (3, 0.5)), 0.5, (1, 0), [0.0, 0.5, 0.5, 0.0], [2, 1]),
        (((1, 0.8), (2, 0.9)), 1.0, (1, 0), [0.0, 0.5, 0.5, 0.0], [2, 1]),
    ],
)
def test_a_tie_goes_to_the_most_confident_discarded_view_that_chooses_a_tied_class(
    made_up: MakeUp, temperature: str, views: tuple, rho: float, kept: tuple, shares: list[float], order: list[int]
) -> None:
    prediction = ZERO(rho=rho, temperature=temperature)(made_up(*sure_views(*views)))
    assert prediction.diagnostics["views"] == kept
    assert prediction.probabilities.tolist() == shares
    assert prediction.index == order[0]
    assert prediction.ranking.tolist()[:2] == order


@given(SEEDS, st.integers(2, 7), st.floats(0.0, 0.02))
@example(seed=3, tied=3, gap=0.0017946375734148215)  # no discarded view chooses a tied class
def test_shares_that_are_equal_tie_in_whatever_order_views_are_summed(
    made_up: MakeUp, seed: int, tied: int, gap: float
) -> None:
    rng = np.random.default_rng(seed)
    row = np.float32([0.3, 0.3 - gap, *rng.uniform(0.27, 0.29, tied)])[:tied]
    rows = np.full((2 * tied, tied + 3), -0.2, dtype=np.float32)
    rows[:tied, :tied] = [np.roll(row, shift) for shift in rng.permutation(tied)]  # each class has each cosine once
    rows[tied:] = rng.uniform(0.0, 0.05, (tied, tied + 3))  # unsure
    views = torch.cat([torch.from_numpy(rows), torch.zeros(len(rows), 32 - rows.shape[1])], 1)
    views[:, -1] = (1 - views.square().sum(-1)).sqrt()
    episode = made_up(views, torch.eye(32)[: tied + 3])
    prediction = ZERO(rho=0.5, temperature="eps_fp16")(episode)
    assert sorted(prediction.diagnostics["views"]) == list(range(tied))
    assert prediction.probabilities[:tied].unique().numel() == 1
    assert prediction.index == oracle.half_precision_answer(rows.astype(np.float64), episode.backbone.logit_scale, 0.5)
    assert_valid(prediction, tied + 3)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("seed", range(2))
def test_sixty_four_equal_views_answer_as_zero_shot(made_up: MakeUp, temperature: str, seed: int) -> None:
    episode = made_up(unit(1, 32, seed).expand(64, 32), unit(5, 32, seed + 10))
    prediction = ZERO(temperature=temperature)(episode)
    assert prediction.index == ZeroShot()(episode).index
    assert prediction.diagnostics["views_selected"] == 19
    if temperature == "hard":
        assert prediction.votes.max() == 19
        assert prediction.confidence == 1.0
