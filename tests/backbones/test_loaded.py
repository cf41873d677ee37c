"""What models of open_clip in every layout and of transformers of every kind have in common.

Features are the library's own, gradients are exact, and rows do not depend on those beside them.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from faircontext import FCL, Backbone, Episode, LabelSpace, ViewRecipe, create_backbone
from faircontext.backbones import base
from faircontext.backbones.base import TRAINABLE_ENCODER
from faircontext.errors import LabelError
from helpers import assert_identical, assert_valid, same_bits
from tiny_clip import LAYOUTS, native_model, native_text as open_clip_text
from tiny_transformers import KINDS, native_images, native_text_of

NAMES = ("dog", "fire truck", "three-toed sloth", "a very long name of a thing that nobody has ever seen")
TEMPLATE = "a photo of a {}."

Load = Callable[[str], Backbone]


@pytest.fixture(params=[*LAYOUTS, *(f"transformers {kind}" for kind in KINDS)])
def backbone(request: pytest.FixtureRequest, tiny: Load, of_kind: Load) -> Backbone:
    library, _, kind = request.param.rpartition(" ")
    return of_kind(kind) if library else tiny(kind)


def folder_of(backbone: Backbone) -> Path:
    return Path(backbone.name.partition(":")[2])


@pytest.fixture
def native(backbone: Backbone) -> Callable[[list[list[int]]], Tensor]:
    """Return the library's own unit-norm text features of tokens."""
    folder = folder_of(backbone)
    if backbone.name.startswith("transformers"):
        return lambda rows: native_text_of(rows, folder)

    def encode(rows: list[list[int]]) -> Tensor:
        filled = [row + [backbone.pad] * (backbone.context_length - len(row)) for row in rows]
        with torch.no_grad():
            return native_model(folder).encode_text(torch.tensor(filled), normalize=True)

    return encode


def test_text_features_are_those_of_the_library(
    backbone: Backbone, native: Callable[[list[list[int]]], Tensor]
) -> None:
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    expected = native([backbone._token_ids(text) for text in prompts.texts])
    assert prompts.length == 4
    assert float((expected[0] - expected[1]).abs().max()) > 1e-3
    encoded = backbone.encode_text(prompts)
    torch.testing.assert_close(encoded, expected, rtol=0, atol=1e-5)
    if backbone.name.startswith("local-dir"):  # with its tokenizer, too
        own = open_clip_text(native_model(folder_of(backbone)), prompts.texts, backbone.context_length)
        torch.testing.assert_close(encoded, own, rtol=0, atol=1e-6)
    assert same_bits(backbone.encode_text(prompts, backbone.context(prompts)), encoded)  # what CL starts from


@pytest.mark.parametrize("placement", ["replace", "prepend"])
def test_learnable_tokens_stand_where_written_tokens_would(
    placement: Any, backbone: Backbone, native: Callable[[list[list[int]]], Tensor]
) -> None:
    prompts, start = backbone.tokenize(NAMES, TEMPLATE), backbone.start
    words = backbone._token_ids("the drawing of my large")[start:-1]
    skipped = start + (prompts.length if placement == "replace" else 0)
    rows = [row[:start] + words + row[skipped:] for row in map(backbone._token_ids, prompts.texts)]
    features = backbone.encode_text(prompts, backbone.token_embeddings(torch.tensor(words)), placement)
    torch.testing.assert_close(features, native(rows), rtol=0, atol=1e-5)


def pixels_of(size: int, number: int = 3) -> tuple[list[Image.Image], Tensor]:
    drawn = np.random.default_rng(1).integers(0, 256, (number, size, size, 3), dtype=np.uint8)
    return [Image.fromarray(one) for one in drawn], torch.from_numpy(drawn).permute(0, 3, 1, 2) / 255.0


