"""What a step of a method with a memory costs beside encoding, and how large its state is.

    python benchmarks/streams.py [--methods tda] [--classes 1000] [--dim 512] [--images 4000] [--cpu]

Features are made: unit vectors around those of classes, at CLIP's scale, so that nothing is encoded. Times are medians
over the last 200 images of the stream, by which time a memory of a few images per class is nearly full; zero-shot on
the same episodes is measured in turn with each method. `--cpu` counts the processor's seconds, for a machine that does
other work.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from faircontext import Episode, LabelSpace, StreamMethod, ViewRecipe, ZeroShot, create_backbone, create_method
from faircontext.methods import list_methods
from faircontext.methods.stream import is_stream

TIMED = 200


def made_labels(classes: int, dim: int) -> LabelSpace:
    """Return a label space with made text features, at CLIP's scale."""
    backbone = create_backbone("lite0")
    backbone.logit_scale = 100.0
    labels = LabelSpace([f"class {number}" for number in range(classes)], backbone)
    draw = torch.Generator().manual_seed(0)
    shared = torch.randn(dim, generator=draw)
    vars(labels)["zero_shot_text"] = F.normalize(torch.randn(classes, dim, generator=draw) + 1.2 * shared, dim=-1)
    return labels


def made_episodes(labels: LabelSpace, images: int, views: int) -> Iterator[Episode]:
    """Yield episodes of images whose views lie around the text features of their class."""
    draw, text = torch.Generator().manual_seed(1), labels.zero_shot_text
    dim = text.shape[1]
    for number in range(images):
        truth = int(torch.randint(0, len(text), (), generator=draw))
        image = text[truth] + (0.6 / dim**0.5) * torch.randn(dim, generator=draw)
        features = image + (0.3 / dim**0.5) * torch.randn(views, dim, generator=draw)
        pixels = np.full((4, 4, 3), number % 256, np.uint8)
        pixels[0, 0] = [number // 256 % 256, number // 65536, 0]
        episode = Episode(pixels, labels, ViewRecipe(count=views))
        vars(episode)["view_features"] = F.normalize(features, dim=-1)
        yield episode


def measure(
    method: StreamMethod, labels: LabelSpace, images: int, views: int, clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Return milliseconds of a step and of zero-shot, and the state's megabytes."""
    state, zero_shot = method.start(labels, images), ZeroShot()
    steps: list[float] = []
    references: list[float] = []
    for number, episode in enumerate(made_episodes(labels, images, views)):
        begin = clock()
        _, state = method.step(episode, state)
        middle = clock()
        if number >= images - TIMED:
            zero_shot(episode)
            steps.append(middle - begin)
            references.append(clock() - middle)
    return 1e3 * statistics.median(steps), 1e3 * statistics.median(references), state.megabytes


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=[name for name in list_methods() if is_stream(name)])
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--cpu", action="store_true", help="count the processor's seconds")
    given = parser.parse_args(arguments)
    labels = made_labels(given.classes, given.dim)
    print(f"C = {given.classes}, d = {given.dim}, {given.images} images, {torch.get_num_threads()} threads")
    print(f"{'method':14} {'ms a step':>10} {'zero-shot':>10} {'state, MB':>10}")
    for name in given.methods:
        method = create_method(name)
        assert isinstance(method, StreamMethod)
        clock = time.process_time if given.cpu else time.perf_counter
        step, reference, size = measure(method, labels, given.images, given.views, clock)
        print(f"{name:14} {step:10.2f} {reference:10.2f} {size:10.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
