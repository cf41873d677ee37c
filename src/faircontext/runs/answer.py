"""Run methods over images; a bad file is a row with an error and ends no run.

Nor does a picture whose features are NaN or infinite, as they may be in half precision: where zero-shot has no answer
it is a row with an error, and where a method alone has none, the method falls back to zero-shot.

Features are computed in this process; what is done before (`runs/prepare.py`) may be done in others. Where no method
uses views, the plain views of `ROW_MULTIPLE` images are encoded in one batch.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.base import ROW_MULTIPLE
from faircontext.datasets.label_encoder import SEPARATOR
from faircontext.episode import Episode
from faircontext.errors import FeatureError
from faircontext.explore import scores
from faircontext.imageio import DecodedImage, read_image
from faircontext.labels import LabelSpace
from faircontext.methods import Method, StreamMethod, ZeroShot
from faircontext.methods.base import METHODS
from faircontext.runs.prepare import Item, PreparedImage, Reader, attack_image, prepare_images
from faircontext.runs.records import Row
from faircontext.runs.streams import Streams
from faircontext.shifts import Attack, Corruption, Shift
from faircontext.sources import Source
from faircontext.types import Prediction
from faircontext.views import ViewRecipe

__all__ = ["AnsweredImage", "Question", "answer_images", "answer_prepared"]

_ZERO_SHOT = ZeroShot()


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
    streams: Streams | None = None,
) -> Iterator[AnsweredImage]:
    """Yield one answer per image, in order; each image is read and encoded once for all methods.

    Methods with a memory answer the images as one stream; a file that is unreadable leaves no trace in it.

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
        streams: states of methods with a memory, which are changed; None for a new stream.

    Raises:
        FairContextError: a worker process was killed, or has been silent for too long.
        ArgumentError: the shift is an attack, and an image has no label or the image tower no gradient.
    """
    labels.text  # noqa: B018 (encoded here, so that it does not count in the first image's seconds)
    if streams is None:
        streams = Streams(methods, labels, len(items) if isinstance(items, Sized) else None)
    cut = any(method.sees_views for method in methods.values())
    augment = recipe.augmix == "auto" and recipe.regime == "fine-grained"
    augment = augment and any(method.fine_grained_augmix for method in methods.values())
    # Where features are kept, pixels are made only for those that are missing.
    attack = shift if isinstance(shift, Attack) else None
    corruption = shift if isinstance(shift, Corruption) else None
    ahead = features is None and attack is None
    reader = Reader(labels.backbone.geometry, recipe, seed, read, cut and ahead, augment and ahead, corruption)
    prepared = prepare_images(reader, items, workers)
    if attack is not None:
        prepared = ((item, attack_image(item, image, labels, attack)) for item, image in prepared)
    while chunk := list(islice(prepared, 1 if cut else ROW_MULTIPLE)):
        questions = [(Question(item, labels, methods), image) for item, image in chunk]
        yield from answer_prepared(questions, features, streams)


class _Batch:
    """The plain views of some images, encoded together when the features of one are asked for."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = episodes

    @cached_property
    def _encoded(self) -> Tensor:
        backbone = self._episodes[0].backbone
        plain = torch.stack([episode.plain for episode in self._episodes]).to(backbone.device)
        return backbone.encode_image(plain / 255.0)

    def row(self, index: int) -> Float[Tensor, "1 dim"]:
        """Return the features of an image."""
        return self._encoded[index : index + 1]


def answer_prepared(
    chunk: Sequence[tuple[Question, PreparedImage]], features: Path | None = None, streams: Streams | None = None
) -> Iterator[AnsweredImage]:
    """Answer images on one backbone; where there are several, their plain views are encoded in one batch.

    Args:
        chunk: the images, of one label space or of several.
        features: folder where image features are kept; None keeps none.
        streams: states of methods with a memory, which are changed; None where no method has one.
    """
    begin = time.perf_counter()
    episodes = [
        None if image.views is None else Episode.of(image.views, question.labels, features) for question, image in chunk
    ]
    read = [episode for episode in episodes if episode is not None]
    if len(read) > 1:
        with suppress(FeatureError):  # of one of them: then each is encoded alone, and that one has no prediction
            batch = _Batch(read)
            for index, episode in enumerate(read):
                episode.encode_z(partial(batch.row, index))
    together = (time.perf_counter() - begin) / len(chunk)
    for (question, image), current in zip(chunk, episodes, strict=True):
        item, methods = question.item, question.methods
        error, shared, begin = image.error, image.seconds + together, time.perf_counter()
        true = item.labels if item.label is None else (item.label,)
        row = Row(item.name, SEPARATOR.join(question.labels.names[index] for index in true or ()))
        if current is not None:
            current.count_views(image.view_seconds)
            try:
                answered = _answer(current, methods, row, item.label, shared, streams)
                yield replace(answered, labels=item.labels, warnings=image.warnings)
                continue
            except FeatureError as caught:
                error, shared = str(caught), shared + time.perf_counter() - begin
        rows = tuple(replace(row, method=name, error=error, shared_seconds=shared) for name in methods)
        yield AnsweredImage(rows, warnings=image.warnings, label=item.label, labels=item.labels)


def _rank(method: Method) -> int:
    """Return when a method's turn comes: those last that take the plain view's features from the views', if any."""
    return 2 if isinstance(method, ZeroShot) else int(isinstance(method, StreamMethod))


def _answer(
    episode: Episode,
    methods: Mapping[str, Method],
    row: Row,
    label: int | None,
    shared: float,
    streams: Streams | None,
) -> AnsweredImage:
    """Answer one image; raise `FeatureError` where zero-shot has no prediction."""
    made: dict[Method, tuple[Prediction | str, float, float]] = {}
    for method in sorted([*methods.values(), _ZERO_SHOT], key=_rank):
        if method not in made:
            made[method] = episode.ledger.measure(partial(_try, method, episode, streams))
    names, (reference, *_) = episode.labels.names, made[_ZERO_SHOT]
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
            shared_seconds=shared + made[method][2],
        )
        for (name, method), prediction in zip(methods.items(), predictions, strict=True)
    )
    return AnsweredImage(rows, predictions, reference, label=label, features=episode.z)


def _try(method: Method, episode: Episode, streams: Streams | None) -> Prediction | str:
    """Return a method's prediction, or why there is none."""
    try:
        with METHODS.blamed(getattr(method, "name", "")):
            if streams is not None and isinstance(method, StreamMethod):
                prediction = streams.step(method, episode)
            else:
                prediction = method(episode)
            if not isinstance(prediction, Prediction):
                raise TypeError(f"it returns {type(prediction).__name__}, not Prediction")
    except FeatureError as error:
        return str(error)
    return prediction
