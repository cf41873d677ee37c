"""Prompt sets, templates, and tokenised prompts with the place of their context."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faircontext import Backbone
from faircontext.backbones.prompts import CONTEXT, PROMPT_SETS, fill_template, prompt_set
from faircontext.errors import ArgumentError, LabelError


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


@pytest.mark.parametrize("template", ["a photo of a{}.", "a photo of{}", "itap of a{}"])
def test_words_that_run_into_the_name_are_refused(lite0: Backbone, template: str) -> None:
    with pytest.raises(LabelError, match="put a blank between"):
        lite0.tokenize(["dog"], template)


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
