import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image
from scipy.stats import ks_2samp
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.v2 import functional as tvf

from faircontext.errors import ArgumentError
from faircontext.views import Geometry, ViewRecipe, Views, _crop_box, _resize, plain_view, random_views

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(height: int, width: int) -> np.ndarray:
    return rng(height + width).integers(0, 256, (height, width, 3), dtype=np.uint8)


def to_tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)


def to_array(view: torch.Tensor) -> np.ndarray:
    return view.permute(1, 2, 0).numpy().astype(int)


def plain_by_pillow(image: np.ndarray, size: int, interpolation: str) -> np.ndarray:
    height, width = image.shape[:2]
    tall, wide = (size, size * width // height) if height <= width else (size * height // width, size)
    resized = Image.fromarray(image).resize((wide, tall), FILTERS[interpolation])
    left, top = round((wide - size) / 2), round((tall - size) / 2)
    return np.asarray(resized.crop((left, top, left + size, top + size))).astype(int)


# The plain view


@pytest.mark.parametrize("shape", [(20, 102), (20, 333), (7, 100), (30, 1000), (1000, 101), (200, 1500), (1, 64)])
def test_the_plain_view_of_a_long_image_is_the_same_crop(shape):
    image = noise(*shape)
    difference = to_array(plain_view(to_tensor(image), 64, "bilinear")) - plain_by_pillow(image, 64, "bilinear")
    assert np.abs(difference).max() <= 2


@pytest.mark.parametrize("turned", [False, True])
def test_a_strip_of_two_million_pixels_is_not_resized_as_a_whole(turned):
    # As a whole it would become 300 GB. The square lies across the two central pixels.
    strip = torch.full((3, 1, 2_000_000), 50, dtype=torch.uint8)
    strip[:, :, 1_000_000:] = 200
    view = plain_view(strip.mT.contiguous() if turned else strip, 224, "bilinear")
    profile = (view[0, :, 0] if turned else view[0, 0]).int()
    assert (profile[0].item(), profile[-1].item()) == (50, 200)
    assert torch.all(profile.diff() >= 0)
    assert abs(int((profile < 125).sum()) - 112) <= 1


@given(
    shape=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    size=st.tuples(st.integers(1, 64), st.integers(1, 64)),
    filter_=st.sampled_from(["nearest", "bilinear", "bicubic"]),
    crop=st.booleans(),
)
def test_resizing_is_torchvisions_to_the_bit(shape, size, filter_, crop):
    image = to_tensor(noise(*shape))[:, shape[0] // 3 if crop else 0 :, shape[1] // 4 if crop else 0 :]
    expected = tvf.resize(image, [*size], interpolation=InterpolationMode(filter_), antialias=True)
    assert torch.equal(_resize(image, *size, filter_), expected)


@pytest.mark.parametrize("shape", [(300, 200), (37, 91), (64, 65), (5, 5), (61, 300), (100, 400)])
@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_the_plain_view_is_torchvisions_to_the_bit(shape, mode):
    image = to_tensor(noise(*shape))
    whole = [max(1, round(64 * side / max(shape))) for side in shape]
    side = {"shortest": [64], "squash": [64, 64], "longest": whole}[mode]
    resized = tvf.resize(image, side, interpolation=InterpolationMode.BICUBIC, antialias=True)
    square = tvf.center_crop(resized, [64, 64])  # black where there is less
    assert torch.equal(plain_view(image, 64, "bicubic", mode), square)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("shortest", ["BBBBBB"] * 6),
        ("squash", ["RRBBRR"] * 6),
        ("longest", ["......"] * 2 + ["RRBBRR"] * 2 + ["......"] * 2),
    ],
)
def test_a_long_picture_of_two_colours_is_made_square_as_the_mode_says(mode, rows, turned):
    """Three squares beside each other, red, blue and red, on an input of 6 x 6 pixels."""
    colours = {"R": (200, 0, 0), "B": (0, 0, 100), ".": (0, 0, 0)}
    picture = to_tensor(np.array([[colours[letter] for letter in "R" * 20 + "B" * 20 + "R" * 20]] * 20, np.uint8))
    square = to_tensor(np.array([[colours[letter] for letter in row] for row in rows], np.uint8))
    view = plain_view(picture.mT if turned else picture, 6, "nearest", mode)
    assert torch.equal(view, square.mT if turned else square)


