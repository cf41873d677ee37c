"""Corruptions depend on seed, picture and corruption alone, are those of the library, and leave its generator alone."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from faircontext import FairContextError, ViewRecipe
from faircontext.corruptions import check_library, corrupt, corrupted_views, library_versions
from faircontext.perturbations import KINDS, Corruption
from faircontext.views import Geometry, Views, image_id

pytest.importorskip("imagecorruptions")

NAMES = [name for names in KINDS.values() for name in names]
SEEDED = {*KINDS["noise"], "snow", "frost", "fog", "glass_blur", "motion_blur", "elastic_transform", "spatter"}
"""Those that draw numbers."""


@pytest.fixture(scope="module", autouse=True)
def interpreted() -> Iterator[None]:
    """Run the loop of glass_blur in Python: to compile it takes a minute."""
    from imagecorruptions import corruptions

    def shuffle(d0: int, d1: int, x: np.ndarray, c: tuple[int, ...], seed: int) -> np.ndarray:
        return loop.py_func(d0, d1, x, c, seed)

    loop = corruptions._shuffle_pixels_njit_glass_blur
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corruptions, "_shuffle_pixels_njit_glass_blur", shuffle)
        yield


@pytest.fixture(scope="module")
def picture(photos: dict[str, np.ndarray]) -> np.ndarray:
    return photos["astronaut"][150:214, 150:214].copy()


@pytest.mark.parametrize("name", NAMES)
def test_each_corruption_is_the_librarys_with_numbers_of_the_pictures_own(name: str, picture: np.ndarray) -> None:
    before = np.random.get_state()[1].copy()
    made = corrupt(picture, Corruption(name, 3))
    assert made.shape == picture.shape
    assert made.dtype == np.uint8
    assert not np.array_equal(made, picture)
    assert np.array_equal(np.random.get_state()[1], before)
    np.random.random(3)  # what others draw in between changes nothing
    assert np.array_equal(corrupt(picture, Corruption(name, 3)), made)
    assert (name in SEEDED) <= (not np.array_equal(corrupt(picture, Corruption(name, 3), 1), made))


def test_gaussian_noise_has_the_published_strength() -> None:
    """ImageNet-C adds noise of standard deviation 0.08, 0.12, 0.18, 0.26 and 0.38."""
    grey = np.full((256, 256, 3), 128, np.uint8)
    for severity, deviation in ((1, 0.08), (2, 0.12)):
        noise = corrupt(grey, Corruption("gaussian_noise", severity)).astype(float) - 128
        assert noise.std() == pytest.approx(255 * deviation, rel=0.02)


def test_severities_share_their_numbers() -> None:
    grey = np.full((64, 64, 3), 128, np.uint8)
    weak, strong = (corrupt(grey, Corruption("gaussian_noise", s)).astype(float).ravel() - 128 for s in (1, 2))
    assert np.corrcoef(weak, strong)[0, 1] > 0.999


def test_contrast_is_its_formula(picture: np.ndarray) -> None:
    x = picture / 255.0
    means = x.mean((0, 1), keepdims=True)
    assert np.array_equal(corrupt(picture, Corruption("contrast", 3)), np.uint8(((x - means) * 0.2 + means) * 255))


def test_threads_do_not_disturb_each_other(picture: np.ndarray) -> None:
    corruptions = [Corruption(name, 2) for name in ("gaussian_noise", "shot_noise", "motion_blur", "fog")] * 4
    alone = [corrupt(picture, one) for one in corruptions]
    with ThreadPoolExecutor(8) as pool:
        together = [*pool.map(lambda one: corrupt(picture, one), corruptions)]
    assert all(map(np.array_equal, alone, together))


def test_views_are_cut_from_the_plain_view_corrupted(make_image: Callable[..., np.ndarray]) -> None:
    image = make_image(1, 90, 120)
    views = Views(image, Geometry(64, "bicubic"), ViewRecipe(count=4), 3)
    shifted = corrupted_views(views, Corruption("contrast", 5))
    square = views.plain.permute(1, 2, 0).numpy()
    expected = corrupt(square, Corruption("contrast", 5), 3, image_id(image))
    assert np.array_equal(shifted.plain.permute(1, 2, 0).numpy(), expected)
    assert shifted.id == image_id(expected)
    assert shifted.all.shape == (4, 3, 64, 64)
    assert shifted.all.float().std() < 0.3 * views.all.float().std()


def test_a_small_picture_is_refused() -> None:
    with pytest.raises(FairContextError) as refused:
        corrupt(np.zeros((31, 40, 3), np.uint8), Corruption("fog", 1))
    assert str(refused.value) == (
        "31 pixels a side are too few for corruptions, which take 32 or more; pictures are corrupted at the size that "
        "the model reads: take a model that reads larger ones"
    )


def test_arithmetic_that_fails_is_an_error_of_the_picture(picture: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    from imagecorruptions import corruption_dict

    def fails(*_: object) -> np.ndarray:
        return np.zeros(3) / np.zeros(3)

    monkeypatch.setitem(corruption_dict, "spatter", fails)
    before = np.random.get_state()[1].copy()
    with pytest.raises(FairContextError, match="spatter:1 cannot be made of this picture: invalid value"):
        corrupt(picture, Corruption("spatter", 1))
    assert np.array_equal(np.random.get_state()[1], before)


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    check_library()
    assert {"imagecorruptions-imaug", "pillow", "numpy"} <= library_versions().keys()
    monkeypatch.setattr("faircontext.corruptions._version", lambda _: None)
    with pytest.raises(FairContextError) as refused:
        check_library()
    assert str(refused.value) == (
        "corruptions need imagecorruptions-imaug, which is not installed: pip install 'faircontext[corruptions]'"
    )


def test_a_library_that_cannot_be_imported_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imagecorruptions", None)
    with pytest.raises(FairContextError, match=r"imagecorruptions-imaug cannot be imported: .*halted.*; pip install"):
        check_library()


@pytest.mark.parametrize("library", ["libGL.so.1", "libgthread-2.0.so.0"])
def test_a_library_of_a_display_that_is_missing_is_named_with_the_package_that_needs_none(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cv2.py").write_text(
        f'raise ImportError("{library}: cannot open shared object file: No such file or directory")'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in [name for name in sys.modules if name.partition(".")[0] in ("cv2", "imagecorruptions")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr("faircontext.corruptions._version", lambda name: None if name == "imagecorruptions" else "4.9")
    with pytest.raises(FairContextError) as refused:
        check_library()
    assert str(refused.value) == (
        f"imagecorruptions-imaug cannot be imported: {library}: cannot open shared object file: No such file or "
        "directory; of a display, which OpenCV can do without: pip uninstall -y opencv-python, then: pip install "
        "--force-reinstall opencv-python-headless"
    )
