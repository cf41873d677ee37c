"""Run methods over images; a bad file is a row with an error and ends no run.

Nor does a picture whose features are NaN or infinite, as they may be in half precision: where zero-shot has no answer
it is a row with an error, and where a method alone has none, the method falls back to zero-shot.

Features are computed in this process; what is done before (`runs/prepare.py`) may be done in others. Where no method
uses views, the plain views of `ROW_MULTIPLE` images are encoded in one batch.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.engines import ROW_MULTIPLE
from faircontext.datasets.label_encoder import SEPARATOR
from faircontext.datasets.spec import Sample
from faircontext.episode import Episode
from faircontext.errors import FeatureError
from faircontext.explore import scores
from faircontext.files import to_json
from faircontext.imageio import DecodedImage, read_image
from faircontext.labels import LabelSpace
from faircontext.methods import Method, StreamMethod, ZeroShot
from faircontext.methods.base import METHODS
from faircontext.perturbations import Attack, Corruption, Perturbation
from faircontext.runs.decisions import AnsweredImage, Decision
from faircontext.runs.prepare import PreparedImage, Reader, attack_image, prepare_images
from faircontext.runs.records import SCORES_COLUMNS, Answer
from faircontext.runs.streams import Streams
from faircontext.sources import Source
from faircontext.types import Prediction
from faircontext.views import ViewRecipe

_ZERO_SHOT = ZeroShot()


@dataclass(frozen=True)
class Predictor:
    """What answers images.

    Attributes:
        labels: the label space.
        methods: by what they are called in rows; zero-shot is run beside them, on the same prompts.
        recipe: how views are made.
        decision: what is made of the answers before they are written.
        stored: what answers hold besides, of `scores` and `embeddings`; see `Answer`.
        top: how many of the best classes answers hold.
        method_warnings: what a person should know about the choice of methods, a line each.
        tuned: methods whose settings their authors chose for this data set.
    """

    labels: LabelSpace
    methods: Mapping[str, Method]
    recipe: ViewRecipe
    decision: Decision = field(default_factory=Decision)
    stored: tuple[str, ...] = ()
    top: int = 5
    method_warnings: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()

    @property
    def sees_views(self) -> bool:
        """Whether a method sees more of an image than its plain view."""
        return any(method.sees_views for method in self.methods.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of a run's rows, see `Answer`."""
        return self.decision.columns or (SCORES_COLUMNS if self.stored else ())

    def warnings(self) -> list[str]:
        """Return what a person should know about prompts and methods before a run, a line each."""
        methods = (method.label_warnings(self.labels) for method in self.methods.values())
        return list(dict.fromkeys([*self.labels.warnings(), *self.method_warnings, *chain.from_iterable(methods)]))


Question = tuple[Sample, Predictor, PreparedImage]
"""An image, what is to answer it, and what was made of its file."""


def answer_images(
    samples: Iterable[Sample],
    predictor: Predictor,
    seed: int = 0,
    read: Callable[[Source], DecodedImage] = read_image,
    workers: int = 0,
    features: Path | None = None,
    perturbation: Perturbation | None = None,
    streams: Streams | None = None,
) -> Iterator[AnsweredImage]:
    """Yield one answer per image, in order; each image is read and encoded once for all methods.

    Methods with a memory answer the images as one stream; a file that is unreadable leaves no trace in it.

    Args:
        samples: the images; taken as they are needed, so that they may be many.
        predictor: what answers them.
        seed: the run's seed.
        read: how a file is decoded.
        workers: processes that read files and cut views ahead; with 0 this one does it when an image's turn comes.
        features: folder where image features are kept, for other runs on the same images; None keeps none.
        perturbation: what is done to each image before any method sees it; its time counts as no method's.
        streams: states of methods with a memory, which are changed; None for a new stream.

    Raises:
        FairContextError: a worker process was killed, or has been silent for too long.
        ArgumentError: the perturbation is an attack, and an image has no label or the image tower no gradient.
    """
    labels, methods, recipe, cut = predictor.labels, predictor.methods, predictor.recipe, predictor.sees_views
    labels.text  # noqa: B018 (encoded here, so that it does not count in the first image's seconds)
    if streams is None:
        streams = Streams(methods, labels, len(samples) if isinstance(samples, Sized) else None)
    augment = recipe.augmix == "auto" and recipe.regime == "fine-grained"
    augment = augment and any(method.fine_grained_augmix for method in methods.values())
    # Where features are kept, pixels are made only for those that are missing.
    attack = perturbation if isinstance(perturbation, Attack) else None
    corruption = perturbation if isinstance(perturbation, Corruption) else None
    ahead = features is None and attack is None
    reader = Reader(labels.backbone.geometry, recipe, seed, read, cut and ahead, augment and ahead, corruption)
    prepared = prepare_images(reader, samples, workers)
    if attack is not None:
        prepared = ((sample, attack_image(sample, image, labels, attack)) for sample, image in prepared)
    while chunk := list(islice(prepared, 1 if cut else ROW_MULTIPLE)):
        yield from answer_prepared([(sample, predictor, image) for sample, image in chunk], features, streams)


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
    chunk: Sequence[Question], features: Path | None = None, streams: Streams | None = None
) -> Iterator[AnsweredImage]:
    """Answer images on one backbone; where there are several, their plain views are encoded in one batch.

    Args:
        chunk: the images, of one label space or of several.
        features: folder where image features are kept; None keeps none.
        streams: states of methods with a memory, which are changed; None where no method has one.
    """
    begin = time.perf_counter()
    episodes = [
        None if image.views is None else Episode.of(image.views, predictor.labels, features)
        for _, predictor, image in chunk
    ]
    read = [episode for episode in episodes if episode is not None]
    if len(read) > 1:
        with suppress(FeatureError):  # of one of them: then each is encoded alone, and that one has no prediction
            batch = _Batch(read)
            for index, episode in enumerate(read):
                episode.encode_z(partial(batch.row, index))
    together = (time.perf_counter() - begin) / len(chunk)
    for (sample, predictor, image), current in zip(chunk, episodes, strict=True):
        label = SEPARATOR.join(predictor.labels.names[index] for index in sample.label_set or ())
        blank = Answer(sample.key, label, label_index=sample.label, targets=sample.label_set, warnings=image.warnings)
        shared, begin = image.seconds + together, time.perf_counter()
        try:
            if current is None:
                raise FeatureError(image.error)
            current.count_views(image.view_seconds)
            answered = _answer(current, predictor, replace(blank, shared_seconds=shared), streams)
        except FeatureError as error:
            blank = replace(blank, error=str(error), shared_seconds=shared + time.perf_counter() - begin)
            answered = AnsweredImage(tuple(replace(blank, method=name) for name in predictor.methods))
        yield predictor.decision.decide(answered)