@pytest.mark.parametrize("own", ["shortest", "squash"])
def test_a_recipe_chooses_the_plain_view_or_leaves_it_to_the_model(own):
    image, geometry = noise(20, 50), Geometry(16, "bicubic", own)
    for plain, mode in {"own": own, "crop": "shortest", "pad": "longest", "squash": "squash"}.items():
        views = Views(image, geometry, ViewRecipe(count=3, plain=plain), 0)
        assert torch.equal(views.plain, plain_view(to_tensor(image), 16, "bicubic", mode))
        assert torch.equal(views.all[1:], Views(image, geometry, ViewRecipe(count=3), 0).all[1:])  # crops are the same
        assert torch.equal(views.augmented.plain, views.plain)
        assert views.on(Geometry(8, "bicubic", own)).plain.shape == (3, 8, 8)
        assert ("plain" in views.recipe.facts) == (plain != "own")  # records of other runs stay


def test_where_there_is_no_kernel_for_8_bits_pictures_are_resized_as_floats(monkeypatch):
    image = to_tensor(noise(40, 50))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    expected = tvf.resize(image, [16, 16], antialias=True)
    assert torch.equal(_resize(image, 16, 16, "bilinear"), expected)
    assert torch.equal(expected.float(), tvf.resize(image.float(), [16, 16], antialias=True).round())


# Random views


def test_fewer_views_are_the_first_of_more():
    image = to_tensor(noise(50, 40))
    more, fewer = (random_views(image, 16, ViewRecipe(count=number), rng()) for number in (20, 5))
    assert torch.equal(more[:4], fewer)


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_whole_image_crops_are_the_image_or_its_mirror(flip):
    image = noise(16, 16)
    recipe = ViewRecipe(count=20, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=flip)
    expected = image[:, ::-1] if flip else image
    for view in random_views(to_tensor(image), 16, recipe, rng()):
        assert np.array_equal(to_array(view), expected)