def test_image_features_are_those_of_the_library_whatever_is_beside_them(backbone: Backbone) -> None:
    images, pixels = pixels_of(backbone.image_size, 19)
    folder = folder_of(backbone)
    if backbone.name.startswith("transformers"):
        expected = native_images(folder, images)
    else:
        mean, std = (torch.tensor(values)[:, None, None] for values in (backbone.mean, backbone.std))
        with torch.no_grad():
            expected = native_model(folder).encode_image((pixels - mean) / std, normalize=True)
    whole = backbone.encode_image(pixels)
    torch.testing.assert_close(whole, expected, rtol=0, atol=1e-5)
    assert same_bits(backbone.encode_image(pixels[17:]), whole[17:])


@pytest.mark.parametrize("placement", ["replace", "prepend"])
def test_gradients_are_finite_differences_and_reach_the_context_alone(placement: Any, backbone: Backbone) -> None:
    twin = copy.copy(backbone)
    twin.text_encoder = copy.deepcopy(backbone.text_encoder).double()
    prompts = twin.tokenize(NAMES[:2], TEMPLATE)
    context = twin.context_of("the drawing of my").requires_grad_()
    assert torch.autograd.gradcheck(
        lambda tokens: twin.encode_text(prompts, tokens, placement)[:, :3],
        context,
        eps=1e-6,
        atol=1e-7,
        fast_mode=True,
    )
    assert not any(parameter.requires_grad for parameter in twin.text_encoder.parameters())


def test_gradients_in_groups_are_those_of_all_at_once(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = backbone.tokenize([f"object number {number}" for number in range(40)], TEMPLATE)
    target = torch.randn(40, 1, generator=torch.Generator().manual_seed(0))
    gradients = []
    for size in (16, 100):
        monkeypatch.setattr(base, "TEXT_BATCH", size)
        context = backbone.context_of("a photo of a").requires_grad_()
        loss = (backbone.encode_text(prompts, context) * target).sum()
        gradients.append(torch.autograd.grad(loss, context)[0])
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() <= 1e-5


def test_a_prompt_may_fill_the_tower_and_no_more(backbone: Backbone) -> None:
    limit = backbone.context_length
    room = limit - len(backbone._token_ids("a photo of a dog.")) + 1
    fits, overflows = (backbone.tokenize([" ".join(["dog"] * number)], TEMPLATE) for number in (room, room + 1))
    assert backbone.encode_text(fits).isfinite().all()
    with pytest.raises(LabelError, match=rf"has {limit + 1} tokens, more than the {limit} that {backbone.name[:9]}"):
        backbone.encode_text(overflows)
    with pytest.raises(LabelError, match=r"\(4 of them learnable\)"):
        backbone.encode_text(fits, backbone.context_of("a photo of a"), "prepend")
    cut = LabelSpace(("cat", " ".join(["dog"] * 100)), backbone, truncate=True).prompts[0]
    assert int(cut.mask.sum(1).max()) == limit - 4  # room for CL-HP's tokens
    assert int(cut.ids[1, limit - 5]) == backbone._token_ids("dog")[-1]


@pytest.mark.parametrize("context", ["cl", "cl-hp"])
def test_fcl_runs_on_every_layout(context: str, backbone: Backbone, make_image: Callable[..., np.ndarray]) -> None:
    for templates in ((TEMPLATE,), (TEMPLATE, "art of the {}.")):
        labels, method = LabelSpace(NAMES, backbone, templates), FCL(masks=16, k=3, context=context)
        answers = [method(Episode(make_image(5), labels, ViewRecipe(count=8))) for _ in range(2)]
        assert_identical(*answers)
        assert_valid(answers[0], len(NAMES))
        assert answers[0].fallback is None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_lower_precision_agrees_with_float32(precision: str, tiny: Load, of_kind: Load) -> None:
    for exact in [tiny("clip"), *map(of_kind, KINDS if precision == "bf16" else ())]:
        lowered = create_backbone(exact.name, precision=precision)
        assert (lowered.precision, exact.precision) == (precision, "fp32")
        assert TRAINABLE_ENCODER not in lowered.capabilities
        pixels = pixels_of(exact.image_size)[1]
        assert F.cosine_similarity(lowered.encode_image(pixels), exact.encode_image(pixels)).min() > 0.99
        prompts = exact.tokenize(NAMES, TEMPLATE)
        assert same_bits(lowered.encode_text(prompts), exact.encode_text(prompts))  # adapted in float32
