"""Run methods over images; a bad file is a row with an error and never ends a run.

Files are decoded and views cut ahead, in other processes where that is asked for; features are computed in this one.
Where no method uses views, the plain views of `ROW_MULTIPLE` images are encoded in one batch.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from faircontext.backbones.base import ROW_MULTIPLE
from faircontext.bench.records import Row
from faircontext.episode import Episode
from faircontext.errors import FairContextError, ImageError
from faircontext.imageio import DecodedImage, read_image
from faircontext.labels import LabelSpace
from faircontext.methods import Method, ZeroShot
from faircontext.metrics.stats import Accuracy, mcnemar_exact
from faircontext.types import Prediction
from faircontext.views import Geometry, ViewRecipe, Views

__all__ = ["Answer", "Comparison", "Item", "Outcome", "answer_images", "compare"]

_ZERO_SHOT = ZeroShot()


@dataclass(frozen=True)
class Item:
    """An image to be answered.

    Attributes:
        name: what it is called in its rows.
        path: the file.
        label: index of its class, or None where it is not known.
    """

    name: str
    path: Path
    label: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What a method and zero-shot make of one image; classes are given by index, as two may have one name.

    Attributes:
        label: the true class, None where it is not known.
        zero_shot: zero-shot's answer, None where the file was refused.
        prediction: the method's answer, None where the file was refused.
    """

    label: int | None
    zero_shot: int | None
    prediction: int | None


