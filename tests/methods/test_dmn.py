"""DMN's memory and read-out: against plain Python, and where the answer is known."""

import numpy as np
import pytest
import torch

from faircontext import DMN, Backbone, ZeroShot
from faircontext.methods import DMNVariants
from faircontext.methods.dmn import read_out
from made_streams import DIM, answers, assert_agrees, episode_of, labels_of, make_stream, same_views
from oracles import caches as oracle


@pytest.mark.parametrize(
    "options",
    [{}, {"slots": 3}, {"slots": 2, "mix": 10.0, "rho": 0.5, "beta": 1.0}, {"slots": 4, "label": "fcl-vote"}],
    ids=str,
)
@pytest.mark.parametrize(
    "classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_stream_is_answered_as_by_plain_python(backbone: Backbone, classes: int, options: dict) -> None:
    stream = make_stream(classes, 60 if options else 120, 12)
    slow = oracle.DMN(stream[1].numpy(), backbone.logit_scale, **options)
    state = assert_agrees(DMNVariants(**options), stream, backbone, slow.answer)
    for label, entries in enumerate(slow.memory):
        kept = state.tensors["memory_x"][label, : int(state.tensors["memory_count"][label])]
        expected = np.array([entry.feature for entry in entries]).reshape(-1, DIM)
        np.testing.assert_allclose(kept, expected, rtol=0, atol=0 if "label" not in options else 1e-7)


def test_an_empty_memory_gives_the_text_and_one_image_itself_and_the_text() -> None:
    text, z = torch.eye(2, 3, dtype=torch.float64), torch.tensor([0.8, 0.6, 0.0])
    features, none = z.expand(2, 4, 3), torch.zeros(2, dtype=torch.long)
    torch.testing.assert_close(read_out(features, none, z, text, 5.5), text @ z.double())
    one = torch.tensor([1, 0])
    weight = np.exp(-5.5 * (1 - 0.8))
    mean = np.array([0.8, 0.6, 0.0]) + weight * np.array([1.0, 0.0, 0.0])
    expected = mean @ np.array([0.8, 0.6, 0.0]) / np.linalg.norm(mean)
    assert float(read_out(features, one, z, text, 5.5)[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("classes", [1, 7, 8, 9, 20])
def test_classes_are_read_alike_however_many_are_read_together(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    features = torch.randn(classes, 5, 6, generator=generator)
    text = torch.randn(classes, 6, generator=generator).double()
    query = torch.randn(6, generator=generator)
    counts = torch.randint(0, 6, (classes,), generator=generator)
    rows = [read_out(features[c : c + 1], counts[c : c + 1], query, text[c : c + 1], 0.5) for c in range(classes)]
    torch.testing.assert_close(read_out(features, counts, query, text, 0.5), torch.cat(rows))


def test_a_full_class_with_surer_images_stays_unchanged(backbone: Backbone) -> None:
    stream = same_views([[1, 0, 0], [1, 0.05, 0], [1, 0.2, 0.1], [1, 0.01, 0]], 2)
    changed, before = [], torch.zeros(0)
    for _, prediction, state in answers(DMN(slots=2), stream, backbone):
        now = state.tensors["memory_x"].clone()
        changed.append(not torch.equal(now, before))
        before = now
        assert prediction.diagnostics["memory"] == min(state.seen, 2)
    assert changed == [True, True, False, True]  # the third is less sure than both, the fourth is surer than one
    assert before[0].tolist() == stream[0][[0, 3], 0].tolist()


def test_without_weight_of_the_memory_the_answer_is_zero_shots(backbone: Backbone) -> None:
    stream = make_stream(4, 30, 12)
    labels = labels_of(stream[1], backbone)
    for number, prediction, _ in answers(DMN(mix=0.0), stream, backbone):
        expected = ZeroShot()(episode_of(stream[0][number], labels)).probabilities
        torch.testing.assert_close(prediction.probabilities, expected, rtol=0, atol=1e-6)


def test_views_that_are_not_finite_leave_no_trace(backbone: Backbone) -> None:
    features, text = make_stream(3, 20, 4)
    features[1, 1:] = torch.inf  # but for the plain view
    labels, method = labels_of(text, backbone), DMN(rho=0.5)
    state = method.start(labels)
    prediction, state = method.step(episode_of(features[1], labels), state)
    assert prediction.fallback == "the features of a view are NaN or infinite: answered by zero-shot"
    assert state.seen == 0
    assert not state.tensors["memory_count"].any()
