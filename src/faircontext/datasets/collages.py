"""Collages of a data set's photos, on which it is known where each class is: the truth that evidence maps are held to.

A collage has side x side cells, each the plain square view of a photo of another class. It is a user's data set:
`evaluate` and `analyze` read it like any other, and a file's name says which class is in which cell.
"""

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageOps

from faircontext.datasets.containers import TABLE
from faircontext.datasets.folder import NAMES
from faircontext.datasets.label_encoder import SEPARATOR, SEVERAL
from faircontext.datasets.spec import Dataset, Sample
from faircontext.errors import ArgumentError, ImageError, check_minimum, reason_of
from faircontext.imageio import load_image

CELL = 224
"""Side of a cell in pixels. Most models read 224 or a multiple of it, so that a cell's edge falls on a pixel's, or
within a third of one; every model sees all of a collage, since it is square."""

_NAME = re.compile(r"(?:^|/)c\d+_(\d+)x(\d+)_(\d+(?:-\d+)*)\.png$")


def cells_of(path: str) -> Int[np.ndarray, "side side"] | None:
    """Return the class index of each cell of a collage, from its file's name; None for another file.

    Args:
        path: of the file, with `/` between folders.
    """
    match = _NAME.search(path)
    if match is None:
        return None
    side, classes = int(match[1]), [int(word) for word in match[3].split("-")]
    return np.array(classes).reshape(side, side) if match[1] == match[2] and len(classes) == side**2 else None


@dataclass(frozen=True)
class Collage:
    """The name of a collage's file, for example `c0003_2x2_0-5-3-2.png`, its pixels, and the class of each cell."""

    name: str
    pixels: UInt8[np.ndarray, "size size 3"]
    cells: Int[np.ndarray, "side side"]


@dataclass
class Collages:
    """Draws collages from a data set, one after the other: the first n of more are those of n.

    The classes of a collage are drawn without replacement from those that have photos. A class's photos are shuffled
    and dealt to two hands, one for collages of even index and one for those of odd index, so that settings can be
    chosen on one half and measured on the other; a hand without a photo that can be read takes from the other one. A
    hand that is used up is shuffled and starts again.

    Attributes:
        dataset: whose photos are taken.
        side: cells along a side, at least 2.
        seed: of the draws.
        unreadable: photos that could not be read, and that another of their class stands for.

    Raises:
        ArgumentError: there are fewer classes with photos than cells.
    """

    dataset: Dataset
    side: int = 2
    seed: int = 0
    unreadable: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_minimum("side", self.side, 2)
        check_minimum("seed", self.seed, 0)
        present = sorted({sample.label for sample in self.dataset.samples if sample.label is not None})
        if len(present) < self.side**2:
            most = int(len(present) ** 0.5)
            hint = f"--side {most} is the most here" if most > 1 else "no collage can be made of it"
            raise ArgumentError(
                f"{self.dataset.name}: a collage of {self.side} x {self.side} needs {self.side**2} classes with "
                f"images, and there are {len(present)}; {hint}"
            )
        self._classes = np.array(present)

    def draw(self, count: int) -> Iterator[Collage]:
        """Yield collages.

        Args:
            count: how many, at least 1.

        Raises:
            ArgumentError: no photo of a class can be read.
        """
        check_minimum("count", count, 1)
        rng = np.random.default_rng(self.seed)
        hands = self._deal(rng)
        for index in range(count):
            classes = rng.permutation(self._classes)[: self.side**2].reshape(self.side, self.side)
            rows = [
                np.hstack([self._next_photo(hands[label], index % 2, label, rng) for label in row.tolist()])
                for row in classes
            ]
            word = "-".join(map(str, classes.ravel().tolist()))
            yield Collage(f"c{index:04}_{self.side}x{self.side}_{word}.png", np.vstack(rows), classes)

    def _deal(self, rng: np.random.Generator) -> dict[int, tuple["_Hand", "_Hand"]]:
        hands = {}
        for label in self._classes.tolist():
            photos = [sample for sample in self.dataset.samples if sample.label == label]
            shuffled = [photos[index] for index in rng.permutation(len(photos))]
            hands[label] = _Hand(shuffled[::2]), _Hand(shuffled[1::2])
        return hands

    def _next_photo(
        self, hands: tuple["_Hand", "_Hand"], half: int, label: int, rng: np.random.Generator
    ) -> UInt8[np.ndarray, "cell cell 3"]:
        while hand := (hands[half] or hands[1 - half]):
            sample = hand.next(rng)
            try:
                photo = Image.fromarray(load_image(sample.path))
                # The central square at a cell's size; Pillow's filters are antialiased.
                return np.asarray(ImageOps.fit(photo, (CELL, CELL), Image.Resampling.BICUBIC))
            except ImageError:
                hand.photos.remove(sample)
                self.unreadable.append(sample.key)
        raise ArgumentError(
            f"{self.dataset.name}: no image of class {label}, {self.dataset.names[label]!r}, can be read; see "
            f"faircontext data check {self.dataset.name} --read"
        )


class _Hand:
    """The photos of one class for one half of the collages."""

    def __init__(self, photos: list[Sample]) -> None:
        self.photos = photos
        self._rest = deque(photos)

    def __bool__(self) -> bool:
        return bool(self.photos)

    def next(self, rng: np.random.Generator) -> Sample:
        """Return the next photo; when all have been taken, they are shuffled."""
        if not self._rest:
            self._rest.extend(self.photos[index] for index in rng.permutation(len(self.photos)))
        return self._rest.popleft()


def write_collages(collages: Collages, out: Path, count: int) -> None:
    """Write collages as a data set: `images/`, `labels.csv` and `classnames.txt`.

    The label of a collage is the class of its first cell, from the top and the left; its labels, in a column of their
    own, are those of all cells. The names of classes, and so the
    indices in the files' names, are those of the data set that the photos are from.

    Args:
        collages: draws them.
        out: a folder that is new or empty.
        count: how many.

    Raises:
        ArgumentError: the folder holds something, or cannot be written to.
    """
    try:
        if out.is_dir() and any(out.iterdir()):
            raise ArgumentError(f"--out {out}: is not empty; name a new folder")
        (out / "images").mkdir(parents=True, exist_ok=True)
        names, rows = collages.dataset.names, list[tuple[str, int, str, str]]()
        for collage in collages.draw(count):
            Image.fromarray(collage.pixels).save(out / "images" / collage.name)
            label = int(collage.cells[0, 0])
            every = SEPARATOR.join(map(str, sorted(collage.cells.ravel().tolist())))
            rows.append((f"images/{collage.name}", label, names[label], every))
        (out / NAMES).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        with (out / TABLE).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("path", "label", "class_name", SEVERAL), *rows])
    except OSError as error:
        if isinstance(error, ImageError):
            raise
        raise ArgumentError(f"--out {out}: cannot be written: {reason_of(error)}") from None
