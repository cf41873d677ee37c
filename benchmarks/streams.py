"""What a step of each method with a memory costs beside encoding, with a full memory, and how large that is.

Usage: python benchmarks/streams.py [--classes 1000] [--dim 512] [--views 64] [--images 1000] [--runs 30] [--cpu]

Features are made: time does not depend on what they show. Memories are filled as after a long stream; that of ECALP,
which grows, has as many images as are asked for. Methods take turns, image by image, so that all see the same of a
machine that does other work. Freed memory is kept, as commands do. `--cpu` counts the processor's seconds, of all
threads, instead of those on the wall.
"""

import argparse
import statistics
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F

from faircontext import Episode, LabelSpace, StreamMethod, StreamState, ViewRecipe, create_backbone, create_method
from faircontext.system import keep_freed_memory

NAMES = ("tda", "dmn", "onzeta", "boostadapter", "dpe", "ecalp")


def made_features(rows: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Return unit vectors around a common direction, as features of a model are."""
    return F.normalize(torch.randn(rows, dim, generator=generator) + 1.0, dim=-1)


def fill(state: StreamState, generator: torch.Generator) -> None:
    """Fill a memory: caches to their capacity, and ECALP's graph with its nodes' lists."""
    tensors = state.tensors
    for prefix in {name.removesuffix("_count") for name in tensors if name.endswith("_count")}:
        features = tensors[f"{prefix}_x"]
        classes, capacity, dim = features.shape
        for label in range(classes):
            features[label] = made_features(capacity, dim, generator)
        tensors[f"{prefix}_h"].copy_(torch.rand(classes, capacity, generator=generator).sort(1).values * 5 + 2)
        tensors[f"{prefix}_count"].fill_(capacity)
        if (mask := tensors.get(f"{prefix}_mask")) is not None:
            mask[..., :10] = torch.randint(0, classes, (classes, capacity, 10), generator=generator)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("classes", 1000), ("dim", 512), ("views", 64), ("images", 1000), ("runs", 30)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter

    keep_freed_memory()
    draw = torch.Generator().manual_seed(0)
    labels = LabelSpace([f"object number {index}" for index in range(options.classes)], create_backbone("lite0"))
    labels.backbone.logit_scale = 100.0  # as CLIP's
    vars(labels)["zero_shot_text"] = made_features(options.classes, options.dim, draw)

    def episode(number: int) -> Episode:
        made = Episode(np.full((1, 1, 3), number % 256, np.uint8), labels, ViewRecipe(count=options.views))
        centre = labels.zero_shot_text[number % options.classes] + 0.5 * made_features(1, options.dim, draw)
        vars(made)["view_features"] = F.normalize(
            centre + 0.02 * made_features(options.views, options.dim, draw), dim=-1
        )
        return made

    zero_shot = create_method("zero_shot")
    methods: dict[str, StreamMethod] = {name: create_method(name) for name in NAMES}
    states = {name: method.start(labels, 10**6) for name, method in methods.items()}
    for state in states.values():
        fill(state, draw)
    for number in range(options.images):
        methods["ecalp"].step(episode(number), states["ecalp"])
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(options.runs + 2):
        image = episode(number)
        begin = clock()
        zero_shot(image)
        seconds["zero_shot"].append(clock() - begin)
        for name, method in methods.items():
            begin = clock()
            prediction, _ = method.step(image, states[name])
            seconds[name].append(clock() - begin)
            assert prediction.fallback is None, prediction.fallback
    kind = "of the processor" if options.cpu else "on the wall"
    print(
        f"{options.classes} classes, {options.dim} dimensions, {options.views} views, {torch.get_num_threads()} threads"
        f", torch {torch.__version__}; milliseconds {kind}, {options.runs} steps in turn"
    )
    print(f"{'method':13} {'least':>8} {'median':>8} {'state, MB':>10}")
    for name, values in seconds.items():
        kept = sorted(1000 * value for value in values[2:])  # the first two warm up
        size = f"{states[name].megabytes:.1f}" if name in states else ""
        print(f"{name:13} {kept[0]:8.2f} {statistics.median(kept):8.2f} {size:>10}")


if __name__ == "__main__":
    main()
