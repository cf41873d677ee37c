"""Check that a run's records do not depend on how it was carried out: killed, in shards, with workers, on Ray.

Usage: python scripts/check_runs.py ROOT DATASET [--limit 60] [--kills 10] [--masks 50] [--backbone lite0] [--only ray]

Runs zero-shot and FCL once without interruption, then: with `kill -9` at seeded times, each time resumed; in 1, 2 and 5
shards, merged; with 1 and 2 workers; on Ray, with an actor killed on the way. Records must be equal in every column but
seconds; on Ray floats may differ by 1e-4. The exit code is 1 where they are not.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from faircontext.runs.store import load_run

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from helpers import descendants

FLOATS = ("confidence", "top5_probabilities", "label_probability", "probability_norm", "diagnostics")


def command(options: argparse.Namespace, out: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "faircontext", "evaluate", "--datasets", options.dataset, "--root", str(options.root)),
        *("--out", str(out), "--methods", "zero_shot", "fcl", "--backbone", options.backbone),
        *("--limit", str(options.limit), "--set", f"fcl.masks={options.masks}", *more),
    ]


def carry_out(words: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - begin


def records(folder: Path) -> pa.Table:
    run = load_run(folder)
    if not run.complete:
        raise SystemExit(f"{folder} is not complete")
    return run.rows.drop_columns(["seconds", "shared_seconds"])


def differences(first: pa.Table, second: pa.Table, tolerance: float = 0.0) -> str:
    """Return in words how two tables differ, or nothing."""
    if tolerance == 0.0:
        return "" if first.equals(second) else "rows differ"
    if not first.drop_columns(list(FLOATS)).equals(second.drop_columns(list(FLOATS))):
        return "ids, labels or votes differ"
    worst = max(largest(first[name].to_pylist(), second[name].to_pylist()) for name in FLOATS)
    return f"floats differ by {worst:.1e}" if worst > tolerance else ""


def largest(first: object, second: object) -> float:
    """Return the largest difference of numbers in two equal structures."""
    if isinstance(first, str) and isinstance(second, str):
        return 0.0 if first == second else largest(json.loads(first), json.loads(second))
    if isinstance(first, dict) and isinstance(second, dict):
        return max((largest(value, second[key]) for key, value in first.items()), default=0.0)
    if isinstance(first, list) and isinstance(second, list):
        return max((largest(*pair) for pair in zip(first, second, strict=True)), default=0.0)
    if isinstance(first, float | int) and isinstance(second, float | int):
        return abs(first - second)
    return 0.0 if first == second else float("inf")


def killed(options: argparse.Namespace, out: Path, seconds: float) -> str:
    """Carry a run out with kills at seeded times."""
    rng, kills = random.Random(0), 0
    while kills < options.kills:
        process = subprocess.Popen(
            command(options, out, "--resume"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(timeout=rng.uniform(0.1, max(15.0, seconds / 3)))
            break  # it was done before its time came
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    carry_out(command(options, out, "--resume"))
    return f"{kills} kills"


def sharded(options: argparse.Namespace, out: Path, parts: int) -> None:
    for part in range(parts):
        carry_out(command(options, out / "shards", "--shard", f"{part}/{parts}"))
    merge = (sys.executable, "-m", "faircontext", "merge", str(out / "shards"), "--out", str(out / "whole"))
    carry_out(merge)


def kill_an_actor(after: float, found: list[int]) -> None:
    """Kill the first actor among the processes that this script has started, some time after it appeared."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        for process in descendants():
            try:
                words = Path(f"/proc/{process}/cmdline").read_bytes()
            except OSError:
                continue
            if b"ray::" in words and b"_Answerer" in words:
                time.sleep(after)
                os.kill(process, signal.SIGKILL)
                found.append(process)
                return
        time.sleep(0.5)


def on_ray(options: argparse.Namespace, out: Path, seconds: float) -> str:
    found: list[int] = []
    killer = threading.Thread(target=kill_an_actor, args=(10 + seconds / 3, found), daemon=True)
    killer.start()
    carry_out(command(options, out, "--engine", "ray"))
    return f"{len(found)} actor killed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--masks", type=int, default=50)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--only", nargs="*", default=["kill", "shards", "workers", "ray"])
    options = parser.parse_args()
    failed = False
    folder = Path(tempfile.mkdtemp(prefix="check-runs-"))
    name = options.dataset

    def report(what: str, rows: pa.Table, tolerance: float = 0.0, more: str = "") -> None:
        nonlocal failed
        wrong = differences(whole, rows, tolerance)
        failed = failed or bool(wrong)
        print(f"{what:12} {wrong or 'equal'}{f' ({more})' if more else ''}", flush=True)

    seconds = carry_out(command(options, folder / "whole"))
    whole = records(folder / "whole" / name)
    print(f"{'whole':12} {len(whole)} rows in {seconds:.0f} s", flush=True)
    if "kill" in options.only:
        more = killed(options, folder / "kill", seconds)
        report("killed", records(folder / "kill" / name), more=more)
    for parts in (1, 2, 5) if "shards" in options.only else ():
        sharded(options, folder / f"shards-{parts}", parts)
        report(f"{parts} shards", records(folder / f"shards-{parts}" / "whole" / name))
    for workers in (1, 2) if "workers" in options.only else ():
        carry_out(command(options, folder / f"workers-{workers}", "--workers", str(workers)))
        report(f"{workers} workers", records(folder / f"workers-{workers}" / name))
    if "ray" in options.only:
        more = on_ray(options, folder / "ray", seconds)
        report("Ray", records(folder / "ray" / name), 1e-4, more)
    shutil.rmtree(folder)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
