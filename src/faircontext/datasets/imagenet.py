"""ImageNet and its variants: labels by wnid or integer folder, class names of CLIP's authors, none of them typed in.

Two of the 1,000 names occur twice (missile, sunglasses), so classes are known by index. The variants A and R have 200
classes each: a label is the rank of its wnid among their sorted wnids.
"""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from faircontext.datasets.folder import is_folder, list_entries
from faircontext.datasets.own import samples_below
from faircontext.datasets.spec import Sample
from faircontext.errors import ArgumentError

__all__ = ["imagenet_names", "imagenet_wnids", "read_imagenet"]

WNID = re.compile(r"n\d{8}")
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


def read_imagenet(place: Path, variant: str = "") -> tuple[Sample, ...]:
    """Return the images in wnid folders, or in folders 0 to 999 as of ImageNet-V2.

    Raises:
        ArgumentError: a folder is none of the classes, or images lie without folders.
    """
    wnids = imagenet_wnids(variant)
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    folders, flat = [], False
    for entry in list_entries(place):
        if not is_folder(entry):  # a README.txt lies beside the class folders of A and R
            flat = flat or bool(FLAT.fullmatch(entry.name))
        elif entry.name in labels:
            folders.append((entry, labels[entry.name]))
        elif not variant and entry.name.isdecimal() and int(entry.name) < len(wnids):
            folders.append((entry, int(entry.name)))
        elif WNID.fullmatch(entry.name) or entry.name.isdecimal():
            raise ArgumentError(f"{entry}: is none of the {len(wnids)} classes; take it away")
    if flat and not folders:
        raise ArgumentError(
            f"{place}: the validation images are not sorted into wnid folders; do so with the script valprep.sh that "
            "comes with many ImageNet recipes"
        )
    return samples_below(place, sorted(folders, key=lambda found: found[1]))
