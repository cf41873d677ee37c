"""Episodes: everything about one image, computed when it is needed, once, and from the image and the seed alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from faircontext import Episode, LabelSpace, ViewRecipe, create_method
from faircontext.backbones.lite import Lite
from faircontext.views import Views
from helpers import assert_identical, same_bits

MakeEpisode = Callable[..., Episode]
MakeImage = Callable[..., np.ndarray]
GRIDS = (7, 9)


class CountingLite(Lite):
    """Counts the images that it encodes."""

    encoded = 0

    def encode_parts(self, parts):
        parts = [*parts]
        self.encoded += sum(map(len, parts))
        return super().encode_parts(parts)


@pytest.fixture(scope="module")
def counting_labels() -> LabelSpace:
    return LabelSpace(("cat", "dog"), CountingLite("lite0"))


def test_zero_shot_encodes_one_view_and_fcl_each_image_once(counting_labels: LabelSpace, make_image: MakeImage) -> None:
    backbone = counting_labels.backbone
    episode = Episode(make_image(0), counting_labels, ViewRecipe(count=8))
    before = backbone.encoded
    create_method("zero_shot")(episode)
    assert backbone.encoded - before == 1
    assert "views" not in episode.known
    fcl = create_method("fcl", masks=8)
    before = backbone.encoded
    fcl(episode)
    assert backbone.encoded - before == 8 + 8 + 1  # views, masks and the one pair of two classes
    for again in (
        fcl,
        create_method("fcl_variants", masks=8, lr=0.1, pair_weight="uniform"),
        create_method("zero_shot"),
    ):
        again(episode)
        assert backbone.encoded - before == 8 + 8 + 1
    create_method("fcl_variants", masks=8, evidence_scaling="minmax")(episode)
    assert backbone.encoded - before == 8 + 8 + 1 + 1  # the same masked images, another common evidence


def test_the_plain_view_comes_first_and_its_features_are_z(make_episode: MakeEpisode, make_image: MakeImage) -> None:
    first, second = make_episode(make_image(0)), make_episode(make_image(0))
    assert same_bits(first.views[0], first.plain)
    assert same_bits(first.x, first.plain / 255.0)
    assert same_bits(first.view_features[0], second.z)  # encoded among eight and alone
    assert same_bits(first.view_features[0], first.z)


def test_stored_features_are_of_one_plain_view(labels: LabelSpace, make_image: MakeImage, tmp_path: Path) -> None:
    def z(plain: Literal["own", "pad"], folder: Path | None) -> torch.Tensor:
        views = Views(make_image(0, 40, 90), labels.backbone.geometry, ViewRecipe(count=2, plain=plain), 0)
        return Episode.of(views, labels, folder).z

    stored = [z(plain, tmp_path) for plain in ("own", "pad", "own")]
    assert same_bits(stored[0], stored[2])
    assert not same_bits(stored[0], stored[1])
    assert same_bits(stored[1], z("pad", None))


def test_view_features_are_the_views_encoded_alone(make_episode: MakeEpisode, make_image: MakeImage) -> None:
    episode = make_episode(make_image(0), views=18)
    for index in (3, 17):
        alone = episode.backbone.encode_image(episode.views[index : index + 1] / 255.0)
        assert same_bits(episode.view_features[index], alone[0])


def test_masked_features_are_those_of_the_image_with_blackened_cells(
    make_episode: MakeEpisode, make_image: MakeImage
) -> None:
    episode = make_episode(make_image(0))
    masks, features = episode.masked_features(18, GRIDS, 0.5, "black")
    assert features.shape == (18, 384)
    x, cells = episode.x.clone(), masks.cells[17]
    size = x.shape[-1]
    for row in range(size):
        for column in range(size):
            if cells[row * len(cells) // size, column * len(cells) // size]:
                x[:, row, column] = 0
    assert same_bits(features[17], episode.backbone.encode_image(x[None])[0])


def test_masked_features_are_computed_once_per_setting(counting_labels: LabelSpace, make_image: MakeImage) -> None:
    episode, backbone = Episode(make_image(0), counting_labels), counting_labels.backbone
    before = backbone.encoded
    first = episode.masked_features(4, GRIDS, 0.5, "black")
    again = episode.masked_features(4, GRIDS, 0.5, "black")
    assert torch.equal(again[1], first[1])
    assert len(again[0]) == 4
    shorter = episode.masked_features(3, GRIDS, 0.5, "black")
    assert torch.equal(shorter[1], first[1][:3])
    assert len(shorter[0]) == 3
    assert backbone.encoded - before == 4
    for setting in [
        (5, GRIDS, 0.5, "black"),
        (4, (7,), 0.5, "black"),
        (4, GRIDS, 0.4, "black"),
        (4, GRIDS, 0.5, "mean"),
    ]:
        assert not torch.equal(episode.masked_features(*setting)[1], first[1])


def test_an_episode_leaves_the_image_as_it_was(make_episode: MakeEpisode, make_image: MakeImage) -> None:
    image = make_image(0)
    create_method("fcl", masks=8, k=3)(make_episode(image))
    assert np.array_equal(image, make_image(0))


@pytest.mark.parametrize("layout", ["read-only", "mirrored", "transposed"])
def test_any_memory_layout_is_taken(make_episode: MakeEpisode, make_image: MakeImage, layout: str) -> None:
    image = make_image(0)
    if layout == "read-only":
        image.setflags(write=False)
    elif layout == "mirrored":
        image = image[:, ::-1]
    else:
        image = image.transpose(1, 0, 2)
    method = create_method("zero_shot")
    assert_identical(method(make_episode(image)), method(make_episode(np.array(image, order="C"))))
