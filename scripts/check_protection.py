"""Put faults into the code, one at a time, and check that `make test` finds each.

python scripts/check_protection.py            # by the files of tests that a fault names
python scripts/check_protection.py --all      # by all that make test runs, which takes minutes for each
python scripts/check_protection.py --only tie

The faults are put into a copy of `src`. Exit code 1: one was not found; 2: the tests fail without a fault, or a fault's
text is not in the code any more, which calls for a new one here.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Fault:
    """A change that tests must notice.

    Attributes:
        file: below `src/faircontext`; "**/*.py" for all that have the text.
        old: what stands there.
        new: what takes its place.
        tests: files of tests that should notice, below `tests`.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


EXPLORE = ("test_explore.py",)
FAULTS = {
    "sign of a difference in calibration_loss": Fault(
        "calibrate.py",
        "difference = beta * (common * (text[pairs[0]] - text[pairs[1]])).sum(-1)",
        "difference = beta * (common * (text[pairs[0]] + text[pairs[1]])).sum(-1)",
        ("test_losses.py", "test_calibrate.py"),
    ),
    "tie rule: the last index first": Fault(
        "explore.py",
        "order = torch.arange(len(keys[0]), device=keys[0].device)",
        "order = torch.arange(len(keys[0]), device=keys[0].device).flip(0)",
        EXPLORE,
    ),
    "count of the entropy filter": Fault(
        "explore.py", "math.floor(rho * len(entropies) + 1e-9)", "math.ceil(rho * len(entropies) - 1e-9)", EXPLORE
    ),
    "word of an Arrow schema": Fault(
        "runs/records.py",
        "tuple[float, ...]: pa.list_(pa.float64()),",
        "tuple[float, ...]: pa.list_(pa.float32()),",
        ("runs/test_records.py", "runs/test_store.py", "runs/test_run.py"),
    ),
    "resume hash without the seed": Fault(
        "runs/plan.py",
        'apart = ("dataset", "limit", "shard", "methods", "stored", "top", "stream")',
        'apart = ("dataset", "limit", "shard", "methods", "stored", "top", "stream", "seed")',
        ("runs/test_plan.py", "runs/test_evaluate.py"),
    ),
    "EXIF orientation": Fault(
        "imageio.py",
        "_orientation(image) if exif else",
        "_orientation(image) if not exif else",
        ("test_imagefiles.py",),
    ),
    "fraction of a mask": Fault(
        "evidence.py", "np.floor(gamma * grid**2 + 0.5)", "np.floor(gamma * grid**2)", ("test_evidence.py",)
    ),
    "quantile of an interval": Fault(
        "metrics/stats.py", "Z95 = 1.959963984540054", "Z95 = 1.6448536269514722", ("metrics/test_stats.py",)
    ),
    "limit of the service": Fault(
        "serve/forms.py",
        "len(fields.images) > max_images:",
        "len(fields.images) > max_images + 1:",
        ("serve/test_refusals.py", "serve/test_forms.py"),
    ),
    "state of a stream that is not saved": Fault(
        "runs/streams.py",
        "for method, path in self._paths(folder, number).items():\n            write_state(",
        "for method, path in ():\n            write_state(",
        ("runs/test_streams.py", "runs/test_stored_states.py"),
    ),
    "renamed option": Fault("**/*.py", "labels_from_folders", "labels_by_folders", ("cli/test_cli.py",)),
    "wrong shape in an annotation": Fault(
        "explore.py",
        'text: Float[Tensor, "classes dim"],\n    beta: float,',
        'text: Float[Tensor, "dim classes"],\n    beta: float,',
        EXPLORE,
    ),
}


def put_in(fault: Fault, source: Path) -> None:
    """Put a fault into a copy of the source.

    Raises:
        SystemExit: its text is not there.
    """
    files = [path for path in (source / "faircontext").glob(fault.file) if fault.old in path.read_text("utf-8")]
    if not files:
        sys.exit(f"{fault.file} does not say {fault.old!r}; name another fault")
    for path in files:
        path.write_text(path.read_text("utf-8").replace(fault.old, fault.new), encoding="utf-8")


def status(source: Path, tests: Sequence[str]) -> int:
    """Return pytest's exit code on files of tests, or on all that `make test` runs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])}
    words = [*(f"tests/{name}" for name in tests), "-x", "-q", "-p", "no:cacheprovider"]
    if not tests:
        words += ["-n", "auto", "--dist", "worksteal"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode > 2:  # no test, or pytest itself
        sys.exit(done.stdout)
    return done.returncode


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="run all that make test runs")
    parser.add_argument("--only", default="", help="faults whose name has this word")
    given = parser.parse_args(arguments)
    chosen = {name: fault for name, fault in FAULTS.items() if given.only in name}
    files = sorted({test for fault in chosen.values() for test in fault.tests})
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        if status(source, () if given.all else files):
            print("the tests fail without a fault", file=sys.stderr)
            return 2
        for name, fault in chosen.items():
            shutil.rmtree(source)
            shutil.copytree(ROOT / "src", source)
            put_in(fault, source)
            found = bool(status(source, () if given.all else fault.tests))
            print(f"{name}: {'found' if found else 'NOT FOUND'}", flush=True)
            missed += [] if found else [name]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
