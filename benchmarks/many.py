"""Memory and speed of `classify --out` on very many images: the peak for 300 and for 30,000 links to small images.

Usage: python benchmarks/many.py [--counts 300 30000] [--rounds 3] [--backbone lite0] [--workers 0] [--more ...]

Each run is a process of its own, on a folder of links to a few small images; its peak is the largest resident size of
its life, and its rate is what `run.json` says. The slope is the difference of the median peaks over that of the counts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

RUN = (
    "import sys; from faircontext.cli import main; code = main(sys.argv[1:]); "
    "from faircontext.system import lifetime_peak_mb; print('PEAK', lifetime_peak_mb()); sys.exit(code)"
)
IMAGES, SIDE, LINKS_IN_A_FOLDER = 16, 64, 1000


def make_links(folder: Path, count: int) -> Path:
    """Make a folder of links to a few images, a thousand in each folder."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(exist_ok=True)
    files = [folder / "images" / f"{number}.jpg" for number in range(IMAGES)]
    for file in files:
        if not file.exists():
            Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(file)
    links = folder / f"links-{count}"
    for number in range(count):
        link = links / f"{number // LINKS_IN_A_FOLDER:04}" / f"{number:07}.jpg"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(files[number % IMAGES])
    return links


def run(links: Path, out: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Return the peak in MB and images per second of one run."""
    words = [
        "classify",
        str(links),
        "--labels",
        "cat,dog,house,car,tree",
        "--method",
        options.method,
        "--out",
        str(out),
    ]
    words += ["--backbone", options.backbone, "--workers", str(options.workers), *options.more]
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    peak = float(done.stdout.rpartition("PEAK ")[2])
    session = json.loads((out / "run.json").read_text())["sessions"][-1]
    return peak, session["images_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs=2, default=[300, 30_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--method", default="zero_shot")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peaks: dict[int, list[float]] = {count: [] for count in options.counts}
        links = {count: make_links(Path(folder), count) for count in options.counts}
        for number in range(options.rounds):
            for count in options.counts:
                peak, rate = run(links[count], Path(folder) / f"run-{count}-{number}", options)
                peaks[count].append(peak)
                print(f"{count:,} images: peak {peak:.1f} MB, {rate:.0f} images/s", flush=True)
    few, many = (statistics.median(peaks[count]) for count in options.counts)
    slope = (many - few) * 2**20 / (options.counts[1] - options.counts[0])
    print(f"slope {slope:.0f} bytes an image (medians {few:.1f} and {many:.1f} MB of {options.rounds} rounds each)")


if __name__ == "__main__":
    main()
