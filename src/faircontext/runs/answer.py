"""Run methods over images; a bad file is a row with an error and ends no run.

Nor does a picture whose features are NaN or infinite, as they may be in half precision: where zero-shot has no answer
it is a row with an error, and where a method alone has none, the method falls back to zero-shot.

Files are decoded and views cut ahead, in other processes where that is asked for; features are computed in this one.
Where no method uses views, the plain views of `ROW_MULTIPLE` images are encoded in one batch.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, tee
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.attacks import attacked_views
from faircontext.backbones.base import ROW_MULTIPLE
from faircontext.corruptions import corrupted_views
from faircontext.datasets.image_tables import SEPARATOR
from faircontext.datasets.spec import Sample
from faircontext.episode import Episode
from faircontext.errors import FeatureError, ImageError
from faircontext.explore import scores
from faircontext.imageio import DecodedImage, read_image
from faircontext.labels import LabelSpace
from faircontext.methods import Method, ZeroShot
from faircontext.methods.base import METHODS
from faircontext.runs.ahead import map_ahead
from faircontext.runs.records import Row
from faircontext.shifts import Attack, Corruption, Shift
from faircontext.sources import Source
from faircontext.system import usable_processors
from faircontext.types import Prediction
from faircontext.views import Geometry, ViewRecipe, Views

__all__ = ["AnsweredImage", "Item", "PreparedImage", "Question", "answer_images", "answer_prepared", "prepare_image"]

_ZERO_SHOT = ZeroShot()


@dataclass(frozen=True)
class Item:
    """An image to be answered.

    Attributes:
        name: what it is called in its rows.
        path: the file, or where else it lies.
        label: index of its class, or None where it is not known.
        labels: indices of all its classes where it may have several, None where they are not known.
    """

    name: str
    path: Source
    label: int | None = None
    labels: tuple[int, ...] | None = None

    @classmethod
    def of(cls, sample: Sample, several: bool) -> "Item":
        """Return an image of a data set, with its class, or with all its classes where it may have several."""
        return cls(sample.key, sample.path, *((None, sample.label_set) if several else (sample.label,)))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class AnsweredImage:
    """All methods' answers for one image.

    Attributes:
        rows: what is written, one per method.
        predictions: what the rows were made from, in the same order; none where the file is unreadable.
        reference: zero-shot's prediction.
        warnings: what was decided when the file was read, see `DecodedImage`.
        label: index of the true class, None where it is not known.
        labels: indices of all true classes where an image may have several, None where they are not known.
        label_logits: log-odds of every class where an image may have several; None where they were not asked for.
        features: of the plain view, unit norm; None where the file is unreadable.
    """

    rows: tuple[Row, ...]
    predictions: tuple[Prediction, ...] = ()
    reference: Prediction | None = None
    warnings: tuple[str, ...] = ()
    label: int | None = None
    labels: tuple[int, ...] | None = None
    label_logits: Float[np.ndarray, " classes"] | None = None
    features: Float[Tensor, " dim"] | None = None

    @property
    def embedding(self) -> Float[np.ndarray, " dim"]:
        """The plain view's features in float32, none where the file is unreadable."""
        return np.zeros(0, np.float32) if self.features is None else self.features.float().cpu().numpy()

    def cosines(self, labels: LabelSpace) -> Float[np.ndarray, " classes"]:
        """Return the cosines between these features and zero-shot's text features, in float32."""
        if self.features is None:
            return np.zeros(0, np.float32)
        return scores(self.features, labels.zero_shot_text).float().cpu().numpy()

    @property
    def path(self) -> str:
        """The image."""
        return self.rows[0].path

    @property
    def error(self) -> str:
        """Why the file is unreadable, or empty."""
        return self.rows[0].error


@dataclass(frozen=True)
class Question:
    """An image, and what is to answer it."""

    item: Item
    labels: LabelSpace
    methods: Mapping[str, Method]


