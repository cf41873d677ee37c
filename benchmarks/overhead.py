"""What FCL costs beside the encoder: one image's FCL against the bare image tower on as many images.

Usage: python benchmarks/overhead.py [--backbone lite0] [--precision auto] [--masks N] [--classes 1000] [--runs 9]

A 500 x 375 JPEG is decoded, its views are made, and FCL answers; the text of the label set is cached, as in any run
over several images. The floor is the image tower alone, on normalised pixels in its own dtype, in the same batches, for
the same number of images (views + masks + pairs, not counting padding). The two are timed in turn, so that their ratio
holds when the machine's speed drifts.
"""

import argparse
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import PIL.Image
import torch
from common import add_model_options, make_backbone, run_bare

from faircontext import Episode, LabelSpace, create_method, load_image
from faircontext.backbones import Backbone
from faircontext.methods import FCL


def photo(folder: Path) -> Path:
    """Write a 500 x 375 JPEG with structure at every scale."""
    rng = np.random.default_rng(0)
    layers = [
        PIL.Image.fromarray(rng.integers(0, 256, (3 * n, 4 * n, 3), dtype=np.uint8)).resize((500, 375), 3)
        for n in (1, 4, 16, 64)
    ]
    path = folder / "photo.jpg"
    PIL.Image.fromarray(np.mean([np.asarray(layer) for layer in layers], axis=0).astype(np.uint8)).save(
        path, quality=90
    )
    return path


def bare_seconds(backbone: Backbone, images: int) -> float:
    """Time the image tower on `images` rows, in batches of the backbone's size."""
    begin = time.perf_counter()
    run_bare(backbone, images)
    return time.perf_counter() - begin


def main() -> None:
    """Print medians, images per second and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_options(parser)
    parser.add_argument("--masks", type=int, help="without it, the preset's")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()

    backbone = make_backbone(options)
    labels = LabelSpace([f"object number {index}" for index in range(options.classes)], backbone)
    labels.text  # noqa: B018 (encodes and caches the text)
    masks = {} if options.masks is None else {"masks": options.masks}
    fcl = create_method("fcl", preset=options.preset, backbone=backbone, **masks)
    assert isinstance(fcl, FCL)
    recipe = backbone.view_recipe(options.preset)
    k = min(fcl.k, options.classes)
    images = recipe.count + fcl.masks + k * (k - 1) // 2
    with tempfile.TemporaryDirectory() as folder:
        path = photo(Path(folder))
        whole, bare = [], []
        for run in range(options.runs + 1):
            begin = time.perf_counter()
            prediction = fcl(Episode(load_image(path), labels, recipe, seed=run))
            whole.append(time.perf_counter() - begin)
            bare.append(bare_seconds(backbone, images))
            assert prediction.fallback is None, prediction.fallback
    whole, bare = whole[1:], bare[1:]  # the first of each warms up
    ratios = [a / b for a, b in zip(whole, bare, strict=True)]
    print(
        f"{options.backbone} {backbone.precision}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"{platform.machine()}; {recipe.count} views, {fcl.masks} masks, {options.classes} classes: {images} images"
    )
    for name, seconds in (("FCL", whole), ("bare encoder", bare)):
        median = statistics.median(seconds)
        print(f"{name:13} {median:6.2f} s (median of {len(seconds)})  {images / median:6.1f} images/s")
    print(f"ratio         {statistics.median(ratios):6.3f} (min {min(ratios):.3f}, max {max(ratios):.3f})")


if __name__ == "__main__":
    main()
