"""Read images and make their views, corrupted or attacked where that is asked for, before any method sees them.

Files are decoded and views cut ahead, in other processes where that is asked for.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, tee
from operator import attrgetter

from faircontext.attacks import attacked_views
from faircontext.backbones.engines import ROW_MULTIPLE
from faircontext.corruptions import corrupted_views
from faircontext.datasets.spec import Sample
from faircontext.errors import FeatureError, ImageError
from faircontext.imageio import DecodedImage
from faircontext.labels import LabelSpace
from faircontext.perturbations import Attack, Corruption
from faircontext.runs.ahead import Threads, map_ahead
from faircontext.sources import Source
from faircontext.system import usable_processors
from faircontext.views import Geometry, ViewRecipe, Views


@dataclass(frozen=True)
class PreparedImage:
    """An image that has been read, or why not; `view_seconds` are those that cutting its views took."""

    views: Views | None
    seconds: float
    error: str = ""
    warnings: tuple[str, ...] = ()
    view_seconds: float = 0.0


@dataclass(frozen=True)
class Reader:
    """Reads an image and makes its views; this is what runs in other processes."""

    geometry: Geometry
    recipe: ViewRecipe
    seed: int
    read: Callable[[Source], DecodedImage]
    cut: bool
    augment: bool
    corruption: Corruption | None = None

    def __call__(self, sample: Sample) -> PreparedImage:
        """Return what is made of an image."""
        prepared = prepare_image(
            partial(self.read, sample.path), self.geometry, self.recipe, self.seed, self.corruption
        )
        if prepared.views is None:
            return prepared
        begin = time.perf_counter()
        if self.cut:
            prepared.views.all  # noqa: B018
        if self.augment:
            prepared.views.augmented.all  # noqa: B018
        return replace(prepared, view_seconds=time.perf_counter() - begin)


def prepare_image(
    read: Callable[[], DecodedImage],
    geometry: Geometry,
    recipe: ViewRecipe,
    seed: int,
    corruption: Corruption | None = None,
) -> PreparedImage:
    """Read an image and make its plain view.

    Args:
        read: decodes it; what it raises of `ImageError` is kept as the reason why there is no image.
        geometry: the backbone's input.
        recipe: how views are made.
        seed: the run's seed.
        corruption: what is done to the image first; its time counts as no method's.
    """
    begin = time.perf_counter()
    try:
        image = read()
        views = Views(image.pixels, geometry, recipe, seed)
        if corruption is not None:
            start = time.perf_counter()
            views = corrupted_views(views, corruption)
            begin += time.perf_counter() - start
    except ImageError as error:
        return PreparedImage(None, time.perf_counter() - begin, error.reason)
    views.plain  # noqa: B018 (made here, as the others when they are asked for)
    return PreparedImage(views, time.perf_counter() - begin, warnings=image.warnings)


def prepare_images(reader: Reader, samples: Iterable[Sample], workers: int) -> Iterator[tuple[Sample, PreparedImage]]:
    """Yield images in order, each with what was made of it: when its turn comes, or ahead where there are workers."""
    samples, to_read = tee(samples)
    prepared: Iterator[PreparedImage] = map(reader, to_read)
    if workers:
        prepared = map_ahead(reader, to_read, workers, name=attrgetter("key"))
    elif not reader.cut:
        prepared = _read_together(reader, to_read, min(ROW_MULTIPLE, usable_processors()))
    yield from zip(samples, prepared, strict=True)


def _read_together(reader: Reader, samples: Iterator[Sample], number: int) -> Iterator[PreparedImage]:
    """Yield prepared images in order: all processors read, then, once a batch has been read, encode: both need them."""
    threads = Threads(reader, number)
    try:
        while chunk := [*islice(samples, ROW_MULTIPLE)]:
            for result in [*map(threads.submit, chunk)]:
                yield result()
    finally:
        threads.close()


def attack_image(sample: Sample, image: PreparedImage, labels: LabelSpace, attack: Attack) -> PreparedImage:
    """Attack an image that has been read, where it has."""
    if image.views is None:
        return image
    try:
        return replace(image, views=attacked_views(image.views, sample.label, labels, attack))
    except FeatureError as error:
        return replace(image, views=None, error=str(error))
