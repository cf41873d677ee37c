"""BoostAdapter: against plain Python, and where it differs from TDA."""

import numpy as np
import pytest
import torch

from faircontext import TDA, Backbone, BoostAdapter
from made_streams import DIM, answers, assert_agrees, make_stream, same_views
from oracles import caches as oracle

OPTIONS = ({}, {"delta": 0}, {"alpha": 5.0, "beta": 2.0, "delta": 1, "views": "confident", "rho": 0.5})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_stream_is_answered_as_by_plain_python(backbone: Backbone, classes: int, options: dict) -> None:
    stream = make_stream(classes, 60 if options else 120, 12)
    names = {"alpha": "a", "beta": "b", "views": "views_in_summary"}
    slow = oracle.BoostAdapter(
        stream[1].numpy(), backbone.logit_scale, **{names.get(key, key): value for key, value in options.items()}
    )
    state = assert_agrees(BoostAdapter(**options), stream, backbone, slow.answer)
    for name, expected in (("positive", slow.positive), ("negative", slow.negative)):
        assert state.tensors[f"{name}_count"].tolist() == [len(entries) for entries in expected]
        for label, entries in enumerate(expected):
            kept = state.tensors[f"{name}_x"][label, : len(entries)]
            np.testing.assert_allclose(kept, np.array([e.feature for e in entries]).reshape(-1, DIM), atol=1e-7)
    assert int(state.tensors["negative_count"].sum()) > 0


def test_the_images_own_views_are_not_stored(backbone: Backbone) -> None:
    stream = make_stream(4, 60, 12)
    pairs = zip(answers(BoostAdapter(), stream, backbone), answers(TDA(), stream, backbone), strict=True)
    different = 0
    for (_, own, state), (_, plain, other) in pairs:
        for thing in ("count", "h", "x"):  # the positive cache is TDA's; the negative one need not be
            assert torch.equal(state.tensors[f"positive_{thing}"], other.tensors[f"positive_{thing}"])
        different += not torch.allclose(own.probabilities, plain.probabilities, atol=1e-3)
    assert different > 30


def test_the_negative_cache_drops_the_oldest_whatever_its_entropy(backbone: Backbone) -> None:
    stream = same_views([[0.9, 0.2, 0.4], [0.8, 0.7, 0.2], [0.9, 0.1, 0.4]], 2)
    steps = [*answers(BoostAdapter(uncertain=(-0.5, 1.0)), stream, backbone)]
    entropies = [prediction.diagnostics["entropy"] for _, prediction, _ in steps]
    assert entropies[1] == max(entropies)
    state = steps[-1][2]
    assert torch.equal(state.tensors["negative_x"][0], stream[0][1:, 0])


def test_a_stream_of_one_with_one_view_has_its_own_affinity_twice(backbone: Backbone) -> None:
    stream = same_views([[1.0, 0.0, 0.0, 0.0]], 3)
    ((_, prediction, _),) = answers(BoostAdapter(), stream, backbone)
    logits = torch.tensor([backbone.logit_scale + 2 * 2.0, 0.0, 0.0])  # by its entry, and by the lent view
    torch.testing.assert_close(prediction.probabilities, logits.softmax(-1))
