"""Label spaces: what is refused, and features that do not depend on where a class stands."""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from faircontext import Backbone, LabelSpace
from faircontext.backbones.contexts import LearntContext
from faircontext.backbones.lite import Lite
from faircontext.backbones.prompts import CONTEXT, PROMPT_SETS
from faircontext.errors import LabelError
from helpers import same_bits

GENERIC = PROMPT_SETS["generic7"]


class CountingLite(Lite):
    """Counts the prompts that it encodes."""

    encoded = 0

    def encode_text(self, prompts, context=None, placement="replace"):
        self.encoded += len(prompts)
        return super().encode_text(prompts, context, placement)


LONG = " ".join(["dog"] * 200)


@pytest.mark.parametrize(
    ("names", "templates", "message"),
    [
        ((), None, "no class names; give at least one"),
        ("cat", None, "names and templates are lists of strings in their order, not str"),
        (("cat", " "), None, "class name number 2 is blank"),
        (("", "cat"), None, "class name number 1 is blank"),
        (("cat", LONG), None, "^prompt 'a photo of a dog dog .* has 207 tokens, more than the 128 that lite0 reads"),
        (("cat",), ["a photo."], "exactly one"),
        (("cat",), (), "there is no prompt template; give at least one"),
    ],
)
def test_names_and_templates_that_cannot_be_used_are_refused(
    lite: Backbone, names: Sequence[str], templates: Sequence[str] | None, message: str
) -> None:
    with pytest.raises(LabelError, match=message):
        LabelSpace(names, lite, templates)


def test_text_features_are_the_backbones_per_template(lite: Backbone) -> None:
    names = ("cat", "dog", "snail")
    labels = LabelSpace(names, lite, GENERIC)
    expected = torch.stack([lite.encode_text(lite.tokenize(names, template)) for template in GENERIC])
    assert labels.text.shape == (7, 3, 384)
    assert same_bits(labels.text, expected)


def test_zero_shot_features_are_the_unit_mean_over_templates(lite: Backbone) -> None:
    labels = LabelSpace(("cat", "dog", "snail"), lite, GENERIC)
    expected = F.normalize(labels.text.double().mean(0), dim=-1)
    torch.testing.assert_close(labels.zero_shot_text.double(), expected, rtol=0, atol=1e-6)
    single = LabelSpace(("cat", "dog", "snail"), lite)
    assert same_bits(single.zero_shot_text, single.text[0])


def test_features_do_not_depend_on_the_other_classes(lite: Backbone) -> None:
    names = [f"{colour} {thing}" for colour in ("red", "green", "dark blue") for thing in "abcdefghijklmnopqrstuvwxyz"]
    forward, backward = LabelSpace(names, lite).text[0], LabelSpace(names[::-1], lite).text[0]
    assert len(names) > 64  # more than one batch
    torch.testing.assert_close(forward, backward.flip(0), rtol=0, atol=1e-6)


def test_prepended_features_have_the_initial_tokens_before_the_prompt(lite: Backbone) -> None:
    labels = LabelSpace(("cat", "dog"), lite, ("a photo of a {}.", "art of the {}."))
    assert same_bits(labels.initial_tokens, lite.context_of(CONTEXT))
    for index, prompts in enumerate(labels.prompts):
        expected = lite.encode_text(prompts, lite.context_of(CONTEXT), "prepend")
        assert same_bits(labels.prepend(index, labels.initial_tokens), expected)
        assert (expected - labels.text[index]).abs().max() > 1e-3


def test_constants_are_encoded_once() -> None:
    backbone = CountingLite("lite0")
    labels = LabelSpace(("cat", "dog"), backbone, ("a photo of a {}.", "art of the {}."))
    assert backbone.encoded == 0  # nothing before it is asked for
    for _ in range(2):
        assert labels.text.shape == (2, 2, 384)
        assert labels.zero_shot_text.shape == (2, 384)
    assert backbone.encoded == 4


# Names that are too long


def test_a_truncated_prompt_keeps_its_end_token_and_room_for_learnable_tokens(lite: Backbone) -> None:
    labels = LabelSpace(("cat", LONG), lite, truncate=True)
    (prompts,) = labels.prompts
    whole = lite.tokenize(("cat", LONG), "a photo of a {}.")
    assert prompts.ids.shape == (2, 124)
    assert prompts.ids[1, :-1].tolist() == whole.ids[1, :123].tolist()
    assert int(prompts.ids[1, -1]) == int(whole.ids[1, -1])
    assert labels.prepend(0, labels.initial_tokens).isfinite().all()
    assert labels.warnings() == [f"cut to what lite0 reads: {LONG[:60]} ..."]


# Names that a text model cannot tell apart


@pytest.mark.parametrize("templates", [("a photo of a {}.",), ("a photo of a {}.", "art of the {}.")])
def test_names_that_the_text_model_reads_alike_are_remarked_on(lite: Backbone, templates: tuple[str, ...]) -> None:
    names = ("\U00012000", "cat", "\U00012001", "Cat", "caf\u00e9", "cafe")  # of a script that it has no letter of
    assert LabelSpace(names, lite, templates).warnings() == [
        "lite0 reads these class names alike: \U00012000, \U00012001; caf\u00e9, cafe; they tie, and the first wins"
    ]


