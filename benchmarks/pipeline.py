"""Images per second of `evaluate` with zero-shot, against the bare encoder on the same number of images.

Usage: FAIRCONTEXT_CACHE=off python benchmarks/pipeline.py DATA [--backbone lite0] [--precision auto] [--rounds 7]
                                                           [--workers 0] [--minimum 0]

DATA is a folder with labels.csv and classnames.txt (or class folders). A round times the encoder on batches of 16
random images, then the whole evaluation: reading, the plain view, encoding, answering, rows in Parquet; the first round
is not counted. Text features are computed before. Below, each stage is timed alone. With --minimum the exit code is 1
where the median ratio is lower.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from common import add_model_options, make_backbone

from faircontext import Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import Sample
from faircontext.imageio import read_image
from faircontext.runs.answer import Predictor, answer_images
from faircontext.runs.executors import answer_here
from faircontext.runs.plan import Plan
from faircontext.runs.run import run_stored
from faircontext.runs.store import RunStore
from faircontext.views import Views


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def encode(backbone: Backbone, number: int) -> None:
    pixels = torch.rand(16, 3, backbone.image_size, backbone.image_size, device=backbone.device)
    for _ in range(-(-number // 16)):
        backbone.encode_image(pixels)


def run_once(plan: Plan, workers: int) -> None:
    engine = partial(answer_here, read=read_image, workers=workers)
    with tempfile.TemporaryDirectory() as folder:
        run_stored(plan, Path(folder) / "run", engine, False, {}, print)


def stages(plan: Plan) -> dict[str, float]:
    """Return the seconds of each stage alone, one image after the other."""
    labels, backbone = plan.predictor.labels, plan.predictor.labels.backbone
    items: list[Sample] = [plan.dataset.samples[position] for position in plan.positions.tolist()]
    found = {}
    images: list[Views] = []

    def read() -> None:
        images.extend(Views(read_image(i.path).pixels, backbone.geometry, ViewRecipe(), 0) for i in items)

    found["read files (one thread)"] = seconds(read)
    found["plain views (one thread)"] = seconds(lambda: [views.plain for views in images])
    found["encode"] = seconds(lambda: encode(backbone, len(items)))
    episodes = [Episode.of(views, labels) for views in images]
    for episode in episodes:
        episode.take_z(labels.zero_shot_text[0])
    found["answer"] = seconds(lambda: [ZeroShot()(episode) for episode in episodes])
    answers = [image.answers for image in answer_images(items, plan.predictor)]
    document = {"schema_version": 2, "config": plan.config}
    with tempfile.TemporaryDirectory() as folder, RunStore(Path(folder), document, ["zero_shot"], False) as store:

        def write() -> None:
            for position, own in enumerate(answers):
                store.add([replace(answer, position=position) for answer in own])
            store.finish()

        found["write rows"] = seconds(write)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    add_model_options(parser)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--minimum", type=float, default=0.0)
    options = parser.parse_args()
    backbone = make_backbone(options)
    dataset = load_dataset(str(options.data.resolve()), Path())
    predictor = Predictor(LabelSpace(dataset.names, backbone), {"zero_shot": ZeroShot()}, ViewRecipe())
    plan = Plan(dataset, predictor, 0, None, None, {})
    predictor.labels.zero_shot_text  # noqa: B018 (computed before anything is timed)
    plan.config  # noqa: B018 (the same; it hashes the weights)
    number, ratios, bare = len(plan.positions), [], []
    for _ in range(1 + options.rounds):
        before = seconds(lambda: encode(backbone, number))
        whole = seconds(lambda: run_once(plan, options.workers))
        after = seconds(lambda: encode(backbone, number))  # the machine may change its pace: the mean of both sides
        bare.append((before + after) / 2)
        ratios.append(bare[-1] / whole)
    ratio = statistics.median(ratios[1:])
    print(
        f"{backbone.name} ({backbone.precision}), {dataset.name}: {number} images, {torch.get_num_threads()} threads, "
        f"{options.workers} workers\n"
        f"bare encoder {number / statistics.median(bare[1:]):.0f} images/s; evaluate reaches {ratio:.2f} of it "
        f"({min(ratios[1:]):.2f} to {max(ratios[1:]):.2f} in {options.rounds} rounds)"
    )
    for name, cost in stages(plan).items():
        print(f"  {name:26} {1000 * cost / number:6.2f} ms per image")
    if ratio < options.minimum:
        print(f"less than {options.minimum}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
