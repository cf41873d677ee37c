"""How much memory one image's FCL takes above the loaded model: peak resident size, for several numbers of masks.

Usage: python benchmarks/memory.py [--backbone lite0] [--precision auto] [--masks 100 1600]

Each number is measured in a process of its own, since a peak never falls. "Loaded" is the resident size with the model,
the text features of the label set, and one plain view encoded; the rise is from there to the peak during FCL.
"""

import argparse
import gc
import subprocess
import sys

import numpy as np
from common import add_model_options, make_backbone

from faircontext import Episode, LabelSpace, ZeroShot, create_method
from faircontext.system import forget_peak, peak_mb, resident_mb


def measure(options: argparse.Namespace, masks: int) -> None:
    """Print the rise for one number of masks."""
    backbone = make_backbone(options)
    labels = LabelSpace([f"object number {index}" for index in range(options.classes)], backbone)
    image = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    ZeroShot()(Episode(image, labels))
    gc.collect()
    loaded = resident_mb()
    forget_peak()
    fcl = create_method("fcl", preset=options.preset, backbone=backbone, masks=masks)
    fcl(Episode(image, labels, backbone.view_recipe(options.preset)))
    peak = peak_mb()
    print(f"{backbone.name} {backbone.precision}, {masks:5} masks: loaded {loaded:.0f} MB, peak {peak:.0f} MB, "
          f"rise {peak - loaded:.0f} MB")  # fmt: skip


def main() -> None:
    """Start one process per number of masks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_options(parser)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--masks", type=int, nargs="+", default=[100, 1600])
    options = parser.parse_args()
    if len(options.masks) == 1:
        measure(options, options.masks[0])
        return
    for masks in options.masks:
        given = {name: value for name, value in vars(options).items() if name != "masks" and value is not None}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        words += ["--masks", str(masks)]
        subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
