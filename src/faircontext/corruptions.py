"""Common corruptions of images, by the library imagecorruptions-imaug, with random numbers of the image's own.

An image is corrupted at the size that the model reads, as ImageNet-C's are, whose files are central squares of 224
pixels: strengths are in pixels, and the same noise on a photo of 4,000 pixels would be gone once it is resized. What
views are cut from is then this square.

The library draws from NumPy's global generator. It is seeded for each image, and put back as it was: numbers depend
on (seed, image, corruption) alone, and are the same for each severity. Numba, which runs the loop of glass_blur, has
a generator of its own, which stays as it was seeded.
"""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from faircontext.errors import ArgumentError, ImageError
from faircontext.files import digest
from faircontext.perturbations import Corruption
from faircontext.types import Image
from faircontext.views import Views, image_id, stream

SMALLEST = 32
"""Shortest side that the library takes, in pixels."""

_LIBRARY = "imagecorruptions-imaug"
_MAKERS = (_LIBRARY, "numpy", "scipy", "scikit-image", "opencv-python", "opencv-python-headless", "pillow")
_SEEDED = ("glass_blur", "impulse_noise")  # these take a seed of their own beside the global generator
_INSTALL = "pip install 'faircontext[corruptions]'"
_LOCK = threading.Lock()


def check_library() -> None:
    """Import the library.

    Raises:
        ArgumentError: it is not installed, or cannot be imported; the message says what to install.
    """
    versions = library_versions()
    if _LIBRARY not in versions:
        raise ArgumentError(f"corruptions need {_LIBRARY}, which is not installed: {_INSTALL}")
    try:
        import imagecorruptions  # noqa: F401
    except Exception as error:  # of OpenCV's libraries, of Numba, or of the package imagecorruptions in its place
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        other = _version("imagecorruptions")
        advice = f"pip uninstall imagecorruptions (version {other}), then: {_INSTALL}" if other else _INSTALL
        if re.search(r"\blib[\w.-]+\.so", reason) and _version("opencv-python"):  # libGL and others of a display
            advice = (
                "of a display, which OpenCV can do without: pip uninstall -y opencv-python, then: pip install "
                "--force-reinstall opencv-python-headless"
            )
        raise ArgumentError(f"{_LIBRARY} cannot be imported: {reason}; {advice}") from None


def library_versions() -> dict[str, str]:
    """Return the versions of what makes a corruption, by distribution; jpeg_compression, for example, is Pillow's."""
    versions = {name: _version(name) for name in _MAKERS}
    return {name: text for name, text in versions.items() if text is not None}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def corrupt(image: Image, corruption: Corruption, seed: int = 0, drawn_for: str | None = None) -> Image:
    """Return a corrupted image of the same size.

    Args:
        image: decoded RGB pixels, at least 32 on a side.
        corruption: what is done to it.
        seed: the run's seed.
        drawn_for: id of the image whose random numbers are taken, see `image_id`; None for this one's own.

    Raises:
        ArgumentError: the image is too small, or the library is not installed.
        ImageError: the library's arithmetic fails on this image.
    """
    if "imagecorruptions" not in sys.modules:  # once: to look versions up takes milliseconds
        check_library()
    check_size(min(image.shape[:2]))
    from imagecorruptions import corrupt as make

    key = digest(corruption.name, " ", image_id(image) if drawn_for is None else drawn_for)
    library_seed, shared = stream(seed, key, "corruption").integers(2**32, size=2).tolist()
    options = {"seed": library_seed} if corruption.name in _SEEDED else {}
    try:
        with _seeded(shared), np.errstate(invalid="raise", divide="raise"):
            made: Image = make(image, corruption.severity, corruption.name, **options)
    except FloatingPointError as error:  # of spatter, where no drop falls on a small image
        raise ImageError(corruption.name, f"{corruption} cannot be made of this picture: {error}") from None
    return made


def check_size(side: int) -> None:
    """Raise `ArgumentError` unless an image, or a model's input, of so many pixels can be corrupted."""
    if side < SMALLEST:
        raise ArgumentError(
            f"{side} pixels a side are too few for corruptions, which take {SMALLEST} or more; pictures are corrupted "
            "at the size that the model reads: take a model that reads larger ones"
        )


def corrupted_views(views: Views, corruption: Corruption) -> Views:
    """Return views of a corrupted image: of the plain view, as the model reads it, corrupted; crops are cut from it.

    Args:
        views: of the image as it was decoded.
        corruption: what is done to it.

    Raises:
        ArgumentError: see `corrupt`.
        ImageError: see there.
    """
    square = np.ascontiguousarray(views.plain.permute(1, 2, 0).numpy())
    return views.of(corrupt(square, corruption, views.seed, views.id))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator for a while, for one thread at a time, and leave it as it was."""
    with _LOCK:
        earlier = np.random.get_state()
        np.random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(earlier)
