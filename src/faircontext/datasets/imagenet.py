"""ImageNet and its variants: labels by wnid or integer folder, class names of CLIP's authors, none of them typed in.

Two of the 1,000 names occur twice (missile, sunglasses), so classes are known by index. The variants A and R have 200
classes each: a label is the rank of its wnid among their sorted wnids.
"""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from faircontext.classnames import as_integer, count_from_one
from faircontext.datasets.own import WNID, samples_below
from faircontext.datasets.spec import Sample
from faircontext.datasets.walk import is_folder, list_entries
from faircontext.errors import ArgumentError

__all__ = ["imagenet_names", "imagenet_wnids", "read_imagenet"]

FLAT = re.compile(r"ILSVRC2012_val_\d{8}\.JPEG")


@cache
def imagenet_wnids(variant: str = "") -> tuple[str, ...]:
    """Return the wnids by label, of all 1,000 classes or of a variant: `a` or `r`."""
    name = f"imagenet_{variant}_synsets.txt" if variant else "imagenet_synsets.txt"
    lines = (files("timm.data") / "_info" / name).read_text(encoding="utf-8").split()
    return tuple(lines)


def imagenet_names(variant: str = "") -> tuple[str, ...]:
    """Return the class names by label; see `imagenet_wnids`."""
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES  # takes seconds to import

    places = {wnid: place for place, wnid in enumerate(imagenet_wnids())}
    return tuple(IMAGENET_CLASSNAMES[places[wnid]] for wnid in imagenet_wnids(variant))


def read_imagenet(place: Path, variant: str = "") -> tuple[tuple[Sample, ...], list[str]]:
    """Return the images in wnid folders, or in folders 0 to 999 as of ImageNet-V2, in the order of labels, and remarks.

    Raises:
        ArgumentError: a folder is none of the classes, or two are the same one, or images lie without folders.
    """
    wnids = imagenet_wnids(variant)
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    folders: dict[int, Path] = {}
    flat = False
    for entry in list_entries(place):
        if not is_folder(entry):  # a README.txt lies beside the class folders of A and R
            flat = flat or bool(FLAT.fullmatch(entry.name))
        elif WNID.fullmatch(entry.name) or entry.name.isdecimal():
            number = None if variant else as_integer(entry.name)
            label = labels.get(entry.name, -1) if number is None else number
            if not 0 <= label < len(wnids):
                first = "" if variant or 0 in folders else "; folders count from 0, and there is no folder 0"
                raise ArgumentError(f"{entry}: is none of the {len(wnids)} classes; take it away{first}")
            if (other := folders.setdefault(label, entry)) != entry:
                raise ArgumentError(f"{entry}: is of the same class as {other.name}; take one away")
    if flat and not folders:
        raise ArgumentError(
            f"{place}: the validation images are not sorted into wnid folders; do so with the script valprep.sh that "
            "comes with many ImageNet recipes"
        )
    samples, remarks = samples_below(place, [(folders[label], label) for label in sorted(folders)])
    odd = count_from_one(folders, wnids) if all(folder.name.isdecimal() for folder in folders.values()) else ""
    return samples, [*remarks, *([f"folders may count from 1: {odd}"] if odd else [])]
