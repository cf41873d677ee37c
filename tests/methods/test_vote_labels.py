"""What FCL's exploration makes a memory keep: known by hand, and what it leaves as it was."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from faircontext import TDA, Backbone, create_method
from faircontext.errors import ArgumentError
from faircontext.methods import DMNVariants, TDAVariants
from faircontext.methods.variants import summarise_vote
from faircontext.runs.build import parse_settings
from made_streams import episode_of, labels_of, make_stream, take_steps

BOTH = pytest.mark.parametrize("method", [TDAVariants, DMNVariants])

ANGLES = (40, 30, 28, 32, 90, 90, 90, 75, 60, 60)
"""Of ten views between two classes, at 0 and 90 degrees; the plain view is the first."""


def views_at(*degrees: float) -> Tensor:
    return torch.tensor([[math.cos(math.radians(a)), math.sin(math.radians(a)), 0.0] for a in degrees])


def test_the_confident_views_vote_and_those_for_the_winner_are_kept(backbone: Backbone) -> None:
    text = torch.eye(2, 3)
    views = views_at(*ANGLES)
    views[7] = views_at(0)[0]  # of ten views three vote; four are at an end, the first three of them count
    image = summarise_vote(episode_of(views, labels_of(text, backbone)), text.double())
    assert (image.label, image.selected.tolist()) == (1, [4, 5, 6])
    torch.testing.assert_close(image.feature, views[4].double())

    views[5] = views_at(0)[0]  # 4, 5 and 6: two votes to one
    image = summarise_vote(episode_of(views, labels_of(text, backbone)), text.double())
    sure = (backbone.logit_scale * torch.tensor([0.0, 1.0])).softmax(0).double()
    mean = (2 * sure + sure.flip(0)) / 3
    assert image.label == 1
    torch.testing.assert_close(image.feature, views[[4, 6]].double().mean(0))  # not the view that voted otherwise
    torch.testing.assert_close(image.probabilities, mean, rtol=0, atol=1e-6)  # which counts here
    assert float(image.entropy) == pytest.approx(-float((mean * mean.log()).sum()), abs=1e-5)


def test_the_mean_of_the_voters_is_not_at_unit_length(backbone: Backbone) -> None:
    text, views = torch.eye(2, 3), views_at(*[10.0] * 10)
    views[:, 2] = torch.tensor([-0.5, 0.5] * 5)  # half of the views on either side
    views = F.normalize(views, dim=-1)
    method = TDAVariants(label="fcl-vote")
    labels = labels_of(text, backbone)
    _, state = method.step(episode_of(views, labels), method.start(labels))
    kept = state.tensors["positive_x"][0, 0]
    torch.testing.assert_close(kept, views[:3].mean(0))
    assert float(kept.norm()) < 0.99


def test_a_memory_files_an_image_where_the_views_vote_and_answers_its_plain_view(backbone: Backbone) -> None:
    views = views_at(*ANGLES)
    labels = labels_of(torch.eye(2, 3), backbone)
    plain, voted = TDA(negative_capacity=0), TDAVariants(negative_capacity=0, label="fcl-vote")
    before, _ = plain.step(episode_of(views, labels), plain.start(labels))
    answer, state = voted.step(episode_of(views, labels), voted.start(labels))
    assert (before.diagnostics["pseudo_label"], answer.diagnostics["pseudo_label"]) == (0, 1)
    assert state.tensors["positive_count"].tolist() == [0, 1]
    logits = backbone.logit_scale * views[0, :2].double()
    logits[1] += 2.0 * math.exp(-5.0 * (1.0 - float(views[0] @ views[4])))
    torch.testing.assert_close(answer.probabilities, logits.softmax(0).float(), rtol=0, atol=1e-6)


@BOTH
def test_with_one_view_nothing_changes(backbone: Backbone, method: type[TDAVariants | DMNVariants]) -> None:
    features, text = make_stream(4, 20)
    labels = labels_of(text, backbone)
    answers = []
    for one in (method(), method(label="fcl-vote")):
        seen = [*take_steps(one, features, labels, one.start(labels))]
        answers.append(torch.stack([prediction.probabilities for prediction in seen if prediction is not None]))
    torch.testing.assert_close(*answers, rtol=0, atol=1e-6)


@BOTH
def test_a_state_is_of_the_rule_whatever_the_method_is_called(
    backbone: Backbone, method: type[TDAVariants | DMNVariants]
) -> None:
    features, text = make_stream(3, 1, 12)
    labels = labels_of(text, backbone)
    plain = create_method(method.name.removesuffix("_variants"))
    state = plain.start(labels)
    assert state.origin == method().start(labels).origin  # with the setting of earlier versions
    with pytest.raises(ArgumentError, match=r"of settings \{'label': 'zero-shot'\}, and is used .* 'fcl-vote'"):
        method(label="fcl-vote").step(episode_of(features[0], labels), state)
    with pytest.raises(
        ArgumentError, match=f"'label' is not a setting of {plain.name}; the method {method.name} takes it"
    ):
        parse_settings(plain.name, ("label=fcl-vote",))


def test_which_settings_need_views() -> None:
    assert not TDAVariants().sees_views
    assert TDAVariants(label="fcl-vote").sees_views
    assert DMNVariants().sees_views
