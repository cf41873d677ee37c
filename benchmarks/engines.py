"""Engines of the image tower in turn: images per second of the bare tower and of FCL, and the time of one photo.

Usage: python benchmarks/engines.py [--runs 5] [--masks 100] [--threads N] [--before SRC] [--cpu]
                                   [--give-back] [--json FILE]

The tower: 64 normalised pictures, in each engine and precision in turn. FCL: one photo of 500 x 375, all its views,
masks and pairs, with the text of its classes cached, in bf16 (where the processor has it) in either engine in turn; the
floor is the bare tower of the same engine on as many pictures. One photo: `classify` with FCL in a process of its own,
from its start to its exit, with the converted tower and the text in the cache; with --before beside the package in
another folder (a git worktree's `src`), in turn. As commands do, this process keeps the memory that it frees, from
which PyTorch's tower gains more than OpenVINO's; with --give-back it does not. Figures are medians, ratios those of
medians. With --cpu seconds are those of the processor, of all threads, so that other jobs of the machine count little.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from common import run_bare
from overhead import photo

import faircontext
from faircontext import Backbone, Episode, LabelSpace, create_backbone, create_method, load_image
from faircontext.methods import FCL
from faircontext.system import keep_freed_memory, processor_name

ROWS = 64
CLASSES = tuple(f"object number {number}" for number in range(100))


Clock = Callable[[], float]


def cpu_clock() -> float:
    """Return the seconds of the processor that this process and those that it has waited for took."""
    return sum(os.times()[:4])


def in_turn(works: Mapping[str, Callable[[], object]], runs: int, clock: Clock) -> dict[str, list[float]]:
    """Return the seconds of each work, run in turn; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for run in range(1 + runs):
        for name, work in works.items():
            begin = clock()
            work()
            if run:
                seconds[name].append(clock() - begin)
    return seconds


def towers(backbones: Mapping[str, Backbone], runs: int, clock: Clock) -> dict[str, Any]:
    """Measure bare towers."""
    seconds = in_turn({name: lambda one=one: run_bare(one, ROWS) for name, one in backbones.items()}, runs, clock)
    return {name: round(ROWS / statistics.median(taken), 1) for name, taken in seconds.items()}


def fcl(backbones: Mapping[str, Backbone], masks: int, runs: int, clock: Clock) -> dict[str, Any]:
    """Measure FCL on one photo, and the bare towers on as many pictures."""
    works: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        image = load_image(photo(Path(folder)))
    counts = {}
    for name, backbone in backbones.items():
        labels = LabelSpace(CLASSES, backbone)
        labels.text  # noqa: B018 (encoded before)
        method = create_method("fcl", preset="recommended", backbone=backbone, masks=masks)
        assert isinstance(method, FCL)
        recipe = backbone.view_recipe("recommended")
        counts[name] = recipe.count + masks + method.k * (method.k - 1) // 2
        works[name] = lambda labels=labels, method=method, recipe=recipe: method(Episode(image, labels, recipe))
        works[f"{name} bare"] = lambda one=backbone, count=counts[name]: run_bare(one, count)
    medians = {name: statistics.median(taken) for name, taken in in_turn(works, runs, clock).items()}
    return {
        name: {
            "images_per_second": round(counts[name] / medians[name], 1),
            "over_bare_encoder": round(medians[name] / medians[f"{name} bare"], 3),
        }
        for name in backbones
    }


def starts(sources: Mapping[str, Path], masks: int, threads: int, runs: int, clock: Clock) -> dict[str, float]:
    """Measure one photo from process start to exit, for the package in some folders."""
    with tempfile.TemporaryDirectory() as folder:
        path, cache = photo(Path(folder)), Path(folder, "cache")
        words = [
            "classify",
            str(path),
            "--labels",
            ",".join(CLASSES[:12]),
            "--method",
            "fcl",
            "--set",
            f"masks={masks}",
        ]

        def run(source: Path) -> None:
            settings = {"PYTHONPATH": str(source), "FAIRCONTEXT_CACHE": str(cache), "OMP_NUM_THREADS": str(threads)}
            command = [sys.executable, "-m", "faircontext", *words]
            subprocess.run(command, check=True, env={**os.environ, **settings}, capture_output=True, cwd=folder)

        seconds = in_turn({name: lambda source=source: run(source) for name, source in sources.items()}, runs, clock)
    return {name: round(statistics.median(taken), 2) for name, taken in seconds.items()}


def table(found: Mapping[str, Any]) -> str:
    """Return all figures as one table."""
    lines = [f"{'images/s':34} {'':>8}"]
    lines += [f"  tower, {name:25} {value:8.1f}" for name, value in found["tower"].items()]
    for name, values in found["fcl"].items():
        ratio = f"{values['over_bare_encoder']:.2f} times the bare encoder's time"
        lines.append(f"  FCL, {name:27} {values['images_per_second']:8.1f}  {ratio}")
    lines += [f"  ratio, {name:25} {value:8.2f}" for name, value in found["ratios"].items()]
    lines.append("seconds, one photo from process start to exit")
    lines += [f"  {name:32} {value:8.2f}" for name, value in found["start"].items()]
    return "\n".join(lines)


def store(path: Path, name: str, found: Mapping[str, Any]) -> None:
    """Put the results of one benchmark into the file of all."""
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**document, name: found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--masks", type=int, default=100)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--before", type=Path, help="folder of an earlier version of the package")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--give-back", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = cpu_clock if options.cpu else time.perf_counter
    warnings.simplefilter("ignore")  # that the tower is converted
    backbones = {
        f"{engine}, {precision}": create_backbone("lite0", precision=precision, engine=engine)
        for precision in ("fp32", "bf16")
        for engine in ("torch", "openvino")
    }
    keeps = not options.give_back and keep_freed_memory()
    lower = {name: one for name, one in backbones.items() if one.precision == "bf16"}
    found: dict[str, Any] = {
        "tower": towers(backbones, options.runs, clock),
        "fcl": fcl(lower, options.masks, options.runs, clock),
    }
    slow, fast = lower
    found["ratios"] = {
        "tower": round(found["tower"][fast] / found["tower"][slow], 2),
        "FCL": round(found["fcl"][fast]["images_per_second"] / found["fcl"][slow]["images_per_second"], 2),
    }
    here = Path(faircontext.__file__).parents[1]
    sources = {"now": here, **({} if options.before is None else {"before": options.before})}
    found["start"] = starts(sources, options.masks, options.threads, options.runs, clock)
    if options.before is not None:
        found["ratios"]["start"] = round(found["start"]["now"] / found["start"]["before"], 2)
    machine = {"processor": processor_name(), "threads": options.threads, "python": platform.python_version()}
    versions = {"torch": torch.__version__, **backbones["openvino, bf16"].engine_facts}
    found["machine"] = {
        **machine,
        **versions,
        "runs": options.runs,
        "masks": options.masks,
        "keeps_freed_memory": keeps,
        "clock": "processor" if options.cpu else "wall",
    }
    print(table(found))
    if options.json is not None:
        store(options.json, "engines", found)


if __name__ == "__main__":
    main()
