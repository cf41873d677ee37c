"""Prompt sets, templates, and tokenised prompts with the place of their context."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from open_clip.zero_shot_metadata import SIMPLE_IMAGENET_TEMPLATES

from faircontext import Backbone
from faircontext.backbones.prompts import CONTEXT, PROMPT_SETS, prompt_set
from faircontext.errors import ArgumentError, LabelError
from faircontext.prompt_files import fill_template
from tiny_clip import native_model, native_text


@given(st.text())
def test_a_name_is_put_in_as_it_is_but_for_underscores(name: str) -> None:
    assert fill_template("a photo of a {}.", name) == "a photo of a " + name.replace("_", " ") + "."


@pytest.mark.parametrize("template", ["a photo.", "{} and {}.", ""])
def test_a_template_has_one_place_for_the_name(template: str) -> None:
    with pytest.raises(LabelError, match="exactly one"):
        fill_template(template, "dog")


def test_prompt_sets_are_the_papers() -> None:
    assert prompt_set("single") == (f"{CONTEXT} {{}}.",)
    assert prompt_set("generic7") == tuple(template("{}") for template in SIMPLE_IMAGENET_TEMPLATES)


def test_the_eighty_templates_are_clips_own(data: Path) -> None:
    templates = json.loads((data / "splits" / "clip_imagenet_templates80.json").read_text())
    assert list(prompt_set("imagenet80")) == templates
    assert len(templates) == 80


def test_an_unknown_prompt_set_is_refused_with_the_close_one() -> None:
    with pytest.raises(ArgumentError, match="unknown prompt set 'generic'; did you mean 'generic7'"):
        prompt_set("generic")


@pytest.mark.parametrize("template", [*PROMPT_SETS["single"], *PROMPT_SETS["generic7"], "{} texture."])
def test_context_tokens_are_the_words_before_the_name(lite: Backbone, template: str) -> None:
    prompts = lite.tokenize(["dog", "fire truck"], template)
    context = prompts.ids[:, prompts.start : prompts.start + prompts.length]
    words = template.split("{}")[0].strip()
    assert [lite._tokenizer.decode(row) for row in context.tolist()] == [words, words]


def test_the_base_context_has_four_tokens_after_the_start_token(lite: Backbone) -> None:
    prompts = lite.tokenize(["dog"], "a photo of a {}.")
    assert (prompts.start, prompts.length) == (1, 4)
    assert lite.context(prompts).equal(lite.context_of(CONTEXT))


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
        (BYTES, "一张{}的照片", "狗", 5),
        (BYTES, "一张{}的照片", "dog", 5),
        (BYTES, "写真の{}", "犬", 3),
        (BYTES, "รูป{}", "แมว", 4),
    ],
)
def test_words_that_are_tokens_of_their_own_need_no_blank(
    lite: Backbone, tiny: Callable[[str], Backbone], tokenizer: str, template: str, name: str, length: int
) -> None:
    backbone = lite if tokenizer == WORDS else tiny("clip")
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
        (BYTES, "фото{}", "собака"),
        (BYTES, "ฉันเห็น{}ในภาพ", "ช้าง"),  # the last sign before the name and its first letter are one token
        (BYTES, "«{}»", ".net"),
    ],
)
def test_words_that_run_into_the_name_have_no_context(
    lite: Backbone, tiny: Callable[[str], Backbone], tokenizer: str, template: str, name: str
) -> None:
    prompts = (lite if tokenizer == WORDS else tiny("clip")).tokenize([name], template)
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


def test_padding_follows_the_tokens(lite: Backbone) -> None:
    prompts = lite.tokenize(["dog", "three-toed sloth"], "a photo of a {}.")
    alone = lite.tokenize(["dog"], "a photo of a {}.")
    assert len(prompts) == 2
    assert prompts.mask[1].all()
    assert prompts.mask[0].tolist() == [True] * alone.ids.shape[1] + [False] * int((~prompts.mask[0]).sum())
    assert prompts.ids[0][prompts.mask[0]].equal(alone.ids[0])


def test_selected_prompts_are_cut_to_their_longest(lite: Backbone) -> None:
    names = ["three-toed sloth", "dog", "red fox"]
    chosen = lite.tokenize(names, "a photo of a {}.").select([2, 1])
    expected = lite.tokenize(["red fox", "dog"], "a photo of a {}.")
    assert chosen.texts == expected.texts
    assert chosen.ids.equal(expected.ids)
    assert chosen.mask.equal(expected.mask)
    assert (chosen.start, chosen.length) == (expected.start, expected.length)


def test_a_name_joins_the_context_of_others_in_a_script_without_blanks(tiny: Callable[[str], Backbone]) -> None:
    """The tokens before the name are the same in every prompt, and what follows them are the name's own."""
    backbone = tiny("clip")
    prompts = backbone.tokenize(["猫头鹰", "狗", "fire_truck"], "一张{}的照片")
    first = prompts.start + prompts.length
    for row, mask, name in zip(prompts.ids, prompts.mask, ["猫头鹰", "狗", "fire truck"], strict=True):
        alone = backbone.tokenize([name], "{}的照片")
        assert row[mask][first:].equal(alone.ids[0, 1:])
    context = backbone.context(prompts)
    assert backbone.encode_text(prompts, context).equal(backbone.encode_text(prompts))


