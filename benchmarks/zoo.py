"""Every method on one image, on shared features: seconds, encoder passes, text passes, peak memory.

Usage: python benchmarks/zoo.py [--backbone lite0] [--precision auto] [--masks 400] [--classes 200] [--runs 3]

The text features of the label set are computed before, as in any run over several images. Views are encoded once and
counted as a line of their own; a method's figures are what it needs beside them. "All" is FCL and every method that
shares the views' features, one after another on one episode, against FCL alone.
"""

import argparse
import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from common import add_model_options, make_backbone
from timm.data import ImageNetInfo

from faircontext import Backbone, Episode, LabelSpace, create_method, list_methods
from faircontext.methods.base import METHODS
from faircontext.system import forget_peak, peak_mb, resident_mb

PIXELS = ("ttl", "rlcf_encoder")
"""Methods that run the image tower themselves."""


@contextmanager
def counted(backbone: Backbone) -> Iterator[dict[str, int]]:
    """Count the rows that the towers encode, with padding."""
    counts: dict[str, int] = defaultdict(int)
    kind = type(backbone)
    wrapped: dict[str, Callable[..., torch.Tensor]] = {}

    def count(name: str, method: str) -> None:
        original = wrapped[method] = getattr(kind, method)

        def counting(self: Backbone, rows: torch.Tensor, *rest: object) -> torch.Tensor:
            counts[name] += len(rows[0] if isinstance(rows, tuple) else rows)
            return original(self, rows, *rest)

        setattr(kind, method, counting)

    count("images", "_head")  # what every engine's output goes through
    count("texts", "_encode_embeddings")
    try:
        yield counts
    finally:
        for method, original in wrapped.items():
            setattr(kind, method, original)


def main() -> None:
    """Print a table, and the ratio of all to FCL alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_options(parser)
    parser.add_argument("--masks", type=int, default=400)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()

    backbone = make_backbone(options)
    names = [text.partition(",")[0] for text in ImageNetInfo().label_descriptions()[: options.classes]]
    labels = LabelSpace(names, backbone)
    labels.text  # noqa: B018 (encodes and caches the text)
    image = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    recipe = backbone.view_recipe(options.preset)
    methods = {
        name: create_method(
            name, preset=options.preset, backbone=backbone, **({"masks": options.masks} if name == "fcl" else {})
        )
        for name in list_methods()
        if METHODS[name].needs <= backbone.capabilities
    }
    create = lambda seed: Episode(image, labels, recipe, seed)  # noqa: E731 (one line is enough for it)
    create(99).view_features  # noqa: B018 (warms up)

    print(
        f"{backbone.name} {backbone.precision}, {torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"{recipe.count} views, {options.masks} masks, {len(names)} classes, median of {options.runs}"
    )
    print(f"{'':14} {'seconds':>8} {'image rows':>11} {'text rows':>10} {'peak MB':>8}")
    for name in ("views", *methods):
        seconds, peaks = [], []
        for seed in range(options.runs):
            episode = create(seed)
            if name != "views":
                episode.view_features  # noqa: B018 (shared)
            gc.collect()
            before = resident_mb()
            forget_peak()
            with counted(backbone) as rows:
                begin = time.perf_counter()
                _ = episode.view_features if name == "views" else methods[name](episode)
                seconds.append(time.perf_counter() - begin)
            peaks.append(peak_mb() - before)
        print(f"{name:14} {statistics.median(seconds):8.2f} {rows['images']:11} {rows['texts']:10} {max(peaks):8.0f}")

    shared = [method for name, method in methods.items() if name not in PIXELS]
    alone, together = [], []
    for seed in range(options.runs):
        for seconds, chosen in ((alone, [methods["fcl"]]), (together, shared)):
            episode = create(100 + seed)
            begin = time.perf_counter()
            for method in chosen:
                method(episode)
            seconds.append(time.perf_counter() - begin)
    ratios = [all_ / fcl for all_, fcl in zip(together, alone, strict=True)]
    print(
        f"FCL alone {statistics.median(alone):.2f} s, all {len(shared)} together {statistics.median(together):.2f} s; "
        f"ratio {statistics.median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
