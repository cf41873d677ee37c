"""What a labelled data set is once it has been found on disk, whatever its layout there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Dataset", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One labelled image.

    Attributes:
        key: what the image is known by in records: its path below the data set's image folder, with `/` between.
        path: the file.
        label: index of its class.
    """

    key: str
    path: Path
    label: int


@dataclass(frozen=True)
class Dataset:
    """A split of a data set, found on disk.

    Attributes:
        name: what it is known by, for example `caltech101`.
        folder: where it was found.
        layout: which of the known layouts was taken, in words.
        split: `test`, `val` or `official`; `all` where there are none.
        names: class names, in the order of labels; two may be equal, so classes are known by index.
        samples: the images that are there, in the data set's own order.
        missing: keys of images that the split lists and that are not there.
        template: the hand-crafted prompt template of CoOp's zero-shot baseline.
        regime: the kind of data, for `ViewRecipe.regime`.
        remarks: what a person should know before a run, a line each.
        reference: how many images the split has by its authors; None where that is not known.
    """

    name: str
    folder: Path
    layout: str
    split: str
    names: tuple[str, ...]
    samples: tuple[Sample, ...]
    missing: tuple[str, ...] = ()
    template: str = "a photo of a {}."
    regime: Literal["natural", "fine-grained"] = "natural"
    remarks: tuple[str, ...] = ()
    reference: int | None = None

    @property
    def listed(self) -> int:
        """How many images the split has, those that are not there included."""
        return max(len(self.samples) + len(self.missing), self.reference or 0)
