"""Draw the picture at the head of README.md: a photo, the evidence of two classes in it, and what sets them apart.

Usage: python scripts/draw_hero.py [--photo astronaut.png] [--labels astronaut rocket ...]

The photo is one that scikit-image ships. Evidence is drawn as `faircontext explain` draws it.
"""

import argparse
import sys
from pathlib import Path

from matplotlib.figure import Figure

import faircontext as fc
from faircontext.report import EvidenceRow, evidence_row
from faircontext.report.demo import sample_photos
from faircontext.report.style import styled


def see(photo: Path, labels: list[str], masks: int) -> EvidenceRow:
    """Return what FCL sees in a photo: the photo, and maps of its two best candidates."""
    backbone = fc.create_backbone("lite0")
    fcl = fc.create_method("fcl", preset="recommended", backbone=backbone, masks=masks)
    assert isinstance(fcl, fc.FCL)
    space = fc.LabelSpace(labels, backbone)
    episode = fc.Episode(fc.load_image(photo), space, backbone.view_recipe("recommended"), seed=0)
    return evidence_row("photo", episode, fcl.adapt(episode))


def draw(row: EvidenceRow) -> Figure:
    """Draw the photo and its maps beside each other."""
    first, second, *_ = row.names
    titles = ("photo", f"evidence of\n“{first}”", f"evidence of\n“{second}”", f"“{first}” rather\nthan “{second}”")
    figure = Figure(figsize=(10, 2.45), layout="constrained")
    pixels = [row.image, *(panel.pixels for panel in row.panels)]
    for axis, title, image in zip(figure.subplots(1, 5), (*titles, "common evidence\nof both"), pixels, strict=True):
        axis.imshow(image)
        axis.set_title(title, fontsize=11)
        axis.set_axis_off()
    return figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", default="astronaut.png")
    parser.add_argument("--labels", nargs="+", default=["astronaut", "space shuttle", "flag"])
    parser.add_argument("--masks", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("docs/images/hero.jpg"))
    options = parser.parse_args()
    (photo,) = (path for path in sample_photos() if path.name == options.photo)
    row = see(photo, options.labels, options.masks)
    print(row.names, row.before.round(2), row.after.round(2), row.votes)
    with styled():
        draw(row).savefig(options.out, dpi=130, pil_kwargs={"quality": 85, "optimize": True})
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