def test_a_check_is_run_once_and_again_after_it_has_failed(lite: Backbone) -> None:
    labels, calls = LabelSpace(["cat"], lite), []

    def check() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise LabelError("no")

    with pytest.raises(LabelError):
        labels.remember("key", check)
    labels.remember("key", check)
    labels.remember("key", check)
    labels.remember("other", check)
    assert len(calls) == 3


# Descriptions

DESCRIBED = {"cat": ["A cat purrs.", "A small animal with whiskers."], "Dog": ["A dog barks."], "fire truck": ["Red."]}


def test_descriptions_alone_are_the_prompts(lite: Backbone) -> None:
    labels = LabelSpace(("dog", "cat"), lite, descriptions=DESCRIBED)
    assert labels.templates == ()
    assert labels.descriptions == (("A dog barks.",), ("A cat purrs.", "A small animal with whiskers."))
    flat = [*labels.descriptions[0], *labels.descriptions[1]]
    each = lite.encode_text(lite.tokenize(flat, "{}")).double()
    expected = torch.stack([each[0], F.normalize(each[1:].mean(0), dim=-1)])
    torch.testing.assert_close(labels.zero_shot_text.double(), expected, rtol=0, atol=1e-6)
    assert labels.text.shape == (1, 2, 384)
    assert labels.summary == "1 to 2 descriptions of each class"


def test_descriptions_and_templates_are_one_ensemble(lite: Backbone) -> None:
    labels = LabelSpace(("dog", "cat"), lite, GENERIC[:2], descriptions=DESCRIBED)
    assert len(labels.prompts) == 1
    assert labels.prompts[0].counts == (3, 4)
    texts = [template.replace("{}", "dog") for template in GENERIC[:2]] + ["A dog barks."]
    each = lite.encode_text(lite.tokenize(texts, "{}")).double()
    expected = F.normalize(each.mean(0), dim=-1)
    torch.testing.assert_close(labels.zero_shot_text[0].double(), expected, rtol=0, atol=1e-6)


def test_descriptions_that_are_a_filled_template_are_that_template(lite: Backbone) -> None:
    names = ("dog", "fire_truck")
    labels = LabelSpace(names, lite, descriptions=[["a photo of a {}."], ["a photo of a fire truck."]])
    assert same_bits(labels.zero_shot_text, LabelSpace(names, lite).zero_shot_text)
    assert same_bits(*(space.prepend(0, space.initial_tokens) for space in (labels, LabelSpace(names, lite))))


@pytest.mark.parametrize(
    ("descriptions", "message"),
    [
        ({"cat": ["A cat."]}, "lacks prompts of 'snail'; give each class at least one"),
        ([["a"]], "has prompts of 1 class, and"),
        (
            [["a"], ["word " * 200]],
            "prompt 'word word .* more than the 128 that lite0 reads; shorten it, or truncate it",
        ),
    ],
)
def test_descriptions_that_cannot_be_used_are_refused(lite: Backbone, descriptions: object, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        LabelSpace(("cat", "snail"), lite, descriptions=descriptions)


def test_truncated_descriptions_are_told_by_their_class(lite: Backbone) -> None:
    labels = LabelSpace(("cat", "dog"), lite, descriptions=[["a", "b"], ["c", "word " * 200]], truncate=True)
    assert labels.warnings() == ["cut to what lite0 reads: dog ..."]


def test_classes_with_the_same_descriptions_are_told(lite: Backbone) -> None:
    labels = LabelSpace(("cat", "dog", "snail"), lite, descriptions=[["a", "b"], ["b", "a"], ["a"]])
    assert labels.warnings() == ["lite0 reads these class names alike: cat, dog; they tie, and the first wins"]


def test_descriptions_go_along_to_another_backbone(lite: Backbone, tiny_folder) -> None:
    labels = LabelSpace(("dog", "cat"), lite, descriptions=DESCRIBED)
    other = labels.on(f"local-dir:{tiny_folder('clip')}")
    assert other.prompts[0].texts == labels.prompts[0].texts


def test_of_what_is_learnt_and_a_name_the_longer_part_is_too_long(tiny: Callable[[str], Backbone]) -> None:
    backbone = tiny("clip")
    tokens = torch.randn(90, 32, generator=torch.Generator().manual_seed(0))
    long = r"^long\.pth: .*\(86 of them learnable\); the context is too long, take a shorter one$"
    with pytest.raises(LabelError, match=long):
        LabelSpace(("cat",), backbone, context=LearntContext(tokens, "long.pth"))
    with pytest.raises(LabelError, match=r"shorten the class name, or truncate it \(--truncate\)$"):
        LabelSpace(("very " * 60 + "long",), backbone, context=LearntContext(tokens[:16], "some.pth"))
