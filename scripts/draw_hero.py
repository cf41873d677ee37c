"""Draw the picture at the head of README.md: a photo, the evidence of two classes in it, and what sets them apart.

Usage: python scripts/draw_hero.py [--photo astronaut.png] [--labels "space suit" "space shuttle"]

The photo is one that scikit-image ships. Maps are drawn as on the page of `faircontext explain`: the classes share a
scale, and their difference has its own.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import faircontext as fc
from faircontext.report.demo import sample_photos
from faircontext.report.explain import common_pixels, image_pixels, map_pixels
from faircontext.report.style import styled


def see(photo: Path, labels: list[str], masks: int) -> Mapping[str, np.ndarray]:
    """Return what FCL sees in a photo, by title: the photo, and the maps of its two best candidates."""
    backbone = fc.create_backbone("lite0")
    fcl = fc.create_method("fcl", preset="recommended", backbone=backbone, masks=masks)
    assert isinstance(fcl, fc.FCL)
    space = fc.LabelSpace(labels, backbone)
    episode = fc.Episode(fc.load_image(photo), space, backbone.view_recipe("recommended"), seed=0)
    adaptation = fcl.adapt(episode)
    evidence, best = adaptation.evidence, adaptation.after.ranking[:2].tolist()
    assert evidence is not None
    first, second = (f"“{labels[index]}”" for index in adaptation.candidates[best].tolist())
    titles = ("photo", f"evidence of\n{first}", f"evidence of\n{second}", f"{first} rather\nthan {second}")
    maps = [*map_pixels(episode, evidence, best), *map_pixels(episode, evidence.contrast(*best), [0])]
    shown = dict(zip(titles, [image_pixels(episode), *maps], strict=True))
    return {**shown, "common evidence\nof both": common_pixels(episode, adaptation)}


def draw(shown: Mapping[str, np.ndarray]) -> Figure:
    """Draw images beside each other, with their titles."""
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    for axis, (title, pixels) in zip(figure.subplots(1, len(shown)), shown.items(), strict=True):
        axis.imshow(pixels)
        axis.set_title(title, fontsize=11)
        axis.set_axis_off()
    return figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", default="astronaut.png")
    parser.add_argument("--labels", nargs="+", default=["space suit", "space shuttle"])
    parser.add_argument("--masks", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("docs/images/hero.jpg"))
    options = parser.parse_args()
    (photo,) = (path for path in sample_photos() if path.name == options.photo)
    with styled():
        figure = draw(see(photo, options.labels, options.masks))
        figure.savefig(options.out, dpi=130, bbox_inches="tight", pil_kwargs={"quality": 85, "optimize": True})
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
