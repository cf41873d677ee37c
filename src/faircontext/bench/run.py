"""Run a method and zero-shot over images; a bad file is a row with an error and never ends a run."""

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
    """A row with what it was made from.

    Attributes:
        row: what is written.
        prediction: the method's, None where the file was refused.
        notes: what was decided when the file was read, see `DecodedImage`.
    """

    row: Row
    prediction: Prediction | None = None
    notes: tuple[str, ...] = ()


def answer_images(
    paths: Iterable[Path],
    labels: LabelSpace,
    method: Method,
    recipe: ViewRecipe,
    seed: int = 0,
    read: Callable[[Path], DecodedImage] = read_image,
    truth: Callable[[Path], int | None] = lambda _: None,
) -> Iterator[Answer]:
    """Yield one answer per image, in order.

    Args:
        paths: image files.
        labels: the label space.
        method: which method; zero-shot is run beside it, on the same prompts.
        recipe: how views are made.
        seed: the run's seed.
        read: how a file is decoded.
        truth: index of an image's class, or None where it is not known; see `FolderTruth`.
    """
    zero_shot = ZeroShot()
    labels.text  # noqa: B018 (encoded here, so that it does not count in the first image's seconds)
    for path in paths:
        begin = time.perf_counter()
        label = truth(path)
        row = Row(str(path), "" if label is None else labels.names[label], method=method.name)
        try:
            image = read(path)
        except ImageError as error:
            yield Answer(replace(row, error=error.reason, seconds=time.perf_counter() - begin))
            continue
        episode = Episode(image.pixels, labels, recipe, seed)
        prediction = method(episode)  # before zero-shot, which reuses the plain view's features
        reference = prediction if isinstance(method, ZeroShot) else zero_shot(episode)
        yield Answer(
            replace(
                row,
                zero_shot=labels.names[reference.index],
                prediction=labels.names[prediction.index],
                votes=None if prediction.votes is None else int(prediction.votes[prediction.index]),
                confidence=prediction.confidence,
                fallback=prediction.fallback or "",
                seconds=time.perf_counter() - begin,
            ),
            prediction,
            image.notes,
        )


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
