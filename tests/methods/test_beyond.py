"""Study methods beyond the paper: the anchor on unique evidence, votes of margins, contextual calibration."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from faircontext import FCL, Backbone, Episode, LabelSpace, ZeroShot
from faircontext.errors import ArgumentError
from faircontext.evidence import unique_evidence
from faircontext.methods import ContextualCalibration, FCLVariants, MarginVote
from faircontext.methods.variants import control_image, unique_anchor
from helpers import assert_same_answer, assert_valid

MakeEpisode = Callable[..., Episode]
SMALL = {"k": 4, "beta": 5.0, "masks": 24, "grids": (3, 4, 5), "estimator": "covariance", "smoothing": 0.1}


@pytest.fixture(scope="module")
def make(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> MakeEpisode:
    """Return a function that makes a fresh episode of an image on a tiny model."""
    labels = LabelSpace(("cat", "dog", "horse", "snail", "house", "boat"), tiny("clip"))
    return lambda seed=3: Episode(make_image(seed), labels)


def test_the_anchor_is_the_mean_squared_change_of_scores_on_unique_evidence() -> None:
    reference, text = torch.eye(2), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    pairs = torch.tensor([[0, 1], [1, 0]])
    align = unique_anchor(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), pairs, beta=3.0)
    # Scores on the evidence of 0: 3 before, 0 after; on that of 1 as well: (3 - 0)^2 each.
    assert float(align(text, reference)) == pytest.approx(9.0)
    moved = reference.clone().requires_grad_()
    align(moved, reference).backward()
    assert not moved.grad.any()  # exactly: AdamW would make a step of full length of rounding


def test_an_anchor_that_is_heavy_keeps_the_scores_and_not_the_features(make: MakeEpisode) -> None:
    def learnt(**settings: object) -> tuple[float, float]:
        method = FCLVariants(**SMALL, lr=0.01, steps=8, **settings)
        found, episode = method.adapt(make()), make()
        text = episode.labels.text[0][found.candidates]
        both = torch.cat([found.pairs, found.pairs.flip(0)], 1)
        align = unique_anchor(episode.weighted_features(unique_evidence(found.evidence.maps, both)), both, 5.0)
        return float(align(found.calibration.text, text)), float((found.calibration.text - text).norm())

    free, held = learnt(lambda_align=0.0), learnt(anchor="unique", lambda_align=100.0)
    assert held[0] < 0.5 * free[0]
    assert held[1] > 0


def test_an_anchor_on_unique_evidence_needs_evidence() -> None:
    with pytest.raises(ArgumentError, match=r'anchor="unique" needs evidence, and proxy=\'grey\' has none'):
        FCLVariants(anchor="unique", proxy="grey")


@pytest.mark.parametrize("lambda_com", [0.0, 0.5, 1.0])
def test_pairs_vote_by_their_margin_less_that_on_common_evidence(make: MakeEpisode, lambda_com: float) -> None:
    method = MarginVote(**SMALL, lambda_com=lambda_com)
    prediction, episode = method(make()), make()
    assert_valid(prediction, 6)
    explored = FCL(**SMALL, calibrate=False)(episode)
    candidates = sorted(prediction.candidates)
    text, z = episode.labels.text[0].double().numpy(), episode.z.double().numpy()
    evidence = method.adapt(episode)
    common = episode.weighted_features(evidence.common).double().numpy()
    votes, sums = dict.fromkeys(candidates, 0), dict.fromkeys(candidates, 0.0)
    for (first, second), own in zip(evidence.pairs.T.tolist(), common, strict=True):
        i, j = candidates[first], candidates[second]
        margin = (z @ text[i] - z @ text[j]) - lambda_com * (own @ text[i] - own @ text[j])
        votes[i if margin >= 0 else j] += 1
        sums[i], sums[j] = sums[i] + margin, sums[j] - margin
    ranked = sorted(candidates, key=lambda index: (-votes[index], -sums[index], index))
    assert prediction.ranking[:4].tolist() == ranked
    assert prediction.ranking[4:].tolist() == explored.ranking[4:].tolist()
    assert prediction.votes.tolist() == [votes.get(index, 0) for index in range(6)]
    np.testing.assert_allclose(prediction.probabilities, explored.probabilities, atol=1e-6)
    if lambda_com == 0.0:
        assert prediction.index == max(candidates, key=lambda index: float(text[index] @ z))


def test_a_margin_that_is_taken_off_whole_leaves_even_pairs(make: MakeEpisode) -> None:
    prediction = MarginVote(**SMALL, proxy="image", lambda_com=1.0)(make())
    candidates = sorted(prediction.candidates)
    assert prediction.ranking[:4].tolist() == candidates  # each pair for its first class
    assert [int(prediction.votes[index]) for index in candidates] == [3, 2, 1, 0]


def test_margins_fall_back_as_fcl_does(make: MakeEpisode) -> None:
    alone = replace(MarginVote(**SMALL), k=1)
    assert_same_answer(alone(make()), FCL(**{**SMALL, "k": 1})(make()))


@pytest.mark.parametrize("content_free", ["grey", "black", "mean"])
def test_the_posterior_without_content_is_divided_out(make: MakeEpisode, content_free: str) -> None:
    episode = make()
    prediction = ContextualCalibration(content_free=content_free)(episode)
    empty = episode.backbone.encode_image(control_image(episode.x, content_free)[None])[0]
    scale, text = episode.backbone.logit_scale, episode.labels.text[0].double()
    seen, prior = ((scale * text @ z.double()).softmax(-1) for z in (episode.z, empty))
    expected = seen / prior / (seen / prior).sum()
    torch.testing.assert_close(prediction.probabilities.double(), expected, rtol=1e-4, atol=1e-7)
    assert prediction.index == int(expected.argmax())
    assert not torch.allclose(prediction.probabilities, ZeroShot()(episode).probabilities, atol=1e-4)


def test_an_image_without_content_is_of_every_class_alike(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog", "horse"), tiny("clip"))
    black = Episode(np.zeros_like(make_image(0)), labels)
    prediction = ContextualCalibration(content_free="black")(black)
    torch.testing.assert_close(prediction.probabilities, torch.full((3,), 1 / 3), rtol=0, atol=1e-4)
