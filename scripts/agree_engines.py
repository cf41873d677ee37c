"""Compare the engines of lite0's image tower with float32 in PyTorch: labels and accuracies of zero-shot and FCL.

Usage: python scripts/agree_engines.py ROOT [--out runs/engines] [--methods zero_shot fcl] [--limit 40] [--parts 4]
                                       [--only ENGINE-PRECISION ...] [--no-run]

Evaluates what is missing; the same call goes on. Zero-shot runs on all sets at once. FCL, which takes hours, runs part
by part of all sets, so that a call that is stopped has measured whole parts. Then it prints a table, for each engine
over the runs that it and the reference have.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
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


def evaluate(options: argparse.Namespace, method: str, name: str, datasets: list[str], part: str | None) -> None:
    engine, _, precision = name.partition("-")
    words = [
        *(sys.executable, "-m", "faircontext", "evaluate", "--datasets", *datasets, "--methods", method),
        *("--root", str(options.root), "--out", str(options.out / method / name), "--limit", str(options.limit)),
        *("--engine-image", engine, "--precision", precision, "--threads", "1", "--resume"),
        *([] if part is None else ["--shard", part]),
    ]
    code = subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode
    if code not in (0, 1):
        raise SystemExit(f"evaluate ended with {code}; the same command goes on")


def measure(options: argparse.Namespace) -> None:
    """Evaluate what is missing."""
    sets = sorted(path.parent.name for path in options.root.glob("*/labels.csv"))
    if "zero_shot" in options.methods:
        for name in options.only:
            evaluate(options, "zero_shot", name, sets, None)
    if "fcl" in options.methods:
        for part in range(options.parts):
            for dataset in sets:
                for name in options.only:
                    evaluate(options, "fcl", name, [dataset], f"{part}/{options.parts}")


def predictions(folder: Path, method: str) -> dict[int, tuple[int, bool]]:
    """Return the predicted class of each image of a run, and whether it is correct."""
    columns = ["method", "position", "index", "label_index", "error"]
    rows = load_run(folder).rows.select(columns).to_pylist()
    answered = [row for row in rows if row["method"] == method and not row["error"]]
    return {row["position"]: (row["index"], row["index"] == row["label_index"]) for row in answered}


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


def complete(folder: Path) -> set[str]:
    """Return the names of the runs in a folder that are complete."""
    return {path.parent.name for path in folder.glob("*/run.json") if load_run(path.parent).complete}


def table(out: Path) -> Iterator[str]:
    """Yield the rows of the table."""
    yield "| engine | method | n | same label % (95%) | accuracy | of float32 | difference (95%) | within the limits |"
    yield "|---|---|---:|---|---|---|---|---|"
    for name in ENGINES[1:]:
        for method in METHODS:
            ours, theirs = out / method / name, out / method / REFERENCE
            pairs = []
            for run in sorted(complete(ours) & complete(theirs)):
                one, other = (predictions(folder / run, method) for folder in (ours, theirs))
                pairs += [(one[position], other[position]) for position in sorted(one.keys() & other.keys())]
            if pairs:
                yield f"| {name.replace('-', ', ')} | {method} | {compare(pairs, LEVELS[method])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/engines"))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--no-run", action="store_true")
    options = parser.parse_args()
    if not options.no_run:
        measure(options)
    print("\n".join(table(options.out)))


if __name__ == "__main__":
    main()
