"""Scores of labels by themselves: the model's sigmoid or negatives, by definition, and independent of other labels."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from faircontext import Backbone, LabelSpace
from faircontext.backbones.contexts import LearntContext
from faircontext.errors import LabelError
from faircontext.label_scores import NEGATIVES, LabelScorer
from faircontext.metrics import score_of
from tiny_clip import native_model, native_text

NAMES = ("cat", "a very long name of a thing that nobody has ever seen", "fire truck", "snail", "dog")


def features(backbone: Backbone, seed: int = 0) -> torch.Tensor:
    pixels = torch.rand(1, 3, backbone.image_size, backbone.image_size, generator=torch.Generator().manual_seed(seed))
    return backbone.encode_image(pixels)[0]


def test_a_sigmoid_has_the_scale_and_the_bias_of_the_model(
    tiny: Callable[[str], Backbone], tiny_folder: Callable[[str], Path]
) -> None:
    backbone, native = tiny("siglip"), native_model(tiny_folder("siglip"))
    assert backbone.logit_bias == -10
    scorer, z = LabelScorer(LabelSpace(NAMES, backbone)), features(backbone)
    assert (scorer.rule, scorer.negatives) == ("sigmoid", ())
    text = native_text(native, [f"a photo of a {name}." for name in NAMES], 64)
    logits = native.logit_scale.exp() * text @ z + native.logit_bias
    np.testing.assert_allclose(scorer.logits(z), logits.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(score_of(scorer.logits(z)), logits.sigmoid().detach().numpy(), rtol=1e-4)


def test_against_negatives_a_score_is_the_share_of_a_softmax(tiny: Callable[[str], Backbone]) -> None:
    backbone = tiny("clip")
    assert backbone.logit_bias is None
    labels = LabelSpace(NAMES, backbone, ("a photo of a {}.", "art of the {}."))
    for words in (None, ("thing", "place")):
        scorer, z = LabelScorer(labels, words), features(backbone)
        assert (scorer.rule, scorer.negatives) == ("negatives", words or NEGATIVES)
        negatives = LabelSpace(scorer.negatives, backbone, labels.templates)
        for index, score in enumerate(score_of(scorer.logits(z))):
            text = torch.cat([labels.zero_shot_text[index : index + 1], negatives.zero_shot_text])
            share = (backbone.logit_scale * (text.double() @ z.double())).softmax(-1)[0]
            assert score == pytest.approx(float(share), rel=1e-4)


def test_negatives_that_are_given_go_before_the_bias(tiny: Callable[[str], Backbone]) -> None:
    backbone = tiny("siglip")
    scorer, z = LabelScorer(LabelSpace(("cat",), backbone), ("thing",)), features(backbone)
    both = LabelSpace(("cat", "thing"), backbone).zero_shot_text.double() @ z.double()
    assert float(scorer.logits(z)[0]) == pytest.approx(float(backbone.logit_scale * (both[0] - both[1])), abs=1e-4)


@pytest.mark.parametrize("layout", ["clip", "siglip"])
def test_no_other_label_changes_a_score(tiny: Callable[[str], Backbone], layout: str) -> None:
    backbone = tiny(layout)
    z = features(backbone)
    whole = LabelScorer(LabelSpace(NAMES, backbone)).logits(z)
    for chosen in ([2], [4, 0], [1, 3, 0], [3, 2, 1, 0, 4]):
        some = LabelScorer(LabelSpace([NAMES[index] for index in chosen], backbone)).logits(z)
        assert some.tobytes() == whole[chosen].tobytes()


def test_descriptions_are_scored_class_by_class(tiny: Callable[[str], Backbone]) -> None:
    backbone = tiny("clip")
    own = {"cat": ["a small animal.", "it says meow."], "dog": ["it barks."]}
    labels = LabelSpace(("cat", "dog"), backbone, descriptions=own)
    scorer = LabelScorer(labels, ("thing",))
    np.testing.assert_allclose(scorer.text, labels.zero_shot_text.numpy(), atol=1e-6)
    assert scorer.negative_text.shape == (1, labels.zero_shot_text.shape[1])


def test_a_context_that_classes_share_is_the_negatives_too(tiny: Callable[[str], Backbone]) -> None:
    backbone = tiny("clip")
    tokens = 0.1 * torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    context = LearntContext(tokens, "learnt.pt")
    labels = LabelSpace(("cat", "dog"), backbone, context=context)
    scorer = LabelScorer(labels, ("thing",))
    np.testing.assert_allclose(scorer.text, labels.zero_shot_text.numpy(), atol=1e-6)
    plain = LabelScorer(LabelSpace(("cat",), backbone), ("thing",))
    assert not np.allclose(scorer.negative_text, plain.negative_text, atol=1e-3)
    own = LabelSpace(("cat", "dog"), backbone, context=replace(context, tokens=tokens.expand(2, 4, 32)))
    with pytest.raises(LabelError, match=r"learnt\.pt: each class has a context of its own, which the negatives lack"):
        LabelScorer(own)


def test_what_is_refused(tiny: Callable[[str], Backbone]) -> None:
    labels = LabelSpace(("cat", "Open_place"), tiny("clip"))
    with pytest.raises(LabelError, match="the negative 'open place' is the class 'Open_place' too, which could never"):
        LabelScorer(labels, ("thing", "open place"))
    with pytest.raises(LabelError, match="there are no negatives; give at least one, or leave them out"):
        LabelScorer(labels, ())
