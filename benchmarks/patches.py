"""Masks of a vision transformer by leaving patches out, beside masks painted black: time, and agreement.

Usage: python benchmarks/patches.py [--backbone ViT-B-16] [--precision auto] [--masks 64] [--runs 5] [--photos FOLDER]

Time: the same masks of one image are encoded both ways in turn, in one process; seconds are the process's own, so that
other jobs of the machine count little. Agreement: on each photo, the cosine of
the features of one mask both ways, and Pearson's correlation over pixels of the evidence maps of both ways, as the mean
over ten classes, beside that of the maps of two seeds. With random weights, which know nothing, agreement says how
alike the two occlusions are to such a tower, and nothing of what maps are worth.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from common import add_model_options, make_backbone
from torch import Tensor

from faircontext import Episode, LabelSpace, load_image
from faircontext.evidence import Evidence

GRIDS = (7, 9, 11, 13)


def seconds(image: np.ndarray, labels: LabelSpace, masks: int, occluder: str, seed: int) -> float:
    """Return the time in which the masked copies of an image are made and encoded."""
    episode = Episode(image, labels, seed=seed)
    episode.z  # noqa: B018 (decoding and the plain view are not what is timed)
    begin = time.process_time()
    episode.masked_features(masks, GRIDS, 0.5, occluder)
    return time.process_time() - begin


def maps(episode: Episode, masks: int, occluder: str) -> tuple[Tensor, Tensor]:
    """Return the features of the masked copies, and the smoothed evidence maps, flat."""
    text, beta = episode.labels.text[0], 0.2 * episode.backbone.logit_scale
    importance, drawn = episode.importance(text, beta, masks, GRIDS, 0.5, occluder)
    evidence = Evidence(importance, drawn, *episode.x.shape[1:], "covariance", 0.1)
    return episode.masked_features(masks, GRIDS, 0.5, occluder)[1], evidence.maps.flatten(1)


def correlation(first: Tensor, second: Tensor) -> float:
    """Return Pearson's correlation over pixels, as the mean over classes."""
    first, second = (F.normalize(values - values.mean(1, keepdim=True), dim=1) for values in (first, second))
    return float((first * second).sum(1).mean())


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_options(parser)
    parser.set_defaults(backbone="ViT-B-16")
    parser.add_argument("--masks", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--photos", type=Path, help="folder of photos for the agreement; without it there is none")
    options = parser.parse_args()

    backbone = make_backbone(options)
    labels = LabelSpace([f"object number {index}" for index in range(10)], backbone)
    image = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    times: dict[str, list[float]] = {"black": [], "drop": []}
    for run in range(options.runs + 1):
        for occluder, own in times.items():
            own.append(seconds(image, labels, options.masks, occluder, run))
    times = {occluder: own[1:] for occluder, own in times.items()}  # the first of each warms up
    ratios = [black / drop for black, drop in zip(times["black"], times["drop"], strict=True)]
    print(
        f"{backbone.name} {backbone.precision}, {torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"{options.masks} masks, median of {options.runs}"
    )
    for occluder, own in times.items():
        median = statistics.median(own)
        print(f"{occluder:6} {median:7.2f} s  {options.masks / median:6.1f} images/s")
    print(f"ratio  {statistics.median(ratios):7.2f}    (min {min(ratios):.2f}, max {max(ratios):.2f})", flush=True)

    rows = []
    for path in sorted(options.photos.iterdir()) if options.photos else ():
        episode, other = (Episode(load_image(path), labels, seed=seed) for seed in (0, 1))
        (black, painted), (drop, left_out) = (maps(episode, options.masks, occluder) for occluder in times)
        seeds = correlation(painted, maps(other, options.masks, "black")[1])
        rows.append((float((black * drop).sum(1).mean()), correlation(painted, left_out), seeds))
    if rows:
        means = np.mean(rows, 0)
        print(
            f"{len(rows)} photos: cosine of one mask's features {means[0]:.3f}, correlation of maps {means[1]:+.3f}, "
            f"of black maps of two seeds {means[2]:+.3f}"
        )


if __name__ == "__main__":
    main()
