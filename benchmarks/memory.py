"""How much memory one image's FCL takes above the loaded model: peak resident size, for several numbers of masks.

Usage: python benchmarks/memory.py [--backbone lite0] [--precision auto] [--masks 100 1600]

Each number is measured in a process of its own, since a peak never falls. "Loaded" is the resident size with the model,
the text features of the label set, and one plain view encoded; the rise is from there to the peak during FCL.
"""

import argparse
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from faircontext import Episode, LabelSpace, ZeroShot, create_backbone, create_method


def resident_mb() -> float:
    """Return the resident size of this process now, in MB (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def peak_mb() -> float:
    """Return the largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, precision: str, masks: int) -> None:
    """Print the rise for one number of masks."""
    backbone = create_backbone(name, precision=precision)
    labels = LabelSpace([f"object number {index}" for index in range(50)], backbone)
    image = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    ZeroShot()(Episode(image, labels))
    loaded = resident_mb()
    fcl = create_method("fcl", preset="recommended", backbone=backbone, masks=masks)
    fcl(Episode(image, labels, backbone.view_recipe("recommended")))
    peak = peak_mb()
    print(f"{name} {backbone.precision}, {masks:5} masks: loaded {loaded:.0f} MB, peak {peak:.0f} MB, "
          f"rise {peak - loaded:.0f} MB")  # fmt: skip


def main() -> None:
    """Start one process per number of masks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--masks", type=int, nargs="+", default=[100, 1600])
    options = parser.parse_args()
    if len(options.masks) == 1:
        measure(options.backbone, options.precision, options.masks[0])
        return
    for masks in options.masks:
        words = ["--backbone", options.backbone, "--precision", options.precision, "--masks", str(masks)]
        subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