def test_half_of_the_views_are_flipped():
    image = noise(8, 8)
    recipe = ViewRecipe(count=1001, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    flipped = [np.array_equal(to_array(v), image[:, ::-1]) for v in random_views(to_tensor(image), 8, recipe, rng())]
    kept = [np.array_equal(to_array(v), image) for v in random_views(to_tensor(image), 8, recipe, rng())]
    assert sum(flipped) + sum(kept) == 1000
    assert abs(sum(flipped) - 500) < 60


def test_a_crop_is_pillows_crop_and_bilinear_resize():
    image, recipe = noise(90, 120), ViewRecipe(count=2, flip=0.0)
    for seed in range(20):
        top, left, height, width = _crop_box(90, 120, recipe, rng(seed))
        (view,) = random_views(to_tensor(image), 32, recipe, rng(seed))
        crop = Image.fromarray(image).crop((left, top, left + width, top + height))
        expected = np.asarray(crop.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(to_array(view) - expected).max() <= 2


def test_crops_come_from_the_full_resolution():
    # A checkerboard of single pixels keeps its contrast in small crops, which are enlarged; scaled down, it is grey.
    board = (np.indices((400, 400)).sum(0) % 2 * 255).astype(np.uint8)
    image = to_tensor(np.repeat(board[..., None], 3, -1))
    views = random_views(image, 64, ViewRecipe(count=5, scale=(0.001, 0.002), ratio=(1.0, 1.0)), rng())
    assert [int(view.max()) - int(view.min()) > 200 for view in views] == [True] * 4


# Crop boxes

SIDES = st.one_of(st.integers(1, 5), st.integers(1, 3000))
SIZES = st.one_of(st.tuples(SIDES, SIDES), st.tuples(st.just(1), SIDES), st.tuples(SIDES, st.just(1)), st.just((3, 3)))
SCALES = st.sampled_from([(0.08, 1.0), (0.5, 1.0), (0.01, 0.02), (1.0, 1.0)])
RATIOS = st.sampled_from([(3 / 4, 4 / 3), (1.0, 1.0), (0.2, 0.5), (2.0, 3.0)])


def centred_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """The largest centred box of a possible aspect ratio, as torchvision takes it after ten failures."""
    tall, wide = height, width
    if width / height < ratio[0]:
        tall = round(width / ratio[0])
    elif width / height > ratio[1]:
        wide = round(height * ratio[1])
    tall, wide = min(max(tall, 1), height), min(max(wide, 1), width)
    return (height - tall) // 2, (width - wide) // 2, tall, wide


@given(SIZES, SCALES, RATIOS, st.integers(0, 1000))
def test_crop_boxes_lie_inside_the_image_with_area_and_ratio_in_range(size, scale, ratio, seed):
    (height, width), recipe = size, ViewRecipe(scale=scale, ratio=ratio)
    box = top, left, h, w = _crop_box(height, width, recipe, rng(seed))
    assert min(h, w) >= 1
    assert 0 <= top <= height - h
    assert 0 <= left <= width - w
    low, high = (fraction * height * width for fraction in scale)
    area_fits = (h - 0.5) * (w - 0.5) <= high and low <= (h + 0.5) * (w + 0.5)
    ratio_fits = (w - 0.5) / (h + 0.5) <= ratio[1] and ratio[0] <= (w + 0.5) / (h - 0.5)
    assert (area_fits and ratio_fits) or box == centred_box(height, width, ratio)


@pytest.mark.parametrize(("height", "width"), [(1, 2000), (2000, 1), (5, 3000)])
def test_an_image_that_no_crop_fits_gets_the_centred_one(height, width):
    recipe = ViewRecipe()
    assert _crop_box(height, width, recipe, rng()) == centred_box(height, width, recipe.ratio)


def test_every_place_in_the_image_is_reached():
    recipe, stream = ViewRecipe(scale=(1 / 6, 1 / 6), ratio=(1.0, 1.0)), rng()
    boxes = {_crop_box(4, 6, recipe, stream) for _ in range(500)}
    assert boxes == {(top, left, 2, 2) for top in range(3) for left in range(5)}


@pytest.mark.parametrize(("height", "width"), [(300, 200), (100, 130)])
def test_crop_boxes_are_distributed_as_torchvisions(height, width):
    stream, image = rng(), torch.empty(3, height, width)
    ours = np.array([_crop_box(height, width, ViewRecipe(), stream) for _ in range(1500)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = np.array([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(1500)])
    for column in range(4):
        assert ks_2samp(ours[:, column], theirs[:, column]).pvalue > 0.01
    assert ks_2samp(ours[:, 2] / ours[:, 3], theirs[:, 2] / theirs[:, 3]).pvalue > 0.01


def test_a_strip_of_two_million_pixels_is_cropped_in_its_centre():
    strip = torch.zeros(3, 1, 2_000_000, dtype=torch.uint8)
    strip[:, :, 999_999] = 77
    views = random_views(strip, 224, ViewRecipe(count=3), rng())
    assert torch.equal(views, torch.full((2, 3, 224, 224), 77, dtype=torch.uint8))


@given(st.integers(1, 12), st.integers(1, 12))
def test_tiny_images_have_views_of_their_own_colours(height, width):
    image = to_tensor(noise(height, width))
    views = random_views(image, 8, ViewRecipe(count=4), rng())
    for channel in range(3):
        assert image[channel].min() <= views[:, channel].min()
        assert views[:, channel].max() <= image[channel].max()


# Recipes


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("count", 0),
        ("scale", (0.5, 0.2)),
        ("scale", (0.0, 1.0)),
        ("scale", (0.5, 1.1)),
        ("ratio", (0.0, 1.0)),
        ("ratio", (2.0, 1.0)),
        ("ratio", (math.nan, 1.0)),
        ("flip", -0.1),
        ("flip", 1.5),
    ],
)
def test_an_impossible_recipe_names_the_argument(argument, value):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        ViewRecipe(**{argument: value})
