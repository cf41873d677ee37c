import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from faircontext.errors import ArgumentError
from faircontext.evidence import sample_masks
from faircontext.views import ViewRecipe, image_id, random_views, stream

PURPOSES = ["views", "masks", "augmix", "context"]
IDS = st.integers(0, 2**256 - 1).map("{:064x}".format)


def pixels(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


def test_the_id_is_the_sha256_of_shape_and_pixels():
    image = pixels(2, 5, 3)
    assert image_id(image) == hashlib.sha256(b"(2, 5, 3)" + bytes(range(30))).hexdigest()


def test_the_id_depends_on_the_shape():
    assert image_id(pixels(2, 5, 3)) != image_id(pixels(5, 2, 3))
    assert image_id(pixels(1, 12, 3)) != image_id(pixels(11, 2, 3)[:6].reshape(12, 1, 3))


def test_the_id_does_not_depend_on_the_memory_layout():
    image = pixels(4, 6, 3)
    assert image_id(np.asfortranarray(image)) == image_id(image)
    assert image_id(image[:, ::-1]) == image_id(image[:, ::-1].copy())


@pytest.mark.parametrize(
    ("purpose", "expected"),
    [
        ("views", [26283178, 3052974522, 758085872]),
        ("masks", [727604027, 2669468854, 2522056455]),
        ("augmix", [988146924, 754361280, 3284068655]),
        ("context", [2181836251, 357565569, 3284845975]),
    ],
)
def test_streams_are_what_they_always_were(purpose, expected):
    # A change here changes every published number; a purpose's position in the list is its key.
    assert stream(0, "ab" * 32, purpose).integers(0, 2**32, 3).tolist() == expected


@given(st.integers(0, 2**32 - 1), IDS, st.sampled_from(PURPOSES))
def test_a_stream_repeats(seed, image, purpose):
    assert np.array_equal(stream(seed, image, purpose).random(8), stream(seed, image, purpose).random(8))


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), IDS, st.sampled_from(PURPOSES)), min_size=2, unique=True))
def test_streams_differ_by_seed_image_and_purpose(keys):
    assert len({tuple(stream(*key).random(4)) for key in keys}) == len(keys)


@pytest.mark.parametrize("seeds", [(0, 1), (1, 2**32), (0, 2**32)])
def test_large_and_small_seeds_differ(seeds):
    first, second = (stream(seed, "ab" * 32, "views").random(4) for seed in seeds)
    assert not np.array_equal(first, second)


def test_a_negative_seed_is_refused():
    with pytest.raises(ArgumentError, match=r"^seed=-1 is not possible; it must be a number of at least 0$"):
        stream(-1, "ab" * 32, "views")


def test_global_generators_are_neither_read_nor_moved():
    def draw() -> list[bytes]:
        generator = stream(0, image_id(pixels(8, 8, 3)), "views")
        views = random_views(torch.from_numpy(pixels(8, 8, 3)).permute(2, 0, 1), 8, ViewRecipe(count=4), generator)
        masks = sample_masks(4, stream(0, "ab" * 32, "masks"), (7,), (0.2, 0.8))
        return [views.numpy().tobytes(), masks.pixels(0, 4, 7, 7).numpy().tobytes()]

    def states() -> tuple[bytes, bytes]:
        return np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()

    before = states()
    first = draw()
    assert states() == before
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        assert draw() == first
