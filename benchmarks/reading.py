"""Time and peak memory of `tables` and `report` on a made run, and from process start to exit on a small one.

Usage: python benchmarks/reading.py [--rows 125000 250000 500000] [--repeats 1] [--out reading.json]

The run is of one data set of 1,000 classes with zero-shot, FCL and nine other methods; its rows are as wide as those of
FCL on ImageNet (about 0.9 kB, most of it diagnostics). Its images are not on the disk: the page has no pictures. Every
command is a process of its own; seconds are from its start to its exit, memory is its largest resident size. The small
run has 20 images; the command is started once before, and then five times.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from faircontext.files import to_json, write_whole
from faircontext.runs.records import METHOD_TITLES, SCHEMA
from faircontext.runs.store import write_run
from faircontext.system import usable_processors

METHODS = (*METHOD_TITLES, "fcl-200")
CLASSES = 1000


def write(folder: Path, rows: int, seed: int = 0) -> None:
    """Write a run with about so many rows; three of four predictions are correct."""
    images = rows // len(METHODS)
    rng = np.random.default_rng(seed)
    position = np.repeat(np.arange(images), len(METHODS))
    n = len(position)
    label = np.repeat(rng.integers(0, CLASSES, images), len(METHODS))
    index = np.where(rng.random(n) < 0.75, label, rng.integers(0, CLASSES, n))
    zero_shot = np.repeat(index[:: len(METHODS)], len(METHODS))
    top5 = np.stack([(index + step) % CLASSES for step in (0, 7, 11, 13, 17)], axis=1)
    names = pa.array([f"class {one}" for one in range(CLASSES)])
    methods = pa.array(np.tile(METHODS, images))
    confidence = rng.uniform(0.2, 1.0, n)
    offsets = pa.array(np.arange(0, 5 * n + 1, 5), pa.int32())
    empty = pa.ListArray.from_arrays(pa.array(np.zeros(n + 1), pa.int32()), pa.array([], pa.string()))
    losses = [{f"loss_{at}": value for at, value in enumerate(row)} for row in rng.random((1000, 20)).tolist()]
    diagnostics = pa.array([json.dumps({"views_selected": 19, "explored": 79, **one}) for one in losses])
    columns = {name: pa.nulls(n, SCHEMA.field(name).type) for name in SCHEMA.names} | {
        "path": pa.array([f"val/n{one % CLASSES:08}/image_{one:08}.JPEG" for one in range(images)]).take(position),
        "method": methods,
        "label": names.take(label),
        "zero_shot": names.take(zero_shot),
        "prediction": names.take(index),
        "confidence": pa.array(confidence),
        "fallback": pa.array([""]).take(np.zeros(n, np.int64)),
        "error": pa.array([""]).take(np.zeros(n, np.int64)),
        "seconds": pa.array(rng.uniform(1.0, 2.0, n)),
        "dataset": pa.array(["imagenet"]).take(np.zeros(n, np.int64)),
        "config": methods,
        "position": pa.array(position),
        "label_index": pa.array(label),
        "zero_shot_index": pa.array(zero_shot),
        "index": pa.array(index),
        "top5": pa.ListArray.from_arrays(offsets, pa.array(top5.ravel())),
        "top5_probabilities": pa.ListArray.from_arrays(offsets, pa.array(rng.uniform(0, 0.2, 5 * n))),
        "label_probability": pa.array(np.where(index == label, confidence, 0.01)),
        "probability_norm": pa.array(confidence**2),
        "candidates": pa.ListArray.from_arrays(offsets, pa.array(top5.ravel())),
        "diagnostics": diagnostics.take(rng.integers(0, len(diagnostics), n)),
        "warnings": empty,
    }
    dataset = {"name": "imagenet", "split": "test", "classes": CLASSES, "images": images, "listed": images, "hash": "0"}
    config = {
        "dataset": dataset,
        "names": names.to_pylist(),
        "backbone": {"name": "ViT-B-16", "precision": "fp32"},
        "views": {"count": 64, "scale": [0.08, 1.0]},
        "pretrained": "openai",
        "preset": "paper",
        "prompts": "single",
        "seed": 0,
        "limit": None,
        "shard": None,
        "methods": {method: {} for method in METHODS},
        "versions": {},
    }
    document = {
        "schema_version": 2,
        "status": "complete",
        "config": config,
        "hashes": {method: method for method in METHODS},
        "sessions": [],
        "counts": {"images": images, "unreadable": 0},
        "folder": str(folder / "images"),
    }
    write_run(folder, document, pa.table(columns, schema=SCHEMA))


def measure(*words: str) -> tuple[float, float]:
    """Run a command, and return its seconds and the largest resident size of its process in MB."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "faircontext", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with exit code {process.returncode}")
    return seconds, usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    """Print a table, and write the numbers where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[125_000, 250_000, 500_000])
    parser.add_argument("--repeats", type=int, default=1, help="of each command; the fastest counts")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    options = parser.parse_args()
    entries = []
    print("| rows | file | tables | report |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for rows in options.rows:
            write(folder / str(rows), rows)
            size = (folder / str(rows) / "rows.parquet").stat().st_size / 2**20
            commands = {"tables": (), "report": ("--out", str(folder / "page.html"))}
            best = {
                command: min(measure(command, str(folder / str(rows)), *more) for _ in range(options.repeats))
                for command, more in commands.items()
            }
            cells = [f"{seconds:.1f} s, {peak:,.0f} MB" for seconds, peak in best.values()]
            print(f"| {rows:,} | {size:.0f} MB | {' | '.join(cells)} |", flush=True)
            entries.append({"rows": rows, "file_mb": size, "seconds_and_peak_mb": best})
        write(folder / "small", 20 * len(METHODS))
        seconds = [measure("tables", str(folder / "small"))[0] for _ in range(6)][1:]
    print(f"\n`tables` on a run of 20 images, from start to exit: {statistics.median(seconds):.2f} s (median of 5; "
          f"{min(seconds):.2f} to {max(seconds):.2f}); {usable_processors()} processors")  # fmt: skip
    if options.out is not None:
        document = {"reading": entries, "start_to_exit": seconds, "processors": usable_processors()}
        write_whole(options.out, to_json(document))


if __name__ == "__main__":
    main()