@dataclass(frozen=True)
class PreparedImage:
    """An image that has been read, or why not."""

    views: Views | None
    seconds: float
    error: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Reader:
    """Reads an image and makes its views; this is what runs in other processes."""

    geometry: Geometry
    recipe: ViewRecipe
    seed: int
    read: Callable[[Source], DecodedImage]
    cut: bool
    augment: bool
    corruption: Corruption | None = None

    def __call__(self, item: Item) -> PreparedImage:
        prepared = prepare_image(partial(self.read, item.path), self.geometry, self.recipe, self.seed, self.corruption)
        if prepared.views is None:
            return prepared
        begin = time.perf_counter()
        if self.cut:
            prepared.views.all  # noqa: B018
        if self.augment:
            prepared.views.augmented.all  # noqa: B018
        return replace(prepared, seconds=prepared.seconds + time.perf_counter() - begin)


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


def answer_images(
    items: Iterable[Item],
    labels: LabelSpace,
    methods: Mapping[str, Method],
    recipe: ViewRecipe,
    seed: int = 0,
    read: Callable[[Source], DecodedImage] = read_image,
    workers: int = 0,
    features: Path | None = None,
    shift: Shift | None = None,
) -> Iterator[AnsweredImage]:
    """Yield one answer per image, in order; each image is read and encoded once for all methods.

    Args:
        items: the images; taken as they are needed, so that they may be many.
        labels: the label space.
        methods: which methods, by what they are called in rows; zero-shot is run beside them, on the same prompts.
        recipe: how views are made.
        seed: the run's seed.
        read: how a file is decoded.
        workers: processes that read files and cut views ahead; with 0 this one does it when an image's turn comes.
        features: folder where image features are kept, for other runs on the same images; None keeps none.
        shift: what is done to each image before any method sees it; its time counts as no method's.

    Raises:
        FairContextError: a worker process was killed, or has been silent for too long.
        ArgumentError: the shift is an attack, and an image has no label or the image tower no gradient.
    """
    labels.text  # noqa: B018 (encoded here, so that it does not count in the first image's seconds)
    cut = any(method.uses_views for method in methods.values())
    augment = recipe.augmix == "auto" and recipe.regime == "fine-grained"
    augment = augment and any(method.fine_grained_augmix for method in methods.values())
    # Where features are kept, pixels are made only for those that are missing.
    attack = shift if isinstance(shift, Attack) else None
    corruption = shift if isinstance(shift, Corruption) else None
    ahead = features is None and attack is None
    reader = _Reader(labels.backbone.geometry, recipe, seed, read, cut and ahead, augment and ahead, corruption)
    items, ahead_of_them = tee(items)
    stream: Iterator[tuple[Item, PreparedImage]] = zip(items, _prepare(reader, ahead_of_them, workers), strict=True)
    if attack is not None:
        stream = ((item, _attack(item, image, labels, attack)) for item, image in stream)
    while chunk := list(islice(stream, 1 if cut else ROW_MULTIPLE)):
        yield from answer_prepared([(Question(item, labels, methods), image) for item, image in chunk], features)


def _prepare(reader: _Reader, items: Iterator[Item], workers: int) -> Iterator[PreparedImage]:
    """Yield prepared images in order: made when their turn comes, or ahead where there are workers."""
    if workers or reader.cut:
        yield from map_ahead(reader, items, workers) if workers else map(reader, items)
        return
    # All processors read, then, once a batch has been read, encode: on a CPU both need them.
    with ThreadPoolExecutor(min(ROW_MULTIPLE, usable_processors())) as pool:
        while chunk := [*islice(items, ROW_MULTIPLE)]:
            yield from pool.map(reader, chunk)


