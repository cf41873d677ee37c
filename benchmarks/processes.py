"""Images per second of a machine: the same images answered by processes times threads, in turn.

Usage: python benchmarks/processes.py DATA [--method fcl] [--images 12] [--rounds 3] [--shapes 1x2 2x1 auto]
                                           [--engine-image auto]

DATA is a folder of class folders, or one with labels.csv and classnames.txt. A shape PxT is P times `faircontext
evaluate` at once, each with T threads on one of P shards. A process's rate is its images over the seconds that it
answered them in, so without imports and models; the rates of a shape's processes add up. The shape `auto` is one
command with `--workers auto`, whose seconds count the start of its processes. The first round is not counted.
`--images` is for all processes together.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def rate(out: Path) -> float:
    """Return images per second of processes that ran at once, each of which has left a run."""
    sessions = [json.loads(path.read_text(encoding="utf-8"))["sessions"][0] for path in out.glob("*/run.json")]
    return sum(float(session["images_per_second"]) for session in sessions)


def run(options: argparse.Namespace, shape: str) -> float:
    """Answer the images once in a shape, and return the rate."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "faircontext", "evaluate", "--datasets", options.data.name]
        words += ["--root", str(options.data.parent), "--out", folder, "--methods", options.method]
        words += ["--limit", str(options.images), "--engine-image", options.engine_image]
        if shape == "auto":
            shards = [[*words, "--workers", "auto"]]
        else:
            processes, threads = map(int, shape.split("x"))
            words += ["--threads", str(threads)]
            shards = [[*words, "--shard", f"{index}/{processes}"] for index in range(processes)]
        started = [subprocess.Popen(shard, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for shard in shards]
        errors = [process.communicate()[1].decode() for process in started]
        if any(process.returncode not in (0, 1) for process in started):
            raise SystemExit(errors[-1] or "evaluate failed")
        return rate(Path(folder))


def main() -> None:
    """Print the rate of each shape, and its ratio to the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--method", default="fcl")
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=["1x2", "2x1", "auto"])
    parser.add_argument("--engine-image", default="auto")
    options = parser.parse_args()
    options.data = options.data.resolve()
    rates: dict[str, list[float]] = {shape: [] for shape in options.shapes}
    for turn in range(1 + options.rounds):
        for shape in rates:
            value = run(options, shape)
            if turn:
                rates[shape].append(value)
    first = rates[options.shapes[0]]
    for shape, values in rates.items():
        ratios = [value / base for value, base in zip(values, first, strict=True)]
        print(
            f"{options.method} {shape}: {statistics.median(values):.2f} images/s, {statistics.median(ratios):.2f} of "
            f"{options.shapes[0]} ({min(ratios):.2f} to {max(ratios):.2f}, {len(values)} rounds)"
        )


if __name__ == "__main__":
    main()