def _rank(method: Method) -> int:
    """Return when a method's turn comes: those last that take the plain view's features from the views', if any."""
    return 2 if isinstance(method, ZeroShot) else int(isinstance(method, StreamMethod))


def _answer(episode: Episode, predictor: Predictor, blank: Answer, streams: Streams | None) -> AnsweredImage:
    """Answer one image; raise `FeatureError` where zero-shot has no prediction."""
    outcomes: dict[Method, tuple[Prediction | str, float, float]] = {}
    for method in sorted([*predictor.methods.values(), _ZERO_SHOT], key=_rank):
        if method not in outcomes:
            outcomes[method] = episode.ledger.measure(partial(_try, method, episode, streams))
    reference, *_ = outcomes[_ZERO_SHOT]
    if isinstance(reference, str):
        raise FeatureError(reference)
    names, shared, z = predictor.labels.names, blank.shared_seconds or 0.0, episode.z
    blank = replace(blank, zero_shot=names[reference.index], zero_shot_index=reference.index)
    if "scores" in predictor.stored:
        blank = replace(blank, cosines=_array(scores(z, predictor.labels.zero_shot_text)))
    answers, predictions = list[Answer](), list[Prediction]()
    for name, method in predictor.methods.items():
        outcome, seconds, shared_work = outcomes[method]
        if isinstance(outcome, str):
            outcome = replace(reference, fallback=f"{outcome}: answered by zero-shot")
        outcome = predictor.decision.temper(name, outcome)
        row = replace(blank, method=name, seconds=seconds, shared_seconds=shared + shared_work)
        if not answers and "embeddings" in predictor.stored:
            row = replace(row, embedding=_array(z))
        answers.append(_filled(row, outcome, predictor))
        predictions.append(outcome)
    return AnsweredImage(tuple(answers), tuple(predictions), reference, z)


def _filled(answer: Answer, prediction: Prediction, predictor: Predictor) -> Answer:
    """Return an answer with what a prediction says."""
    exact, index, label = prediction.probabilities.double(), prediction.index, answer.label_index
    top = prediction.ranking[: predictor.top]
    return replace(
        answer,
        prediction=predictor.labels.names[index],
        votes=None if prediction.votes is None else int(prediction.votes[index]),
        confidence=prediction.confidence,
        fallback=prediction.fallback or "",
        index=index,
        top5=tuple(top.tolist()),
        top5_probabilities=tuple(exact[top].tolist()),
        label_probability=None if label is None else float(exact[label]),
        probability_norm=float((exact**2).sum()),
        candidates=prediction.candidates,
        diagnostics=to_json(dict(prediction.diagnostics), indent=None, ensure_ascii=True),
        probabilities=_array(prediction.probabilities) if "scores" in predictor.stored else None,
    )


def _array(values: Tensor) -> Float[np.ndarray, " _"]:
    return values.float().cpu().numpy()


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
