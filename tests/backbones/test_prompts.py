"""Prompt sets, templates, and tokenised prompts with the place of their context."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from faircontext import Backbone
from faircontext.backbones.prompts import CONTEXT, PROMPT_SETS, fill_template, prompt_set
from faircontext.errors import ArgumentError, LabelError
from tiny_clip import native_model, native_text


@given(st.text())
def test_a_name_is_put_in_as_it_is_but_for_underscores(name: str) -> None:
    assert fill_template("a photo of a {}.", name) == "a photo of a " + name.replace("_", " ") + "."


def test_braces_in_a_name_are_no_template() -> None:
    assert fill_template("a {}.", "{}{0}") == "a {}{0}."


@pytest.mark.parametrize("template", ["a photo.", "{} and {}.", ""])
def test_a_template_has_one_place_for_the_name(template: str) -> None:
    with pytest.raises(LabelError, match="exactly one"):
        fill_template(template, "dog")


def test_prompt_sets_are_the_papers() -> None:
    assert prompt_set("single") == (f"{CONTEXT} {{}}.",)
    assert prompt_set("generic7") == (
        "itap of a {}.",
        "a bad photo of the {}.",
        "a origami {}.",
        "a photo of the large {}.",
        "a {} in a video game.",
        "art of the {}.",
        "a photo of the small {}.",
    )


def test_the_eighty_templates_are_clips_own(data: Path) -> None:
    templates = json.loads((data / "splits" / "clip_imagenet_templates80.json").read_text())
    assert list(prompt_set("imagenet80")) == templates
    assert len(templates) == 80


def test_an_unknown_prompt_set_is_refused_with_the_close_one() -> None:
    with pytest.raises(ArgumentError, match="unknown prompt set 'generic'; did you mean 'generic7'"):
        prompt_set("generic")


@pytest.mark.parametrize("template", [*PROMPT_SETS["single"], *PROMPT_SETS["generic7"], "{} texture."])
def test_context_tokens_are_the_words_before_the_name(lite0: Backbone, template: str) -> None:
    prompts = lite0.tokenize(["dog", "fire truck"], template)
    context = prompts.ids[:, prompts.start : prompts.start + prompts.length]
    words = template.split("{}")[0].strip()
    assert [lite0.text_tower.tokenizer.decode(row) for row in context.tolist()] == [words, words]


def test_the_base_context_has_four_tokens_after_the_start_token(lite0: Backbone) -> None:
    prompts = lite0.tokenize(["dog"], "a photo of a {}.")
    assert (prompts.start, prompts.length) == (1, 4)
    assert lite0.context(prompts).equal(lite0.context_of(CONTEXT))


def test_underscores_become_spaces(lite0: Backbone) -> None:
    first, second = (lite0.tokenize([name], "a photo of a {}.") for name in ("fire_truck", "fire truck"))
    assert first.texts == ("a photo of a fire truck.",)
    assert first.ids.equal(second.ids)


WORDS = "lite0"
BYTES = "local-dir"
"""MiniLM's tokenizer, which takes ideographs one by one, and CLIP's, which joins all letters that stand together."""


@pytest.mark.parametrize(
    ("tokenizer", "template", "name", "length"),
    [
        (WORDS, "一张{}的照片", "dog", 2),
        (WORDS, "一张{}的照片", "狗", 2),
        (WORDS, "写真、{}", "犬", 3),
        (WORDS, "«{}»", "dog", 1),
        (BYTES, "«{}»", "dog", 1),
        (BYTES, "写真、{}", "犬", 4),
        (WORDS, "«{}»", ".net", 1),
        (WORDS, "a photo of a {}.", ".net", 4),
        (BYTES, "a photo of a {}.", ".net", 4),
        (WORDS, "{}", ".net", 0),
        (BYTES, "{}", ".net", 0),
        (BYTES, "{}", "狗", 0),
    ],
)
def test_words_that_are_tokens_of_their_own_need_no_blank(
    lite0: Backbone, tiny: Callable[[str], Backbone], tokenizer: str, template: str, name: str, length: int
) -> None:
    backbone = lite0 if tokenizer == WORDS else tiny("clip")
    prompts = backbone.tokenize(["house", name], template)
    assert prompts.texts[1] == template.replace("{}", name)
    assert prompts.fused is None
    assert prompts.length == length
    first, last = prompts.start, prompts.start + length
    assert prompts.ids[0, first:last].equal(prompts.ids[1, first:last])


@pytest.mark.parametrize(
    ("tokenizer", "template", "name"),
    [
        (WORDS, "a photo of a{}.", "dog"),  # "ad", "##og"
        (WORDS, "a photo of{}", "dog"),  # "of", "##dog": whole, but the name is the rest of a word
        (WORDS, "photo{}", "dog"),
        (WORDS, "itap of a{}", "dog"),
        (WORDS, "photo{}", "3d"),
        (BYTES, "photo{}", "dog"),
        (BYTES, "一张{}的照片", "狗"),
        (BYTES, "«{}»", ".net"),
    ],
)
def test_words_that_run_into_the_name_have_no_context(
    lite0: Backbone, tiny: Callable[[str], Backbone], tokenizer: str, template: str, name: str
) -> None:
    prompts = (lite0 if tokenizer == WORDS else tiny("clip")).tokenize([name], template)
    assert prompts.fused == template.replace("{}", name)
    assert prompts.length == 0


@pytest.mark.parametrize("layout", ["clip", "siglip"])
@pytest.mark.parametrize("template", ["一张{}的照片", "photo{}", "«{}»", "{}"])
def test_words_that_run_into_the_name_are_encoded_as_the_model_itself_does(
    tiny: Callable[[str], Backbone], tiny_folder: Callable[[str], Path], layout: str, template: str
) -> None:
    backbone, names = tiny(layout), ["dog", "狗", ".net", "fire truck"]
    prompts = backbone.tokenize(names, template)
    expected = native_text(native_model(tiny_folder(layout)), prompts.texts, backbone.context_length)
    with torch.no_grad():
        torch.testing.assert_close(backbone.encode_text(prompts), expected, rtol=0, atol=1e-5)


def test_padding_follows_the_tokens(lite0: Backbone) -> None:
    prompts = lite0.tokenize(["dog", "three-toed sloth"], "a photo of a {}.")
    alone = lite0.tokenize(["dog"], "a photo of a {}.")
    assert len(prompts) == 2
    assert prompts.mask[1].all()
    assert prompts.mask[0].tolist() == [True] * alone.ids.shape[1] + [False] * int((~prompts.mask[0]).sum())
    assert prompts.ids[0][prompts.mask[0]].equal(alone.ids[0])


def test_selected_prompts_are_cut_to_their_longest(lite0: Backbone) -> None:
    names = ["three-toed sloth", "dog", "red fox"]
    chosen = lite0.tokenize(names, "a photo of a {}.").select([2, 1])
    expected = lite0.tokenize(["red fox", "dog"], "a photo of a {}.")
    assert chosen.texts == expected.texts
    assert chosen.ids.equal(expected.ids)
    assert chosen.mask.equal(expected.mask)
    assert (chosen.start, chosen.length) == (expected.start, expected.length)


def test_groups_hold_every_prompt_once_in_order(lite0: Backbone) -> None:
    prompts = lite0.tokenize(["dog", "cat", "cow", "pig", "hen"], "a photo of a {}.")
    groups = list(prompts.split(2))
    assert [len(group) for group in groups] == [2, 2, 1]
    assert sum((group.texts for group in groups), ()) == prompts.texts