@dataclass(frozen=True)
class Answer:
    """All methods' answers for one image.

    Attributes:
        rows: what is written, one per method.
        predictions: what the rows were made from, in the same order; none where the file was refused.
        reference: zero-shot's prediction.
        notes: what was decided when the file was read, see `DecodedImage`.
        label: index of the true class, None where it is not known.
    """

    rows: tuple[Row, ...]
    predictions: tuple[Prediction, ...] = ()
    reference: Prediction | None = None
    notes: tuple[str, ...] = ()
    label: int | None = None

    @property
    def path(self) -> str:
        """The image."""
        return self.rows[0].path

    @property
    def error(self) -> str:
        """Why the file was refused, or empty."""
        return self.rows[0].error

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What accuracies are counted from, one per method."""
        if self.reference is None:
            return (Outcome(self.label, None, None),) * len(self.rows)
        return tuple(Outcome(self.label, self.reference.index, found.index) for found in self.predictions)


@dataclass(frozen=True)
class _Prepared:
    """An image that has been read, or why not."""

    views: Views | None
    seconds: float
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Images(Dataset[_Prepared]):
    """Reads images and makes their views; this is what runs in other processes."""

    items: Sequence[Item]
    geometry: Geometry
    recipe: ViewRecipe
    seed: int
    read: Callable[[Path], DecodedImage]
    cut: bool
    augment: bool

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> _Prepared:
        begin = time.perf_counter()
        try:
            image = self.read(self.items[index].path)
        except ImageError as error:
            return _Prepared(None, time.perf_counter() - begin, error.reason)
        views = Views(image.pixels, self.geometry, self.recipe, self.seed)
        views.plain  # noqa: B018 (made here, as the others below)
        if self.cut:
            views.all  # noqa: B018
        if self.augment:
            views.augmented.all  # noqa: B018
        return _Prepared(views, time.perf_counter() - begin, notes=image.notes)


def answer_images(
    items: Sequence[Item],
    labels: LabelSpace,
    methods: Mapping[str, Method],
    recipe: ViewRecipe,
    seed: int = 0,
    read: Callable[[Path], DecodedImage] = read_image,
    workers: int = 0,
    features: Path | None = None,
) -> Iterator[Answer]:
    """Yield one answer per image, in order; each image is read and encoded once for all methods.

    Args:
        items: the images.
        labels: the label space.
        methods: which methods, by what they are called in rows; zero-shot is run beside them, on the same prompts.
        recipe: how views are made.
        seed: the run's seed.
        read: how a file is decoded.
        workers: processes that read files and cut views ahead; with 0 this one does it when an image's turn comes.
        features: folder where image features are kept, for other runs on the same images; None keeps none.

    Raises:
        FairContextError: a worker process was killed.
    """
    labels.text  # noqa: B018 (encoded here, so that it does not count in the first image's seconds)
    cut = any(method.uses_views for method in methods.values())
    augment = recipe.augmix == "auto" and recipe.regime == "fine-grained"
    augment = augment and any(method.fine_grained_augmix for method in methods.values())
    # Where features are kept, pixels are made only for those that are missing.
    ahead = features is None
    images = _Images(items, labels.backbone.geometry, recipe, seed, read, cut and ahead, augment and ahead)
    stream = zip(items, _prepare(images, workers), strict=True)
    while chunk := list(islice(stream, 1 if cut else ROW_MULTIPLE)):
        yield from _answer_chunk(chunk, labels, methods, features)


def _prepare(images: _Images, workers: int) -> Iterator[_Prepared]:
    """Yield prepared images in order: made when their turn comes, or ahead where there are workers."""
    if workers == 0 and images.cut:
        yield from map(images.__getitem__, range(len(images)))
    elif workers == 0:
        yield from _prepare_in_turns(images)
    else:
        yield from _prepare_ahead(images, workers)


def _prepare_in_turns(images: _Images) -> Iterator[_Prepared]:
    """Use all processors for reading, then, once a batch has been read, for encoding: on a CPU both need them."""
    with ThreadPoolExecutor(min(ROW_MULTIPLE, os.cpu_count() or 1)) as pool:
        for start in range(0, len(images), ROW_MULTIPLE):
            yield from pool.map(images.__getitem__, range(start, min(start + ROW_MULTIPLE, len(images))))


def _prepare_ahead(images: _Images, workers: int) -> Iterator[_Prepared]:
    loader = DataLoader(
        images,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        multiprocessing_context="spawn",
        prefetch_factor=4,
    )
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" in str(error):
            raise FairContextError(
                "a process that reads images was killed, perhaps for want of memory; use fewer workers"
            ) from None
        raise


def _as_it_is(prepared: Any) -> Any:
    return prepared


def _answer_chunk(
    chunk: Sequence[tuple[Item, _Prepared]],
    labels: LabelSpace,
    methods: Mapping[str, Method],
    features: Path | None,
) -> Iterator[Answer]:
    """Answer some images; where there are several, their plain views are encoded in one batch."""
    begin = time.perf_counter()
    episodes = [None if image.views is None else Episode.of(image.views, labels, features) for _, image in chunk]
    read = [episode for episode in episodes if episode is not None]
    if len(read) > 1:
        plain = torch.stack([episode.plain for episode in read]).to(labels.backbone.device)
        encoded = labels.backbone.encode_image(plain / 255.0)
        for place, z in enumerate(encoded):
            read[place].take_z(z)
    shared = (time.perf_counter() - begin) / len(chunk)
    for (item, image), episode in zip(chunk, episodes, strict=True):
        seconds = image.seconds + shared
        if episode is None:
            refused = replace(_row_of(item, labels), error=image.error, seconds=seconds)
            yield Answer(tuple(replace(refused, method=name) for name in methods), label=item.label)
        else:
            yield _answer(episode, methods, item, image.notes, seconds)


def _row_of(item: Item, labels: LabelSpace) -> Row:
    return Row(item.name, "" if item.label is None else labels.names[item.label])


def _answer(
    episode: Episode, methods: Mapping[str, Method], item: Item, notes: tuple[str, ...], seconds: float
) -> Answer:
    # Zero-shot comes last: it takes the plain view's features from the views', where they are encoded anyway.
    found: dict[Method, tuple[Prediction, float]] = {}
    for method in sorted([*methods.values(), _ZERO_SHOT], key=lambda method: isinstance(method, ZeroShot)):
        if method not in found:
            begin = time.perf_counter()
            prediction = method(episode)
            found[method] = prediction, time.perf_counter() - begin + seconds
            seconds = 0.0
    names, (reference, _) = episode.labels.names, found[_ZERO_SHOT]
    row = _row_of(item, episode.labels)
    predictions = tuple(found[method][0] for method in methods.values())
    rows = tuple(
        replace(
            row,
            zero_shot=names[reference.index],
            prediction=names[prediction.index],
            votes=None if prediction.votes is None else int(prediction.votes[prediction.index]),
            confidence=prediction.confidence,
            method=name,
            fallback=prediction.fallback or "",
            seconds=found[method][1],
        )
        for (name, method), prediction in zip(methods.items(), predictions, strict=True)
    )
    return Answer(rows, predictions, reference, notes, item.label)


@dataclass(frozen=True)
class Comparison:
    """Zero-shot and a method on the same labelled images.

    Attributes:
        zero_shot: accuracy of zero-shot.
        method: accuracy of the method.
        gained: images that only the method has right.
        lost: images that only zero-shot has right.
        p_value: of the exact paired test (McNemar).
    """

    zero_shot: Accuracy
    method: Accuracy
    gained: int
    lost: int
    p_value: float = field(default=1.0)


def compare(outcomes: Iterable[Outcome]) -> Comparison | None:
    """Compare a method with zero-shot on the images that have a label and an answer; None where there are none."""
    pairs = [
        (found.zero_shot == found.label, found.prediction == found.label)
        for found in outcomes
        if found.label is not None and found.prediction is not None
    ]
    if not pairs:
        return None
    gained = sum(method and not zero_shot for zero_shot, method in pairs)
    lost = sum(zero_shot and not method for zero_shot, method in pairs)
    return Comparison(
        Accuracy(sum(zero_shot for zero_shot, _ in pairs), len(pairs)),
        Accuracy(sum(method for _, method in pairs), len(pairs)),
        gained,
        lost,
        mcnemar_exact(gained, lost),
    )
