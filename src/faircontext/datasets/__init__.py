"""Where images and class names come from: known data sets, a user's folders, and collages of photos."""

from importlib import import_module
from typing import TYPE_CHECKING

from faircontext.datasets.spec import (
    CATALOGUE,
    DATASETS,
    Dataset,
    DatasetSpec,
    Sample,
    expected_tree,
    list_datasets,
    locate,
)

if TYPE_CHECKING:
    from faircontext.datasets.collages import Collages, cells_of, write_collages
    from faircontext.datasets.folder import find_images
    from faircontext.datasets.load import Report, check_dataset, check_present, load_dataset

__all__ = [
    "CATALOGUE",
    "DATASETS",
    "Collages",
    "Dataset",
    "DatasetSpec",
    "Report",
    "Sample",
    "cells_of",
    "check_dataset",
    "check_present",
    "expected_tree",
    "find_images",
    "list_datasets",
    "load_dataset",
    "locate",
    "write_collages",
]

_HOME = {
    **dict.fromkeys(("Report", "check_dataset", "check_present", "load_dataset"), "load"),
    **dict.fromkeys(("Collages", "cells_of", "write_collages"), "collages"),
    "find_images": "folder",
}


def __getattr__(name: str) -> object:
    """Import what reads images, and so Pillow, when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'faircontext.datasets' has no attribute {name!r}")
    return getattr(import_module(f"faircontext.datasets.{_HOME[name]}"), name)
