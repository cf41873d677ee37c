"""Run methods over images; a bad file is a row with an error and never ends a run."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from faircontext.bench.records import Row
from faircontext.episode import Episode
from faircontext.errors import ImageError
from faircontext.imageio import DecodedImage, read_image
from faircontext.labels import LabelSpace
from faircontext.methods import Method, ZeroShot
from faircontext.metrics.stats import Accuracy, mcnemar_exact
from faircontext.types import Prediction
from faircontext.views import ViewRecipe

__all__ = ["Answer", "Comparison", "answer_images", "compare"]


@dataclass(frozen=True)
class Answer:
    """All methods' answers for one image.

    Attributes:
        rows: what is written, one per method.
        predictions: what the rows were made from, in the same order; none where the file was refused.
        notes: what was decided when the file was read, see `DecodedImage`.
    """

    rows: tuple[Row, ...]
    predictions: tuple[Prediction, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The image."""
        return self.rows[0].path

    @property
    def error(self) -> str:
        """Why the file was refused, or empty."""
        return self.rows[0].error


def answer_images(
    paths: Iterable[Path],
    labels: LabelSpace,
    methods: Sequence[Method],
    recipe: ViewRecipe,
    seed: int = 0,
    read: Callable[[Path], DecodedImage] = read_image,
    truth: Callable[[Path], int | None] = lambda _: None,
) -> Iterator[Answer]:
    """Yield one answer per image, in order; each image is read and encoded once for all methods.

    Args:
        paths: image files.
        labels: the label space.
        methods: which methods; zero-shot is run beside them, on the same prompts.
        recipe: how views are made.
        seed: the run's seed.
        read: how a file is decoded.
        truth: index of an image's class, or None where it is not known; see `FolderTruth`.
    """
    labels.text  # noqa: B018 (encoded here, so that it does not count in the first image's seconds)
    for path in paths:
        begin = time.perf_counter()
        label = truth(path)
        row = Row(str(path), "" if label is None else labels.names[label])
        try:
            image = read(path)
        except ImageError as error:
            refused = replace(row, error=error.reason, seconds=time.perf_counter() - begin)
            yield Answer(tuple(replace(refused, method=method.name) for method in methods))
            continue
        yield _answer(Episode(image.pixels, labels, recipe, seed), methods, row, image.notes, begin)


def _answer(episode: Episode, methods: Sequence[Method], row: Row, notes: tuple[str, ...], begin: float) -> Answer:
    # Zero-shot comes last: it takes the plain view's features from the views', where they are encoded anyway.
    found: dict[Method, tuple[Prediction, float]] = {}
    for method in sorted([*methods, ZeroShot()], key=lambda method: isinstance(method, ZeroShot)):
        if method not in found:
            found[method] = method(episode), time.perf_counter() - begin
            begin = time.perf_counter()
    names, (reference, _) = episode.labels.names, found[ZeroShot()]
    predictions = tuple(found[method][0] for method in methods)
    rows = tuple(
        replace(
            row,
            zero_shot=names[reference.index],
            prediction=names[prediction.index],
            votes=None if prediction.votes is None else int(prediction.votes[prediction.index]),
            confidence=prediction.confidence,
            method=method.name,
            fallback=prediction.fallback or "",
            seconds=found[method][1],
        )
        for method, prediction in zip(methods, predictions, strict=True)
    )
    return Answer(rows, predictions, notes)


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


def compare(rows: Sequence[Row]) -> Comparison | None:
    """Compare a method with zero-shot on the rows that have a label and an answer; None where there are none."""
    pairs = [(row.zero_shot == row.label, row.prediction == row.label) for row in rows if row.label and row.prediction]
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
