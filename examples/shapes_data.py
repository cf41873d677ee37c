"""Two data sets: one with a folder for each class, and one whose layout needs a function that reads it."""

from pathlib import Path

from faircontext.datasets import Dataset, DatasetSpec, Sample


def read_flat(folder: Path, split: str) -> Dataset:
    """Read the files of one folder, which are called CLASS_NUMBER.png."""
    files = sorted(folder.glob("*_*.png"))
    names = tuple(sorted({file.name.partition("_")[0] for file in files}))
    samples = tuple(Sample(file.name, file, names.index(file.name.partition("_")[0])) for file in files)
    return Dataset("flat_shapes", folder, "classes in the names of files", split, names, samples)


def datasets() -> list[DatasetSpec]:
    """Return what is known of the data sets before they are found on disk."""
    shared = {"classes": 2, "images": {"test": 4}, "home": "example.org", "template": "a drawing of a {}."}
    return [
        DatasetSpec(name="shapes", title="Shapes", folders=("shapes",), **shared),
        DatasetSpec(name="flat_shapes", title="Flat Shapes", folders=("flat",), read=read_flat, **shared),
    ]