def _attack(item: Item, image: PreparedImage, labels: LabelSpace, attack: Attack) -> PreparedImage:
    """Attack an image that has been read, where it has."""
    if image.views is None:
        return image
    try:
        return replace(image, views=attacked_views(image.views, item.label, labels, attack))
    except FeatureError as error:
        return replace(image, views=None, error=str(error))


def answer_prepared(
    chunk: Sequence[tuple[Question, PreparedImage]], features: Path | None = None
) -> Iterator[AnsweredImage]:
    """Answer images on one backbone; where there are several, their plain views are encoded in one batch.

    Args:
        chunk: the images, of one label space or of several.
        features: folder where image features are kept; None keeps none.
    """
    begin = time.perf_counter()
    episodes = [
        None if image.views is None else Episode.of(image.views, question.labels, features) for question, image in chunk
    ]
    read = [episode for episode in episodes if episode is not None]
    if len(read) > 1:
        backbone = read[0].backbone
        plain = torch.stack([episode.plain for episode in read]).to(backbone.device)
        with suppress(FeatureError):  # of one of them: then each is encoded alone, and that one has no prediction
            encoded = backbone.encode_image(plain / 255.0)
            for episode, z in zip(read, encoded, strict=True):
                episode.take_z(z)
    shared = (time.perf_counter() - begin) / len(chunk)
    for (question, image), current in zip(chunk, episodes, strict=True):
        item, methods = question.item, question.methods
        error, seconds, begin = image.error, image.seconds + shared, time.perf_counter()
        true = item.labels if item.label is None else (item.label,)
        row = Row(item.name, SEPARATOR.join(question.labels.names[index] for index in true or ()))
        if current is not None:
            try:
                answered = _answer(current, methods, row, item.label, seconds)
                yield replace(answered, labels=item.labels, warnings=image.warnings)
                continue
            except FeatureError as caught:
                error, seconds = str(caught), seconds + time.perf_counter() - begin
        rows = tuple(replace(row, method=name, error=error, seconds=seconds) for name in methods)
        yield AnsweredImage(rows, warnings=image.warnings, label=item.label, labels=item.labels)


def _answer(
    episode: Episode, methods: Mapping[str, Method], row: Row, label: int | None, seconds: float
) -> AnsweredImage:
    """Answer one image; raise `FeatureError` where zero-shot has no prediction."""
    # Zero-shot comes last: it takes the plain view's features from the views', where they are encoded anyway.
    made: dict[Method, tuple[Prediction | str, float]] = {}
    for method in sorted([*methods.values(), _ZERO_SHOT], key=lambda method: isinstance(method, ZeroShot)):
        if method not in made:
            begin, outcome = time.perf_counter(), _try(method, episode)
            made[method], seconds = (outcome, time.perf_counter() - begin + seconds), 0.0
    names, (reference, _) = episode.labels.names, made[_ZERO_SHOT]
    if isinstance(reference, str):
        raise FeatureError(reference)
    predictions = tuple(
        replace(reference, fallback=f"{outcome}: answered by zero-shot") if isinstance(outcome, str) else outcome
        for outcome in (made[method][0] for method in methods.values())
    )
    rows = tuple(
        replace(
            row,
            zero_shot=names[reference.index],
            prediction=names[prediction.index],
            votes=None if prediction.votes is None else int(prediction.votes[prediction.index]),
            confidence=prediction.confidence,
            method=name,
            fallback=prediction.fallback or "",
            seconds=made[method][1],
        )
        for (name, method), prediction in zip(methods.items(), predictions, strict=True)
    )
    return AnsweredImage(rows, predictions, reference, label=label, features=episode.z)


def _try(method: Method, episode: Episode) -> Prediction | str:
    """Return a method's prediction, or why there is none."""
    try:
        with METHODS.blamed(getattr(method, "name", "")):
            prediction = method(episode)
            if not isinstance(prediction, Prediction):
                raise TypeError(f"it returns {type(prediction).__name__}, not Prediction")
    except FeatureError as error:
        return str(error)
    return prediction
