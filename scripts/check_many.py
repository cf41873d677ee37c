"""Check that very many images, answered on two workers and killed again and again, end with the rows of one run.

Usage: python scripts/check_many.py [--count 30000] [--kills 10] [--workers 2] [--backbone lite0] [--more ...]

Makes links to small images and runs `classify --out` with zero-shot: once without interruption, and once with `kill -9`
at seeded numbers of rows, each time resumed. Rows must be equal in every column but seconds. The exit code is 1 where
they are not.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faircontext.runs.store import FLUSH_ROWS, load_run

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from many import make_links


def command(links: Path, out: Path, options: argparse.Namespace) -> list[str]:
    words = [sys.executable, "-m", "faircontext", "classify", str(links), "--labels", "cat,dog,house,car,tree"]
    words += ["--method", "zero_shot", "--workers", str(options.workers), "--backbone", options.backbone]
    return [*words, "--out", str(out), "--resume", *options.more]


def rows_on_disk(out: Path) -> int:
    return len([*(out / "parts").glob("*.parquet")])


def kill_once(words: list[str], out: Path, parts: int, seconds: float) -> bool:
    """Kill a run some seconds after so many new parts are there, and return whether it was still at work."""
    before = rows_on_disk(out)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and rows_on_disk(out) < before + parts:
            time.sleep(0.02)
        time.sleep(seconds)
        alive = process.poll() is None
        process.kill()
    return alive


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="check-many-") as name:
        folder = Path(name)
        links, whole, killed = make_links(folder, options.count), folder / "whole", folder / "killed"
        begin = time.perf_counter()
        subprocess.run(command(links, whole, options), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        print(f"one run: {options.count:,} images in {seconds:.0f} s", flush=True)
        rng, kills = random.Random(0), 0
        most = max(1, options.count // (2 * FLUSH_ROWS * options.kills))
        for _ in range(options.kills):
            kills += kill_once(command(links, killed, options), killed, rng.randint(1, most), rng.uniform(0, 0.5))
        last = subprocess.run(command(links, killed, options), check=True, capture_output=True, text=True)
        one, other = (load_run(path) for path in (whole, killed))
        equal = one.rows.drop_columns(["seconds", "shared_seconds"]).equals(
            other.rows.drop_columns(["seconds", "shared_seconds"])
        )
        ends = [session["images"] for session in other.document["sessions"]]
        print(f"killed {kills} times: {len(other.rows):,} rows, {'equal' if equal else 'NOT equal'}; sessions {ends}")
        print(last.stdout.strip().splitlines()[-1])
        return int(not equal or not one.complete or not other.complete or kills < options.kills)


if __name__ == "__main__":
    sys.exit(main())
