"""Compare the engines of lite0's image tower with float32 in PyTorch: labels and accuracies of zero-shot and FCL.

Usage: python scripts/agree_engines.py ROOT [--out runs/engines] [--limit 40] [--parts 4] [--only NAME] [--lock FILE]

Evaluates what is missing, part by part, so that a call that is stopped has measured whole parts of all sets; the same
call goes on. Then it prints a table, over the parts that are there with every engine. With --lock each evaluation waits
for a lock on a file, for machines that several jobs share.
"""

import argparse
import fcntl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Accuracy
from faircontext.runs.store import load_run

REFERENCE = "torch-fp32"
ENGINES = (REFERENCE, "openvino-bf16", "torch-bf16", "openvino-fp32")
METHODS = ("zero_shot", "fcl")
LEVELS = {"zero_shot": 0.99, "fcl": 0.97}
"""Least share of images on which an engine gives the same label."""

MARGIN = 0.015
"""The paired difference of accuracies must lie within this, with its interval."""


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def evaluate(root: Path, folder: Path, dataset: str, part: str, limit: int, lock: Path | None) -> None:
    engine, _, precision = folder.name.partition("-")
    words = [
        *(sys.executable, "-m", "faircontext", "evaluate", "--datasets", dataset, "--methods", "fcl"),
        *("--root", str(root), "--out", str(folder), "--limit", str(limit), "--shard", part, "--resume"),
        *("--engine-image", engine, "--precision", precision, "--threads", "1"),
    ]
    with locked(lock):
        code = subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode
    if code not in (0, 1):
        raise SystemExit(f"evaluate ended with {code}; the same command goes on")


def predictions(folder: Path) -> dict[str, dict[int, tuple[int, bool]]]:
    """Return, for each method, the predicted class of each image and whether it is correct."""
    found: dict[str, dict[int, tuple[int, bool]]] = {method: {} for method in METHODS}
    for row in load_run(folder).rows.select(["method", "position", "index", "label_index", "error"]).to_pylist():
        if not row["error"]:
            found[row["method"]][row["position"]] = row["index"], row["index"] == row["label_index"]
    return found


def compare(pairs: list[tuple[tuple[int, bool], tuple[int, bool]]], level: float) -> str:
    """Return the cells of a row: agreement, accuracies, and what is required of them."""
    engine, reference = (np.array([pair[side][1] for pair in pairs]) for side in (0, 1))
    same = Accuracy(sum(one[0] == other[0] for one, other in pairs), len(pairs))
    comparison = Comparison.of(engine, reference)
    change = comparison.difference
    holds = same.value >= level and change.low >= -MARGIN and change.high <= MARGIN
    low, high = (100 * end for end in same.interval)
    return (
        f"{len(pairs)} | {100 * same.value:.1f} ({low:.1f} to {high:.1f}) | {comparison.accuracy} | "
        f"{comparison.reference} | {100 * change.value:+.2f} ({100 * change.low:+.2f} to {100 * change.high:+.2f}) | "
        f"{'yes' if holds else 'no'}"
    )


def table(out: Path, done: Mapping[str, list[Path]]) -> Iterator[str]:
    """Yield the rows of the table, over the runs that every engine has."""
    yield "| engine | method | n | same label % | accuracy | of float32 | difference (95%) | within the limits |"
    yield "|---|---|---:|---|---|---|---|---|"
    for engine in ENGINES[1:]:
        for method in METHODS:
            pairs = []
            for run in done[engine]:
                ours, theirs = (predictions(out / name / run.name)[method] for name in (engine, REFERENCE))
                pairs += [(ours[position], theirs[position]) for position in sorted(ours.keys() & theirs.keys())]
            if pairs:
                yield f"| {engine.replace('-', ', ')} | {method} | {compare(pairs, LEVELS[method])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/engines"))
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=list(ENGINES), choices=ENGINES, help="engines to measure")
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--no-run", action="store_true", help="print the table of what is there")
    options = parser.parse_args()
    sets = sorted(path.parent.name for path in options.root.glob("*/labels.csv"))
    for part in [] if options.no_run else range(options.parts):
        for dataset in sets:
            for engine in options.only:
                shard = f"{part}/{options.parts}"
                evaluate(options.root, options.out / engine, dataset, shard, options.limit, options.lock)
    complete = {
        engine: {path.parent for path in (options.out / engine).glob("*/run.json") if load_run(path.parent).complete}
        for engine in ENGINES
    }
    reference = {run.name for run in complete[REFERENCE]}
    done = {engine: sorted(run for run in runs if run.name in reference) for engine, runs in complete.items()}
    print("\n".join(table(options.out, done)))


if __name__ == "__main__":
    main()