def test_descriptions_are_pooled_for_each_class(lite: Backbone) -> None:
    prompts = lite.describe([["a dog barks", "a loud animal"], ["a cat"], ["x", "a dog barks", "y"]])
    assert prompts.counts == (2, 1, 3)
    assert [list(rows) for rows in prompts.rows] == [[0, 1], [2], [3, 4, 5]]
    with torch.no_grad():
        pooled = lite.encode_text(prompts)
        each = lite.encode_text(prompts.select(range(6)))
    assert pooled.shape == (3, each.shape[1])
    expected = [torch.nn.functional.normalize(rows.mean(0), dim=-1) for rows in (each[:2], each[3:])]
    assert pooled[1].equal(each[2])
    assert pooled[0].equal(expected[0])
    assert pooled[2].equal(expected[1])


def test_classes_are_selected_with_all_their_prompts(lite: Backbone) -> None:
    prompts = lite.describe([["a dog barks", "a loud animal"], ["a cat"], ["x", "y"]])
    some = prompts.of_classes([2, 0])
    assert some.texts == ("x", "y", "a dog barks", "a loud animal")
    assert some.counts == (2, 2)
    with torch.no_grad():
        torch.testing.assert_close(lite.encode_text(some), lite.encode_text(prompts)[[2, 0]], rtol=0, atol=1e-6)
    plain = lite.tokenize(["cat", "dog"], "a {}")
    assert plain.of_classes([1]).texts == ("a dog",)


def test_the_gradient_of_descriptions_is_exact_in_groups(tiny_double: Backbone, monkeypatch) -> None:
    """Against one graph over all prompts; and never are more prompts encoded at once than a group has."""
    prompts = tiny_double.describe([[f"word {row} of class {c}" for row in range(7)] for c in range(5)])
    context = tiny_double.context_of(CONTEXT).double()
    weight = torch.randn(5, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def gradient() -> torch.Tensor:
        leaf = context.clone().requires_grad_()
        (tiny_double.encode_text(prompts, leaf, "prepend") * weight).sum().backward()
        return leaf.grad

    whole, most = gradient(), []
    encode = type(tiny_double)._text_features

    def counted(self, group, *rest, **facts):
        most.append(len(group))
        return encode(self, group, *rest, **facts)

    monkeypatch.setattr(type(tiny_double), "_text_features", counted)
    monkeypatch.setattr("faircontext.backbones.base.TEXT_BATCH", 8)
    torch.testing.assert_close(gradient(), whole, rtol=1e-9, atol=1e-12)
    assert max(most) == 8
    assert sum(most) == 2 * 35
