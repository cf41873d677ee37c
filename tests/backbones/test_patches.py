"""Vision transformers on some of an image's patches: the others are left out, not painted over."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from faircontext import Backbone, Episode, LabelSpace, ViewRecipe, create_method
from faircontext.backbones.base import DROPPABLE_PATCHES, require
from faircontext.errors import ArgumentError, FeatureError
from faircontext.methods import FCLVariants
from helpers import assert_valid, same_bits
from tiny_clip import LAYOUTS

Make = Callable[[str], Backbone]


def random_patches(count: int, side: int, hidden: int, seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(side**2, generator=rng) for _ in range(count)])
    return (order < hidden).view(count, side, side)


VITS = [layout for layout in LAYOUTS if layout != "resnet"]


@pytest.mark.parametrize("layout", VITS)
def test_leaving_no_patch_out_is_the_identity(layout: str, tiny: Make) -> None:
    backbone = tiny(layout)
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    whole = backbone.encode_without(image, torch.zeros(2, backbone.patches, backbone.patches, dtype=torch.bool))
    torch.testing.assert_close(whole, backbone.encode_image(image[None]).expand(2, -1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("layout", ["clip", "quick", "siglip"])
def test_a_patch_that_is_left_out_is_one_that_nothing_attends_to(layout: str, tiny: Make) -> None:
    backbone = tiny(layout)
    encoder, image = backbone.image_encoder, torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))
    hidden = random_patches(5, backbone.patches, 2)
    expected = []
    for mask in hidden:  # all tokens, those hidden out of sight
        unseen = F.pad(mask.flatten(), (1, 0))
        bias = torch.zeros(len(unseen), len(unseen)).masked_fill(unseen, -torch.inf)
        with torch.no_grad():
            tokens = encoder.transformer(encoder._embeds(backbone._normalise(image[None])), attn_mask=bias)
            expected.append(F.normalize(encoder._pool(tokens)[0] @ encoder.proj, dim=-1)[0])
    torch.testing.assert_close(backbone.encode_without(image, hidden), torch.stack(expected), rtol=0, atol=1e-6)


def test_rows_without_patches_do_not_depend_on_each_other(tiny: Make) -> None:
    backbone, image = tiny("clip"), torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(2))
    hidden = random_patches(40, backbone.patches, 2)
    together = backbone.encode_without(image, hidden)
    assert same_bits(backbone.encode_without(image, hidden.flip(0)).flip(0), together)
    assert same_bits(torch.cat([backbone.encode_without(image, hidden[row : row + 1]) for row in range(40)]), together)


def test_masks_that_hide_unequally_or_all_or_other_patches_are_refused(tiny: Make) -> None:
    backbone, image = tiny("clip"), torch.rand(3, 32, 32)
    unequal = torch.cat([random_patches(1, backbone.patches, 1), random_patches(1, backbone.patches, 2)])
    message = "invalid hidden: each mask must hide as many of 2 x 2 patches, and not all"
    for hidden in (unequal, torch.ones(1, 2, 2, dtype=torch.bool), torch.zeros(1, 3, 3, dtype=torch.bool)):
        with pytest.raises(ArgumentError, match=message):
            backbone.encode_without(image, hidden)


def test_a_tower_without_patches_says_so(tiny: Make, lite: Backbone) -> None:
    for backbone in (tiny("resnet"), lite):
        message = rf"{backbone.name} has no patches that can be left out \(a vision transformer of open_clip, such as"
        with pytest.raises(ArgumentError, match=message):
            create_method("fcl_variants", backbone=backbone, occluder="drop")
        with pytest.raises(ArgumentError, match=message):
            require(backbone, DROPPABLE_PATCHES)


def test_features_that_are_useless_without_patches_are_told(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = tiny("clip")
    useless = torch.nn.Parameter(torch.full_like(backbone.image_encoder.proj, torch.nan))
    monkeypatch.setitem(backbone.image_encoder._parameters, "proj", useless)
    with pytest.raises(FeatureError, match="the features of 2 of 2 pictures are NaN, infinite or all zero"):
        backbone.encode_without(torch.zeros(3, 32, 32), random_patches(2, backbone.patches, 2))


# In FCL

DROP = {"masks": 24, "k": 3, "occluder": "drop"}


@pytest.fixture
def make(tiny: Make, make_image: Callable[..., np.ndarray]) -> Callable[..., Episode]:
    labels = LabelSpace(("cat", "dog", "missile", "tree"), tiny("clip"))
    return lambda seed=0: Episode(make_image(seed), labels, ViewRecipe(count=8, scale=(0.3, 1.0)))


def test_fcl_leaves_patches_out(make: Callable[..., Episode], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    encode = type(make().backbone).encode_without

    def count(self, image, hidden):
        asked.append(hidden)
        return encode(self, image, hidden)

    monkeypatch.setattr(type(make().backbone), "encode_without", count)
    adaptation = FCLVariants(**DROP).adapt(make())
    assert_valid(adaptation.prediction, 4)
    assert torch.cat(asked).shape == (24, 2, 2)
    assert torch.cat(asked).flatten(1).sum(1).tolist() == [2] * 24
    masks = adaptation.evidence.masks
    assert all(torch.equal(own, hidden) for own, hidden in zip(masks.cells, torch.cat(asked), strict=True))
    assert set(masks.drawn) <= {7, 9, 11, 13}


def test_maps_of_left_out_patches_are_the_sums_over_them(make: Callable[..., Episode]) -> None:
    evidence = FCLVariants(**DROP).adapt(make()).evidence
    expected = torch.einsum("mc,mhw->chw", evidence.importance, torch.stack(evidence.masks.cells).float()) / 24
    whole = expected.repeat_interleave(16, 1).repeat_interleave(16, 2)
    torch.testing.assert_close(evidence.maps, whole)
