"""Seconds of an answer over HTTP: from a cold start, and warm beside the library.

Usage: FAIRCONTEXT_CACHE=off python benchmarks/service.py PHOTO [--backbone lite0] [--method fcl] [--rounds 7]

The cold start is from the start of the process to its first answer. Warm, the service and the library (in this process,
with the same threads) answer the photo in turn; the first round is not counted. The library's time is what `classify`
takes for an image in memory: decoding, views, the method, zero-shot, the entries of the JSON file.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

LABELS = "cat,dog,rocket,motorcycle,horse,guitar,house,snail,astronaut,cup of coffee"


def library(options: argparse.Namespace) -> Callable[[], object]:
    """Return what answers the photo in this process."""
    from faircontext import LabelSpace, create_backbone, create_method
    from faircontext.datasets.spec import Sample
    from faircontext.files import to_json
    from faircontext.runs.answer import Predictor, answer_images
    from faircontext.sources import Content
    from faircontext.system import keep_freed_memory

    keep_freed_memory()  # as the service does
    backbone = create_backbone(options.backbone, engine=options.engine_image)
    space = LabelSpace(LABELS.split(","), backbone)
    methods = {options.method: create_method(options.method, preset="recommended", backbone=backbone)}
    recipe, content = backbone.view_recipe("recommended"), options.photo.read_bytes()

    def answer() -> str:
        item = Sample(options.photo.name, Content(options.photo.name, content))
        (answered,) = answer_images([item], Predictor(space, methods, recipe))
        return to_json([answer.entry(space.names) for answer in answered.answers], indent=None)

    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=Path)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--method", default="fcl")
    parser.add_argument("--engine-image", default="torch", help="of both, as auto may choose another for each")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    words = ("serve", "--port", "0", "--backbone", options.backbone, "--labels", LABELS, "--method", options.method)
    began = time.perf_counter()
    command = [sys.executable, "-m", "faircontext", *words, "--engine-image", options.engine_image]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stdout is not None
            url = re.search(r"http://\S+(?=/ )", process.stdout.readline())
            assert url is not None, "the service did not start"
            opened = time.perf_counter() - began
            http = httpx.Client(base_url=url[0], timeout=300, trust_env=False)
            content = options.photo.read_bytes()

            def ask() -> object:
                files = [("images", (options.photo.name, content))]
                return http.post("/v1/classify", data={"label_set": "default"}, files=files).raise_for_status()

            ask()
            print(f"cold: port open after {opened:.2f} s, first answer after {time.perf_counter() - began:.2f} s")
            measure(ask, library(options), options.rounds)
        finally:
            process.terminate()
    return 0


def measure(ask: Callable[[], object], answer: Callable[[], object], rounds: int) -> None:
    """Print the seconds of both, in turn."""
    pairs = []
    for _ in range(rounds + 1):
        times = []
        for work in (ask, answer):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        pairs.append(times)
    service, here = (statistics.median(times) for times in zip(*pairs[1:], strict=True))
    ratios = sorted(first / second for first, second in pairs[1:])
    print(f"warm: service {service:.3f} s, library {here:.3f} s")
    print(
        f"ratio, median (min to max) of {rounds}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


if __name__ == "__main__":
    sys.exit(main())
